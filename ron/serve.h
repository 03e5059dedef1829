/*
 * Running one service in the foreground: `ron <service> [--flags]`. Flags beyond the global ones are
 * configuration keys of the service (--queues.ingress=4000).
 */
#ifndef RON_SERVE_H
#define RON_SERVE_H

#include "ron/cmd.h"
#include "rt/lock.h"

int serve_one(const struct svc_def *def, int argc, char **argv,
              const struct cmd_global *defaults) RT_BLOCKS;

#endif
