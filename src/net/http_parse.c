/*
 * Request head and body framing (RFC 9112), read strictly.
 *
 * The head is read line by line: a line is judged once its line feed is there, so what is refused depends on the bytes
 * alone and not on how they arrived. Refused with 400 because two readers could disagree about them:
 *
 * - line ends: bare LF, bare CR, NUL and other control bytes anywhere
 * - request line: anything but `method SP target SP HTTP/d.d`; a target with bytes outside 0x21-0x7e, a fragment, a
 *   broken percent escape or %00; authority form; `*` without OPTIONS
 * - fields: white space before the colon, a line that begins with white space (folding), an empty or non-token name
 * - Host: none or two in HTTP/1.1, one that is no host, one that contradicts an absolute target
 * - framing: Content-Length with Transfer-Encoding; two of either, even equal; a length that is not digits; any coding
 *   but `chunked`; Transfer-Encoding in HTTP/1.0
 * - chunks: sizes that are not 1-16 hex digits (so no extensions), lines not ended by CRLF; trailers are held to the
 *   rules for fields and then dropped
 *
 * Sizes: 414 request line, 431 header block or number of fields, 413 body. Versions other than 1.0 and 1.1: 505. One
 * empty line before the request line is forgiven (RFC 9112 §2.2).
 */
#include "net/http_parse.h"

#include <strings.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/check.h"

enum { HEAD_LINE, HEAD_FIELDS, HEAD_END };
enum { VALUE_BLOCK = 16 };

/* 1: token byte (RFC 9110 §5.6.2); 2: visible ASCII that may stand in a target; 4: byte of a Host value; 8:
 * hex digit */
enum { C_TOKEN = 1, C_TARGET = 2, C_HOST = 4, C_HEX = 8 };

#define ALNUM(f)                                                                                           \
    ['0' ... '9'] = (f) | C_HEX, ['A' ... 'F'] = (f) | C_HEX, ['G' ... 'Z'] = (f),                         \
             ['a' ... 'f'] = (f) | C_HEX, ['g' ... 'z'] = (f)

static const uint8_t class_of[256] = {
    ALNUM(C_TOKEN | C_TARGET | C_HOST),
    ['!'] = C_TOKEN | C_TARGET | C_HOST,
    ['"'] = C_TARGET,
    ['$'] = C_TOKEN | C_TARGET | C_HOST,
    ['%'] = C_TOKEN | C_TARGET | C_HOST,
    ['&'] = C_TOKEN | C_TARGET | C_HOST,
    ['\''] = C_TOKEN | C_TARGET | C_HOST,
    ['('] = C_TARGET | C_HOST,
    [')'] = C_TARGET | C_HOST,
    ['*'] = C_TOKEN | C_TARGET | C_HOST,
    ['+'] = C_TOKEN | C_TARGET | C_HOST,
    [','] = C_TARGET,
    ['-'] = C_TOKEN | C_TARGET | C_HOST,
    ['.'] = C_TOKEN | C_TARGET | C_HOST,
    ['/'] = C_TARGET,
    [':'] = C_TARGET | C_HOST,
    [';'] = C_TARGET | C_HOST,
    ['<'] = C_TARGET,
    ['='] = C_TARGET | C_HOST,
    ['>'] = C_TARGET,
    ['?'] = C_TARGET,
    ['@'] = C_TARGET,
    ['['] = C_TARGET | C_HOST,
    ['\\'] = C_TARGET,
    [']'] = C_TARGET | C_HOST,
    ['^'] = C_TOKEN | C_TARGET,
    ['_'] = C_TOKEN | C_TARGET | C_HOST,
    ['`'] = C_TOKEN | C_TARGET,
    ['{'] = C_TARGET,
    ['|'] = C_TOKEN | C_TARGET,
    ['}'] = C_TARGET,
    ['~'] = C_TOKEN | C_TARGET | C_HOST,
    ['#'] = C_TOKEN, /* a token byte, but a fragment never belongs in a target */
};

static bool is_class(char c, uint8_t want)
{
    return (class_of[(uint8_t)c] & want) != 0;
}

static bool all_class(struct str s, uint8_t want)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_class(s.p[i], want))
            return false;
    return true;
}

bool net_http_is_token(struct str s)
{
    return s.n > 0 && all_class(s, C_TOKEN);
}

