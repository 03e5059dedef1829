/*
 * One wallet operation as the client asked for it, and the names derived from it.
 *
 * Canonical request   the members that were sent plus "op", as canonical JSON, lane 0 left out
 * txid                tx_ + 32 hex: names tenant, key and request together, so it is the payload's fingerprint too
 * idem_id             w: + 64 hex: names tenant and key only, so that the ledger notices a key used twice
 *
 * Ownership   All text is borrowed from the request.
 * Threads     Pure.
 */
#ifndef RON_WALLET_CORE_OP_H
#define RON_WALLET_CORE_OP_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"
#include "base/sha256.h"

enum wallet_kind {
    WALLET_ISSUE,
    WALLET_TRANSFER,
    WALLET_BURN,
    WALLET_HOLD,
    WALLET_CAPTURE,
    WALLET_RELEASE,
    WALLET_KIND_COUNT
};

enum {
    WALLET_TXID_CHARS = 36,    /* with terminator */
    WALLET_IDEM_ID_CHARS = 67, /* with terminator */
    WALLET_KEY_MAX = 128,
    WALLET_TENANT_MAX = 64,
    WALLET_MEMO_MAX = 160,
    WALLET_REQUEST_MAX = 1024, /* canonical request: every member at its limit, escapes included */
};

#define WALLET_NONCE_MAX ((UINT64_C(1) << 48) - 1)

struct wallet_op {
    enum wallet_kind kind;
    struct str from, to, asset; /* p NULL: not a member of this operation, or not sent */
    struct money amount;
    bool has_amount;
    uint64_t nonce; /* counter in its lane; 0: none */
    uint32_t lane;
    uint64_t expires_in_s;
    bool has_expires_in;
    struct str hold; /* txid of a hold */
    struct str memo; /* p NULL: none */
};

const char *wallet_kind_name(enum wallet_kind kind); /* "issue", "transfer", … */
NODISCARD enum err wallet_kind_parse(struct str s, enum wallet_kind *out_kind);

/* Whether the operation names a nonce, i.e. spends from `from` by the owner's order. */
bool wallet_kind_has_nonce(enum wallet_kind kind);
/* Lane and counter as the ledger wants them. */
uint64_t wallet_ledger_nonce(uint32_t lane, uint64_t counter);

void wallet_request_canonical(const struct wallet_op *op, struct buf *out);
void wallet_txid(struct str tenant, struct str key, struct str canonical, char out[WALLET_TXID_CHARS]);
void wallet_idem_id(struct str tenant, struct str key, char out[WALLET_IDEM_ID_CHARS]);
/* The hashes the two are written from: a request that is answered from memory never needs the text. */
void wallet_txid_hash(struct str tenant, struct str key, struct str canonical, struct sha256 *out);
void wallet_idem_hash(struct str tenant, struct str key, struct sha256 *out);
void wallet_txid_write(const struct sha256 *hash, char out[WALLET_TXID_CHARS]);
void wallet_idem_id_write(const struct sha256 *hash, char out[WALLET_IDEM_ID_CHARS]);

/* Grammar of what a client sends. */
bool wallet_is_txid(struct str s); /* ^tx_[0-9a-f]{32}$ */
bool wallet_is_memo(struct str s); /* 1-160 bytes, no control characters; UTF-8 was checked by the reader */
bool wallet_is_tenant(struct str s); /* ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$ */
/* Idempotency-Key: bare or as a quoted string; *out_key is what stands inside. ERR_SYNTAX. */
NODISCARD enum err wallet_key_parse(struct str header, struct str *out_key);

#endif
