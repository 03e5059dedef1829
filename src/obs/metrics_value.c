/*
 * Counters, gauges, histograms and summaries: how they are moved and read.
 *
 * An update must be cheap enough to leave in every hot path: a thread picks its shard once (thread-local),
 * then one relaxed atomic addition (a histogram: a short search, one addition and one compare-and-swap on
 * the sum, on lines that this thread has nearly to itself).
 */
#include "obs/metrics_internal.h"

#include <math.h>
#include <string.h>

const struct obs_buckets OBS_SECONDS[1] = {{17,
                                            {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02,
                                             0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 5, 10}}};
const struct obs_buckets OBS_SIZES[1] = {{9, {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536}}};
const struct obs_buckets OBS_BYTES[1] = {
    {10, {256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}}};
const struct obs_buckets OBS_SMALL[1] = {{10, {1, 2, 3, 4, 5, 6, 8, 10, 16, 32}}};

/* initial-exec: read without a call, which would cost an update half of its instructions in saved registers */
static _Thread_local __attribute__((tls_model("initial-exec"))) unsigned shard_plus_one;

static __attribute__((noinline, cold)) void pick_shard(void)
{
    static _Atomic unsigned next; /* relaxed: only has to spread */
    shard_plus_one = 1 + (atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) & (OBS_SHARDS - 1));
}

static unsigned my_shard(void)
{
    if (shard_plus_one == 0)
        pick_shard();
    return shard_plus_one - 1;
}

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

/* Apart from the buckets, which most series have: it needs a frame. */
static __attribute__((noinline)) size_t grid_cell(double v)
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

static size_t bucket_from(const struct obs_buckets *b, size_t cell, double v)
{
    while (cell < b->n && v > b->le[cell])
        cell++;
    return cell;
}

void obs_metrics__index_buckets(struct obs_hist *h)
{
    for (int i = 1; i < OBS_POWERS; i++) /* zero and less are of the lowest power */
        h->first[i] = (uint8_t)bucket_from(h->buckets, 0, ldexp(1, OBS_POWER_MIN_EXP + i));
}

static size_t bucket_cell(const struct obs_hist *h, double v)
{
    int64_t power = ((int64_t)bits_of(v) >> 52) -
                    (1023 + OBS_POWER_MIN_EXP); /* an exponent has 11 bits and this bias */
    power = power < 0 ? 0 : power < OBS_POWERS ? power : OBS_POWERS - 1;
    return bucket_from(h->buckets, h->first[power], v);
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
    size_t cell = h->buckets ? bucket_cell(h, value) : grid_cell(value);
    atomic_fetch_add_explicit(&shard[1 + cell].v, n, memory_order_relaxed);
    add_double(&shard[0].v, value * (double)n);
}

/* ---- reading ---- */

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