/* Most names that are compared differ in length or in the first letter. */
bool net_http_name_eq(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    if (a.n > 0 && ((a.p[0] ^ b.p[0]) & ~0x20))
        return false;
    return strncasecmp(a.p, b.p, a.n) == 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

enum err net_http_percent_decode(struct str s, bool plus, char *out, size_t *out_n)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            if (s.n - i < 3)
                return ERR_SYNTAX;
            int high = hex_value(s.p[i + 1]), low = hex_value(s.p[i + 2]);
            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return ERR_SYNTAX;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        out[n++] = c;
    }
    *out_n = n;
    return ERR_OK;
}

/* Most values are shorter than a block: a table is half the work of comparing. */
static bool value_byte_ok(uint8_t c)
{
    static const bool ok[256] = {['\t'] = true, [0x20 ... 0x7e] = true, [0x80 ... 0xff] = true};
    return ok[c];
}

#ifdef __SSE2__
/* Is there a byte among these sixteen that must not stand in a field value? */
static bool value_block_bad(const char *p)
{
    __m128i v = _mm_loadu_si128((const void *)p);
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
    __m128i tab = _mm_cmpeq_epi8(v, _mm_set1_epi8('\t'));
    __m128i del = _mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f));
    return _mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, control), del)) != 0;
}
#else
static bool value_block_bad(const char *p)
{
    for (size_t i = 0; i < VALUE_BLOCK; i++)
        if (!value_byte_ok((uint8_t)p[i]))
            return true;
    return false;
}
#endif

/* Neither a control character nor DEL among these eight bytes; a tab counts as one, so the answer may be no for nothing. */
static bool eight_plain(const char *p)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x80 * ones;
    uint64_t v = le64_get((const uint8_t *)p), del = v ^ 0x7f * ones;
    uint64_t control = (v - 0x20 * ones) & ~v;
    return ((control | ((del - ones) & ~del)) & tops) == 0;
}

/* Field values: visible ASCII, blank, tab and bytes from 0x80. A token is half a kilobyte of them: read in blocks, the last
 * of which may overlap the one before. */
static bool value_ok(const char *p, size_t n)
{
    if (n < VALUE_BLOCK) {
        if (n >= 8 && eight_plain(p) && eight_plain(p + n - 8))
            return true;
        for (size_t i = 0; i < n; i++)
            if (!value_byte_ok((uint8_t)p[i]))
                return false;
        return true;
    }
    for (size_t i = 0; i + VALUE_BLOCK <= n; i += VALUE_BLOCK)
        if (value_block_bad(p + i))
            return false;
    return !value_block_bad(p + n - VALUE_BLOCK);
}

static enum net_http_result bad(struct net_http_head *h, enum err e, const char *why)
{
    h->err = e;
    h->why = why;
    return NET_HTTP_BAD;
}

static struct net_http_span span(size_t at, size_t n)
{
    return (struct net_http_span){(uint16_t)at, (uint16_t)n};
}

void net_http_head_init(struct net_http_head *h, const struct net_http_limits *limits,
                        struct net_http_seen *seen)
{
    CHECK(limits->head_bytes <= NET_HTTP_HEAD_MAX && limits->fields <= NET_HTTP_FIELDS_MAX);
    /* The field table is written before it is read: clearing 800 bytes per request would be for nothing. */
    memset(h, 0, offsetof(struct net_http_head, fields));
    h->err = ERR_OK;
    h->why = NULL;
    h->limits = *limits;
    h->seen = seen;
    h->line_at = h->scanned = 0;
    h->state = HEAD_LINE;
    h->close = h->keep = false;
    h->blank = 0;
}

static bool escapes_ok(struct str s)
{
    for (const char *p = memchr(s.p, '%', s.n); p; p = memchr(p + 1, '%', (size_t)(s.p + s.n - p - 1))) {
        if (s.p + s.n - p < 3 || !is_class(p[1], C_HEX) || !is_class(p[2], C_HEX) ||
            (p[1] == '0' && p[2] == '0'))
            return false;
    }
    return true;
}

static bool host_ok(struct str s)
{
    return all_class(s, C_HOST) && escapes_ok(s);
}

/* What follows the path: nothing, or '?' and the query. */
static enum net_http_result query_read(struct net_http_head *h, const char *buf, size_t at, size_t n)
{
    if (n == 0)
        return NET_HTTP_MORE;
    h->has_query = true;
    h->query = span(at + 1, n - 1);
    if (!escapes_ok(net_http_text(buf, h->query)))
        return bad(h, ERR_BAD_REQUEST, "the request target holds a broken percent escape, or %00");
    return NET_HTTP_MORE;
}

