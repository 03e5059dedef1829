/*
 * quarantine_total{epoch}: how often each epoch was quarantined. Epochs go on for ever and series must not, so the newest 128
 * have one each; the one that was quarantined longest ago makes room, and what it counted goes on under `_other` (no epoch is
 * called that), so that the sum never falls.
 *
 * Threads     Any thread; the lock metrics_counters is held for a few instructions.
 * Memory      Fixed.
 */
#ifndef RON_REWARDER_QUARANTINES_H
#define RON_REWARDER_QUARANTINES_H

#include <stdint.h>

#include "obs/metrics.h"
#include "rt/lock.h"
#include "services/rewarder/core/ident.h"

enum { REWARDER_QUARANTINES_MAX = 128 };

struct rewarder_quarantines {
    struct rt_lock lock; /* metrics_counters */
    struct {
        char epoch[REWARDER_NAME_MAX + 1];
        uint64_t n;
    } newest[REWARDER_QUARANTINES_MAX]; /* by when they were last quarantined */
    size_t newest_n;
    uint64_t other;
};

void rewarder_quarantines_init(struct rewarder_quarantines *q);
void rewarder_quarantines_fini(struct rewarder_quarantines *q);
void rewarder_quarantines_add(struct rewarder_quarantines *q, const char *epoch);
uint64_t rewarder_quarantines_of(struct rewarder_quarantines *q, const char *epoch); /* 0: no series */
/* An obs_tell_fn; ctx is the struct. */
void rewarder_quarantines_tell(void *ctx, struct obs_telling *to);

#endif
