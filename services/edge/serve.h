/*
 * From a representation to a response: preconditions, ranges, headers, and the way its bytes leave.
 *
 * Ownership   edge_serve takes over the representation's reference to its file.
 * Threads     On the request's loop, or on a thread that may wait (may_block).
 */
#ifndef RON_EDGE_SERVE_H
#define RON_EDGE_SERVE_H

#include "services/edge/edge.h"

enum edge_from { EDGE_FROM_PACK, EDGE_FROM_CAS, EDGE_FROM_FILL, EDGE_FROM_REVALIDATED, EDGE_FROM_STALE };

/* The full bytes one strong ETag names. */
struct edge_repr {
    struct sha256 digest;
    uint64_t size;
    const char *type;
    const char *encoding; /* NULL: none */
    bool vary;            /* depends on Accept-Encoding */
    bool immutable;
    enum edge_from from;
    uint64_t since_s; /* 0: unknown */
    int64_t max_age_s;
    int64_t age_s;          /* -1: not said */
    struct edge_file *file; /* a reference, taken over; NULL: memory */
    bool
        read; /* people write into such files: their bytes are read and judged, never sent from the mapping */
    uint64_t offset;
    struct bytes memory; /* valid until edge_serve returned */
    uint64_t as_of;      /* edge_as_of() before it was looked for; 0: it depends on more than that */
};

/* Is what was just read of it what was promised? A file that is written into is looked at once a millisecond by each loop: answers
 * that leave together share a look, one for each was a thirteenth of the time of 16 KiB tiles. */
bool edge_file_still(struct edge_file *f);

/* The same request came before and was told 304, and nothing that it depends on has moved since: it is told so again. */
bool edge_serve_again(struct net_req *rq, uint64_t as_of);

void edge_serve(struct edge *e, struct net_req *rq, const struct edge_repr *r, bool may_block) RT_UNCHECKED;

/* An object by its digest. Takes over the reference to file. */
void edge_serve_object(struct edge *e, struct net_req *rq, const struct sha256 *digest,
                       struct edge_file *file, enum edge_from from, bool may_block) RT_UNCHECKED;

/* Headers that a 204 or a 202 of ours shares with the rest. */
void edge_cache_control(int64_t max_age_s, bool immutable, struct buf *out);

#endif
