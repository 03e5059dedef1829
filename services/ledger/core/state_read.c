#include <stdlib.h>

#include "services/ledger/core/state_internal.h"

static bool read_row(const struct row *r, uint64_t *out_seq, u128 *out_available, u128 *out_held)
{
    uint64_t before = atomic_load_explicit(&r->c_seq, memory_order_acquire);
    struct ledger_wide a = {atomic_load_explicit(&r->c_avail_lo, memory_order_relaxed),
                            atomic_load_explicit(&r->c_avail_hi, memory_order_relaxed)};
    struct ledger_wide h = {atomic_load_explicit(&r->c_held_lo, memory_order_relaxed),
                            atomic_load_explicit(&r->c_held_hi, memory_order_relaxed)};
    atomic_thread_fence(memory_order_acquire); /* pairs with commit_row's release fence */
    uint64_t after = atomic_load_explicit(&r->c_seq, memory_order_relaxed);
    *out_seq = before;
    *out_available = narrow(a);
    *out_held = narrow(h);
    return before == after && !(before & BUSY_BIT);
}

static void *vec_room(void *v, size_t *cap, size_t n, size_t item)
{
    if (n < *cap)
        return v;
    size_t more = *cap == 0 ? 8 : *cap * 2;
    void *fresh = realloc(v, more * item);
    CHECK(fresh != NULL);
    *cap = more;
    return fresh;
}

static void add_lane(struct ledger_account_read *out, uint16_t lane, uint64_t counter)
{
    if (counter == 0)
        return;
    out->lanes = vec_room(out->lanes, &out->cap_lanes, out->n_lanes, sizeof *out->lanes);
    out->lanes[out->n_lanes++] = (struct ledger_lane_row){lane, counter};
}

static int lane_order(const void *a, const void *b)
{
    const struct ledger_lane_row *x = a, *y = b;
    return (x->lane > y->lane) - (x->lane < y->lane);
}

static int balance_order(const void *a, const void *b)
{
    const struct ledger_balance_row *x = a, *y = b;
    size_t n = x->asset.n < y->asset.n ? x->asset.n : y->asset.n;
    int c = memcmp(x->asset.p, y->asset.p, n);
    return c != 0 ? c : (x->asset.n > y->asset.n) - (x->asset.n < y->asset.n);
}

static enum err read_rows(const struct ledger_state *s, const struct account *a, uint64_t head,
                          struct ledger_account_read *out)
{
    for (uint32_t i = atomic_load_explicit(&a->row, memory_order_acquire); i != 0;) {
        const struct row *r = row_at(s, i);
        uint64_t seq;
        u128 available, held;
        if (!read_row(r, &seq, &available, &held) || seq > head)
            return ERR_BUSY;
        if (seq != 0) {
            out->balances =
                vec_room(out->balances, &out->cap_balances, out->n_balances, sizeof *out->balances);
            out->balances[out->n_balances++] =
                (struct ledger_balance_row){asset_name(asset_at(s, r->asset)), {available}, {held}, seq};
        }
        i = atomic_load_explicit(&r->next, memory_order_acquire);
    }
    return ERR_OK;
}

enum err ledger_state_read_account(const struct ledger_state *s, struct str account, uint64_t head,
                                   struct ledger_account_read *out)
{
    out->n_balances = out->n_lanes = 0;
    uint64_t version = atomic_load_explicit(&s->account_dir.version, memory_order_acquire);
    uint32_t i = ledger_state__account_find(s, name_hash(s, account), account);
    atomic_thread_fence(memory_order_acquire);
    if (i == 0) {
        bool moved =
            (version & 1) || version != atomic_load_explicit(&s->account_dir.version, memory_order_relaxed);
        return moved ? ERR_BUSY : ERR_OK;
    }
    const struct account *a = account_at(s, i);
    enum err err = read_rows(s, a, head, out);
    if (err != ERR_OK)
        return err;
    add_lane(out, a->lane, atomic_load_explicit(&a->c_counter, memory_order_acquire));
    for (uint32_t l = atomic_load_explicit(&a->lanes, memory_order_acquire); l != 0;) {
        add_lane(out, lane_at(s, l)->lane,
                 atomic_load_explicit(&lane_at(s, l)->c_counter, memory_order_acquire));
        l = atomic_load_explicit(&lane_at(s, l)->next, memory_order_acquire);
    }
    /* Nothing moved while the lanes were read? Then all of it is as of `head`. */
    for (uint32_t r = atomic_load_explicit(&a->row, memory_order_acquire); r != 0;
         r = atomic_load_explicit(&row_at(s, r)->next, memory_order_acquire))
        if ((atomic_load_explicit(&row_at(s, r)->c_seq, memory_order_acquire) & ~BUSY_BIT) > head ||
            (atomic_load_explicit(&row_at(s, r)->c_seq, memory_order_relaxed) & BUSY_BIT))
            return ERR_BUSY;
    if (out->n_lanes > 1)
        qsort(out->lanes, out->n_lanes, sizeof *out->lanes, lane_order);
    if (out->n_balances > 1)
        qsort(out->balances, out->n_balances, sizeof *out->balances, balance_order);
    return ERR_OK;
}

