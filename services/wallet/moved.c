/*
 * Which accounts moved, and up to which seq that is known.
 *
 *   worker        touches the accounts of its own commits before it answers
 *   invalidator   touches those of every commit it hears of, then raises feed_seq
 *   prober        says that nothing happened since: feed_ns
 *   listener      asks
 *
 * Who reads feed_seq = n must see everything that was touched up to n, or it would vouch for a balance that n changed. So
 * writers touch first and raise feed_seq last, and readers read feed_seq first and the slot last.
 */
#include "services/wallet/wallet.h"

size_t wallet_slot(struct str account)
{
    /* FNV-1a: spread is all that is wanted; a collision costs a refresh. */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < account.n; i++)
        h = (h ^ (uint8_t)account.p[i]) * UINT64_C(0x100000001b3);
    return (size_t)((h >> 32) ^ h) & (WALLET_TOUCHED_SLOTS - 1);
}

/* release, and so is what a later store of feed_seq publishes; pairs with the acquires of wallet_moved */
static void raise_to(struct os_a64 *slot, uint64_t seq)
{
    uint64_t now = os_a64_load(slot, memory_order_relaxed);
    while (now < seq && !os_a64_cas(slot, &now, seq, memory_order_release))
        ;
}

void wallet_touch(struct wallet *w, struct str account, uint64_t seq)
{
    if (account.n)
        raise_to(&w->touched[wallet_slot(account)], seq);
}

void wallet_all_dirty(struct wallet *w, uint64_t seq)
{
    uint64_t before = os_a64_load(&w->floor_seq, memory_order_relaxed);
    raise_to(&w->floor_seq, seq);
    if (seq > before) /* a feed that keeps failing flushes the same again and again */
        obs_log(svc_log(w->svc), OBS_INFO, "cache.flush", OBS_U64("floor_seq", seq), OBS_END);
}

void wallet_heard(struct wallet *w, const struct wallet_heard *c)
{
    uint64_t known = os_a64_load(&w->feed_seq, memory_order_relaxed);
    if (c->seq_end <= known)
        return; /* of a feed before this one */
    if (c->seq_start > known + 1)
        wallet_all_dirty(w, c->seq_start - 1);
    for (size_t i = 0; i < c->n; i++)
        raise_to(&w->touched[c->slots[i]], c->seq_end);
    os_a64_store(&w->feed_seq, c->seq_end, memory_order_release);
    os_a64_store(&w->feed_ns, (uint64_t)c->at_ns, memory_order_release);
}

void wallet_heard_nothing(struct wallet *w, uint64_t head_seq, int64_t since_ns)
{
    if (os_a64_load(&w->feed_seq, memory_order_acquire) == head_seq)
        raise_to(&w->feed_ns, (uint64_t)since_ns);
}

uint64_t wallet_moved(const struct wallet *w, struct str account, struct wallet_feed *out_feed)
{
    /* feed_ns first: with the older time and the newer seq an entry looks older than it is, never younger. */
    out_feed->feed_ns = (int64_t)os_a64_load(&w->feed_ns, memory_order_acquire);
    out_feed->feed_seq = os_a64_load(&w->feed_seq, memory_order_acquire);
    out_feed->floor_seq = os_a64_load(&w->floor_seq, memory_order_acquire);
    return os_a64_load(&w->touched[wallet_slot(account)], memory_order_acquire);
}
