/*
 * How a snapshot is read.
 *
 *  1. Find the rows: NDJSON has them after the first line; in JSON the span of the top-level member "rows" is found by
 *     a scan that only follows brackets and strings.
 *  2. Everything else is read by a table of members (base/json_read.h), as strictly as a request.
 *  3. Each row is read and appended in canonical form (dims permuted to ascending order) to one buffer; the sorter
 *     keeps (8 bytes of the account, offset) per row.
 *  4. Sort by account (row_sort.h). Two equal ones are refused, naming both lines.
 *  5. Gather the rows in order behind the header: those are the canonical bytes.
 */
#include "services/rewarder/core/snapshot.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "services/rewarder/core/row_sort.h"
#include "services/rewarder/core/wide.h"

enum { PRODUCER_MAX = 128, HEADER_MAX = 1 << 20, WATCH_ROWS = 65536, SAFE_DIGITS = 18 };

struct reader {
    struct bytes raw;
    enum rewarder_media media;
    uint64_t rows_max;
    struct rewarder_snapshot_error *err;
    const struct rewarder_watcher *watcher; /* NULL: nobody looks */
    /* header */
    char tenant[REWARDER_NAME_MAX], epoch[REWARDER_NAME_MAX];
    char dims[REWARDER_DIMS_MAX][REWARDER_DIM_MAX];
    uint8_t salt[REWARDER_SALT_MAX];
    unsigned slot[REWARDER_DIMS_MAX]; /* column in the file -> place among the ascending dims */
    struct rewarder_rows head;
    uint64_t count;
    /* rows */
    size_t rows_at, rows_end; /* span of the rows in raw */
    uint8_t *body;
    size_t body_n, body_cap;
    struct rewarder_row_item *items;
    size_t items_cap;
    uint64_t n;
};

/* After row `row`. Reading is the first half of the way, putting in order the second. */
static inline void tell(const struct reader *r, uint64_t row, size_t done)
{
    if (row % WATCH_ROWS == 0 && r->watcher)
        r->watcher->fn(r->watcher->ctx, done, 2 * (uint64_t)r->raw.n);
}

static enum err refuse(struct reader *r, uint64_t line, const char *member, const char *reason)
{
    r->err->line = line;
    r->err->other_line = 0;
    r->err->reason = reason;
    size_t n = strlen(member);
    if (n > REWARDER_DIM_MAX)
        n = REWARDER_DIM_MAX;
    memcpy(r->err->member, member, n);
    r->err->member[n] = '\0';
    return ERR_BAD_SNAPSHOT;
}

/* ---- one row ---- */

static inline bool is_blank(uint8_t c, bool multiline)
{
    return c == ' ' || c == '\t' || c == '\r' || (multiline && c == '\n');
}

static inline const uint8_t *skip_blank(const uint8_t *p, const uint8_t *end, bool multiline)
{
    while (p < end && is_blank(*p, multiline))
        p++;
    return p;
}

/* Accounts are plain ASCII, but JSON may spell any of their characters as an escape. */
static const uint8_t *read_escape(const uint8_t *p, const uint8_t *end, uint8_t *out)
{
    if (p >= end)
        return NULL;
    if (*p == '/') {
        *out = '/';
        return p + 1;
    }
    if (*p != 'u' || end - p < 5)
        return NULL;
    unsigned v = 0;
    for (int i = 1; i <= 4; i++) {
        uint8_t c = p[i];
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = c - (unsigned)'0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (c | 32u) - (unsigned)'a' + 10;
        else
            return NULL;
        v = v << 4 | digit;
    }
    if (v == 0 || v > 0x7f)
        return NULL;
    *out = (uint8_t)v;
    return p + 5;
}

