#include <stdlib.h>

#include "services/ledger/core/state_internal.h"

static void key_pair(struct ledger_state_record *r, struct str account, const void *tail, size_t n)
{
    memcpy(r->key, account.p, account.n);
    r->key[account.n] = 0;
    memcpy(r->key + account.n + 1, tail, n);
    r->key_len = (uint16_t)(account.n + 1 + n);
}

static void wide_put(uint8_t *p, struct ledger_wide w)
{
    le64_put(p, w.lo);
    le64_put(p + 8, w.hi);
}

static struct ledger_wide wide_get(const uint8_t *p)
{
    return (struct ledger_wide){le64_get(p), le64_get(p + 8)};
}

static void row_record(const struct ledger_state *s, uint32_t i, struct ledger_wide available,
                       struct ledger_wide held, uint64_t seq, struct ledger_state_record *r)
{
    const struct row *row = row_at(s, i);
    struct str asset = asset_name(asset_at(s, row->asset));
    r->type = 'A';
    key_pair(r, account_name(account_at(s, row->account)), asset.p, asset.n);
    wide_put(r->value, available);
    wide_put(r->value + 16, held);
    le64_put(r->value + 32, seq);
    r->value_len = 40;
}

static void lane_record(struct str account, uint16_t lane, uint64_t counter, struct ledger_state_record *r)
{
    uint8_t tail[2];
    be16_put(tail, lane);
    r->type = 'N';
    key_pair(r, account, tail, 2);
    le64_put(r->value, counter);
    r->value_len = 8;
}

static void supply_record(const struct asset *a, struct ledger_wide minted, struct ledger_wide burned,
                          struct ledger_state_record *r)
{
    r->type = 'S';
    memcpy(r->key, a->name, a->name_len);
    r->key_len = a->name_len;
    wide_put(r->value, minted);
    wide_put(r->value + 16, burned);
    r->value_len = 32;
}

static void hold_record(const struct ledger_state *s, const struct hold *h, struct ledger_wide remaining,
                        struct ledger_state_record *r)
{
    r->type = 'H';
    memcpy(r->key, h->id, h->id_len);
    r->key_len = h->id_len;
    r->value_len = 0;
    if (narrow(remaining) == 0)
        return;
    const struct row *row = row_at(s, h->row);
    struct str account = account_name(account_at(s, row->account)),
               asset = asset_name(asset_at(s, row->asset));
    le64_put(r->value, h->seq);
    wide_put(r->value + 8, remaining);
    le64_put(r->value + 24, h->until);
    r->value[32] = (uint8_t)account.n;
    memcpy(r->value + 33, account.p, account.n);
    memcpy(r->value + 33 + account.n, asset.p, asset.n);
    r->value_len = (uint16_t)(33 + account.n + asset.n);
}

static void reversal_record(uint64_t seq, struct ledger_wide reversed, struct ledger_state_record *r)
{
    r->type = 'R';
    be64_put(r->key, seq);
    r->key_len = 8;
    wide_put(r->value, reversed);
    r->value_len = 16;
}

void ledger_state_record_of(const struct ledger_state *s, const struct ledger_effect *fx, uint64_t seq_end,
                            struct ledger_state_record *out)
{
    switch ((enum ledger_effect_type)fx->type) {
    case FX_ROW:
        row_record(s, fx->index, fx->new_a, fx->new_b, seq_end, out);
        return;
    case FX_LANE: {
        bool far = (fx->index & UINT32_C(0x80000000)) != 0;
        uint32_t lane = fx->index & ~UINT32_C(0x80000000);
        const struct account *a = account_at(s, far ? lane_at(s, lane)->account : fx->index);
        lane_record(account_name(a), far ? lane_at(s, lane)->lane : a->lane, fx->new_a.lo, out);
        return;
    }
    case FX_SUPPLY:
        supply_record(asset_at(s, fx->index), fx->new_a, fx->new_b, out);
        return;
    case FX_HOLD:
        hold_record(s, hold_at(s, fx->index), fx->new_a, out);
        return;
    case FX_REVERSAL:
        reversal_record(reversal_at(s, fx->index)->seq, fx->new_a, out);
        return;
    }
    UNREACHABLE();
}

static void each_hold(const struct ledger_state *s, ledger_state_record_fn *fn, void *ctx,
                      struct ledger_state_record *r)
{
    uint64_t buckets = atomic_load_explicit(&s->hold_dir.buckets, memory_order_acquire);
    for (uint64_t b = 0; b < buckets; b++) {
        _Atomic uint32_t *segment =
            atomic_load_explicit(&s->hold_dir.segments[b >> 12], memory_order_acquire);
        for (uint32_t i = atomic_load_explicit(&segment[b & 4095], memory_order_acquire); i != 0;
             i = atomic_load_explicit(&hold_at(s, i)->next, memory_order_acquire)) {
            const struct hold *h = hold_at(s, i);
            struct ledger_wide left = {atomic_load_explicit(&h->c_lo, memory_order_relaxed),
                                       atomic_load_explicit(&h->c_hi, memory_order_relaxed)};
            if (atomic_load_explicit(&h->c_version, memory_order_acquire) == 0 || narrow(left) == 0)
                continue;
            hold_record(s, h, left, r);
            fn(ctx, r);
        }
    }
}

