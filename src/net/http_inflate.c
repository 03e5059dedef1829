#include "net/http_inflate.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/check.h"

struct net_inflater {
    z_stream z;
    uint64_t in, out; /* piecewise: bytes so far */
    bool at_end;      /* a member is complete and nothing came after it */
};

enum { GZIP_ONLY = 16 + MAX_WBITS, AHEAD_MAX = 1 << 20 };

enum err net_inflater_create(struct net_inflater **out_inflater)
{
    struct net_inflater *z = calloc(1, sizeof *z);
    if (!z)
        return ERR_NO_MEMORY;
    if (inflateInit2(&z->z, GZIP_ONLY) != Z_OK) {
        free(z);
        return ERR_NO_MEMORY;
    }
    *out_inflater = z;
    return ERR_OK;
}

void net_inflater_destroy(struct net_inflater *z)
{
    if (!z)
        return;
    inflateEnd(&z->z);
    free(z);
}

/* Into out[0..max]; the byte at max shows that there was more. Members may follow each other (RFC 1952 §2.2). */
static enum err inflate_all(z_stream *z, uint8_t *out, size_t max, size_t *out_n)
{
    z->next_out = out;
    z->avail_out = (uInt)max + 1;
    for (;;) {
        int r = inflate(z, Z_FINISH);
        if (z->avail_out == 0)
            return ERR_TOO_LARGE;
        if (r != Z_STREAM_END)
            return ERR_BAD_REQUEST;
        if (z->avail_in == 0)
            break;
        if (inflateReset(z) != Z_OK)
            return ERR_BAD_REQUEST;
    }
    *out_n = max + 1 - z->avail_out;
    return ERR_OK;
}

enum err net_inflate(struct net_inflater *z, struct bytes in, unsigned ratio, size_t cap,
                     uint8_t **out_data, size_t *out_n)
{
    const size_t most = 1u << 30; /* zlib counts in 32 bits */
    if (in.n > most)
        return ERR_TOO_LARGE;
    size_t max = in.n * ratio < cap ? in.n * ratio : cap;
    if (max > most)
        max = most;
    if (inflateReset(&z->z) != Z_OK)
        return ERR_INTERNAL;
    uint8_t *out = malloc(max + 1);
    if (!out)
        return ERR_NO_MEMORY;
    uint8_t *next;
    memcpy(&next, &in.p, sizeof next); /* zlib's interface knows no const */
    z->z.next_in = next;
    z->z.avail_in = (uInt)in.n;
    enum err e = inflate_all(&z->z, out, max, out_n);
    if (e != ERR_OK) {
        free(out);
        return e;
    }
    *out_data = out;
    return ERR_OK;
}

/* ---- piecewise ---- */

enum err net_inflate_begin(struct net_inflater *z)
{
    z->in = z->out = 0;
    z->at_end = false;
    z->z.avail_in = 0;
    return inflateReset(&z->z) == Z_OK ? ERR_OK : ERR_INTERNAL;
}

void net_inflate_feed(struct net_inflater *z, struct bytes piece)
{
    uint8_t *next;
    CHECK(z->z.avail_in == 0 && piece.n <= UINT32_MAX);
    memcpy(&next, &piece.p, sizeof next);
    z->z.next_in = next;
    z->z.avail_in = (uInt)piece.n;
    z->in += piece.n;
}

enum err net_inflate_take(struct net_inflater *z, unsigned ratio, uint64_t cap, uint8_t *out,
                          size_t out_cap, size_t *out_n)
{
    size_t n = 0;
    z->z.next_out = out;
    z->z.avail_out = (uInt)out_cap;
    while (n == 0) {
        if (z->at_end && z->z.avail_in && inflateReset(&z->z) != Z_OK)
            return ERR_BAD_REQUEST;
        if (z->z.avail_in)
            z->at_end = false;
        else if (z->at_end)
            break;
        int r = inflate(&z->z, Z_NO_FLUSH);
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            return ERR_BAD_REQUEST;
        z->at_end = r == Z_STREAM_END;
        n = out_cap - z->z.avail_out;
        if (n == 0 && z->z.avail_in == 0)
            break;
    }
    z->out += n;
    if (z->out > cap || z->out > z->in * ratio + AHEAD_MAX)
        return ERR_TOO_LARGE;
    *out_n = n;
    return ERR_OK;
}

enum err net_inflate_end(const struct net_inflater *z, unsigned ratio)
{
    if (!z->at_end)
        return ERR_BAD_REQUEST;
    return z->out > z->in * ratio ? ERR_TOO_LARGE : ERR_OK;
}
