/*
 * Registry, children and updates.
 *
 * An update must be cheap enough to leave in every hot path: a thread picks its shard once (thread-local),
 * then one relaxed atomic addition (a histogram: a short search, one addition and one compare-and-swap on
 * the sum, on lines that this thread has nearly to itself).
 *
 * Open families are hash tables of pointers that only ever go from NULL to a finished child, so look-ups
 * need no lock: a writer builds the child aside and publishes it with one compare-and-swap; the loser of a
 * race frees its own and takes the winner's. A reservation counter keeps the table at most half full.
 */
#include "obs/metrics.h"
#include "obs/metrics_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { OBS_METRICS_MAGIC = 0x4d455452 };

const struct obs_buckets OBS_SECONDS[1] = {{17,
                                            {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02,
                                             0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5, 10}}};
const struct obs_buckets OBS_SIZES[1] = {{9, {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536}}};
const struct obs_buckets OBS_BYTES[1] = {
    {10, {256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}}};
const struct obs_buckets OBS_SMALL[1] = {{10, {1, 2, 3, 4, 5, 6, 8, 10, 16, 32}}};

static unsigned my_shard(void)
{
    static _Atomic unsigned next; /* relaxed: only has to spread */
    static _Thread_local unsigned mine;
    if (mine == 0)
        mine = 1 + (atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) & (OBS_SHARDS - 1));
    return mine - 1;
}

/* --- updates --- */

void obs_counter_add(struct obs_counter *c, uint64_t n)
{
    if (c)
        atomic_fetch_add_explicit(&c->shard[my_shard()].n, n, memory_order_relaxed);
}

static uint64_t bits_of(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

static double double_of(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static void add_double(_Atomic uint64_t *word, double delta)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &seen, bits_of(double_of(seen) + delta),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void obs_gauge_set(struct obs_gauge *g, double value)
{
    if (g)
        atomic_store_explicit(&g->bits, bits_of(value), memory_order_relaxed);
}

void obs_gauge_add(struct obs_gauge *g, double delta)
{
    if (g)
        add_double(&g->bits, delta);
}

static size_t grid_cell(double v)
{
    if (!(v > ldexp(1, OBS_GRID_MIN_EXP)))
        return 0;
    int exp;
    double m = frexp(v, &exp); /* v = m * 2^exp, m in [0.5, 1) */
    int step = (int)ceil((m * 2 - 1) * OBS_GRID_STEPS);
    long cell = (long)(exp - 1 - OBS_GRID_MIN_EXP) * OBS_GRID_STEPS + step;
    return cell >= OBS_GRID_CELLS ? OBS_GRID_CELLS - 1 : (size_t)cell;
}

double obs_metrics__grid_bound(size_t cell)
{
    int exp = OBS_GRID_MIN_EXP + (int)(cell / OBS_GRID_STEPS);
    return ldexp(1 + (double)(cell % OBS_GRID_STEPS) / OBS_GRID_STEPS, exp);
}

static size_t bucket_cell(const struct obs_buckets *b, double v)
{
    size_t i = 0;
    while (i < b->n && v > b->le[i])
        i++;
    return i;
}

void obs_hist_observe(struct obs_hist *h, double value)
{
    obs_hist_observe_n(h, value, 1);
}

void obs_hist_observe_n(struct obs_hist *h, double value, uint64_t n)
{
    if (!h || isnan(value) || n == 0)
        return;
    struct obs_word *shard = h->words + my_shard() * h->stride;
    size_t cell = h->buckets ? bucket_cell(h->buckets, value) : grid_cell(value);
    atomic_fetch_add_explicit(&shard[1 + cell].v, n, memory_order_relaxed);
    add_double(&shard[0].v, value * (double)n);
}

/* --- reading --- */

uint64_t obs_counter_value(const struct obs_counter *c)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < OBS_SHARDS; i++)
        sum += atomic_load_explicit(&c->shard[i].n, memory_order_relaxed);
    return sum;
}

double obs_gauge_value(const struct obs_gauge *g)
{
    return double_of(atomic_load_explicit(&g->bits, memory_order_relaxed));
}

uint64_t obs_metrics__cell(const struct obs_hist *h, size_t cell)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < OBS_SHARDS; i++)
        sum += atomic_load_explicit(&h->words[i * h->stride + 1 + cell].v, memory_order_relaxed);
    return sum;
}

uint64_t obs_hist_count(const struct obs_hist *h)
{
    uint64_t sum = 0;
    for (size_t cell = 0; cell < h->n_cells; cell++)
        sum += obs_metrics__cell(h, cell);
    return sum;
}

double obs_hist_sum(const struct obs_hist *h)
{
    double sum = 0;
    for (unsigned i = 0; i < OBS_SHARDS; i++)
        sum += double_of(atomic_load_explicit(&h->words[i * h->stride].v, memory_order_relaxed));
    return sum;
}

