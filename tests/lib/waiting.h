/* How C tests wait for another thread or process: for a condition, with a deadline, never for a time. */
#ifndef RON_TESTS_LIB_WAITING_H
#define RON_TESTS_LIB_WAITING_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rt/deadline.h"

enum { AWAIT_MS = 60000 };

static inline void await_step(struct deadline by, const char *what, const char *file, int line)
{
    if (deadline_passed(by)) {
        fprintf(stderr, "%s:%d: never came true: %s\n", file, line, what);
        abort();
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Looks every millisecond until it holds. */
#define AWAIT(condition)                                                                                   \
    do {                                                                                                   \
        struct deadline await_by = deadline_in_ms(AWAIT_MS);                                               \
        while (!(condition))                                                                               \
            await_step(await_by, #condition, __FILE__, __LINE__);                                          \
    } while (0)

#endif
