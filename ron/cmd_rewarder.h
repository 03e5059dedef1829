/* What the files of `ron rewarder` share. */
#ifndef RON_CMD_REWARDER_H
#define RON_CMD_REWARDER_H

#include <jansson.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "ron/cmd.h"
#include "rt/lock.h"

extern const struct cmd_group cmd_rewarder;

/* A table of fifty million rows, the most a snapshot may be configured to have, fits. */
#define REWARDER_FILE_MAX ((size_t)32 << 30)

/* Appends a whole file ("-": standard input); says what is wrong and returns an exit code otherwise. */
int rewarder_read_file(struct cmd_ctx *ctx, const char *path, struct buf *out);

/* "/rewarder/epochs/<epoch><rest>" */
void rewarder_epoch_path(const char *epoch, const char *rest, struct buf *out);

/* Uploads a snapshot; out_cid gets its content id. */
int rewarder_put_file(struct cmd_ctx *ctx, const char *path, char out_cid[SHA256_TEXT_CHARS],
                      bool quiet) RT_BLOCKS;
/* The body of GET /rewarder/epochs/{id} for people. */
void rewarder_print_run(const json_t *body);

int rewarder_put_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_compute_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_emit_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_quarantine_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_release_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_list_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_show_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_explain_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_csv_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_shadow_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_seal_run(struct cmd_ctx *ctx, int argc, char **argv);
int rewarder_fetch_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_verify_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_check_proof_run(struct cmd_ctx *ctx, int argc, char **argv);
/* Offline, on the data directory of a service that is not running. */
int rewarder_fsck_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int rewarder_rebuild_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;

#endif
