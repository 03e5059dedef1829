/* The program: everything it can do is a command (cmd.h). */
#include "ron/cmd.h"

int main(int argc, char **argv)
{
    return cmd_main(argc, argv);
}
