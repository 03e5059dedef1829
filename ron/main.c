/* The program: everything it can do is a command (cmd.h). */
#include "ron/cmd.h"

RT_UNCHECKED int main(int argc, char **argv)
{
    return cmd_main(argc, argv);
}
