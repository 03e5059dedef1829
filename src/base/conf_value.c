#include "base/conf_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"

union any {
    bool boolean;
    uint64_t u64;
    int64_t i64;
    double real;
    const char *string;
    int word;
    struct conf_ints ints;
    struct conf_strs strs;
    struct money money;
};

const char *conf__type_name(enum conf_type t)
{
    static const char *const names[] = {
        [CONF_BOOL] = "bool",
        [CONF_U64] = "integer",
        [CONF_I64] = "integer",
        [CONF_DURATION] = "duration",
        [CONF_SIZE] = "size",
        [CONF_FLOAT] = "number",
        [CONF_STRING] = "string",
        [CONF_ENUM] = "word",
        [CONF_INT_LIST] = "list of integers",
        [CONF_STR_LIST] = "list of strings",
        [CONF_MONEY] = "amount",
    };
    CHECK((unsigned)t < sizeof names / sizeof names[0]);
    return names[t];
}

static const char *expected(enum conf_type t)
{
    static const char *const texts[] = {
        [CONF_BOOL] = "true or false",
        [CONF_U64] = "a whole number",
        [CONF_I64] = "a whole number",
        [CONF_DURATION] = "a duration like \"250ms\", \"5s\", \"1m\" or \"24h\"",
        [CONF_SIZE] = "a size like 65536, \"64KiB\" or \"1MiB\"",
        [CONF_FLOAT] = "a number",
        [CONF_STRING] = "a string",
        [CONF_ENUM] = "one of the words",
        [CONF_INT_LIST] = "a list of whole numbers",
        [CONF_STR_LIST] = "a list of strings",
        [CONF_MONEY] = "an amount in decimal minor units",
    };
    CHECK((unsigned)t < sizeof texts / sizeof texts[0]);
    return texts[t];
}

struct str conf__literal(const char *column)
{
    struct str s = str_from_c(column);
    if (s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"')
        return str_of(s.p + 1, s.n - 2);
    return s;
}

struct str conf__default(const struct conf_table *t, const struct conf_key *k)
{
    for (const struct conf_default *d = t->defaults; d && d->name; d++)
        if (strcmp(d->name, k->name) == 0)
            return str_from_c(d->text);
    return conf__literal(k->default_text);
}

__attribute__((format(printf, 2, 3))) static enum err refuse(char why[CONF_WHY_CHARS], const char *format,
                                                             ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, CONF_WHY_CHARS, format, args);
    va_end(args);
    return ERR_BAD_REQUEST;
}

static enum err refuse_type(const struct conf_key *k, char why[CONF_WHY_CHARS])
{
    if (k->type == CONF_ENUM)
        return refuse(why, "expected one of %.*s", STR_ARG(conf__literal(k->min_text)));
    return refuse(why, "expected %s", expected(k->type));
}

static enum err refuse_memory(char why[CONF_WHY_CHARS])
{
    (void)refuse(why, "the configuration is too large");
    return ERR_NO_MEMORY;
}

/* The index of word in "a|b|c", or -1. */
static int word_index(struct str words, struct str word)
{
    int i = 0;
    for (struct str rest = words, head; rest.p; i++) {
        rest = str_cut(rest, '|', &head);
        if (str_eq(head, word))
            return i;
    }
    return -1;
}

static struct str word_at(struct str words, int index)
{
    struct str rest = words, head = STR("");
    for (int i = 0; i <= index && rest.p; i++)
        rest = str_cut(rest, '|', &head);
    return head;
}

static bool parse_real(struct str text, double *out)
{
    char copy[64], *end;
    if (text.n == 0 || text.n >= sizeof copy || text.p[0] == ' ' || text.p[0] == '\t')
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    double v = strtod(copy, &end);
    if (end != copy + text.n || !isfinite(v))
        return false;
    *out = v;
    return true;
}

