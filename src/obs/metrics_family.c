/*
 * A family: one name, its labels, and a series (a child) for each combination of their values.
 *
 * Closed families have all their children from the start. Open ones are hash tables of pointers that only
 * ever go from NULL to a finished child, so look-ups need no lock: a writer builds the child aside and
 * publishes it with one compare-and-swap; the loser of a race frees its own and takes the winner's. A
 * reservation counter keeps the table at most half full.
 */
#include "obs/metrics_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- children ---- */

static struct obs_hist *hist_create(const struct obs_buckets *buckets)
{
    struct obs_hist *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->buckets = buckets;
    h->n_cells = buckets ? buckets->n + 1 : OBS_GRID_CELLS;
    size_t per_line = OBS_CACHE_LINE / sizeof(uint64_t);
    h->stride = (1 + h->n_cells + per_line - 1) / per_line * per_line;
    size_t bytes = OBS_SHARDS * h->stride * sizeof *h->words;
    h->words = aligned_alloc(OBS_CACHE_LINE, bytes);
    if (!h->words) {
        free(h);
        return NULL;
    }
    memset(h->words, 0, bytes);
    if (buckets)
        obs_metrics__index_buckets(h);
    return h;
}

static void child_destroy(const struct obs_family *f, struct obs_child *c)
{
    if (!c)
        return;
    if ((f->def.kind == OBS_HISTOGRAM || f->def.kind == OBS_SUMMARY) && c->u.hist) {
        free(c->u.hist->words);
        free(c->u.hist);
    } else {
        free(c->u.counter); /* or the gauge: the same pointer */
    }
    for (size_t i = 0; i < f->n_labels; i++)
        free(c->values[i]);
    free(c->labels);
    free(c);
}

static void *zeroed_lines(size_t n)
{
    void *p = aligned_alloc(OBS_CACHE_LINE, n);
    if (p)
        memset(p, 0, n);
    return p;
}

static bool child_alloc_value(const struct obs_family *f, struct obs_child *c)
{
    switch (f->def.kind) {
    case OBS_COUNTER:
        return (c->u.counter = zeroed_lines(sizeof *c->u.counter)) != NULL;
    case OBS_GAUGE:
        return (c->u.gauge = calloc(1, sizeof *c->u.gauge)) != NULL;
    case OBS_HISTOGRAM:
    case OBS_SUMMARY:
        return (c->u.hist = hist_create(f->def.buckets)) != NULL;
    }
    UNREACHABLE();
}

void obs_family__put_value(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"')
            buf_putc(b, '\\');
        if (*s == '\n')
            buf_puts(b, "\\n");
        else
            buf_putc(b, *s);
    }
}

static char *labels_text(const struct obs_family *f, char *const *values)
{
    struct buf b;
    buf_init(&b, 4096);
    for (size_t i = 0; i < f->n_labels; i++) {
        buf_printf(&b, "%s%s=\"", i ? "," : "", f->label[i].name);
        obs_family__put_value(&b, values[i]);
        buf_putc(&b, '"');
    }
    buf_putc(&b, '\0');
    char *text = b.err ? NULL : strdup((const char *)b.p);
    buf_fini(&b);
    return text;
}

static uint64_t values_hash(const char *const *values, size_t n)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a; values are ours, not a peer's, so it need not be keyed */
    for (size_t i = 0; i < n; i++)
        for (const unsigned char *p = (const unsigned char *)values[i];; p++) {
            h = (h ^ *p) * 1099511628211u;
            if (!*p)
                break;
        }
    return h;
}

static struct obs_child *child_create(const struct obs_family *f, const char *const *values)
{
    struct obs_child *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    bool ok = child_alloc_value(f, c);
    for (size_t i = 0; ok && i < f->n_labels; i++)
        ok = (c->values[i] = strdup(values[i])) != NULL;
    if (ok)
        ok = (c->labels = labels_text(f, c->values)) != NULL;
    if (!ok) {
        child_destroy(f, c);
        return NULL;
    }
    c->hash = values_hash(values, f->n_labels);
    return c;
}

static bool child_is(const struct obs_family *f, const struct obs_child *c, uint64_t hash,
                     const char *const *values)
{
    if (c->hash != hash)
        return false;
    for (size_t i = 0; i < f->n_labels; i++)
        if (strcmp(c->values[i], values[i]) != 0)
            return false;
    return true;
}

