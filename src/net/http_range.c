#include "net/http_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/check.h"
#include "base/time_fmt.h"

/* ---- dates ---- */

static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

/* A reader that consumes from the front; the first mismatch makes it fail for good. */
struct reader {
    struct str s;
    bool bad;
};

static void want(struct reader *r, const char *text)
{
    struct str t = str_from_c(text);
    if (r->bad || !str_starts(r->s, t)) {
        r->bad = true;
        return;
    }
    r->s.p += t.n;
    r->s.n -= t.n;
}

static int number(struct reader *r, size_t digits)
{
    int v = 0;
    if (r->bad || r->s.n < digits) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < digits; i++) {
        if (r->s.p[i] < '0' || r->s.p[i] > '9')
            r->bad = true;
        v = v * 10 + (r->s.p[i] - '0');
    }
    r->s.p += digits;
    r->s.n -= digits;
    return v;
}

static int month(struct reader *r)
{
    for (int m = 0; !r->bad && r->s.n >= 3 && m < 12; m++) {
        if (memcmp(r->s.p, months + 3 * m, 3) == 0) {
            r->s.p += 3;
            r->s.n -= 3;
            return m + 1;
        }
    }
    r->bad = true;
    return 1;
}

static void time_of_day(struct reader *r, int *h, int *m, int *s)
{
    *h = number(r, 2);
    want(r, ":");
    *m = number(r, 2);
    want(r, ":");
    *s = number(r, 2);
}

/* 0: none of the names; else its length, and whether it is the long one. */
static size_t weekday(struct str s, bool *out_long)
{
    for (size_t i = 0; i < 7; i++) {
        struct str name = str_from_c(days[i]);
        if (str_starts(s, name)) {
            *out_long = true;
            return name.n;
        }
        if (s.n >= 3 && memcmp(s.p, name.p, 3) == 0) {
            *out_long = false;
            return 3;
        }
    }
    return 0;
}

static int full_year(int two, int64_t now_s)
{
    int year, m, d;
    time_date_from_days(now_s / 86400, &year, &m, &d);
    int guess = year / 100 * 100 + two;
    return guess > year + 50 ? guess - 100 : guess; /* RFC 9110 §5.6.7 */
}

enum err net_http_date_parse(struct str s, int64_t now_s, int64_t *out_s)
{
    bool spelled_out = false;
    size_t skip = weekday(s, &spelled_out);
    if (skip == 0)
        return ERR_SYNTAX;
    struct reader r = {{s.p + skip, s.n - skip}, false};
    int year, mon, day, h, m, sec;
    if (spelled_out) { /* Sunday, 06-Nov-94 08:49:37 GMT */
        want(&r, ", ");
        day = number(&r, 2);
        want(&r, "-");
        mon = month(&r);
        want(&r, "-");
        year = full_year(number(&r, 2), now_s);
        want(&r, " ");
        time_of_day(&r, &h, &m, &sec);
        want(&r, " GMT");
    } else if (r.s.n && r.s.p[0] == ',') { /* Sun, 06 Nov 1994 08:49:37 GMT */
        want(&r, ", ");
        day = number(&r, 2);
        want(&r, " ");
        mon = month(&r);
        want(&r, " ");
        year = number(&r, 4);
        want(&r, " ");
        time_of_day(&r, &h, &m, &sec);
        want(&r, " GMT");
    } else { /* Sun Nov  6 08:49:37 1994 */
        want(&r, " ");
        mon = month(&r);
        want(&r, " ");
        if (r.s.n && r.s.p[0] == ' ') {
            want(&r, " ");
            day = number(&r, 1);
        } else {
            day = number(&r, 2);
        }
        want(&r, " ");
        time_of_day(&r, &h, &m, &sec);
        want(&r, " ");
        year = number(&r, 4);
    }
    if (r.bad || r.s.n || day < 1 || day > 31 || h > 23 || m > 59 || sec > 60)
        return ERR_SYNTAX;
    int64_t at = time_days_from_date(year, mon, day);
    int y2, m2, d2;
    time_date_from_days(at, &y2, &m2, &d2);
    if (y2 != year || m2 != mon || d2 != day)
        return ERR_SYNTAX; /* 31 June */
    *out_s = at * 86400 + h * 3600 + m * 60 + sec;
    return ERR_OK;
}

