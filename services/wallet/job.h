/*
 * An operation on its way, and the requests that wait for it.
 *
 * A job is made by the listener when it claims the key, handed to the worker of its account, and stays that worker's until
 * it is settled (the resolver only finds out; the worker decides). What both sides touch, the phase and the list of
 * tickets, is guarded by the lock of the key's shard.
 *
 *     CLAIMED -> QUEUED -> SENT -> settled            committed, refused
 *        |         |         `---> IN_DOUBT -> settled   found, or surely absent
 *        `---------`-> CANCELED                       its time ran out before it was sent; the worker throws it away
 *
 * A ticket is one request that waits. It lies in the request's memory and is linked into its job; who unlinks it (the
 * deadline's timer, or the settlement) owes the answer, so there is exactly one. Answers go out on the request's own loop.
 *
 * Ownership   Jobs come from a pool and are counted: one reference for the worker, one per answer on its way.
 * Threads     As above.
 */
#ifndef RON_WALLET_JOB_H
#define RON_WALLET_JOB_H

#include <stdatomic.h>

#include "ledger_client/ledger_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "services/wallet/core/chain.h"
#include "services/wallet/core/idem.h"
#include "services/wallet/core/unit.h"
#include "services/wallet/trace.h"

struct wallet;
struct wallet_job;

enum {
    WALLET_JOB_MAGIC = 0x776a6f62,
    WALLET_BODY_MAX = 1536, /* a receipt with every member at its limit */
    WALLET_DETAILS_MAX = 256,
    WALLET_RESERVATIONS_MAX = 5, /* four caveats and the policy */
    WALLET_ASKED_MAX = 256,      /* longer bodies are read again when they are repeated */
    WALLET_CORR_MAX = 128,       /* as the listener lets in */
    WALLET_JOB_TEXT = 128 + 128 + 32 + WALLET_TXID_CHARS + WALLET_MEMO_MAX + WALLET_KEY_MAX +
                      WALLET_TENANT_MAX + WALLET_CORR_MAX,
};

enum wallet_phase {
    WALLET_CLAIMED,
    WALLET_QUEUED,
    WALLET_SENT,
    WALLET_IN_DOUBT,
    WALLET_SETTLED,
    WALLET_CANCELED
};

struct wallet_ticket {
    struct net_msg msg;
    struct net_timer timer;
    struct net_req *rq;
    struct wallet *w;
    struct wallet_ticket *next; /* shard lock */
    struct wallet_job *job;     /* shard lock while linked; then whose answer it carries */
    size_t shard;
    bool linked; /* shard lock */
    bool waiter; /* it joined an operation that was on its way */
    bool last;   /* its answer is the end of the operation it asked for */
};

struct wallet_refusal {
    enum err err;
    bool retryable_says, retryable; /* when it is not the error's own */
    const char *detail;             /* literal */
    size_t details_n;
    char details[WALLET_DETAILS_MAX];
};

/* What is told: the receipt in body, unless there is an error. */
struct wallet_answer {
    struct wallet_refusal no; /* err ERR_OK: none */
    bool replayed;
    size_t body_n;
    char body[WALLET_BODY_MAX];
};

struct wallet_reservation {
    struct key128 name;
    unsigned stripe;
};

/* The ledger's last word on a job, copied out of the callback. */
struct wallet_said {
    enum ledger_outcome outcome;
    enum ledger_status status;
    enum err reason;
    bool hold_expired, has_last, found, ours, other;
    uint32_t retry_after_s; /* 0: it did not say */
    uint64_t seq_start, seq_end, tree_size, last, ledger_ms;
    struct sha256 root;
};

struct wallet_job {
    uint32_t magic;
    struct os_a32 refs;
    struct wallet *w;

    /* Fixed when it is claimed. */
    struct wallet_op op;
    struct str tenant, key, corr_id;
    struct wallet_hold hold;
    bool settles_hold;
    char txid[WALLET_TXID_CHARS], idem_id[WALLET_IDEM_ID_CHARS];
    struct wallet_idem_name name;
    size_t shard, account_slot;
    unsigned worker;
    int64_t accepted_ms, day; /* ts of the receipt */
    struct deadline by;
    int64_t hold_ttl_s;
    struct money amount; /* that the reservations are for */
    struct wallet_reservation daily[WALLET_RESERVATIONS_MAX];
    size_t n_daily;
    size_t asked_n;

    struct wallet_trace trace;

    /* Shard lock. */
    enum wallet_phase phase;
    struct wallet_ticket *tickets;
    unsigned n_tickets;
    bool told_pending;
    atomic_bool behind; /* parked behind one whose outcome is open; only for the words of a refusal */

    /* The worker's. */
    struct wallet_link link;
    struct sha256 receipt_hash; /* of the unit as it is sent, every time the same */
    size_t n_entries;           /* of that unit */
    bool frozen, unknown, has_kept;
    unsigned tries;
    uint64_t not_after_ms;
    enum err retry_reason;
    struct wallet_said said;

    /* Large, and written before they are read: what a new job does not clear ends with them. */
    char text[WALLET_JOB_TEXT];   /* what op, hold, tenant, key and corr_id point into */
    char asked[WALLET_ASKED_MAX]; /* as wallet_idem_asked says */
    struct wallet_answer answer;
    struct wallet_refusal kept;

    struct wallet_sides sides;

    /* The resolver's, while it has it. */
    struct heap_node doubt;
    int64_t doubt_since_ns, look_at_ns, doubt_since_ms;
    unsigned looks;
    bool look_up; /* known to be there: only the unit is missing */
    struct wallet_job *next_in_doubt;
};

/* The account whose order counts: from, or for what has no payer's nonce, who asks. */
struct str wallet_job_account(const struct wallet_job *j);

/* Who pays whom and in what, as sides of `text`. While it is open, with the lock of its shard. */
void wallet_job_sides(const struct wallet_job *j, char text[WALLET_BODY_MAX], size_t *out_n,
                      struct wallet_sides *out);

void wallet_job_ref(struct wallet_job *j);
void wallet_job_unref(struct wallet_job *j);

#endif