/* Splits the target at `at` into path and query; absolute form gives its authority as host. */
static enum net_http_result target_read(struct net_http_head *h, const char *buf, size_t at, size_t n)
{
    struct str t = {buf + at, n};
    h->target = span(at, n);
    if (!all_class(t, C_TARGET))
        return bad(h, ERR_BAD_REQUEST, "the request target holds a byte it must not");
    if (t.n == 1 && t.p[0] == '*') {
        if (!str_eq(net_http_text(buf, h->method), STR("OPTIONS")))
            return bad(h, ERR_BAD_REQUEST, "only OPTIONS may ask for *");
        h->path = h->target;
        return NET_HTTP_MORE;
    }
    size_t path_at = at;
    if (t.p[0] != '/') {
        size_t skip = 0;
        if (t.n > 7 && strncasecmp(t.p, "http://", 7) == 0)
            skip = 7;
        else if (t.n > 8 && strncasecmp(t.p, "https://", 8) == 0)
            skip = 8;
        if (skip == 0)
            return bad(h, ERR_BAD_REQUEST, "the request target is neither a path nor an absolute URI");
        size_t end = skip;
        while (end < t.n && t.p[end] != '/' && t.p[end] != '?')
            end++;
        h->host = span(at + skip, end - skip);
        if (end == skip || !host_ok(net_http_text(buf, h->host)))
            return bad(h, ERR_BAD_REQUEST, "the request target names no host");
        path_at = at + end;
        if (end == t.n || t.p[end] != '/') {
            /* No path means "/": the last slash of "http://" stands in for it. */
            h->path = span(at + skip - 1, 1);
            return query_read(h, buf, path_at, t.n - end);
        }
    }
    const char *q = memchr(buf + path_at, '?', at + n - path_at);
    size_t path_n = q ? (size_t)(q - buf) - path_at : at + n - path_at;
    h->path = span(path_at, path_n);
    if (!escapes_ok(net_http_text(buf, h->path)))
        return bad(h, ERR_BAD_REQUEST, "the request target holds a broken percent escape, or %00");
    return query_read(h, buf, path_at + path_n, at + n - path_at - path_n);
}

static enum net_http_result version_read(struct net_http_head *h, struct str v)
{
    if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || v.p[6] != '.' || v.p[5] < '0' || v.p[5] > '9' ||
        v.p[7] < '0' || v.p[7] > '9')
        return bad(h, ERR_BAD_REQUEST, "the request line does not end in an HTTP version");
    if (v.p[5] != '1' || v.p[7] > '1')
        return bad(h, ERR_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    h->minor = (uint8_t)(v.p[7] - '0');
    return NET_HTTP_MORE;
}

/* [at, at + n) is the line without CRLF. */
static enum net_http_result request_line(struct net_http_head *h, const char *buf, size_t at, size_t n)
{
    const char *line = buf + at;
    const char *sp = memchr(line, ' ', n);
    const char *last = memrchr(line, ' ', n);
    if (!sp || sp == last)
        return bad(h, ERR_BAD_REQUEST, "the request line is not `method target version`");
    struct str method = {line, (size_t)(sp - line)};
    struct str version = {last + 1, (size_t)(line + n - last - 1)};
    if (!net_http_is_token(method) || method.n > NET_HTTP_METHOD_MAX)
        return bad(h, ERR_BAD_REQUEST, "the method is no token");
    h->method = span(at, method.n);
    if (version_read(h, version) == NET_HTTP_BAD)
        return NET_HTTP_BAD;
    size_t target_at = at + method.n + 1;
    size_t target_n = (size_t)(last - sp - 1);
    if (target_n == 0)
        return bad(h, ERR_BAD_REQUEST, "the request line has no target");
    return target_read(h, buf, target_at, target_n);
}

/* `p` holds token bytes, `lower` small letters and hyphens: setting one bit is enough to ignore case. */
static bool token_is(const char *p, struct str lower)
{
    for (size_t i = 0; i < lower.n; i++)
        if ((p[i] | 0x20) != lower.p[i])
            return false;
    return true;
}