/* ---- entity tags ---- */

static bool etag_byte(char c)
{
    return c == 0x21 || (c >= 0x23 && c <= 0x7e) || (uint8_t)c >= 0x80;
}

/* One entity-tag at the front of *s. */
static bool etag_take(struct str *s, struct net_etag *out)
{
    struct str rest = *s;
    bool weak = str_starts(rest, STR("W/"));
    if (weak)
        rest = (struct str){rest.p + 2, rest.n - 2};
    if (rest.n < 2 || rest.p[0] != '"')
        return false;
    size_t n = 1;
    while (n < rest.n && etag_byte(rest.p[n]))
        n++;
    if (n == rest.n || rest.p[n] != '"')
        return false;
    n++;
    *out = (struct net_etag){{rest.p, n}, weak};
    *s = (struct str){rest.p + n, rest.n - n};
    return true;
}

enum err net_etag_parse(struct str s, struct net_etag *out_tag)
{
    struct net_etag t;
    if (!etag_take(&s, &t) || s.n)
        return ERR_SYNTAX;
    *out_tag = t;
    return ERR_OK;
}

bool net_etag_weak_eq(const struct net_etag *a, const struct net_etag *b)
{
    return a->tag.p && b->tag.p && str_eq(a->tag, b->tag);
}

bool net_etag_strong_eq(const struct net_etag *a, const struct net_etag *b)
{
    return !a->weak && !b->weak && net_etag_weak_eq(a, b);
}

static void blanks(struct str *s)
{
    while (s->n && (s->p[0] == ' ' || s->p[0] == '\t'))
        s->p++, s->n--;
}

enum err net_etag_list_has(struct str list, const struct net_etag *ours, bool strong, bool *out_match)
{
    if (list.n > NET_ETAG_LIST_BYTES)
        return ERR_SYNTAX;
    if (str_eq(list, STR("*"))) {
        *out_match = ours->tag.p != NULL;
        return ERR_OK;
    }
    if (ours->tag.n && !ours->weak && str_eq(list, ours->tag)) { /* what nearly every revalidation sends */
        *out_match = true;
        return ERR_OK;
    }
    size_t tags = 0;
    bool match = false;
    for (blanks(&list); list.n; blanks(&list)) {
        struct net_etag t;
        if (list.p[0] != ',') { /* empty elements are legal (RFC 9110 §5.6.1) */
            if (!etag_take(&list, &t) || ++tags > NET_ETAG_LIST_TAGS)
                return ERR_SYNTAX;
            match = match || (strong ? net_etag_strong_eq(&t, ours) : net_etag_weak_eq(&t, ours));
            blanks(&list);
            if (list.n == 0)
                break;
            if (list.p[0] != ',')
                return ERR_SYNTAX;
        }
        list.p++, list.n--;
    }
    if (tags == 0)
        return ERR_SYNTAX;
    *out_match = match;
    return ERR_OK;
}

/* ---- preconditions ---- */

/* False: absent or unreadable, which is the same. */
static bool date_of(struct str s, int64_t now_s, int64_t *out_s)
{
    return s.p && net_http_date_parse(s, now_s, out_s) == ERR_OK;
}

enum net_condition net_conditions_check(const struct net_conditions *c, const struct net_validator *v,
                                        int64_t now_s)
{
    bool match, known = v->modified_s != INT64_MIN;
    int64_t date;
    if (c->if_match.p) {
        if (net_etag_list_has(c->if_match, &v->etag, true, &match) != ERR_OK)
            return NET_CONDITION_BAD;
        if (!match)
            return NET_CONDITION_FAILED;
    } else if (known && date_of(c->if_unmodified_since, now_s, &date) && v->modified_s > date) {
        return NET_CONDITION_FAILED;
    }
    bool reads = c->is_get || c->is_head;
    if (c->if_none_match.p) {
        if (net_etag_list_has(c->if_none_match, &v->etag, false, &match) != ERR_OK)
            return NET_CONDITION_BAD;
        if (match)
            return reads ? NET_CONDITION_NOT_MODIFIED : NET_CONDITION_FAILED;
    } else if (reads && known && date_of(c->if_modified_since, now_s, &date) && v->modified_s <= date) {
        return NET_CONDITION_NOT_MODIFIED;
    }
    return NET_CONDITION_TRUE;
}

