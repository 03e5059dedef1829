/*
 * The local policy: which kinds the ledger takes, which assets exist, who is frozen. One JSON file for all services, last good kept.
 *
 *   {"version":1,"kinds":["mint",…],"assets":{"ron":{"decimals":2}},"frozen":["acct:x","acct:bad-*"]}
 *
 * Absent members allow everything, except that `reverse` must be named in kinds. Without a file everything but reverse is
 * allowed. Assets may be a list of names. `limits` and `reward_policies` are other services'; a member that is nobody's is refused: a
 * misspelt `frozen` would freeze nobody.
 *
 * Threads     Loaded policies are immutable; readers see either the old or the new one.
 */
#ifndef RON_LEDGER_POLICY_H
#define RON_LEDGER_POLICY_H

#include "services/ledger/core/entry.h"

struct ledger_policy;

struct ledger_policy *ledger_policy_default(void);
NODISCARD enum err ledger_policy_parse(struct bytes json, struct ledger_policy **out, char why[200]);
void ledger_policy_free(struct ledger_policy *p); /* and all it replaced */
/* Whoever looks at the old one now may go on: it lives as long as the new one. */
void ledger_policy_replaces(struct ledger_policy *p, struct ledger_policy *old);
/* False with a literal that says why: "kind", "asset", "frozen". */
bool ledger_policy_allows(const struct ledger_policy *p, const struct core_unit *u, const char **out_why);

#endif
