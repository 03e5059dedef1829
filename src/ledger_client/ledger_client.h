/*
 * What the rest of the system knows about the ledger: one asynchronous interface, three transports.
 *
 *   direct  enters the ledger's ingress queue in the same process (wired up by ron/)
 *   http    POST /v1/ingest and friends on keep-alive connections, TCP, TLS or Unix socket
 *   oap     frames with protobuf messages on a few connections, many calls outstanding on each, TCP or Unix socket
 *
 * Callbacks   Every call ends in exactly one call of its callback, whatever happens, and in none before the call was made.
 *             It may run before the call returns, and on any thread: it must not block and must not keep what it is shown.
 * Ownership   Requests are copied (or encoded) before the call returns; nothing the caller passed is kept. Everything a
 *             reply points to is borrowed and dies with the callback.
 * Threads     Every function may be called from any thread.
 * Memory      A call allocates one object of bounded size; when none is to be had the answer is REFUSED with ERR_BUSY.
 * Order       None between calls in flight. Put dependent units into one request, or wait for the answer.
 *
 * Three outcomes, because money needs the third:
 *   ANSWERED  a complete answer; for ingest one result per unit, in order (also when the request was refused as a whole
 *             for one reason: the results then come out of the problem body)
 *   REFUSED   definite: nothing was sequenced (queue full, connection refused, TLS failure, a complete problem response)
 *   UNKNOWN   the first byte left and no complete answer came back: ask unit() or send the same unit again
 */
#ifndef RON_LEDGER_CLIENT_LEDGER_CLIENT_H
#define RON_LEDGER_CLIENT_LEDGER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"
#include "base/sha256.h"
#include "rt/deadline.h"

/* The numbers are those of proto/ron/ledger.proto. */
enum ledger_kind {
    LEDGER_KIND_NONE = 0,
    LEDGER_MINT = 1,
    LEDGER_BURN = 2,
    LEDGER_TRANSFER = 3,
    LEDGER_HOLD = 4,
    LEDGER_CAPTURE = 5,
    LEDGER_RELEASE = 6,
    LEDGER_REVERSE = 7,
    LEDGER_EXPIRE = 8, /* only ever made by the ledger itself */
    LEDGER_KIND_COUNT
};

enum ledger_status {
    LEDGER_STATUS_NONE = 0,
    LEDGER_COMMITTED = 1,
    LEDGER_DUPLICATE = 2,
    LEDGER_REJECTED = 3,
    LEDGER_PENDING = 4,
};

/* One movement of value. Empty text, 0 nonce and 0 hold_until mean absent. */
struct ledger_entry {
    struct str id;
    uint64_t ts_ms; /* the writer's clock, unix ms */
    enum ledger_kind kind;
    struct str account, to, asset;
    struct money amount;
    uint64_t nonce; /* lane in the high 16 bits, counter in the low 48 */
    struct str ref_id;
    uint64_t hold_until_ms;
};

/* Entries that commit together or not at all. */
struct ledger_unit {
    struct str idem_id;    /* "w:…" for the wallet, "r:…" for the rewarder */
    struct bytes meta;     /* raw bytes, at most 512; opaque to the ledger, under the tree */
    uint64_t not_after_ms; /* ledger time after which it is refused as expired; 0 = never */
    const struct ledger_entry *entries;
    size_t n_entries;
};

struct ledger_balance {
    struct str account, asset;
    struct money available, held;
};

struct ledger_proof_path {
    struct str leaf; /* canonical bytes */
    const struct sha256 *path;
    size_t n_path;
};

