#include "services/ledger/core/state_internal.h"

static const struct ledger_wide zero = {0, 0};

static void remember(struct ledger_state *s, enum undo_type type, uint32_t index, uint32_t owner,
                     struct ledger_wide a, struct ledger_wide b)
{
    CHECK(s->n_undo < UNDO_MAX);
    s->undo[s->n_undo++] = (struct undo){type, index, owner, a, b};
}

/* An account an entry names, and where it is once somebody looked. */
struct party {
    struct str name;
    uint64_t hash;
    uint32_t account; /* 0: not looked for, or not there */
};

/* One unit being judged. */
struct judge {
    struct ledger_state *s;
    const struct ledger_limits *limits;
    struct ledger_effect *fx;
    uint32_t n;
    uint64_t seq, now_ms;
    struct ledger_reject *reject;
    struct str last_asset; /* units rarely change the asset between entries */
    uint32_t last_asset_index;
    struct party payer, payee; /* `account` and `to` of the entry being judged */
};

static enum err refuse(struct judge *j, enum err reason)
{
    j->reject->reason = reason;
    return reason;
}

static enum err refuse_limit(struct judge *j, const char *which)
{
    j->reject->why = which;
    return refuse(j, ERR_LIMIT_REACHED);
}

static void effect(struct judge *j, enum ledger_effect_type type, uint32_t asset, uint32_t index,
                   struct ledger_wide old_a, struct ledger_wide old_b, struct ledger_wide new_a,
                   struct ledger_wide new_b)
{
    j->fx[j->n++] =
        (struct ledger_effect){(uint16_t)type, (uint16_t)asset, index, old_a, old_b, new_a, new_b};
}

static void row_set(struct judge *j, uint32_t i, u128 available, u128 held)
{
    struct row *r = row_at(j->s, i);
    remember(j->s, UNDO_ROW, i, 0, r->available, r->held);
    effect(j, FX_ROW, r->asset, i, r->available, r->held, wide(available), wide(held));
    r->available = wide(available);
    r->held = wide(held);
}

static uint32_t asset_of(struct judge *j, struct str name)
{
    if (j->last_asset_index == 0 || !same(j->last_asset, name)) {
        j->last_asset_index = ledger_state__asset_find(j->s, name);
        j->last_asset = name;
    }
    return j->last_asset_index;
}

static uint32_t account_of(const struct judge *j, struct party *p)
{
    if (p->account == 0)
        p->account = ledger_state__account_find(j->s, p->hash, p->name);
    return p->account;
}

static enum err row_wanted(struct judge *j, struct party *who, uint32_t asset, uint32_t *out_row)
{
    struct ledger_state *s = j->s;
    uint32_t a = account_of(j, who);
    uint32_t r = ledger_state__row_find(s, a, asset);
    if (r == 0) {
        if (s->rows.n >= j->limits->max_accounts)
            return refuse_limit(j, "max_accounts");
        if (a == 0) {
            a = who->account = ledger_state__account_make(s, who->hash, who->name);
            if (a == 0)
                return refuse_limit(j, "memory");
            remember(s, NEW_ACCOUNT, a, 0, zero, zero);
        }
        r = ledger_state__row_make(s, a, asset);
        if (r == 0)
            return refuse_limit(j, "memory");
        remember(s, NEW_ROW, r, a, zero, zero);
    }
    *out_row = r;
    return ERR_OK;
}

/* Only what exists can give. */
static uint32_t row_known(struct judge *j, struct party *who, struct str asset)
{
    uint32_t i = asset_of(j, asset);
    return i == 0 ? 0 : ledger_state__row_find(j->s, account_of(j, who), i);
}

static enum err nonce_refuse(struct judge *j, const struct core_entry *e, uint64_t last, enum err reason)
{
    j->reject->account = e->account;
    j->reject->last = (e->nonce & ~CORE_COUNTER_MASK) | last;
    j->reject->got = e->nonce;
    return refuse(j, reason);
}

