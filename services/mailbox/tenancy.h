/*
 * Waiting messages per tenant over all shards: the counts of the shards (core/tenant.h) against the limits of the quotas.
 *
 * A send takes a place of its topic's tenant before it is tried and gives it back when it made no new message, so that the limit holds
 * exactly, whichever shards send at once. What leaves (acked, purged) is told once a turn.
 *
 * Threads     The shard's worker; what it tells is in the quotas' atomics.
 */
#ifndef RON_MAILBOX_TENANCY_H
#define RON_MAILBOX_TENANCY_H

#include "services/mailbox/lane.h"

/* Tells `over_quota` of the item when there is none; what it took is for mailbox_tenancy_sent. */
struct mailbox_quota *mailbox_tenancy_take(struct mailbox_lane *l, struct mailbox_send_item *it);
void mailbox_tenancy_sent(struct mailbox_lane *l, const struct mailbox_send_item *it,
                          struct mailbox_quota *taken);
void mailbox_tenancy_tell(struct mailbox_lane *l);   /* after a turn, and when the shard has come */
void mailbox_tenancy_forget(struct mailbox_lane *l); /* the shard goes: its messages are another's */

#endif