void ledger_state_each(const struct ledger_state *s, ledger_state_record_fn *fn, void *ctx)
{
    struct ledger_state_record r;
    for (uint32_t i = 1; i <= s->rows.n; i++) {
        const struct row *row = row_at(s, i);
        uint64_t seq = atomic_load_explicit(&row->c_seq, memory_order_acquire);
        if (seq == 0)
            continue;
        struct ledger_wide available = {atomic_load_explicit(&row->c_avail_lo, memory_order_relaxed),
                                        atomic_load_explicit(&row->c_avail_hi, memory_order_relaxed)};
        struct ledger_wide held = {atomic_load_explicit(&row->c_held_lo, memory_order_relaxed),
                                   atomic_load_explicit(&row->c_held_hi, memory_order_relaxed)};
        row_record(s, i, available, held, seq, &r);
        fn(ctx, &r);
    }
    for (uint32_t i = 1; i <= s->accounts.n; i++) {
        const struct account *a = account_at(s, i);
        uint64_t counter = atomic_load_explicit(&a->c_counter, memory_order_acquire);
        if (counter != 0) {
            lane_record(account_name(a), a->lane, counter, &r);
            fn(ctx, &r);
        }
        for (uint32_t l = atomic_load_explicit(&a->lanes, memory_order_acquire); l != 0;
             l = atomic_load_explicit(&lane_at(s, l)->next, memory_order_acquire)) {
            counter = atomic_load_explicit(&lane_at(s, l)->c_counter, memory_order_acquire);
            if (counter == 0)
                continue;
            lane_record(account_name(a), lane_at(s, l)->lane, counter, &r);
            fn(ctx, &r);
        }
    }
    for (uint32_t i = 1; i <= s->assets.n; i++) {
        const struct asset *a = asset_at(s, i);
        if (narrow(a->c_minted) == 0)
            continue;
        supply_record(a, a->c_minted, a->c_burned, &r);
        fn(ctx, &r);
    }
    each_hold(s, fn, ctx, &r);
    for (uint32_t i = 1; i <= s->reversals.n; i++) {
        const struct reversal *v = reversal_at(s, i);
        struct ledger_wide reversed = {atomic_load_explicit(&v->c_lo, memory_order_acquire),
                                       atomic_load_explicit(&v->c_hi, memory_order_relaxed)};
        if (narrow(reversed) == 0)
            continue;
        reversal_record(v->seq, reversed, &r);
        fn(ctx, &r);
    }
}

/* ---- digest ---- */

struct collected {
    uint8_t **v; /* type | key_len u16 | key | val_len u16 | value */
    size_t n, cap;
};

static void collect(void *ctx, const struct ledger_state_record *r)
{
    struct collected *c = ctx;
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 1024 : c->cap * 2;
        c->v = realloc(c->v, c->cap * sizeof *c->v);
        CHECK(c->v != NULL);
    }
    uint8_t *p = malloc((size_t)5 + r->key_len + r->value_len);
    CHECK(p != NULL);
    p[0] = (uint8_t)r->type;
    le16_put(p + 1, r->key_len);
    memcpy(p + 3, r->key, r->key_len);
    le16_put(p + 3 + r->key_len, r->value_len);
    memcpy(p + 5 + r->key_len, r->value, r->value_len);
    c->v[c->n++] = p;
}

static int record_order(const void *a, const void *b)
{
    const uint8_t *x = *(uint8_t *const *)a, *y = *(uint8_t *const *)b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return bytes_cmp(bytes_of(x + 3, le16_get(x + 1)), bytes_of(y + 3, le16_get(y + 1)));
}

void ledger_state_digest(const struct ledger_state *s, struct sha256 *out_digest)
{
    struct collected c = {NULL, 0, 0};
    ledger_state_each(s, collect, &c);
    if (c.n > 1)
        qsort(c.v, c.n, sizeof *c.v, record_order);
    struct sha256_ctx h;
    sha256_init(&h);
    for (size_t i = 0; i < c.n; i++) {
        size_t key = le16_get(c.v[i] + 1), value = le16_get(c.v[i] + 3 + key);
        sha256_update(&h, c.v[i], 5 + key + value);
        free(c.v[i]);
    }
    sha256_final(&h, out_digest);
    free(c.v);
}

/* ---- loading ---- */

