/*
 * OAP/1 client: one connection, many calls outstanding, matched by corr; reconnects by itself.
 *
 * Ownership   The client copies what it is given. An answer's payload is valid during the callback.
 *             After net_oap_client_stop every call still open ends with ERR_CLOSED, and no callback
 *             comes once net_oap_client_destroy returned.
 * Threads     net_oap_call, _open, _cancel, _set_token from any thread; callbacks run on the loop's
 *             thread. Only the *_wait function blocks, and never on the loop's thread.
 * Memory      One allocation per call. At most `queue_max` calls exist at once: ERR_BUSY.
 * Order       Calls leave in the order they were made. A connection that breaks ends every call it
 *             carried with ERR_DISCONNECTED (nobody knows whether it took effect); calls not sent yet
 *             wait for the next one within their deadline. What never left says so: ERR_REFUSED when no
 *             connection could be made, ERR_UNAVAILABLE when the deadline came first.
 */
#ifndef RON_NET_OAP_CLIENT_H
#define RON_NET_OAP_CLIENT_H

#include "base/bytes.h"
#include "base/err.h"
#include "net/loop.h"
#include "net/oap.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct net_oap_client;
struct net_oap_stream;

struct net_oap_client_config {
    struct net_loop *loop;
    const char *connect;        /* "127.0.0.1:7411", "[::1]:7411"; NULL with uds */
    const char *uds;            /* path */
    struct str token;           /* capability; may be empty */
    size_t queue_max;           /* 0: 1024 */
    size_t inflight_max;        /* 0: 64; more wait in the queue */
    int64_t connect_timeout_ms; /* 0: 1000 */
    int64_t backoff_min_ms;     /* 0: 100; doubles with jitter up to ... */
    int64_t backoff_max_ms;     /* 0: 5000 */
    bool fail_fast;             /* between two attempts to connect, calls end with ERR_REFUSED at once */
    size_t compress_from;       /* payloads from this size on are compressed; 0: never */
    /* Told when the connection comes (ERR_OK) and goes (why). May be NULL. */
    void (*on_state)(void *ctx, enum err state);
    void *ctx;
};

NODISCARD enum err net_oap_client_create(const struct net_oap_client_config *config,
                                         struct net_oap_client **out);
/* Ends all calls with ERR_CLOSED. Any thread; returns at once, the loop does the work. */
void net_oap_client_stop(struct net_oap_client *c);
/* On the loop's thread, or when the loop does not run any more. Stops first. NULL is fine. */
void net_oap_client_destroy(struct net_oap_client *c);
void net_oap_client_set_token(struct net_oap_client *c, struct str token); /* from the next call on */
bool net_oap_client_connected(const struct net_oap_client *c);
/* Calls that ran out of time and whose answer may still come on this connection. Any thread. */
size_t net_oap_client_owed(const struct net_oap_client *c);

struct net_oap_call {
    uint16_t app, code;
    const uint8_t *tenant; /* 16 bytes, or NULL */
    struct bytes payload;
    struct deadline by;
};

/* e is ERR_OK whenever an answer came, whatever its status (status >= 400: the payload is a ron.Problem).
 * Else ERR_TIMEOUT, ERR_DISCONNECTED, ERR_REFUSED, ERR_UNAVAILABLE, ERR_CLOSED, ERR_CORRUPT (the peer broke
 * the framing) and status is 0. */
typedef void net_oap_answer_fn(void *arg, enum err e, uint16_t status, struct bytes payload);

/* ERR_BUSY (queue full), ERR_CLOSED (stopped), ERR_TOO_LARGE: fn is not called then. Otherwise exactly
 * once. */
NODISCARD enum err net_oap_call(struct net_oap_client *c, const struct net_oap_call *call,
                                net_oap_answer_fn *fn, void *arg);

/* A call that is answered by many frames. fn gets each; the last one has end = true: with ERR_OK and the
 * final frame's code and payload, or with the error that cut the stream. `by` bounds the time to the first
 * frame. */
typedef void net_oap_stream_fn(void *arg, enum err e, uint16_t code, struct bytes payload, bool end);
NODISCARD enum err net_oap_open(struct net_oap_client *c, const struct net_oap_call *call,
                                net_oap_stream_fn *fn, void *arg, struct net_oap_stream **out_stream);
/* Tells the server to stop (REQ|END) and fn that it is over (ERR_CANCELED, end). Exactly once per stream,
 * at any time before the client is destroyed, also after its end: this gives the handle back. */
void net_oap_stream_close(struct net_oap_stream *st);

#endif
