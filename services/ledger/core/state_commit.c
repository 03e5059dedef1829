#include "services/ledger/core/state_internal.h"

enum err ledger_state_conserves(struct ledger_state *s, const struct ledger_effect *fx, uint32_t n)
{
    uint32_t touched = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct ledger_effect *e = &fx[i];
        if (e->type != FX_ROW && e->type != FX_SUPPLY)
            continue;
        struct asset *a = asset_at(s, e->asset); /* commit_row checks that the row agrees */
        u128 in = narrow(e->new_a) - narrow(e->old_a), out = narrow(e->new_b) - narrow(e->old_b);
        a->delta += e->type == FX_ROW ? in + out : out - in;
        s->touched_assets[touched++] = e->asset;
    }
    enum err err = ERR_OK;
    while (touched > 0) {
        struct asset *a = asset_at(s, s->touched_assets[--touched]);
        if (a->delta != 0)
            err = ERR_CORRUPT;
        a->delta = 0;
    }
    return err;
}

static bool commit_row(struct ledger_state *s, const struct ledger_effect *e, uint64_t seq_end)
{
    struct row *r = row_at(s, e->index);
    struct ledger_wide available = {atomic_load_explicit(&r->c_avail_lo, memory_order_relaxed),
                                    atomic_load_explicit(&r->c_avail_hi, memory_order_relaxed)};
    struct ledger_wide held = {atomic_load_explicit(&r->c_held_lo, memory_order_relaxed),
                               atomic_load_explicit(&r->c_held_hi, memory_order_relaxed)};
    if (r->asset != e->asset || !wide_eq(available, e->old_a) || !wide_eq(held, e->old_b))
        return false;
    uint64_t seq = atomic_load_explicit(&r->c_seq, memory_order_relaxed);
    atomic_store_explicit(&r->c_seq, seq | BUSY_BIT, memory_order_relaxed);
    atomic_thread_fence(
        memory_order_release); /* busy is seen before any new value; pairs with the reader's fence */
    atomic_store_explicit(&r->c_avail_lo, e->new_a.lo, memory_order_relaxed);
    atomic_store_explicit(&r->c_avail_hi, e->new_a.hi, memory_order_relaxed);
    atomic_store_explicit(&r->c_held_lo, e->new_b.lo, memory_order_relaxed);
    atomic_store_explicit(&r->c_held_hi, e->new_b.hi, memory_order_relaxed);
    atomic_store_explicit(&r->c_seq, seq_end, memory_order_release);
    if (!wide_eq(e->old_b, e->new_b)) {
        struct asset *a = asset_at(s, r->asset);
        atomic_fetch_add_explicit(&a->c_version, 1, memory_order_acq_rel);
        a->c_held = wide(narrow(a->c_held) + narrow(e->new_b) - narrow(e->old_b));
        atomic_fetch_add_explicit(&a->c_version, 1, memory_order_release);
    }
    return true;
}

static bool commit_lane(struct ledger_state *s, const struct ledger_effect *e)
{
    _Atomic uint64_t *c = e->index & UINT32_C(0x80000000)
                              ? &lane_at(s, e->index & ~UINT32_C(0x80000000))->c_counter
                              : &account_at(s, e->index)->c_counter;
    if (atomic_load_explicit(c, memory_order_relaxed) != e->old_a.lo)
        return false;
    atomic_store_explicit(c, e->new_a.lo, memory_order_release); /* after its row: see the account reader */
    return true;
}

static bool commit_supply(struct ledger_state *s, const struct ledger_effect *e)
{
    struct asset *a = asset_at(s, e->index);
    if (!wide_eq(a->c_minted, e->old_a) || !wide_eq(a->c_burned, e->old_b))
        return false;
    atomic_fetch_add_explicit(&a->c_version, 1, memory_order_acq_rel);
    a->c_minted = e->new_a;
    a->c_burned = e->new_b;
    atomic_fetch_add_explicit(&a->c_version, 1, memory_order_release);
    return true;
}

static bool commit_hold(struct ledger_state *s, const struct ledger_effect *e)
{
    struct hold *h = hold_at(s, e->index);
    uint64_t v = atomic_load_explicit(&h->c_version, memory_order_relaxed);
    bool fresh = v == 0;
    if (!fresh && (atomic_load_explicit(&h->c_lo, memory_order_relaxed) != e->old_a.lo ||
                   atomic_load_explicit(&h->c_hi, memory_order_relaxed) != e->old_a.hi))
        return false;
    atomic_store_explicit(&h->c_version, v + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&h->c_lo, e->new_a.lo, memory_order_relaxed);
    atomic_store_explicit(&h->c_hi, e->new_a.hi, memory_order_relaxed);
    atomic_store_explicit(&h->c_version, v + 2, memory_order_release);
    return true;
}

