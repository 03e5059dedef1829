/*
 * Journal records: what a commit group is made of.
 *
 * Record   0 length u32 (whole, multiple of 8) | 4 CRC32C of 8..end | 8 type u8 | 9 version u8 = 1 | 10 n u16
 *          12 topic_id u32 | 16 body.  Little-endian. Bodies: docs/formats/mailbox.md.
 * Writer   Appends to the caller's memory; it never writes past cap. CRCs are put by mailbox_rec_seal(), once per group.
 * Reader   Trusts nothing: every length, count and CRC is checked before a view is handed out; views point into the input.
 */
#ifndef RON_MAILBOX_CORE_RECORD_H
#define RON_MAILBOX_CORE_RECORD_H

#include "services/mailbox/core/canon.h"
#include "services/mailbox/core/tenant.h"

enum mailbox_rec_type {
    MAILBOX_REC_TOPIC = 1,
    MAILBOX_REC_ENQ,
    MAILBOX_REC_MOVE,
    MAILBOX_REC_LEASE,
    MAILBOX_REC_SETTLE,
    MAILBOX_REC_FAIL,
    MAILBOX_REC_REPROC,
    MAILBOX_REC_DEDUP,
    MAILBOX_REC_FORGET,
    MAILBOX_REC_ADOPT,
};

enum mailbox_cause {
    MAILBOX_CAUSE_NACK = 1,
    MAILBOX_CAUSE_LEASE_EXPIRED,
    MAILBOX_CAUSE_INTEGRITY,
    MAILBOX_CAUSE_DEAD,
    MAILBOX_CAUSE_RETENTION,
    MAILBOX_CAUSE_COUNT,
};
const char *mailbox_cause_name(enum mailbox_cause c);
enum mailbox_cause mailbox_cause_parse(struct str s); /* 0 when unknown */

enum mailbox_settle_kind { MAILBOX_SETTLE_ACK = 1, MAILBOX_SETTLE_PURGE, MAILBOX_SETTLE_RETENTION };
enum mailbox_fail_to { MAILBOX_TO_READY, MAILBOX_TO_DELAYED, MAILBOX_TO_DLQ };

enum {
    MAILBOX_REC_HEAD = 16,
    MAILBOX_ENQ_FIXED = 152, /* body before idem_key */
    MAILBOX_MOVE_STATE = 16, /* before the ENQ body */
    MAILBOX_REC_BYTES_MAX = 16 + 16 + 152 + 128 + 128 + 8192 + 737280 + 8,
};

struct mailbox_rec_w {
    uint8_t *p;
    size_t n, cap;
    uint32_t records;
    size_t last; /* offset of the last record: items of the same kind and topic join it */
};

struct mailbox_rec_topic {
    struct uuid chain_id;
    uint64_t created_ms, last_seq;
    struct sha256 chain;
    struct str name;
    struct str tenant; /* empty: the default */
};

struct mailbox_rec_enq {
    struct uuid msg_id;
    uint64_t topic_seq, ts_ms, not_before_ms;
    struct sha256 payload_hash, chain_prev, chain;
    struct str idem_key, corr_id;
    struct bytes attrs, payload;
};

struct mailbox_rec_move {
    uint16_t attempt;
    uint8_t tries, state; /* enum mailbox_state */
    bool late;            /* MAILBOX_F_LATE, when not_before and the attempts do not tell */
    uint64_t due_ms;
    bool cut; /* there were more causes than the FAILs behind it tell */
};

struct mailbox_rec_fail {
    struct uuid msg_id;
    uint64_t at_ms, not_before_ms;
    uint16_t attempt;
    uint8_t cause, to;
    struct str reason;
};

struct mailbox_rec_dedup {
    struct mailbox_digest digest;
    struct uuid msg_id;
    uint64_t topic_seq, ts_ms;
    struct sha256 payload_hash, chain;
};

struct mailbox_rec {
    enum mailbox_rec_type type;
    uint16_t n;
    uint32_t topic_id;
    struct bytes whole; /* header included */
    struct mailbox_rec_topic topic;
    struct mailbox_rec_enq enq; /* ENQ and MOVE */
    struct mailbox_rec_move move;
    struct mailbox_rec_fail fail;
    struct mailbox_rec_dedup dedup;
    const uint8_t *items; /* LEASE, SETTLE (24 bytes each), REPROC (24), ADOPT (2) */
};

void mailbox_rec_w_init(struct mailbox_rec_w *w, void *mem, size_t cap);
void mailbox_rec_w_reset(struct mailbox_rec_w *w);
size_t mailbox_rec_enq_bytes(const struct mailbox_rec_enq *e);

/* Writers answer ERR_NO_SPACE when the record does not fit; nothing is written then. */
NODISCARD enum err mailbox_rec_put_topic(struct mailbox_rec_w *w, uint32_t topic_id,
                                         const struct mailbox_rec_topic *t);
NODISCARD enum err mailbox_rec_put_enq(struct mailbox_rec_w *w, uint32_t topic_id,
                                       const struct mailbox_rec_enq *e);
/* The MAILBOX_MOVE_STATE bytes before the body. */
struct mailbox_rec_move mailbox_rec_move_at(const uint8_t *b);
NODISCARD enum err mailbox_rec_put_move(struct mailbox_rec_w *w, uint32_t topic_id,
                                        const struct mailbox_rec_move *m, const struct mailbox_rec_enq *e);
NODISCARD enum err mailbox_rec_put_lease(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                                         uint16_t attempt, uint8_t tries);
NODISCARD enum err mailbox_rec_put_settle(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                                          enum mailbox_settle_kind kind);
NODISCARD enum err mailbox_rec_put_fail(struct mailbox_rec_w *w, uint32_t topic_id,
                                        const struct mailbox_rec_fail *f);
NODISCARD enum err mailbox_rec_put_reproc(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                                          uint64_t not_before_ms);
NODISCARD enum err mailbox_rec_put_dedup(struct mailbox_rec_w *w, uint32_t topic_id,
                                         const struct mailbox_rec_dedup *d);
NODISCARD enum err mailbox_rec_put_forget(struct mailbox_rec_w *w, uint32_t topic_id);
NODISCARD enum err mailbox_rec_put_adopt(struct mailbox_rec_w *w, uint16_t bucket);
void mailbox_rec_seal(struct mailbox_rec_w *w); /* fills in every CRC */

/* Decodes the record at *at of a group's payload; ERR_EMPTY at the end, ERR_CORRUPT when it is not one. */
NODISCARD enum err mailbox_rec_next(struct bytes payload, size_t *at, struct mailbox_rec *out_rec);
/* The same without the CRC: for bytes whose frame has just been verified. */
NODISCARD enum err mailbox_rec_next_trusted(struct bytes payload, size_t *at, struct mailbox_rec *out_rec);

struct mailbox_rec_lease_item {
    struct uuid id;
    uint16_t attempt;
    uint8_t tries;
};
struct mailbox_rec_lease_item mailbox_rec_lease_at(const struct mailbox_rec *r, uint16_t i);
struct uuid mailbox_rec_settle_at(const struct mailbox_rec *r, uint16_t i,
                                  enum mailbox_settle_kind *out_kind);
struct uuid mailbox_rec_reproc_at(const struct mailbox_rec *r, uint16_t i, uint64_t *out_not_before_ms);
uint16_t mailbox_rec_adopt_at(const struct mailbox_rec *r, uint16_t i);

/* new_root of a group; payload must be sealed and well formed. */
void mailbox_group_root(const struct sha256 *prev_root, uint64_t group_no, struct bytes payload,
                        struct sha256 *out_root, uint32_t *out_enqs);

#endif
