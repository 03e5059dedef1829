/*
 * Walks the bytes and the table together. Members usually arrive in table order, so the search for a name
 * begins behind the last one found. A member that was seen is a bit; at the closing brace the required bits
 * must all be there.
 */
#include "base/json_read.h"

#include "base/base64.h"
#include "base/check.h"
#include "base/json_scan.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/str.h"

static enum err read_object(struct json_in *in, const struct json_field *fields, void *out);

const char *json_reason_name(enum json_reason r)
{
    static const char *const names[] = {
        [JSON_OK] = "ok",
        [JSON_UNKNOWN] = "unknown",
        [JSON_MISSING] = "missing",
        [JSON_TYPE] = "type",
        [JSON_RANGE] = "range",
        [JSON_PATTERN] = "pattern",
        [JSON_DUPLICATE] = "duplicate",
        [JSON_DEPTH] = "depth",
        [JSON_SYNTAX] = "syntax",
        [JSON_MEMORY] = "memory",
    };
    CHECK((unsigned)r < sizeof names / sizeof names[0]);
    return names[r];
}

const char *json_error_place(const struct json_error *e)
{
    return e->path[0] ? e->path : "body";
}

static void *place(const struct json_field *f, void *out, size_t bytes)
{
    CHECK(f->bytes == bytes); /* the table names a member of another type */
    return (uint8_t *)out + f->offset;
}

static bool in_range(const struct json_field *f, uint64_t v)
{
    return v >= f->min && (f->max == 0 || v <= f->max);
}

/* A string of the kinds that decode it further. */
static enum err read_text(struct json_in *in, struct str *out)
{
    if (json__peek(in) != '"')
        return json__fail(in, JSON_TYPE);
    return json__string(in, out);
}

static enum err read_checked_str(struct json_in *in, const struct json_field *f, uint64_t min, uint64_t max,
                                 struct str *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    if (s.n < min || (max && s.n > max))
        return json__fail(in, JSON_RANGE);
    if (f->check && !f->check(s))
        return json__fail(in, JSON_PATTERN);
    *out = s;
    return ERR_OK;
}

static enum err fail_parse(struct json_in *in, enum err e)
{
    return json__fail(in, e == ERR_RANGE || e == ERR_TOO_LARGE ? JSON_RANGE : JSON_PATTERN);
}

static enum err read_money(struct json_in *in, const struct json_field *f, struct money *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    struct money m;
    e = money_parse(s, &m);
    if (e != ERR_OK)
        return fail_parse(in, e);
    if (m.units < f->min || (f->max && m.units > f->max))
        return json__fail(in, JSON_RANGE);
    *out = m;
    return ERR_OK;
}

static enum err read_u64_text(struct json_in *in, const struct json_field *f, uint64_t *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    uint64_t v;
    e = str_parse_u64(s, &v);
    if (e != ERR_OK)
        return fail_parse(in, e);
    if (!in_range(f, v))
        return json__fail(in, JSON_RANGE);
    *out = v;
    return ERR_OK;
}

static enum err read_integer_text(struct json_in *in, struct str *out)
{
    bool integer;
    enum err e = json__number(in, out, &integer);
    if (e == ERR_OK && !integer)
        e = json__fail(in, JSON_TYPE);
    return e;
}

static enum err read_u64(struct json_in *in, const struct json_field *f, uint64_t *out)
{
    struct str s = STR("");
    enum err e = read_integer_text(in, &s);
    if (e != ERR_OK)
        return e;
    uint64_t v;
    if (str_parse_u64(s, &v) != ERR_OK || !in_range(f, v))
        return json__fail(in, JSON_RANGE);
    *out = v;
    return ERR_OK;
}

static enum err read_i64(struct json_in *in, const struct json_field *f, int64_t *out)
{
    struct str s = STR("");
    enum err e = read_integer_text(in, &s);
    if (e != ERR_OK)
        return e;
    int64_t v;
    bool limited = f->least != 0 || f->most != 0;
    if (str_parse_i64(s, &v) != ERR_OK || (limited && (v < f->least || v > f->most)))
        return json__fail(in, JSON_RANGE);
    *out = v;
    return ERR_OK;
}

static enum err read_enum(struct json_in *in, const struct json_field *f, int *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    for (int i = 0; f->names[i]; i++) {
        if (str_eq_c(s, f->names[i])) {
            *out = i;
            return ERR_OK;
        }
    }
    return json__fail(in, JSON_PATTERN);
}

static enum err read_base64(struct json_in *in, const struct json_field *f, struct bytes *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    /* The text is our own copy in the arena and longer than what it stands for: it is decoded where it lies. */
    uint8_t *p = (uint8_t *)(uintptr_t)s.p;
    size_t n;
    e = base64_decode(s, p, s.n, &n);
    if (e != ERR_OK)
        return fail_parse(in, e);
    if (!in_range(f, n))
        return json__fail(in, JSON_RANGE);
    *out = bytes_of(p, n);
    return ERR_OK;
}

