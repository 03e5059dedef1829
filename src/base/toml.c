/*
 * The document: headers, key/value lines, arrays and inline tables, and the rule that nothing is defined twice.
 *
 * Each table remembers how it came about, which decides what may still be done to it:
 *   IMPLIED   on the way to a [a.b] header: a header may still define it, dotted keys may still add to it
 *   HEADER    by [name] or [[name]]: closed to a second header and to dotted keys from outside
 *   DOTTED    by a dotted key: more dotted keys may add, and a header may pass through, but not define it
 *   INLINE    by { }: complete, nothing may be added
 */
#include "base/toml.h"

#include "base/check.h"
#include "base/str.h"
#include "base/toml_scan.h"

enum { IMPLIED, HEADER, DOTTED, INLINE };

static enum err read_value(struct toml_in *in, struct toml_value *out);

const char *toml_type_name(enum toml_type t)
{
    static const char *const names[] = {
        [TOML_STRING] = "string",
        [TOML_INTEGER] = "integer",
        [TOML_FLOAT] = "float",
        [TOML_BOOL] = "bool",
        [TOML_OFFSET_DATETIME] = "datetime",
        [TOML_LOCAL_DATETIME] = "datetime-local",
        [TOML_LOCAL_DATE] = "date-local",
        [TOML_LOCAL_TIME] = "time-local",
        [TOML_ARRAY] = "array",
        [TOML_TABLE] = "table",
    };
    CHECK((unsigned)t < sizeof names / sizeof names[0]);
    return names[t];
}

static struct toml_entry *find(const struct toml_table *t, struct str key)
{
    for (struct toml_entry *e = t->first; e; e = e->next)
        if (str_eq(e->key, key))
            return e;
    return NULL;
}

const struct toml_entry *toml_find(const struct toml_table *t, struct str key)
{
    return find(t, key);
}

/* A new entry at the end; its value is an empty table until somebody says otherwise. NULL: the arena is full. */
static struct toml_entry *add(struct toml_in *in, struct toml_table *t, struct str key, int how)
{
    struct toml_entry *e = arena_zalloc(in->arena, sizeof *e);
    if (!e)
        return NULL;
    e->key = key;
    e->line = e->value.line = in->line;
    e->value.column = (unsigned)(in->p - in->line_start) + 1;
    e->value.type = TOML_TABLE;
    e->value.table.how = how;
    if (t->last)
        t->last->next = e;
    else
        t->first = e;
    t->last = e;
    t->n++;
    return e;
}

static struct toml_value *array_add(struct toml_in *in, struct toml_array *a)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 4;
        struct toml_value *items = arena_array(in->arena, cap, sizeof *items);
        if (!items)
            return NULL;
        if (a->n)
            memcpy(items, a->items, a->n * sizeof *items);
        a->items = items;
        a->cap = cap;
    }
    struct toml_value *v = &a->items[a->n++];
    v->line = in->line;
    v->column = (unsigned)(in->p - in->line_start) + 1;
    return v;
}

/* The next part of a dotted key, and whether more follow. */
static enum err key_part(struct toml_in *in, struct str *out, bool *out_more)
{
    toml__blanks(in);
    enum err e = toml__key(in, out);
    if (e != ERR_OK)
        return e;
    toml__blanks(in);
    *out_more = toml__peek(in) == '.';
    if (*out_more)
        in->p++;
    return ERR_OK;
}

static enum err twice(struct toml_in *in, const char *at, struct str key)
{
    return toml__fail(in, at, "'%.*s' is already defined", (int)(key.n < 64 ? key.n : 64), key.p);
}

/* Through one part of a header's path that is not the last. */
static enum err header_step(struct toml_in *in, const char *at, struct str key, struct toml_table **t)
{
    struct toml_entry *e = find(*t, key);
    if (!e) {
        e = add(in, *t, key, IMPLIED);
        if (!e)
            return toml__full(in);
    }
    if (e->value.type == TOML_TABLE && e->value.table.how != INLINE)
        *t = &e->value.table;
    else if (e->value.type == TOML_ARRAY && e->value.array.of_tables)
        *t = &e->value.array.items[e->value.array.n - 1].table;
    else
        return twice(in, at, key);
    return ERR_OK;
}

