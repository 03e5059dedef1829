/* Commands of `ron mailbox` that work on files instead of a running service. */
#ifndef RON_CMD_MAILBOX_H
#define RON_CMD_MAILBOX_H

#include "ron/cmd.h"

int cmd_mailbox_verify(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int cmd_mailbox_export(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int cmd_mailbox_check_trace(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
extern const struct cmd_flag cmd_mailbox_trace_flags[];

#endif
