/*
 * Prometheus text, as our services write it, read back: enough for a live view of rates, quantiles and gauges.
 *
 * Ownership   Names, labels and text are borrowed and live as long as the text.
 * Threads     None of its own.
 * Memory      Nothing allocates. Lines that are no samples are passed over; buckets beyond OBS_PROM_BOUNDS_MAX are left out.
 */
#ifndef RON_OBS_PROM_READ_H
#define RON_OBS_PROM_READ_H

#include <stddef.h>

#include "base/bytes.h"

struct obs_prom_sample {
    struct str name, labels; /* what stands between the braces */
    double value;
};

/* The next sample of *io_text, which moves on. False: there is none. */
bool obs_prom_next(struct str *io_text, struct obs_prom_sample *out);
/* The value of a label; empty when the sample has none by that name. */
struct str obs_prom_label(const struct obs_prom_sample *s, const char *name);

enum { OBS_PROM_BOUNDS_MAX = 48 };

/* Cumulative, bounds ascending, summed over every label but the bound. */
struct obs_prom_histogram {
    size_t n;
    double bound[OBS_PROM_BOUNDS_MAX], count[OBS_PROM_BOUNDS_MAX];
};

void obs_prom_histogram_read(struct str text, const char *name, struct obs_prom_histogram *out);
/* What was observed between two readings: everything when the earlier one is of another process. */
void obs_prom_histogram_since(struct obs_prom_histogram *io_now, const struct obs_prom_histogram *before);
double obs_prom_histogram_total(const struct obs_prom_histogram *h);
/* Linear inside its bucket, as Prometheus does it; negative when nothing was observed. */
double obs_prom_histogram_quantile(const struct obs_prom_histogram *h, double q);

#endif
