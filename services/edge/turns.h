/*
 * The calling task works in the background from now on: behind others on the processor and the disk, and in short turns
 * (core/pace.h).
 *
 * Threads     A struct belongs to one task's thread. Zeroed it is nobody's: work before the tasks run does not rest.
 */
#ifndef RON_EDGE_TURNS_H
#define RON_EDGE_TURNS_H

#include "base/err.h"
#include "rt/lock.h"
#include "services/edge/core/pace.h"

struct rt_task;
struct svc;

struct edge_turns {
    struct rt_task *self;
    struct svc *svc;
    struct edge_pace pace;
};

void edge_turns_begin(struct edge_turns *t, struct rt_task *self,
                      struct svc *svc); /* on that task's thread */
void edge_turns_end(struct edge_turns *t);
void edge_turns_fresh(struct edge_turns *t); /* it waited for something to do, not for a core */
/* Between two small pieces of work; rests when it is time. bytes: how much was read, rate: how much a second it may be (0: any).
 * ERR_CANCELED: the task is told to stop. */
NODISCARD enum err edge_turns_next(struct edge_turns *t, uint64_t bytes, uint64_t rate) RT_BLOCKS;
/* The same inside work that is finished in any case: once told to stop, it rests no more. */
void edge_turns_rest(struct edge_turns *t, uint64_t bytes, uint64_t rate) RT_BLOCKS;

#endif
