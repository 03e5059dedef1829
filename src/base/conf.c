/*
 * A load is four passes over the same slots, weakest source first: defaults, file, environment, flags. Each pass writes
 * the value and who set it, so that the last writer is both in force and remembered. Then the service's adjust has its
 * say. Nothing outside sees the struct before all of that succeeded, which is what makes a reload all or nothing.
 */
#include "base/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/conf_value.h"
#include "base/nearest.h"
#include "base/str.h"

enum { CONF_CHUNK_BYTES = 16 << 10, CONF_MAX_BYTES = 4 << 20 };

static const struct conf_key *find_key(const struct conf_table *t, struct str name)
{
    for (size_t i = 0; i < t->keys_n; i++)
        if (str_eq_c(name, t->keys[i].name))
            return &t->keys[i];
    return NULL;
}

static size_t index_of(const struct conf *c, const char *name)
{
    const struct conf_key *k = find_key(c->table, str_from_c(name));
    CHECK(k != NULL);
    return (size_t)(k - c->table->keys);
}

static void *slot_of(const struct conf *c, const struct conf_key *k)
{
    return (uint8_t *)c->values + k->offset;
}

static struct conf_origin *origin_of(const struct conf *c, const struct conf_key *k)
{
    return &c->origins[k - c->table->keys];
}

/* ---- errors ---- */

/* where is "ron.toml:12", "environment X" or "flag --x"; key without the service. */
__attribute__((format(printf, 5, 6))) static enum err refuse(const struct conf_table *t,
                                                             struct conf_error *out, const char *where,
                                                             const char *key, const char *format, ...)
{
    char reason[CONF_WHY_CHARS];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    *out = (struct conf_error){.line = 0};
    if (key)
        snprintf(out->key, sizeof out->key, "%s.%s", t->service, key);
    const char *colon = where[0] && out->key[0] ? ": " : "";
    snprintf(out->text, sizeof out->text, "%.100s%s%.90s: %.120s", where, colon, out->key, reason);
    return ERR_BAD_REQUEST;
}

enum err conf_refuse(const struct conf *c, const char *name, struct conf_error *out_err, const char *format,
                     ...)
{
    char reason[CONF_WHY_CHARS];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    char where_text[120];
    struct buf where;
    buf_init_fixed(&where, where_text, sizeof where_text);
    conf_format_source(c, name, &where);
    enum err e = refuse(c->table, out_err, buf_cstr(&where), name, "%s", reason);
    const struct conf_origin *o = &c->origins[index_of(c, name)];
    out_err->line = o->from == CONF_FROM_FILE ? o->line : 0;
    return e;
}

/* ---- what somebody meant ---- */

/* Names are offered one by one and may be made up on the way: the best one is kept as a copy. */
struct hint {
    struct nearest near;
    char best[96];
    char text[128]; /* "; did you mean 'x'?", or nothing */
};

/* Keys of a section share their beginning, which makes none of them likelier. */
static void hint_init(struct hint *h, const char *word)
{
    h->near = nearest_to(word);
    h->near.typos_only = true;
    h->best[0] = 0;
}

static void hint_offer(struct hint *h, const char *name)
{
    int before = h->near.best_distance;
    nearest_offer(&h->near, name);
    if (h->near.best_distance < before)
        snprintf(h->best, sizeof h->best, "%s", name);
}

static const char *hint_text(struct hint *h)
{
    h->text[0] = 0;
    if (h->best[0])
        snprintf(h->text, sizeof h->text, "; did you mean '%s'?", h->best);
    return h->text;
}

static const char *leaf_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* A slip of the fingers, or the right key in the wrong section. */
static const char *key_meant(const struct conf_table *t, const char *path, struct hint *h)
{
    hint_init(h, path);
    for (size_t i = 0; i < t->keys_n; i++)
        hint_offer(h, t->keys[i].name);
    for (size_t i = 0; i < t->keys_n && !h->best[0]; i++)
        if (strcmp(leaf_of(t->keys[i].name), leaf_of(path)) == 0)
            snprintf(h->best, sizeof h->best, "%s", t->keys[i].name);
    return hint_text(h);
}

