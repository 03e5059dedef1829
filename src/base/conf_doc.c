/* What people read, made from the same table: the effective file, an example file, a Markdown table. */
#include "base/conf.h"
#include "base/conf_value.h"

/* The part of a key before its last dot; empty for keys of the service itself. */
static struct str section_of(const struct conf_key *k)
{
    const char *dot = strrchr(k->name, '.');
    return dot ? str_of(k->name, (size_t)(dot - k->name)) : STR("");
}

static const char *leaf_of(const struct conf_key *k)
{
    const char *dot = strrchr(k->name, '.');
    return dot ? dot + 1 : k->name;
}

/* Calls line() for every key, the sections one after the other in the order of their first key. */
static void each_section(const struct conf_table *t, struct buf *out,
                         void (*line)(const struct conf_key *k, const void *arg, struct buf *out),
                         const void *arg)
{
    buf_printf(out, "[%s]\n", t->service);
    for (size_t i = 0; i < t->keys_n; i++)
        if (section_of(&t->keys[i]).n == 0)
            line(&t->keys[i], arg, out);
    for (size_t i = 0; i < t->keys_n; i++) {
        struct str section = section_of(&t->keys[i]);
        bool seen = section.n == 0;
        for (size_t j = 0; j < i && !seen; j++)
            seen = str_eq(section_of(&t->keys[j]), section);
        if (seen)
            continue;
        buf_printf(out, "\n[%s.%.*s]\n", t->service, STR_ARG(section));
        for (size_t j = i; j < t->keys_n; j++)
            if (str_eq(section_of(&t->keys[j]), section))
                line(&t->keys[j], arg, out);
    }
}

static void print_line(const struct conf_key *k, const void *arg, struct buf *out)
{
    const struct conf *c = arg;
    size_t from = out->n;
    buf_printf(out, "%s = ", leaf_of(k));
    conf_format_value(c, k->name, out);
    size_t width = out->n - from;
    buf_printf(out, "%*s  # ", width < 40 ? (int)(40 - width) : 0, "");
    conf_format_source(c, k->name, out);
    buf_putc(out, '\n');
}

void conf_print(const struct conf *c, struct buf *out)
{
    each_section(c->table, out, print_line, c);
}

/* The default as TOML would write it. */
static void put_default(const struct conf_table *t, const struct conf_key *k, struct buf *out)
{
    struct arena scratch;
    arena_init(&scratch, 4096, 1 << 20);
    _Alignas(16) uint8_t slot[32] = {0};
    char why[CONF_WHY_CHARS];
    struct str text = conf__default(t, k);
    bool list_or_string = k->type == CONF_STRING || k->type == CONF_INT_LIST || k->type == CONF_STR_LIST;
    if ((text.n || list_or_string) && conf__parse_text(&scratch, k, text, slot, why) != ERR_OK)
        buf_put_str(out, text); /* conf_load will say what is wrong with it */
    else
        conf__format(k, slot, out);
    arena_fini(&scratch);
}

static void example_line(const struct conf_key *k, const void *arg, struct buf *out)
{
    buf_printf(out, "# %s", k->help);
    char range_text[160];
    struct buf range;
    buf_init_fixed(&range, range_text, sizeof range_text);
    conf__format_range(k, &range);
    if (range.n)
        buf_printf(out, " (%.*s)", STR_ARG(buf_str(&range)));
    buf_printf(out, "\n# %s = ", leaf_of(k));
    put_default(arg, k, out);
    buf_putc(out, '\n');
}

void conf_example(const struct conf_table *t, struct buf *out)
{
    each_section(t, out, example_line, t);
}

static void put_cell(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '|')
            buf_putc(out, '\\');
        buf_putc(out, s.p[i]);
    }
}

void conf_markdown(const struct conf_table *t, struct buf *out)
{
    buf_puts(out, "| key | type | default | range | reload | meaning |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < t->keys_n; i++) {
        const struct conf_key *k = &t->keys[i];
        char text[512];
        struct buf cell;
        buf_printf(out, "| `%s.%s` | %s | `", t->service, k->name, conf__type_name(k->type));
        buf_init_fixed(&cell, text, sizeof text);
        put_default(t, k, &cell);
        put_cell(out, buf_str(&cell));
        buf_puts(out, "` | ");
        buf_reset(&cell);
        conf__format_range(k, &cell);
        put_cell(out, buf_str(&cell));
        buf_printf(out, " | %s | ", k->flags & CONF_RELOAD ? "yes" : "restart");
        put_cell(out, str_from_c(k->help));
        buf_puts(out, " |\n");
    }
}