/* A further lane of an account; 0: it has none of that number. *n_lanes grows by those that were passed. */
static uint32_t lane_find(struct ledger_state *s, uint32_t a, uint16_t lane, uint32_t *n_lanes)
{
    uint32_t i = s->lane_hint;
    if (i != 0 && i <= s->lanes.n && lane_at(s, i)->account == a && lane_at(s, i)->lane == lane)
        return i; /* senders stay on their lane for a while, and a hot account has many */
    for (i = atomic_load_explicit(&account_at(s, a)->lanes, memory_order_relaxed);
         i != 0 && lane_at(s, i)->lane != lane; (*n_lanes)++)
        i = atomic_load_explicit(&lane_at(s, i)->next, memory_order_relaxed);
    s->lane_hint = i;
    return i;
}

static enum err nonce_take(struct judge *j, const struct core_entry *e)
{
    struct ledger_state *s = j->s;
    uint16_t lane = (uint16_t)(e->nonce >> CORE_LANE_SHIFT);
    uint64_t counter = e->nonce & CORE_COUNTER_MASK;
    uint32_t a = account_of(j, &j->payer);
    struct account *acc = a == 0 ? NULL : account_at(s, a);
    uint32_t i = 0, n_lanes = 0;
    uint64_t last = 0;
    bool first = acc != NULL && acc->has_lane && acc->lane == lane;
    if (first) {
        last = acc->counter;
    } else if (acc != NULL) {
        n_lanes = acc->has_lane;
        i = lane_find(s, a, lane, &n_lanes);
        if (i != 0)
            last = lane_at(s, i)->counter;
    }
    if (counter <= last)
        return nonce_refuse(j, e, last, ERR_NONCE_CONFLICT);
    if (counter != last + 1)
        return nonce_refuse(j, e, last, ERR_NONCE_GAP);
    if (acc == NULL) /* nobody who was never paid can pay: funds are judged next, and refused */
        return ERR_OK;
    if (!first && i == 0) {
        if (n_lanes >= j->limits->max_lanes)
            return refuse_limit(j, "max_lanes");
        if (!acc->has_lane) {
            acc->lane = lane;
            acc->has_lane = 1;
            first = true;
            remember(s, NEW_FIRST_LANE, a, 0, zero, zero);
        } else {
            i = ledger_state__lane_make(s, a, lane);
            if (i == 0)
                return refuse_limit(j, "memory");
            remember(s, NEW_LANE, i, a, zero, zero);
        }
    }
    /* A lane effect names the account (first lane) or, with the top bit, the lane record. */
    uint32_t index = first ? a : i | UINT32_C(0x80000000);
    remember(s, UNDO_LANE, index, 0, wide(last), zero);
    effect(j, FX_LANE, 0, index, wide(last), zero, wide(counter), zero);
    if (first)
        acc->counter = counter;
    else
        lane_at(s, i)->counter = counter;
    return ERR_OK;
}

static enum err funds_refuse(struct judge *j, struct str account, struct str asset, u128 available)
{
    j->reject->account = account;
    j->reject->asset = asset;
    j->reject->value.units = available;
    return refuse(j, ERR_INSUFFICIENT_FUNDS);
}

static enum err debit(struct judge *j, struct party *who, struct str asset, u128 amount, u128 to_held)
{
    uint32_t i = row_known(j, who, asset);
    if (i == 0)
        return funds_refuse(j, who->name, asset, 0);
    struct row *r = row_at(j->s, i);
    u128 available = narrow(r->available), held = narrow(r->held);
    if (available < amount)
        return funds_refuse(j, who->name, asset, available);
    if (held + to_held < held)
        return refuse(j, ERR_OVERFLOW);
    row_set(j, i, available - amount, held + to_held);
    return ERR_OK;
}

