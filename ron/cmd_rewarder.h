/* What the files of `ron rewarder` share. */
#ifndef RON_CMD_REWARDER_H
#define RON_CMD_REWARDER_H

#include "base/buf.h"
#include "ron/cmd.h"
#include "rt/lock.h"

extern const struct cmd_group cmd_rewarder;

/* Appends a whole file ("-": standard input); says what is wrong and returns an exit code otherwise. */
int rewarder_read_file(struct cmd_ctx *ctx, const char *path, struct buf *out);

/* "/rewarder/epochs/<epoch><rest>" */
void rewarder_epoch_path(const char *epoch, const char *rest, struct buf *out);

int rewarder_seal_run(struct cmd_ctx *ctx, int argc, char **argv);
int rewarder_fetch_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_verify_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_check_proof_run(struct cmd_ctx *ctx, int argc, char **argv);
/* Offline, on the data directory of a service that is not running. */
int rewarder_fsck_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_rebuild_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;

#endif
