#include "net/admission.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/siphash.h"

enum { SETS = 2048, WAYS = 8 };

struct net_admission_slot {
    _Atomic uint64_t key; /* hash of the client's address, 0: free */
    _Atomic int64_t full_at_ns;
    _Atomic uint32_t inflight;
};

struct net_admission {
    _Atomic int64_t full_at_ns;
    _Atomic size_t inflight;
    struct net_admission_slot slots[SETS * WAYS];
};

enum err net_admission_create(struct net_admission **out)
{
    struct net_admission *a = calloc(1, sizeof *a);
    if (!a)
        return ERR_NO_MEMORY;
    *out = a;
    return ERR_OK;
}

void net_admission_destroy(struct net_admission *a)
{
    free(a);
}

size_t net_admission_inflight(const struct net_admission *a)
{
    return atomic_load_explicit(&a->inflight, memory_order_relaxed);
}

/* GCRA: a request costs 1/rate; the bucket may be at most burst requests away from full, and holds one however few a second bring.
 * Relaxed: one word decides. */
static bool bucket_take(_Atomic int64_t *full_at, double rate, double burst, int64_t now_ns,
                        unsigned *out_wait_s)
{
    const double second = 1e9, most = 1e15; /* eleven days: far from what a clock of 64 bits can hold */
    double each = second / rate < most ? second / rate : most, all = burst > 1 ? each * burst : each;
    int64_t cost = (int64_t)each, room = (int64_t)(all < most ? all : most);
    int64_t seen = atomic_load_explicit(full_at, memory_order_relaxed);
    for (;;) {
        int64_t base = seen > now_ns ? seen : now_ns;
        int64_t over = base + cost - now_ns - room;
        if (over > 0) {
            *out_wait_s = (unsigned)((over + 999999999) / 1000000000);
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(full_at, &seen, base + cost, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

/* IPv6 clients own a /64; IPv4 ones their whole mapped address. */
static uint64_t client_key(const uint8_t peer[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint64_t key = memcmp(peer, mapped, sizeof mapped) == 0 ? siphash13(siphash_process_key(), peer, 16)
                                                            : siphash13(siphash_process_key(), peer, 8);
    return key ? key : 1;
}

static struct net_admission_slot *slot_find(struct net_admission *a, uint64_t key)
{
    struct net_admission_slot *set = &a->slots[(key % SETS) * WAYS], *oldest = NULL;
    for (size_t i = 0; i < WAYS; i++) {
        struct net_admission_slot *s = &set[i];
        if (atomic_load_explicit(&s->key, memory_order_relaxed) == key)
            return s;
        if (atomic_load_explicit(&s->inflight, memory_order_relaxed) > 0)
            continue;
        if (!oldest || atomic_load_explicit(&s->full_at_ns, memory_order_relaxed) <
                           atomic_load_explicit(&oldest->full_at_ns, memory_order_relaxed))
            oldest = s;
    }
    if (oldest) {
        atomic_store_explicit(&oldest->key, key, memory_order_relaxed);
        atomic_store_explicit(&oldest->full_at_ns, 0, memory_order_relaxed);
    }
    return oldest;
}

static enum err refused(struct net_admission_refusal *out, enum err e, unsigned wait_s, bool own)
{
    *out = (struct net_admission_refusal){wait_s, own};
    return e;
}

static enum err take_rates(struct net_admission *a, const struct net_admission_limits *l,
                           struct net_admission_slot *slot, int64_t now_ns,
                           struct net_admission_refusal *out_why)
{
    unsigned wait_s = 0;
    if (slot && l->rate_per_peer > 0 &&
        !bucket_take(&slot->full_at_ns, l->rate_per_peer, 2 * l->rate_per_peer, now_ns, &wait_s))
        return refused(out_why, ERR_RATE_LIMITED, wait_s, true);
    double burst = l->burst > 0 ? l->burst : l->rate;
    if (l->rate > 0 && !bucket_take(&a->full_at_ns, l->rate, burst, now_ns, &wait_s))
        return refused(out_why, ERR_RATE_LIMITED, wait_s, false);
    return ERR_OK;
}

static bool slot_enter(struct net_admission_slot *slot, size_t most)
{
    uint32_t before = atomic_fetch_add_explicit(&slot->inflight, 1, memory_order_relaxed);
    if (!most || before < most)
        return true;
    atomic_fetch_sub_explicit(&slot->inflight, 1, memory_order_relaxed);
    return false;
}

enum err net_admission_enter(struct net_admission *a, const struct net_admission_limits *limits,
                             const uint8_t peer[16], int64_t now_ns,
                             struct net_admission_permit *out_permit, struct net_admission_refusal *out_why)
{
    bool own = limits->rate_per_peer > 0 || limits->inflight_per_peer > 0;
    struct net_admission_slot *slot = own ? slot_find(a, client_key(peer)) : NULL;
    enum err e = take_rates(a, limits, slot, now_ns, out_why);
    if (e != ERR_OK)
        return e;
    if (slot && !slot_enter(slot, limits->inflight_per_peer))
        return refused(out_why, ERR_BUSY, 0, true);
    size_t before = atomic_fetch_add_explicit(&a->inflight, 1, memory_order_relaxed);
    if (before < limits->inflight) {
        *out_permit = (struct net_admission_permit){a, slot};
        return ERR_OK;
    }
    atomic_fetch_sub_explicit(&a->inflight, 1, memory_order_relaxed);
    if (slot)
        atomic_fetch_sub_explicit(&slot->inflight, 1, memory_order_relaxed);
    return refused(out_why, ERR_BUSY, 0, false);
}

void net_admission_leave(struct net_admission_permit *permit)
{
    if (!permit->from)
        return;
    CHECK(atomic_fetch_sub_explicit(&permit->from->inflight, 1, memory_order_relaxed) > 0);
    if (permit->slot)
        CHECK(atomic_fetch_sub_explicit(&permit->slot->inflight, 1, memory_order_relaxed) > 0);
    *permit = (struct net_admission_permit){NULL, NULL};
}