static const char *subsection_meant(const struct conf_table *t, const char *path, struct hint *h)
{
    hint_init(h, path);
    for (size_t i = 0; i < t->keys_n; i++) {
        char section[96];
        const char *name = t->keys[i].name;
        snprintf(section, sizeof section, "%.*s", (int)(leaf_of(name) - name), name);
        if (section[0]) {
            section[strlen(section) - 1] = 0; /* the dot */
            hint_offer(h, section);
        }
    }
    return hint_text(h);
}

static const char *section_meant(const struct conf_table *t, const struct conf_sources *from,
                                 const char *name, struct hint *h)
{
    hint_init(h, name);
    hint_offer(h, t->service);
    for (const char *const *s = from->sections; *s; s++)
        hint_offer(h, *s);
    return hint_text(h);
}

static const char *env_meant(const struct conf_table *t, const char *name, struct hint *h)
{
    hint_init(h, name);
    for (size_t i = 0; i < t->keys_n; i++) {
        char text[160];
        struct buf b;
        buf_init_fixed(&b, text, sizeof text);
        conf_env_name(t, t->keys[i].name, &b);
        hint_offer(h, buf_cstr(&b));
    }
    return hint_text(h);
}

/* ---- the four sources ---- */

static enum err load_defaults(struct conf *c, struct conf_error *out_err)
{
    const struct conf_table *t = c->table;
    char why[CONF_WHY_CHARS];
    for (size_t i = 0; i < t->keys_n; i++) {
        const struct conf_key *k = &t->keys[i];
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(t->keys[j].name, k->name) != 0);
        struct str text = conf__default(t, k);
        bool zero =
            text.n == 0 && k->type != CONF_STRING && k->type != CONF_INT_LIST && k->type != CONF_STR_LIST;
        if (zero) /* no default: the type's zero */
            continue;
        enum err e = conf__parse_text(&c->arena, k, text, slot_of(c, k), why);
        if (e != ERR_OK) {
            (void)refuse(t, out_err, "default", k->name, "%s", why);
            return e;
        }
    }
    return ERR_OK;
}

static bool is_section(const struct conf_table *t, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < t->keys_n; i++)
        if (strncmp(t->keys[i].name, path, n) == 0 && t->keys[i].name[n] == '.')
            return true;
    return false;
}

static enum err load_entry(struct conf *c, const struct toml_entry *e, const char *path,
                           struct conf_error *out_err)
{
    char where[120], why[CONF_WHY_CHARS];
    snprintf(where, sizeof where, "%s:%u", c->file_name, e->line);
    const struct conf_key *k = find_key(c->table, str_from_c(path));
    if (!k) {
        struct hint hint;
        bool section = e->value.type == TOML_TABLE;
        (void)refuse(c->table, out_err, where, path, "unknown %s%s", section ? "section" : "key",
                     section ? subsection_meant(c->table, path, &hint) : key_meant(c->table, path, &hint));
        out_err->line = e->line;
        return ERR_BAD_REQUEST;
    }
    enum err err = conf__parse_toml(&c->arena, k, &e->value, slot_of(c, k), why);
    if (err != ERR_OK) {
        (void)refuse(c->table, out_err, where, path, "%s", why);
        out_err->line = e->line;
        return err;
    }
    *origin_of(c, k) = (struct conf_origin){CONF_FROM_FILE, e->line};
    return ERR_OK;
}

