#include "services/edge/core/record.h"

#include "base/check.h"
#include "base/crc32c.h"

enum { VERSION = 1, HEADER_CRC_AT = 28, DIGEST = 32 };

static const char magics[2][8] = {{'R', 'O', 'N', 'E', 'R', 'E', 'F', '1'},
                                  {'R', 'O', 'N', 'E', 'D', 'I', 'X', '1'}};

void edge_log_header_encode(enum edge_log_kind kind, uint64_t created_ms, uint8_t out[EDGE_LOG_HEADER])
{
    memset(out, 0, EDGE_LOG_HEADER);
    memcpy(out, magics[kind], 8);
    le32_put(out + 8, VERSION);
    le64_put(out + 16, created_ms);
    le32_put(out + HEADER_CRC_AT, crc32c(0, out, HEADER_CRC_AT));
}

enum err edge_log_header_decode(enum edge_log_kind kind, struct bytes head, uint64_t *out_created_ms)
{
    if (head.n < EDGE_LOG_HEADER)
        return ERR_TORN;
    if (memcmp(head.p, magics[kind], 8) != 0 ||
        le32_get(head.p + HEADER_CRC_AT) != crc32c(0, head.p, HEADER_CRC_AT))
        return ERR_CORRUPT;
    if (le32_get(head.p + 8) != VERSION)
        return ERR_VERSION;
    *out_created_ms = le64_get(head.p + 16);
    return ERR_OK;
}

/* ---- encoding ---- */

static void put16(struct buf *b, size_t v)
{
    uint8_t raw[2];
    CHECK(v <= UINT16_MAX);
    le16_put(raw, (uint16_t)v);
    buf_put(b, raw, sizeof raw);
}

static void put64(struct buf *b, uint64_t v)
{
    uint8_t raw[8];
    le64_put(raw, v);
    buf_put(b, raw, sizeof raw);
}

static void put_digest(struct buf *b, const struct sha256 *d)
{
    buf_put(b, d->b, sizeof d->b);
}

static void encode_payload(const struct edge_record *r, struct buf *b)
{
    buf_putc(b, (char)r->type);
    buf_putc(b, 0);
    switch (r->type) {
    case EDGE_PUT_REF:
        put16(b, r->name.n);
        put16(b, r->mime.n);
        put16(b, r->etag.n);
        put64(b, r->size);
        put64(b, r->fetched_ms);
        put64(b, r->valid_until_ms);
        put64(b, r->since_ms);
        put_digest(b, &r->digest);
        buf_put_str(b, r->name);
        buf_put_str(b, r->mime);
        buf_put_str(b, r->etag);
        return;
    case EDGE_DEL_REF:
        put16(b, r->name.n);
        buf_put_str(b, r->name);
        return;
    case EDGE_DEL_OBJ:
        put16(b, 0);
        put_digest(b, &r->digest);
        return;
    case EDGE_TOUCH:
        put16(b, r->touches.n / EDGE_TOUCH_BYTES);
        buf_put_bytes(b, r->touches);
        return;
    case EDGE_RENEW:
        put16(b, r->name.n);
        put64(b, r->fetched_ms);
        put64(b, r->valid_until_ms);
        buf_put_str(b, r->name);
        return;
    case EDGE_PACK_SINCE:
        put16(b, r->name.n);
        put64(b, r->since_s);
        put_digest(b, &r->digest);
        buf_put_str(b, r->name);
        return;
    case EDGE_QUARANTINE:
        put16(b, 0);
        put_digest(b, &r->digest);
        put64(b, r->at_ms);
        return;
    case EDGE_DIX_FILE:
        put16(b, r->name.n);
        put64(b, r->size);
        put64(b, r->mtime_ns);
        put64(b, r->ctime_ns);
        put64(b, r->ino);
        put_digest(b, &r->digest);
        buf_put_str(b, r->name);
        return;
    }
    UNREACHABLE();
}

void edge_record_encode(const struct edge_record *r, struct buf *out)
{
    size_t at = out->n;
    static const uint8_t room[EDGE_RECORD_HEAD];
    buf_put(out, room, sizeof room);
    encode_payload(r, out);
    if (out->err != ERR_OK)
        return;
    size_t n = out->n - at - EDGE_RECORD_HEAD;
    CHECK(n <= EDGE_RECORD_MAX);
    le32_put(out->p + at, (uint32_t)n);
    le32_put(out->p + at + 4, crc32c(0, out->p + at + EDGE_RECORD_HEAD, n));
}

void edge_touch_put(struct buf *b, const struct sha256 *digest, uint32_t unix_s)
{
    uint8_t raw[4];
    le32_put(raw, unix_s);
    put_digest(b, digest);
    buf_put(b, raw, sizeof raw);
}

void edge_touch_at(struct bytes touches, size_t i, struct sha256 *out_digest, uint32_t *out_unix_s)
{
    const uint8_t *p = touches.p + i * EDGE_TOUCH_BYTES;
    CHECK((i + 1) * EDGE_TOUCH_BYTES <= touches.n);
    memcpy(out_digest->b, p, DIGEST);
    *out_unix_s = le32_get(p + DIGEST);
}

/* ---- decoding ---- */

static struct str text_at(const uint8_t *p, size_t at, size_t n)
{
    return str_of((const char *)p + at, n);
}

/* Each reads one type; n is what bytes 2 and 3 say: a length, a count, or 0. False: it is not what it should be. */

