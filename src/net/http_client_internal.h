/*
 * What the two files of the HTTP client share: the client (curl's multi handle on the loop, http_client.c) and one
 * call with its tries (http_call.c).
 */
#ifndef RON_NET_HTTP_CLIENT_INTERNAL_H
#define RON_NET_HTTP_CLIENT_INTERNAL_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "net/http_client.h"
#include "net/inbox.h"
#include "rt/backoff.h"

enum { NET_HTTP_CLIENT_MAGIC = 0x68747063, NET_HTTP_CALL_MAGIC = 0x68747071 };

struct net_http_socket; /* one that curl uses and the loop watches */

struct net_http_client {
    uint32_t magic;
    struct net_http_client_config cfg;
    char *ca_file, *user_agent;
    struct net_loop *loop;
    struct net_inbox *inbox;
    atomic_size_t calls;

    /* the loop's */
    CURLM *multi;
    struct net_timer timer; /* curl's one time-out */
    struct net_http_socket *sockets;
    struct net_http_call *first; /* running or waiting */
    bool ended;
};

enum call_state { CALL_INBOX, CALL_RUNNING, CALL_WAITING, CALL_OVER };

struct net_http_call {
    uint32_t magic;
    atomic_uint refs; /* the client's, the inbox's and the caller's; the last one frees */
    struct net_http_client *client;
    struct net_inbox_item item;
    atomic_bool close_asked; /* release in net_http_call_close, acquire on the loop */
    struct net_http_request rq;
    char *method, *url, *uds;
    uint8_t *body;
    struct curl_slist *headers_out;
    net_http_done_fn *fn;
    void *arg;

    /* the loop's */
    enum call_state state;
    struct net_http_call *next, *prev;
    CURL *easy;
    struct net_timer timer; /* running: looks for a stall; waiting: the back-off */
    int64_t heard_ns;       /* when the try began, or something of its answer came last */
    struct rt_backoff backoff;
    unsigned tries;
    struct buf head, answer;
    struct net_http_header headers[NET_HTTP_HEADERS_MAX];
    size_t headers_n;
    size_t body_n;  /* bytes so far, also those that on_body took */
    enum err why;   /* set where we made curl fail */
    bool head_told; /* on_head has seen it: no way back */
};

/* A copy of the request with its own easy handle; the caller sets fn, arg and refs. */
NODISCARD enum err net_http_call_new(struct net_http_client *c, const struct net_http_request *rq,
                                     struct net_http_call **out);
void net_http_call_free(struct net_http_call *call); /* one that nobody else refers to yet */
void net_http_call_unref(struct net_http_call *call);

/* On the loop's thread. */
void net_http_call_start(struct net_http_call *call);              /* the next try */
int net_http_client_close_socket(void *ctx, curl_socket_t fd);     /* for CURLOPT_CLOSESOCKETFUNCTION */
void net_http_call_tried(struct net_http_call *call, CURLcode rc); /* a try came to its end */
void net_http_call_over(struct net_http_call *call, enum err e);   /* tells the caller; idempotent */

#endif
