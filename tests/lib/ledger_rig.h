/*
 * A real ledger in the test's own process, on free ports in a directory of its own, and clients of every transport to it.
 *
 * Threads     The rig's functions from the test's thread, which holds no lock; client calls block it until they are answered.
 */
#ifndef RON_TESTS_LEDGER_RIG_H
#define RON_TESTS_LEDGER_RIG_H

#include <pthread.h>

#include "ledger_client/ledger_client.h"
#include "svc/svc.h"

struct ledger_rig {
    char dir[64], root[96], token[4096];
    struct svc_data *data;
    struct svc *svc;
    bool amnesia;
    const struct clock *clock; /* NULL: the real one */
    char flags[24][160];
    const char *flag_list[24];
    size_t n_flags;
};

/* A free port below those that outgoing connections get: a server that comes back to it finds it free. One that was given by the
 * kernel (port 0) may be anybody's by then. */
int rig_quiet_port(void);

/* Opens and starts it; flags are "section.key=value". Waits until it is ready. */
void ledger_rig_open(struct ledger_rig *r, bool amnesia, const char *const *flags, size_t n);
void ledger_rig_open_at(struct ledger_rig *r, bool amnesia, const char *const *flags, size_t n,
                        const struct clock *clock);
int ledger_rig_stop(struct ledger_rig *r) RT_UNCHECKED; /* drain and close; the exit code */
void ledger_rig_start(struct ledger_rig *r);            /* again, on what is there */
void ledger_rig_close(struct ledger_rig *r);            /* removes the directory */
void ledger_rig_narrow(struct ledger_rig *r, const char *caveat, char out[4096]);
double ledger_rig_metric(struct ledger_rig *r, const char *name, const char *labels);
void ledger_rig_await_metric(struct ledger_rig *r, const char *name, const char *labels, double at_least);

/* One HTTP request; the status. body_out may be NULL. */
int ledger_rig_http(struct ledger_rig *r, const char *method, const char *path, const char *body,
                    struct buf *body_out) RT_UNCHECKED;

/*
 * A clock that holds whoever reads it: the real one, but a task whose name begins with the gate's stands still in it until the
 * gate is opened. Every stage of the pipeline reads the clock before it works, so this is how a test stops one stage.
 */
const struct clock *gate_clock(void);
void gate_close(const char *task);
void gate_await(unsigned stopped); /* until that many threads stand still */
void gate_open(void);
void gate_open_to_canceled(
    void); /* lets out who has been cancelled, as soon as he is; stays shut for others */

/* ---- clients ---- */

enum rig_transport { RIG_HTTP, RIG_HTTP_UNIX, RIG_OAP, RIG_OAP_UNIX, RIG_DIRECT, RIG_TRANSPORTS };

struct rig_client {
    struct ledger_client *c;
    pthread_t thread;
    bool has_thread;
};

const char *rig_transport_name(enum rig_transport t);
void rig_client_open(struct ledger_rig *r, enum rig_transport t, struct rig_client *out);
void rig_client_open_url(const char *url, const char *token, size_t inflight_max, struct rig_client *out);
void rig_client_close(struct rig_client *c);

/* Answers, copied as far as tests look at them. */
struct rig_result {
    enum ledger_status status;
    enum err reason;
    bool retryable;
    char idem_id[132], details[512], checkpoint[512], id0[132], meta[64];
    uint64_t seq_start, seq_end, tree_size;
    struct sha256 root, leaf0;
    size_t n_leaf_hashes, n_balances, n_proofs, n_entries, n_path0;
    struct money available0;
};

struct rig_reply {
    enum ledger_outcome outcome;
    enum err err;
    int status;
    uint32_t retry_after_s;
    char code[64], details[512];
    size_t n;
    struct rig_result v[8];
    /* unit */
    bool found;
    uint64_t ledger_ms;
    /* account, entries, roots, proof, head */
    uint64_t seq, next, size, group_no;
    struct sha256 root, from_root, hash;
    struct money available, held;
    uint64_t last_nonce;
    size_t n_path, n_lanes;
    bool ready, open;
    char leaf[1600];
    int64_t took_ms;
};

void rig_ingest(struct rig_client *c, const struct ledger_ingest *rq, int64_t ms, struct rig_reply *out);
void rig_unit(struct rig_client *c, const char *idem_id, uint32_t wait_ms, struct rig_reply *out);
void rig_account(struct rig_client *c, const char *account, uint64_t min_seq, struct rig_reply *out);
void rig_entry(struct rig_client *c, const char *id, struct rig_reply *out);
void rig_entries(struct rig_client *c, uint64_t from, uint32_t limit, struct rig_reply *out);
void rig_roots(struct rig_client *c, uint64_t since, uint32_t limit, struct rig_reply *out);
void rig_proof(struct rig_client *c, uint64_t seq, uint64_t size, struct rig_reply *out);
void rig_consistency(struct rig_client *c, uint64_t from, uint64_t to, struct rig_reply *out);
void rig_head(struct rig_client *c, int64_t ms, struct rig_reply *out);

/* Units made from a name: mint and transfer of one entry. The texts live in *u. */
struct rig_unit {
    char idem[64], id[64];
    struct ledger_entry e;
    struct ledger_unit u;
};
void rig_mint(struct rig_unit *u, const char *name, const char *account, uint64_t amount);
void rig_pay(struct rig_unit *u, const char *name, const char *from, const char *to, uint64_t amount,
             uint64_t nonce);

extern const struct ledger_feed_sink rig_deaf_sink; /* a subscriber that does nothing */

#endif
