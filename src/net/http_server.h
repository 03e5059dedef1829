/*
 * HTTP/1.1 server: strict, keep-alive and pipelining, over TCP, TLS 1.3 and Unix sockets; one event loop per thread.
 *
 * A handler runs on its connection's loop thread and must not block. It answers at once, or keeps the request and
 * answers later from any thread. Every request is answered exactly once: by one net_reply* call, or by
 * net_stream_begin ... net_stream_end. Answering twice aborts (a bug).
 *
 * Ownership   From the handler's call until the answer the request belongs to the handler's side; afterwards it must
 *             not be touched. All views (path, headers, body, params) and what net_req_arena hands out live as long as
 *             that. It stays valid when the client leaves or the deadline passes: the server then answers 503 itself
 *             (or nobody), net_req_gone() turns true, and the late answer is dropped. It must still be given.
 * Threads     Accessors: whoever holds the request. net_req_on_close, net_req_on_body: only inside the handler.
 *             net_stream_write/end: one thread at a time. net_server_set_draining, _drain, _stop, _stats: any thread.
 *             Callbacks (handlers, gates, on_close, on_body, on_room, release, hooks) run on the loop's thread.
 * Memory      Requests, buffers and connections come from per-loop pools; once warm a request does not call malloc
 *             unless its body is larger than NET_SMALL_BODY. An idle connection keeps no buffer.
 * Order       Responses leave in the order of the requests, in whatever order they are answered.
 */
#ifndef RON_NET_HTTP_SERVER_H
#define RON_NET_HTTP_SERVER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct net_loop;
struct net_req;
struct net_server;
struct net_tls;
struct rt_task;

enum {
    NET_SMALL_BODY = 4096,   /* bodies up to this are kept in the request's arena */
    NET_PARAMS_MAX = 8,      /* {params} per pattern */
    NET_REQ_ARENA = 1 << 20, /* most that net_req_arena gives beyond head and body */
};

/* ---- routes ---- */

enum net_route_flags {
    NET_STREAM_BODY = 1,  /* the handler runs when the head is complete; the body goes to net_req_on_body */
    NET_NO_ADMISSION = 2, /* neither rate limit nor in-flight limit: health, metrics, admin */
    NET_WHILE_DRAINING = 4, /* answered by its handler while draining too */
    NET_NO_DEADLINE = 8,    /* no request deadline (event streams); headers still shorten it */
    NET_ADMIT_LATE =
        16, /* rate and in-flight limits are asked after the body was read and inflated: 413 wins */
};

/*
 * Patterns: "/v1/tx/{txid}/proof"; the last segment may be "{name*}" (the rest of the path, with slashes, at least one
 * byte). Literal segments win over params. Routing looks at the raw path; params are percent-decoded afterwards.
 * HEAD falls back to GET's handler and its body is left out.
 */
struct net_route {
    const char *method, *pattern;
    void (*fn)(struct net_req *rq, void *ctx);
    unsigned flags;
    size_t body_max;     /* 0: limits.body_max. Also bounds an inflated body */
    int64_t timeout_ms;  /* 0: limits.request_timeout_ms */
    const char *label;   /* for metrics; NULL: the pattern */
    const char *headers; /* "Name: value\r\n..." sent with every answer of this route; NULL: none */
    unsigned tag;        /* the caller's own, e.g. which operation a capability must name */
};

struct net_routes {
    const struct net_route *list;
    size_t count;
    void *ctx; /* handed to these handlers */
};

/* ---- what a request says ---- */

enum net_peer_kind { NET_PEER_TCP, NET_PEER_TLS, NET_PEER_UNIX };

struct net_peer {
    enum net_peer_kind kind;
    uint8_t addr[16]; /* IPv6, IPv4 as ::ffff:a.b.c.d; the client's when a trusted proxy names it */
    uint16_t port;
    bool loopback; /* the connection itself comes from loopback or a Unix socket */
    uid_t uid;     /* NET_PEER_UNIX */
    pid_t pid;
};

bool net_addr_is_loopback(const uint8_t addr[16]); /* 127.0.0.0/8, ::1 */

enum { NET_PEER_CHARS = 64 };
void net_peer_format(const struct net_peer *peer,
                     char out[NET_PEER_CHARS]); /* "127.0.0.1", "::1", "uid:1000" */

const struct net_route *net_req_route(const struct net_req *rq);
struct str net_req_method(const struct net_req *rq);
struct str net_req_target(const struct net_req *rq);    /* raw, as sent */
struct str net_req_path(const struct net_req *rq);      /* raw, without the query */
struct str net_req_query_raw(const struct net_req *rq); /* after '?', p NULL without one */
struct str net_req_param(struct net_req *rq,
                         const char *name); /* percent-decoded; CHECKs that the pattern has it */
