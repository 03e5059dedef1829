#include <stdlib.h>

#include "services/ledger/core/state_internal.h"

static uint64_t account_hash(void *ctx, uint32_t i)
{
    const struct ledger_state *s = ctx;
    return name_hash(s, account_name(account_at(s, i)));
}

static _Atomic uint32_t *account_next(void *ctx, uint32_t i)
{
    return &account_at(ctx, i)->next;
}

static uint64_t asset_hash(void *ctx, uint32_t i)
{
    const struct ledger_state *s = ctx;
    return name_hash(s, asset_name(asset_at(s, i)));
}

static _Atomic uint32_t *asset_next(void *ctx, uint32_t i)
{
    return &asset_at(ctx, i)->next;
}

static uint64_t hold_hash(void *ctx, uint32_t i)
{
    return hold_at(ctx, i)->key.w[0];
}

static _Atomic uint32_t *hold_next(void *ctx, uint32_t i)
{
    return &hold_at(ctx, i)->next;
}

static uint64_t seq_hash(uint64_t seq)
{
    return seq * UINT64_C(0x9e3779b97f4a7c15) >> 7;
}

static uint64_t reversal_hash(void *ctx, uint32_t i)
{
    return seq_hash(reversal_at(ctx, i)->seq);
}

static _Atomic uint32_t *reversal_next(void *ctx, uint32_t i)
{
    return &reversal_at(ctx, i)->next;
}

struct ledger_state *ledger_state_create(uint64_t seed0, uint64_t seed1)
{
    struct ledger_state *s = calloc(1, sizeof *s);
    CHECK(s != NULL);
    s->hash_key = (struct siphash_key){seed0, seed1};
    ledger_slab_init(&s->accounts, sizeof(struct account));
    ledger_slab_init(&s->rows, sizeof(struct row));
    ledger_slab_init(&s->lanes, sizeof(struct lane));
    ledger_slab_init(&s->assets, sizeof(struct asset));
    ledger_slab_init(&s->holds, sizeof(struct hold));
    ledger_slab_init(&s->reversals, sizeof(struct reversal));
    ledger_dir_init(&s->account_dir, account_hash, account_next, s);
    ledger_dir_init(&s->asset_dir, asset_hash, asset_next, s);
    ledger_dir_init(&s->hold_dir, hold_hash, hold_next, s);
    ledger_dir_init(&s->reversal_dir, reversal_hash, reversal_next, s);
    s->undo = malloc(UNDO_MAX * sizeof *s->undo);
    s->opened = malloc(CORE_UNIT_ENTRIES_MAX * sizeof *s->opened);
    s->shut = malloc(CORE_UNIT_ENTRIES_MAX * sizeof *s->shut);
    s->touched_assets = malloc(CORE_UNIT_ENTRIES_MAX * EFFECTS_PER_ENTRY * sizeof *s->touched_assets);
    CHECK(s->undo != NULL && s->opened != NULL && s->shut != NULL && s->touched_assets != NULL);
    return s;
}

void ledger_state_destroy(struct ledger_state *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 1; i <= s->accounts.n; i++)
        if (account_at(s, i)->name_len > NAME_INLINE)
            free(account_at(s, i)->name.heap);
    ledger_slab_fini(&s->accounts);
    ledger_slab_fini(&s->rows);
    ledger_slab_fini(&s->lanes);
    ledger_slab_fini(&s->assets);
    ledger_slab_fini(&s->holds);
    ledger_slab_fini(&s->reversals);
    ledger_dir_fini(&s->account_dir);
    ledger_dir_fini(&s->asset_dir);
    ledger_dir_fini(&s->hold_dir);
    ledger_dir_fini(&s->reversal_dir);
    free(s->free_holds);
    free(s->heap);
    free(s->closed);
    free(s->undo);
    free(s->opened);
    free(s->shut);
    free(s->touched_assets);
    free(s);
}

/* Vectors that only grow while the ledger grows: open holds are limited, and so are these. */
static void *grown(void *v, uint32_t *cap, uint32_t need, size_t item)
{
    if (need <= *cap)
        return v;
    uint32_t cap_new = *cap == 0 ? 64 : *cap * 2;
    void *fresh = realloc(v, cap_new * item);
    CHECK(fresh != NULL);
    *cap = cap_new;
    return fresh;
}

/* ---- finding and making ---- */

uint32_t ledger_state__account_find(const struct ledger_state *s, uint64_t hash, struct str name)
{
    uint32_t i = ledger_dir_first(&s->account_dir, hash);
    while (i != 0) {
        const struct account *a = account_at(s, i);
        if (same(account_name(a), name))
            return i;
        i = atomic_load_explicit(&a->next, memory_order_acquire);
    }
    return 0;
}

