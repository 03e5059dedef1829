/* What the files of `ron rewarder` share. */
#ifndef RON_CMD_REWARDER_H
#define RON_CMD_REWARDER_H

#include "base/buf.h"
#include "ron/cmd.h"

extern const struct cmd_group cmd_rewarder;

/* Appends a whole file ("-": standard input); says what is wrong and returns an exit code otherwise. */
int rewarder_read_file(struct cmd_ctx *ctx, const char *path, struct buf *out);

int rewarder_verify_run(struct cmd_ctx *ctx, int argc, char **argv);
int rewarder_check_proof_run(struct cmd_ctx *ctx, int argc, char **argv);

#endif