struct ledger_result {
    struct str idem_id;
    enum ledger_status status;
    /* committed, duplicate */
    uint64_t seq_start, seq_end, tree_size, ledger_ms; /* ledger_ms only from unit() */
    struct sha256 root;
    const struct sha256 *leaf_hashes;
    size_t n_leaf_hashes;
    const struct ledger_balance *balances; /* when asked for */
    size_t n_balances;
    const struct str *ids; /* duplicate: the ids as committed */
    size_t n_ids;
    const struct ledger_proof_path *proofs; /* when asked for */
    size_t n_proofs;
    struct str envelope, checkpoint;
    /* unit(): what was committed */
    const struct ledger_entry *entries;
    size_t n_entries;
    struct bytes meta; /* raw bytes */
    struct str kid;
    /* rejected */
    enum err reason;        /* ERR_INTERNAL for a reason this build does not know */
    struct str reason_text; /* as the ledger spelled it */
    bool retryable;
    struct str details; /* JSON object text, may be empty */
};

enum ledger_outcome { LEDGER_ANSWERED, LEDGER_REFUSED, LEDGER_UNKNOWN };

/* The head of every reply. ERR_LEDGER_FORKED: the ledger contradicts what it told this client before; for an operator. */
struct ledger_answer {
    enum ledger_outcome outcome;
    enum err err; /* ERR_OK when answered; else the problem (busy, timeout, not_found, behind, …) */
    int status;   /* HTTP status of the answer, 0 when there was none */
    struct str code, detail; /* of the problem */
    struct str details;      /* JSON object text */
    uint32_t retry_after_s;  /* 0 when not said */
};

struct ledger_ingest_reply {
    struct ledger_answer a;
    const struct ledger_result *results;
    size_t n_results;
};

/* found: committed or pending. Not found is ANSWERED with found = false and ledger_ms set: final once ledger_ms is past not_after. */
struct ledger_unit_reply {
    struct ledger_answer a;
    bool found;
    uint64_t ledger_ms;
    struct ledger_result result;
};

struct ledger_lane {
    uint16_t lane;
    uint64_t last; /* full nonce: lane << 48 | counter */
};

struct ledger_account_reply {
    struct ledger_answer a; /* ERR_BEHIND (409) when the head is below min_seq */
    struct str account;
    const struct ledger_balance *balances;
    size_t n_balances;
    const struct ledger_lane *lanes;
    size_t n_lanes;
    uint64_t as_of_seq;
    struct sha256 root;
};

struct ledger_entry_info {
    uint64_t seq, ledger_ms, unit_seq_start, unit_seq_end;
    struct sha256 leaf_hash;
    struct str leaf, idem_id;
    struct ledger_entry entry;
    struct money remaining, reversed; /* of a hold / of anything else */
    bool open;                        /* of a hold */
};

struct ledger_entries_reply {
    struct ledger_answer a;                  /* entry(): REFUSED with ERR_NOT_FOUND when there is none */
    const struct ledger_entry_info *entries; /* entry(): exactly one */
    size_t n_entries;
    uint64_t next, as_of_seq; /* next = 0 at the head */
};

struct ledger_root {
    uint64_t seq, group_no, ledger_ms;
    struct sha256 root;
};

struct ledger_roots_reply {
    struct ledger_answer a;
    const struct ledger_root *roots;
    size_t n_roots;
    uint64_t next_since;
};

struct ledger_proof_reply {
    struct ledger_answer a;
    uint64_t seq, tree_size; /* consistency: from, to */
    struct sha256 leaf_hash, root, from_root;
    const struct sha256 *path;
    size_t n_path;
    struct str checkpoint; /* empty unless the size ends a group */
};

/* head: /readyz of the ledger with its durable head. ANSWERED also when the ledger says it is not ready. */
struct ledger_head_reply {
    struct ledger_answer a;
    bool ready;
    bool follows;   /* a copy that does not write: it may be behind what the writer has answered */
    bool safe_mode; /* it answers whatever it is asked, and writes nothing */
    uint64_t head_seq, group_no, ledger_ms;
    struct sha256 root;
};

struct ledger_commit_event {
    uint64_t seq_start, seq_end, tree_size;
    struct sha256 root;
    const struct str *accounts; /* sorted, unique */
    size_t n_accounts;
};

