/*
 * A stream apart from its wire: opening, credit, judging the token, closing are the same over HTTP and OAP.
 *
 * Ownership   create makes the call the stream's; it frees itself after end.
 * Threads     All of it on the call's loop thread.
 */
#ifndef RON_MAILBOX_API_STREAM_H
#define RON_MAILBOX_API_STREAM_H

#include "services/mailbox/api/call.h"
#include "services/mailbox/core/wire.h"

struct mailbox_stream_wire {
    void (*begin)(struct mailbox_stream *st);
    /* Writes from batch->written on and moves it; ERR_BUSY: no room now, mailbox_stream_room() later. ERR_CLOSED. */
    enum err (*write)(struct mailbox_stream *st, struct mailbox_batch *batch);
    enum err (*beat)(struct mailbox_stream *st); /* every 15 s */
    void (*lost)(struct mailbox_stream
                     *st); /* the client has left: releases what was written and never left; may be NULL */
    void (*end)(
        struct mailbox_stream *st); /* last words unless st->gone; ends call and request, frees st */
};

/* NULL: no memory. visibility_ms 0: the topic's default. */
struct mailbox_stream *mailbox_stream_create(struct mailbox_call *c, const struct mailbox_wire_recv *want,
                                             const struct mailbox_stream_wire *wire);
void mailbox_stream_submit(struct mailbox_stream *st); /* opens it, or refuses the call */
void mailbox_stream_room(struct mailbox_stream *st);
void mailbox_stream_left(struct mailbox_stream *st); /* the client is gone */

#endif
