/*
 * A call in a trace: mailbox.<op> with what it waited for below it. Spans are written when the call ends, from times noted on the
 * way, so a call that nobody samples costs its ids and nothing more.
 *
 *   mailbox.send     from the first look at the request to its answer; corr_id, messages
 *     mailbox.parse    until its jobs were handed over: token, decoding, hashes
 *     mailbox.queue    until a worker took the first of them
 *     mailbox.commit   until the last was done: the group is durable (receive: or somebody waited; settle: applied)
 *
 * recv, stream, ack, nack, extend, dlq, topics and chain likewise.
 *
 * Threads     On the call's loop thread; what workers note is there when the call is posted back.
 */
#ifndef RON_MAILBOX_API_SPAN_H
#define RON_MAILBOX_API_SPAN_H

#include "services/mailbox/job.h"

void mailbox_span_begin(struct mailbox_call *c,
                        struct str traceparent); /* empty: we may begin a trace ourselves */
void mailbox_span_submitted(struct mailbox_call *c);
void mailbox_span_end(struct mailbox_call *c, struct str corr_id, enum err e);

#endif
