/*
 * The ledger's protobuf messages (proto/ron/ledger.proto) as the structs of ledger_client.h, and back.
 *
 * Ownership   Everything decoded lives in the arena; it does not point into the frame.
 * Threads     Pure.
 * Errors      Decoding: ERR_CORRUPT when the bytes are not what the ledger would say, ERR_NO_MEMORY when the arena is full.
 */
#ifndef RON_LEDGER_CLIENT_OAP_CODEC_H
#define RON_LEDGER_CLIENT_OAP_CODEC_H

#include "base/arena.h"
#include "base/buf.h"
#include "ledger_client/ledger_client.h"

enum ledger_oap_op {
    LEDGER_OAP_INGEST = 1,
    LEDGER_OAP_ACCOUNT,
    LEDGER_OAP_UNIT,
    LEDGER_OAP_HEAD,
    LEDGER_OAP_SUBSCRIBE,
    LEDGER_OAP_CONSISTENCY,
    LEDGER_OAP_ENTRIES,
    LEDGER_OAP_ROOTS,
    LEDGER_OAP_INCLUSION
};

/* Requests. The one with text and the ones with two numbers are all there is besides ingest. */
void ledger_oap_put_ingest(struct buf *b, const struct ledger_ingest *rq);
void ledger_oap_put_text(struct buf *b, struct str text, uint64_t second); /* 1: text, 2: number */
void ledger_oap_put_numbers(struct buf *b, unsigned first_field, uint64_t first, uint64_t second);

NODISCARD enum err ledger_oap_results(struct bytes in, struct arena *a, const struct ledger_result **out,
                                      size_t *out_n);
NODISCARD enum err ledger_oap_unit_result(struct bytes in, struct arena *a, struct ledger_result *out);
NODISCARD enum err ledger_oap_account(struct bytes in, struct arena *a, struct ledger_account_reply *out);
NODISCARD enum err ledger_oap_head(struct bytes in, struct arena *a, struct ledger_head_reply *out);
NODISCARD enum err ledger_oap_entries(struct bytes in, struct arena *a, struct ledger_entries_reply *out);
NODISCARD enum err ledger_oap_roots(struct bytes in, struct arena *a, struct ledger_roots_reply *out);
NODISCARD enum err ledger_oap_inclusion(struct bytes in, struct arena *a, struct ledger_proof_reply *out);
NODISCARD enum err ledger_oap_consistency(struct bytes in, struct arena *a, struct ledger_proof_reply *out);
NODISCARD enum err ledger_oap_event(struct bytes in, struct arena *a, struct ledger_commit_event *out,
                                    bool *out_lagged);

#endif
