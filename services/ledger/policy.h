/*
 * The local policy: which kinds the ledger takes, which assets exist, who is frozen. One JSON file, last good kept.
 *
 *   {"version":1,"kinds":["mint",…],"assets":["ron"],"frozen":["acct:x"],"max_amount":{"ron":"1000000"}}
 *
 * Absent members allow everything, except that `reverse` must be named in kinds. Without a file everything but reverse is
 * allowed.
 *
 * Threads     Loaded policies are immutable; readers see either the old or the new one.
 */
#ifndef RON_LEDGER_POLICY_H
#define RON_LEDGER_POLICY_H

#include "services/ledger/core/entry.h"

struct ledger_policy;

struct ledger_policy *ledger_policy_default(void);
NODISCARD enum err ledger_policy_parse(struct bytes json, struct ledger_policy **out, char why[200]);
void ledger_policy_free(struct ledger_policy *p);
/* False with a literal that says why: "kind", "asset", "frozen", "amount". */
bool ledger_policy_allows(const struct ledger_policy *p, const struct core_unit *u, const char **out_why);

#endif