struct str net_req_param_raw_str(const struct net_req *rq, struct str name);
static inline struct str net_req_param_raw(const struct net_req *rq, const char *name)
{
    return net_req_param_raw_str(rq,
                                 str_from_c(name)); /* inline, so that a literal's length costs nothing */
}
/* First member of that name, decoded ('+' is a space). ERR_NOT_FOUND. A query that is not well-formed was refused with 400. */
NODISCARD enum err net_req_query(struct net_req *rq, const char *name, struct str *out_value);
size_t net_req_query_count(struct net_req *rq);
void net_req_query_at(struct net_req *rq, size_t index, struct str *out_name, struct str *out_value);
struct str net_req_header_str(const struct net_req *rq, struct str name);
static inline struct str net_req_header(const struct net_req *rq,
                                        const char *name) /* first of that name; p NULL without one */
{
    return net_req_header_str(rq, str_from_c(name));
}
/* Of a field that is a list: several lines of it mean their values joined by commas (RFC 9110 §5.3). */
struct str net_req_header_list(struct net_req *rq, const char *name);
size_t net_req_header_count(const struct net_req *rq, const char *name); /* how often it occurs */
size_t net_req_headers(const struct net_req *rq);
void net_req_header_at(const struct net_req *rq, size_t index, struct str *out_name, struct str *out_value);
struct bytes net_req_body(const struct net_req *rq); /* complete, inflated */
struct str net_req_host(const struct net_req *rq);
struct str net_req_corr_id(const struct net_req *rq);     /* X-Corr-ID, or generated */
struct str net_req_traceparent(const struct net_req *rq); /* valid W3C value, or p NULL */
struct deadline net_req_deadline(const struct net_req *rq);
/* What Request-Timeout or Deadline asked for, also beyond the request's own: for work that outlives it. Never: neither. */
struct deadline net_req_caller_deadline(const struct net_req *rq);
int64_t net_req_started_ns(const struct net_req *rq); /* first byte, monotonic */
const struct net_peer *net_req_peer(const struct net_req *rq);
/* Who is at the other end of the connection itself, whatever a proxy says. Only inside the handler. */
const struct net_peer *net_req_socket_peer(const struct net_req *rq);
struct arena *net_req_arena(struct net_req *rq);
struct net_loop *net_req_loop(const struct net_req *rq);
unsigned net_req_loop_index(const struct net_req *rq); /* 0 .. threads-1 */
/* It will wait for something to happen, long perhaps (a long poll, a stream): its place among the requests in flight is given back
 * now. Inside the handler; whoever waits must be bounded by something else. */
void net_req_waits(struct net_req *rq);
bool net_req_is_head(const struct net_req *rq);
bool net_req_gone(
    const struct net_req *rq); /* nobody waits any more: work may be skipped (it must still be answered) */
void net_req_set_user(struct net_req *rq, void *user); /* one slot for the handler (a gate may fill it) */
void *net_req_user(const struct net_req *rq);

/* Room that belongs to a head, not to a request: when the same head comes again, byte by byte, what was left there may be found
 * there, or nothing. What it says must follow from those bytes and from what `as_of` stands for; 0: nothing was left. Only inside
 * the handler; NULL: this head is not kept. */
enum { NET_MEMO_BYTES = 496 };
struct net_memo {
    uint64_t as_of;
    size_t n;
    char text[NET_MEMO_BYTES];
};
struct net_memo *net_req_memo(struct net_req *rq);

/* From here on the handler means to answer by then; if it has not, the server says `late` (instead of timeout). For work whose
 * outcome is open once it has begun. Only inside the handler. */
void net_req_answer_by(struct net_req *rq, struct deadline by, enum err late);
/* fn runs once if the client leaves, or the deadline passes, before the answer is complete; for a request that waits (net_req_waits) also
 * when the client has sent its last byte: what is answered then may still reach it. A stream that waits is told the same way, and should
 * end. */
void net_req_on_close(struct net_req *rq, void (*fn)(struct net_req *rq, void *arg), void *arg);

/* NET_STREAM_BODY: pieces as they come; the last call has end = true (possibly with no bytes). An answer given before
 * the end stops the calls and the rest is thrown away; a body that breaks off ends with net_req_on_close. Gzip arrives
 * inflated; one piece of it may make several calls, also after a pause. */
void net_req_on_body(struct net_req *rq,
                     void (*fn)(struct net_req *rq, struct bytes piece, bool end, void *arg), void *arg);