/* A feed ends once, with on_end; the owner opens the next one from the last seq_end it saw. */
struct ledger_feed_sink {
    void (*on_open)(void *ctx); /* the stream is up; history from `since` follows */
    void (*on_commit)(void *ctx, const struct ledger_commit_event *ev);
    void (*on_end)(
        void *ctx,
        enum err why); /* ERR_LAGGED: cut for being slow; ERR_LEDGER_FORKED: it contradicts what was seen */
};

struct ledger_ingest {
    const struct ledger_unit *units;
    size_t n_units;
    bool balances, proof;
    struct str corr_id,
        traceparent; /* passed on, so that the ledger's spans and logs lie below the caller's; may be empty */
};

typedef void ledger_ingest_fn(void *ctx, const struct ledger_ingest_reply *r);
typedef void ledger_unit_fn(void *ctx, const struct ledger_unit_reply *r);
typedef void ledger_account_fn(void *ctx, const struct ledger_account_reply *r);
typedef void ledger_entries_fn(void *ctx, const struct ledger_entries_reply *r);
typedef void ledger_roots_fn(void *ctx, const struct ledger_roots_reply *r);
typedef void ledger_proof_fn(void *ctx, const struct ledger_proof_reply *r);
typedef void ledger_head_fn(void *ctx, const struct ledger_head_reply *r);

struct ledger_client;
struct ledger_feed;
struct ledger_remote;

struct ledger_client_ops {
    void (*ingest)(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                   ledger_ingest_fn *fn, void *ctx);
    void (*unit)(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                 ledger_unit_fn *fn, void *ctx);
    void (*account)(struct ledger_client *c, struct str account, uint64_t min_seq, struct deadline by,
                    ledger_account_fn *fn, void *ctx);
    void (*entry)(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                  void *ctx);
    void (*entries)(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                    ledger_entries_fn *fn, void *ctx);
    void (*roots)(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                  ledger_roots_fn *fn, void *ctx);
    /* size 0 = the durable head */
    void (*proof)(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                  ledger_proof_fn *fn, void *ctx);
    void (*consistency)(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                        ledger_proof_fn *fn, void *ctx);
    void (*head)(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx);
    /* Events with seq_end > since. NULL when no feed can be opened (out of slots); on_end is then not called. */
    struct ledger_feed *(*feed)(struct ledger_client *c, uint64_t since,
                                const struct ledger_feed_sink *sink, void *ctx);
    void (*feed_stop)(
        struct ledger_feed *f); /* no callback runs once it returned; must not be called from one */
    void (*close)(
        struct ledger_client *c); /* answers what is outstanding (UNKNOWN / REFUSED), then frees */
    /* Connections that still owe the answer to a call which was told UNKNOWN for want of time. Any thread. NULL: such a
     * connection is closed at once. */
    size_t (*owing)(struct ledger_client *c);
    /* Presented from the next call on; those under way keep the one they went with. By one thread at a time. NULL: it has none. */
    enum err (*set_token)(struct ledger_client *c, struct str token);
};

/* Transports embed this as their first member. */
struct ledger_client {
    const struct ledger_client_ops *ops;
    const char *transport;    /* "direct", "http", "oap" */
    struct ledger_remote *io; /* what ledger_client_io_run runs; NULL: needs no task */
};

static inline void ledger_client_ingest(struct ledger_client *c, const struct ledger_ingest *rq,
                                        struct deadline by, ledger_ingest_fn *fn, void *ctx)
{
    c->ops->ingest(c, rq, by, fn, ctx);
}

static inline size_t ledger_client_owing(struct ledger_client *c)
{
    return c->ops->owing == NULL ? 0 : c->ops->owing(c);
}

NODISCARD static inline enum err ledger_client_set_token(struct ledger_client *c, struct str token)
{
    return c->ops->set_token == NULL ? ERR_OK : c->ops->set_token(c, token);
}

