/*
 * The configuration a service would run with, without running it: what `ron config` and `ron topology` look at.
 *
 * Ownership   The caller destroys the conf.
 */
#ifndef RON_CONFIG_FILE_H
#define RON_CONFIG_FILE_H

#include "base/conf.h"
#include "ron/cmd.h"
#include "svc/svc.h"

/* Says what is wrong on stderr; CMD_OK, CMD_USAGE (bad configuration) or CMD_FAILED (unreadable). file NULL: none. */
int config_file_load(const struct cmd_ctx *ctx, const struct svc_def *def, const char *file,
                     struct conf **out_conf);

#endif
