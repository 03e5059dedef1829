/*
 * Bounded decompression of hostile bytes: gzip and zstd, never more than the caller's maximum.
 *
 * Threads     Pure.
 * Memory      out grows up to its own maximum; the decoders' windows are bounded (zstd 8 MiB).
 */
#ifndef RON_EDGE_INFLATE_H
#define RON_EDGE_INFLATE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

/* As PMTiles numbers them. */
enum edge_coding {
    EDGE_CODING_UNKNOWN,
    EDGE_CODING_NONE,
    EDGE_CODING_GZIP,
    EDGE_CODING_BROTLI,
    EDGE_CODING_ZSTD
};

const char *
edge_coding_name(enum edge_coding c); /* as in Content-Encoding: "gzip"; "" for none and unknown */

/*
 * Appends the decoded bytes of `in`. ERR_CORRUPT: not decodable, truncated, or bytes left over. ERR_TOO_LARGE: more than
 * out->max. ERR_UNSUPPORTED_MEDIA_TYPE: a coding we cannot decode (br, unknown).
 */
NODISCARD enum err edge_inflate(enum edge_coding coding, struct bytes in, struct buf *out);
/* gzip with the best ratio, no name and no time: the same bytes every time. */
NODISCARD enum err edge_gzip(struct bytes in, struct buf *out);

#endif
