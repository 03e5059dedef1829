/*
 * Event loop: one per thread, on epoll. File descriptors, timers and messages from other threads.
 *
 * Ownership   net_fd, net_timer and net_msg are embedded in the caller's structs and stay the caller's. A net_fd must be
 *             removed before it is closed or freed; a net_msg must stay alive until its function ran (it may be reused
 *             or freed from inside it).
 * Threads     net_loop_post, _wake and _stop from any thread. Everything else on the loop's own thread, or before it
 *             runs. Callbacks run on the loop's thread and must not block.
 * Memory      Nothing allocates once as many timers were armed as ever will be.
 * Order       Messages of one sender run in the order they were posted. One iteration: descriptors, messages, timers,
 *             then the batch-end functions (where output collected during the iteration is written at once), then whom
 *             net_loop_at_end named.
 */
#ifndef RON_NET_LOOP_H
#define RON_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/heap.h"
#include "rt/lock.h"

struct net_loop;
struct rt_task;

struct net_fd {
    int fd;
    uint32_t in_loop; /* private; zero it first */
    void (*fn)(struct net_fd *nf, uint32_t epoll_events);
};

struct net_timer {
    struct heap_node node; /* private; zero it first */
    int64_t at_ns;         /* when it fires, monotonic */
    void (*fn)(struct net_timer *t);
};

struct net_msg {
    struct net_msg *next; /* private */
    void (*fn)(struct net_msg *m);
};

struct net_batch {
    struct net_batch *next; /* private */
    void (*fn)(struct net_batch *b);
};

/* clock NULL: clock_real(). */
NODISCARD enum err net_loop_create(const struct clock *clock, struct net_loop **out_loop);
void net_loop_destroy(struct net_loop *loop); /* NULL is allowed; messages never run are forgotten */

/* Runs until net_loop_stop (for good) or until the task, when one is given, is told to stop (ERR_CANCELED when hard); beats
 * for it. May be run again after that: everything registered stays. */
NODISCARD enum err net_loop_run(struct net_loop *loop, struct rt_task *self) RT_BLOCKS;
/* One iteration that waits at most wait_ms (-1: until something happens). For tests and embedding. */
void net_loop_once(struct net_loop *loop, int wait_ms);
void net_loop_wake(struct net_loop *loop); /* ends the wait, from any thread: for rt_task_spec.wake */
void net_loop_stop(struct net_loop *loop);

struct net_loop *net_loop_current(void);               /* the loop this thread is running, or NULL */
int64_t net_loop_now_ns(const struct net_loop *loop);  /* when this descriptor had its turn */
int64_t net_loop_wall_ms(const struct net_loop *loop); /* likewise */
const struct clock *net_loop_clock(const struct net_loop *loop);

NODISCARD enum err net_loop_add(struct net_loop *loop, struct net_fd *nf, uint32_t epoll_events);
void net_loop_change(struct net_loop *loop, struct net_fd *nf, uint32_t epoll_events);
void net_loop_remove(struct net_loop *loop,
                     struct net_fd *nf); /* its events of this iteration are dropped too */
/* The same for one that libcurl may have closed already (http_client.c, watch_socket). */
void net_loop_remove_closed(struct net_loop *loop, struct net_fd *nf);

/* Arms or moves. A timer that fires is no longer armed when its function runs. */
void net_timer_set(struct net_loop *loop, struct net_timer *t, int64_t at_ns);
void net_timer_cancel(struct net_loop *loop, struct net_timer *t); /* not armed: nothing happens */
static inline bool net_timer_armed(const struct net_timer *t)
{
    return heap_has(&t->node);
}

/* One wake-up per sleep of the loop, however many messages arrive. The message must not be posted already. */
void net_loop_post(struct net_loop *loop, struct net_msg *m);
/*
 * A task that answers many requests at once: between cork and uncork the messages this thread posts are kept, uncork posts
 * them with one wake-up per loop. Do not wait in between: what is corked is not on its way. Pairs may nest.
 */
void net_loop_cork(void);
void net_loop_uncork(void);
/* Called once at the end of every iteration; register before the loop runs or on its thread. The one registered last runs
 * first, so what it answers still leaves with this iteration's output. */
void net_loop_at_batch_end(struct net_loop *loop, struct net_batch *b);
void net_loop_forget_batch(struct net_loop *loop,
                           struct net_batch *b); /* not registered: nothing happens */
/*
 * For who keeps something for a batch-end function: when this iteration's have begun to run, that one may have run already, and
 * nothing else would end the loop's sleep. Then the next iteration comes without a wait. Before that nothing happens.
 */
void net_loop_again(struct net_loop *loop);
/*
 * Calls fn(arg) once when no descriptor is ready any more, or some 32 were since it was asked for, after their output was
 * written and however often it is asked for; at once when this thread runs no loop. For waking those who work on what came:
 * woken at the first request of many they would run against the loop, and find one request each time. fn only wakes: it does
 * not ask for an end itself.
 */
void net_loop_at_end(void (*fn)(void *arg), void *arg);
/* Takes a message back that was posted and not run; not posted: nothing happens. Only at the end, when the loop runs no more and nobody
 * posts: a loop is left as soon as its task is told to stop, with what was posted last still in its inbox. */
void net_loop_forget(struct net_loop *loop, struct net_msg *m);
bool net_loop_has_mail(const struct net_loop *loop); /* something is posted and has not run */

#endif
