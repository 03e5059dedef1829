/*
 * How services of one process reach each other: the only place that knows two of them.
 *
 * Ownership   up_wire hands out a client that up_unwire closes, after the service that uses it and before the ledger.
 */
#ifndef RON_UP_H
#define RON_UP_H

#include "svc/svc.h"

enum { SERVICES_MAX = 8 };

struct ledger_client;

/* The wiring of `def`: an in-process ledger client for wallet and rewarder, NULL for the others. */
void *up_wire(const struct svc_def *def, struct svc *ledger, struct svc_data *data,
              struct ledger_client **out_client);
void up_unwire(struct ledger_client *client); /* NULL is fine */

#endif
