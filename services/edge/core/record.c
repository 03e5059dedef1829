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

static enum err decode_payload(struct bytes in, struct edge_record *r)
{
    const uint8_t *p = in.p;
    if (in.n < 4 || p[1] != 0)
        return ERR_CORRUPT;
    size_t n = le16_get(p + 2); /* a length, a count, or 0 */
    bool ok = false;
    *r = (struct edge_record){.type = (enum edge_record_type)p[0]};
    switch (r->type) {
    case EDGE_PUT_REF: {
        size_t fixed = 8 + 32 + DIGEST;
        if (in.n < fixed)
            return ERR_CORRUPT;
        size_t mime_n = le16_get(p + 4), etag_n = le16_get(p + 6);
        r->size = le64_get(p + 8);
        r->fetched_ms = le64_get(p + 16);
        r->valid_until_ms = le64_get(p + 24);
        r->since_ms = le64_get(p + 32);
        memcpy(r->digest.b, p + 40, DIGEST);
        ok = in.n == fixed + n + mime_n + etag_n && n >= 1 && n <= EDGE_NAME_QUERY_MAX &&
             mime_n <= EDGE_MIME_MAX && etag_n <= EDGE_ETAG_MAX && r->since_ms % 1000 == 0;
        if (ok) {
            r->name = text_at(p, fixed, n);
            r->mime = text_at(p, fixed + n, mime_n);
            r->etag = text_at(p, fixed + n + mime_n, etag_n);
        }
        break;
    }
    case EDGE_DEL_REF:
        ok = n >= 1 && in.n == 4 + n;
        r->name = text_at(p, 4, ok ? n : 0);
        break;
    case EDGE_DEL_OBJ:
        ok = n == 0 && in.n == 4 + DIGEST;
        if (ok)
            memcpy(r->digest.b, p + 4, DIGEST);
        break;
    case EDGE_TOUCH:
        ok = n <= EDGE_TOUCH_MAX && in.n == 4 + n * EDGE_TOUCH_BYTES;
        r->touches = bytes_of(p + 4, ok ? n * EDGE_TOUCH_BYTES : 0);
        break;
    case EDGE_RENEW:
        ok = n >= 1 && in.n == 20 + n;
        if (ok) {
            r->fetched_ms = le64_get(p + 4);
            r->valid_until_ms = le64_get(p + 12);
            r->name = text_at(p, 20, n);
        }
        break;
    case EDGE_PACK_SINCE:
        ok = n >= 1 && in.n == 12 + DIGEST + n;
        if (ok) {
            r->since_s = le64_get(p + 4);
            memcpy(r->digest.b, p + 12, DIGEST);
            r->name = text_at(p, 12 + DIGEST, n);
        }
        break;
    case EDGE_QUARANTINE:
        ok = n == 0 && in.n == 12 + DIGEST;
        if (ok) {
            memcpy(r->digest.b, p + 4, DIGEST);
            r->at_ms = le64_get(p + 4 + DIGEST);
        }
        break;
    case EDGE_DIX_FILE:
        ok = n >= 1 && in.n == 36 + DIGEST + n;
        if (ok) {
            r->size = le64_get(p + 4);
            r->mtime_ns = le64_get(p + 12);
            r->ctime_ns = le64_get(p + 20);
            r->ino = le64_get(p + 28);
            memcpy(r->digest.b, p + 36, DIGEST);
            r->name = text_at(p, 36 + DIGEST, n);
        }
        break;
    default:
        return ERR_VERSION;
    }
    return ok ? ERR_OK : ERR_CORRUPT;
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
