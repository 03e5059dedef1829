/*
 * What the files of the direct client share. Nobody else includes this.
 *
 *   direct.c         open, close, and the table of operations
 *   direct_ingest.c  a call becomes a job, and its answer a result; or the clock answers
 *   direct_reads.c   what may touch the disk goes through read_tx, the rest is answered at once
 *   direct_feed.c    commit events, as one more stream of the publisher
 */
#ifndef RON_LEDGER_DIRECT_INTERNAL_H
#define RON_LEDGER_DIRECT_INTERNAL_H

#include "ledger_client/bearer.h"
#include "ledger_client/ledger_client.h"
#include "services/ledger/core/entry.h"
#include "services/ledger/service.h"

struct direct_ingest;

struct direct {
    struct ledger_client base;
    struct ledger_service *s;
    struct ledger_bearer bearer;
    _Atomic uint32_t open_calls; /* not answered yet: close waits for them to be none */
    _Atomic bool closed;
    struct direct *next;              /* of the service; under its direct_lock, like the next */
    struct direct_ingest *first_open; /* whose caller waits */
    _Atomic uint32_t owed;            /* whose caller was told that nobody knows; relaxed: a gauge */
};

extern const struct ledger_answer ledger_direct__answered;

struct direct *ledger_direct__of(struct ledger_client *c);
struct ledger_answer ledger_direct__refused(enum err err);
struct ledger_entry ledger_direct__entry_out(const struct core_entry *e);
/* The client's token, judged as any other. The caller releases it. */
NODISCARD enum err ledger_direct__cap(struct direct *d, struct auth_cap **out_cap);

/* The operations, as in ledger_client.h. */
void ledger_direct__ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                           ledger_ingest_fn *fn, void *ctx);
void ledger_direct__unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                         ledger_unit_fn *fn, void *ctx);
void ledger_direct__account(struct ledger_client *c, struct str account, uint64_t min_seq,
                            struct deadline by, ledger_account_fn *fn, void *ctx);
void ledger_direct__entry(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                          void *ctx);
void ledger_direct__entries(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                            ledger_entries_fn *fn, void *ctx);
void ledger_direct__roots(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                          ledger_roots_fn *fn, void *ctx);
void ledger_direct__proof(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                          ledger_proof_fn *fn, void *ctx);
void ledger_direct__consistency(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                                ledger_proof_fn *fn, void *ctx);
void ledger_direct__head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx);
struct ledger_feed *ledger_direct__feed(struct ledger_client *c, uint64_t since,
                                        const struct ledger_feed_sink *sink, void *ctx);
void ledger_direct__feed_stop(struct ledger_feed *f);

#endif
