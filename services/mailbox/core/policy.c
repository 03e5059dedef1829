#include "services/mailbox/core/policy.h"

bool mailbox_pattern_covers(struct str pattern, struct str name)
{
    if (pattern.n > 0 && pattern.p[pattern.n - 1] == '*')
        return str_starts(name, str_of(pattern.p, pattern.n - 1));
    return str_eq(pattern, name);
}

uint8_t mailbox_policy_match(const struct mailbox_policies *ps, struct str topic)
{
    for (uint8_t i = 1; i < ps->n; i++)
        if (mailbox_pattern_covers(str_from_c(ps->p[i].match), topic))
            return i;
    return 0;
}