static enum err read_hash(struct json_in *in, struct sha256 *out)
{
    struct str s = STR("");
    enum err e = read_text(in, &s);
    if (e != ERR_OK)
        return e;
    return sha256_parse(s, out) == ERR_OK ? ERR_OK : json__fail(in, JSON_PATTERN);
}

static enum err read_raw(struct json_in *in, struct str *out)
{
    json__space(in);
    const uint8_t *from = in->p;
    enum err e = json__skip(in);
    if (e != ERR_OK)
        return e;
    if (!arena_str(in->arena, str_of((const char *)from, (size_t)(in->p - from)), out))
        return json__fail(in, JSON_MEMORY);
    return ERR_OK;
}

/* A list that doubles inside the arena; what it outgrew is left behind until the arena ends. */
struct growing {
    uint8_t *items;
    size_t n, cap, item_bytes;
};

static void *grow_one(struct json_in *in, struct growing *g)
{
    if (g->n == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 4;
        uint8_t *items = arena_array(in->arena, cap, g->item_bytes);
        if (!items)
            return NULL;
        if (g->n)
            memcpy(items, g->items, g->n * g->item_bytes);
        g->items = items;
        g->cap = cap;
    }
    return g->items + g->n++ * g->item_bytes;
}

static enum err read_item(struct json_in *in, const struct json_field *f, void *item)
{
    if (f->kind == JSON_KIND_OBJ_LIST)
        return read_object(in, f->fields, item);
    return read_checked_str(in, f, 0, 0, item);
}

static enum err read_map_member(struct json_in *in, const struct json_field *f, struct str key, void *item)
{
    struct str kept;
    if (!arena_str(in->arena, key, &kept))
        return json__fail(in, JSON_MEMORY);
    if (f->check && !f->check(kept))
        return json__fail(in, JSON_PATTERN);
    if (f->kind == JSON_KIND_OBJ_MAP) {
        memcpy((uint8_t *)item + f->key_offset, &kept, sizeof kept);
        return read_object(in, f->fields, item);
    }
    struct json_pair *pair = item;
    pair->key = kept;
    return read_text(in, &pair->value);
}

/* A list, or a map, which is a list with a name before each item. */
static enum err read_many(struct json_in *in, const struct json_field *f, bool named, size_t item_bytes,
                          struct json_list *out)
{
    if (json__peek(in) != (named ? '{' : '['))
        return json__fail(in, JSON_TYPE);
    in->p++;
    enum err e = json__enter(in);
    if (e != ERR_OK)
        return e;
    struct growing g = {.item_bytes = item_bytes};
    struct json_names names;
    json__names_init(&names);
    const struct json_frame *up = in->frame;
    struct json_frame frame = {.up = up};
    bool first = true, more = true;
    for (;;) {
        e = json__next(in, named ? '}' : ']', &first, &more);
        if (e != ERR_OK)
            return e;
        if (!more)
            break;
        if (f->max && g.n >= f->max)
            return json__fail(in, JSON_RANGE); /* before the item is read: the limit bounds the work too */
        if (!named)
            frame.index = g.n;
        else if ((e = json__name(in, &frame.name)) != ERR_OK)
            return e;
        void *item = grow_one(in, &g);
        if (!item)
            return json__fail(in, JSON_MEMORY);
        in->frame = &frame;
        if (named)
            e = json__names_add(in, &names, frame.name);
        if (e == ERR_OK)
            e = named ? read_map_member(in, f, frame.name, item) : read_item(in, f, item);
        in->frame = up;
        if (e != ERR_OK)
            return e;
    }
    if (g.n < f->min)
        return json__fail(in, JSON_RANGE);
    *out = (struct json_list){g.items, g.n};
    return ERR_OK;
}

static enum err read_value(struct json_in *in, const struct json_field *f, void *out)
{
    switch (f->kind) {
    case JSON_KIND_STR:
        return read_checked_str(in, f, f->min, f->max, place(f, out, sizeof(struct str)));
    case JSON_KIND_MONEY:
        return read_money(in, f, place(f, out, sizeof(struct money)));
    case JSON_KIND_U64:
        return read_u64(in, f, place(f, out, sizeof(uint64_t)));
    case JSON_KIND_I64:
        return read_i64(in, f, place(f, out, sizeof(int64_t)));
    case JSON_KIND_U64_TEXT:
        return read_u64_text(in, f, place(f, out, sizeof(uint64_t)));
    case JSON_KIND_BOOL:
        return json__bool(in, place(f, out, sizeof(bool)));
    case JSON_KIND_ENUM:
        return read_enum(in, f, place(f, out, sizeof(int)));
    case JSON_KIND_BASE64:
        return read_base64(in, f, place(f, out, sizeof(struct bytes)));
    case JSON_KIND_HASH:
        return read_hash(in, place(f, out, sizeof(struct sha256)));
    case JSON_KIND_OBJ:
        return read_object(in, f->fields, (uint8_t *)out + f->offset);
    case JSON_KIND_OBJ_LIST:
        return read_many(in, f, false, f->item_bytes, place(f, out, sizeof(struct json_list)));
    case JSON_KIND_STR_LIST:
        return read_many(in, f, false, sizeof(struct str), place(f, out, sizeof(struct json_list)));
    case JSON_KIND_OBJ_MAP:
        return read_many(in, f, true, f->item_bytes, place(f, out, sizeof(struct json_list)));
    case JSON_KIND_STR_MAP:
        return read_many(in, f, true, sizeof(struct json_pair), place(f, out, sizeof(struct json_list)));
    case JSON_KIND_RAW:
        return read_raw(in, place(f, out, sizeof(struct str)));
    case JSON_KIND_END:
        break;
    }
    UNREACHABLE();
}

