/* What the files of `ron wallet` share. */
#ifndef RON_CMD_WALLET_H
#define RON_CMD_WALLET_H

#include "ron/cmd.h"

extern const struct cmd_group cmd_wallet;

int wallet_verify_run(struct cmd_ctx *ctx, int argc, char **argv);

#endif