/* Scalars from text. Lists and strings need an arena and stand apart. */
static bool parse_scalar(const struct conf_key *k, struct str text, union any *out)
{
    switch (k->type) {
    case CONF_BOOL: /* 1 and 0: what true and false become in a def that is expanded */
        out->boolean = str_eq(text, STR("true")) || str_eq(text, STR("1"));
        return out->boolean || str_eq(text, STR("false")) || str_eq(text, STR("0"));
    case CONF_U64:
        return str_parse_u64(text, &out->u64) == ERR_OK;
    case CONF_I64:
        return str_parse_i64(text, &out->i64) == ERR_OK;
    case CONF_DURATION:
        return str_parse_duration_ms(text, &out->i64) == ERR_OK;
    case CONF_SIZE:
        return str_parse_size(text, &out->u64) == ERR_OK;
    case CONF_FLOAT:
        return parse_real(text, &out->real);
    case CONF_ENUM:
        out->word = word_index(conf__literal(k->min_text), text);
        return out->word >= 0;
    case CONF_MONEY:
        return money_parse(text, &out->money) == ERR_OK;
    case CONF_STRING:
    case CONF_INT_LIST:
    case CONF_STR_LIST:
        break;
    }
    UNREACHABLE();
}

static size_t slot_bytes(enum conf_type t)
{
    switch (t) {
    case CONF_BOOL:
        return sizeof(bool);
    case CONF_U64:
    case CONF_SIZE:
        return sizeof(uint64_t);
    case CONF_I64:
    case CONF_DURATION:
        return sizeof(int64_t);
    case CONF_FLOAT:
        return sizeof(double);
    case CONF_STRING:
        return sizeof(const char *);
    case CONF_ENUM:
        return sizeof(int);
    case CONF_INT_LIST:
        return sizeof(struct conf_ints);
    case CONF_STR_LIST:
        return sizeof(struct conf_strs);
    case CONF_MONEY:
        return sizeof(struct money);
    }
    UNREACHABLE();
}

/* Is a <= b, both of the key's type? */
static bool at_most(enum conf_type t, const union any *a, const union any *b)
{
    switch (t) {
    case CONF_U64:
    case CONF_SIZE:
        return a->u64 <= b->u64;
    case CONF_I64:
    case CONF_DURATION:
        return a->i64 <= b->i64;
    case CONF_FLOAT:
        return a->real <= b->real;
    case CONF_MONEY:
        return money_cmp(a->money, b->money) <= 0;
    case CONF_BOOL:
    case CONF_STRING:
    case CONF_ENUM:
    case CONF_INT_LIST:
    case CONF_STR_LIST:
        break;
    }
    UNREACHABLE();
}

static bool count_in_range(const struct conf_key *k, uint64_t n)
{
    struct str min = conf__literal(k->min_text), max = conf__literal(k->max_text);
    uint64_t limit;
    if (min.n) {
        CHECK(str_parse_u64(min, &limit) == ERR_OK); /* the def is wrong */
        if (n < limit)
            return false;
    }
    if (max.n) {
        CHECK(str_parse_u64(max, &limit) == ERR_OK);
        if (n > limit)
            return false;
    }
    return true;
}

static bool in_range(const struct conf_key *k, const union any *v)
{
    switch (k->type) {
    case CONF_BOOL:
    case CONF_ENUM:
        return true;
    case CONF_STRING:
        return count_in_range(k, strlen(v->string));
    case CONF_INT_LIST:
        return count_in_range(k, v->ints.n);
    case CONF_STR_LIST:
        return count_in_range(k, v->strs.n);
    case CONF_U64:
    case CONF_I64:
    case CONF_DURATION:
    case CONF_SIZE:
    case CONF_FLOAT:
    case CONF_MONEY:
        break;
    }
    struct str min = conf__literal(k->min_text), max = conf__literal(k->max_text);
    union any limit;
    if (min.n) {
        CHECK(parse_scalar(k, min, &limit));
        if (!at_most(k->type, &limit, v))
            return false;
    }
    if (max.n) {
        CHECK(parse_scalar(k, max, &limit));
        if (!at_most(k->type, v, &limit))
            return false;
    }
    return true;
}