static bool split_key(const struct ledger_state_record *r, struct str *out_account, struct str *out_tail)
{
    const uint8_t *zero = memchr(r->key, 0, r->key_len);
    if (zero == NULL)
        return false;
    size_t n = (size_t)(zero - r->key);
    *out_account = str_of((const char *)r->key, n);
    *out_tail = str_of((const char *)zero + 1, r->key_len - n - 1);
    return ledger_account_ok(*out_account);
}

/* Puts the accounts up to `upto` into the directory. Buckets are anywhere in memory: each was asked for a while ago. */
static void load_file(struct ledger_state *s, uint32_t upto)
{
    while (s->load_filed < upto) {
        uint32_t i = ++s->load_filed;
        ledger_dir_insert(&s->account_dir, s->load_hashes[i % LOAD_UNFILED], i);
    }
}

static uint32_t load_account(struct ledger_state *s, uint64_t hash, struct str name)
{
    uint32_t i = ledger_state__account_new(s, name);
    if (i == 0)
        return 0;
    if (i > LOAD_UNFILED)
        load_file(s, i - LOAD_UNFILED);
    s->load_hashes[i % LOAD_UNFILED] = hash;
    ledger_dir_prefetch(&s->account_dir, hash);
    return i;
}

/*
 * Runs are sorted: rows come account by account, lanes in the same order once more. So the account is mostly the last one, one
 * of those behind it, or new because it lies beyond all that were made in order. Only else is it looked for.
 */
static uint32_t account_need(struct ledger_state *s, struct str name)
{
    enum { LOOK_AHEAD = 4 };
    uint32_t n = s->accounts.n, last = s->load_last;
    for (uint32_t i = last; last != 0 && i <= n && i < last + LOOK_AHEAD; i++)
        if (same(account_name(account_at(s, i)), name))
            return s->load_last = i;
    uint64_t hash = name_hash(s, name);
    bool beyond = s->load_ascending == n && (n == 0 || str_cmp(account_name(account_at(s, n)), name) < 0);
    if (!beyond)
        load_file(s, n);
    uint32_t i = beyond ? 0 : ledger_state__account_find(s, hash, name);
    if (i == 0) {
        i = load_account(s, hash, name);
        if (beyond)
            s->load_ascending = i;
    }
    return s->load_last = i;
}

static uint32_t asset_need(struct ledger_state *s, struct str name)
{
    uint32_t i = ledger_state__asset_find(s, name);
    return i != 0 ? i : ledger_state__asset_make(s, name);
}

static uint32_t row_need(struct ledger_state *s, struct str account, struct str asset)
{
    uint32_t a = account_need(s, account), x = asset_need(s, asset);
    if (a == 0 || x == 0)
        return 0;
    uint32_t i = ledger_state__row_find(s, a, x);
    return i != 0 ? i : ledger_state__row_make(s, a, x);
}

static enum err load_row(struct ledger_state *s, const struct ledger_state_record *r)
{
    struct str account, asset;
    if (r->value_len != 40 || !split_key(r, &account, &asset) || !ledger_asset_ok(asset))
        return ERR_CORRUPT;
    uint32_t i = row_need(s, account, asset);
    if (i == 0)
        return ERR_NO_MEMORY;
    struct row *row = row_at(s, i);
    row->available = wide_get(r->value);
    row->held = wide_get(r->value + 16);
    atomic_store_explicit(&row->c_avail_lo, row->available.lo, memory_order_relaxed);
    atomic_store_explicit(&row->c_avail_hi, row->available.hi, memory_order_relaxed);
    atomic_store_explicit(&row->c_held_lo, row->held.lo, memory_order_relaxed);
    atomic_store_explicit(&row->c_held_hi, row->held.hi, memory_order_relaxed);
    atomic_store_explicit(&row->c_seq, le64_get(r->value + 32), memory_order_release);
    return le64_get(r->value + 32) == 0 ? ERR_CORRUPT : ERR_OK;
}

static enum err load_lane(struct ledger_state *s, const struct ledger_state_record *r)
{
    struct str account, tail;
    if (r->value_len != 8 || !split_key(r, &account, &tail) || tail.n != 2)
        return ERR_CORRUPT;
    uint16_t lane = be16_get(tail.p);
    uint64_t counter = le64_get(r->value);
    uint32_t i = account_need(s, account);
    if (i == 0)
        return ERR_NO_MEMORY;
    struct account *a = account_at(s, i);
    if (!a->has_lane || a->lane == lane) {
        a->has_lane = 1;
        a->lane = lane;
        a->counter = counter;
        atomic_store_explicit(&a->c_counter, counter, memory_order_release);
        return ERR_OK;
    }
    uint32_t l = atomic_load_explicit(&a->lanes, memory_order_relaxed);
    while (l != 0 && lane_at(s, l)->lane != lane)
        l = atomic_load_explicit(&lane_at(s, l)->next, memory_order_relaxed);
    if (l == 0 && (l = ledger_state__lane_make(s, i, lane)) == 0)
        return ERR_NO_MEMORY;
    lane_at(s, l)->counter = counter;
    atomic_store_explicit(&lane_at(s, l)->c_counter, counter, memory_order_release);
    return ERR_OK;
}

