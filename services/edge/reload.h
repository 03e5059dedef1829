/*
 * Which packs there are: from the built-in one, the configured mounts and the packs directory to a published generation.
 *
 * Threads     open() before the tasks run, then pack_verifier alone.
 */
#ifndef RON_EDGE_RELOAD_H
#define RON_EDGE_RELOAD_H

#include "services/edge/calls.h"
#include "services/edge/pack.h"

struct edge_reload {
    struct buf swapped, unchanged, removed, refused; /* JSON array members, comma-separated */
    uint64_t generation;
    size_t refused_n;
};

void edge_reload_init(struct edge_reload *r);
void edge_reload_fini(struct edge_reload *r);
void edge_reload_refuse(struct edge_reload *r, const char *name, const char *error);

/* Opens every path again: same id is kept, new is swapped in, bad is refused (the old pack stays), gone is removed. only: names
 * to look at (NULL: all). */
NODISCARD enum err edge_packs_reload(struct edge *e, const struct str *only, size_t only_n,
                                     struct edge_reload *out) RT_BLOCKS;

/*
 * One reload, for everybody who asked before it began. A call that comes while it waits in the queue joins it; one that
 * comes while it runs gets the next one, for it may be about a file that was already looked at.
 */
struct edge_pack_op {
    struct str *only; /* copied behind the op; NULL: all packs */
    size_t only_n;
    struct edge_call *calls; /* guarded by edge.reload_lock, like edge.reload_next and edge.reload_now */
};

/* ERR_BUSY, ERR_CLOSED, ERR_NO_MEMORY: the call is still the caller's. call may be NULL: nobody waits. */
NODISCARD enum err edge_request_reload(struct edge *e, const struct str *only, size_t only_n,
                                       struct edge_call *call);
struct edge_pack_op *edge_reload_begin(struct edge *e); /* by the verifier: nobody joins it any more */
struct edge_call *edge_reload_end(struct edge *e,
                                  struct edge_pack_op *op); /* frees op; who is to be told */
void edge_reload_tick(struct edge *e);                      /* 202 to those whose time ran out */

#endif
