/*
 * What the files of settlement share: the settler with its call slots, and the way a chunk looks as a ledger unit.
 *
 *   settlement.c        one pass over a run: look up, check the funds, send, judge
 *   settlement_calls.c  calls of the ledger: slots, answers, retries of reads, the breaker
 *   settlement_units.c  leaves of the table as entries, and the digest that two units with the same content share
 *
 * Threads     Callbacks fill a slot and send it to `answers`; everything else by the one thread that settles.
 */
#ifndef RON_REWARDER_SETTLEMENT_INTERNAL_H
#define RON_REWARDER_SETTLEMENT_INTERNAL_H

#include "base/rng.h"
#include "rt/chan.h"
#include "services/rewarder/settlement.h"

enum {
    SETTLE_CALLS_MAX = REWARDER_LANES_MAX,
    SETTLE_UNITS_PER_CALL = 2,
    SETTLE_ENTRIES_MAX = SETTLE_UNITS_PER_CALL * REWARDER_CHUNK,
    SETTLE_ATTEMPTS_MAX = 3,
    SETTLE_META_MAX = 512,
};

struct settle_answer {
    enum ledger_status status;
    uint64_t seq_start, seq_end, tree_size;
    struct sha256 root;
    bool retryable;
    char reason[REWARDER_REASON_CHARS];
};

/* One outstanding call. Filled by the ledger's callback, then sent to `answers`. */
struct settle_call {
    struct rewarder_settler *settler;
    bool busy;       /* emitter's side only */
    int64_t sent_ns; /* likewise: when the last ingest left */
    enum ledger_outcome outcome;
    enum err err;
    int status;
    uint32_t retry_after_s;
    char code[REWARDER_REASON_CHARS];
    char asked[SETTLE_UNITS_PER_CALL][132]; /* unit ids, or the account: an answer must be about them */
    /* ingest */
    unsigned lane, units, attempts;
    uint32_t chunk[SETTLE_UNITS_PER_CALL];
    uint64_t nonce[SETTLE_UNITS_PER_CALL]; /* first of each unit */
    struct settle_answer unit[SETTLE_UNITS_PER_CALL];
    /* unit */
    bool found;
    struct sha256 content;
    /* account */
    struct str asset;
    struct rewarder_funds funds;
    /* head */
    bool ready;
};

struct rewarder_settler {
    struct rewarder_settler_spec spec;
    struct rt_chan *answers;
    struct settle_call calls[SETTLE_CALLS_MAX];
    struct rng rng;
    uint64_t head[REWARDER_LANES_MAX]; /* last nonce used, as far as we know */
    struct ledger_entry entries[SETTLE_ENTRIES_MAX];
    char ids[SETTLE_ENTRIES_MAX][REWARDER_ENTRY_ID_LEN + 1];
    uint8_t meta[SETTLE_UNITS_PER_CALL][SETTLE_META_MAX];
};

/* ---- calls ---- */

struct settle_call *rewarder_settle__free_call(struct rewarder_settler *s); /* NULL: all are outstanding */
/* Sends what is in the slot; the answer comes through await(). */
void rewarder_settle__ingest(struct settle_call *c, const struct ledger_ingest *rq);
/* Next answer; NULL when the task was cancelled. */
struct settle_call *rewarder_settle__await(struct rewarder_settler *s, struct rt_task *self) RT_BLOCKS;
/* Takes in the answers to what an earlier, cancelled emitter asked; false when cancelled. */
bool rewarder_settle__quiesce(struct rewarder_settler *s, struct rt_task *self) RT_BLOCKS;

enum settle_read_kind { SETTLE_READ_UNIT, SETTLE_READ_ACCOUNT, SETTLE_READ_HEAD };
struct settle_read {
    enum settle_read_kind kind;
    struct str name, asset;
};
/* One read with its retries, nothing else outstanding. NULL: cancelled. The slot stays valid until the next call. */
struct settle_call *rewarder_settle__read(struct rewarder_settler *s, const struct settle_read *r,
                                          struct rt_task *self) RT_BLOCKS;

/* Whether the answer says that the ledger cannot be had just now. */
bool rewarder_settle__is_transient(const struct settle_call *c);
void rewarder_settle__tell_breaker(struct rewarder_settler *s, const struct settle_call *c);
bool rewarder_settle__breaker_allows(struct rewarder_settler *s);
/* Before the same call is made once more; false when cancelled. */
bool rewarder_settle__pause(struct rewarder_settler *s, const struct settle_call *c,
                            struct rt_task *self) RT_BLOCKS;

/* ---- chunks as units ---- */

/* What must agree between a unit of ours and one the ledger holds: ts and nonces may differ. */
void rewarder_settle__content_add(struct sha256_ctx *h, struct str id, struct str to, struct str asset,
                                  struct money amount);
struct sha256 rewarder_settle__content(const struct rewarder_settle_job *job, uint32_t chunk);
/* The entries of a chunk, numbered from `nonce`; returns how many. */
size_t rewarder_settle__entries(const struct rewarder_settle_job *job, uint32_t chunk, uint64_t nonce,
                                struct ledger_entry *out, char (*ids)[REWARDER_ENTRY_ID_LEN + 1]);

#endif
