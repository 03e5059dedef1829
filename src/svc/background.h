/*
 * Work that nobody waits for steps back before work that somebody does.
 *
 * Threads     Both speak of the calling thread alone. They are requests, which need no privilege; where the system refuses them (a
 *             filter on system calls) nothing changes but the order.
 */
#ifndef RON_SVC_BACKGROUND_H
#define RON_SVC_BACKGROUND_H

#include <stdbool.h>

/* From now on, when this thread wakes up, it waits for its turn. Its share of the processor stays. */
void svc_background_cpu(void);
/* Its reads, writes and flushes go behind those of all others (true), or take their turn again (false). */
void svc_background_io(bool on);

#endif