/* Backpressure for streamed bodies: no more pieces until resumed. Resume from any thread. */
void net_req_pause_body(struct net_req *rq);
void net_req_resume_body(struct net_req *rq);

/* ---- answers ---- */

struct net_header {
    struct str name, value;
};

/* All optional; everything is copied before the call returns. A header of `list` whose value holds CR, LF or NUL is left
 * out; `raw` is sent as it is. */
struct net_headers {
    const char *type; /* Content-Type; NULL: application/json, "": none */
    const struct net_header *list;
    size_t count;
    struct str raw; /* ready lines "Name: value\r\n" for hot paths */
};

/* Ready lines "Name: value\r\n" for whatever answer this request gets. Before the answer; the last call counts. */
void net_req_answer_with(struct net_req *rq, struct str lines);

/* `result`: ERR_OK when every byte was handed to the kernel, ERR_DISCONNECTED when the client left or the answer came
 * too late, ERR_IO when the bytes could not be read (a mapping or file that became shorter; the response is cut). */
typedef void net_release_fn(void *arg, enum err result);

void net_reply(struct net_req *rq, int status, const struct net_headers *headers, struct bytes body);
void net_reply_json(struct net_req *rq, int status,
                    struct bytes body); /* net_reply with application/json */
/* The server closes fd afterwards. Reading must not block for long: sendfile runs on the loop's thread. */
void net_reply_file(struct net_req *rq, int status, const struct net_headers *headers, int fd, off_t off,
                    size_t len);
/* Zero copy: `body` stays valid until release. */
void net_reply_pinned(struct net_req *rq, int status, const struct net_headers *headers, struct bytes body,
                      net_release_fn *release, void *arg);
/* A part of a body: memory that stays valid until release, or where p is NULL, bytes of the file. */
struct net_part {
    const void *p;
    size_t n;
    off_t off;
    bool
        shared; /* others may write into the file: never sent by reference to its pages, as sendfile does */
    bool paced; /* a step at a time, each of which the source is asked for */
};
/* Are the bytes still those that were promised? If not, the response is cut. Asked before memory leaves (it may be a mapping of that
 * file) and before sendfile, and after something was read of the file. */
typedef bool net_still_fn(void *arg);
/* How many of these bytes of a paced part are at hand, so that the loop need not wait for a disk? 0: the next ones are being fetched,
 * and net_server_go_on tells when it is worth asking again; it is asked again in a while anyhow. On the loop's thread, or when it has
 * ended. */
typedef size_t net_ready_fn(void *arg, off_t off, size_t n);
/* Where a body comes from; all may be left out but fd. */
struct net_source {
    int fd; /* stays the caller's until release; -1: all is memory */
    net_still_fn *still;
    net_ready_fn *ready;
    net_release_fn *release;
    void *arg; /* of all three */
};
/* The array is copied, the bytes are not. */
void net_reply_parts(struct net_req *rq, int status, const struct net_headers *headers,
                     const struct net_source *from, const struct net_part *parts, size_t count);

/* problem+json with the error's status, code and title. 429 and 503 get Retry-After (see struct net_problem). */
void net_reply_problem(struct net_req *rq, enum err e, const char *detail_fmt, ...)
    __attribute__((format(printf, 3, 4)));
void net_reply_problem_details(struct net_req *rq, enum err e, const char *detail,
                               struct bytes details_json);

struct net_problem {
    enum err err;
    int status;                        /* 0: the error's */
    struct str detail;                 /* one sentence, or empty */
    struct bytes details_json;         /* an object, or empty */
    unsigned retry_after_s;            /* 0: the server's own estimate, at least 1 */
    const struct net_headers *headers; /* more headers (type is ignored), or NULL */
    bool own_limit; /* the server's 429: the limit was this client's own, not everybody's */
};
void net_reply_problem_full(struct net_req *rq, const struct net_problem *p);

/* Streaming: chunked (closed at the end for HTTP/1.0), or of known length. Written bytes wait in a buffer of
 * limits.stream_buffer bytes. No request deadline once begun; write progress is still demanded. */
void net_stream_begin(struct net_req *rq, int status, const struct net_headers *headers);
void net_stream_begin_sized(struct net_req *rq, int status, const struct net_headers *headers,
                            uint64_t length);
