/*
 * A long body, read before it leaves: a listener sends only what a reader has brought into memory a moment ago, and asks for the next
 * piece when it comes to it. However large the object and however slow disk and client are, an answer begins with its first
 * piece, no reader is busy for longer than one piece takes, and no listener waits for the disk.
 *
 * Ownership   Reference-counted: the answer's, and a reader's while it reads.
 * Threads     edge_ahead_ready on the answer's loop.
 */
#ifndef RON_EDGE_AHEAD_H
#define RON_EDGE_AHEAD_H

#include "services/edge/edge.h"

enum { EDGE_AHEAD_BYTES = 1 << 20 }; /* a piece */

struct edge_ahead;

/* For the answer to rq. NULL: no memory. Takes a reference to file. */
struct edge_ahead *edge_ahead_create(struct edge *e, const struct net_req *rq, struct edge_file *file);
void edge_ahead_unref(struct edge_ahead *a);
struct edge_file *edge_ahead_file(const struct edge_ahead *a);
size_t edge_ahead_ready(void *ahead, off_t off, size_t n); /* a net_ready_fn */

#endif