static enum err define_table(struct toml_in *in, const char *at, struct str key, struct toml_table **t)
{
    struct toml_entry *e = find(*t, key);
    if (!e)
        e = add(in, *t, key, IMPLIED);
    if (!e)
        return toml__full(in);
    if (e->value.type != TOML_TABLE || e->value.table.how != IMPLIED)
        return twice(in, at, key);
    e->value.table.how = HEADER;
    e->value.line = in->line;
    *t = &e->value.table;
    return ERR_OK;
}

static enum err define_array_item(struct toml_in *in, const char *at, struct str key, struct toml_table **t)
{
    struct toml_entry *e = find(*t, key);
    if (!e) {
        e = add(in, *t, key, IMPLIED);
        if (!e)
            return toml__full(in);
        e->value.type = TOML_ARRAY;
        e->value.array = (struct toml_array){.of_tables = true};
    }
    if (e->value.type != TOML_ARRAY || !e->value.array.of_tables)
        return twice(in, at, key);
    struct toml_value *item = array_add(in, &e->value.array);
    if (!item)
        return toml__full(in);
    item->type = TOML_TABLE;
    item->table = (struct toml_table){.how = HEADER};
    *t = &item->table;
    return ERR_OK;
}

/* [a.b] or [[a.b]]; *out_table becomes the table that the following lines fill. */
static enum err read_header(struct toml_in *in, struct toml_table *root, struct toml_table **out_table)
{
    in->p++;
    bool array = toml__peek(in) == '[';
    if (array)
        in->p++;
    struct toml_table *t = root;
    unsigned depth = 0;
    for (bool more = true; more;) {
        struct str key;
        toml__blanks(in);
        const char *at = in->p;
        enum err e = key_part(in, &key, &more);
        if (e == ERR_OK && ++depth > TOML_DEPTH_MAX)
            e = toml__fail(in, at, "nested too deep");
        if (e == ERR_OK)
            e = more    ? header_step(in, at, key, &t)
                : array ? define_array_item(in, at, key, &t)
                        : define_table(in, at, key, &t);
        if (e != ERR_OK)
            return e;
    }
    for (int i = 0; i < (array ? 2 : 1); i++, in->p++)
        if (toml__peek(in) != ']')
            return toml__fail(in, in->p, "expected ']'");
    *out_table = t;
    return toml__line_end(in);
}

/* Through one part of a dotted key that is not the last. */
static enum err dotted_step(struct toml_in *in, const char *at, struct str key, struct toml_table **t)
{
    struct toml_entry *e = find(*t, key);
    if (!e) {
        e = add(in, *t, key, DOTTED);
        if (!e)
            return toml__full(in);
    }
    if (e->value.type != TOML_TABLE || (e->value.table.how != DOTTED && e->value.table.how != IMPLIED))
        return twice(in, at, key);
    e->value.table.how = DOTTED;
    *t = &e->value.table;
    return ERR_OK;
}

/* a.b = value, into t. */
static enum err read_pair(struct toml_in *in, struct toml_table *t)
{
    struct str key;
    const char *at = in->p;
    unsigned depth = 0;
    for (bool more = true; more;) {
        toml__blanks(in);
        at = in->p;
        enum err e = key_part(in, &key, &more);
        if (e == ERR_OK && ++depth > TOML_DEPTH_MAX)
            e = toml__fail(in, at, "nested too deep");
        if (e == ERR_OK && more)
            e = dotted_step(in, at, key, &t);
        if (e != ERR_OK)
            return e;
    }
    if (find(t, key))
        return twice(in, at, key);
    if (toml__peek(in) != '=')
        return toml__fail(in, in->p, "expected '='");
    in->p++;
    toml__blanks(in);
    struct toml_entry *e = add(in, t, key, INLINE);
    return e ? read_value(in, &e->value) : toml__full(in);
}

