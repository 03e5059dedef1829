/*
 * What was spent today before this process began. Counters live in memory, so the first operation under a daily limit
 * makes us add up the day from the ledger: find the first group of the day (binary search over /v1/roots), then every
 * entry since (pages of /v1/entries). What an account spent then counts against every daily limit on it: never too little.
 *
 * One load at a time; it runs on the ledger client's callbacks and outlives no call (wallet.calls counts them).
 */
#include <stdlib.h>

#include "services/wallet/wallet.h"

enum { UNLOADED = 0, LOADING = 1, LOADED = 2, PAGE = 1000, DAY_MS = 86400000 };

struct load {
    struct wallet *w;
    int64_t day, sent_ns;
    uint64_t low, high, head; /* search: the answer lies in [low, high] */
    uint64_t from;
};

static struct key128 name_of(bool issue, struct str account, struct str asset)
{
    return wallet_daily_name(bytes_of_str(issue ? STR("before/issue") : STR("before/spend")), account,
                             asset);
}

struct money wallet_daily_before(struct wallet *w, bool issue, struct str account, struct str asset,
                                 int64_t day)
{
    struct key128 name = name_of(issue, account, asset);
    struct wallet_stripe *s = &w->daily[name.lo % WALLET_DAILY_STRIPES];
    rt_lock_take(&s->lock);
    struct money m = wallet_daily_used(&s->daily, name, day);
    rt_lock_release(&s->lock);
    return m;
}

static void load_end(struct load *l, uint32_t state)
{
    struct wallet *w = l->w;
    obs_log(svc_log(w->svc), state == LOADED ? OBS_INFO : OBS_WARN, "limits.loaded",
            OBS_BOOL("ok", state == LOADED), OBS_U64("from_seq", l->from), OBS_U64("to_seq", l->head),
            OBS_END);
    w->daily_day = l->day;
    w->daily_from = l->from; /* 0: nothing is counted yet */
    w->daily_head = l->head;
    free(l);
    rt_lock_take(&w->daily_waiters_lock);
    os_a32_store(&w->daily_loaded, state, memory_order_release);
    struct wallet_patient *all = w->daily_waiters;
    w->daily_waiters = NULL;
    for (struct wallet_patient *p = all; p; p = p->next)
        p->linked = false;
    rt_lock_release(&w->daily_waiters_lock);
    while (all) {
        struct wallet_patient *next = all->next; /* once posted, its memory may go */
        all->loaded = state == LOADED;
        net_loop_post(net_req_loop(all->rq), &all->msg);
        all = next;
    }
}

/* ---- who waits for it ---- */

static void waited(struct net_msg *m)
{
    struct wallet_patient *p =
        (struct wallet_patient *)(void *)((char *)m - offsetof(struct wallet_patient, msg));
    net_timer_cancel(net_req_loop(p->rq), &p->timer);
    p->go(p);
}

static void waited_too_long(struct net_timer *timer)
{
    struct wallet_patient *p =
        (struct wallet_patient *)(void *)((char *)timer - offsetof(struct wallet_patient, timer));
    struct wallet *w = p->w;
    rt_lock_take(&w->daily_waiters_lock);
    bool mine = p->linked;
    if (mine) {
        struct wallet_patient **at = &w->daily_waiters;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        p->linked = false;
    }
    rt_lock_release(&w->daily_waiters_lock);
    if (mine) /* otherwise the message is on its way */
        p->go(p);
}

bool wallet_daily_await(struct wallet *w, struct wallet_patient *p, struct deadline by)
{
    p->w = w;
    p->loaded = false;
    p->msg.fn = waited;
    p->timer.fn = waited_too_long;
    rt_lock_take(&w->daily_waiters_lock);
    bool loading = os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADING;
    if (loading) {
        p->linked = true;
        p->next = w->daily_waiters;
        w->daily_waiters = p;
        net_timer_set(net_req_loop(p->rq), &p->timer,
                      by.at_ns); /* its own loop's: nobody else runs on it now */
    }
    rt_lock_release(&w->daily_waiters_lock);
    return loading;
}

