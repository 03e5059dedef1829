/*
 * Prometheus text exposition format 0.0.4: per family HELP, TYPE, then its series. Every series carries
 * service="..."; histograms are written cumulatively and their count is the sum of what was written, so the
 * three agree with each other even while other threads count on.
 */
#include "obs/metrics.h"
#include "obs/metrics_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static const double summary_quantiles[] = {0.5, 0.95, 0.99};

/* The shortest text that reads back as the same double. */
static void put_double(struct buf *out, double v)
{
    if (isinf(v)) {
        buf_puts(out, v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (isnan(v)) {
        buf_puts(out, "NaN");
        return;
    }
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) >= v && strtod(text, NULL) <= v)
            break;
    }
    buf_puts(out, text);
}

static void put_series(struct buf *out, const struct obs_metrics *reg, const struct obs_family *f,
                       const char *suffix, const struct obs_child *c)
{
    buf_printf(out, "%s%s{service=\"%s\"", f->def.name, suffix, reg->service);
    if (*c->labels)
        buf_printf(out, ",%s", c->labels);
}

static void put_hist(struct buf *out, const struct obs_metrics *reg, const struct obs_family *f,
                     const struct obs_child *c)
{
    const struct obs_hist *h = c->u.hist;
    uint64_t total = 0;
    for (size_t cell = 0; cell < h->n_cells; cell++) {
        total += obs_metrics__cell(h, cell);
        put_series(out, reg, f, "_bucket", c);
        buf_puts(out, ",le=\"");
        put_double(out, cell < h->buckets->n ? h->buckets->le[cell] : INFINITY);
        buf_printf(out, "\"} %llu\n", (unsigned long long)total);
    }
    put_series(out, reg, f, "_sum", c);
    buf_puts(out, "} ");
    put_double(out, obs_hist_sum(h));
    buf_putc(out, '\n');
    put_series(out, reg, f, "_count", c);
    buf_printf(out, "} %llu\n", (unsigned long long)total);
}

static void put_summary(struct buf *out, const struct obs_metrics *reg, const struct obs_family *f,
                        const struct obs_child *c)
{
    const struct obs_hist *h = c->u.hist;
    for (size_t i = 0; i < sizeof summary_quantiles / sizeof summary_quantiles[0]; i++) {
        put_series(out, reg, f, "", c);
        buf_puts(out, ",quantile=\"");
        put_double(out, summary_quantiles[i]);
        buf_puts(out, "\"} ");
        put_double(out, obs_hist_quantile(h, summary_quantiles[i]));
        buf_putc(out, '\n');
    }
    put_series(out, reg, f, "_sum", c);
    buf_puts(out, "} ");
    put_double(out, obs_hist_sum(h));
    buf_putc(out, '\n');
    put_series(out, reg, f, "_count", c);
    buf_printf(out, "} %llu\n", (unsigned long long)obs_hist_count(h));
}

static void put_child(struct buf *out, const struct obs_metrics *reg, const struct obs_family *f,
                      const struct obs_child *c)
{
    switch (f->def.kind) {
    case OBS_COUNTER:
        put_series(out, reg, f, "", c);
        buf_printf(out, "} %llu\n", (unsigned long long)obs_counter_value(c->u.counter));
        return;
    case OBS_GAUGE:
        put_series(out, reg, f, "", c);
        buf_puts(out, "} ");
        put_double(out, obs_gauge_value(c->u.gauge));
        buf_putc(out, '\n');
        return;
    case OBS_HISTOGRAM:
        put_hist(out, reg, f, c);
        return;
    case OBS_SUMMARY:
        put_summary(out, reg, f, c);
        return;
    }
    UNREACHABLE();
}

static void put_help(struct buf *out, const char *help)
{
    for (; *help; help++) {
        if (*help == '\\')
            buf_puts(out, "\\\\");
        else if (*help == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, *help);
    }
}

static int by_labels(const void *a, const void *b)
{
    return strcmp((*(const struct obs_child *const *)a)->labels,
                  (*(const struct obs_child *const *)b)->labels);
}

struct obs_telling {
    struct buf *out;
    const struct obs_metrics *reg;
    const struct obs_family *family;
};

void obs_tell_counter(struct obs_telling *to, const char *value, uint64_t n)
{
    buf_printf(to->out, "%s{service=\"%s\",%s=\"", to->family->def.name, to->reg->service,
               to->family->label[0].name);
    obs_family__put_value(to->out, value);
    buf_printf(to->out, "\"} %llu\n", (unsigned long long)n);
}

/* Closed families keep the table's order; open ones are sorted, so that two renderings can be compared. */
static void put_family(struct buf *out, const struct obs_metrics *reg, struct obs_family *f)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "summary"};
    buf_printf(out, "# HELP %s ", f->def.name);
    put_help(out, f->def.help);
    buf_printf(out, "\n# TYPE %s %s\n", f->def.name, types[f->def.kind]);
    if (f->tell) {
        f->tell(f->tell_ctx, &(struct obs_telling){out, reg, f});
        return;
    }
    const struct obs_child **found = calloc(f->n_slots + 1, sizeof(void *));
    if (!found) {
        out->err = ERR_NO_MEMORY;
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < f->n_slots; i++) {
        const struct obs_child *c = atomic_load_explicit(&f->slot[i].child, memory_order_acquire);
        if (c)
            found[n++] = c;
    }
    if (!f->n_closed) {
        if (atomic_load_explicit(&f->other_used, memory_order_relaxed))
            found[n++] = f->other;
        qsort(found, n, sizeof(void *), by_labels);
    }
    for (size_t i = 0; i < n; i++)
        put_child(out, reg, f, found[i]);
    free(found);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct obs_family *const *)a)->def.name, (*(struct obs_family *const *)b)->def.name);
}

void obs_metrics_render(struct obs_metrics *reg, struct buf *out)
{
    pthread_mutex_lock(&reg->lock);
    for (size_t i = 0; i < reg->n_collectors; i++)
        reg->collector[i].fn(reg->collector[i].ctx);
    struct obs_family **sorted = calloc(reg->n_families + 1, sizeof *sorted);
    if (sorted) {
        size_t n = 0;
        for (struct obs_family *f = reg->first; f; f = f->next)
            sorted[n++] = f;
        qsort(sorted, n, sizeof *sorted, by_name);
        for (size_t i = 0; i < n; i++)
            put_family(out, reg, sorted[i]);
        free(sorted);
    } else {
        out->err = ERR_NO_MEMORY;
    }
    pthread_mutex_unlock(&reg->lock);
}
