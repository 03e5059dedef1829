/*
 * Idempotency: what is known here about (tenant, key). One shard of it; the shell has several, each under its lock.
 *
 * An entry is OPEN while its operation is not settled: it points to its owner, who alone ends it. Then it is gone, or
 * DONE with the receipt's bytes. Only DONE entries are evicted, the least recently used first, when bytes or time run
 * out: the ledger never forgets, so losing one costs a round trip and nothing else.
 *
 * Ownership   The shard owns its entries; the owner pointer is the caller's.
 * Threads     None: the caller locks.
 * Memory      One allocation per entry; receipts within `bytes_max`.
 */
#ifndef RON_WALLET_CORE_IDEM_H
#define RON_WALLET_CORE_IDEM_H

#include "base/map.h"
#include "services/wallet/core/receipt.h"

struct wallet_idem_name {
    struct key128 key;  /* first half of the hash in idem_id: tenant and key */
    struct key128 txid; /* and of the whole request */
};

struct wallet_idem_name wallet_idem_name(const char *idem_id, const char *txid);
static inline struct wallet_idem_name wallet_idem_name_of(const struct sha256 *idem,
                                                          const struct sha256 *txid)
{
    return (struct wallet_idem_name){key128_of(idem->b), key128_of(txid->b)};
}
struct key128 wallet_txid_key(struct str txid); /* must be one */

/* Places in the receipt's text (accounts and assets need no escapes), so that who may see it is decided without parsing. */
struct wallet_sides {
    enum wallet_kind kind;
    uint16_t from, from_n, to, to_n, asset, asset_n;
    struct money amount;
};

void wallet_sides_of(const struct wallet_receipt *r, struct str written, struct wallet_sides *out);
static inline struct str wallet_side(struct str receipt, uint16_t at, uint16_t n)
{
    return n ? str_of(receipt.p + at, n) : str_of(NULL, 0);
}

struct wallet_idem_entry {
    struct wallet_idem_name name;
    void *owner;                             /* not NULL: OPEN */
    struct wallet_idem_entry *newer, *older; /* DONE */
    int64_t done_ns;
    struct wallet_sides sides;
    uint16_t n, asked_n; /* of the receipt; of the body behind it, 0: not kept */
    char receipt[];
};

/* The body it was asked for with, when it is short enough to be kept: the same bytes again are the same request. Of what settles a
 * hold, the hold's payee instead: who acts is not always in the receipt. */
static inline struct str wallet_idem_asked(const struct wallet_idem_entry *e)
{
    return str_of(e->receipt + e->n, e->asked_n);
}

struct wallet_idem {
    struct map128 by_key, by_txid;
    struct wallet_idem_entry *newest, *oldest;
    size_t bytes, bytes_max, open;
    uint64_t evicted_bytes, evicted_ttl; /* how many for which cause */
};

enum wallet_claim {
    WALLET_CLAIM_OWNER,
    WALLET_CLAIM_DONE,
    WALLET_CLAIM_OPEN,
    WALLET_CLAIM_OTHER,
    WALLET_CLAIM_ABSENT
};

NODISCARD enum err wallet_idem_init(struct wallet_idem *s, size_t bytes_max);
void wallet_idem_fini(struct wallet_idem *s);

/* Who has it? *out_entry is set for DONE and OPEN, and is valid until the next call. DONE counts as used now. */
enum wallet_claim wallet_idem_look(struct wallet_idem *s, const struct wallet_idem_name *name,
                                   struct wallet_idem_entry **out_entry);
/* The same, and takes it when it is absent: OWNER. ERR_NO_MEMORY. */
NODISCARD enum err wallet_idem_claim(struct wallet_idem *s, const struct wallet_idem_name *name,
                                     void *owner, enum wallet_claim *out_claim,
                                     struct wallet_idem_entry **out_entry);
/* The owner's operation is committed. Without memory the entry is gone, as if evicted. `asked`: see wallet_idem_asked. */
void wallet_idem_done(struct wallet_idem *s, const struct wallet_idem_name *name, const void *owner,
                      struct str receipt, struct str asked, const struct wallet_sides *sides,
                      int64_t now_ns);
/* What is DONE under this key and was asked for with these very bytes; NULL when that cannot be said. Counts as used.
 * *out_absent: nothing is known of the key. */
struct wallet_idem_entry *wallet_idem_again(struct wallet_idem *s, struct key128 key, enum wallet_kind kind,
                                            struct str asked, bool *out_absent);
/* The owner gives it up: the key is as before. */
void wallet_idem_drop(struct wallet_idem *s, const struct wallet_idem_name *name, const void *owner);
/* A receipt that was read back from the ledger; nothing happens when the key is known here. */
void wallet_idem_learn(struct wallet_idem *s, const struct wallet_idem_name *name, struct str receipt,
                       const struct wallet_sides *sides, int64_t now_ns);

struct wallet_idem_entry *wallet_idem_find_tx(struct wallet_idem *s, struct key128 txid); /* NULL */
size_t wallet_idem_expire(struct wallet_idem *s, int64_t before_ns,
                          size_t max); /* done before that; oldest use first */
size_t wallet_idem_count(const struct wallet_idem *s);

#endif
