/*
 * The feed: the ledger's commits onto ledger_bus, for the invalidator. When it ends it is opened again from the last seq
 * that was heard, after a pause of 100 ms doubling to 5 s; until then nothing vouches for cached balances.
 */
#include "services/wallet/tasks/feed.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rt/backoff.h"

enum { SILENT_MS = 20000, BEHIND_MS = 1000, TICK_MS = 200 };

void wallet_commit_ref(void *commit)
{
    os_a32_add(&((struct wallet_commit *)commit)->refs, 1, memory_order_relaxed);
}

void wallet_commit_unref(void *commit)
{
    struct wallet_commit *c = commit;
    if (os_a32_add(&c->refs, (uint32_t)-1, memory_order_acq_rel) == 1)
        free(c);
}

/* One connection's life; it outlives a restarted task. */
struct feed {
    struct wallet *w;
    atomic_bool open, ended, forked;
    _Atomic uint64_t heard;
};

static void on_open(void *ctx)
{
    struct feed *f = ctx;
    atomic_store(&f->open, true);
}

static void on_commit(void *ctx, const struct ledger_commit_event *ev)
{
    struct feed *f = ctx;
    struct wallet *w = f->w;
    struct wallet_commit *c = malloc(sizeof *c + ev->n_accounts * sizeof c->slots[0]);
    wallet_saw_root(w, ev->tree_size, &ev->root);
    atomic_store(&f->heard, ev->seq_end);
    if (!c) { /* lost: whoever reads the bus must not take the next one for complete */
        wallet_all_dirty(w, ev->seq_end);
        return;
    }
    os_a32_store(&c->refs, 1, memory_order_relaxed);
    c->seq_start = ev->seq_start;
    c->seq_end = ev->seq_end;
    c->heard_ns = wallet_now_ns(w);
    c->n = ev->n_accounts;
    for (size_t i = 0; i < ev->n_accounts; i++)
        c->slots[i] = (uint32_t)wallet_slot(ev->accounts[i]);
    rt_bcast_publish(w->ledger_bus, c);
}

static void on_end(void *ctx, enum err why)
{
    struct feed *f = ctx;
    if (why == ERR_CORRUPT)
        atomic_store(&f->forked, true);
    atomic_store(&f->ended, true);
}

static const struct ledger_feed_sink sink = {on_open, on_commit, on_end};

static void feed_lost(struct wallet *w, const char *why)
{
    atomic_store_explicit(&w->feed_up, false, memory_order_release);
    obs_health_set(svc_health(w->svc), w->cause_feed, false);
    wallet_all_dirty(w, atomic_load(&w->head_seq));
    obs_log(svc_log(w->svc), OBS_WARN, "feed.lost", OBS_STR("why", why), OBS_END);
}

/* Until it ends, falls silent or falls behind. ERR_CANCELED: the task is to stop. */
RT_BLOCKS
static enum err follow(struct rt_task *self, struct feed *f, const char **out_why)
{
    struct wallet *w = f->w;
    int64_t behind_since = 0;
    bool up = false;
    for (;;) {
        enum err e = rt_task_sleep(self, deadline_in_ms(TICK_MS));
        rt_task_beat(self);
        if (e != ERR_OK)
            return e;
        int64_t now = wallet_now_ns(w);
        if (atomic_load(&f->open) && !up) {
            up = true;
            atomic_store_explicit(&w->feed_up, true, memory_order_release);
            obs_health_set(svc_health(w->svc), w->cause_feed, true);
            obs_log(svc_log(w->svc), OBS_INFO, "feed.open", OBS_U64("since", atomic_load(&f->heard)),
                    OBS_END);
        }
        if (atomic_load(&f->ended)) {
            *out_why = "ended";
            return ERR_DISCONNECTED;
        }
        bool behind = os_a64_load(&w->feed_seq, memory_order_acquire) < atomic_load(&w->head_seq);
        if (!behind)
            behind_since = 0;
        else if (!behind_since)
            behind_since = now;
        else if (now - behind_since > (up ? BEHIND_MS : 5 * BEHIND_MS) * INT64_C(1000000)) {
            *out_why = "behind";
            return ERR_LAGGED;
        }
    }
}

enum err wallet_feed_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct rt_backoff pause;
    rt_backoff_init(
        &pause,
        &(struct rt_backoff_spec){.first_min_ms = 100, .first_max_ms = 100, .cap_ms = 5000, .extra_ms = 20},
        (uint64_t)(uintptr_t)w);
    for (;;) {
        /* From the head: what lies before it is dirty, and read anew when asked for. */
        uint64_t since = atomic_load(&w->head_seq);
        struct feed f = {.w = w, .heard = since};
        const char *why = "no slot";
        enum err e = ERR_UNAVAILABLE;
        wallet_all_dirty(w, since);
        os_a64_store(&w->feed_seq, since, memory_order_release);
        struct ledger_feed *feed =
            since || atomic_load(&w->ledger_up) ? ledger_client_feed(w->ledger, since, &sink, &f) : NULL;
        if (feed) {
            e = follow(self, &f, &why);
            ledger_client_feed_stop(w->ledger, feed);
        }
        bool was_up = atomic_load(&f.open);
        if (atomic_load(&f.forked))
            wallet_fork(w, "the feed contradicts itself");
        if (feed && was_up && !rt_task_stopping(self))
            feed_lost(w, why);
        if (was_up)
            rt_backoff_reset(&pause);
        if (e == ERR_CANCELED || rt_task_stopping(self))
            return rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
        if (rt_task_sleep(self, deadline_in_ms(rt_backoff_next_ms(&pause))) != ERR_OK)
            return rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
    }
}