static enum net_http_known known_field(struct str name)
{
    static const struct {
        struct str name;
        enum net_http_known known;
    } table[] = {
        {STR_INIT("host"), NET_HTTP_HOST},
        {STR_INIT("expect"), NET_HTTP_EXPECT},
        {STR_INIT("deadline"), NET_HTTP_DEADLINE},
        {STR_INIT("x-corr-id"), NET_HTTP_CORR_ID},
        {STR_INIT("connection"), NET_HTTP_CONNECTION},
        {STR_INIT("traceparent"), NET_HTTP_TRACEPARENT},
        {STR_INIT("content-length"), NET_HTTP_CONTENT_LENGTH},
        {STR_INIT("request-timeout"), NET_HTTP_REQUEST_TIMEOUT},
        {STR_INIT("x-forwarded-for"), NET_HTTP_FORWARDED_FOR},
        {STR_INIT("content-encoding"), NET_HTTP_CONTENT_ENCODING},
        {STR_INIT("transfer-encoding"), NET_HTTP_TRANSFER_ENCODING},
    };
    /* First row of each length; most fields have a length no row has. */
    static const uint8_t first[18] = {
        [4] = 1, [6] = 2, [8] = 3, [9] = 4, [10] = 5, [11] = 6, [14] = 7, [15] = 8, [16] = 10, [17] = 11};
    if (name.n >= sizeof first || first[name.n] == 0)
        return NET_HTTP_OTHER;
    for (size_t i = first[name.n] - 1u; i < sizeof table / sizeof *table && table[i].name.n == name.n; i++)
        if (token_is(name.p, table[i].name))
            return table[i].known;
    return NET_HTTP_OTHER;
}

static enum net_http_result length_read(struct net_http_head *h, struct str v)
{
    if (h->has_length)
        return bad(h, ERR_BAD_REQUEST, "two Content-Length fields");
    if (v.n == 0)
        return bad(h, ERR_BAD_REQUEST, "Content-Length is not digits");
    uint64_t n = 0;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return bad(h, ERR_BAD_REQUEST, "Content-Length is not digits");
        uint64_t digit = (uint64_t)(v.p[i] - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX
                                          : n * 10 + digit; /* saturates: refused as too large */
    }
    h->has_length = true;
    h->length = n;
    return NET_HTTP_MORE;
}

static void connection_read(struct net_http_head *h, struct str v)
{
    size_t i = 0;
    while (i < v.n) {
        size_t start = i;
        while (i < v.n && v.p[i] != ',')
            i++;
        size_t end = i++;
        while (start < end && (v.p[start] == ' ' || v.p[start] == '\t'))
            start++;
        while (end > start && (v.p[end - 1] == ' ' || v.p[end - 1] == '\t'))
            end--;
        struct str option = {v.p + start, end - start};
        if (net_http_name_eq(option, STR("close")))
            h->close = true;
        else if (net_http_name_eq(option, STR("keep-alive")))
            h->keep = true;
    }
}

static enum net_http_result field_act(struct net_http_head *h, enum net_http_known known, struct str v)
{
    switch (known) {
    case NET_HTTP_HOST:
        if (h->known[NET_HTTP_HOST])
            return bad(h, ERR_BAD_REQUEST, "two Host fields");
        if (!host_ok(v))
            return bad(h, ERR_BAD_REQUEST, "Host is no host");
        break;
    case NET_HTTP_CONTENT_LENGTH:
        return length_read(h, v);
    case NET_HTTP_TRANSFER_ENCODING:
        if (h->chunked)
            return bad(h, ERR_BAD_REQUEST, "two Transfer-Encoding fields");
        if (!str_eq(v, STR("chunked")))
            return bad(h, ERR_BAD_REQUEST, "the only transfer coding is chunked");
        h->chunked = true;
        break;
    case NET_HTTP_CONTENT_ENCODING:
        if (net_http_name_eq(v, STR("gzip")) || net_http_name_eq(v, STR("x-gzip"))) {
            h->encoding_other = h->encoding_other || h->gzip; /* twice gzip: not what we undo */
            h->gzip = true;
        } else if (!net_http_name_eq(v, STR("identity")) && v.n > 0) {
            h->encoding_other = true;
        }
        break;
    case NET_HTTP_CONNECTION:
        connection_read(h, v);
        break;
    case NET_HTTP_EXPECT:
        if (net_http_name_eq(v, STR("100-continue")))
            h->expect_continue = true;
        else
            h->expect_other = true;
        break;
    case NET_HTTP_OTHER:
    case NET_HTTP_CORR_ID:
    case NET_HTTP_TRACEPARENT:
    case NET_HTTP_REQUEST_TIMEOUT:
    case NET_HTTP_DEADLINE:
    case NET_HTTP_FORWARDED_FOR:
    case NET_HTTP_KNOWN_COUNT:
        break;
    }
    return NET_HTTP_MORE;
}