double obs_hist_quantile(const struct obs_hist *h, double q)
{
    uint64_t total = obs_hist_count(h), seen = 0;
    if (total == 0)
        return 0;
    double want = q * (double)total;
    for (size_t cell = 0; cell < h->n_cells; cell++) {
        seen += obs_metrics__cell(h, cell);
        if ((double)seen >= want && seen > 0) {
            if (!h->buckets)
                return obs_metrics__grid_bound(cell);
            return h->buckets->le[cell < h->buckets->n ? cell : h->buckets->n - 1];
        }
    }
    return h->buckets ? h->buckets->le[h->buckets->n - 1] : obs_metrics__grid_bound(h->n_cells - 1);
}

/* --- children --- */

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

/* Label values may be anything; the text format escapes backslash, quote and newline. */
static void put_escaped(struct buf *b, const char *s)
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
        put_escaped(&b, values[i]);
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

/* --- families --- */

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

static void family_destroy(struct obs_family *f)
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

static struct obs_family *family_create(const struct obs_metric_def *def)
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
        family_destroy(f);
        return NULL;
    }
    return f;
}

/* --- registry --- */

enum err obs_metrics_create(const char *service, struct obs_metrics **out_reg)
{
    struct obs_metrics *reg = calloc(1, sizeof *reg);
    if (!reg)
        return ERR_NO_MEMORY;
    CHECK(strlen(service) < sizeof reg->service);
    reg->magic = OBS_METRICS_MAGIC;
    strcpy(reg->service, service);
    CHECK(pthread_mutex_init(&reg->lock, NULL) == 0);
    reg->tail = &reg->first;
    *out_reg = reg;
    return ERR_OK;
}

void obs_metrics_destroy(struct obs_metrics *reg)
{
    if (!reg)
        return;
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    for (struct obs_family *f = reg->first, *next; f; f = next) {
        next = f->next;
        family_destroy(f);
    }
    pthread_mutex_destroy(&reg->lock);
    reg->magic = 0;
    free(reg);
}

static struct obs_family *find_locked(struct obs_metrics *reg, const char *name)
{
    for (struct obs_family *f = reg->first; f; f = f->next)
        if (strcmp(f->def.name, name) == 0)
            return f;
    return NULL;
}

static enum err add_one(struct obs_metrics *reg, const struct obs_metric_def *def, struct obs_family **out)
{
    struct obs_family *f = find_locked(reg, def->name);
    if (f) {
        if (f->def.kind != def->kind ||
            strcmp(f->def.labels ? f->def.labels : "", def->labels ? def->labels : "") != 0)
            return ERR_EXISTS;
    } else {
        f = family_create(def);
        if (!f)
            return ERR_NO_MEMORY;
        *reg->tail = f;
        reg->tail = &f->next;
        reg->n_families++;
    }
    *out = f;
    return ERR_OK;
}

enum err obs_metrics_add(struct obs_metrics *reg, const struct obs_metric_def *defs, size_t n,
                         struct obs_family **out_families)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    enum err e = ERR_OK;
    pthread_mutex_lock(&reg->lock);
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        struct obs_family *f;
        e = add_one(reg, &defs[i], &f);
        if (e == ERR_OK && out_families)
            out_families[i] = f;
    }
    pthread_mutex_unlock(&reg->lock);
    return e;
}

struct obs_family *obs_family_find(struct obs_metrics *reg, const char *name)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    pthread_mutex_lock(&reg->lock);
    struct obs_family *f = find_locked(reg, name);
    pthread_mutex_unlock(&reg->lock);
    return f;
}

enum err obs_metrics_collect(struct obs_metrics *reg, obs_collect_fn *fn, void *ctx)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    enum err e = ERR_BUSY;
    pthread_mutex_lock(&reg->lock);
    if (reg->n_collectors < OBS_COLLECTORS_MAX) {
        reg->collector[reg->n_collectors++] = (struct obs_collector){fn, ctx};
        e = ERR_OK;
    }
    pthread_mutex_unlock(&reg->lock);
    return e;
}

void obs_metrics_forget(struct obs_metrics *reg, obs_collect_fn *fn, void *ctx)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    pthread_mutex_lock(&reg->lock);
    for (size_t i = 0; i < reg->n_collectors; i++)
        if (reg->collector[i].fn == fn && reg->collector[i].ctx == ctx) {
            reg->n_collectors--;
            memmove(&reg->collector[i], &reg->collector[i + 1],
                    (reg->n_collectors - i) * sizeof reg->collector[0]);
            break;
        }
    pthread_mutex_unlock(&reg->lock);
}

void obs_metrics_each(struct obs_metrics *reg, obs_family_fn *fn, void *ctx)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    pthread_mutex_lock(&reg->lock);
    for (struct obs_family *f = reg->first; f; f = f->next)
        fn(ctx, &f->def);
    pthread_mutex_unlock(&reg->lock);
}
