/*
 * ron up --isolate: each service as its own child process under the supervisor's restart policy. A service that dies
 * takes nobody with it and comes back by itself; wallet and rewarder then reach the ledger over its sockets.
 */
#ifndef RON_ISOLATE_H
#define RON_ISOLATE_H

#include "ron/cmd.h"

/* The configuration has been checked. quiet: the services log warnings and worse only. Returns the exit code of
 * the whole. */
int isolate_run(struct cmd_ctx *ctx, bool quiet);

#endif
