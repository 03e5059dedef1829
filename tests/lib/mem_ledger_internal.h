/*
 * What the files of the ledger in memory share. Nobody else includes this.
 *
 *   mem_ledger.c         made, set, looked at from outside
 *   mem_ledger_rules.c   what a unit does, or why it does not
 *   mem_ledger_faults.c  calls that are refused, lost or late
 *   mem_ledger_client.c  the operations of ledger_client.h
 */
#ifndef RON_TESTS_MEM_LEDGER_INTERNAL_H
#define RON_TESTS_MEM_LEDGER_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/rng.h"
#include "mem_ledger.h"

/* Which callback a call has. */
enum mem_call {
    MEM_CALL_INGEST,
    MEM_CALL_UNIT,
    MEM_CALL_ACCOUNT,
    MEM_CALL_ENTRIES,
    MEM_CALL_ROOTS,
    MEM_CALL_PROOF,
    MEM_CALL_HEAD,
};

struct mem_row {
    struct money available, held;
    char name[200]; /* account|asset */
};

struct mem_lane {
    uint64_t last;
    char name[200]; /* account#lane */
};

struct mem_unit {
    struct arena arena;
    struct ledger_result result; /* COMMITTED, with entries and meta */
    struct ledger_entry *entries;
    struct str fp;
    uint64_t ledger_ms;
};

struct mem_hold {
    const struct ledger_entry *entry;
    struct money remaining;
};

struct mem_stalled {
    struct mem_stalled *next;
    struct deadline by;
    enum mem_call call;
    void *fn, *ctx;
};

struct ledger_feed {
    struct ledger_feed *next;
    struct mem_ledger *f;
    struct ledger_feed_sink sink;
    void *ctx;
};

struct mem_ledger {
    struct ledger_client client;
    pthread_mutex_t m;
    pthread_cond_t c;
    pthread_t thread;
    bool stop, feed_on;
    const struct clock *clock; /* NULL: the system's */
    _Atomic size_t owing;
    char corr_id[129], traceparent[64]; /* of the last ingest */
    struct map rows, lanes, units, entries, holds;
    struct mem_unit **by_seq;
    size_t n_seq, cap_seq;
    uint64_t head, ingests, heads, n_units;
    struct sha256 root;
    struct money issued, burned;
    enum mem_fault ingest_fault, unit_fault, account_fault, read_fault;
    int ingest_n, unit_n, account_n;
    uint32_t retry_after_s;
    struct rng rng;
    bool chaos, forked, forgets_last;
    _Atomic unsigned service_us;
    struct mem_stalled *stalled;
    struct ledger_feed *feeds;
    pthread_mutex_t feed_m; /* held while a feed's callback runs */
};

uint64_t mem_ledger__now_ms(const struct mem_ledger *f);

/* Rules: with f->m held. */
struct mem_row *mem_ledger__row(struct mem_ledger *f, struct str account, struct str asset);
struct mem_lane *mem_ledger__lane(struct mem_ledger *f, struct str account, unsigned lane);
void mem_ledger__move(struct money *from, struct money *to, struct money amount);
/* out_new is set when it was carried out, and left alone otherwise. */
void mem_ledger__judge(struct mem_ledger *f, const struct ledger_unit *in, struct ledger_result *r,
                       char *details, struct mem_unit **out_new);

/* Faults: with f->m held. */
enum mem_fault mem_ledger__draw(struct mem_ledger *f, enum mem_fault *fault, int *n);
/* Whether the call is over: refused, lost or stalled. f->m is released then. */
bool mem_ledger__spoiled(struct mem_ledger *f, enum mem_fault fault, enum mem_call call, void *fn,
                         void *ctx, struct deadline by);
/* The thread that answers what was stalled. */
void *mem_ledger__run_stalled(void *arg);

extern const struct ledger_client_ops mem_ledger__ops;
/* Without f->m. */
void mem_ledger__tell_feeds(struct mem_ledger *f, struct mem_unit *const *fresh, size_t n);

#endif