static enum net_http_result line_judge(struct net_http_head *h, const char *line, size_t n,
                                       struct net_http_line *out)
{
    if (line[0] == ' ' || line[0] == '\t')
        return bad(h, ERR_BAD_REQUEST, "a header line is folded");
    size_t name_n = 0;
    while (name_n < n && is_class(line[name_n], C_TOKEN))
        name_n++;
    if (name_n == 0 || name_n == n || line[name_n] != ':')
        return bad(h, ERR_BAD_REQUEST, "a header line is not `name: value`");
    size_t start = name_n + 1, end = n;
    while (start < end && (line[start] == ' ' || line[start] == '\t'))
        start++;
    while (end > start && (line[end - 1] == ' ' || line[end - 1] == '\t'))
        end--;
    if (!value_ok(line + start, end - start))
        return bad(h, ERR_BAD_REQUEST, "a header field holds a control byte");
    *out = (struct net_http_line){(uint16_t)(n + sizeof "\r\n" - 1), (uint16_t)name_n, (uint16_t)start,
                                  (uint16_t)(end - start), known_field((struct str){line, name_n})};
    return NET_HTTP_MORE;
}

/* The line at hand when it is the one that stood at its place last; NULL: it is another, or not all of it is there. */
static const struct net_http_line *line_again(const struct net_http_head *h, const char *buf, size_t n)
{
    if (!h->seen || h->state != HEAD_FIELDS || h->field_count >= NET_HTTP_SEEN_LINES)
        return NULL;
    const struct net_http_line *l = &h->seen->at[h->field_count].line;
    bool same = l->n > 0 && l->n <= n - h->line_at &&
                memcmp(h->seen->at[h->field_count].text, buf + h->line_at, l->n) == 0;
    return same ? l : NULL;
}

static void line_keep(const struct net_http_head *h, const char *line, const struct net_http_line *l)
{
    if (!h->seen || h->field_count >= NET_HTTP_SEEN_LINES || l->n > NET_HTTP_SEEN_BYTES)
        return;
    memcpy(h->seen->at[h->field_count].text, line, l->n);
    h->seen->at[h->field_count].line = *l;
}

/* `again`: it was judged before. */
static enum net_http_result field_line(struct net_http_head *h, const char *buf, size_t at, size_t n,
                                       const struct net_http_line *again)
{
    struct net_http_line l;
    if (again)
        l = *again;
    else if (line_judge(h, buf + at, n, &l) == NET_HTTP_BAD)
        return NET_HTTP_BAD;
    if (h->field_count == h->limits.fields)
        return bad(h, ERR_HEADERS_TOO_LARGE, "too many header fields");
    if (!again)
        line_keep(h, buf + at, &l);
    if (field_act(h, l.known, (struct str){buf + at + l.value_at, l.value_n}) == NET_HTTP_BAD)
        return NET_HTTP_BAD;
    struct net_http_field *f = &h->fields[h->field_count++];
    f->name = span(at, l.name_n);
    f->value = span(at + l.value_at, l.value_n);
    /* Of several X-Forwarded-For the last was written by the nearest proxy; the others may be the client's own. */
    if (l.known != NET_HTTP_OTHER && (h->known[l.known] == 0 || l.known == NET_HTTP_FORWARDED_FOR))
        h->known[l.known] = (uint8_t)h->field_count;
    return NET_HTTP_MORE;
}

