/*
 * What was spent today before this process began. Counters live in memory, so the first operation under a daily limit
 * makes us add up the day from the ledger: find the first group of the day (binary search over /v1/roots), then every
 * entry since (pages of /v1/entries). What an account spent then counts against every daily limit on it: never too little.
 *
 * The day is the wall clock's, which may be set back to one that was over: by then its counters are swept, or count for the
 * day that was not yet. So it is added up again, from the ledger, which has the date of each entry.
 *
 * One load at a time; it runs on the ledger client's callbacks and outlives no call (wallet.calls counts them).
 */
#include <stdlib.h>

#include "services/wallet/wallet.h"

enum { UNLOADED = 0, LOADING = 1, LOADED = 2, PAGE = 1000, DAY_MS = 86400000, SLEW_MS = DAY_MS / 60 };

struct load {
    struct wallet *w;
    int64_t day, sent_ns, since_ms; /* since: ledger time from which entries of the day may be */
    uint64_t low, high, head;       /* search: the answer lies in [low, high] */
    uint64_t from;
};

static struct key128 name_of(bool issue, struct str account, struct str asset)
{
    return wallet_daily_name(bytes_of_str(issue ? STR("before/issue") : STR("before/spend")), account,
                             asset);
}

enum err wallet_daily_before(struct wallet *w, bool issue, struct str account, struct str asset,
                             int64_t day, struct money *out)
{
    struct key128 name = name_of(issue, account, asset);
    struct wallet_stripe *s = &w->daily[name.lo % WALLET_DAILY_STRIPES];
    rt_lock_take(&s->lock);
    *out = wallet_daily_used(&s->daily, name, day);
    bool lost = s->full_on == day && money_is_zero(*out);
    rt_lock_release(&s->lock);
    return lost ? ERR_BUSY : ERR_OK;
}

void wallet_daily_saw(struct wallet *w, int64_t day)
{
    if ((int64_t)os_a64_load(&w->daily_latest, memory_order_relaxed) == day)
        return;
    rt_lock_take(&w->daily_waiters_lock);
    bool back = day < (int64_t)os_a64_load(&w->daily_latest, memory_order_relaxed);
    os_a64_store(&w->daily_latest, (uint64_t)day, memory_order_relaxed);
    if (back) {
        w->daily_afresh = true; /* a load that is under way ends as none */
        if (os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED)
            os_a32_store(&w->daily_loaded, UNLOADED, memory_order_release);
    }
    rt_lock_release(&w->daily_waiters_lock);
}

static void load_end(struct load *l, uint32_t state)
{
    struct wallet *w = l->w;
    rt_lock_take(&w->daily_waiters_lock);
    if (w->daily_afresh)
        state = UNLOADED;
    w->daily_day = l->day;
    w->daily_from = l->from; /* 0: nothing is counted yet */
    w->daily_head = l->head;
    os_a32_store(&w->daily_loaded, state, memory_order_release);
    struct wallet_patient *all = w->daily_waiters;
    w->daily_waiters = NULL;
    for (struct wallet_patient *p = all; p; p = p->next)
        p->linked = false;
    rt_lock_release(&w->daily_waiters_lock);
    obs_log(svc_log(w->svc), state == LOADED ? OBS_INFO : OBS_WARN, "limits.loaded",
            OBS_BOOL("ok", state == LOADED), OBS_U64("from_seq", l->from), OBS_U64("to_seq", l->head),
            OBS_END);
    free(l);
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
    enum err err = wallet_daily_reserve(&s->daily, name, day, MONEY_MAX, MONEY_ZERO, e->amount);
    if (err == ERR_OK)
        wallet_daily_use(&s->daily, name, day, e->amount);
    if (err == ERR_BUSY)
        s->full_on = day;
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
        if (r->n_roots == 0 || (int64_t)r->roots[0].ledger_ms >= l->since_ms)
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

/* Everything that was used is in the ledger up to the head that is read after this: nothing is counted twice or lost. */
static void forget_used(struct wallet *w, int64_t day)
{
    for (size_t i = 0; i < WALLET_DAILY_STRIPES; i++) {
        rt_lock_take(&w->daily[i].lock);
        wallet_daily_restart(&w->daily[i].daily, day);
        w->daily[i].full_on = 0;
        rt_lock_release(&w->daily[i].lock);
    }
}

/* An entry has our date and the ledger's: where those differ, the day begins earlier there. Ledger time goes towards its wall clock
 * by a sixtieth, so the difference was larger in the morning. */
static int64_t day_began(const struct wallet *w, int64_t day)
{
    int64_t behind = clock_wall_ms(svc_clock(w->svc)) - (int64_t)wallet_ledger_now_ms(w);
    return day * DAY_MS - SLEW_MS - (behind > 0 ? behind : 0);
}

bool wallet_daily_ready(struct wallet *w, int64_t day)
{
    uint32_t expected = UNLOADED;
    wallet_daily_saw(w, day);
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
    l->day = day;
    rt_lock_take(&w->daily_waiters_lock);
    bool afresh = w->daily_afresh;
    w->daily_afresh = false;
    rt_lock_release(&w->daily_waiters_lock);
    if (!afresh && w->daily_from && w->daily_day == l->day) {
        l->from = w->daily_from;
        l->head = w->daily_head;
        next_page(l);
    } else {
        forget_used(w, day);
        uint64_t acked = atomic_load(&w->acked_seq), head = atomic_load(&w->head_seq);
        l->head = l->high = head > acked ? head : acked;
        l->since_ms = day_began(w, day);
        search(l);
    }
    return os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED;
}
