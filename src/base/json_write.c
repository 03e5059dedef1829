#include "base/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/json_plain.h"
#include "base/str.h"
#include "base/time_fmt.h"

void json_w_init(struct json_w *w, struct buf *buf)
{
    *w = (struct json_w){.buf = buf};
}

bool json_w_done(const struct json_w *w)
{
    return w->depth == 0 && !w->after_key;
}

static uint32_t level(const struct json_w *w)
{
    return (uint32_t)1 << w->depth;
}

static void comma(struct json_w *w)
{
    if (w->has_members & level(w))
        buf_putc(w->buf, ',');
    w->has_members |= level(w);
}

/* Before any value: in an object a key must stand before it, in an array perhaps a comma. */
static void before_value(struct json_w *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    CHECK(!(w->is_object & level(w)));
    if (w->depth)
        comma(w);
}

static void begin(struct json_w *w, bool object)
{
    before_value(w);
    buf_putc(w->buf, object ? '{' : '[');
    CHECK(w->depth + 1 < JSON_W_DEPTH_MAX);
    w->depth++;
    w->has_members &= ~level(w);
    w->is_object = object ? w->is_object | level(w) : w->is_object & ~level(w);
}

static void end(struct json_w *w, bool object)
{
    CHECK(w->depth > 0 && !w->after_key && ((w->is_object & level(w)) != 0) == object);
    w->depth--;
    buf_putc(w->buf, object ? '}' : ']');
}

void json_obj_begin(struct json_w *w)
{
    begin(w, true);
}

void json_obj_end(struct json_w *w)
{
    end(w, true);
}

void json_arr_begin(struct json_w *w)
{
    begin(w, false);
}

void json_arr_end(struct json_w *w)
{
    end(w, false);
}

/* Characters of JSON text: 0 plain, 1 must be escaped, 2 not ASCII. */
static uint8_t class_of(uint8_t c)
{
    return c >= 0x80 ? 2 : c < 0x20 || c == '"' || c == '\\';
}

static void escape_one(struct buf *b, uint8_t c)
{
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *at = c ? strchr(letters, c) : NULL;
    if (at) {
        buf_putc(b, '\\');
        buf_putc(b, names[at - letters]);
        return;
    }
    char text[7] = "\\u00";
    hex_encode(&c, 1, text + 4);
    buf_put(b, text, 6);
}

/* Text that is not UTF-8: each byte that starts no sequence becomes U+FFFD. */
static void escape_broken(struct buf *b, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t n = 1;
        while (n <= 4 && i + n <= s.n && !str_utf8_valid(str_of(s.p + i, n)))
            n++;
        if (n > 4 || i + n > s.n) {
            buf_puts(b, "\xef\xbf\xbd");
            i++;
        } else if (n == 1 && class_of((uint8_t)s.p[i]) == 1) {
            escape_one(b, (uint8_t)s.p[i++]);
        } else {
            buf_put(b, s.p + i, n);
            i += n;
        }
    }
}

/* "text", which needs no escape, in one piece. */
static void put_quoted(struct buf *b, const char *text, size_t n)
{
    uint8_t *at = buf_reserve(b, n + 2);
    if (!at)
        return;
    at[0] = '"';
    memcpy(at + 1, text, n);
    at[n + 1] = '"';
    b->n += n + 2;
}

static bool is_plain(struct str s)
{
    const uint8_t *p = (const uint8_t *)s.p;
    return s.n == 0 || json_plain_end(p, p + s.n) == p + s.n; /* nothing may lie nowhere */
}

static void put_text(struct buf *b, struct str s)
{
    if (is_plain(s)) {
        put_quoted(b, s.n ? s.p : "", s.n);
        return;
    }
    buf_putc(b, '"');
    size_t from = 0;
    bool checked = false;
    for (size_t i = 0; i < s.n; i++) {
        uint8_t class = class_of((uint8_t)s.p[i]);
        if (class == 0 || (class == 2 && checked))
            continue;
        buf_put(b, s.p + from, i - from);
        from = i;
        if (class == 2) {
            if (!str_utf8_valid(str_of(s.p + i, s.n - i))) {
                escape_broken(b, str_of(s.p + i, s.n - i));
                from = s.n;
                break;
            }
            checked = true;
            continue;
        }
        escape_one(b, (uint8_t)s.p[i]);
        from = i + 1;
    }
    buf_put(b, s.p + from, s.n - from);
    buf_putc(b, '"');
}

static void key_begins(struct json_w *w)
{
    CHECK(!w->after_key && (w->is_object & level(w)) && w->depth > 0);
    w->after_key = true;
}

/* ,"name": in one piece */
void json_key(struct json_w *w, const char *name)
{
    size_t n = strlen(name), first = w->has_members & level(w) ? 0 : 1;
    key_begins(w);
    w->has_members |= level(w);
    uint8_t *at = buf_reserve(w->buf, n + 4 - first);
    if (!at)
        return;
    if (!first)
        *at++ = ',';
    *at++ = '"';
    memcpy(at, name, n);
    at[n] = '"';
    at[n + 1] = ':';
    w->buf->n += n + 4 - first;
}

