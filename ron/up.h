/*
 * What `ron up` knows about all services together: that their configuration is good, and how those of one process reach each
 * other. The only place that knows two of them.
 *
 * Ownership   up_wire hands out a client that up_unwire closes, after the service that uses it and before the ledger.
 */
#ifndef RON_UP_H
#define RON_UP_H

#include "ron/cmd.h"
#include "svc/svc.h"

enum { SERVICES_MAX = 8 };

struct ledger_client;

/* Is the configuration of every service acceptable? Asked before anything is made, so that a slip leaves no trace. */
int up_check_config(const struct cmd_ctx *ctx, const struct cmd_global *g);

/* What to try next. What was chosen to start with is needed again to find it. */
void up_print_try(const struct cmd_global *g);

/* How wide a line may be: the terminal's width, or without bound where there is none. */
int up_columns(void);
/* As much of "what: this, that, more" as there is room for, up to a colon or comma, and the end of the line. */
void up_print_summary(const char *summary, int room);

/* The wiring of `def`: an in-process ledger client for wallet and rewarder, NULL for the others. */
void *up_wire(const struct svc_def *def, struct svc *ledger, struct svc_data *data,
              struct ledger_client **out_client);
void up_unwire(struct ledger_client *client); /* NULL is fine */

#endif
