/*
 * The rows of the side-by-side harness (bench/README.md) from the command line: `ron bench mailbox cycle` measures a service and
 * its peer beside each other, which takes the peer and a clone of the repository. The harness is looked for beside the build the
 * program lies in, then in the current directory; RON_BENCH names another one.
 *
 * Ownership   Borrows its arguments.
 * Threads     The main thread, which becomes the harness and does not return when that could be started.
 */
#ifndef RON_BENCH_ROWS_H
#define RON_BENCH_ROWS_H

#include "ron/cmd.h"

/* The rows of one service; none named: all of them. */
int bench_rows_run(struct cmd_ctx *ctx, const char *service, int argc, char **argv);

#endif