void ledger_account_read_fini(struct ledger_account_read *r)
{
    free(r->balances);
    free(r->lanes);
    memset(r, 0, sizeof *r);
}

size_t ledger_state_supply(const struct ledger_state *s, struct ledger_supply_row *out, size_t max)
{
    size_t n = 0;
    uint32_t assets = s->assets.n;
    for (uint32_t i = 1; i <= assets && n < max; i++) {
        const struct asset *a = asset_at(s, i);
        struct ledger_supply_row row;
        uint64_t before, after;
        do {
            before = atomic_load_explicit(&a->c_version, memory_order_acquire);
            row = (struct ledger_supply_row){
                asset_name(a), {narrow(a->c_minted)}, {narrow(a->c_burned)}, {narrow(a->c_held)}};
            atomic_thread_fence(memory_order_acquire);
            after = atomic_load_explicit(&a->c_version, memory_order_relaxed);
        } while (before != after || (before & 1));
        if (row.minted.units != 0)
            out[n++] = row;
    }
    return n;
}

bool ledger_state_read_hold(const struct ledger_state *s, struct core_key id_key,
                            struct money *out_remaining)
{
    for (;;) {
        uint64_t version = atomic_load_explicit(&s->hold_dir.version, memory_order_acquire);
        uint32_t i = ledger_state__hold_find(s, id_key);
        bool found = false;
        u128 remaining = 0;
        if (i != 0) {
            const struct hold *h = hold_at(s, i);
            uint64_t before = atomic_load_explicit(&h->c_version, memory_order_acquire);
            remaining = (u128)atomic_load_explicit(&h->c_hi, memory_order_relaxed) << 64 |
                        atomic_load_explicit(&h->c_lo, memory_order_relaxed);
            atomic_thread_fence(memory_order_acquire);
            if (before != atomic_load_explicit(&h->c_version, memory_order_relaxed) || (before & 1))
                continue;
            found = before != 0;
        }
        atomic_thread_fence(memory_order_acquire);
        if ((version & 1) || version != atomic_load_explicit(&s->hold_dir.version, memory_order_relaxed))
            continue;
        if (found)
            out_remaining->units = remaining;
        return found;
    }
}

struct money ledger_state_read_reversed(const struct ledger_state *s, uint64_t seq)
{
    uint32_t i = ledger_state__reversal_find(s, seq);
    if (i == 0)
        return (struct money){0};
    const struct reversal *r = reversal_at(s, i);
    uint64_t lo = atomic_load_explicit(&r->c_lo, memory_order_acquire);
    return (struct money){(u128)atomic_load_explicit(&r->c_hi, memory_order_relaxed) << 64 | lo};
}

struct str ledger_state_row_account(const struct ledger_state *s, uint32_t row)
{
    return account_name(account_at(s, row_at(s, row)->account));
}

struct str ledger_state_row_asset(const struct ledger_state *s, uint32_t row)
{
    return asset_name(asset_at(s, row_at(s, row)->asset));
}

struct ledger_counts ledger_state_counts(const struct ledger_state *s)
{
    return (struct ledger_counts){s->accounts.n, s->rows.n, s->open_holds, s->reversals.n, s->assets.n};
}