static enum err credit(struct judge *j, struct party *who, uint32_t asset, u128 amount)
{
    uint32_t i;
    enum err err = row_wanted(j, who, asset, &i);
    if (err != ERR_OK)
        return err;
    struct row *r = row_at(j->s, i);
    u128 available = narrow(r->available);
    if (available + amount < available)
        return refuse(j, ERR_OVERFLOW);
    row_set(j, i, available + amount, narrow(r->held));
    return ERR_OK;
}

static void supply_set(struct judge *j, uint32_t i, u128 minted, u128 burned)
{
    struct asset *a = asset_at(j->s, i);
    remember(j->s, UNDO_SUPPLY, i, 0, a->minted, a->burned);
    effect(j, FX_SUPPLY, i, i, a->minted, a->burned, wide(minted), wide(burned));
    a->minted = wide(minted);
    a->burned = wide(burned);
}

static enum err judge_mint(struct judge *j, const struct core_entry *e)
{
    uint32_t i = asset_of(j, e->asset);
    if (i == 0) {
        if (j->s->assets.n >= j->limits->max_assets)
            return refuse_limit(j, "max_assets");
        i = ledger_state__asset_make(j->s, e->asset);
        if (i == 0)
            return refuse_limit(j, "memory");
        remember(j->s, NEW_ASSET, i, 0, zero, zero);
        j->last_asset_index = i;
    }
    struct asset *a = asset_at(j->s, i);
    u128 minted = narrow(a->minted);
    enum err err = minted + e->amount.units < minted ? refuse(j, ERR_OVERFLOW) : ERR_OK;
    if (err == ERR_OK) {
        supply_set(j, i, minted + e->amount.units, narrow(a->burned));
        err = credit(j, &j->payer, i, e->amount.units);
    }
    return err;
}

static enum err judge_burn(struct judge *j, const struct core_entry *e)
{
    enum err err = nonce_take(j, e);
    if (err == ERR_OK)
        err = debit(j, &j->payer, e->asset, e->amount.units, 0);
    if (err == ERR_OK) {
        struct asset *a = asset_at(j->s, j->last_asset_index);
        supply_set(j, j->last_asset_index, narrow(a->minted), narrow(a->burned) + e->amount.units);
    }
    return err;
}

static enum err judge_transfer(struct judge *j, const struct core_entry *e)
{
    enum err err = nonce_take(j, e);
    if (err == ERR_OK)
        err = debit(j, &j->payer, e->asset, e->amount.units, 0);
    if (err == ERR_OK)
        err = credit(j, &j->payee, j->last_asset_index, e->amount.units);
    return err;
}

static void hold_set(struct judge *j, uint32_t i, u128 remaining)
{
    struct ledger_state *s = j->s;
    struct hold *h = hold_at(s, i);
    remember(s, UNDO_HOLD, i, 0, h->remaining, zero);
    effect(j, FX_HOLD, 0, i, h->remaining, zero, wide(remaining), zero);
    h->remaining = wide(remaining);
    if (remaining == 0) {
        h->closed_seq = j->seq;
        s->shut[s->n_shut++] = i;
    }
}

static enum err judge_hold(struct judge *j, const struct core_entry *e,
                           const struct core_prepared_entry *pe)
{
    struct ledger_state *s = j->s;
    enum err err = nonce_take(j, e);
    if (err != ERR_OK)
        return err;
    if (e->hold_until != 0 && !j->limits->replay &&
        (e->hold_until <= j->now_ms || e->hold_until - j->now_ms > j->limits->max_hold_ms))
        return refuse(j, ERR_BAD_HOLD_UNTIL);
    if (s->open_holds + s->n_opened >= j->limits->max_open_holds)
        return refuse_limit(j, "max_open_holds");
    err = debit(j, &j->payer, e->asset, e->amount.units, e->amount.units);
    if (err != ERR_OK)
        return err;
    uint32_t row = row_known(j, &j->payer, e->asset);
    uint32_t i = ledger_state__hold_make(s, pe->id_key, e->id, j->seq, row, e->hold_until);
    if (i == 0)
        return refuse_limit(j, "memory");
    remember(s, NEW_HOLD, i, 0, zero, zero);
    s->opened[s->n_opened++] = i;
    hold_set(j, i, e->amount.units);
    return ERR_OK;
}

