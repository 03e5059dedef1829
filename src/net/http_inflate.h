/*
 * Request bodies sent with Content-Encoding: gzip, inflated under a limit.
 *
 * The whole compressed body is there first (it is bounded), so the verdict depends on its bytes alone: more than
 * ratio x its length, or more than the cap, is ERR_TOO_LARGE; anything that is not complete gzip is ERR_BAD_REQUEST.
 *
 * A streamed body is inflated piece by piece and judged by the same two limits: by the cap at once, by the ratio when it
 * ends. Until then it may be 1 MiB ahead of the ratio, so that one piece never makes more than that at a time.
 *
 * Threads     One at a time per inflater.
 * Memory      zlib's state is kept between uses.
 */
#ifndef RON_NET_HTTP_INFLATE_H
#define RON_NET_HTTP_INFLATE_H

#include "base/bytes.h"
#include "base/err.h"

struct net_inflater;

NODISCARD enum err net_inflater_create(struct net_inflater **out_inflater);
void net_inflater_destroy(struct net_inflater *z);
/* *out_data is malloc'ed and the caller's. */
NODISCARD enum err net_inflate(struct net_inflater *z, struct bytes in, unsigned ratio, size_t cap,
                               uint8_t **out_data, size_t *out_n);

/* Piecewise: begin once, then for each piece feed it and take what it makes until nothing comes, then end. */
NODISCARD enum err net_inflate_begin(struct net_inflater *z);
void net_inflate_feed(struct net_inflater *z, struct bytes piece); /* must stay until it is used up */
/* *out_n 0: give it the next piece. */
NODISCARD enum err net_inflate_take(struct net_inflater *z, unsigned ratio, uint64_t cap, uint8_t *out,
                                    size_t out_cap, size_t *out_n);
NODISCARD enum err net_inflate_end(const struct net_inflater *z, unsigned ratio);

#endif
