/* The commands of `ron ledger` that live in files of their own. */
#ifndef RON_CMD_LEDGER_H
#define RON_CMD_LEDGER_H

#include "base/buf.h"
#include "ron/cmd.h"
#include "ron/ledger_verify.h"
#include "rt/lock.h"

/* ledger_verify, which reads every entry: on a terminal it tells how far it is. */
int cmd_ledger_verify(struct cmd_ctx *ctx, const char *dir, struct str note, struct str vkey,
                      struct ledger_verify_report *out);

/* Prints what the verifier says; returns its code. */
int cmd_ledger_report(struct cmd_ctx *ctx, const char *dir, const struct ledger_verify_report *r, int code);

bool cmd_ledger_slurp(const char *path, struct buf *out);

/* cmd_ledger_export.c */
extern const struct cmd_flag cmd_ledger_export_flags[];
int cmd_ledger_export(struct cmd_ctx *ctx, int argc, char **argv);

/* cmd_ledger_archive.c */
extern const struct cmd_flag cmd_ledger_snapshot_flags[], cmd_ledger_restore_flags[];
int cmd_ledger_snapshot(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS;
int cmd_ledger_restore(struct cmd_ctx *ctx, int argc, char **argv);

#endif