static bool decode_put_ref(struct bytes in, size_t n, struct edge_record *r)
{
    const uint8_t *p = in.p;
    const size_t fixed = 8 + 32 + DIGEST;
    if (in.n < fixed)
        return false;
    size_t mime_n = le16_get(p + 4), etag_n = le16_get(p + 6);
    r->size = le64_get(p + 8);
    r->fetched_ms = le64_get(p + 16);
    r->valid_until_ms = le64_get(p + 24);
    r->since_ms = le64_get(p + 32);
    memcpy(r->digest.b, p + 40, DIGEST);
    if (in.n != fixed + n + mime_n + etag_n || n < 1 || n > EDGE_NAME_QUERY_MAX || mime_n > EDGE_MIME_MAX ||
        etag_n > EDGE_ETAG_MAX || r->since_ms % 1000 != 0)
        return false;
    r->name = text_at(p, fixed, n);
    r->mime = text_at(p, fixed + n, mime_n);
    r->etag = text_at(p, fixed + n + mime_n, etag_n);
    return true;
}

static bool decode_del_ref(struct bytes in, size_t n, struct edge_record *r)
{
    if (n < 1 || in.n != 4 + n)
        return false;
    r->name = text_at(in.p, 4, n);
    return true;
}

static bool decode_del_obj(struct bytes in, size_t n, struct edge_record *r)
{
    if (n != 0 || in.n != 4 + DIGEST)
        return false;
    memcpy(r->digest.b, in.p + 4, DIGEST);
    return true;
}

static bool decode_touch(struct bytes in, size_t n, struct edge_record *r)
{
    if (n > EDGE_TOUCH_MAX || in.n != 4 + n * EDGE_TOUCH_BYTES)
        return false;
    r->touches = bytes_of(in.p + 4, n * EDGE_TOUCH_BYTES);
    return true;
}

static bool decode_renew(struct bytes in, size_t n, struct edge_record *r)
{
    if (n < 1 || in.n != 20 + n)
        return false;
    r->fetched_ms = le64_get(in.p + 4);
    r->valid_until_ms = le64_get(in.p + 12);
    r->name = text_at(in.p, 20, n);
    return true;
}

static bool decode_pack_since(struct bytes in, size_t n, struct edge_record *r)
{
    if (n < 1 || in.n != 12 + DIGEST + n)
        return false;
    r->since_s = le64_get(in.p + 4);
    memcpy(r->digest.b, in.p + 12, DIGEST);
    r->name = text_at(in.p, 12 + DIGEST, n);
    return true;
}

static bool decode_quarantine(struct bytes in, size_t n, struct edge_record *r)
{
    if (n != 0 || in.n != 12 + DIGEST)
        return false;
    memcpy(r->digest.b, in.p + 4, DIGEST);
    r->at_ms = le64_get(in.p + 4 + DIGEST);
    return true;
}

static bool decode_dix_file(struct bytes in, size_t n, struct edge_record *r)
{
    if (n < 1 || in.n != 36 + DIGEST + n)
        return false;
    r->size = le64_get(in.p + 4);
    r->mtime_ns = le64_get(in.p + 12);
    r->ctime_ns = le64_get(in.p + 20);
    r->ino = le64_get(in.p + 28);
    memcpy(r->digest.b, in.p + 36, DIGEST);
    r->name = text_at(in.p, 36 + DIGEST, n);
    return true;
}

static enum err decode_payload(struct bytes in, struct edge_record *r)
{
    static bool (*const decoders[])(struct bytes in, size_t n, struct edge_record * r) = {
        [EDGE_PUT_REF] = decode_put_ref,       [EDGE_DEL_REF] = decode_del_ref,
        [EDGE_DEL_OBJ] = decode_del_obj,       [EDGE_TOUCH] = decode_touch,
        [EDGE_RENEW] = decode_renew,           [EDGE_PACK_SINCE] = decode_pack_since,
        [EDGE_QUARANTINE] = decode_quarantine, [EDGE_DIX_FILE] = decode_dix_file,
    };
    if (in.n < 4 || in.p[1] != 0)
        return ERR_CORRUPT;
    uint8_t type = in.p[0];
    *r = (struct edge_record){.type = (enum edge_record_type)type};
    if (type >= sizeof decoders / sizeof *decoders || !decoders[type])
        return ERR_VERSION;
    return decoders[type](in, le16_get(in.p + 2), r) ? ERR_OK : ERR_CORRUPT;
}

static bool framed(struct bytes log, size_t *out_payload_n)
{
    if (log.n < EDGE_RECORD_HEAD + 1)
        return false;
    size_t n = le32_get(log.p);
    if (n == 0 || n > EDGE_RECORD_MAX || n > log.n - EDGE_RECORD_HEAD)
        return false;
    *out_payload_n = n;
    return crc32c(0, log.p + EDGE_RECORD_HEAD, n) == le32_get(log.p + 4);
}

enum err edge_record_decode(struct bytes log, struct edge_record *out, size_t *out_n)
{
    size_t n;
    if (log.n == 0)
        return ERR_EMPTY;
    if (!framed(log, &n))
        return ERR_TORN;
    enum err e = decode_payload(bytes_of(log.p + EDGE_RECORD_HEAD, n), out);
    if (e == ERR_OK)
        *out_n = EDGE_RECORD_HEAD + n;
    return e;
}

bool edge_record_any_after(struct bytes log, size_t from)
{
    size_t n;
    struct edge_record r;
    for (size_t at = from + 1; at + EDGE_RECORD_HEAD < log.n; at++) {
        struct bytes rest = bytes_of(log.p + at, log.n - at);
        /* The type and its zero byte come first: cheap to look at before a CRC over 64 KiB. */
        if (rest.n > 9 && rest.p[9] == 0 && rest.p[8] >= 1 && rest.p[8] <= EDGE_DIX_FILE &&
            framed(rest, &n) && edge_record_decode(rest, &r, &n) == ERR_OK)
            return true;
    }
    return false;
}
