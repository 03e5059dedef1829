/*
 * The receipt: what a committed operation is answered with, the same bytes for ever.
 *
 * Members come in one fixed order. receipt_hash covers those before it (as canonical JSON), so the part that the wallet
 * decided is sealed before the ledger adds seq, root and tree_size.
 *
 * Ownership   Borrowed text only.
 * Threads     Pure.
 */
#ifndef RON_WALLET_CORE_RECEIPT_H
#define RON_WALLET_CORE_RECEIPT_H

#include "base/sha256.h"
#include "services/wallet/core/op.h"

enum { WALLET_RECEIPT_MAX = 2048 };

struct wallet_receipt {
    char txid[WALLET_TXID_CHARS];
    enum wallet_kind kind;
    struct str from, to, asset; /* p NULL: absent */
    struct money amount;
    struct money released; /* a partial capture gave this back; zero: absent */
    uint64_t nonce;        /* 0: absent */
    uint32_t lane;         /* 0: absent */
    struct str hold;
    int64_t expires_at_ms; /* 0: absent */
    struct str memo;
    struct str idem;
    int64_t ts_ms;
    struct sha256 receipt_hash; /* wallet_receipt_seal fills it */
    uint64_t seq;
    struct sha256 root;
    uint64_t tree_size;
};

/* Canonical JSON of the members before receipt_hash: what the hash covers, and what anybody can rebuild. */
void wallet_receipt_preimage(const struct wallet_receipt *r, struct buf *out);
void wallet_receipt_seal(struct wallet_receipt *r);
/* The body on the wire, no newline. */
void wallet_receipt_write(const struct wallet_receipt *r, struct buf *out);
/* Only the members before idem, for a simulation. */
void wallet_receipt_write_draft(const struct wallet_receipt *r, struct buf *out);

#endif