/* 1 for the characters of an account, 0 otherwise. */
static const uint8_t account_chars[256] = {
    ['-'] = 1, ['.'] = 1, ['/'] = 1, ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1,
    ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1, [':'] = 1, ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1,
    ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1, ['J'] = 1, ['K'] = 1, ['L'] = 1, ['M'] = 1,
    ['N'] = 1, ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1, ['U'] = 1, ['V'] = 1,
    ['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1, ['_'] = 1, ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1,
    ['e'] = 1, ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1, ['l'] = 1, ['m'] = 1,
    ['n'] = 1, ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1,
    ['w'] = 1, ['x'] = 1, ['y'] = 1, ['z'] = 1,
};

static const char *read_account(const uint8_t **at, const uint8_t *end, uint8_t *account, size_t *out_n)
{
    const uint8_t *p = *at;
    size_t n = 0;
    for (;;) {
        if (p >= end)
            return "row is cut off";
        uint8_t c = *p++;
        if (c == '"')
            break;
        if (c == '\\' && !(p = read_escape(p, end, &c)))
            return "account has a character that is not allowed";
        if (!account_chars[c])
            return "account has a character that is not allowed";
        if (n == REWARDER_ACCOUNT_MAX)
            return "account is longer than 128 bytes";
        account[n++] = c;
    }
    if (n == 0)
        return "account is empty";
    *at = p;
    *out_n = n;
    return NULL;
}

static const char *read_usage(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    const uint8_t *p = *at;
    if (p >= end || *p < '0' || *p > '9')
        return "usage must be an integer from 0 to 2^63-1";
    uint64_t v = (uint64_t)(*p++ - '0');
    if (v == 0 && p < end && *p >= '0' && *p <= '9')
        return "number has a leading zero";
    /* Eighteen digits always fit: only those after them can be too many. */
    const uint8_t *fits = end - p < SAFE_DIGITS - 1 ? end : p + SAFE_DIGITS - 1;
    while (p < fits && *p >= '0' && *p <= '9')
        v = v * 10 + (uint64_t)(*p++ - '0');
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > ((uint64_t)INT64_MAX - digit) / 10)
            return "usage must be an integer from 0 to 2^63-1";
        v = v * 10 + digit;
    }
    *at = p;
    *out = v;
    return NULL;
}

const char *rewarder_row_read(const uint8_t **p, const uint8_t *end, unsigned dims, bool multiline,
                              uint8_t account[REWARDER_ACCOUNT_MAX], size_t *out_account_n, uint64_t *usage)
{
    const uint8_t *at = skip_blank(*p, end, multiline);
    if (at >= end || *at++ != '[')
        return "row must be an array";
    at = skip_blank(at, end, multiline);
    if (at >= end || *at++ != '"')
        return "row must begin with the account";
    const char *why = read_account(&at, end, account, out_account_n);
    if (why)
        return why;
    for (unsigned d = 0; d < dims; d++) {
        at = skip_blank(at, end, multiline);
        if (at >= end || *at++ != ',')
            return "row must have one number per dimension";
        at = skip_blank(at, end, multiline);
        if ((why = read_usage(&at, end, &usage[d])))
            return why;
    }
    at = skip_blank(at, end, multiline);
    if (at >= end || *at++ != ']')
        return "row must have one number per dimension";
    *p = at;
    return NULL;
}

/* ---- header ---- */

struct header_dto {
    uint64_t snapshot, count;
    struct str tenant, epoch, sealed_at, producer, salt, rows;
    bool has_sealed_at, has_salt;
    struct json_list dims;
};

