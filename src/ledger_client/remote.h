/*
 * What the transports that cross a wire have in common: the loop on which their calls live, run by a task of the owner.
 *
 * Threads     The loop belongs to the thread inside ledger_client_io_run; before and after that to whoever holds the client.
 */
#ifndef RON_LEDGER_CLIENT_REMOTE_H
#define RON_LEDGER_CLIENT_REMOTE_H

#include <stdatomic.h>

#include "base/arena.h"
#include "ledger_client/ledger_client.h"
#include "net/loop.h"

struct ledger_remote {
    struct ledger_client base;
    struct net_loop *loop;
    _Atomic bool running; /* a task is inside the loop */
    /* Told, on the loop's thread, that a connection is gone. Set before the loop runs. */
    void (*on_lost)(void *ctx);
    void *lost_ctx;
};

/* Whom to tell: which member, the operation says. */
union ledger_remote_fn {
    ledger_ingest_fn *ingest;
    ledger_unit_fn *unit;
    ledger_account_fn *account;
    ledger_entries_fn *entries;
    ledger_roots_fn *roots;
    ledger_proof_fn *proof;
    ledger_head_fn *head;
};

/* Until the loop's thread has set *done; drives the loop itself when no task does. */
void ledger_remote__await(struct ledger_remote *r, _Atomic bool *done);
/* A few turns of a loop whose task has ended, so that what was stopped gets to say so. */
void ledger_remote__settle(struct ledger_remote *r);

/* A failure of the transport as the head of a reply. definite: nothing can have been sequenced. */
struct ledger_answer ledger_remote__failed(enum err e, bool definite);
/* A 404 for a unit is an answer, not a refusal, when it says as of which ledger time there is none. */
void ledger_remote__absent(struct ledger_unit_reply *io_reply, struct arena *a);

#endif