/* All or nothing. ERR_BUSY: no room now (on_room tells). ERR_CLOSED: the client left. ERR_TOO_LARGE: never fits. */
NODISCARD enum err net_stream_write(struct net_req *rq, struct bytes piece);
size_t net_stream_room(const struct net_req *rq);
/* fn runs when a stream that was ERR_BUSY has at least half its buffer free again. Set before the first write. */
void net_stream_on_room(struct net_req *rq, void (*fn)(struct net_req *rq, void *arg), void *arg);
void net_stream_end(struct net_req *rq);
/* Ends a stream that failed half way: the connection is cut so that the client cannot take it for complete. */
void net_stream_abort(struct net_req *rq);

/* ---- server ---- */

struct net_listen {
    const char *bind;        /* "127.0.0.1:7420", "[::1]:0"; NULL with uds */
    const char *uds;         /* path; its directory is created 0700, the socket is 0600 */
    const uid_t *allow_uids; /* uds: who may connect; NULL: the own euid */
    size_t allow_uids_count;
    struct net_tls *tls; /* NULL: plaintext. The server takes a reference */
};

struct net_cidr {
    uint8_t addr[16];
    uint8_t bits; /* of 128 */
};
NODISCARD enum err net_cidr_parse(struct str s,
                                  struct net_cidr *out_cidr); /* "10.0.0.0/8", "::1" ; ERR_SYNTAX */
bool net_cidr_has(const struct net_cidr *c, const uint8_t addr[16]);
bool net_cidr_any(const struct net_cidr *list, size_t n, const uint8_t addr[16]); /* one of them has it */

/* 0 means the default in brackets, unless said otherwise. */
struct net_limits {
    size_t header_bytes;  /* [16384] and at most that: 431 */
    size_t header_fields; /* [100] and at most that: 431 */
    size_t target_bytes;  /* [8192] request line: 414 */
    size_t body_max;      /* [1 MiB] 413 */
    bool no_body; /* body_max is 0: any body is too large, but for routes with a bound of their own */
    unsigned inflate_ratio;       /* [10] 413 */
    size_t inflate_max;           /* [the route's body_max] 413 */
    int64_t read_timeout_ms;      /* [5000] whole request: 408 */
    int64_t write_timeout_ms;     /* [5000] progress, else cut */
    int64_t idle_timeout_ms;      /* [60000] */
    int64_t request_timeout_ms;   /* [5000] from the first byte: 503 timeout */
    size_t max_conns;             /* [1024] 429 and closed */
    size_t max_inflight;          /* [512] 429 */
    size_t max_inflight_per_peer; /* [no limit] */
    size_t max_pipeline;  /* [16] requests of one connection being worked on; more wait in the socket */
    double rate_per_peer; /* requests a second, [no limit]; burst twice that: 429 */
    double rate;          /* of all peers together, [no limit]: 429 */
    double burst;         /* of them at once, [equal to rate] */
    size_t stream_buffer; /* [64 KiB] per stream */
    const struct net_cidr *trusted_proxies; /* their X-Forwarded-For names the client */
    size_t trusted_proxies_count;
};

enum net_reject {
    NET_REJECT_CONNS,
    NET_REJECT_UID,
    NET_REJECT_FRAMING,      /* 400, 505, 417, 414 */
    NET_REJECT_HEADERS,      /* 431 */
    NET_REJECT_BODY,         /* 413 */
    NET_REJECT_INFLATE,      /* 413 after inflating, 400 for broken gzip, 415 */
    NET_REJECT_RATE,         /* 429 rate_limited */
    NET_REJECT_INFLIGHT,     /* 429 busy */
    NET_REJECT_READ_TIMEOUT, /* 408 */
    NET_REJECT_DEADLINE,     /* 503 timeout answered by the server */
    NET_REJECT_DRAINING,     /* 503 draining */
    NET_REJECT_ROUTE,        /* 404, 405 */
    NET_REJECT_WRITE_TIMEOUT,
    NET_REJECT_COUNT
};
const char *net_reject_name(enum net_reject why); /* "conns", "rate", ... */

struct net_done {
    struct net_req *rq;            /* over, but still there: what it asked for can be read */
    const struct net_route *route; /* NULL: none matched, or refused before routing */
    struct str method, corr_id, traceparent;
    int status;
    enum err problem;             /* what a problem body names; ERR_OK: the answer was no problem */
    uint64_t bytes_in, bytes_out; /* body in as received; body out */
    int64_t duration_ns;          /* first byte in to last byte out */
    bool complete;                /* false: cut */
};

