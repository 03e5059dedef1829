#include "services/edge/core/inflate.h"

#include <limits.h>
#include <zlib.h>
#include <zstd.h>

enum { STEP_BYTES = 16384, ZSTD_WINDOW_LOG = 23, GZIP_WINDOW = 15 + 16 };

const char *edge_coding_name(enum edge_coding c)
{
    return c == EDGE_CODING_GZIP     ? "gzip"
           : c == EDGE_CODING_BROTLI ? "br"
           : c == EDGE_CODING_ZSTD   ? "zstd"
                                     : "";
}

/* Room for the next step; a full buffer still gets one byte of room elsewhere, so that "exactly max" is told from "more". */
static uint8_t *step_room(struct buf *out, uint8_t spill[1], size_t *room)
{
    size_t left = out->max - out->n;
    if (left == 0) {
        *room = 1;
        return spill;
    }
    *room = left < STEP_BYTES ? left : STEP_BYTES;
    return buf_reserve(out, *room);
}

static enum err inflate_gzip(struct bytes in, struct buf *out)
{
    z_stream z = {0};
    enum err e = ERR_OK;
    int rc = Z_OK;
    if (in.n > UINT_MAX)
        return ERR_TOO_LARGE;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return ERR_NO_MEMORY;
    z.next_in = (Bytef *)(uintptr_t)in.p;
    z.avail_in = (uInt)in.n;
    while (e == ERR_OK && rc != Z_STREAM_END) {
        uint8_t spill[1];
        size_t room;
        uint8_t *at = step_room(out, spill, &room);
        if (!at) {
            e = out->err;
            break;
        }
        z.next_out = at;
        z.avail_out = (uInt)room;
        rc = inflate(&z, Z_NO_FLUSH);
        size_t made = room - z.avail_out;
        if (at == spill)
            e = made ? ERR_TOO_LARGE : ERR_OK;
        else
            buf_commit(out, made);
        if (e == ERR_OK && rc != Z_STREAM_END && (rc != Z_OK || (made == 0 && z.avail_in == 0)))
            e = ERR_CORRUPT;
    }
    if (e == ERR_OK && z.avail_in)
        e = ERR_CORRUPT;
    inflateEnd(&z);
    return e;
}

static enum err inflate_zstd(struct bytes in, struct buf *out)
{
    ZSTD_DStream *d = ZSTD_createDStream();
    ZSTD_inBuffer src = {in.p, in.n, 0};
    enum err e = ERR_OK;
    size_t rc = 1;
    if (!d)
        return ERR_NO_MEMORY;
    if (ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
        e = ERR_INTERNAL;
    while (e == ERR_OK && rc != 0) {
        uint8_t spill[1];
        size_t room;
        uint8_t *at = step_room(out, spill, &room);
        if (!at) {
            e = out->err;
            break;
        }
        ZSTD_outBuffer dst = {at, room, 0};
        size_t before = src.pos;
        rc = ZSTD_decompressStream(d, &dst, &src);
        if (at == spill)
            e = dst.pos ? ERR_TOO_LARGE : ERR_OK;
        else
            buf_commit(out, dst.pos);
        if (ZSTD_isError(rc) || (rc != 0 && dst.pos == 0 && src.pos == before))
            e = e == ERR_OK ? ERR_CORRUPT : e;
    }
    if (e == ERR_OK && src.pos != in.n)
        e = ERR_CORRUPT;
    ZSTD_freeDStream(d);
    return e;
}

enum err edge_inflate(enum edge_coding coding, struct bytes in, struct buf *out)
{
    switch (coding) {
    case EDGE_CODING_NONE:
        if (in.n > out->max - out->n)
            return ERR_TOO_LARGE;
        buf_put_bytes(out, in);
        return out->err;
    case EDGE_CODING_GZIP:
        return inflate_gzip(in, out);
    case EDGE_CODING_ZSTD:
        return inflate_zstd(in, out);
    case EDGE_CODING_UNKNOWN:
    case EDGE_CODING_BROTLI:
        break;
    }
    return ERR_UNSUPPORTED_MEDIA_TYPE;
}

enum err edge_gzip(struct bytes in, struct buf *out)
{
    z_stream z = {0};
    if (in.n > UINT_MAX / 2)
        return ERR_TOO_LARGE;
    if (deflateInit2(&z, 9, Z_DEFLATED, GZIP_WINDOW, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        return ERR_NO_MEMORY;
    size_t most = deflateBound(&z, in.n);
    uint8_t *at = buf_reserve(out, most);
    enum err e = at ? ERR_OK : out->err;
    if (at) {
        z.next_in = (Bytef *)(uintptr_t)in.p;
        z.avail_in = (uInt)in.n;
        z.next_out = at;
        z.avail_out = (uInt)most;
        if (deflate(&z, Z_FINISH) == Z_STREAM_END)
            buf_commit(out, most - z.avail_out);
        else
            e = ERR_INTERNAL;
    }
    deflateEnd(&z);
    return e;
}
