/*
 * A ledger in memory behind struct ledger_client: idempotent units, nonce lanes, one funding account; and every fault a test
 * may want: lost replies, late requests, refusals, a frozen recipient, no service at all.
 *
 * Threads     Calls may come from any thread; a mutex makes them one after the other. Callbacks run before the call returns.
 */
#ifndef RON_TESTS_FAKE_LEDGER_H
#define RON_TESTS_FAKE_LEDGER_H

#include <pthread.h>

#include "base/map.h"
#include "base/rng.h"
#include "ledger_client/ledger_client.h"

enum { FAKE_LANE = 65280, FAKE_LANES = 4, FAKE_UNITS_MAX = 4096, FAKE_LATE_MAX = 8 };

struct fake_entry {
    char id[64], to[130];
    struct money amount;
    uint64_t nonce;
};

struct fake_unit {
    char idem[64];
    uint64_t seq_start;
    size_t n;
    struct fake_entry *entries;
};

struct fake_request {
    size_t n;
    struct fake_unit units[2];
};

struct fake_ledger {
    struct ledger_client client;
    pthread_mutex_t mutex;
    struct rng rng;
    unsigned lose_before, lose_after, busy, late,
        others; /* per cent; others: answers to another question */
    struct money available;
    uint64_t head[FAKE_LANES], seq;
    struct fake_unit units[FAKE_UNITS_MAX];
    size_t n_units;
    struct map ids; /* entry id -> fake_entry */
    struct fake_request late_requests[FAKE_LATE_MAX];
    size_t n_late;
    const char *frozen;
    bool down, meddled;    /* meddled: somebody else writes lane 0 after each look at the account */
    bool strange;          /* units are asked for at a door that knows nothing of them: 404 */
    uint64_t calls, looks; /* ingests; looks at the account */
};

void fake_ledger_init(struct fake_ledger *f, uint64_t seed);
void fake_ledger_fini(struct fake_ledger *f);
void fake_ledger_set_down(struct fake_ledger *f, bool down);
/* Requests that were still in some socket arrive now. */
void fake_ledger_deliver_late(struct fake_ledger *f);
bool fake_ledger_chance(struct fake_ledger *f, unsigned percent);

#endif