static enum err load_section(struct conf *c, const struct toml_table *t, const char *prefix,
                             struct conf_error *out_err)
{
    for (const struct toml_entry *e = t->first; e; e = e->next) {
        char path[96];
        /* A longer name than any key of ours stays unknown when it is cut. */
        snprintf(path, sizeof path, "%s%s%.*s", prefix, prefix[0] ? "." : "", STR_ARG(e->key));
        enum err err = e->value.type == TOML_TABLE && is_section(c->table, path)
                           ? load_section(c, &e->value.table, path, out_err)
                           : load_entry(c, e, path, out_err);
        if (err != ERR_OK)
            return err;
    }
    return ERR_OK;
}

static bool section_known(const struct conf_table *t, const struct conf_sources *from, struct str name)
{
    if (!from->sections || str_eq_c(name, t->service))
        return true;
    for (const char *const *s = from->sections; *s; s++)
        if (str_eq_c(name, *s))
            return true;
    return false;
}

static enum err load_file(struct conf *c, const struct conf_sources *from, struct conf_error *out_err)
{
    if (!from->file_name)
        return ERR_OK;
    c->file_name = arena_strdup(&c->arena, str_from_c(from->file_name));
    struct toml_value *root;
    struct toml_error why;
    char where[120];
    enum err e = c->file_name ? toml_parse(from->file_text, &c->arena, &root, &why) : ERR_NO_MEMORY;
    if (e == ERR_SYNTAX) {
        snprintf(where, sizeof where, "%s:%u:%u", from->file_name, why.line, why.column);
        (void)refuse(c->table, out_err, where, NULL, "%s", why.text);
        out_err->line = why.line;
        return ERR_BAD_REQUEST;
    }
    if (e != ERR_OK)
        return ERR_NO_MEMORY;
    for (const struct toml_entry *s = root->table.first; s; s = s->next) {
        if (section_known(c->table, from, s->key))
            continue;
        snprintf(where, sizeof where, "%s:%u", from->file_name, s->line);
        char name[41];
        struct hint hint;
        snprintf(name, sizeof name, "%.*s", STR_ARG(s->key));
        (void)refuse(c->table, out_err, where, NULL, "unknown section '%s'%s", name,
                     section_meant(c->table, from, name, &hint));
        out_err->line = s->line;
        return ERR_BAD_REQUEST;
    }
    const struct toml_entry *ours = toml_find(&root->table, str_from_c(c->table->service));
    if (!ours)
        return ERR_OK;
    if (ours->value.type != TOML_TABLE) {
        snprintf(where, sizeof where, "%s:%u", from->file_name, ours->line);
        return refuse(c->table, out_err, where, NULL, "'%s' must be a table", c->table->service);
    }
    return load_section(c, &ours->value.table, "", out_err);
}

static char env_char(char c)
{
    if (c >= 'a' && c <= 'z')
        return (char)(c - 'a' + 'A');
    if (c == '.' || c == '-')
        return '_';
    return c;
}

void conf_env_name(const struct conf_table *t, const char *name, struct buf *out)
{
    buf_puts(out, "RON_");
    for (const char *p = t->service; *p; p++)
        buf_putc(out, env_char(*p));
    buf_putc(out, '_');
    for (const char *p = name; *p; p++)
        buf_putc(out, env_char(*p));
}

static const struct conf_key *key_of_env(const struct conf_table *t, struct str env)
{
    char text[160];
    for (size_t i = 0; i < t->keys_n; i++) {
        struct buf name;
        buf_init_fixed(&name, text, sizeof text);
        conf_env_name(t, t->keys[i].name, &name);
        if (str_eq(buf_str(&name), env))
            return &t->keys[i];
    }
    return NULL;
}

static enum err load_text(struct conf *c, const struct conf_key *k, struct str value, enum conf_from from,
                          const char *where, struct conf_error *out_err)
{
    char why[CONF_WHY_CHARS];
    enum err e = conf__parse_text(&c->arena, k, value, slot_of(c, k), why);
    if (e != ERR_OK) {
        (void)refuse(c->table, out_err, where, k->name, "%s", why);
        return e;
    }
    *origin_of(c, k) = (struct conf_origin){from, 0};
    return ERR_OK;
}

