/*
 * ron.Problem in protobuf's wire format. Eight flat members do not need the generated code, and this way
 * the framed server can refuse a request without any service's help. A test holds it against the generated
 * code.
 */
#include <string.h>

#include "net/oap.h"
#include "net/problem.h"

enum {
    MEMBER_CODE = 1,
    MEMBER_STATUS,
    MEMBER_DETAIL,
    MEMBER_RETRYABLE,
    MEMBER_CORR,
    MEMBER_DETAILS,
    MEMBER_RETRY,
    MEMBER_EXTRA
};
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void varint_put(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(b, (char)(uint8_t)(v | 0x80));
    buf_putc(b, (char)(uint8_t)v);
}

static void number_put(struct buf *b, unsigned member, uint64_t v)
{
    if (v == 0)
        return; /* proto3: what is zero is absent */
    varint_put(b, member << 3 | WIRE_VARINT);
    varint_put(b, v);
}

static void bytes_put(struct buf *b, unsigned member, struct bytes v)
{
    if (v.n == 0)
        return;
    varint_put(b, member << 3 | WIRE_BYTES);
    varint_put(b, v.n);
    buf_put_bytes(b, v);
}

int net_oap_problem_status(const struct net_oap_problem *p)
{
    return p->status != 0 ? p->status : err_http_status(net_problem_public(p->err));
}

void net_oap_problem_put(struct buf *b, const struct net_oap_problem *p)
{
    enum err e = net_problem_public(p->err);
    int status = net_oap_problem_status(p);
    unsigned retry_after_s = p->retry_after_s;
    if (retry_after_s == 0 && (status == 429 || status == 503))
        retry_after_s = 1;
    bytes_put(b, MEMBER_CODE, bytes_of_str(str_from_c(err_code(e))));
    number_put(b, MEMBER_STATUS, (uint64_t)status);
    bytes_put(b, MEMBER_DETAIL, bytes_of_str(p->detail));
    number_put(b, MEMBER_RETRYABLE, err_retryable(e));
    bytes_put(b, MEMBER_CORR, bytes_of_str(p->corr_id));
    bytes_put(b, MEMBER_DETAILS, bytes_of_str(p->details_json));
    number_put(b, MEMBER_RETRY, retry_after_s);
    bytes_put(b, MEMBER_EXTRA, p->extra);
}

/* ---- reading ---- */

static bool varint_get(struct bytes *in, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (in->n == 0)
            return false;
        uint8_t c = *in->p++;
        in->n--;
        if (shift == 63 && c > 1)
            return false;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool take(struct bytes *in, uint64_t n, struct bytes *out)
{
    if (n > in->n)
        return false;
    *out = bytes_of(in->p, (size_t)n);
    in->p += n;
    in->n -= (size_t)n;
    return true;
}

static bool value_get(struct bytes *in, unsigned wire, uint64_t *out_number, struct bytes *out_bytes)
{
    switch (wire) {
    case WIRE_VARINT:
        return varint_get(in, out_number);
    case WIRE_BYTES:
        return varint_get(in, out_number) && take(in, *out_number, out_bytes);
    case WIRE_64:
        return take(in, 8, out_bytes);
    case WIRE_32:
        return take(in, 4, out_bytes);
    default:
        return false;
    }
}

static void member_set(struct net_oap_problem_view *p, uint64_t key, uint64_t number, struct bytes bytes)
{
    if (key == (MEMBER_CODE << 3 | WIRE_BYTES))
        p->code = str_of_bytes(bytes);
    else if (key == (MEMBER_STATUS << 3 | WIRE_VARINT))
        p->status = (uint32_t)number;
    else if (key == (MEMBER_DETAIL << 3 | WIRE_BYTES))
        p->detail = str_of_bytes(bytes);
    else if (key == (MEMBER_RETRYABLE << 3 | WIRE_VARINT))
        p->retryable = number != 0;
    else if (key == (MEMBER_CORR << 3 | WIRE_BYTES))
        p->corr_id = str_of_bytes(bytes);
    else if (key == (MEMBER_DETAILS << 3 | WIRE_BYTES))
        p->details_json = str_of_bytes(bytes);
    else if (key == (MEMBER_RETRY << 3 | WIRE_VARINT))
        p->retry_after_s = (uint32_t)number;
    else if (key == (MEMBER_EXTRA << 3 | WIRE_BYTES))
        p->extra = bytes;
}

enum err net_oap_problem_get(struct bytes in, struct net_oap_problem_view *out)
{
    struct net_oap_problem_view p = {
        .code = STR(""), .detail = STR(""), .corr_id = STR(""), .details_json = STR("")};
    while (in.n > 0) {
        uint64_t key, number = 0;
        struct bytes bytes = {NULL, 0};
        if (!varint_get(&in, &key) || key >> 3 == 0 || !value_get(&in, key & 7, &number, &bytes))
            return ERR_SYNTAX;
        member_set(&p, key, number, bytes);
    }
    *out = p;
    return ERR_OK;
}