static size_t value_index(const struct obs_label *l, const char *value)
{
    for (size_t i = 0; i < l->n_values; i++)
        if (strcmp(l->values[i], value) == 0)
            return i;
    return SIZE_MAX;
}

static struct obs_child *use_other(struct obs_family *f)
{
    atomic_store_explicit(&f->other_used, 1, memory_order_relaxed);
    return f->other;
}

static struct obs_child *open_child(struct obs_family *f, const char *const *values)
{
    for (size_t i = 0; i < f->n_labels; i++)
        CHECK(f->label[i].n_values == 0 || value_index(&f->label[i], values[i]) != SIZE_MAX);
    uint64_t hash = values_hash(values, f->n_labels);
    if (child_is(f, f->other, hash, values))
        return use_other(f); /* somebody's own "other" is the same series */
    struct obs_child *made = NULL;
    size_t mask = f->n_slots - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct obs_child *seen = atomic_load_explicit(&f->slot[i].child, memory_order_acquire);
        if (!seen) {
            if (!made) {
                if (atomic_fetch_add_explicit(&f->n_open, 1, memory_order_relaxed) >= OBS_OPEN_MAX ||
                    !(made = child_create(f, values))) {
                    atomic_fetch_sub_explicit(&f->n_open, 1, memory_order_relaxed);
                    return use_other(f);
                }
            }
            if (atomic_compare_exchange_strong_explicit(&f->slot[i].child, &seen, made,
                                                        memory_order_acq_rel, memory_order_acquire))
                return made;
        }
        if (child_is(f, seen, hash, values)) {
            if (made) {
                child_destroy(f, made);
                atomic_fetch_sub_explicit(&f->n_open, 1, memory_order_relaxed);
            }
            return seen;
        }
    }
}

static struct obs_child *family_child(struct obs_family *f, const char *const *values, size_t n)
{
    CHECK(f && n == f->n_labels);
    for (size_t i = 0; i < n; i++)
        CHECK(values[i]);
    if (!f->n_closed)
        return open_child(f, values);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t v = value_index(&f->label[i], values[i]);
        CHECK(v != SIZE_MAX); /* the set is closed: the table and its user disagree */
        at = at * f->label[i].n_values + v;
    }
    return atomic_load_explicit(&f->slot[at].child, memory_order_acquire);
}

static struct obs_child *family_nth(struct obs_family *f, size_t n)
{
    CHECK(f && n < f->n_closed);
    return atomic_load_explicit(&f->slot[n].child, memory_order_acquire);
}

static bool is_hist(const struct obs_family *f)
{
    return f->def.kind == OBS_HISTOGRAM || f->def.kind == OBS_SUMMARY;
}

struct obs_counter *obs_counter_child(struct obs_family *f, const char *const *values, size_t n_values)
{
    CHECK(f && f->def.kind == OBS_COUNTER);
    return family_child(f, values, n_values)->u.counter;
}

struct obs_gauge *obs_gauge_child(struct obs_family *f, const char *const *values, size_t n_values)
{
    CHECK(f && f->def.kind == OBS_GAUGE);
    return family_child(f, values, n_values)->u.gauge;
}

struct obs_hist *obs_hist_child(struct obs_family *f, const char *const *values, size_t n_values)
{
    CHECK(f && is_hist(f));
    return family_child(f, values, n_values)->u.hist;
}

struct obs_counter *obs_counter_nth(struct obs_family *f, size_t n)
{
    CHECK(f && f->def.kind == OBS_COUNTER);
    return family_nth(f, n)->u.counter;
}

struct obs_gauge *obs_gauge_nth(struct obs_family *f, size_t n)
{
    CHECK(f && f->def.kind == OBS_GAUGE);
    return family_nth(f, n)->u.gauge;
}

struct obs_hist *obs_hist_nth(struct obs_family *f, size_t n)
{
    CHECK(f && is_hist(f));
    return family_nth(f, n)->u.hist;
}

struct obs_counter *obs_counter(struct obs_family *f)
{
    CHECK(f && f->n_labels == 0);
    return obs_counter_nth(f, 0);
}

struct obs_gauge *obs_gauge(struct obs_family *f)
{
    CHECK(f && f->n_labels == 0);
    return obs_gauge_nth(f, 0);
}

struct obs_hist *obs_hist(struct obs_family *f)
{
    CHECK(f && f->n_labels == 0);
    return obs_hist_nth(f, 0);
}

/* ---- families ---- */