uint32_t ledger_state__account_new(struct ledger_state *s, struct str name)
{
    uint32_t i = ledger_slab_take(&s->accounts);
    if (i == 0)
        return 0;
    struct account *a = account_at(s, i);
    a->name_len = (uint8_t)name.n;
    if (name.n <= NAME_INLINE) {
        memcpy(a->name.text, name.p, name.n);
    } else {
        a->name.heap = malloc(name.n);
        CHECK(a->name.heap != NULL);
        memcpy(a->name.heap, name.p, name.n);
    }
    return i;
}

uint32_t ledger_state__account_make(struct ledger_state *s, uint64_t hash, struct str name)
{
    uint32_t i = ledger_state__account_new(s, name);
    if (i != 0)
        ledger_dir_insert(&s->account_dir, hash, i);
    return i;
}

uint32_t ledger_state__asset_find(const struct ledger_state *s, struct str name)
{
    uint32_t i = ledger_dir_first(&s->asset_dir, name_hash(s, name));
    while (i != 0 && !same(asset_name(asset_at(s, i)), name))
        i = atomic_load_explicit(&asset_at(s, i)->next, memory_order_acquire);
    return i;
}

uint32_t ledger_state__asset_make(struct ledger_state *s, struct str name)
{
    uint32_t i =
        s->assets.n == UINT16_MAX ? 0 : ledger_slab_take(&s->assets); /* effects name it in 16 bits */
    if (i == 0)
        return 0;
    struct asset *a = asset_at(s, i);
    a->name_len = (uint8_t)name.n;
    memcpy(a->name, name.p, name.n);
    ledger_dir_insert(&s->asset_dir, name_hash(s, name), i);
    return i;
}

uint32_t ledger_state__row_find(const struct ledger_state *s, uint32_t account, uint32_t asset)
{
    uint32_t i =
        account == 0 ? 0 : atomic_load_explicit(&account_at(s, account)->row, memory_order_acquire);
    while (i != 0 && row_at(s, i)->asset != asset)
        i = atomic_load_explicit(&row_at(s, i)->next, memory_order_acquire);
    return i;
}

uint32_t ledger_state__row_make(struct ledger_state *s, uint32_t account, uint32_t asset)
{
    uint32_t i = ledger_slab_take(&s->rows);
    if (i == 0)
        return 0;
    struct row *r = row_at(s, i);
    struct account *a = account_at(s, account);
    r->account = account;
    r->asset = asset;
    atomic_store_explicit(&r->next, atomic_load_explicit(&a->row, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&a->row, i, memory_order_release); /* pairs with row_find */
    return i;
}

uint32_t ledger_state__hold_find(const struct ledger_state *s, struct core_key key)
{
    uint32_t i = ledger_dir_first(&s->hold_dir, key.w[0]);
    while (i != 0 && !core_key_eq(hold_at(s, i)->key, key))
        i = atomic_load_explicit(&hold_at(s, i)->next, memory_order_acquire);
    return i;
}

uint32_t ledger_state__hold_make(struct ledger_state *s, struct core_key key, struct str id, uint64_t seq,
                                 uint32_t row, uint64_t until)
{
    uint32_t i = s->n_free_holds > 0 ? s->free_holds[--s->n_free_holds] : ledger_slab_take(&s->holds);
    if (i == 0)
        return 0;
    struct hold *h = hold_at(s, i);
    h->key = key;
    h->row = row;
    h->seq = seq;
    h->until = until;
    h->closed_seq = 0;
    h->remaining = (struct ledger_wide){0, 0};
    h->id_len = (uint8_t)id.n;
    memcpy(h->id, id.p, id.n);
    ledger_dir_insert(&s->hold_dir, key.w[0], i);
    return i;
}

void ledger_state__hold_forget(struct ledger_state *s, uint32_t i)
{
    struct hold *h = hold_at(s, i);
    ledger_dir_remove(&s->hold_dir, h->key.w[0], i);
    atomic_store_explicit(&h->c_version, 0, memory_order_relaxed);
    s->free_holds = grown(s->free_holds, &s->cap_free_holds, s->n_free_holds + 1, sizeof *s->free_holds);
    s->free_holds[s->n_free_holds++] = i;
}

uint32_t ledger_state__reversal_find(const struct ledger_state *s, uint64_t seq)
{
    uint32_t i = ledger_dir_first(&s->reversal_dir, seq_hash(seq));
    while (i != 0 && reversal_at(s, i)->seq != seq)
        i = atomic_load_explicit(&reversal_at(s, i)->next, memory_order_acquire);
    return i;
}

uint32_t ledger_state__reversal_make(struct ledger_state *s, uint64_t seq)
{
    uint32_t i = ledger_slab_take(&s->reversals);
    if (i == 0)
        return 0;
    reversal_at(s, i)->seq = seq;
    ledger_dir_insert(&s->reversal_dir, seq_hash(seq), i);
    return i;
}

void ledger_state__account_unmake(struct ledger_state *s, uint32_t i)
{
    struct account *a = account_at(s, i);
    ledger_dir_remove(&s->account_dir, account_hash(s, i), i);
    if (a->name_len > NAME_INLINE)
        free(a->name.heap);
    a->name_len = 0;
    ledger_slab_give_back(&s->accounts, i);
}

void ledger_state__asset_unmake(struct ledger_state *s, uint32_t i)
{
    ledger_dir_remove(&s->asset_dir, asset_hash(s, i), i);
    ledger_slab_give_back(&s->assets, i);
}

void ledger_state__reversal_unmake(struct ledger_state *s, uint32_t i)
{
    ledger_dir_remove(&s->reversal_dir, reversal_hash(s, i), i);
    ledger_slab_give_back(&s->reversals, i);
}

uint32_t ledger_state__lane_make(struct ledger_state *s, uint32_t account, uint16_t lane)
{
    struct account *a = account_at(s, account);
    uint32_t i = ledger_slab_take(&s->lanes);
    if (i == 0)
        return 0;
    lane_at(s, i)->lane = lane;
    lane_at(s, i)->account = account;
    atomic_store_explicit(&lane_at(s, i)->next, atomic_load_explicit(&a->lanes, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&a->lanes, i, memory_order_release); /* pairs with the account reader */
    return i;
}

/* ---- the heap of expiries ---- */

static bool due_before(struct due a, struct due b)
{
    return a.until != b.until ? a.until < b.until : a.seq < b.seq;
}

static void heap_sink(struct due *v, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t least = i, l = 2 * i + 1, r = l + 1;
        if (l < n && due_before(v[l], v[least]))
            least = l;
        if (r < n && due_before(v[r], v[least]))
            least = r;
        if (least == i)
            return;
        struct due t = v[i];
        v[i] = v[least];
        v[least] = t;
        i = least;
    }
}

static bool due_is_live(const struct ledger_state *s, struct due d)
{
    const struct hold *h = hold_at(s, d.hold);
    return h->seq == d.seq && h->closed_seq == 0;
}

static void heap_compact(struct ledger_state *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_heap; i++)
        if (due_is_live(s, s->heap[i]))
            s->heap[n++] = s->heap[i];
    s->n_heap = n;
    for (uint32_t i = n / 2; i-- > 0;)
        heap_sink(s->heap, n, i);
}

