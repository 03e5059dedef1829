/*
 * OAP/1 server: many requests at once per connection, over TCP and Unix sockets, on the event loops of
 * somebody else (usually those of the HTTP server).
 *
 * A handler runs on its connection's loop thread and must not block. It answers at once, or keeps the
 * request and answers later from any thread, like in http_server.h. Every request is ended exactly
 * once, by net_oap_reply* or net_oap_end; before that it may send any number of frames with
 * net_oap_send (a stream).
 *
 * Ownership   From the handler's call until the end the request belongs to the handler's side. Payload,
 *             capability and arena live as long. It stays valid when the client leaves or the deadline
 *             passes; net_oap_req_gone() turns true, what is sent is dropped, and it must still be
 *             ended.
 * Threads     Accessors: whoever holds the request. net_oap_req_on_close, _set_timeout: only inside the
 *             handler. net_oap_send and the end: one thread at a time. Callbacks run on the loop's
 *             thread.
 * Memory      One allocation per request (with its payload), one per answer. Sizes are checked before
 *             anything is allocated.
 * Order       Answers leave in the order they are given. Requests of one connection reach the handler
 *             in the order they were sent.
 *
 * What the server does itself: framing (a broken peer gets one error frame and is closed), HELLO, 64
 * requests per connection and a limit in all (429), "the first request must carry a capability" (401),
 * inflating, deadlines, idle and write time-outs, draining. Judging the capability is the handler's
 * business, on every request: net_oap_req_cap is what is in force for this one.
 */
#ifndef RON_NET_OAP_SERVER_H
#define RON_NET_OAP_SERVER_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "net/http_server.h"
#include "net/oap.h"
#include "rt/deadline.h"

struct net_oap_server;
struct net_oap_req;

struct net_oap_handler {
    uint16_t app;
    void (*fn)(struct net_oap_req *rq, void *ctx);
    void *ctx;
    bool without_cap; /* requests need no capability */
};

/* 0 means the default in brackets. */
struct net_oap_limits {
    size_t frame_max;         /* [1 MiB] and at most that */
    size_t inflight_per_conn; /* [64] */
    size_t inflight;          /* [4096] in all */
    size_t max_conns;         /* [1024] */
    size_t
        stream_buffer; /* [256 KiB] waiting to be sent per connection before net_oap_send says ERR_BUSY */
    int64_t request_timeout_ms; /* [5000] then 503 timeout */
    int64_t read_timeout_ms;    /* [5000] for a frame once begun */
    int64_t write_timeout_ms;   /* [5000] without progress */
    int64_t idle_timeout_ms;    /* [60000] */
};

struct net_oap_done {
    uint16_t app, code, status;
    uint64_t bytes_in, bytes_out; /* payloads */
    int64_t duration_ns;
    bool complete; /* false: the client left, or the server answered for the handler */
};

struct net_oap_hooks {
    void *ctx;
    void (*conn)(void *ctx, int delta);
    void (*inflight)(void *ctx, int delta);
    void (*done)(void *ctx, const struct net_oap_done *d);
    void (*reject)(void *ctx, enum net_reject why);
};

struct net_oap_server_config {
    struct net_loop *const
        *loops; /* each gets its own listening TCP socket; Unix sockets are served by the first */
    size_t loops_count;
    const struct net_listen *listen; /* tls must be NULL */
    size_t listen_count;
    const struct net_oap_handler *handlers;
    size_t handlers_count;
    struct net_oap_limits limits;
    struct net_oap_hooks hooks;
    enum err draining_err; /* what a request gets while draining; 0: ERR_DRAINING */
};

/* Binds and listens; call before the loops run or on the thread of the only one. Errors as
 * net_server_create. */
NODISCARD enum err net_oap_server_create(const struct net_oap_server_config *config,
                                         struct net_oap_server **out);
/* After the loops stopped for good (and before they are destroyed) and every request was ended. NULL is
 * fine. */
void net_oap_server_destroy(struct net_oap_server *s);
uint16_t net_oap_server_port(const struct net_oap_server *s, size_t listen_index);

void net_oap_server_set_draining(struct net_oap_server *s, bool draining); /* any thread */
/* Draining; listeners are closed, idle connections too, the others after their last answer. Any thread,
 * returns at once. */
void net_oap_server_stop_accepting(struct net_oap_server *s);
size_t net_oap_server_conns(const struct net_oap_server *s);
size_t net_oap_server_inflight(const struct net_oap_server *s);

/* ---- what a request says ---- */

uint16_t net_oap_req_code(const struct net_oap_req *rq);
const uint8_t *net_oap_req_tenant(const struct net_oap_req *rq); /* 16 bytes */
struct str net_oap_req_cap(const struct net_oap_req *rq);        /* the capability in force */
struct bytes net_oap_req_payload(const struct net_oap_req *rq);  /* inflated */
const struct net_peer *net_oap_req_peer(const struct net_oap_req *rq);
struct arena *net_oap_req_arena(struct net_oap_req *rq);
struct net_loop *net_oap_req_loop(const struct net_oap_req *rq);
struct str net_oap_req_corr_id(struct net_oap_req *rq); /* a UUIDv7 made for logs, traces and problems */
bool net_oap_req_gone(const struct net_oap_req *rq);

/* Another deadline than the configured one; ms 0: none (streams). Only inside the handler. */
void net_oap_req_set_timeout(struct net_oap_req *rq, int64_t ms);
/* Like it, and if there is no answer by then the server says `late` instead of timeout: for work whose outcome is open once it has
 * begun. Only inside the handler. */
void net_oap_req_answer_by(struct net_oap_req *rq, struct deadline by, enum err late);
/* fn runs once if the client leaves, ends the request (REQ|END on its corr) or the deadline passes before
 * the end. It still must be ended. Only inside the handler. */
void net_oap_req_on_close(struct net_oap_req *rq, void (*fn)(struct net_oap_req *rq, void *arg), void *arg);

/* ---- answers ---- */

/* Ends with RESP|END; a payload over one frame goes on in further frames. Copied before the call returns.
 */
void net_oap_reply(struct net_oap_req *rq, uint16_t status, struct bytes payload);
void net_oap_reply_problem(struct net_oap_req *rq, enum err e, const char *detail_fmt, ...)
    __attribute__((format(printf, 3, 4)));
void net_oap_reply_problem_full(struct net_oap_req *rq,
                                const struct net_oap_problem *p); /* corr_id is filled in when empty */

/* One frame of a stream: kind is NET_OAP_RESP or NET_OAP_EVENT. ERR_BUSY: no room now (on_room tells),
 * ERR_CLOSED: nobody reads any more, ERR_TOO_LARGE: over one frame. */
NODISCARD enum err net_oap_send(struct net_oap_req *rq, enum net_oap_flag kind, uint16_t code,
                                struct bytes payload);
/* fn runs when, after ERR_BUSY, half of the buffer is free again. Set before the first send. */
void net_oap_req_on_room(struct net_oap_req *rq, void (*fn)(struct net_oap_req *rq, void *arg), void *arg);
/* Ends a stream with kind|END. */
void net_oap_end(struct net_oap_req *rq, enum net_oap_flag kind, uint16_t code, struct bytes payload);

#endif