static void check_metric_name(const char *name)
{
    CHECK(name && (isalpha((unsigned char)*name) || *name == '_'));
    for (const char *p = name; *p; p++)
        CHECK(isalnum((unsigned char)*p) || *p == '_');
}

static void label_free(struct obs_label *l)
{
    for (size_t i = 0; i < l->n_values; i++)
        free(l->values[i]);
    free(l->values);
}

static bool label_add_value(struct obs_label *l, const char *p, size_t n)
{
    CHECK(n > 0);
    char **grown = realloc(l->values, (l->n_values + 1) * sizeof *grown);
    if (!grown)
        return false;
    l->values = grown;
    l->values[l->n_values] = strndup(p, n);
    if (!l->values[l->n_values])
        return false;
    CHECK(value_index(l, l->values[l->n_values]) == SIZE_MAX);
    l->n_values++;
    return true;
}

/* "name" or "name=a|b|c", up to the comma or the end. */
static bool label_parse(struct obs_label *l, const char *text, size_t n)
{
    size_t name_n = 0;
    while (name_n < n && text[name_n] != '=')
        name_n++;
    CHECK(name_n > 0 && name_n < sizeof l->name);
    memcpy(l->name, text, name_n);
    l->name[name_n] = '\0';
    check_metric_name(l->name);
    CHECK(strcmp(l->name, "service") != 0 && strcmp(l->name, "le") != 0 &&
          strcmp(l->name, "quantile") != 0);
    for (size_t at = name_n; at < n;) {
        size_t from = ++at;
        while (at < n && text[at] != '|')
            at++;
        if (!label_add_value(l, text + from, at - from))
            return false;
    }
    return true;
}

static bool family_parse_labels(struct obs_family *f)
{
    const char *p = f->def.labels ? f->def.labels : "";
    while (*p) {
        CHECK(f->n_labels < OBS_LABELS_MAX);
        size_t n = strcspn(p, ",");
        if (!label_parse(&f->label[f->n_labels++], p, n))
            return false;
        p += n;
        if (*p == ',')
            CHECK(*++p);
    }
    return true;
}

static bool family_make_closed(struct obs_family *f, size_t total)
{
    f->n_slots = f->n_closed = total;
    f->slot = calloc(total, sizeof *f->slot);
    if (!f->slot)
        return false;
    for (size_t at = 0; at < total; at++) {
        const char *values[OBS_LABELS_MAX];
        size_t rest = at;
        for (size_t i = f->n_labels; i-- > 0; rest /= f->label[i].n_values)
            values[i] = f->label[i].values[rest % f->label[i].n_values];
        struct obs_child *c = child_create(f, values);
        if (!c)
            return false;
        atomic_store_explicit(&f->slot[at].child, c, memory_order_release);
    }
    return true;
}

static bool family_make_open(struct obs_family *f)
{
    f->n_slots = 2 * OBS_OPEN_MAX;
    f->slot = calloc(f->n_slots, sizeof *f->slot);
    const char *values[OBS_LABELS_MAX];
    for (size_t i = 0; i < f->n_labels; i++)
        values[i] = "other";
    return f->slot && (f->other = child_create(f, values));
}

void obs_family__destroy(struct obs_family *f)
{
    if (!f)
        return;
    for (size_t i = 0; f->slot && i < f->n_slots; i++)
        child_destroy(f, atomic_load_explicit(&f->slot[i].child, memory_order_acquire));
    child_destroy(f, f->other);
    for (size_t i = 0; i < f->n_labels; i++)
        label_free(&f->label[i]);
    free(f->slot);
    free(f);
}

struct obs_family *obs_family__create(const struct obs_metric_def *def)
{
    check_metric_name(def->name);
    CHECK(def->help && *def->help);
    CHECK((def->kind == OBS_HISTOGRAM) == (def->buckets != NULL));
    if (def->buckets) {
        CHECK(def->buckets->n > 0 && def->buckets->n <= OBS_BUCKETS_MAX);
        for (size_t i = 1; i < def->buckets->n; i++)
            CHECK(def->buckets->le[i - 1] < def->buckets->le[i]);
    }
    struct obs_family *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->def = *def;
    size_t total = 1;
    bool ok = family_parse_labels(f);
    for (size_t i = 0; i < f->n_labels; i++)
        total *= f->label[i].n_values;
    CHECK(total <= 4096); /* a closed set this large is a mistake in the table */
    if (ok)
        ok = total ? family_make_closed(f, total) : family_make_open(f);
    if (!ok) {
        obs_family__destroy(f);
        return NULL;
    }
    return f;
}
