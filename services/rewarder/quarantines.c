#include "services/rewarder/quarantines.h"

#include <stdio.h>
#include <string.h>

void rewarder_quarantines_init(struct rewarder_quarantines *q)
{
    *q = (struct rewarder_quarantines){.newest_n = 0};
    rt_lock_init(&q->lock, "metrics_counters", 3);
}

void rewarder_quarantines_fini(struct rewarder_quarantines *q)
{
    rt_lock_fini(&q->lock);
}

static size_t find(const struct rewarder_quarantines *q, const char *epoch)
{
    size_t at = 0;
    while (at < q->newest_n && strcmp(q->newest[at].epoch, epoch) != 0)
        at++;
    return at;
}

void rewarder_quarantines_add(struct rewarder_quarantines *q, const char *epoch)
{
    uint64_t before = 0;
    rt_lock_take(&q->lock);
    size_t at = find(q, epoch);
    if (at < q->newest_n) {
        before = q->newest[at].n;
    } else if (q->newest_n == REWARDER_QUARANTINES_MAX) {
        at = 0; /* the oldest */
        q->other += q->newest[0].n;
    } else {
        q->newest_n++;
    }
    memmove(&q->newest[at], &q->newest[at + 1], (q->newest_n - at - 1) * sizeof *q->newest);
    snprintf(q->newest[q->newest_n - 1].epoch, sizeof q->newest->epoch, "%s", epoch);
    q->newest[q->newest_n - 1].n = before + 1;
    rt_lock_release(&q->lock);
}

uint64_t rewarder_quarantines_of(struct rewarder_quarantines *q, const char *epoch)
{
    rt_lock_take(&q->lock);
    size_t at = find(q, epoch);
    uint64_t n = at < q->newest_n ? q->newest[at].n : 0;
    rt_lock_release(&q->lock);
    return n;
}

void rewarder_quarantines_tell(void *ctx, struct obs_telling *to)
{
    struct rewarder_quarantines *q = ctx;
    rt_lock_take(&q->lock);
    for (size_t i = 0; i < q->newest_n; i++)
        obs_tell_counter(to, q->newest[i].epoch, q->newest[i].n);
    if (q->other)
        obs_tell_counter(to, "_other", q->other);
    rt_lock_release(&q->lock);
}
