/*
 * One operation as the unit of the ledger that carries it out, and the way back: from a committed unit to the receipt.
 *
 * Both ways are exact inverses. A receipt is never stored: what a unit says, together with its meta, is enough to write
 * the same bytes again after an eviction, after a restart or in another instance. A unit that does not name itself
 * (txid and idem_id must come out of its own contents) was not made by a wallet and is never shown as a receipt.
 *
 * Ownership   All text is borrowed: from the operation when building, from the entries and the meta when rebuilding.
 * Threads     Pure.
 */
#ifndef RON_WALLET_CORE_UNIT_H
#define RON_WALLET_CORE_UNIT_H

#include "services/wallet/core/meta.h"
#include "services/wallet/core/receipt.h"

/* The numbers of the ledger's kinds. */
enum wallet_entry_kind {
    WALLET_ENTRY_NONE = 0,
    WALLET_ENTRY_MINT = 1,
    WALLET_ENTRY_BURN = 2,
    WALLET_ENTRY_TRANSFER = 3,
    WALLET_ENTRY_HOLD = 4,
    WALLET_ENTRY_CAPTURE = 5,
    WALLET_ENTRY_RELEASE = 6,
};

enum { WALLET_UNIT_ENTRIES_MAX = 2, WALLET_REST_ID_CHARS = WALLET_TXID_CHARS + 2 };

struct wallet_entry {
    enum wallet_entry_kind kind;
    struct str id, account, to, asset, ref_id; /* n 0: absent */
    struct money amount;
    uint64_t nonce; /* lane << 48 | counter; 0: none */
    int64_t ts_ms, hold_until_ms;
};

/* What capture and release take from the hold they settle. */
struct wallet_hold {
    struct str payer, payee, asset;
    struct money amount;
};

struct wallet_unit {
    char txid[WALLET_TXID_CHARS];
    char rest_id
        [WALLET_REST_ID_CHARS]; /* txid:r, the entry that gives back the rest of a partly captured hold */
    char idem_id[WALLET_IDEM_ID_CHARS];
    struct wallet_entry entries[WALLET_UNIT_ENTRIES_MAX];
    size_t n_entries;
    uint8_t meta[WALLET_META_MAX];
    size_t meta_n;
    struct wallet_receipt receipt; /* sealed; seq, root and tree_size are the ledger's to add */
};

struct wallet_frame {
    struct str tenant, key;
    int64_t ts_ms;
    int64_t hold_ttl_s;  /* for a hold that names none */
    const char *idem_id; /* tenant's and key's, when it is written already; else NULL */
};

/* The receipt of an operation as far as the wallet decides it, not sealed. The rest is as below. */
NODISCARD enum err wallet_receipt_draft(const struct wallet_op *op, const struct wallet_frame *frame,
                                        const struct wallet_hold *hold, const char *txid,
                                        struct wallet_receipt *out);

/*
 * txid must be the operation's. `hold` is NULL unless it settles one. ERR_AMOUNT_EXCEEDS: a capture of more than the
 * hold. The unit points into itself: it must not be moved.
 */
NODISCARD enum err wallet_unit_build(const struct wallet_op *op, const struct wallet_frame *frame,
                                     const struct wallet_hold *hold, const char *txid,
                                     struct wallet_unit *out);

struct wallet_rebuilt {
    struct wallet_receipt receipt; /* sealed and complete */
    struct str tenant;
    struct wallet_op op; /* the request as it was sent */
};

/* ERR_CORRUPT: not a unit of ours. seq, root and tree_size are as the ledger told them. */
NODISCARD enum err wallet_unit_rebuild(struct str idem_id, const struct wallet_entry *entries, size_t n,
                                       struct bytes meta, uint64_t seq, const struct sha256 *root,
                                       uint64_t tree_size, struct wallet_rebuilt *out);

#endif