static void count(struct wallet *w, const struct ledger_entry *e, int64_t day)
{
    bool issue = e->kind == LEDGER_MINT;
    if (!issue && e->kind != LEDGER_TRANSFER && e->kind != LEDGER_BURN && e->kind != LEDGER_HOLD)
        return;
    if ((int64_t)(e->ts_ms / DAY_MS) != day)
        return;
    struct key128 name = name_of(issue, e->account, e->asset);
    struct wallet_stripe *s = &w->daily[name.lo % WALLET_DAILY_STRIPES];
    rt_lock_take(&s->lock);
    if (wallet_daily_reserve(&s->daily, name, day, MONEY_MAX, MONEY_ZERO, e->amount) == ERR_OK)
        wallet_daily_use(&s->daily, name, day, e->amount);
    rt_lock_release(&s->lock);
}

static void next_page(struct load *l);

static void on_entries(void *ctx, const struct ledger_entries_reply *r)
{
    struct load *l = ctx;
    struct wallet *w = l->w;
    int64_t sent = l->sent_ns;
    struct ledger_answer answer = r->a;
    if (r->a.outcome != LEDGER_ANSWERED)
        load_end(l, UNLOADED);
    else {
        for (size_t i = 0; i < r->n_entries && r->entries[i].seq <= l->head; i++)
            count(w, &r->entries[i].entry, l->day);
        if (!r->next || r->next > l->head)
            load_end(l, LOADED);
        else {
            l->from = r->next;
            next_page(l);
        }
    }
    wallet_call_end(w, WALLET_CALL_ENTRIES, &answer, sent);
}

static void next_page(struct load *l)
{
    struct wallet *w = l->w;
    if (l->from > l->head) {
        load_end(l, LOADED);
        return;
    }
    l->sent_ns = wallet_now_ns(w);
    wallet_call_begin(w);
    ledger_client_entries(w->ledger, l->from, PAGE, wallet_in_ms(w, wallet_config(w)->ledger_rpc_timeout),
                          on_entries, l);
}

static void search(struct load *l);

static void on_roots(void *ctx, const struct ledger_roots_reply *r)
{
    struct load *l = ctx;
    struct wallet *w = l->w;
    int64_t sent = l->sent_ns;
    struct ledger_answer answer = r->a;
    if (r->a.outcome != LEDGER_ANSWERED)
        load_end(l, UNLOADED);
    else {
        uint64_t mid = l->low + (l->high - l->low) / 2;
        if (r->n_roots == 0 || (int64_t)r->roots[0].ledger_ms >= l->day * DAY_MS)
            l->high = mid;
        else
            l->low = r->roots[0].seq < l->high ? r->roots[0].seq : l->high;
        search(l);
    }
    wallet_call_end(w, WALLET_CALL_ROOTS, &answer, sent);
}

static void search(struct load *l)
{
    struct wallet *w = l->w;
    if (l->low >= l->high) {
        l->from = l->low + 1;
        next_page(l);
        return;
    }
    l->sent_ns = wallet_now_ns(w);
    wallet_call_begin(w);
    ledger_client_roots(w->ledger, l->low + (l->high - l->low) / 2, 1,
                        wallet_in_ms(w, wallet_config(w)->ledger_rpc_timeout), on_roots, l);
}

bool wallet_daily_ready(struct wallet *w)
{
    uint32_t expected = UNLOADED;
    if (os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED)
        return true;
    if (wallet_shed(w) || !os_a32_cas(&w->daily_loaded, &expected, LOADING, memory_order_acq_rel))
        return false;
    struct load *l = calloc(1, sizeof *l);
    if (!l) {
        os_a32_store(&w->daily_loaded, UNLOADED, memory_order_release);
        return false;
    }
    l->w = w;
    l->day = clock_wall_ms(svc_clock(w->svc)) / DAY_MS;
    l->head = l->high = atomic_load(&w->head_seq);
    if (w->daily_from && w->daily_day == l->day) {
        l->from = w->daily_from;
        l->head = w->daily_head;
        next_page(l);
    } else
        search(l);
    return os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED;
}
