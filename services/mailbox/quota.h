/*
 * Quotas per tenant: how many messages and bytes a second the tokens of one tenant may send, all together, and how many messages may
 * wait in its topics.
 *
 * A line of the configuration is "tenant send_rate=100 bytes_rate=1MiB max_messages=10000"; a tenant without a line has no limit. A
 * burst of one second's worth is allowed, or of one whole batch when that is more. What waits is counted by the shards (tenancy.h).
 *
 * Threads     Every function from any thread; none waits.
 * Memory      A fixed table; reloading keeps the levels of tenants that are still there.
 */
#ifndef RON_MAILBOX_QUOTA_H
#define RON_MAILBOX_QUOTA_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/err.h"
#include "rt/limiter.h"
#include "rt/lock.h"
#include "services/mailbox/core/tenant.h"

enum { MAILBOX_QUOTAS_MAX = 256 };

struct mailbox_quota {
    char tenant[MAILBOX_TENANT_MAX + 1];
    struct rt_bucket sends, bytes;
    _Atomic int64_t
        waiting; /* in all shards, as far as they have told, and places taken by sends under way */
    _Atomic int64_t max_messages; /* 0 = no limit */
};

struct mailbox_quotas {
    struct rt_lock lock; /* "quota", rank 40: guards the table */
    atomic_uint n;       /* written under the lock; 0 is seen without it */
    atomic_bool counts;  /* some line has max_messages */
    struct mailbox_quota q[MAILBOX_QUOTAS_MAX];
};

void mailbox_quotas_init(struct mailbox_quotas *s);
void mailbox_quotas_fini(struct mailbox_quotas *s);
/* ERR_BAD_REQUEST with a sentence; s may be NULL to check only. */
NODISCARD enum err mailbox_quotas_set(struct mailbox_quotas *s, const char *const *lines, size_t n,
                                      char why[200]);
/* ERR_RATE_LIMITED: nothing was taken. */
NODISCARD enum err mailbox_quotas_take(struct mailbox_quotas *s, struct str tenant, uint64_t messages,
                                       uint64_t bytes, int64_t now_ns);

/* The line of a tenant, or NULL; it stays where it is, also when a reload takes its limits away. */
struct mailbox_quota *mailbox_quotas_find(struct mailbox_quotas *s, struct str tenant);
bool mailbox_quota_take_place(struct mailbox_quota *q); /* for one more message; false: there is none */
void mailbox_quota_give_places(struct mailbox_quota *q, int64_t n); /* n may be negative */

static inline unsigned mailbox_quotas_lines(struct mailbox_quotas *s)
{
    return atomic_load_explicit(&s->n, memory_order_relaxed);
}
static inline bool mailbox_quotas_count_messages(struct mailbox_quotas *s)
{
    return atomic_load_explicit(&s->counts, memory_order_relaxed);
}

#endif
