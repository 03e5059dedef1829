/*
 * The ledger's journal, checked by somebody who does not trust the ledger: no source of services/ledger is used here. It reads the
 * files as docs/formats/ledger.md describes them and recomputes everything: CRCs, leaves, fingerprints, every group's root, seqs,
 * uniqueness of units and ids, nonces, balances, holds, reverses, supply; then compares tree, group table and a signed note.
 *
 * Threads     One.
 */
#ifndef RON_LEDGER_VERIFY_H
#define RON_LEDGER_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "rt/lock.h"

struct ledger_verify_report {
    uint64_t seq, groups, accounts, open_holds;
    struct sha256 root, state_digest;
    /* Where it first went wrong. */
    char file[96];
    uint64_t byte;
    char rule[160];
    uint64_t torn_bytes; /* at the end, never acknowledged */
};

/* For every entry in order; may be NULL. */
typedef void ledger_verify_entry_fn(void *ctx, uint64_t seq, struct str leaf,
                                    const struct sha256 *leaf_hash, struct str idem_id, struct str kid,
                                    uint64_t ledger_ms);

/* 0: all is well, 1: something is wrong (see the report), 2: cannot read. `note` and `vkey` may be empty: without a key a note's
 * head must be in the journal, whoever signed it. */
int ledger_verify(const char *dir, struct str note, struct str vkey, ledger_verify_entry_fn *fn, void *ctx,
                  struct ledger_verify_report *out);
/* The journal alone: whole, and as long as what was derived from it says, whatever else that holds. */
int ledger_verify_journal(const char *dir, ledger_verify_entry_fn *fn, void *ctx,
                          struct ledger_verify_report *out);

/* A tlog-proof file against a vkey. ERR_OK, ERR_SYNTAX, ERR_UNAUTHENTICATED, ERR_CORRUPT. */
NODISCARD enum err ledger_verify_proof(struct str proof, struct str vkey, uint64_t *out_index,
                                       uint64_t *out_size);

#endif
