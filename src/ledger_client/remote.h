/*
 * What the transports that cross a wire have in common: the loop on which their calls live, run by a task of the owner.
 *
 * Threads     The loop belongs to the thread inside ledger_client_io_run; before and after that to whoever holds the client.
 */
#ifndef RON_LEDGER_CLIENT_REMOTE_H
#define RON_LEDGER_CLIENT_REMOTE_H

#include <stdatomic.h>

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

/* Until the loop's thread has set *done; drives the loop itself when no task does. */
void ledger_remote__await(struct ledger_remote *r, _Atomic bool *done);
/* A few turns of a loop whose task has ended, so that what was stopped gets to say so. */
void ledger_remote__settle(struct ledger_remote *r);

/* A failure of the transport as the head of a reply. definite: nothing can have been sequenced. */
struct ledger_answer ledger_remote__failed(enum err e, bool definite);

#endif