static inline void ledger_client_unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms,
                                      struct deadline by, ledger_unit_fn *fn, void *ctx)
{
    c->ops->unit(c, idem_id, wait_ms, by, fn, ctx);
}

static inline void ledger_client_account(struct ledger_client *c, struct str account, uint64_t min_seq,
                                         struct deadline by, ledger_account_fn *fn, void *ctx)
{
    c->ops->account(c, account, min_seq, by, fn, ctx);
}

static inline void ledger_client_entry(struct ledger_client *c, struct str id, struct deadline by,
                                       ledger_entries_fn *fn, void *ctx)
{
    c->ops->entry(c, id, by, fn, ctx);
}

static inline void ledger_client_entries(struct ledger_client *c, uint64_t from, uint32_t limit,
                                         struct deadline by, ledger_entries_fn *fn, void *ctx)
{
    c->ops->entries(c, from, limit, by, fn, ctx);
}

static inline void ledger_client_roots(struct ledger_client *c, uint64_t since, uint32_t limit,
                                       struct deadline by, ledger_roots_fn *fn, void *ctx)
{
    c->ops->roots(c, since, limit, by, fn, ctx);
}

static inline void ledger_client_proof(struct ledger_client *c, uint64_t seq, uint64_t size,
                                       struct deadline by, ledger_proof_fn *fn, void *ctx)
{
    c->ops->proof(c, seq, size, by, fn, ctx);
}

static inline void ledger_client_consistency(struct ledger_client *c, uint64_t from, uint64_t to,
                                             struct deadline by, ledger_proof_fn *fn, void *ctx)
{
    c->ops->consistency(c, from, to, by, fn, ctx);
}

static inline void ledger_client_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn,
                                      void *ctx)
{
    c->ops->head(c, by, fn, ctx);
}

static inline struct ledger_feed *ledger_client_feed(struct ledger_client *c, uint64_t since,
                                                     const struct ledger_feed_sink *sink, void *ctx)
{
    return c->ops->feed(c, since, sink, ctx);
}

static inline void ledger_client_feed_stop(struct ledger_client *c, struct ledger_feed *f)
{
    c->ops->feed_stop(f);
}

static inline void ledger_client_close(struct ledger_client *c)
{
    c->ops->close(c);
}

struct rt_task;

/* A remote transport: where the ledger is and what we show it. */
struct ledger_client_conf {
    const char *url;     /* "http://127.0.0.1:7410", "https://…", "unix:/path/ledger.sock",
                            "oap://127.0.0.1:7411", "oap+unix:/path/ledger-oap.sock"; several copies of one ledger
                            with commas, all over HTTP or all over OAP */
    const char *token;   /* capability text, copied */
    const char *ca_file; /* NULL = system */
    size_t inflight_max; /* calls outstanding at once; more are REFUSED with ERR_BUSY */
};

/* The transport's I/O runs in a task of the caller ("ledger-io"): run() returns when the client is closed or the task stops. */
NODISCARD enum err ledger_client_http_open(const struct ledger_client_conf *conf,
                                           struct ledger_client **out_client);
NODISCARD enum err ledger_client_oap_open(const struct ledger_client_conf *conf,
                                          struct ledger_client **out_client);
/* The one that the URL names, behind a guard that refuses a ledger which goes back or forks (guard.h); ERR_SYNTAX when it names
 * none. */
NODISCARD enum err ledger_client_open(const struct ledger_client_conf *conf,
                                      struct ledger_client **out_client);
NODISCARD enum err ledger_client_io_run(struct rt_task *self, void *client); /* its task body */
void ledger_client_io_wake(struct rt_task *self, void *client); /* its wake, for svc_add_loop_task */

const char *ledger_kind_name(enum ledger_kind k); /* "mint" … */
enum err ledger_reason_from(struct str code);     /* ERR_INTERNAL when unknown */

#endif
