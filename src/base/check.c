#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check_failed(const char *expr, const char *file, int line, const char *func)
{
    char text[512];
    int n = snprintf(text, sizeof text, "CHECK failed: %s at %s:%d in %s\n", expr, file, line, func);
    if (n > 0) {
        /* The process is about to end: a short write changes nothing. */
        ssize_t ignored = write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
        (void)ignored;
    }
    abort();
}
