/*
 * Request bodies sent with Content-Encoding: gzip, inflated under a limit.
 *
 * The whole compressed body is there first (it is bounded), so the verdict depends on its bytes alone: more than
 * ratio x its length, or more than the cap, is ERR_TOO_LARGE; anything that is not complete gzip is ERR_BAD_REQUEST.
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

#endif
