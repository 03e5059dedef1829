/*
 * Metrics: one registry per service instance, rendered as Prometheus text.
 *
 * A family is one metric name with help, type and label names; a child is one series of it. Families come
 * from a table:
 *
 *     COUNTER(units,  "ledger_units_total", "Units judged.", "status=committed|duplicate|rejected")
 *     GAUGE(depth,    "queue_depth", "Items waiting.", "q=ingress|preval|commit")
 *     HISTOGRAM(took, "request_latency_seconds", "Time to answer.", "op=send|recv", OBS_SECONDS)
 *     SUMMARY(jitter, "scanner_wake_jitter_ms", "How late a wake-up was.", "")
 *     COUNTER(http,   "http_requests_total", "Answers.", "route,method,status")
 *
 * Labels are separated by commas. `name=a|b` has a closed set: when all labels are closed every series
 * exists at zero from the start and an unknown value is a bug. A bare `name` is open: series appear on
 * first use, at most OBS_OPEN_MAX of them; later ones share one series whose labels read "other", so no
 * label is ever unbounded.
 *
 * A service turns its metrics.def into an enum and a table by including it between the OBS_DEF_* macros
 * (metrics_def.h).
 *
 * Ownership   The registry owns families and children; handles stay valid until obs_metrics_destroy.
 *             Texts of a table are borrowed for as long (string literals); label values are copied.
 * Threads     Updates (add, set, observe) and child look-ups are lock-free, from any thread. Adding
 *             tables, collectors and rendering take the registry's own lock, which is the outermost:
 *             hold no other lock when calling them.
 * Memory      Children of closed families are allocated by obs_metrics_add; open ones on first use.
 *             Updates never allocate.
 * Order       Updates are relaxed: a rendering sees each value whole, not one moment of all of them.
 */
#ifndef RON_OBS_METRICS_H
#define RON_OBS_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { OBS_LABELS_MAX = 4, OBS_OPEN_MAX = 1024, OBS_BUCKETS_MAX = 24, OBS_COLLECTORS_MAX = 256 };

enum obs_kind { OBS_COUNTER, OBS_GAUGE, OBS_HISTOGRAM, OBS_SUMMARY };

/* Upper bounds of a histogram's buckets, rising; +Inf is implied. */
struct obs_buckets {
    size_t n;
    double le[OBS_BUCKETS_MAX];
};
extern const struct obs_buckets OBS_SECONDS[1]; /* 100 us ... 600 ms, then 1.2, 2.5, 5, 10 s */
extern const struct obs_buckets OBS_SIZES[1];   /* powers of 4: 1 ... 65536 */
extern const struct obs_buckets OBS_BYTES[1];   /* powers of 4: 256 ... 64 MiB */
extern const struct obs_buckets OBS_SMALL[1]; /* 1 2 3 4 5 6 8 10 16 32: attempts and other small counts */

struct obs_metric_def {
    enum obs_kind kind;
    const char *name, *help, *labels;
    const struct obs_buckets *buckets; /* histograms only */
};

struct obs_metrics;
struct obs_family;
struct obs_counter;
struct obs_gauge;
struct obs_hist; /* of a histogram or a summary */

NODISCARD enum err obs_metrics_create(const char *service, struct obs_metrics **out_reg);
void obs_metrics_destroy(struct obs_metrics *reg); /* NULL is fine */

/*
 * Adds a table. A family that exists with the same kind and labels is shared; with other ones: ERR_EXISTS.
 * A table that is wrong in itself (name, label syntax, buckets) aborts. out_families may be NULL, else it
 * receives n pointers.
 */
NODISCARD enum err obs_metrics_add(struct obs_metrics *reg, const struct obs_metric_def *defs, size_t n,
                                   struct obs_family **out_families);
struct obs_family *obs_family_find(struct obs_metrics *reg, const char *name); /* NULL when there is none */

/*
 * The child with these label values, one per label in the table's order. Look it up once and keep it where
 * the path is hot. Never NULL: past the bound, or without memory, it is the family's "other" series.
 */
struct obs_counter *obs_counter_child(struct obs_family *f, const char *const *values, size_t n_values);
struct obs_gauge *obs_gauge_child(struct obs_family *f, const char *const *values, size_t n_values);
struct obs_hist *obs_hist_child(struct obs_family *f, const char *const *values, size_t n_values);

#define OBS_VALUES_(...)                                                                                   \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)
#define OBS_COUNTER_OF(family, ...) obs_counter_child(family, OBS_VALUES_(__VA_ARGS__))
#define OBS_GAUGE_OF(family, ...)   obs_gauge_child(family, OBS_VALUES_(__VA_ARGS__))
#define OBS_HIST_OF(family, ...)    obs_hist_child(family, OBS_VALUES_(__VA_ARGS__))

/* The only child of a family without labels. */
struct obs_counter *obs_counter(struct obs_family *f);
struct obs_gauge *obs_gauge(struct obs_family *f);
struct obs_hist *obs_hist(struct obs_family *f);

/*
 * The nth child of a closed family, in table order with the last label running fastest: with "op=send|recv"
 * and an enum in the same order, obs_counter_nth(f, OP_RECV) costs an addition. Out of range is a bug.
 */
struct obs_counter *obs_counter_nth(struct obs_family *f, size_t n);
struct obs_gauge *obs_gauge_nth(struct obs_family *f, size_t n);
struct obs_hist *obs_hist_nth(struct obs_family *f, size_t n);

/* All of these ignore a NULL handle, so that a library can be used without a registry. */
void obs_counter_add(struct obs_counter *c, uint64_t n);
void obs_gauge_set(struct obs_gauge *g, double value);
void obs_gauge_add(struct obs_gauge *g, double delta);
void obs_hist_observe(struct obs_hist *h, double value);
void obs_hist_observe_n(struct obs_hist *h, double value, uint64_t n); /* the same value n times */

static inline void obs_counter_inc(struct obs_counter *c)
{
    obs_counter_add(c, 1);
}

/* For tests and readiness: sums over the shards. */
uint64_t obs_counter_value(const struct obs_counter *c);
double obs_gauge_value(const struct obs_gauge *g);
uint64_t obs_hist_count(const struct obs_hist *h);
double obs_hist_sum(const struct obs_hist *h);
double obs_hist_quantile(const struct obs_hist *h,
                         double q); /* upper bound of the bucket it falls into; 0 when empty */

/*
 * A collector sets values right before a rendering (queue depths, free bytes). After obs_metrics_forget
 * returned it does not run and will not run again. ERR_BUSY when OBS_COLLECTORS_MAX are there.
 */
typedef void obs_collect_fn(void *ctx);
NODISCARD enum err obs_metrics_collect(struct obs_metrics *reg, obs_collect_fn *fn, void *ctx);
void obs_metrics_forget(struct obs_metrics *reg, obs_collect_fn *fn, void *ctx);

/*
 * A counter family with one open label may have its series told instead of counted: by an owner that knows which values
 * are still worth a series. tell() runs within each rendering and calls obs_tell_counter() once per series; NULL ends it.
 */
struct obs_telling;
typedef void obs_tell_fn(void *ctx, struct obs_telling *to);
void obs_metrics_told(struct obs_metrics *reg, struct obs_family *f, obs_tell_fn *tell, void *ctx);
void obs_tell_counter(struct obs_telling *to, const char *value, uint64_t n);

/* Prometheus text format 0.0.4, families sorted by name, constant label service. Errors stick in out->err.
 */
void obs_metrics_render(struct obs_metrics *reg, struct buf *out);

#endif
