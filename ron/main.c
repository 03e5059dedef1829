/* The program: everything it can do is a command (cmd.h). Here is what holds for all of them: where standard output goes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ron/cmd.h"

/* A descriptor that the caller closed would be given to the next file that is opened, and what is logged or printed
 * would end up in it: in a journal, say. These cannot be written (0: read), as if they were still closed. */
static void occupy_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(CMD_FAILED);
}

RT_UNCHECKED int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    int code = cmd_main(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CMD_OK)
        return cmd_fail(NULL, CMD_FAILED, "cannot write the output%s%s", errno ? ": " : "",
                        errno ? strerror(errno) : "");
    return code;
}