static enum err hold_gone(struct judge *j, const char *why)
{
    j->reject->why = why;
    return refuse(j, ERR_HOLD_CLOSED);
}

/* capture, release, expire: the hold a ref_id names, if it can give `amount`. */
static enum err hold_wanted(struct judge *j, const struct core_entry *e,
                            const struct core_prepared_entry *pe, const struct ledger_fact *fact,
                            uint32_t *out_hold)
{
    struct ledger_state *s = j->s;
    uint32_t i = ledger_state__hold_find(s, pe->ref_key);
    if (i == 0 && fact != NULL && fact->known && fact->kind == CORE_HOLD) {
        if (!same(fact->account, e->account) || !same(fact->asset, e->asset))
            return refuse(j, ERR_REF_MISMATCH);
        return hold_gone(j, fact->expired ? "expired" : "spent");
    }
    if (i == 0)
        return refuse(j, ERR_REF_NOT_FOUND);
    struct hold *h = hold_at(s, i);
    struct row *r = row_at(s, h->row);
    if (!same(account_name(account_at(s, r->account)), e->account) ||
        !same(asset_name(asset_at(s, r->asset)), e->asset))
        return refuse(j, ERR_REF_MISMATCH);
    bool late = h->until != 0 && h->until <= j->now_ms;
    if (e->kind != CORE_EXPIRE && late && !j->limits->replay)
        return hold_gone(j, "expired");
    if (h->closed_seq != 0)
        return hold_gone(j, "spent");
    if (e->kind == CORE_EXPIRE && (!late || narrow(h->remaining) != e->amount.units))
        return refuse(j, ERR_REF_MISMATCH); /* only a damaged or foreign journal says so */
    if (narrow(h->remaining) < e->amount.units) {
        j->reject->value.units = narrow(h->remaining);
        return refuse(j, ERR_AMOUNT_EXCEEDS);
    }
    *out_hold = i;
    return ERR_OK;
}

static enum err judge_from_hold(struct judge *j, const struct core_entry *e,
                                const struct core_prepared_entry *pe, const struct ledger_fact *fact)
{
    uint32_t i;
    enum err err = hold_wanted(j, e, pe, fact, &i);
    if (err != ERR_OK)
        return err;
    struct ledger_state *s = j->s;
    struct hold *h = hold_at(s, i);
    struct row *r = row_at(s, h->row);
    u128 amount = e->amount.units, held = narrow(r->held), available = narrow(r->available);
    CHECK(held >= amount);
    hold_set(j, i, narrow(h->remaining) - amount);
    if (e->kind == CORE_CAPTURE) {
        row_set(j, h->row, available, held - amount);
        return credit(j, &j->payee, r->asset, amount);
    }
    if (available + amount < available)
        return refuse(j, ERR_OVERFLOW);
    row_set(j, h->row, available + amount, held - amount);
    return ERR_OK;
}

