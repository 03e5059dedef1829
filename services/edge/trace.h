/*
 * Requests and fills in traces.
 *
 *   svc.edge.http       a request whose caller's trace is sampled, from its first byte until its answer is on its way; cache, status
 *     svc.edge.cache      until it was known where the bytes come from; cache
 *     svc.edge.range      composing an answer of parts; parts
 *   svc.edge.fill       from the queue until everybody is answered, below the span of the request that began it; name, origin, tries,
 *                       bytes
 *     svc.edge.try        one GET with its redirects; status. Its id is what the origin gets
 *     svc.edge.commit     until the object and its name are durable
 *
 * Hits leave spans only when the caller asks for them with a traceparent: a hit is over in microseconds, and a sample of them
 * would say nothing that the histogram does not. Fills are sampled like everything else.
 *
 * Threads     A request's: its loop or reader. A fill's: who begins it, then its worker.
 */
#ifndef RON_EDGE_TRACE_H
#define RON_EDGE_TRACE_H

#include "obs/span.h"

struct edge;
struct edge_fill;
struct net_req;

struct edge_trace {
    struct obs_span http;
    int64_t found_ns; /* when it was known where the bytes are */
};

/* False: not traced, and nothing to end. Before the answer, because that may free the request. */
bool edge_trace_begin(struct edge *e, struct net_req *rq, struct edge_trace *out);
/* parts: how many ranges were sent; 0: all of it, or none. */
void edge_trace_end(struct edge *e, struct edge_trace *t, const char *cache, int status, size_t parts);

/* Begins the fill's span below what the request says. */
void edge_trace_fill(struct edge *e, struct net_req *rq, struct edge_fill *f);
void edge_trace_filled(struct edge *e, struct edge_fill *f, enum err err);

#endif
