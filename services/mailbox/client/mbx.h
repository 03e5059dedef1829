/*
 * A mailbox client in C: send, receive, settle, over HTTP.
 *
 *     struct mbx *c;
 *     e = mbx_open(&(struct mbx_config){.url = "http://127.0.0.1:7430", .token = token}, &c);
 *     e = mbx_send(c, &(struct mbx_message){.topic = "orders", .key = "order-1", .payload = …}, &sent);
 *     e = mbx_recv(c, "orders", &(struct mbx_wish){.max = 10, .wait_ms = 20000}, &batch);
 *     … for each batch.m[i]: work, then mbx_ack(c, &batch.m[i]) …
 *     mbx_batch_free(&batch);
 *     mbx_close(c);
 *
 * Retries     A send is repeated under its key until the deadline: a lost answer cannot make a second message. 429 and 503 wait
 *             what Retry-After says and a full jitter more, so that those who were refused together do not come back together.
 *             Receives, streams and settlements are not repeated.
 * Ownership   The caller owns the handle, and what mbx_recv filled in until mbx_batch_free. Strings given are borrowed for the call.
 * Threads     A handle belongs to one thread at a time. Every call waits, at most until its deadline; a stream as long as it lasts.
 *             mbx_cancel is for any other thread: the call that waits ends with ERR_CANCELED within a tenth of a second, and so does every
 *             later one; its connection is closed, and what had been leased for it and not read goes back.
 * Closing     From another thread: mbx_cancel, join, mbx_close. It flushes nothing, because nothing is kept back. A handle that is freed without it (mbx_destroy) says so at
 *             debug level and never waits.
 */
#ifndef RON_MAILBOX_CLIENT_MBX_H
#define RON_MAILBOX_CLIENT_MBX_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/uuid.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct mbx;
struct obs_log;

struct mbx_config {
    const char *url;     /* http://127.0.0.1:7430 */
    const char *uds;     /* Unix socket instead, or NULL */
    const char *token;   /* copied */
    int64_t timeout_ms;  /* per call; 0: 5000 */
    struct obs_log *log; /* may be NULL */
    uint64_t seed;       /* of the jitter; 0: from the system */
};

struct mbx_message {
    const char *topic, *key;
    struct bytes payload;
    uint64_t delay_ms;
};

struct mbx_sent {
    struct uuid msg_id;
    uint64_t topic_seq;
    bool duplicate;
};

struct mbx_wish {
    unsigned max;           /* 0: 32 */
    unsigned visibility_ms; /* 0: the topic's default */
    unsigned wait_ms;
};

struct mbx_delivery {
    struct uuid msg_id;
    uint64_t topic_seq;
    uint16_t attempt; /* the fencing token */
    struct str key;
    struct bytes payload;
};

struct mbx_batch {
    struct mbx_delivery *m;
    size_t n;
    void *memory; /* private */
};

/* What the service answered to the last call that failed, for a person; "" when there was no answer. */
const char *mbx_why(const struct mbx *c);

NODISCARD enum err mbx_open(const struct mbx_config *config,
                            struct mbx **out); /* ERR_SYNTAX, ERR_NO_MEMORY */
void mbx_close(struct mbx *c);                 /* NULL is fine */
void mbx_cancel(struct mbx *c);                /* any thread, while the handle is open; for good */
void mbx_destroy(struct mbx *c);               /* unclosed: says so, frees, never waits */

/* The error's own code tells: ERR_IDEM_CONFLICT, ERR_BUSY, ERR_FORBIDDEN, ERR_SAFE_MODE, ERR_TIMEOUT (outcome unknown) … */
NODISCARD enum err mbx_send(struct mbx *c, const struct mbx_message *m, struct mbx_sent *out) RT_BLOCKS;
NODISCARD enum err mbx_recv(struct mbx *c, const char *topic, const struct mbx_wish *w,
                            struct mbx_batch *out) RT_BLOCKS;
void mbx_batch_free(struct mbx_batch *b);

/*
 * Messages as they come, each handed to fn, which may settle it with the same handle: that gives the credit back. Ends with ERR_OK when
 * fn returns false, with what the service said when it ends it (ERR_DRAINING, ERR_UNAUTHENTICATED, ERR_SAFE_MODE, ERR_BUSY for a
 * reader that is too slow, ERR_UNAVAILABLE for shards that move), and with ERR_DISCONNECTED or ERR_TIMEOUT when nothing is heard any more.
 */
struct mbx_stream_wish {
    unsigned visibility_ms; /* 0: the topic's default */
    unsigned credit;        /* messages that may be unsettled; 0: 64 */
    unsigned max_bytes;     /* and their bytes; 0: 1 MiB */
};
typedef bool mbx_message_fn(void *arg,
                            const struct mbx_delivery *d); /* what d points to is valid during the call */
NODISCARD enum err mbx_stream(struct mbx *c, const char *topic, const struct mbx_stream_wish *w,
                              mbx_message_fn *fn, void *arg) RT_BLOCKS;
NODISCARD enum err mbx_ack(struct mbx *c, const struct mbx_delivery *d) RT_BLOCKS;
NODISCARD enum err mbx_nack(struct mbx *c, const struct mbx_delivery *d, const char *reason) RT_BLOCKS;
NODISCARD enum err mbx_extend(struct mbx *c, const struct mbx_delivery *d,
                              unsigned visibility_ms) RT_BLOCKS;

#endif