static enum net_http_result head_end(struct net_http_head *h, const char *buf)
{
    if (h->chunked && h->has_length)
        return bad(h, ERR_BAD_REQUEST, "Content-Length with Transfer-Encoding");
    if (h->chunked && h->minor == 0)
        return bad(h, ERR_BAD_REQUEST, "Transfer-Encoding in HTTP/1.0");
    uint8_t host = h->known[NET_HTTP_HOST];
    if (!host && h->minor == 1)
        return bad(h, ERR_BAD_REQUEST, "no Host field");
    if (host) {
        struct net_http_span named = h->fields[host - 1].value;
        if (h->host.n && !net_http_name_eq(net_http_text(buf, h->host), net_http_text(buf, named)))
            return bad(h, ERR_BAD_REQUEST, "Host contradicts the request target");
        h->host = named;
    }
    h->keep_alive = h->minor == 1 ? !h->close : h->keep && !h->close;
    h->state = HEAD_END;
    return NET_HTTP_DONE;
}

/* One line, ended by the line feed at `lf`. */
static enum net_http_result line_read(struct net_http_head *h, const char *buf, size_t lf,
                                      const struct net_http_line *again)
{
    size_t at = h->line_at;
    if (h->state == HEAD_LINE && lf + 1 - at > h->limits.line_bytes)
        return bad(h, ERR_URI_TOO_LONG, "the request line is too long");
    if (lf + 1 > h->limits.head_bytes)
        return bad(h, ERR_HEADERS_TOO_LARGE, "the header block is too large");
    if (lf == at || buf[lf - 1] != '\r')
        return bad(h, ERR_BAD_REQUEST, "a line ends in a bare line feed");
    size_t n = lf - 1 - at;
    if (h->state == HEAD_LINE) {
        if (n == 0) {
            if (h->blank++)
                return bad(h, ERR_BAD_REQUEST, "empty lines instead of a request line");
            return NET_HTTP_MORE;
        }
        if (request_line(h, buf, at, n) == NET_HTTP_BAD)
            return NET_HTTP_BAD;
        h->state = HEAD_FIELDS;
        return NET_HTTP_MORE;
    }
    if (n == 0) {
        h->head_bytes = lf + 1;
        return head_end(h, buf);
    }
    return field_line(h, buf, at, n, again);
}

enum net_http_result net_http_head_feed(struct net_http_head *h, const char *buf, size_t n)
{
    CHECK(h->state != HEAD_END && h->err == ERR_OK);
    for (;;) {
        if (h->state == HEAD_LINE && n > h->line_at && buf[h->line_at] != '\r' &&
            !is_class(buf[h->line_at], C_TOKEN))
            return bad(h, ERR_BAD_REQUEST, "the method is no token");
        const struct net_http_line *again = line_again(h, buf, n);
        const char *lf = again            ? buf + h->line_at + again->n - 1
                         : n > h->scanned ? memchr(buf + h->scanned, '\n', n - h->scanned)
                                          : NULL;
        if (!lf) {
            h->scanned = n;
            if (h->state == HEAD_LINE && n - h->line_at > h->limits.line_bytes)
                return bad(h, ERR_URI_TOO_LONG, "the request line is too long");
            if (n > h->limits.head_bytes)
                return bad(h, ERR_HEADERS_TOO_LARGE, "the header block is too large");
            return NET_HTTP_MORE;
        }
        size_t at = (size_t)(lf - buf);
        enum net_http_result r = line_read(h, buf, at, again);
        if (r != NET_HTTP_MORE)
            return r;
        h->line_at = h->scanned = at + 1;
    }
}

/* ---- body ---- */

enum {
    BODY_DONE,
    BODY_LENGTH,
    CHUNK_SIZE,    /* hex digits */
    CHUNK_SIZE_LF, /* after the CR of a size line */
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    TRAILER_END_LF,
};

void net_http_body_init(struct net_http_body *b, const struct net_http_head *h, uint64_t max)
{
    *b = (struct net_http_body){.max = max, .limits = h->limits};
    if (h->chunked) {
        b->state = CHUNK_SIZE;
    } else if (h->length > 0) {
        b->state = BODY_LENGTH;
        b->left = h->length;
    }
}

static enum net_http_result body_bad(struct net_http_body *b, enum err e, const char *why)
{
    b->err = e;
    b->why = why;
    return NET_HTTP_BAD;
}

static enum net_http_result chunk_size_byte(struct net_http_body *b, char c)
{
    int v = hex_value(c);
    if (v >= 0) {
        if (++b->digits > 16)
            return body_bad(b, ERR_BAD_REQUEST, "a chunk size has too many digits");
        b->left = b->left * 16 + (uint64_t)v;
        return NET_HTTP_MORE;
    }
    if (c != '\r' || b->digits == 0)
        return body_bad(b, ERR_BAD_REQUEST, "a chunk size is not plain hex");
    b->state = CHUNK_SIZE_LF;
    return NET_HTTP_MORE;
}