#define HEADER_FIELDS                                                                                      \
    JSON_REQ(struct header_dto, snapshot, JSON_KIND_U64, .min = 1, .max = 1),                              \
        JSON_REQ(struct header_dto, tenant, JSON_KIND_STR, .check = rewarder_is_tenant),                   \
        JSON_REQ(struct header_dto, epoch, JSON_KIND_STR, .check = rewarder_is_epoch),                     \
        JSON_REQ(struct header_dto, dims, JSON_KIND_STR_LIST, .min = 1, .max = REWARDER_DIMS_MAX,          \
                 .check = rewarder_is_dim),                                                                \
        JSON_REQ(struct header_dto, count, JSON_KIND_U64, .max = INT64_MAX),                               \
        JSON_OPT(struct header_dto, sealed_at, JSON_KIND_STR, .max = 64),                                  \
        JSON_DEF(struct header_dto, producer, JSON_KIND_STR, .max = PRODUCER_MAX),                         \
        JSON_OPT(struct header_dto, salt, JSON_KIND_STR, .min = 32, .max = 64)

static const struct json_field ndjson_fields[] = {HEADER_FIELDS, JSON_END};
static const struct json_field json_fields[] = {HEADER_FIELDS,
                                                JSON_REQ(struct header_dto, rows, JSON_KIND_RAW), JSON_END};

static const struct {
    const char *member, *reason;
} header_reasons[] = {
    {"snapshot", "must be 1"},
    {"tenant", "is not a tenant name"},
    {"epoch", "is not an epoch id"},
    {"dims", "must be 1 to 16 different names that match ^[a-z][a-z0-9_]{0,31}$"},
    {"count", "must be the number of rows"},
    {"sealed_at", "is not an RFC 3339 time"},
    {"producer", "is over 128 bytes"},
    {"salt", "must be 32 to 64 hex digits"},
};

static enum err refuse_header(struct reader *r, const char *member)
{
    for (size_t i = 0; i < sizeof header_reasons / sizeof *header_reasons; i++)
        if (!strcmp(member, header_reasons[i].member))
            return refuse(r, 1, member, header_reasons[i].reason);
    return refuse(r, 1, member, *member ? "is not a member of a snapshot" : "header is not valid JSON");
}

static enum err explain_header(struct reader *r, struct json_error *why)
{
    why->path[strcspn(why->path, ".[")] = '\0';
    if (why->reason == JSON_MISSING)
        return refuse(r, 1, why->path, "is missing");
    if (why->reason == JSON_DUPLICATE)
        return refuse(r, 1, why->path, "occurs twice");
    return refuse_header(r, why->reason == JSON_SYNTAX || why->reason == JSON_DEPTH ? "" : why->path);
}

static struct str kept(char *to, struct str s)
{
    memcpy(to, s.p, s.n); /* its pattern bounds its length */
    return (struct str){to, s.n};
}

