/*
 * The HTTP server with a route for everything it can do: answers from the loop, from worker threads, pinned memory, files,
 * streams in and out; and counts of what its hooks were told.
 *
 * Threads     One rig per process; the tests' thread starts and stops it. The counts are atomics, read while it runs.
 */
#ifndef RON_TESTS_HTTP_RIG_H
#define RON_TESTS_HTTP_RIG_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "net/http_server.h"
#include "net/outbox.h"
#include "raw_http.h"
#include "rt/chan.h"

struct http_rig {
    struct net_server *server;
    pthread_t loops[4], workers[2];
    unsigned loops_n;
    uint16_t port;
    struct rt_chan *jobs; /* requests for the worker threads */
    struct net_outbox *outbox;
    _Atomic int closes, releases, released_bad, unreadable, rejects[NET_REJECT_COUNT], done, late, conns,
        inflight;
    _Atomic int done_status, done_complete, pieces;
    struct net_req *_Atomic held; /* by /hold */
    _Atomic(struct net_req *) stream;
    atomic_bool
        stalled; /* set by /stall, and by /stall-after when its answer has left: the loop stands still until it is cleared */
    atomic_bool stop_workers;
};

extern struct http_rig http_rig;

enum { HTTP_RIG_BIG = 3 << 20 };
extern char http_rig_big[HTTP_RIG_BIG]; /* what /pinned and /large answer with */

extern const struct net_route http_rig_routes[]; /* the first is GET /hello */

void http_rig_start(struct net_limits limits); /* one loop on a free port of loopback */
void http_rig_start_on(struct net_limits limits, unsigned threads, const struct net_listen *listen,
                       size_t count);
void http_rig_stop(void); /* and nothing is left open */

void http_rig_release(void *arg, enum err result); /* for pinned answers: counts how they were released */

static inline struct bytes http_text(const char *s)
{
    return bytes_of(s, strlen(s));
}

void http_expect(const struct raw_response *r, int status, const char *body_part);
void http_ask(const char *request, int status, const char *body_part);     /* on a fresh connection */
void http_answered(struct raw_conn *c, int status, const char *body_part); /* the next answer on this one */

/* Waits for something the server does on its own; a condition, never a duration. */
#define EVENTUALLY(condition)                                                                              \
    do {                                                                                                   \
        struct deadline by_ = deadline_in_ms(RAW_PATIENCE_MS);                                             \
        while (!(condition)) {                                                                             \
            if (deadline_passed(by_))                                                                      \
                fail_msg("never came true: %s", #condition);                                               \
            sched_yield();                                                                                 \
        }                                                                                                  \
    } while (0)

#endif
