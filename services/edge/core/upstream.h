/*
 * What an origin's answer says, line by line as it comes in.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_CORE_UPSTREAM_H
#define RON_EDGE_CORE_UPSTREAM_H

#include "base/sha256.h"
#include "services/edge/core/record.h"

struct edge_answer {
    int status;
    char etag[EDGE_ETAG_MAX + 2], type[EDGE_MIME_MAX + 2], location[2048];
    bool no_store, coded, etag_seen, connect_timeout;
    bool in_head, interim,
        headed;            /* between a status line and its empty line; of a 1xx; the last head is over */
    bool chunked, unclear; /* unclear: lengths that are none, or differ */
    int64_t declared;      /* Content-Length, -1 without */
    uint64_t bytes;
    struct sha256 digest;
};

/* One line of a head, with or without its line end. A status line begins anew: a 1xx may come first. What follows the head's empty
 * line are trailers, which say nothing about the object. */
void edge_upstream_line(struct edge_answer *a, struct str line);

#endif
