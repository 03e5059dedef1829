/*
 * What is outside of the wallet's own code, for models: a listener's loop as an inbox, requests that count their answers, a
 * ledger with one account per lane, and metrics, logs and capabilities that do nothing. Everything between them (post_op,
 * job, worker, resolver, chains, keys) is the wallet's own.
 *
 * Threads     As the wallet's: a request is touched by its listener only, the ledger by anybody.
 */
#ifndef RON_TESTS_MODEL_WALLET_OUTSIDE_H
#define RON_TESTS_MODEL_WALLET_OUTSIDE_H

#include "base/arena.h"
#include "net/loop.h"
#include "rt/chan.h"
#include "services/wallet/api/request.h"

enum { REQUESTS_MAX = 3, CALLS_MAX = 8, WORKERS_MAX = 2 };

struct net_loop {
    struct rt_chan *inbox; /* of struct net_msg */
};

struct net_req {
    struct net_loop loop;
    struct arena arena;
    struct wallet_post post;
    struct net_timer *timer; /* armed */
    unsigned answers;
    enum err told; /* ERR_OK: a receipt */
    bool replayed;
    char body[WALLET_BODY_MAX];
};

enum fate { ANSWERED, LOST_BEFORE, LOST_AFTER }; /* of an ingest */

struct world_call {
    ledger_ingest_fn *fn;
    void *ctx;
    char idem_id[WALLET_IDEM_ID_CHARS]; /* its own: the job's memory is used again */
    struct ledger_unit unit;
    struct ledger_entry entries[WALLET_UNIT_ENTRIES_MAX];
};

struct world {
    struct wallet w;
    struct wallet_config config;
    struct wallet_worker workers[WORKERS_MAX];
    struct net_req rq[REQUESTS_MAX];
    /* the ledger */
    struct ledger_client client;
    struct rt_chan *calls;
    struct os_mutex m; /* guards the rest */
    struct world_call call[CALLS_MAX];
    size_t n_calls, n_units;
    struct world_call *units[CALLS_MAX];
    uint64_t last; /* nonce of acct:a */
    unsigned commits;
    enum fate fate[CALLS_MAX];
    bool
        at_once; /* it answers inside the call, as a ledger in the same process may; no thread of its own then */
    bool late_is_refused; /* its clock is past every not_after */
    unsigned early_looks; /* so many find it before that */
};

/* queue: capacity of work_tx. Requests are made by world_request. */
struct world *world_open(unsigned workers, size_t queue);
void world_close(struct world *x); /* checks that nothing is left: no job, key, ticket or chain */
/* Request i pays 1 from `account` with this key and nonce. */
void world_request(struct world *x, int i, const char *account, const char *key, uint64_t nonce);

/* Bodies of threads. */
RT_BLOCKS
void world_http(struct net_req *rq, struct wallet *w, bool its_time_runs_out);
RT_BLOCKS
void world_worker(void *worker); /* until its queue is closed and all is settled */
RT_BLOCKS
void world_resolver(void *world); /* until doubt_tx is closed */
RT_BLOCKS
void world_ledger(void *world); /* until `calls` is closed */

#endif
