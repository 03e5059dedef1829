/*
 * Reads from the ledger: one object per question, from the listener through read_tx to the reader, and back to the
 * request's loop with what was found.
 *
 *   ACCOUNT   into the cache, one at a time per account, shared by all who ask meanwhile (single flight)
 *   FRESH     an account as it is now, past the cache: nonces, simulations
 *   TX        the receipt of a txid: entry -> unit -> rebuilt
 *   PROOF     the same and the path to the root: entry -> unit -> proof
 *   UNIT      what an idem_id was used for: unit -> rebuilt
 *
 * A question the ledger failed to answer (no answer, a connection error, 5xx, 429) is put again by the rule for every call
 * to it: retry.max_tries tries, a longer pause before each, nothing begun that its deadline leaves no time for. It waits in
 * the reader's hands. While writes are shed nothing is asked twice: the old value is shown at once instead.
 *
 * Ownership   A read is the asker's until it is submitted, then the reader's until `done` is called on the loop of the
 *             asker; what `done` is shown lives until it returns.
 * Memory      At most queues.read of them exist, which is what read_tx holds: one that goes back finds room.
 */
#ifndef RON_WALLET_READ_H
#define RON_WALLET_READ_H

#include "services/wallet/wallet.h"

enum wallet_read_kind { WALLET_READ_FRESH, WALLET_READ_TX, WALLET_READ_PROOF, WALLET_READ_UNIT };

/* What travels through read_tx begins with this. */
struct wallet_read_item {
    uint32_t magic;
    unsigned tries; /* that failed */
    struct wallet *w;
    struct wallet_read_item *next; /* in the reader's hands */
    struct deadline due;           /* not before; tries > 0 */
};

struct wallet_proof {
    struct str leaf, envelope, checkpoint; /* in the read's arena */
    struct sha256 leaf_hash, root;
    uint64_t tree_size, leaf_index;
    struct sha256 path[64];
    size_t n_path;
};

struct wallet_read {
    struct net_msg msg;
    struct wallet *w;
    enum wallet_read_kind kind;
    struct net_loop *loop;
    void (*done)(struct wallet_read *r); /* on `loop`; then it is freed */
    void *arg;
    int64_t sent_ns;
    struct deadline by;
    char name[132]; /* account or txid, terminated */
    size_t name_n;
    struct arena arena;

    /* What was found. */
    enum err err;                   /* ERR_OK, ERR_NOT_FOUND, ERR_UNAVAILABLE */
    struct wallet_account *account; /* FRESH */
    char receipt[WALLET_BODY_MAX];
    size_t receipt_n;
    struct wallet_sides sides;
    char idem_id[WALLET_IDEM_ID_CHARS];
    struct str tenant, request, idem; /* PROOF, in the arena */
    struct wallet_proof proof;
    uint64_t seq, tree_size;
    bool open; /* TX of a hold: nothing of it is settled */
    struct money remaining;
    char txid[WALLET_TXID_CHARS]; /* UNIT: of the request that used the key; "" when no wallet made it */
};

/* NULL: as many as may be are under way. */
struct wallet_read *wallet_read_new(struct wallet *w, enum wallet_read_kind kind, struct str name,
                                    struct net_req *rq);
void wallet_read_free(struct wallet_read *r);
/* ERR_BUSY, ERR_CLOSED: it stays the caller's. */
NODISCARD enum err wallet_read_submit(struct wallet_read *r);

/* ---- single flight ---- */

struct wallet_wish {
    struct net_msg msg;
    struct net_timer timer;
    struct net_req *rq;
    struct wallet *w;
    struct wallet_wish *next; /* flight lock */
    struct wallet_flight *flight;
    bool linked; /* flight lock */
    enum err err;
    struct str account, asset;
    uint64_t min_seq;
    bool all; /* the whole account */
    struct auth_cap *cap;
    void (*done)(struct wallet_wish *wish); /* on the request's loop: fetched, failed or out of patience */
};

/* Joins the read of that account, or starts one. ERR_BUSY when none may be started; done is then not called. */
NODISCARD enum err wallet_wish_make(struct wallet_wish *wish, int64_t patience_ms);

/* Puts a question taken from read_tx. */
struct wallet_flight;
void wallet_read_run(struct wallet_read_item *it);

#endif