static enum net_http_result chunk_begin(struct net_http_body *b)
{
    b->digits = 0;
    if (b->left == 0) {
        b->state = TRAILER_START;
        return NET_HTTP_MORE;
    }
    if (b->left > b->max || b->total > b->max - b->left)
        return body_bad(b, ERR_TOO_LARGE, "the body is too large");
    b->state = CHUNK_DATA;
    return NET_HTTP_MORE;
}

static enum net_http_result trailer_byte(struct net_http_body *b, char c)
{
    if (++b->trailer_bytes > b->limits.head_bytes)
        return body_bad(b, ERR_HEADERS_TOO_LARGE, "the trailer section is too large");
    switch (b->state) {
    case TRAILER_START:
        if (c == '\r') {
            b->state = TRAILER_END_LF;
            return NET_HTTP_MORE;
        }
        if (++b->trailer_fields > b->limits.fields)
            return body_bad(b, ERR_HEADERS_TOO_LARGE, "too many trailer fields");
        b->state = TRAILER_NAME;
        if (!is_class(c, C_TOKEN))
            return body_bad(b, ERR_BAD_REQUEST, "a trailer line is not `name: value`");
        return NET_HTTP_MORE;
    case TRAILER_NAME:
        if (c == ':')
            b->state = TRAILER_VALUE;
        else if (!is_class(c, C_TOKEN))
            return body_bad(b, ERR_BAD_REQUEST, "a trailer line is not `name: value`");
        return NET_HTTP_MORE;
    case TRAILER_VALUE:
        if (c == '\r')
            b->state = TRAILER_LF;
        else if (!value_ok(&c, 1))
            return body_bad(b, ERR_BAD_REQUEST, "a trailer field holds a control byte");
        return NET_HTTP_MORE;
    default:
        if (c != '\n')
            return body_bad(b, ERR_BAD_REQUEST, "a trailer line does not end in CRLF");
        if (b->state == TRAILER_END_LF) {
            b->state = BODY_DONE;
            return NET_HTTP_DONE;
        }
        b->state = TRAILER_START;
        return NET_HTTP_MORE;
    }
}

static enum net_http_result framing_byte(struct net_http_body *b, char c)
{
    switch (b->state) {
    case CHUNK_SIZE:
        return chunk_size_byte(b, c);
    case CHUNK_SIZE_LF:
        if (c != '\n')
            return body_bad(b, ERR_BAD_REQUEST, "a chunk line does not end in CRLF");
        return chunk_begin(b);
    case CHUNK_DATA_CR:
        if (c != '\r')
            return body_bad(b, ERR_BAD_REQUEST, "a chunk does not end in CRLF");
        b->state = CHUNK_DATA_LF;
        return NET_HTTP_MORE;
    case CHUNK_DATA_LF:
        if (c != '\n')
            return body_bad(b, ERR_BAD_REQUEST, "a chunk does not end in CRLF");
        b->state = CHUNK_SIZE;
        return NET_HTTP_MORE;
    default:
        return trailer_byte(b, c);
    }
}

enum net_http_result net_http_body_feed(struct net_http_body *b, const uint8_t *in, size_t n,
                                        size_t *out_used, struct bytes *out_piece)
{
    CHECK(b->err == ERR_OK);
    *out_used = 0;
    if (b->state == BODY_DONE)
        return NET_HTTP_DONE;
    if (b->state == BODY_LENGTH && b->left > b->max)
        return body_bad(b, ERR_TOO_LARGE, "the body is too large");
    for (size_t i = 0; i < n; i++) {
        if (b->state == BODY_LENGTH || b->state == CHUNK_DATA) {
            size_t take = n - i < b->left ? n - i : (size_t)b->left;
            *out_piece = bytes_of(in + i, take);
            *out_used = i + take;
            b->left -= take;
            b->total += take;
            if (b->left == 0)
                b->state = b->state == BODY_LENGTH ? BODY_DONE : CHUNK_DATA_CR;
            return NET_HTTP_DATA;
        }
        enum net_http_result r = framing_byte(b, (char)in[i]);
        if (r != NET_HTTP_MORE) {
            *out_used = i + 1;
            return r;
        }
    }
    *out_used = n;
    return NET_HTTP_MORE;
}
