/*
 * The prober: asks the ledger every 100 ms whether it is there. One bad answer and we are not ready; two in a row and
 * writes are shed; three good ones and all is well again. While the breaker is half open its probes decide. Each good one
 * also tells the ledger's time and its head, which keeps an idle cache fresh.
 */
#include <stdlib.h>

#include "base/check.h"
#include "rt/interval.h"
#include "services/wallet/wallet.h"

enum { LATE_MAX_MS = 2000 };

struct probe {
    struct wallet *w;
    int64_t sent_ns;
    uint64_t acked; /* before it was sent: the head must not be below */
    bool decides;   /* the half-open breaker waits for it */
};

static void probe_failed(struct wallet *w)
{
    unsigned bad = atomic_fetch_add_explicit(&w->probe_bad, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->probe_good, 0, memory_order_relaxed);
    obs_health_set(svc_health(w->svc), w->cause_ledger, false);
    if (bad >= 2)
        atomic_store_explicit(&w->ledger_up, false, memory_order_relaxed);
}

static void probe_good(struct wallet *w)
{
    unsigned good = atomic_fetch_add_explicit(&w->probe_good, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->probe_bad, 0, memory_order_relaxed);
    if (good < 3)
        return;
    atomic_store_explicit(&w->ledger_up, true, memory_order_relaxed);
    obs_health_set(svc_health(w->svc), w->cause_ledger, true);
}

static void learn_head(struct wallet *w, const struct probe *p, const struct ledger_head_reply *r)
{
    /* An idle ledger looks at its clock once a second: the largest difference lately is the true one. One that is further back than
     * that was started on a clock that is: with the old difference, what is in doubt would stay so for as long. */
    int64_t offset = (int64_t)r->ledger_ms - wallet_now_ns(w) / 1000000;
    int64_t old = atomic_load_explicit(&w->ledger_offset_ms, memory_order_relaxed);
    bool late = old != INT64_MIN && old - 1 > offset && old - offset < LATE_MAX_MS;
    atomic_store_explicit(&w->ledger_offset_ms, late ? old - 1 : offset, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&w->head_seq, memory_order_relaxed);
    while (head < r->head_seq && !atomic_compare_exchange_weak(&w->head_seq, &head, r->head_seq))
        ;
    wallet_saw_root(w, r->head_seq, &r->root);
    if (r->head_seq < p->acked)
        wallet_fork(w, "the head is below what was acknowledged");
    /* Nothing happened since the feed's last word: the cache was current when this probe was sent. */
    if (atomic_load_explicit(&w->feed_up, memory_order_acquire))
        wallet_heard_nothing(w, r->head_seq, p->sent_ns);
}

static void on_head(void *ctx, const struct ledger_head_reply *r)
{
    struct probe *p = ctx;
    struct wallet *w = p->w;
    int64_t now = wallet_now_ns(w);
    bool good = r->a.outcome == LEDGER_ANSWERED && r->ready;
    atomic_store_explicit(&w->ledger_safe_mode, r->a.outcome == LEDGER_ANSWERED && r->safe_mode,
                          memory_order_relaxed);
    if (r->a.outcome == LEDGER_ANSWERED)
        learn_head(w, p, r);
    else if (r->a.err == ERR_LEDGER_FORKED)
        wallet_fork(w, "the ledger's history is not the one seen before");
    if (p->decides)
        wallet_breaker_note(w, good, now);
    if (good)
        probe_good(w);
    else
        probe_failed(w);
    struct ledger_answer answer = r->a;
    int64_t sent = p->sent_ns;
    free(p);
    wallet_call_end(w, WALLET_CALL_HEAD, &answer, sent);
}

static void probe(struct wallet *w)
{
    struct probe *p = calloc(1, sizeof *p);
    if (!p)
        return;
    p->w = w;
    p->sent_ns = wallet_now_ns(w);
    p->acked = atomic_load_explicit(&w->acked_seq, memory_order_acquire);
    p->decides = rt_breaker_state(&w->breaker, p->sent_ns) == RT_BREAKER_HALF_OPEN &&
                 rt_breaker_allow(&w->breaker, p->sent_ns);
    wallet_call_begin(w);
    ledger_client_head(w->ledger, wallet_in_ms(w, wallet_config(w)->probe_timeout), on_head, p);
}

enum err wallet_prober_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    for (;;) {
        probe(w);
        rt_task_beat(self);
        enum err e = rt_task_sleep(self, deadline_in_ms(wallet_config(w)->probe_interval));
        if (e != ERR_OK)
            return rt_task_stopping(self) && !rt_task_canceled(self) ? ERR_OK : e;
    }
}
