/* Commands of `ron mailbox` with a file of their own: the audit of a topic, and those that work on files instead of a running service. */
#ifndef RON_CMD_MAILBOX_H
#define RON_CMD_MAILBOX_H

#include "ron/cmd.h"
#include "services/mailbox/routing.h"

int cmd_mailbox_audit(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
extern const struct cmd_flag cmd_mailbox_audit_flags[];
int cmd_mailbox_verify(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
extern const struct cmd_flag cmd_mailbox_verify_flags[];
int cmd_mailbox_export(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int cmd_mailbox_check_trace(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
extern const struct cmd_flag cmd_mailbox_trace_flags[];
int cmd_mailbox_repair(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
extern const struct cmd_flag cmd_mailbox_repair_flags[];

/* META and routing of a mailbox directory: whose journals they are, and which shard has what; CMD_OK, or what was said. */
int cmd_mailbox_meta(struct cmd_ctx *ctx, const char *dir, struct mailbox_routing *out_routing,
                     uint8_t out_instance[16]) RT_BLOCKS;
/* The size of a shard's segments, from the oldest file; 0: there is none. */
uint32_t cmd_mailbox_segment_bytes(const char *shard_dir) RT_BLOCKS;

#endif