void json_key_str(struct json_w *w, struct str name)
{
    key_begins(w);
    comma(w);
    put_text(w->buf, name);
    buf_putc(w->buf, ':');
}

void json_str(struct json_w *w, struct str s)
{
    before_value(w);
    put_text(w->buf, s);
}

void json_cstr(struct json_w *w, const char *s)
{
    json_str(w, str_from_c(s));
}

void json_u64(struct json_w *w, uint64_t v)
{
    before_value(w);
    buf_put_u64(w->buf, v);
}

void json_i64(struct json_w *w, int64_t v)
{
    before_value(w);
    if (v < 0)
        buf_putc(w->buf, '-');
    buf_put_u64(w->buf, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* Text that needs no escape. */
static void quoted(struct json_w *w, const char *text, size_t n)
{
    before_value(w);
    put_quoted(w->buf, text, n);
}

void json_u64_text(struct json_w *w, uint64_t v)
{
    char text[STR_NUMBER_CHARS];
    quoted(w, text, str_format_u64(v, text));
}

void json_f64(struct json_w *w, double v)
{
    if (!isfinite(v)) {
        json_nil(w);
        return;
    }
    char text[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    json_raw(w, str_from_c(text));
}

void json_bool(struct json_w *w, bool v)
{
    json_raw(w, v ? STR("true") : STR("false"));
}

void json_nil(struct json_w *w)
{
    json_raw(w, STR("null"));
}

void json_money(struct json_w *w, struct money m)
{
    char text[MONEY_CHARS];
    quoted(w, text, money_format(m, text));
}

void json_hash(struct json_w *w, const struct sha256 *h)
{
    char text[SHA256_TEXT_CHARS];
    quoted(w, text, sha256_format(h, text));
}

void json_hex(struct json_w *w, const void *p, size_t n)
{
    before_value(w);
    buf_putc(w->buf, '"');
    uint8_t *room = buf_reserve(w->buf, 2 * n + 1); /* the terminator's place is the closing quote's */
    if (!room)
        return;
    hex_encode(p, n, (char *)room);
    room[2 * n] = '"';
    buf_commit(w->buf, 2 * n + 1);
}

void json_base64(struct json_w *w, struct bytes b)
{
    before_value(w);
    buf_putc(w->buf, '"');
    uint8_t *room = buf_reserve(w->buf, base64_encoded_chars(b.n) + 1);
    if (!room)
        return;
    size_t n = base64_encode(b.p, b.n, (char *)room);
    room[n] = '"';
    buf_commit(w->buf, n + 1);
}

void json_uuid(struct json_w *w, const struct uuid *u)
{
    char text[UUID_CHARS];
    uuid_format(u, text);
    quoted(w, text, UUID_CHARS - 1);
}

void json_time_ms(struct json_w *w, int64_t wall_ms)
{
    char text[TIME_FMT_CHARS];
    time_format_ms(wall_ms, text);
    quoted(w, text, TIME_FMT_CHARS - 1);
}

void json_raw(struct json_w *w, struct str json)
{
    before_value(w);
    buf_put_str(w->buf, json);
}

char *json_raw_begin(struct json_w *w, size_t max)
{
    before_value(w);
    return (char *)buf_reserve(w->buf, max);
}

void json_raw_end(struct json_w *w, size_t n)
{
    buf_commit(w->buf, n);
}

void json_put_str(struct json_w *w, const char *name, struct str s)
{
    json_key(w, name);
    json_str(w, s);
}

void json_put_cstr(struct json_w *w, const char *name, const char *s)
{
    json_key(w, name);
    json_cstr(w, s);
}

void json_put_u64(struct json_w *w, const char *name, uint64_t v)
{
    json_key(w, name);
    json_u64(w, v);
}

void json_put_i64(struct json_w *w, const char *name, int64_t v)
{
    json_key(w, name);
    json_i64(w, v);
}

void json_put_bool(struct json_w *w, const char *name, bool v)
{
    json_key(w, name);
    json_bool(w, v);
}

void json_put_money(struct json_w *w, const char *name, struct money m)
{
    json_key(w, name);
    json_money(w, m);
}

void json_put_hash(struct json_w *w, const char *name, const struct sha256 *h)
{
    json_key(w, name);
    json_hash(w, h);
}

void json_put_base64(struct json_w *w, const char *name, struct bytes b)
{
    json_key(w, name);
    json_base64(w, b);
}

void json_put_time_ms(struct json_w *w, const char *name, int64_t wall_ms)
{
    json_key(w, name);
    json_time_ms(w, wall_ms);
}

void json_put_raw(struct json_w *w, const char *name, struct str json)
{
    json_key(w, name);
    json_raw(w, json);
}