/* ---- ranges ---- */

enum { DIGITS_MAX = 40 };

/* Decimal digits at the front; compared as text because they may be longer than any integer. */
static bool digits_take(struct str *s, struct str *out)
{
    size_t n = 0;
    while (n < s->n && s->p[n] >= '0' && s->p[n] <= '9')
        n++;
    if (n > DIGITS_MAX)
        return false;
    *out = (struct str){s->p, n};
    s->p += n, s->n -= n;
    return true;
}

static struct str significant(struct str d)
{
    while (d.n > 1 && d.p[0] == '0')
        d.p++, d.n--;
    return d;
}

static bool digits_less(struct str a, struct str b)
{
    a = significant(a), b = significant(b);
    return a.n != b.n ? a.n < b.n : memcmp(a.p, b.p, a.n) < 0;
}

static uint64_t digits_value(struct str d)
{
    uint64_t v = 0;
    for (size_t i = 0; i < d.n; i++) {
        uint64_t digit = (uint64_t)(d.p[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return UINT64_MAX;
        v = v * 10 + digit;
    }
    return v;
}

struct spec {
    struct net_range r;
    size_t order;
};

/* One range-spec at the front of *s; *out_ok says whether it is satisfiable. False: no range-spec. */
static bool spec_take(struct str *s, uint64_t length, struct net_range *out, bool *out_ok)
{
    struct str a, b;
    if (!digits_take(s, &a) || s->n == 0 || s->p[0] != '-')
        return false;
    s->p++, s->n--;
    if (!digits_take(s, &b) || (a.n == 0 && b.n == 0))
        return false;
    if (a.n == 0) {
        uint64_t n = digits_value(b);
        *out_ok = n > 0;
        *out = (struct net_range){n >= length ? 0 : length - n, length - 1};
        return true;
    }
    if (b.n && digits_less(b, a))
        return false;
    uint64_t first = digits_value(a), last = b.n ? digits_value(b) : UINT64_MAX;
    *out_ok = first < length;
    *out = (struct net_range){first, last < length ? last : length - 1};
    return true;
}

static int by_first(const void *a, const void *b)
{
    const struct spec *x = a, *y = b;
    if (x->r.first != y->r.first)
        return x->r.first < y->r.first ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int by_order(const void *a, const void *b)
{
    const struct spec *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

static size_t join(struct spec *specs, size_t n)
{
    qsort(specs, n, sizeof *specs, by_first);
    size_t kept = 0;
    for (size_t i = 1; i < n; i++) {
        struct spec *group = &specs[kept];
        if (group->r.last == UINT64_MAX || specs[i].r.first <= group->r.last + 1) {
            if (specs[i].r.last > group->r.last)
                group->r.last = specs[i].r.last;
            if (specs[i].order < group->order)
                group->order = specs[i].order;
        } else {
            specs[++kept] = specs[i];
        }
    }
    qsort(specs, kept + 1, sizeof *specs, by_order);
    return kept + 1;
}

/* The comma list behind "bytes="; false: not one. At most `max` satisfiable ones are kept; *out_all counts every spec. */
static bool specs_read(struct str s, uint64_t length, struct spec *specs, size_t max, size_t *out_n,
                       size_t *out_all)
{
    size_t n = 0, all = 0;
    for (bool first = true;; first = false) {
        struct str before = s;
        blanks(&s);
        if (s.n && s.p[0] != ',') {
            struct net_range r;
            bool ok, after_equals = first && before.n != s.n; /* blanks there belong to no comma either */
            if (after_equals || !spec_take(&s, length, &r, &ok))
                return false;
            if (++all > max)
                break;
            if (ok)
                specs[n++] = (struct spec){r, all};
            before = s;
            blanks(&s);
            if (s.n == 0 && before.n)
                return false; /* blanks at the end belong to no comma */
        }
        if (s.n == 0)
            break;
        if (s.p[0] != ',')
            return false;
        s.p++, s.n--;
    }
    *out_n = n;
    *out_all = all;
    return true;
}

/* 1: keep the range, 0: serve the whole, -1: broken. */
static int if_range_holds(const struct net_conditions *c, const struct net_validator *v, int64_t now_s)
{
    struct net_etag t;
    int64_t date;
    if (!c->if_range.p)
        return 1;
    if (net_etag_parse(c->if_range, &t) == ERR_OK)
        return net_etag_strong_eq(&t, &v->etag);
    if (net_http_date_parse(c->if_range, now_s, &date) == ERR_OK)
        return v->modified_s != INT64_MIN && v->modified_s == date;
    return -1;
}

enum net_range_verdict net_range_read(const struct net_conditions *c, const struct net_validator *v,
                                      int64_t now_s, uint64_t length, const struct net_range_limits *limits,
                                      struct net_range *out_ranges, size_t *out_count)
{
    size_t max_specs = limits && limits->specs ? limits->specs : 64;
    size_t max_parts = limits && limits->parts ? limits->parts : 16;
    CHECK(max_specs <= NET_RANGE_SPECS_MAX && max_parts <= NET_RANGE_PARTS_MAX);
    if (!c->range.p || !c->is_get || length == 0)
        return NET_RANGE_WHOLE;
    if (c->range_repeated)
        return NET_RANGE_UNSATISFIABLE;
    const char *eq = memchr(c->range.p, '=', c->range.n);
    size_t unit = eq ? (size_t)(eq - c->range.p) : c->range.n;
    if (unit != 5 || strncasecmp(c->range.p, "bytes", 5) != 0)
        return NET_RANGE_WHOLE;
    int holds = if_range_holds(c, v, now_s);
    if (holds <= 0)
        return holds < 0 ? NET_RANGE_BAD : NET_RANGE_WHOLE;
    if (!eq)
        return NET_RANGE_UNSATISFIABLE;
    struct spec specs[NET_RANGE_SPECS_MAX];
    size_t n, all;
    if (!specs_read((struct str){eq + 1, c->range.n - unit - 1}, length, specs, max_specs, &n, &all) ||
        n == 0 || all > max_specs)
        return NET_RANGE_UNSATISFIABLE;
    n = join(specs, n);
    if (n > max_parts)
        return NET_RANGE_UNSATISFIABLE;
    for (size_t i = 0; i < n; i++)
        out_ranges[i] = specs[i].r;
    *out_count = n;
    return NET_RANGE_PARTS;
}

void net_content_range_format(const struct net_range *r, uint64_t length, char out[NET_CONTENT_RANGE_CHARS])
{
    if (r)
        snprintf(out, NET_CONTENT_RANGE_CHARS, "bytes %llu-%llu/%llu", (unsigned long long)r->first,
                 (unsigned long long)r->last, (unsigned long long)length);
    else
        snprintf(out, NET_CONTENT_RANGE_CHARS, "bytes */%llu", (unsigned long long)length);
}

void net_multipart_head(struct buf *b, bool first, struct str boundary, struct str type,
                        const struct net_range *r, uint64_t length)
{
    char range[NET_CONTENT_RANGE_CHARS];
    net_content_range_format(r, length, range);
    buf_puts(b, first ? "--" : "\r\n--");
    buf_put_str(b, boundary);
    buf_puts(b, "\r\nContent-Type: ");
    buf_put_str(b, type);
    buf_puts(b, "\r\nContent-Range: ");
    buf_puts(b, range);
    buf_puts(b, "\r\n\r\n");
}

void net_multipart_tail(struct buf *b, struct str boundary)
{
    buf_puts(b, "\r\n--");
    buf_put_str(b, boundary);
    buf_puts(b, "--\r\n");
}
