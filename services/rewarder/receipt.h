/*
 * A receipt: the artifact writer's word whether something is durable, for a task that waits for it.
 *
 * Ownership   Counted: the waiter and the writer hold one reference each, because either may be gone first (the waiter
 *             by being cancelled, the writer by a drain that drops what it did not reach).
 * Threads     Await by one thread, give by one other.
 */
#ifndef RON_REWARDER_RECEIPT_H
#define RON_REWARDER_RECEIPT_H

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct rewarder_receipt;

struct rewarder_receipt *rewarder_receipt_create(void); /* both references; NULL: no memory */
/* The writer's side, once; its reference goes. */
void rewarder_receipt_give(struct rewarder_receipt *rc, bool durable);
/* ERR_OK: durable. ERR_IO: it could not be written, or was dropped. ERR_TIMEOUT, ERR_CANCELED: wait again or leave. */
NODISCARD enum err rewarder_receipt_await(struct rewarder_receipt *rc, struct deadline by) RT_BLOCKS;
void rewarder_receipt_leave(struct rewarder_receipt *rc); /* the waiter's reference goes */

#endif
