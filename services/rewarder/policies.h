/*
 * The policies in force: one immutable, reference-counted set, replaced as a whole when the file changes.
 *
 * Threads     Any thread; the lock cfg_snapshot guards only the pointer to the current set.
 */
#ifndef RON_REWARDER_POLICIES_H
#define RON_REWARDER_POLICIES_H

#include <jansson.h>
#include <stdatomic.h>

#include "base/bytes.h"
#include "rt/lock.h"
#include "services/rewarder/core/policy.h"

/* A policy with a count, so that a run pins the body it was admitted with. */
struct rewarder_policy_ref {
    atomic_uint refs;
    struct rewarder_policy *policy;
};

struct rewarder_policy_ref *
rewarder_policy_ref_create(struct rewarder_policy *p); /* takes p over; NULL: no memory */
struct rewarder_policy_ref *rewarder_policy_ref(struct rewarder_policy_ref *p);
void rewarder_policy_unref(struct rewarder_policy_ref *p); /* NULL is fine */

enum { REWARDER_POLICIES_MAX = 256, REWARDER_MEMBER_CHARS = 64 };

struct rewarder_policies {
    struct rt_lock lock; /* cfg_snapshot */
    struct rewarder_policy_ref *list[REWARDER_POLICIES_MAX];
    size_t n;
    json_t *assets; /* which exist, as the file says; NULL: it does not say. Touched under the lock only. */
    char nobodys[REWARDER_MEMBER_CHARS]; /* the loader's: a member of the last file that nobody reads */
};

void rewarder_policies_init(struct rewarder_policies *p);
void rewarder_policies_fini(struct rewarder_policies *p);
/*
 * Replaces all by what the policy file holds (text.p NULL: the built-in one). On failure the old ones stay, and *out_member says what it
 * is about; valid until the next load. By one thread at a time.
 */
NODISCARD enum err rewarder_policies_load(struct rewarder_policies *p, struct bytes text,
                                          const char **out_member);
/* Whether a policy may pay in this asset: the file names it, or names none at all. */
bool rewarder_policies_know_asset(struct rewarder_policies *p, const char *name);
struct rewarder_policy_ref *rewarder_policies_find(struct rewarder_policies *p,
                                                   struct str id); /* a reference, or NULL */
/* References to those the tenant may use; returns how many. */
size_t rewarder_policies_list(struct rewarder_policies *p, struct str tenant,
                              struct rewarder_policy_ref **out);

#endif
