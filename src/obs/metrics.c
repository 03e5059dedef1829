/* The registry: a service's families in the order in which they were added, and who sets gauges before they are read. */
#include "obs/metrics.h"
#include "obs/metrics_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { OBS_METRICS_MAGIC = 0x4d455452 };

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
        obs_family__destroy(f);
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
        f = obs_family__create(def);
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

void obs_metrics_told(struct obs_metrics *reg, struct obs_family *f, obs_tell_fn *tell, void *ctx)
{
    CHECK_MAGIC(reg, OBS_METRICS_MAGIC);
    CHECK(f->def.kind == OBS_COUNTER && f->n_labels == 1 && f->n_closed == 0);
    pthread_mutex_lock(&reg->lock);
    f->tell = tell;
    f->tell_ctx = ctx;
    pthread_mutex_unlock(&reg->lock);
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