/* All optional. Called on loop threads; several loops may call at once. */
struct net_hooks {
    void *ctx;
    void (*conn)(void *ctx, int delta); /* +1 / -1 */
    void (*inflight)(void *ctx, const struct net_route *route, int delta);
    void (*done)(void *ctx, const struct net_done *d);
    void (*reject)(void *ctx, enum net_reject why);
    /* After routing and admission, before the handler. False: it has answered the request itself. */
    bool (*gate)(void *ctx, struct net_req *rq);
    /* Answers a request that came while draining; NULL: 503 draining. */
    void (*draining)(void *ctx, struct net_req *rq);
    /* Before the server refuses a request itself: may add headers and details. What it adds must live until it returns to
     * the server and be allocated from net_req_arena or be static. */
    void (*refusing)(void *ctx, struct net_req *rq, enum net_reject why, struct net_problem *p);
    /* Seconds for Retry-After of a 429 or 503; NULL or 0: in-flight requests over the measured completion rate. */
    unsigned (*retry_after)(void *ctx, enum err e);
};

struct net_server_config {
    unsigned threads; /* [1] loops; run each with net_server_run */
    const struct net_listen *listen;
    size_t listen_count;
    const struct net_routes *routes; /* tables must outlive the server */
    size_t routes_count;
    struct net_limits limits;
    struct net_hooks hooks;
    const char *headers;       /* "Name: value\r\n..." on every response, also refusals; NULL: none */
    const struct clock *clock; /* NULL: clock_real() */
};

/* Binds and listens; nothing is accepted before net_server_run. ERR_REFUSED-like: ERR_EXISTS address in use, ERR_PERMISSION,
 * ERR_SYNTAX bad address or route pattern. */
NODISCARD enum err net_server_create(const struct net_server_config *config,
                                     struct net_server **out_server);
void net_server_destroy(
    struct net_server *s); /* after every net_server_run returned and every request was answered */
/* Runs, on this thread, what was posted to the loops last, and closes every connection. After every net_server_run returned, before
 * whoever posted it goes: a drain that ran out of time ends the loops with mail in their inboxes. */
void net_server_settle(struct net_server *s);

/* Task body of loop `index`; returns after net_server_stop or when the task is told to stop. May be run again (restart):
 * connections live in the server, not in the task. self may be NULL. */
NODISCARD enum err net_server_run(struct net_server *s, unsigned index, struct rt_task *self) RT_BLOCKS;
unsigned net_server_threads(const struct net_server *s);
struct net_loop *net_server_loop(struct net_server *s, unsigned index);
/* Something is at hand that an answer on this loop waits for (net_ready_fn). From any thread. */
void net_server_go_on(struct net_server *s, unsigned index);
uint16_t net_server_port(const struct net_server *s, size_t listen_index); /* the bound port; 0 for uds */

/* While set, new requests are answered "draining" (NET_WHILE_DRAINING routes excepted) and every response closes. */
void net_server_set_draining(struct net_server *s, bool draining);
/* Draining, listeners closed, idle connections closed; those at work are closed after their last response. */
void net_server_stop_accepting(struct net_server *s);
/* set_draining + stop_accepting, then waits until no connection is left or the deadline passed (ERR_TIMEOUT). Blocks. */
NODISCARD enum err net_server_drain(struct net_server *s, struct deadline by) RT_BLOCKS;
void net_server_stop(
    struct net_server *s); /* every net_server_run returns; connections are cut by destroy */

/* What can change while running: limits of size, time and rate (not threads, listeners, routes). */
void net_server_set_limits(struct net_server *s, const struct net_limits *limits);

struct net_server_stats {
    size_t conns, inflight;
    uint64_t accepted, requests, responses;
    double completed_per_s; /* measured over the last seconds */
};
void net_server_stats(const struct net_server *s, struct net_server_stats *out);

/* ---- TLS ---- */

struct net_tls_config {
    const char *cert_file, *key_file; /* PEM */
    const char *client_ca_file;       /* NULL: no client certificate is asked for; else one is required */
};
NODISCARD enum err net_tls_create(const struct net_tls_config *config, struct net_tls **out_tls);
NODISCARD enum err net_tls_reload(struct net_tls *tls); /* reads the files again; on failure the old stay */
/* The same in two steps, for who reloads more than this: what was read is taken, or (NULL is fine) forgotten. */
struct net_tls_fresh;
NODISCARD enum err net_tls_read_again(const struct net_tls *tls, struct net_tls_fresh **out_fresh);
void net_tls_take(struct net_tls *tls, struct net_tls_fresh *fresh);
void net_tls_forget(struct net_tls_fresh *fresh);
struct net_tls *net_tls_ref(struct net_tls *tls);
void net_tls_unref(struct net_tls *tls);
uint64_t net_tls_failures(const struct net_tls *tls); /* handshakes that failed, so far */

#endif