void conf__format_range(const struct conf_key *k, struct buf *out)
{
    struct str min = conf__literal(k->min_text), max = conf__literal(k->max_text);
    if (k->type == CONF_ENUM) {
        buf_put_str(out, min);
        return;
    }
    if (min.n == 0 && max.n == 0)
        return;
    buf_put_str(out, min);
    buf_puts(out, "..");
    buf_put_str(out, max);
    if (k->type == CONF_STRING)
        buf_puts(out, " bytes");
    else if (k->type == CONF_INT_LIST || k->type == CONF_STR_LIST)
        buf_puts(out, " items");
}

static enum err keep(const struct conf_key *k, const union any *v, void *slot, char why[CONF_WHY_CHARS])
{
    if (in_range(k, v)) {
        memcpy(slot, v, slot_bytes(k->type));
        return ERR_OK;
    }
    char range_text[80];
    struct buf range;
    buf_init_fixed(&range, range_text, sizeof range_text);
    conf__format_range(k, &range);
    if (k->flags & CONF_SECRET)
        return refuse(why, "out of range %s", buf_cstr(&range));
    char value_text[64];
    struct buf value;
    buf_init_fixed(&value, value_text, sizeof value_text);
    conf__format(k, v, &value);
    return refuse(why, "%s is out of range %s", buf_cstr(&value), buf_cstr(&range));
}

/* "a,b,c"; the empty text is the empty list. */
static enum err parse_text_list(struct arena *a, const struct conf_key *k, struct str text, void *slot,
                                char why[CONF_WHY_CHARS])
{
    size_t n = text.n ? 1 : 0;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] == ',';
    int64_t *ints = arena_array(a, n, sizeof *ints);
    const char **strs = arena_array(a, n, sizeof(char *));
    if (!ints || !strs)
        return refuse_memory(why);
    struct str rest = text, head;
    for (size_t i = 0; i < n; i++) {
        rest = str_cut(rest, ',', &head);
        head = str_trim(head);
        if (k->type == CONF_INT_LIST && str_parse_i64(head, &ints[i]) != ERR_OK)
            return refuse_type(k, why);
        if (k->type == CONF_STR_LIST && !(strs[i] = arena_strdup(a, head)))
            return refuse_memory(why);
    }
    union any v;
    if (k->type == CONF_INT_LIST)
        v.ints = (struct conf_ints){ints, n};
    else
        v.strs = (struct conf_strs){strs, n};
    return keep(k, &v, slot, why);
}

static enum err parse_string(struct arena *a, const struct conf_key *k, struct str text, void *slot,
                             char why[CONF_WHY_CHARS])
{
    if (text.n && memchr(text.p, '\0', text.n))
        return refuse(why, "a string of the configuration cannot hold U+0000");
    union any v;
    v.string = arena_strdup(a, text);
    return v.string ? keep(k, &v, slot, why) : refuse_memory(why);
}

/* A flag and a variable may hold any bytes; a file is checked as a whole. What could not stand in a file cannot be printed as one. */
enum err conf__parse_text(struct arena *a, const struct conf_key *k, struct str text, void *slot,
                          char why[CONF_WHY_CHARS])
{
    if (!str_utf8_valid(text))
        return refuse(why, "is not UTF-8");
    if (k->type == CONF_STRING)
        return parse_string(a, k, text, slot, why);
    if (k->type == CONF_INT_LIST || k->type == CONF_STR_LIST)
        return parse_text_list(a, k, text, slot, why);
    union any v;
    return parse_scalar(k, text, &v) ? keep(k, &v, slot, why) : refuse_type(k, why);
}

static enum err parse_toml_list(struct arena *a, const struct conf_key *k, const struct toml_array *from,
                                void *slot, char why[CONF_WHY_CHARS])
{
    int64_t *ints = arena_array(a, from->n, sizeof *ints);
    const char **strs = arena_array(a, from->n, sizeof(char *));
    if (!ints || !strs)
        return refuse_memory(why);
    for (size_t i = 0; i < from->n; i++) {
        const struct toml_value *item = &from->items[i];
        if (item->type != (k->type == CONF_INT_LIST ? TOML_INTEGER : TOML_STRING))
            return refuse_type(k, why);
        if (k->type == CONF_INT_LIST)
            ints[i] = item->integer;
        else if (memchr(item->string.p, '\0', item->string.n))
            return refuse(why, "a string of the configuration cannot hold U+0000");
        else if (!(strs[i] = arena_strdup(a, item->string)))
            return refuse_memory(why);
    }
    union any v;
    if (k->type == CONF_INT_LIST)
        v.ints = (struct conf_ints){ints, from->n};
    else
        v.strs = (struct conf_strs){strs, from->n};
    return keep(k, &v, slot, why);
}