static enum err load_env(struct conf *c, const struct conf_sources *from, struct conf_error *out_err)
{
    char prefix_text[64];
    struct buf prefix;
    buf_init_fixed(&prefix, prefix_text, sizeof prefix_text);
    conf_env_name(c->table, "", &prefix);
    for (const char *const *e = from->env; e && *e; e++) {
        struct str name, value = str_cut(str_from_c(*e), '=', &name);
        if (!value.p || !str_starts(name, buf_str(&prefix)))
            continue;
        char where[120], shown[96];
        struct hint hint;
        snprintf(shown, sizeof shown, "%.*s", STR_ARG(name));
        snprintf(where, sizeof where, "environment %s", shown);
        const struct conf_key *k = key_of_env(c->table, name);
        if (!k)
            return refuse(c->table, out_err, where, NULL, "no key of %s has this name%s", c->table->service,
                          env_meant(c->table, shown, &hint));
        enum err err = load_text(c, k, value, CONF_FROM_ENV, where, out_err);
        if (err != ERR_OK)
            return err;
    }
    return ERR_OK;
}

static enum err load_flags(struct conf *c, const struct conf_sources *from, struct conf_error *out_err)
{
    for (size_t i = 0; i < from->flags_n; i++) {
        struct str flag = str_from_c(from->flags[i]);
        if (str_starts(flag, STR("--")))
            flag = str_of(flag.p + 2, flag.n - 2);
        struct str name, value = str_cut(flag, '=', &name);
        char where[120], shown[96];
        struct hint hint;
        snprintf(shown, sizeof shown, "%.*s", STR_ARG(name));
        snprintf(where, sizeof where, "flag --%s", shown);
        const struct conf_key *k = find_key(c->table, name);
        if (!k)
            return refuse(c->table, out_err, where, NULL, "no key of %s has this name%s", c->table->service,
                          key_meant(c->table, shown, &hint));
        if (!value.p && k->type == CONF_BOOL)
            value = STR("true");
        if (!value.p)
            return refuse(c->table, out_err, where, k->name, "needs a value: --%s=...", k->name);
        enum err e = load_text(c, k, value, CONF_FROM_FLAG, where, out_err);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* ---- adjust ---- */

/* Values as text: the one way to compare that works for every type. */
static bool same_value(const struct conf_key *k, const void *a, const void *b)
{
    struct buf x, y;
    buf_init(&x, CONF_MAX_BYTES);
    buf_init(&y, CONF_MAX_BYTES);
    conf__format(k, a, &x);
    conf__format(k, b, &y);
    bool same = x.err == ERR_OK && y.err == ERR_OK && str_eq(buf_str(&x), buf_str(&y));
    buf_fini(&x);
    buf_fini(&y);
    return same;
}

static enum err run_adjust(struct conf *c, struct conf_error *out_err)
{
    if (!c->table->adjust)
        return ERR_OK;
    void *before = arena_alloc(&c->arena, c->table->config_bytes);
    if (!before)
        return ERR_NO_MEMORY;
    memcpy(before, c->values, c->table->config_bytes);
    enum err e = c->table->adjust(c, c->values, out_err);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < c->table->keys_n; i++) {
        const struct conf_key *k = &c->table->keys[i];
        if (!same_value(k, (uint8_t *)before + k->offset, slot_of(c, k)))
            c->origins[i].from =
                c->origins[i].from == CONF_FROM_DEFAULT ? CONF_FROM_ADJUST : c->origins[i].from;
    }
    return ERR_OK;
}

/* ---- snapshots ---- */

enum err conf_load(const struct conf_table *t, const struct conf_sources *from, struct conf **out_conf,
                   struct conf_error *out_err)
{
    *out_err = (struct conf_error){.line = 0};
    struct conf *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->table = t;
    arena_init(&c->arena, CONF_CHUNK_BYTES, CONF_MAX_BYTES);
    c->values = arena_zalloc(&c->arena, t->config_bytes);
    c->origins = arena_array(&c->arena, t->keys_n, sizeof *c->origins);
    enum err e = c->values && c->origins ? load_defaults(c, out_err) : ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = load_file(c, from, out_err);
    if (e == ERR_OK)
        e = load_env(c, from, out_err);
    if (e == ERR_OK)
        e = load_flags(c, from, out_err);
    if (e == ERR_OK)
        e = run_adjust(c, out_err);
    if (e != ERR_OK) {
        conf_destroy(c);
        return e;
    }
    *out_conf = c;
    return ERR_OK;
}

void conf_destroy(struct conf *c)
{
    if (!c)
        return;
    arena_fini(&c->arena);
    free(c);
}

const void *conf_values(const struct conf *c)
{
    return c->values;
}

enum err conf_reload(const struct conf *old, const struct conf_sources *from, struct conf **out_conf,
                     struct conf_error *out_err)
{
    struct conf *new;
    enum err e = conf_load(old->table, from, &new, out_err);
    if (e != ERR_OK)
        return e;
    char names_text[240];
    struct buf names;
    buf_init_fixed(&names, names_text, sizeof names_text);
    for (size_t i = 0; i < old->table->keys_n; i++) {
        const struct conf_key *k = &old->table->keys[i];
        if (k->flags & CONF_RELOAD || same_value(k, slot_of(old, k), slot_of(new, k)))
            continue;
        if (names.n == 0)
            snprintf(out_err->key, sizeof out_err->key, "%s.%s", old->table->service, k->name);
        buf_printf(&names, "%s%s.%s", names.n ? ", " : "", old->table->service, k->name);
    }
    if (names.n) {
        snprintf(out_err->text, sizeof out_err->text, "changed but needs a restart: %s", buf_cstr(&names));
        conf_destroy(new);
        return ERR_CONFLICT;
    }
    *out_conf = new;
    return ERR_OK;
}

size_t conf_diff(const struct conf *old, const struct conf *new, struct buf *out)
{
    CHECK(old->table == new->table);
    size_t n = 0;
    for (size_t i = 0; i < old->table->keys_n; i++) {
        const struct conf_key *k = &old->table->keys[i];
        if (same_value(k, slot_of(old, k), slot_of(new, k)))
            continue;
        buf_printf(out, "%s.%s: ", old->table->service, k->name);
        conf_format_value(old, k->name, out);
        buf_puts(out, " -> ");
        conf_format_value(new, k->name, out);
        buf_putc(out, '\n');
        n++;
    }
    return n;
}

bool conf_is_default(const struct conf *c, const char *name)
{
    enum conf_from from = c->origins[index_of(c, name)].from;
    return from == CONF_FROM_DEFAULT || from == CONF_FROM_ADJUST;
}

void conf_format_source(const struct conf *c, const char *name, struct buf *out)
{
    const struct conf_origin *o = &c->origins[index_of(c, name)];
    switch (o->from) {
    case CONF_FROM_DEFAULT:
        buf_puts(out, "default");
        break;
    case CONF_FROM_ADJUST:
        buf_puts(out, "default for this machine");
        break;
    case CONF_FROM_FILE:
        buf_printf(out, "%s:%u", c->file_name, o->line);
        break;
    case CONF_FROM_ENV:
        buf_puts(out, "env ");
        conf_env_name(c->table, name, out);
        break;
    case CONF_FROM_FLAG:
        buf_printf(out, "flag --%s", name);
        break;
    }
}

void conf_format_value(const struct conf *c, const char *name, struct buf *out)
{
    const struct conf_key *k = &c->table->keys[index_of(c, name)];
    if (k->flags & CONF_SECRET)
        buf_puts(out, "\"***\"");
    else
        conf__format(k, slot_of(c, k), out);
}