static enum err load_supply(struct ledger_state *s, const struct ledger_state_record *r)
{
    struct str name = str_of((const char *)r->key, r->key_len);
    if (r->value_len != 32 || !ledger_asset_ok(name))
        return ERR_CORRUPT;
    uint32_t i = asset_need(s, name);
    if (i == 0)
        return ERR_NO_MEMORY;
    struct asset *a = asset_at(s, i);
    a->minted = a->c_minted = wide_get(r->value);
    a->burned = a->c_burned = wide_get(r->value + 16);
    return ERR_OK;
}

static enum err load_hold(struct ledger_state *s, const struct ledger_state_record *r)
{
    struct str id = str_of((const char *)r->key, r->key_len);
    if (!ledger_id_ok(id) || r->value_len < 35 || r->value_len < 33 + (size_t)r->value[32] + 1)
        return ERR_CORRUPT;
    struct str account = str_of((const char *)r->value + 33, r->value[32]);
    struct str asset = str_of(account.p + account.n, r->value_len - 33 - account.n);
    if (!ledger_account_ok(account) || !ledger_asset_ok(asset))
        return ERR_CORRUPT;
    uint32_t row = row_need(s, account, asset);
    struct core_key key = ledger_canon_id_key(id);
    if (ledger_state__hold_find(s, key) != 0)
        return ERR_CORRUPT;
    uint64_t seq = le64_get(r->value), until = le64_get(r->value + 24);
    uint32_t i = row == 0 ? 0 : ledger_state__hold_make(s, key, id, seq, row, until);
    if (i == 0)
        return ERR_NO_MEMORY;
    struct hold *h = hold_at(s, i);
    h->remaining = wide_get(r->value + 8);
    if (narrow(h->remaining) == 0)
        return ERR_CORRUPT;
    atomic_store_explicit(&h->c_lo, h->remaining.lo, memory_order_relaxed);
    atomic_store_explicit(&h->c_hi, h->remaining.hi, memory_order_relaxed);
    atomic_store_explicit(&h->c_version, 2, memory_order_release);
    s->open_holds++;
    if (until != 0)
        ledger_state__heap_push(s, (struct due){until, seq, i});
    return ERR_OK;
}

static enum err load_reversal(struct ledger_state *s, const struct ledger_state_record *r)
{
    if (r->key_len != 8 || r->value_len != 16)
        return ERR_CORRUPT;
    uint64_t seq = be64_get(r->key);
    uint32_t i = ledger_state__reversal_find(s, seq);
    if (i == 0 && (i = ledger_state__reversal_make(s, seq)) == 0)
        return ERR_NO_MEMORY;
    struct reversal *v = reversal_at(s, i);
    v->reversed = wide_get(r->value);
    atomic_store_explicit(&v->c_hi, v->reversed.hi, memory_order_relaxed);
    atomic_store_explicit(&v->c_lo, v->reversed.lo, memory_order_release);
    return ERR_OK;
}

void ledger_state_load_begin(struct ledger_state *s, uint64_t accounts)
{
    ledger_dir_reserve(&s->account_dir, accounts);
}

enum err ledger_state_load(struct ledger_state *s, const struct ledger_state_record *r)
{
    switch (r->type) {
    case 'A':
        return load_row(s, r);
    case 'N':
        return load_lane(s, r);
    case 'S':
        return load_supply(s, r);
    case 'H':
        return r->value_len == 0 ? ERR_OK : load_hold(s, r);
    case 'R':
        return load_reversal(s, r);
    default:
        return ERR_CORRUPT;
    }
}

enum err ledger_state_load_done(struct ledger_state *s)
{
    load_file(s, s->accounts.n);
    for (uint32_t i = 1; i <= s->assets.n; i++) {
        asset_at(s, i)->c_held = (struct ledger_wide){0, 0};
        asset_at(s, i)->delta = 0;
    }
    for (uint32_t i = 1; i <= s->rows.n; i++) {
        const struct row *r = row_at(s, i);
        struct asset *a = asset_at(s, r->asset);
        a->c_held = wide(narrow(a->c_held) + narrow(r->held));
        a->delta += narrow(r->available) + narrow(r->held);
    }
    enum err err = ERR_OK;
    for (uint32_t i = 1; i <= s->assets.n; i++) {
        struct asset *a = asset_at(s, i);
        if (a->delta != narrow(a->minted) - narrow(a->burned))
            err = ERR_CORRUPT;
        a->delta = 0;
    }
    return err;
}