static enum err judge_reverse(struct judge *j, const struct core_entry *e, const struct ledger_fact *fact)
{
    struct ledger_state *s = j->s;
    if (fact == NULL || !fact->known || fact->kind != CORE_TRANSFER)
        return refuse(j, ERR_REF_NOT_FOUND);
    if (!same(fact->account, e->account) || !same(fact->to, e->to) || !same(fact->asset, e->asset))
        return refuse(j, ERR_REF_MISMATCH);
    uint32_t i = ledger_state__reversal_find(s, fact->seq);
    u128 reversed = i == 0 ? 0 : narrow(reversal_at(s, i)->reversed), left = fact->amount.units - reversed;
    if (e->amount.units > left) {
        j->reject->value.units = left;
        return refuse(j, ERR_AMOUNT_EXCEEDS);
    }
    if (i == 0) {
        if (s->reversals.n >= j->limits->max_reversals)
            return refuse_limit(j, "max_reversals");
        i = ledger_state__reversal_make(s, fact->seq);
        if (i == 0)
            return refuse_limit(j, "memory");
        remember(s, NEW_REVERSAL, i, 0, zero, zero);
    }
    struct reversal *rev = reversal_at(s, i);
    enum err err = debit(j, &j->payee, e->asset, e->amount.units, 0);
    if (err != ERR_OK)
        return err;
    remember(s, UNDO_REVERSAL, i, 0, rev->reversed, zero);
    effect(j, FX_REVERSAL, 0, i, rev->reversed, zero, wide(reversed + e->amount.units), zero);
    rev->reversed = wide(reversed + e->amount.units);
    return credit(j, &j->payer, j->last_asset_index, e->amount.units);
}

static enum err judge_entry(struct judge *j, const struct core_entry *e,
                            const struct core_prepared_entry *pe, const struct ledger_fact *fact,
                            bool hashed)
{
    j->payer = (struct party){e->account, hashed ? pe->account_hash : name_hash(j->s, e->account), 0};
    j->payee = (struct party){e->to, hashed || e->to.n == 0 ? pe->to_hash : name_hash(j->s, e->to), 0};
    switch (e->kind) {
    case CORE_MINT:
        return judge_mint(j, e);
    case CORE_BURN:
        return judge_burn(j, e);
    case CORE_TRANSFER:
        return judge_transfer(j, e);
    case CORE_HOLD:
        return judge_hold(j, e, pe);
    case CORE_CAPTURE:
    case CORE_RELEASE:
    case CORE_EXPIRE:
        return judge_from_hold(j, e, pe, fact);
    case CORE_REVERSE:
        return judge_reverse(j, e, fact);
    case CORE_KIND_NONE:
    case CORE_KIND_COUNT:
        break;
    }
    UNREACHABLE();
}

static void undo_one(struct ledger_state *s, const struct undo *u)
{
    switch (u->type) {
    case UNDO_ROW:
        row_at(s, u->index)->available = u->a;
        row_at(s, u->index)->held = u->b;
        return;
    case UNDO_LANE:
        if (u->index & UINT32_C(0x80000000))
            lane_at(s, u->index & ~UINT32_C(0x80000000))->counter = u->a.lo;
        else
            account_at(s, u->index)->counter = u->a.lo;
        return;
    case UNDO_SUPPLY:
        asset_at(s, u->index)->minted = u->a;
        asset_at(s, u->index)->burned = u->b;
        return;
    case UNDO_HOLD:
        hold_at(s, u->index)->remaining = u->a;
        hold_at(s, u->index)->closed_seq = 0;
        return;
    case UNDO_REVERSAL:
        reversal_at(s, u->index)->reversed = u->a;
        return;
    case NEW_ACCOUNT:
        ledger_state__account_unmake(s, u->index);
        return;
    case NEW_ROW:
        atomic_store_explicit(&account_at(s, u->owner)->row,
                              atomic_load_explicit(&row_at(s, u->index)->next, memory_order_relaxed),
                              memory_order_release);
        ledger_slab_give_back(&s->rows, u->index);
        return;
    case NEW_LANE:
        atomic_store_explicit(&account_at(s, u->owner)->lanes,
                              atomic_load_explicit(&lane_at(s, u->index)->next, memory_order_relaxed),
                              memory_order_release);
        ledger_slab_give_back(&s->lanes, u->index);
        return;
    case NEW_FIRST_LANE:
        account_at(s, u->index)->has_lane = 0;
        return;
    case NEW_ASSET:
        ledger_state__asset_unmake(s, u->index);
        return;
    case NEW_HOLD:
        ledger_state__hold_forget(s, u->index);
        return;
    case NEW_REVERSAL:
        ledger_state__reversal_unmake(s, u->index);
        return;
    }
    UNREACHABLE();
}