static enum err read_array(struct toml_in *in, struct toml_value *out)
{
    in->p++;
    struct toml_array a = {.n = 0};
    for (;;) {
        enum err e = toml__space_lines(in);
        if (e != ERR_OK)
            return e;
        if (toml__peek(in) == ']')
            break;
        struct toml_value *item = array_add(in, &a);
        e = item ? read_value(in, item) : toml__full(in);
        if (e == ERR_OK)
            e = toml__space_lines(in);
        if (e != ERR_OK)
            return e;
        if (toml__peek(in) == ']')
            break;
        if (toml__peek(in) != ',')
            return toml__fail(in, in->p, "expected ',' or ']'");
        in->p++;
    }
    in->p++;
    out->type = TOML_ARRAY;
    out->array = a;
    return ERR_OK;
}

/* What dotted keys made inside { } is as complete as the rest of it. */
static void close_table(struct toml_table *t)
{
    t->how = INLINE;
    for (struct toml_entry *e = t->first; e; e = e->next)
        if (e->value.type == TOML_TABLE && e->value.table.how == DOTTED)
            close_table(&e->value.table);
}

static enum err read_inline_table(struct toml_in *in, struct toml_value *out)
{
    in->p++;
    out->type = TOML_TABLE;
    out->table = (struct toml_table){.how = INLINE};
    toml__blanks(in);
    if (toml__peek(in) != '}') {
        for (;;) {
            enum err e = read_pair(in, &out->table);
            if (e != ERR_OK)
                return e;
            toml__blanks(in);
            if (toml__peek(in) != ',')
                break;
            in->p++;
        }
        if (toml__peek(in) != '}')
            return toml__fail(in, in->p, "expected ',' or '}'");
    }
    in->p++;
    close_table(&out->table);
    return ERR_OK;
}

static enum err read_value(struct toml_in *in, struct toml_value *out)
{
    int c = toml__peek(in);
    if (c == '"' || c == '\'') {
        out->type = TOML_STRING;
        return toml__string(in, &out->string);
    }
    if (c != '[' && c != '{')
        return toml__scalar(in, out);
    if (in->depth >= TOML_DEPTH_MAX)
        return toml__fail(in, in->p, "nested too deep");
    in->depth++;
    enum err e = c == '[' ? read_array(in, out) : read_inline_table(in, out);
    in->depth--;
    return e;
}

static enum err read_document(struct toml_in *in, struct toml_table *root)
{
    struct toml_table *current = root;
    while (in->p < in->end) {
        enum err e = ERR_OK;
        toml__blanks(in);
        if (toml__peek(in) == '[') {
            e = read_header(in, root, &current);
        } else {
            if (toml__peek(in) >= 0 && toml__peek(in) != '#' && !toml__at_newline(in))
                e = read_pair(in, current);
            if (e == ERR_OK)
                e = toml__line_end(in);
        }
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* The place of the first byte that is not UTF-8: lines before it are fine, so each is tried alone. */
static enum err not_utf8(struct toml_in *in)
{
    for (;;) {
        const char *nl = memchr(in->p, '\n', (size_t)(in->end - in->p));
        size_t n = (size_t)((nl ? nl : in->end) - in->p);
        if (!str_utf8_valid(str_of(in->p, n)) || !nl)
            return toml__fail(in, in->p, "the line is not UTF-8");
        in->p = in->line_start = nl + 1;
        in->line++;
    }
}

enum err toml_parse(struct str text, struct arena *arena, struct toml_value **out_root,
                    struct toml_error *out_err)
{
    *out_err = (struct toml_error){.line = 0};
    if (!text.p)
        text = STR("");
    struct toml_in in = {.p = text.p,
                         .end = text.p + text.n,
                         .line_start = text.p,
                         .line = 1,
                         .arena = arena,
                         .error = out_err};
    if (!str_utf8_valid(text))
        return not_utf8(&in);
    struct toml_value *root = arena_zalloc(arena, sizeof *root);
    if (!root)
        return toml__full(&in);
    *root = (struct toml_value){.type = TOML_TABLE, .line = 1, .column = 1, .table = {.how = HEADER}};
    enum err e = read_document(&in, &root->table);
    if (e == ERR_OK)
        *out_root = root;
    return e;
}