static enum err header_dims(struct reader *r, const struct json_list *list)
{
    const struct str *names = list->items;
    size_t n = list->n;
    for (size_t i = 0; i < n; i++)
        r->head.dims[i] = kept(r->dims[i], names[i]);
    r->head.dim_count = (unsigned)n;
    unsigned order[REWARDER_DIMS_MAX];
    for (unsigned i = 0; i < n; i++) {
        unsigned j = i;
        for (; j && str_cmp(r->head.dims[order[j - 1]], r->head.dims[i]) > 0; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    struct str sorted[REWARDER_DIMS_MAX];
    for (unsigned i = 0; i < n; i++) {
        sorted[i] = r->head.dims[order[i]];
        r->slot[order[i]] = i;
        if (i && str_eq(sorted[i - 1], sorted[i]))
            return refuse_header(r, "dims");
    }
    memcpy(r->head.dims, sorted, n * sizeof sorted[0]);
    return ERR_OK;
}

static enum err header_members(struct reader *r, const struct header_dto *d)
{
    int64_t ms;
    r->head.tenant = kept(r->tenant, d->tenant);
    r->head.epoch = kept(r->epoch, d->epoch);
    r->count = d->count;
    if (d->has_sealed_at && time_parse_ms(d->sealed_at, &ms) != ERR_OK)
        return refuse_header(r, "sealed_at");
    if (d->has_salt) {
        if (d->salt.n % 2 || hex_decode_any_case(d->salt, r->salt, d->salt.n / 2) != ERR_OK)
            return refuse_header(r, "salt");
        r->head.salt = (struct bytes){r->salt, d->salt.n / 2};
    }
    enum err e = header_dims(r, &d->dims);
    return e == ERR_OK && r->count > r->rows_max ? ERR_TOO_MANY_ROWS : e;
}

/* The header is what remains of the file when the rows are taken out: `before` + [] + `after`. */
static enum err read_header(struct reader *r, struct bytes before, struct bytes after)
{
    size_t n = before.n + after.n;
    if (n > HEADER_MAX)
        return refuse(r, 1, "", "header is over 1 MiB");
    char *text = malloc(n + 3);
    if (!text)
        return ERR_NO_MEMORY;
    memcpy(text, before.p, before.n);
    size_t at = before.n;
    if (r->media == REWARDER_JSON) {
        memcpy(text + at, "[]", 2);
        at += 2;
    }
    if (after.n)
        memcpy(text + at, after.p, after.n);
    at += after.n;
    struct header_dto d = {.snapshot = 0};
    struct json_error why;
    struct arena arena;
    arena_init(&arena, 4096, 4 * HEADER_MAX);
    enum err e = json_read_dto(bytes_of(text, at), r->media == REWARDER_JSON ? json_fields : ndjson_fields,
                               &d, &arena, &why);
    e = e == ERR_OK ? header_members(r, &d) : explain_header(r, &why);
    arena_fini(&arena);
    free(text);
    return e;
}

/* ---- where the rows are ---- */

/* Just after the string that begins at p (which points behind its quote), or NULL. */
static const uint8_t *skip_string(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        if (*p == '"')
            return p + 1;
        p += *p == '\\' ? 2 : 1;
    }
    return NULL;
}

/* Just after the array or object that begins at p, or NULL. Only brackets are matched; the readers check the rest. */
static const uint8_t *skip_nested(const uint8_t *p, const uint8_t *end)
{
    size_t depth = 0;
    while (p < end) {
        uint8_t c = *p++;
        if (c == '"') {
            if (!(p = skip_string(p, end)))
                return NULL;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (c == ']' || c == '}') {
            if (--depth == 0)
                return p;
        }
    }
    return NULL;
}

static const uint8_t *skip_value(const uint8_t *p, const uint8_t *end)
{
    if (p >= end)
        return NULL;
    if (*p == '"')
        return skip_string(p + 1, end);
    if (*p == '[' || *p == '{')
        return skip_nested(p, end);
    const uint8_t *from = p;
    while (p < end && *p != ',' && *p != '}' && *p != ']' && !is_blank(*p, true))
        p++;
    return p == from ? NULL : p;
}

/* Finds the span of the one top-level member "rows". A key spelled with escapes is not found: "rows" is then
 * missing. */
static enum err find_json_rows(struct reader *r)
{
    const uint8_t *p = r->raw.p, *end = p + r->raw.n;
    bool found = false;
    p = skip_blank(p, end, true);
    if (p >= end || *p++ != '{')
        return refuse(r, 0, "", "must be an object");
    for (;;) {
        p = skip_blank(p, end, true);
        if (p >= end || *p != '"')
            break; /* end of the object, or something the header's reader will name */
        const uint8_t *key = p + 1;
        if (!(p = skip_string(key, end)))
            return refuse(r, 0, "", "file is cut off");
        bool is_rows = p - key == 5 && memcmp(key, "rows", 4) == 0;
        p = skip_blank(p, end, true);
        if (p >= end || *p++ != ':')
            return refuse(r, 0, "", "is not valid JSON");
        const uint8_t *value = skip_blank(p, end, true);
        if (!(p = skip_value(value, end)))
            return refuse(r, 0, "", "file is cut off");
        if (is_rows) {
            if (found || *value != '[')
                return refuse(r, 0, "rows", found ? "occurs twice" : "must be an array");
            found = true;
            r->rows_at = (size_t)(value - r->raw.p);
            r->rows_end = (size_t)(p - r->raw.p);
        }
        p = skip_blank(p, end, true);
        if (p >= end || *p != ',')
            break;
        p++;
    }
    return found ? ERR_OK : refuse(r, 0, "rows", "is missing");
}

static enum err read_head(struct reader *r)
{
    if (r->media == REWARDER_JSON) {
        enum err e = find_json_rows(r);
        if (e != ERR_OK)
            return e;
        struct bytes before = {r->raw.p, r->rows_at};
        struct bytes after = {r->raw.p + r->rows_end, r->raw.n - r->rows_end};
        return read_header(r, before, after);
    }
    if (r->raw.n == 0)
        return refuse(r, 1, "", "file is empty");
    const uint8_t *nl = memchr(r->raw.p, '\n', r->raw.n);
    size_t n = nl ? (size_t)(nl - r->raw.p) : r->raw.n;
    r->rows_at = nl ? n + 1 : n;
    r->rows_end = r->raw.n;
    return read_header(r, (struct bytes){r->raw.p, n}, (struct bytes){NULL, 0});
}

/* ---- rows ---- */

static bool room_for_row(struct reader *r, size_t need)
{
    if (r->body_n + need > r->body_cap) {
        size_t cap = r->body_cap ? r->body_cap + r->body_cap / 2 : 4096;
        uint8_t *p = realloc(r->body, cap + need);
        if (!p)
            return false;
        r->body = p;
        r->body_cap = cap + need;
    }
    if (r->n == r->items_cap) {
        size_t cap = r->items_cap ? r->items_cap * 2 : 256;
        if (cap > r->count && r->count > r->n)
            cap = r->count;
        struct rewarder_row_item *items = realloc(r->items, cap * sizeof *items);
        if (!items)
            return false;
        r->items = items;
        r->items_cap = cap;
    }
    return true;
}

static enum err add_row(struct reader *r, const uint8_t **p, const uint8_t *end, bool multiline,
                        uint64_t line)
{
    unsigned dims = r->head.dim_count;
    if (r->n == r->count)
        return refuse(r, line, "count", "says fewer rows than there are");
    if (!room_for_row(r, 1 + REWARDER_ACCOUNT_MAX + 8u * dims))
        return ERR_NO_MEMORY;
    uint64_t usage[REWARDER_DIMS_MAX];
    size_t account_n;
    uint8_t *row = r->body + r->body_n;
    const char *why = rewarder_row_read(p, end, dims, multiline, row + 1, &account_n, usage);
    if (why)
        return refuse(r, line, "", why);
    row[0] = (uint8_t)account_n;
    for (unsigned d = 0; d < dims; d++)
        be64_put(row + 1 + account_n + 8u * r->slot[d], usage[d]);
    r->items[r->n++].at = r->body_n;
    r->body_n += 1 + account_n + 8u * dims;
    tell(r, r->n, (size_t)(*p - r->raw.p));
    return ERR_OK;
}

static enum err read_ndjson_rows(struct reader *r)
{
    const uint8_t *p = r->raw.p + r->rows_at, *end = r->raw.p + r->rows_end;
    for (uint64_t line = 2; p < end; line++) {
        enum err e = add_row(r, &p, end, false, line);
        if (e != ERR_OK)
            return e;
        p = skip_blank(p, end, false);
        if (p < end && *p++ != '\n')
            return refuse(r, line, "", "there is something after the row");
    }
    return ERR_OK;
}

static enum err read_json_rows(struct reader *r)
{
    const uint8_t *p = r->raw.p + r->rows_at + 1, *end = r->raw.p + r->rows_end - 1;
    p = skip_blank(p, end, true);
    for (uint64_t row = 1; p < end; row++) {
        enum err e = add_row(r, &p, end, true, row);
        if (e != ERR_OK)
            return e;
        p = skip_blank(p, end, true);
        if (p == end)
            break;
        if (*p++ != ',' || skip_blank(p, end, true) == end)
            return refuse(r, row, "", "rows must be separated by single commas");
    }
    /* The bracket scan pairs '[' with '}' as readily as with ']'. */
    if (*end != ']')
        return refuse(r, 0, "rows", "must end with a bracket");
    return ERR_OK;
}

/* ---- in order ---- */

/* The rows were appended in file order, so counting row lengths from the start finds the line. */
static uint64_t line_of(const struct reader *r, uint64_t at)
{
    uint64_t line = r->media == REWARDER_JSON ? 1 : 2;
    for (size_t p = 0; p < at; p += 1u + r->body[p] + 8u * r->head.dim_count)
        line++;
    return line;
}

static enum err sort_rows(struct reader *r)
{
    uint64_t twice[2];
    enum err e = rewarder_row_sort(r->body, r->items, r->n, twice);
    if (e != ERR_DUPLICATE_ACCOUNT)
        return e;
    uint64_t a = line_of(r, twice[0]), b = line_of(r, twice[1]);
    (void)refuse(r, a > b ? a : b, "", "account occurs twice");
    r->err->other_line = a > b ? b : a;
    return e;
}

static enum err gather(struct reader *r, struct rewarder_snapshot *out)
{
    uint8_t header[REWARDER_ROWS_HEADER_MAX];
    size_t header_n = rewarder_rows_header(&r->head, header);
    size_t total = header_n + r->body_n;
    uint8_t *bytes = malloc(total);
    if (!bytes)
        return ERR_NO_MEMORY;
    memcpy(bytes, header, header_n);
    uint8_t *to = bytes + header_n;
    size_t usage_n = 8u * r->head.dim_count;
    for (uint64_t i = 0; i < r->n; i++) {
        if (i + 8 < r->n)
            __builtin_prefetch(r->body + r->items[i + 8].at);
        const uint8_t *row = r->body + r->items[i].at;
        size_t n = 1u + row[0] + usage_n;
        memcpy(to, row, n);
        to += n;
        tell(r, i + 1, r->raw.n + (size_t)((wide_u128)r->raw.n * i / r->n));
    }
    CHECK(to == bytes + total);
    struct rewarder_snapshot s = {.canonical = bytes, .canonical_bytes = total};
    enum err e = rewarder_rows_open((struct bytes){bytes, total}, &s.rows);
    CHECK(e == ERR_OK);
    *out = s;
    return ERR_OK;
}

enum err rewarder_snapshot_parse(struct bytes raw, enum rewarder_media media, uint64_t rows_max,
                                 struct rewarder_snapshot *out, struct rewarder_snapshot_error *out_err)
{
    return rewarder_snapshot_parse_watched(raw, media, rows_max, NULL, out, out_err);
}

enum err rewarder_snapshot_parse_watched(struct bytes raw, enum rewarder_media media, uint64_t rows_max,
                                         const struct rewarder_watcher *watcher,
                                         struct rewarder_snapshot *out,
                                         struct rewarder_snapshot_error *out_err)
{
    struct reader r = {
        .raw = raw, .media = media, .rows_max = rows_max, .err = out_err, .watcher = watcher};
    *out_err = (struct rewarder_snapshot_error){.reason = ""};
    enum err e = read_head(&r);
    if (e == ERR_OK)
        e = media == REWARDER_JSON ? read_json_rows(&r) : read_ndjson_rows(&r);
    if (e == ERR_OK && r.n != r.count)
        e = refuse(&r, 0, "count", "says more rows than there are");
    r.head.count = r.n;
    if (e == ERR_OK)
        e = sort_rows(&r);
    if (e == ERR_OK)
        e = gather(&r, out);
    free(r.items);
    free(r.body);
    return e;
}

void rewarder_snapshot_fini(struct rewarder_snapshot *s)
{
    free(s->canonical);
    s->canonical = NULL;
}