enum err ledger_state_apply(struct ledger_state *s, const struct core_unit *u,
                            const struct core_prepared *p, const struct ledger_fact *const *facts,
                            uint64_t seq, uint64_t now_ms, const struct ledger_limits *limits,
                            struct ledger_effect *out_fx, uint32_t *out_n, struct ledger_reject *out_reject)
{
    struct ledger_reject reject = {0};
    struct judge j = {
        .s = s, .limits = limits, .fx = out_fx, .seq = seq, .now_ms = now_ms, .reject = &reject};
    s->n_undo = 0;
    s->n_opened = s->n_shut = 0;
    enum err err = ERR_OK;
    uint32_t i = 0;
    for (; i < u->n; i++, j.seq++) {
        err = judge_entry(&j, &u->entries[i], &p->entries[i], facts == NULL ? NULL : facts[i], p->hashed);
        if (err != ERR_OK)
            break;
    }
    if (err != ERR_OK) {
        while (s->n_undo > 0)
            undo_one(s, &s->undo[--s->n_undo]);
        reject.entry = i;
        reject.has_entry = true;
        *out_reject = reject;
        return err;
    }
    CHECK(j.n <= EFFECTS_PER_ENTRY * u->n);
    for (uint32_t k = 0; k < s->n_opened; k++) {
        const struct hold *h = hold_at(s, s->opened[k]);
        s->open_holds++;
        if (h->until != 0 && h->closed_seq == 0)
            ledger_state__heap_push(s, (struct due){h->until, h->seq, s->opened[k]});
    }
    for (uint32_t k = 0; k < s->n_shut; k++) {
        s->open_holds--;
        ledger_state__closed_push(s, s->shut[k]);
    }
    *out_n = j.n;
    return ERR_OK;
}

void ledger_state_hash_names(const struct ledger_state *s, const struct core_unit *u,
                             struct core_prepared *p)
{
    for (uint32_t i = 0; i < u->n; i++) {
        p->entries[i].account_hash = name_hash(s, u->entries[i].account);
        p->entries[i].to_hash = u->entries[i].to.n == 0 ? 0 : name_hash(s, u->entries[i].to);
    }
    p->hashed = true;
}

enum { PREFETCH_MAX = 4 }; /* entries per unit: longer ones have time on their way */

static void prefetch_account(const struct ledger_state *s, uint64_t hash)
{
    uint32_t a = ledger_dir_first(&s->account_dir, hash);
    if (a != 0)
        __builtin_prefetch(account_at(s, a), 1);
}

/* The first of its chain and the first of its rows: nearly always the ones that are meant. */
static void prefetch_row(const struct ledger_state *s, uint64_t hash)
{
    uint32_t a = ledger_dir_first(&s->account_dir, hash), r = 0;
    if (a != 0)
        r = atomic_load_explicit(&account_at(s, a)->row, memory_order_relaxed);
    if (r != 0)
        __builtin_prefetch(row_at(s, r), 1);
}

void ledger_state_prefetch_accounts(const struct ledger_state *s, const struct core_unit *u,
                                    const struct core_prepared *p)
{
    for (uint32_t i = 0; p->hashed && i < u->n && i < PREFETCH_MAX; i++) {
        prefetch_account(s, p->entries[i].account_hash);
        if (u->entries[i].to.n != 0)
            prefetch_account(s, p->entries[i].to_hash);
    }
}

void ledger_state_prefetch_rows(const struct ledger_state *s, const struct core_unit *u,
                                const struct core_prepared *p)
{
    for (uint32_t i = 0; p->hashed && i < u->n && i < PREFETCH_MAX; i++) {
        prefetch_row(s, p->entries[i].account_hash);
        if (u->entries[i].to.n != 0)
            prefetch_row(s, p->entries[i].to_hash);
    }
}
