/*
 * Which nodes are the home of an object: every node scores every (node, digest) pair alike, so all agree without talking, and a
 * node that comes or goes moves only the objects it is home to.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_CORE_RENDEZVOUS_H
#define RON_EDGE_CORE_RENDEZVOUS_H

#include <stddef.h>

#include "base/bytes.h"
#include "base/sha256.h"

enum { EDGE_PEERS_MAX = 64 };

/* Indexes of the n (at most EDGE_PEERS_MAX) nodes, best first. Score: SHA-256(node ‖ 0x00 ‖ digest), larger is better. */
void edge_rendezvous(const struct str *nodes, size_t n, const struct sha256 *digest,
                     size_t out_order[EDGE_PEERS_MAX]);

#endif
