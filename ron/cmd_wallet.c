/* ron wallet: the service in the foreground. */
#include "ron/cmd.h"
#include "ron/services.h"

static const struct cmd commands[] = {
    {.run = NULL},
};

extern const struct cmd_group cmd_wallet;
const struct cmd_group cmd_wallet = {"wallet", "money: issue, transfer, hold, balances, receipts, proofs", commands, &wallet_svc};