/* Kinds that stand as a string in TOML, and those that may stand as a number. */
static bool string_kind(enum conf_type t)
{
    return t == CONF_DURATION || t == CONF_SIZE || t == CONF_STRING || t == CONF_ENUM || t == CONF_MONEY;
}

static bool integer_kind(enum conf_type t)
{
    return t == CONF_U64 || t == CONF_I64 || t == CONF_SIZE || t == CONF_FLOAT || t == CONF_MONEY;
}

enum err conf__parse_toml(struct arena *a, const struct conf_key *k, const struct toml_value *v, void *slot,
                          char why[CONF_WHY_CHARS])
{
    bool list = k->type == CONF_INT_LIST || k->type == CONF_STR_LIST;
    if (list && v->type == TOML_ARRAY)
        return parse_toml_list(a, k, &v->array, slot, why);
    if (string_kind(k->type) && v->type == TOML_STRING)
        return conf__parse_text(a, k, v->string, slot, why);
    union any parsed;
    if (k->type == CONF_BOOL && v->type == TOML_BOOL) {
        parsed.boolean = v->boolean;
        return keep(k, &parsed, slot, why);
    }
    if (k->type == CONF_FLOAT && v->type == TOML_FLOAT && isfinite(v->real)) {
        parsed.real = v->real;
        return keep(k, &parsed, slot, why);
    }
    if (integer_kind(k->type) && v->type == TOML_INTEGER) {
        char text[STR_NUMBER_CHARS];
        snprintf(text, sizeof text, "%lld", (long long)v->integer);
        return conf__parse_text(a, k, str_from_c(text), slot, why);
    }
    return refuse_type(k, why);
}

static void put_quoted(struct buf *out, struct str s)
{
    buf_putc(out, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if ((c < 0x20 && c != '\t') || c == 0x7f)
            buf_printf(out, "\\u%04X", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

static void put_real(struct buf *out, double v)
{
    char text[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_puts(out, text);
    if (!strpbrk(text, ".e"))
        buf_puts(out, ".0");
}

static void put_list(const struct conf_key *k, const union any *v, struct buf *out)
{
    buf_putc(out, '[');
    size_t n = k->type == CONF_INT_LIST ? v->ints.n : v->strs.n;
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_puts(out, ", ");
        if (k->type == CONF_INT_LIST)
            buf_printf(out, "%lld", (long long)v->ints.v[i]);
        else
            put_quoted(out, str_from_c(v->strs.v[i]));
    }
    buf_putc(out, ']');
}

void conf__format(const struct conf_key *k, const void *slot, struct buf *out)
{
    union any v;
    memcpy(&v, slot, slot_bytes(k->type));
    char text[STR_NUMBER_CHARS + MONEY_CHARS];
    switch (k->type) {
    case CONF_BOOL:
        buf_puts(out, v.boolean ? "true" : "false");
        break;
    case CONF_U64:
        buf_put_u64(out, v.u64);
        break;
    case CONF_I64:
        buf_printf(out, "%lld", (long long)v.i64);
        break;
    case CONF_DURATION:
        put_quoted(out, str_of(text, str_format_duration_ms(v.i64, text)));
        break;
    case CONF_SIZE:
        put_quoted(out, str_of(text, str_format_size(v.u64, text)));
        break;
    case CONF_FLOAT:
        put_real(out, v.real);
        break;
    case CONF_STRING:
        put_quoted(out, str_from_c(v.string));
        break;
    case CONF_ENUM:
        put_quoted(out, word_at(conf__literal(k->min_text), v.word));
        break;
    case CONF_INT_LIST:
    case CONF_STR_LIST:
        put_list(k, &v, out);
        break;
    case CONF_MONEY:
        put_quoted(out, str_of(text, money_format(v.money, text)));
        break;
    }
}
