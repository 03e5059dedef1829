#include "net/oap.h"

#include <string.h>
#include <zstd.h>

#include "base/check.h"

enum { KINDS = NET_OAP_REQ | NET_OAP_RESP | NET_OAP_EVENT, FLAGS_KNOWN = 0x7f };

static void head_get(const uint8_t *p, struct net_oap_head *out)
{
    out->len = be32_get(p);
    out->ver = be16_get(p + 4);
    out->flags = be16_get(p + 6);
    out->code = be16_get(p + 8);
    out->app = be16_get(p + 10);
    memcpy(out->tenant, p + 12, NET_OAP_TENANT);
    out->cap_len = be16_get(p + 28);
    out->corr = be64_get(p + 30);
}

static bool one_kind(unsigned flags)
{
    unsigned kind = flags & KINDS;
    return kind != 0 && (kind & (kind - 1)) == 0;
}

/* NULL, or what is wrong. */
static const char *head_fault(const struct net_oap_head *h)
{
    if (h->ver != NET_OAP_VERSION)
        return "version is not 1";
    if (h->flags & ~FLAGS_KNOWN)
        return "unknown flags";
    if (!one_kind(h->flags))
        return "not exactly one of REQ, RESP, EVENT";
    if (h->cap_len > 0 && !(h->flags & NET_OAP_START))
        return "capability without START";
    if (h->cap_len > h->len - NET_OAP_HEADER)
        return "capability longer than the frame";
    if (h->cap_len > NET_OAP_CAP_MAX)
        return "capability too long";
    return NULL;
}

enum err net_oap_next(struct bytes in, size_t frame_max, struct net_oap_frame *out_frame, size_t *out_used,
                      const char **out_why)
{
    struct net_oap_frame f = {0};
    const char *fault = NULL;
    if (in.n >= 4) {
        uint32_t len = be32_get(in.p);
        if (len < NET_OAP_HEADER || len > frame_max || len > NET_OAP_FRAME_MAX)
            fault = "length out of range";
    }
    if (in.n >= NET_OAP_HEADER) {
        head_get(in.p, &f.head);
        if (fault == NULL)
            fault = head_fault(&f.head);
    }
    if (fault != NULL) {
        *out_frame = f;
        *out_why = fault;
        return ERR_SYNTAX;
    }
    if (in.n < NET_OAP_HEADER || in.n < f.head.len) {
        *out_used = in.n < NET_OAP_HEADER ? NET_OAP_HEADER : f.head.len;
        return ERR_EMPTY;
    }
    f.cap = bytes_of(in.p + NET_OAP_HEADER, f.head.cap_len);
    f.payload = bytes_of(f.cap.p + f.cap.n, f.head.len - NET_OAP_HEADER - f.head.cap_len);
    *out_frame = f;
    *out_used = f.head.len;
    return ERR_OK;
}

void net_oap_head_put(const struct net_oap_head *head, size_t cap_n, size_t payload_n,
                      uint8_t out[NET_OAP_HEADER])
{
    CHECK(cap_n <= NET_OAP_CAP_MAX && payload_n <= NET_OAP_FRAME_MAX);
    size_t len = NET_OAP_HEADER + cap_n + payload_n;
    CHECK(len <= NET_OAP_FRAME_MAX);
    CHECK(one_kind(head->flags) && (head->flags & ~FLAGS_KNOWN) == 0);
    CHECK(cap_n == 0 || (head->flags & NET_OAP_START));
    be32_put(out, (uint32_t)len);
    be16_put(out + 4, NET_OAP_VERSION);
    be16_put(out + 6, head->flags);
    be16_put(out + 8, head->code);
    be16_put(out + 10, head->app);
    memcpy(out + 12, head->tenant, NET_OAP_TENANT);
    be16_put(out + 28, (uint16_t)cap_n);
    be64_put(out + 30, head->corr);
}

void net_oap_put(struct buf *b, const struct net_oap_head *head, struct bytes cap, struct bytes payload)
{
    uint8_t bytes[NET_OAP_HEADER];
    net_oap_head_put(head, cap.n, payload.n, bytes);
    buf_put(b, bytes, sizeof bytes);
    buf_put_bytes(b, cap);
    buf_put_bytes(b, payload);
}

/* ---- compression ---- */

enum err net_oap_inflate(struct bytes in, size_t max, struct buf *out)
{
    unsigned long long size = ZSTD_getFrameContentSize(in.p, in.n);
    if (size == ZSTD_CONTENTSIZE_ERROR)
        return ERR_SYNTAX;
    if (size != ZSTD_CONTENTSIZE_UNKNOWN && size > max)
        return ERR_TOO_LARGE;
    /* One frame and nothing behind it: otherwise two readers could see two payloads. */
    size_t used = ZSTD_findFrameCompressedSize(in.p, in.n);
    if (ZSTD_isError(used) || used != in.n)
        return ERR_SYNTAX;
    /* A frame that does not tell its size is bounded by its blocks: 128 KiB each at most. */
    size_t bound = size == ZSTD_CONTENTSIZE_UNKNOWN ? max : (size_t)size;
    ZSTD_DStream *d = ZSTD_createDStream();
    if (d == NULL)
        return ERR_NO_MEMORY;
    enum err e = ERR_OK;
    ZSTD_inBuffer src = {in.p, in.n, 0};
    size_t left = 1;
    /* The window is memory too: nothing over the largest output is needed. */
    if (ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, 23)))
        e = ERR_INTERNAL;
    while (e == ERR_OK && left != 0) {
        size_t room = bound + 1 - out->n < 65536 ? bound + 1 - out->n : 65536;
        uint8_t *p = buf_reserve(out, room);
        if (p == NULL) {
            e = out->err;
            break;
        }
        ZSTD_outBuffer dst = {p, room, 0};
        left = ZSTD_decompressStream(d, &dst, &src);
        if (ZSTD_isError(left)) {
            e = ERR_SYNTAX;
            break;
        }
        buf_commit(out, dst.pos);
        if (out->n > bound)
            e = ERR_TOO_LARGE;
        else if (left != 0 && src.pos == src.size && dst.pos < dst.size)
            e = ERR_SYNTAX; /* all read, room left, and still not at the end */
    }
    ZSTD_freeDStream(d);
    return e;
}

enum err net_oap_deflate(struct bytes in, struct buf *out)
{
    size_t bound = ZSTD_compressBound(in.n);
    uint8_t *p = buf_reserve(out, bound);
    if (p == NULL)
        return out->err;
    size_t n = ZSTD_compress(p, bound, in.p, in.n, 1);
    if (ZSTD_isError(n))
        return ERR_NO_MEMORY;
    buf_commit(out, n);
    return ERR_OK;
}
