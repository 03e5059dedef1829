/*
 * What happens in the edge, told to whoever listens: fills, packs, generations, the store. Server-sent events on
 * GET /admin/events.
 *
 * Ownership   A stream belongs to the list from edge_events_follow until it ends; its request is answered by that.
 * Threads     edge_event from any thread, never waiting; the metrics task writes to the streams.
 * Order       Every listener sees the same order; who does not keep up loses the oldest and is told how many.
 */
#ifndef RON_EDGE_EVENTS_H
#define RON_EDGE_EVENTS_H

#include "services/edge/edge.h"

struct edge_events;

NODISCARD enum err edge_events_create(struct edge *e, struct edge_events **out);
void edge_events_destroy(struct edge_events *v); /* NULL is fine; every stream has ended */

/* name: [a-z_]; json: an object, copied. Costs nothing while nobody listens. */
void edge_event(struct edge *e, const char *name, const char *json_fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Begins the stream. False: there are too many; the request is still the caller's. */
bool edge_events_follow(struct edge *e, struct net_req *rq);
void edge_events_tick(struct edge *e, bool last); /* last: the streams end */

#endif
