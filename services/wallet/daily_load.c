/*
 * What was spent today before this process began. Counters live in memory, so the first operation under a daily limit
 * makes us add up the day from the ledger: find the first group of the day (binary search over /v1/roots), then every
 * entry since (pages of /v1/entries). What an account spent then counts against every daily limit on it: never too little.
 *
 * The day is the wall clock's, which may be set back to one that was over, and come again to one that had begun: by then its
 * counters are swept, or count for the other day. So a day that anything may be dated already is added up again, from the
 * ledger, which has the date of each entry.
 *
 * One load at a time; it runs on the ledger client's callbacks and outlives no call (wallet.calls counts them).
 */
#include <stdlib.h>

#include "base/check.h"
#include "services/wallet/wallet.h"

enum { UNLOADED = 0, LOADING = 1, LOADED = 2, PAGE = 1000, DAY_MS = 86400000, SLEW_MS = DAY_MS / 60 };

struct load {
    struct wallet *w;
    int64_t day, sent_ns, since_ms; /* since: ledger time from which entries of the day may be */
    int64_t dated;                  /* the last day of any that was read */
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

static int64_t today(const struct wallet *w)
{
    return clock_wall_ms(svc_clock(w->svc)) / DAY_MS;
}

static int64_t latest(const struct wallet *w)
{
    return (int64_t)os_a64_load(&w->daily_latest, memory_order_relaxed);
}

/* An entry has our date and the ledger's: where those differ, the day begins earlier there. */
static int64_t ledger_behind_ms(const struct wallet *w)
{
    uint64_t ledger_ms = wallet_ledger_now_ms(w);
    int64_t behind = clock_wall_ms(svc_clock(w->svc)) - (int64_t)ledger_ms;
    return ledger_ms && behind > 0 ? behind : 0;
}

/* Waiters' lock held. A load that is under way ends as none. */
static void add_up_afresh(struct wallet *w)
{
    w->daily_afresh = true;
    if (os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED)
        os_a32_store(&w->daily_loaded, UNLOADED, memory_order_release);
}

void wallet_daily_again(struct wallet *w)
{
    rt_lock_take(&w->daily_waiters_lock);
    add_up_afresh(w);
    rt_lock_release(&w->daily_waiters_lock);
}

void wallet_daily_saw(struct wallet *w, int64_t day)
{
    if (latest(w) == day)
        return;
    int64_t behind = ledger_behind_ms(w);
    rt_lock_take(&w->daily_waiters_lock);
    day = today(w); /* who looked before midnight and comes after it did not see the clock go back */
    if (day != latest(w)) {
        os_a64_store(&w->daily_latest, (uint64_t)day, memory_order_relaxed);
        if (behind > w->daily_behind_ms)
            w->daily_behind_ms = behind;
        if (day > w->daily_dated)
            w->daily_dated = day;
        else
            add_up_afresh(w);
    }
    rt_lock_release(&w->daily_waiters_lock);
}

static void load_end(struct load *l, uint32_t state)
{
    struct wallet *w = l->w;
    rt_lock_take(&w->daily_waiters_lock);
    if (l->dated > w->daily_dated)
        w->daily_dated = l->dated;
    if (w->daily_afresh || (latest(w) != l->day && latest(w) <= l->dated))
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

static void count(struct load *l, const struct ledger_entry *e)
{
    bool issue = e->kind == LEDGER_MINT;
    int64_t dated = (int64_t)(e->ts_ms / DAY_MS);
    if (!issue && e->kind != LEDGER_TRANSFER && e->kind != LEDGER_BURN && e->kind != LEDGER_HOLD)
        return;
    if (dated > l->dated)
        l->dated = dated;
    if (dated != l->day)
        return;
    struct key128 name = name_of(issue, e->account, e->asset);
    struct wallet_stripe *s = &l->w->daily[name.lo % WALLET_DAILY_STRIPES];
    struct money amount = e->amount, room;
    rt_lock_take(&s->lock);
    CHECK(money_sub(MONEY_MAX, wallet_daily_used(&s->daily, name, l->day), &room) == ERR_OK);
    if (money_cmp(amount, room) > 0)
        amount = room; /* the same money, round and round: more than any limit */
    if (wallet_daily_reserve(&s->daily, name, l->day, MONEY_MAX, MONEY_ZERO, amount) == ERR_OK)
        wallet_daily_use(&s->daily, name, l->day, amount);
    else
        s->full_on = l->day;
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
            count(l, &r->entries[i].entry);
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

/* In ledger time, which goes towards its wall clock by a sixtieth: the difference was larger in the morning. What was dated while our
 * clock was ahead stays where it is after the clock was set back. */
static int64_t day_began(int64_t day, int64_t behind, int64_t behind_once)
{
    return day * DAY_MS - SLEW_MS - (behind > behind_once ? behind : behind_once);
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
    rt_lock_take(&w->daily_waiters_lock);
    l->day = latest(w);
    bool afresh = w->daily_afresh;
    int64_t behind_once = w->daily_behind_ms;
    w->daily_afresh = false;
    rt_lock_release(&w->daily_waiters_lock);
    if (!afresh && w->daily_from && w->daily_day == l->day) {
        l->from = w->daily_from;
        l->head = w->daily_head;
        next_page(l);
    } else {
        forget_used(w, l->day);
        uint64_t acked = atomic_load(&w->acked_seq), head = atomic_load(&w->head_seq);
        l->head = l->high = head > acked ? head : acked;
        l->since_ms = day_began(l->day, ledger_behind_ms(w), behind_once);
        search(l);
    }
    return os_a32_load(&w->daily_loaded, memory_order_acquire) == LOADED;
}
