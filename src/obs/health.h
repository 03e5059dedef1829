/*
 * Readiness: named causes, each of them fine or missing.
 *
 * A hard cause that is missing makes the service not ready (503); a soft one only degraded (200). `since`
 * is the moment the answer last changed between ready, degraded and not ready.
 *
 * Ownership   Names are borrowed (string literals).
 * Threads     obs_health_add before the service starts, by one thread. Everything else from any thread,
 *             lock-free.
 * Memory      All causes live inside the struct; nothing allocates.
 * Order       A change is visible to every reading that starts after obs_health_set returned.
 */
#ifndef RON_OBS_HEALTH_H
#define RON_OBS_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

enum { OBS_CAUSES_MAX = 48 };
enum obs_weight { OBS_HARD, OBS_SOFT };

struct obs_health;

NODISCARD enum err obs_health_create(const struct clock *clock, struct obs_health **out_h);
void obs_health_destroy(struct obs_health *h);

/* A new cause, missing until obs_health_set(..., true). Two causes of one name, or too many, are a bug.
 * Returns its index. */
size_t obs_health_add(struct obs_health *h, const char *name, enum obs_weight weight);
bool obs_health_find(const struct obs_health *h, const char *name, size_t *out_index);

/* Returns true when this changed the cause, so that whoever decides can log once. */
bool obs_health_set(struct obs_health *h, size_t cause, bool ok);
bool obs_health_ok(const struct obs_health *h, size_t cause);

struct obs_health_view {
    bool ready, degraded;
    int64_t since_ms;
    uint64_t version; /* rises with every change of a cause */
    size_t n_missing;
    const char *missing[OBS_CAUSES_MAX]; /* in the order they were added */
};
void obs_health_read(const struct obs_health *h, struct obs_health_view *out);

/*
 * {"ready":false,"degraded":true,"missing":["ledger"],"since":"...",...}. extra may be NULL; it writes
 * further members, each with a leading comma: ,"head_seq":12
 */
typedef void obs_health_extra_fn(void *ctx, struct buf *out);
void obs_health_render(const struct obs_health *h, obs_health_extra_fn *extra, void *ctx, struct buf *out);

#endif
