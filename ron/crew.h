/*
 * Work cut into parts and done by several threads, for a command that has much to compute and nothing to wait for.
 *
 * Threads     crew_run() returns when every part is done, each exactly once. Parts run at the same time: each writes what is its own.
 *             The caller works too; a thread that cannot be started is done without.
 */
#ifndef RON_CREW_H
#define RON_CREW_H

#include <stdint.h>

typedef void crew_part(void *arg, uint64_t part);

/* `threads` with the caller; os_cpus() of them use all there is. */
void crew_run(unsigned threads, uint64_t parts, crew_part *part, void *arg);

#endif