static size_t fields_count(const struct json_field *fields)
{
    size_t n = 0;
    while (fields[n].kind != JSON_KIND_END)
        n++;
    CHECK(n <= JSON_FIELDS_MAX);
    return n;
}

/* Index of the field called name, looking from `from` round; n when there is none. */
static size_t fields_find(const struct json_field *fields, size_t n, size_t from, struct str name)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = from + k < n ? from + k : from + k - n;
        if (fields[i].name_n == name.n && memcmp(fields[i].name, name.p, name.n) == 0)
            return i;
    }
    return n;
}

static enum err check_missing(struct json_in *in, const struct json_field *fields, size_t n, uint64_t seen)
{
    for (size_t i = 0; i < n; i++) {
        if (!fields[i].required || seen >> i & 1)
            continue;
        const struct json_frame *up = in->frame;
        struct json_frame frame = {.up = up, .name = str_of(fields[i].name, fields[i].name_n)};
        in->frame = &frame;
        enum err e = json__fail(in, JSON_MISSING);
        in->frame = up;
        return e;
    }
    return ERR_OK;
}

/* One object of a table: its members so far. */
struct members {
    const struct json_field *fields;
    size_t n, next;
    uint64_t seen;
    struct json_names *unknown; /* lax only */
};

static enum err read_member(struct json_in *in, struct members *m, struct str name, void *out)
{
    size_t i = fields_find(m->fields, m->n, m->next, name);
    if (i == m->n) {
        if (!in->lax)
            return json__fail(in, JSON_UNKNOWN);
        enum err e = json__names_add(in, m->unknown, name);
        return e != ERR_OK ? e : json__skip(in);
    }
    if (m->seen >> i & 1)
        return json__fail(in, JSON_DUPLICATE);
    m->seen |= (uint64_t)1 << i;
    m->next = i + 1;
    if (m->fields[i].has != JSON_NO_FLAG)
        *((uint8_t *)out + m->fields[i].has) = 1;
    return read_value(in, &m->fields[i], out);
}

static enum err read_object(struct json_in *in, const struct json_field *fields, void *out)
{
    if (json__peek(in) != '{')
        return json__fail(in, json__peek(in) < 0 ? JSON_SYNTAX : JSON_TYPE);
    in->p++;
    enum err e = json__enter(in);
    if (e != ERR_OK)
        return e;
    struct json_names unknown;
    json__names_init(&unknown);
    struct members m = {.fields = fields, .n = fields_count(fields), .unknown = &unknown};
    const struct json_frame *up = in->frame;
    struct json_frame frame = {.up = up};
    bool first = true, more = true;
    for (;;) {
        e = json__next(in, '}', &first, &more);
        if (e != ERR_OK)
            return e;
        if (!more)
            return check_missing(in, fields, m.n, m.seen);
        e = json__name(in, &frame.name);
        if (e != ERR_OK)
            return e;
        in->frame = &frame;
        e = read_member(in, &m, frame.name, out);
        in->frame = up;
        if (e != ERR_OK)
            return e;
    }
}

static struct json_in start(struct bytes body, struct arena *arena, struct json_error *error)
{
    *error = (struct json_error){.reason = JSON_OK};
    return (struct json_in){
        .start = body.p, .p = body.p, .end = body.p + body.n, .arena = arena, .error = error};
}

static enum err finish(struct json_in *in, enum err e)
{
    if (e == ERR_OK && json__peek(in) >= 0)
        e = json__fail(in, JSON_SYNTAX);
    return e;
}

static enum err read_dto(struct bytes body, const struct json_field *fields, void *out, struct arena *arena,
                         struct json_error *out_err, bool lax)
{
    struct json_in in = start(body.p ? body : bytes_of("", 0), arena, out_err);
    in.lax = lax;
    return finish(&in, read_object(&in, fields, out));
}

enum err json_read_dto(struct bytes body, const struct json_field *fields, void *out, struct arena *arena,
                       struct json_error *out_err)
{
    return read_dto(body, fields, out, arena, out_err, false);
}

enum err json_read_dto_lax(struct bytes body, const struct json_field *fields, void *out,
                           struct arena *arena, struct json_error *out_err)
{
    return read_dto(body, fields, out, arena, out_err, true);
}

enum err json_check(struct bytes body, struct arena *arena, struct json_error *out_err)
{
    struct json_in in = start(body.p ? body : bytes_of("", 0), arena, out_err);
    return finish(&in, json__skip(&in));
}