void ledger_state__heap_push(struct ledger_state *s, struct due d)
{
    if (s->n_heap > 1024 && s->n_heap > 2 * s->open_holds)
        heap_compact(s);
    s->heap = grown(s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap);
    uint32_t i = s->n_heap++;
    for (; i > 0 && due_before(d, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = d;
}

static const struct due *heap_top(struct ledger_state *s)
{
    while (s->n_heap > 0 && !due_is_live(s, s->heap[0])) {
        s->heap[0] = s->heap[--s->n_heap];
        heap_sink(s->heap, s->n_heap, 0);
    }
    return s->n_heap > 0 ? &s->heap[0] : NULL;
}

void ledger_state__closed_push(struct ledger_state *s, uint32_t hold)
{
    if (s->n_closed == s->cap_closed) {
        uint32_t cap = s->cap_closed == 0 ? 64 : s->cap_closed * 2;
        uint32_t *fresh = malloc(cap * sizeof *fresh);
        CHECK(fresh != NULL);
        for (uint32_t i = 0; i < s->n_closed; i++)
            fresh[i] = s->closed[(s->closed_head + i) % s->cap_closed];
        free(s->closed);
        s->closed = fresh;
        s->closed_head = 0;
        s->cap_closed = cap;
    }
    s->closed[(s->closed_head + s->n_closed++) % s->cap_closed] = hold;
}

void ledger_state_recycle(struct ledger_state *s, uint64_t durable_seq)
{
    while (s->n_closed > 0) {
        uint32_t i = s->closed[s->closed_head];
        if (hold_at(s, i)->closed_seq > durable_seq)
            return;
        ledger_state__hold_forget(s, i);
        s->closed_head = (s->closed_head + 1) % s->cap_closed;
        s->n_closed--;
    }
}

bool ledger_state_due(struct ledger_state *s, uint64_t now_ms, struct ledger_due *out_due)
{
    const struct due *d = heap_top(s);
    if (d == NULL || d->until > now_ms)
        return false;
    const struct hold *h = hold_at(s, d->hold);
    const struct row *r = row_at(s, h->row);
    *out_due = (struct ledger_due){h->seq,
                                   {h->id, h->id_len},
                                   account_name(account_at(s, r->account)),
                                   asset_name(asset_at(s, r->asset)),
                                   {narrow(h->remaining)}};
    return true;
}

uint64_t ledger_state_next_expiry(struct ledger_state *s)
{
    const struct due *d = heap_top(s);
    return d == NULL ? UINT64_MAX : d->until;
}
