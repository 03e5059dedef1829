/*
 * Work for the reprocessor: what an operator asked for, on its way from the API.
 *
 * Ownership   Allocated by the API. LIST, PURGE and CHAIN belong to the reprocessor until it posts their call back; RUN belongs to
 *             the jobs table, which keeps the last 256 (the table's lock guards the numbers others read).
 */
#ifndef RON_MAILBOX_OPERATOR_H
#define RON_MAILBOX_OPERATOR_H

#include "services/mailbox/mailbox.h"

enum mailbox_operator_kind {
    MAILBOX_OPERATOR_LIST,
    MAILBOX_OPERATOR_RUN,
    MAILBOX_OPERATOR_PURGE,
    MAILBOX_OPERATOR_CHAIN
};
enum mailbox_run_state { MAILBOX_RUN_RUNNING, MAILBOX_RUN_DONE, MAILBOX_RUN_CANCELED, MAILBOX_RUN_FAILED };

struct mailbox_run_found {
    struct uuid job;
    uint32_t matched;
    enum err err; /* why there is no run */
};

struct mailbox_operator {
    enum mailbox_operator_kind kind;
    struct mailbox_operator *next;     /* in the jobs table */
    struct mailbox_operator *run_next; /* the reprocessor's lists: runs, walks, purges */
    struct mailbox_call *call;         /* of a RUN until it is answered: when it is known what matches */
    struct mailbox_run_found *found; /* RUN: the call's own, since the run may outlive it, or it the run */
    struct mailbox_lane *lane;
    char topic[MAILBOX_TOPIC_MAX];
    size_t topic_len;
    struct sha256 topic_hash;
    /* selection */
    struct uuid *ids;
    uint32_t ids_n;
    uint8_t cause;
    char reason[MAILBOX_REASON_MAX];
    size_t reason_len;
    uint64_t before_ms;
    uint32_t limit;
    struct uuid after;
    bool has_after, payload, all;
    /* RUN */
    struct uuid job;
    uint32_t rate, matched, moved, skipped;
    uint64_t delay_ms, started_ms, finished_ms;
    int64_t next_at_ns;
    uint32_t at; /* index into ids */
    enum mailbox_run_state state;
    atomic_bool cancel;
    char kid[64];
    /* CHAIN */
    uint64_t from;
    bool has_from;
    struct mailbox_chain_walk *walk; /* once it has begun */
    /* answer */
    enum err err;
    enum mailbox_why why;
    struct buf body; /* JSON, written by the reprocessor */
    uint32_t purged;
};

#endif
