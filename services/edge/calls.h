/*
 * Admin calls that wait for a task to finish something, each at most as long as it said; whoever runs out of time is told
 * 202 and the work goes on.
 *
 * Ownership   A call lies in its request's arena and is answered exactly once, by whoever takes it off its list.
 * Threads     The list's owner locks.
 */
#ifndef RON_EDGE_CALLS_H
#define RON_EDGE_CALLS_H

#include "net/http_server.h"

struct edge_call {
    struct edge_call *next;
    struct net_req *rq;
    int64_t by_ns;
    const struct str *names; /* what it asks about, in its arena; none: everything */
    size_t names_n;
};

static inline void edge_calls_add(struct edge_call **list, struct edge_call *c)
{
    c->next = *list;
    *list = c;
}

static inline struct edge_call *edge_calls_take(struct edge_call **list)
{
    struct edge_call *all = *list;
    *list = NULL;
    return all;
}

/* Takes those whose time has come off the list. */
static inline struct edge_call *edge_calls_overdue(struct edge_call **list, int64_t now_ns)
{
    struct edge_call *late = NULL;
    for (struct edge_call **at = list; *at;) {
        struct edge_call *c = *at;
        if (c->by_ns > now_ns) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        edge_calls_add(&late, c);
    }
    return late;
}

#endif
