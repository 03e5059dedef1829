/*
 * The visibility scanner: looks which shards have something due and sends them a tick.
 *
 * It sleeps until the nearest due time of all shards, at least min_wake, at most max_wake, with a little jitter when nothing is
 * near so that shards do not all wake at once. A worker that publishes an earlier due rings, which cuts the sleep short, to min_wake
 * at the least. A tick is only a nudge; the worker knows exactly what is due, so late, repeated and early ticks are harmless, and a
 * lost one costs nothing because workers never sleep past their own next due.
 */
#include "obs/span.h"
#include "services/mailbox/mailbox.h"

enum { JITTER_MS = 25, RETRY_MIN_MS = 5, RETRY_MAX_MS = 500 };

static int64_t nearest_us(struct mailbox *mb)
{
    int64_t due = INT64_MAX;
    for (uint16_t i = 0; i < mb->shards; i++) {
        int64_t d = atomic_load_explicit(&mb->lanes[i].next_due_us,
                                         memory_order_acquire); /* pairs with the worker's release */
        if (d < due)
            due = d;
    }
    return due;
}

static enum err tick(struct mailbox *mb, struct mailbox_lane *l, struct rt_task *self,
                     struct rng *rng) RT_BLOCKS
{
    int64_t most = RETRY_MIN_MS;
    for (;;) {
        enum err e = rt_chan_try_send(l->requeue, l);
        if (e != ERR_BUSY) {
            obs_log(svc_log(mb->svc), OBS_DEBUG, "scanner.requeue", OBS_U64("shard", l->no), OBS_END);
            return ERR_OK;
        }
        obs_counter_inc(obs_counter(mb->m[MAILBOX_M_requeue_backoff]));
        obs_counter_inc(obs_counter_nth(mb->m[MAILBOX_M_backoff_retries], 0));
        if (rt_chan_depth(l->requeue) > 0)
            return ERR_OK; /* a tick is already waiting there; one is as good as two */
        if (rt_task_sleep(self, deadline_in_ms((int64_t)rng_below(rng, (uint64_t)most + 1))) != ERR_OK)
            return ERR_CANCELED;
        most = most * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : most * 2;
    }
}

/* Ticks every shard in which something is due; a wake that found nothing leaves no span. */
static enum err scan(struct mailbox *mb, struct rt_task *self, int64_t woke_us, struct rng *rng) RT_BLOCKS
{
    struct obs_span span;
    uint64_t due = 0;
    enum err e = ERR_OK;
    obs_span_begin(svc_tracer(mb->svc), NULL, "mailbox.scan", &span);
    for (uint16_t i = 0; e == ERR_OK && i < mb->shards; i++) {
        if (atomic_load_explicit(&mb->lanes[i].next_due_us, memory_order_acquire) > woke_us)
            continue;
        e = tick(mb, &mb->lanes[i], self, rng);
        due++;
    }
    if (due) {
        obs_span_u64(&span, "shards", due);
        obs_span_end(svc_tracer(mb->svc), &span, e);
    }
    return e;
}

static struct deadline in_us(int64_t us)
{
    return deadline_at_ns(os_now_ns() + us * 1000);
}

/* Until `want_us`; shorter when an earlier due is published, but not before `least_us`. ERR_CANCELED. */
static enum err doze(struct mailbox *mb, struct rt_task *self, uint64_t noted, int64_t now_us,
                     int64_t least_us, int64_t *want_us) RT_BLOCKS
{
    enum err e = rt_bell_doze(&mb->scan, noted, in_us(*want_us - now_us));
    if (e != ERR_OK)
        return e == ERR_TIMEOUT ? ERR_OK : e;
    now_us = clock_mono_ns(mb->clock) / 1000;
    *want_us = now_us > least_us ? now_us : least_us;
    return rt_task_sleep(self, in_us(*want_us - now_us));
}

/* Two seconds after it woke, or one after it wanted to, it is missed: scanner.max_wake may be longer than the two. */
static void promise(struct mailbox *mb, int64_t now_us, int64_t want_us)
{
    int64_t by_us = now_us + 2000000;
    if (by_us < want_us + 1000000)
        by_us = want_us + 1000000;
    atomic_store(&mb->scanner_by_ns, by_us * 1000);
}

enum err mailbox_scanner_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    struct rng rng;
    rng_seed(&rng, rng_secure_u64());
    while (!rt_task_stopping(self)) {
        const struct mailbox_config *cfg = mailbox_config(mb);
        uint64_t noted = rt_bell_note(&mb->scan); /* before the dues are looked at */
        int64_t now = clock_mono_ns(mb->clock) / 1000, due = nearest_us(mb);
        int64_t sleep_ms = due == INT64_MAX ? cfg->scanner_max_wake : (due - now + 999) / 1000;
        if (sleep_ms > cfg->scanner_max_wake)
            sleep_ms = cfg->scanner_max_wake;
        if (due == INT64_MAX || due - now > 500000)
            sleep_ms -= (int64_t)rng_below(&rng, JITTER_MS);
        if (sleep_ms < cfg->scanner_min_wake)
            sleep_ms = cfg->scanner_min_wake;
        int64_t want = now + sleep_ms * 1000;
        promise(mb, now, want);
        if (doze(mb, self, noted, now, now + cfg->scanner_min_wake * 1000, &want) != ERR_OK)
            break;
        int64_t woke = clock_mono_ns(mb->clock) / 1000;
        promise(mb, woke, woke);
        obs_hist_observe(obs_hist(mb->m[MAILBOX_M_scanner_jitter]),
                         woke > want ? (double)(woke - want) / 1000 : 0);
        if (scan(mb, self, woke, &rng) != ERR_OK)
            return ERR_OK;
    }
    return ERR_OK;
}
