#include "net/problem.h"

#include "base/json_plain.h"
#include "base/json_write.h"
#include "base/str.h"

enum err net_problem_public(enum err e)
{
    switch ((int)e) {
    case ERR_CLOSED:
    case ERR_CANCELED:
        return ERR_DRAINING;
    case ERR_LAGGED:
    case ERR_IO:
    case ERR_NO_SPACE:
    case ERR_NO_MEMORY:
    case ERR_REFUSED:
    case ERR_DISCONNECTED:
        return ERR_UNAVAILABLE;
    case ERR_EMPTY:
        return ERR_NOT_FOUND;
    case ERR_EXISTS:
    case ERR_LOCKED:
        return ERR_CONFLICT;
    case ERR_RANGE:
    case ERR_SYNTAX:
        return ERR_BAD_REQUEST;
    case ERR_UNDERFLOW:
        return ERR_UNPROCESSABLE;
    case ERR_OK:
    case ERR_CORRUPT:
    case ERR_TORN:
    case ERR_VERSION:
        return ERR_INTERNAL;
    case ERR_PERMISSION:
        return ERR_FORBIDDEN;
    default:
        return e;
    }
}

/* JSON string of what is UTF-8. */
static void put_string(struct buf *b, struct str s)
{
    static const char hex[] = "0123456789abcdef";
    buf_putc(b, '"');
    const uint8_t *from = (const uint8_t *)s.p, *end = s.n == 0 ? from : from + s.n;
    for (const uint8_t *p = from; (p = json_plain_end(p, end)) < end; p++) {
        uint8_t c = *p;
        if (c >= 0x80)
            continue;
        buf_put(b, from, (size_t)(p - from));
        from = p + 1;
        if (c == '"' || c == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, (char)c);
        } else {
            buf_puts(b, "\\u00");
            buf_putc(b, hex[c >> 4]);
            buf_putc(b, hex[c & 15]);
        }
    }
    buf_put(b, from, (size_t)(end - from));
    buf_putc(b, '"');
}

/* What a sentence was made of (a file's name, a key of somebody's configuration) need not be UTF-8, and one that was too long may end
 * inside a character: the answer is JSON all the same. */
static void put_detail(struct buf *b, struct str s)
{
    struct json_w w;
    if (str_utf8_valid(s)) {
        put_string(b, s);
        return;
    }
    json_w_init(&w, b);
    json_str(&w, s);
}

void net_problem_write(const struct net_problem_body *p, struct buf *b)
{
    enum err e = net_problem_public(p->err);
    buf_puts(b, "{\"type\":\"urn:ron:error:");
    buf_puts(b, err_code(e));
    buf_puts(b, "\",\"title\":");
    put_string(b, str_from_c(err_title(e)));
    buf_puts(b, ",\"status\":");
    buf_put_u64(b, (uint64_t)(p->status ? p->status : err_http_status(e)));
    if (p->detail.n) {
        buf_puts(b, ",\"detail\":");
        put_detail(b, p->detail);
    }
    buf_puts(b, ",\"code\":\"");
    buf_puts(b, err_code(e));
    buf_puts(b, err_retryable(e) ? "\",\"retryable\":true" : "\",\"retryable\":false");
    if (p->corr_id.n) {
        buf_puts(b, ",\"corr_id\":");
        put_string(b, p->corr_id);
    }
    if (p->details_json.n) {
        buf_puts(b, ",\"details\":");
        buf_put_bytes(b, p->details_json);
    }
    buf_putc(b, '}');
}
