/*
 * Which packs there are: from the built-in one, the configured mounts and the packs directory to a published generation.
 *
 * Threads     open() before the tasks run, then pack_verifier alone.
 */
#ifndef RON_EDGE_RELOAD_H
#define RON_EDGE_RELOAD_H

#include "services/edge/pack.h"

struct edge_reload {
    struct buf swapped, unchanged, removed, refused; /* JSON array members, comma-separated */
    uint64_t generation;
    size_t refused_n;
};

void edge_reload_init(struct edge_reload *r);
void edge_reload_fini(struct edge_reload *r);

/* Opens every path again: same id is kept, new is swapped in, bad is refused (the old pack stays), gone is removed. only: names
 * to look at (NULL: all). */
NODISCARD enum err edge_packs_reload(struct edge *e, const struct str *only, size_t only_n,
                                     struct edge_reload *out) RT_BLOCKS;

/* What admin, SIGHUP and the stat check send to the verifier. */
struct edge_pack_op {
    struct net_req *rq; /* to be answered, or NULL */
    struct str *only;
    size_t only_n;
    bool heap; /* freed by the verifier; else it lies in the request's arena */
};

void edge_request_reload(struct edge *e); /* joins a pending one */

#endif
