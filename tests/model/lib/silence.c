/* Nobody counts or logs a model: for services' sources that do, one line in a model_*.sources. */
#include "obs/log.h"
#include "obs/metrics.h"

bool obs_log_enabled(const struct obs_log *lg, enum obs_level level)
{
    (void)lg;
    (void)level;
    return false;
}

void obs_log_write(struct obs_log *lg, enum obs_level level, const char *event,
                   const struct obs_field *fields)
{
    (void)lg;
    (void)level;
    (void)event;
    (void)fields;
}

struct obs_counter *obs_counter(struct obs_family *f)
{
    (void)f;
    return NULL;
}

void obs_counter_add(struct obs_counter *c, uint64_t n)
{
    (void)c;
    (void)n;
}

struct obs_counter *obs_counter_child(struct obs_family *f, const char *const *values, size_t n)
{
    (void)f;
    (void)values;
    (void)n;
    return NULL;
}

struct obs_counter *obs_counter_nth(struct obs_family *f, size_t n)
{
    (void)f;
    (void)n;
    return NULL;
}

struct obs_gauge *obs_gauge(struct obs_family *f)
{
    (void)f;
    return NULL;
}

void obs_gauge_add(struct obs_gauge *g, double delta)
{
    (void)g;
    (void)delta;
}

struct obs_gauge *obs_gauge_child(struct obs_family *f, const char *const *values, size_t n)
{
    (void)f;
    (void)values;
    (void)n;
    return NULL;
}

void obs_gauge_set(struct obs_gauge *g, double value)
{
    (void)g;
    (void)value;
}

struct obs_hist *obs_hist(struct obs_family *f)
{
    (void)f;
    return NULL;
}

struct obs_hist *obs_hist_child(struct obs_family *f, const char *const *values, size_t n)
{
    (void)f;
    (void)values;
    (void)n;
    return NULL;
}

struct obs_hist *obs_hist_nth(struct obs_family *f, size_t n)
{
    (void)f;
    (void)n;
    return NULL;
}

void obs_hist_observe(struct obs_hist *h, double value)
{
    (void)h;
    (void)value;
}
