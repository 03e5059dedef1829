/* What metrics.c (registry), metrics_family.c (series), metrics_value.c (updates) and prom_text.c (rendering) share. */
#ifndef RON_OBS_METRICS_INTERNAL_H
#define RON_OBS_METRICS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "obs/metrics.h"

/*
 * Counters and histograms are split over shards, one cache line or more each; a thread always uses the same
 * one, so threads rarely meet on a line. Eight cover the thread counts our services run with; more only
 * cost memory and rendering time.
 */
enum { OBS_SHARDS = 8, OBS_CACHE_LINE = 64 };

/* Summaries count into a fixed grid: 8 even steps per doubling from 2^-10 to 2^22, so quantiles are at most 12.5 %
 * too high. */
enum { OBS_GRID_STEPS = 8, OBS_GRID_MIN_EXP = -10, OBS_GRID_MAX_EXP = 22 };
enum { OBS_GRID_CELLS = (OBS_GRID_MAX_EXP - OBS_GRID_MIN_EXP) * OBS_GRID_STEPS + 2 };

struct obs_counter {
    struct {
        _Alignas(OBS_CACHE_LINE) _Atomic uint64_t n; /* relaxed; partner: obs_counter_value */
    } shard[OBS_SHARDS];
};

struct obs_gauge {
    _Atomic uint64_t bits; /* a double's; relaxed */
};

struct obs_word {
    _Atomic uint64_t v; /* relaxed; partner: the readers obs_hist_* */
};

/* Histograms look up where a value's power of two begins: from 2^-32 to 2^31, what is outside of it counts as the nearest. */
enum { OBS_POWERS = 64, OBS_POWER_MIN_EXP = -32 };

/* One shard: sum, then n_cells counts. Shards are stride words apart, a multiple of a cache line. */
struct obs_hist {
    const struct obs_buckets *buckets; /* NULL: the summary grid */
    uint8_t first[OBS_POWERS];         /* the lowest bucket for a value of this power */
    size_t n_cells, stride;
    struct obs_word *words;
};

struct obs_label {
    char name[48];
    size_t n_values; /* 0: open */
    char **values;
};

/* One series. The label text is ready to print: q="ingress",op="x" */
struct obs_child {
    char *labels;
    uint64_t hash;
    char *values[OBS_LABELS_MAX];
    union {
        struct obs_counter *counter;
        struct obs_gauge *gauge;
        struct obs_hist *hist;
    } u;
};

struct obs_slot {
    _Atomic(struct obs_child *) child; /* release when published; acquire in look-up and rendering */
};

struct obs_family {
    struct obs_metric_def def;
    size_t n_labels;
    struct obs_label label[OBS_LABELS_MAX];
    size_t n_closed; /* children made at start, [0, n_closed) in table order; 0 when a label is open */
    size_t n_slots;  /* size of slot[], a power of two for open families */
    struct obs_slot *slot;
    _Atomic size_t n_open;   /* relaxed: reservations of open children */
    struct obs_child *other; /* open families only */
    _Atomic int other_used;  /* relaxed: render it only when it was needed */
    obs_tell_fn *tell;       /* the registry's lock; NULL: the series are the children */
    void *tell_ctx;
    struct obs_family *next; /* in the order added */
};

struct obs_collector {
    obs_collect_fn *fn;
    void *ctx;
};

struct obs_metrics {
    unsigned magic;
    char service[64];
    pthread_mutex_t lock; /* guards families and collectors, held while rendering; outermost of all locks */
    struct obs_family *first, **tail;
    size_t n_families;
    size_t n_collectors;
    struct obs_collector collector[OBS_COLLECTORS_MAX];
};

struct obs_family *obs_family__create(const struct obs_metric_def *def); /* NULL: no memory */
void obs_family__destroy(struct obs_family *f);

/* Label values may be anything; the text format escapes backslash, quote and newline. */
void obs_family__put_value(struct buf *b, const char *value);

void obs_metrics__index_buckets(struct obs_hist *h); /* that has some */
double obs_metrics__grid_bound(size_t cell);
uint64_t obs_metrics__cell(const struct obs_hist *h, size_t cell); /* summed over the shards */

#endif
