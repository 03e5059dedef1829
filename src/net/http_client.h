/*
 * HTTP client over libcurl (multi), driven by an event loop: connections are kept and reused, TLS is
 * verified, every request has a deadline and a bound on its answer.
 *
 * Ownership   The client copies what it is given. The response is valid during the callback.
 * Threads     net_http_send and net_http_call_close from any thread; callbacks run on the loop's
 *             thread. A session and net_http_once block and need no loop: for command-line tools and tasks.
 * Memory      At most max_requests at once (ERR_BUSY); bodies are bounded by response_max.
 * Order       None between requests.
 */
#ifndef RON_NET_HTTP_CLIENT_H
#define RON_NET_HTTP_CLIENT_H

#include <stdatomic.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "net/loop.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct net_http_call;
struct net_http_client;
struct net_http_response;

enum { NET_HTTP_HEADERS_MAX = 64, NET_HTTP_RESPONSE_MAX = 1 << 20 };

struct net_http_client_config {
    struct net_loop *loop;
    size_t max_requests;        /* 0: 256 */
    size_t max_per_host;        /* connections to one host; 0: 16 */
    int64_t connect_timeout_ms; /* 0: 1000 */
    const char *ca_file;        /* PEM; NULL: the system's */
    const char *user_agent;     /* NULL: "ron" */
    /* Called with every address before a socket is opened for it; false refuses (ERR_FORBIDDEN). For rules
     * about where a request may go, after the name was resolved. NULL: all may. */
    bool (*may_connect)(void *ctx, const struct sockaddr *addr, socklen_t addr_n);
    void *ctx;
};

NODISCARD enum err net_http_client_create(const struct net_http_client_config *config,
                                          struct net_http_client **out);
void net_http_client_stop(
    struct net_http_client *c); /* ends all requests with ERR_CLOSED; any thread, returns at once */
/* On the loop's thread, or when the loop does not run any more. Stops first. NULL is fine. */
void net_http_client_destroy(struct net_http_client *c);

struct net_http_retry {
    unsigned tries;         /* in all; 0 and 1: no retry */
    int64_t backoff_min_ms; /* 0: 50; doubles with jitter up to ... */
    int64_t backoff_max_ms; /* 0: 1000 */
    bool on_later; /* also after 429, 502, 503 and 504 (Retry-After is kept to when the deadline allows) */
    bool on_sent;  /* also when the request may have taken effect: only for idempotent ones */
};

/* Asked before and told after every try; NULL members are skipped. The caller's breaker. */
struct net_http_gate {
    bool (*allow)(void *ctx);                /* false: ERR_UNAVAILABLE without any try */
    void (*result)(void *ctx, bool success); /* no answer and 5xx are failures */
    void *ctx;
};

struct net_http_request {
    const char *method;         /* NULL: GET, or POST with a body */
    const char *url;            /* http:// or https:// */
    const char *uds;            /* connect to this Unix socket instead; the url's host goes into Host */
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
    struct bytes body;          /* copied, unless it */
    bool body_stays;            /* stays where it is until the request is over */
    struct deadline by;
    int64_t connect_ms;  /* for reaching the server; 0: the client's */
    int64_t stall_ms;    /* a try is over that brings nothing for so long; 0: at the deadline */
    size_t response_max; /* 0: NET_HTTP_RESPONSE_MAX */
    unsigned redirects;  /* to follow, 0 by default; https never goes to http */
    bool http_allowed;   /* false refuses http:// other than to loopback and Unix sockets */
    struct net_http_retry retry;
    struct net_http_gate gate;
    /* Streaming: pieces go here instead of the response's body (response_max still counts). Returning false
     * ends the request with ERR_CANCELED. The first call comes after on_head. May be NULL. */
    bool (*on_body)(void *arg, struct bytes piece);
    /* Status and headers before the first piece (or before the end); false ends it with ERR_CANCELED. May
     * be NULL. */
    bool (*on_head)(void *arg, const struct net_http_response *head);
    /* Of a session: once it is true the request ends with ERR_CANCELED, within a tenth of a second. May be NULL. */
    const atomic_bool *stop;
    /* Again and again while the body goes out: how much of it has. May be NULL. */
    void (*on_upload)(void *arg, uint64_t sent, uint64_t of);
};

struct net_http_header {
    struct str name, value; /* the name in lower case */
};

struct net_http_response {
    int status;
    struct bytes body;
    size_t headers_n;
    const struct net_http_header
        *headers; /* of the last response when redirects were followed; the first 64 */
    unsigned tries;
    int64_t connect_ms, total_ms; /* of the last try */
};
struct str net_http_header(const struct net_http_response *r,
                           const char *lower_name); /* p NULL without one */

/* e is ERR_OK whenever a whole response came, whatever its status. Else r is NULL and e is ERR_TIMEOUT,
 * ERR_REFUSED, ERR_DISCONNECTED, ERR_TOO_LARGE, ERR_FORBIDDEN (may_connect, plain http), ERR_UNAVAILABLE
 * (gate; a name that does not resolve), ERR_SYNTAX (url), ERR_UNAUTHENTICATED (TLS verification),
 * ERR_CANCELED, ERR_CLOSED. */
typedef void net_http_done_fn(void *arg, enum err e, const struct net_http_response *r);

/* ERR_BUSY, ERR_CLOSED, ERR_SYNTAX: fn is not called then. Otherwise exactly once. `arg` also goes to
 * on_head and on_body. out_call may be NULL; a handle must be given back with net_http_call_close. */
NODISCARD enum err net_http_send(struct net_http_client *c, const struct net_http_request *rq,
                                 net_http_done_fn *fn, void *arg, struct net_http_call **out_call);
/* Cancels what still runs (fn gets ERR_CANCELED) and gives the handle back. Any thread, once, before the
 * client is destroyed. */
void net_http_call_close(struct net_http_call *call);

/*
 * Requests one after the other, over connections that are kept, for who has no loop: the command line, and tasks, which beat
 * while they wait and whose hard cancel ends a request (ERR_CANCELED). One thread at a time. ca_file and s may be NULL.
 */
struct net_http_session;
NODISCARD enum err net_http_session_open(const char *ca_file, struct net_http_session **out);
void net_http_session_close(struct net_http_session *s);
/* As net_http_send; fn has run when it returns ERR_OK. */
NODISCARD enum err net_http_session_send(struct net_http_session *s, const struct net_http_request *rq,
                                         net_http_done_fn *fn, void *arg) RT_BLOCKS;
/* The same with a session of its own. */
NODISCARD enum err net_http_once(const struct net_http_request *rq, const char *ca_file,
                                 net_http_done_fn *fn, void *arg) RT_BLOCKS;

#endif