static bool commit_reversal(struct ledger_state *s, const struct ledger_effect *e)
{
    struct reversal *r = reversal_at(s, e->index);
    if (atomic_load_explicit(&r->c_lo, memory_order_relaxed) != e->old_a.lo ||
        atomic_load_explicit(&r->c_hi, memory_order_relaxed) != e->old_a.hi)
        return false;
    atomic_store_explicit(&r->c_hi, e->new_a.hi, memory_order_relaxed);
    atomic_store_explicit(&r->c_lo, e->new_a.lo, memory_order_release);
    return true;
}

enum err ledger_state_commit(struct ledger_state *s, const struct ledger_effect *fx, uint32_t n,
                             uint64_t seq_end)
{
    bool ok = true;
    /* Rows first: a reader tells a too new lane by its row. */
    for (uint32_t i = 0; i < n && ok; i++)
        if (fx[i].type == FX_ROW)
            ok = commit_row(s, &fx[i], seq_end);
    for (uint32_t i = 0; i < n && ok; i++) {
        switch ((enum ledger_effect_type)fx[i].type) {
        case FX_ROW:
            break;
        case FX_LANE:
            ok = commit_lane(s, &fx[i]);
            break;
        case FX_SUPPLY:
            ok = commit_supply(s, &fx[i]);
            break;
        case FX_HOLD:
            ok = commit_hold(s, &fx[i]);
            break;
        case FX_REVERSAL:
            ok = commit_reversal(s, &fx[i]);
            break;
        }
    }
    return ok ? ERR_OK : ERR_CORRUPT;
}

void ledger_state_reset_ahead(struct ledger_state *s)
{
    for (uint32_t i = 1; i <= s->accounts.n; i++) {
        struct account *a = account_at(s, i);
        a->counter = atomic_load_explicit(&a->c_counter, memory_order_acquire);
    }
    for (uint32_t i = 1; i <= s->lanes.n; i++) {
        struct lane *l = lane_at(s, i);
        l->counter = atomic_load_explicit(&l->c_counter, memory_order_acquire);
    }
    for (uint32_t i = 1; i <= s->rows.n; i++) {
        struct row *r = row_at(s, i);
        r->available = (struct ledger_wide){atomic_load_explicit(&r->c_avail_lo, memory_order_acquire),
                                            atomic_load_explicit(&r->c_avail_hi, memory_order_acquire)};
        r->held = (struct ledger_wide){atomic_load_explicit(&r->c_held_lo, memory_order_acquire),
                                       atomic_load_explicit(&r->c_held_hi, memory_order_acquire)};
    }
    for (uint32_t i = 1; i <= s->assets.n; i++) {
        struct asset *a = asset_at(s, i);
        a->minted = a->c_minted;
        a->burned = a->c_burned;
    }
    for (uint32_t i = 1; i <= s->reversals.n; i++) {
        struct reversal *r = reversal_at(s, i);
        r->reversed = (struct ledger_wide){atomic_load_explicit(&r->c_lo, memory_order_acquire),
                                           atomic_load_explicit(&r->c_hi, memory_order_acquire)};
    }
    /* Holds: what never committed is forgotten, what never closed is open again. */
    s->n_closed = s->n_heap = 0;
    s->closed_head = 0;
    s->open_holds = 0;
    for (uint64_t b = 0; b < atomic_load_explicit(&s->hold_dir.buckets, memory_order_relaxed); b++) {
        uint32_t i = atomic_load_explicit(
            &atomic_load_explicit(&s->hold_dir.segments[b >> 12], memory_order_relaxed)[b & 4095],
            memory_order_relaxed);
        while (i != 0) {
            struct hold *h = hold_at(s, i);
            uint32_t next = atomic_load_explicit(&h->next, memory_order_relaxed);
            h->remaining = (struct ledger_wide){atomic_load_explicit(&h->c_lo, memory_order_acquire),
                                                atomic_load_explicit(&h->c_hi, memory_order_acquire)};
            if (atomic_load_explicit(&h->c_version, memory_order_relaxed) == 0 ||
                narrow(h->remaining) == 0) {
                ledger_state__hold_forget(s, i);
            } else {
                h->closed_seq = 0;
                s->open_holds++;
                if (h->until != 0)
                    ledger_state__heap_push(s, (struct due){h->until, h->seq, i});
            }
            i = next;
        }
    }
}
