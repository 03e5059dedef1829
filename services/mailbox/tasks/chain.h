/*
 * Links of a topic, read from its shard's journal a part at a time.
 *
 * Sealed segments in which the topic was not sent to, or not lately enough, are left out by their index files; of the others one is read
 * in each step. A page ends early when it took long, and says where to go on.
 *
 * Threads     The reprocessor. Between two steps the shard may leave the node: the next one says so.
 */
#ifndef RON_MAILBOX_CHAIN_H
#define RON_MAILBOX_CHAIN_H

#include "services/mailbox/operator.h"

/* op->walk, for the topic as it was when its worker looked. */
NODISCARD enum err mailbox_chain_begin(struct mailbox_operator *op, const struct mailbox_topic_info *info);
/* True while there is more to read; then the answer is in op->err and op->body. */
bool mailbox_chain_step(struct mailbox_operator *op) RT_BLOCKS;
void mailbox_chain_end(struct mailbox_operator *op); /* one that has not begun is fine */

#endif
