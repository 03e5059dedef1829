/*
 * What the files of the OAP client share: a call on its way, and the client with its one connection. Everything here belongs
 * to the loop's thread except where an atomic or the lock says otherwise.
 */
#ifndef RON_NET_OAP_CLIENT_INTERNAL_H
#define RON_NET_OAP_CLIENT_INTERNAL_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/map.h"
#include "net/inbox.h"
#include "net/oap_client.h"
#include "rt/backoff.h"

enum {
    NET_OAP_READ_BYTES = 64 * 1024,
    NET_OAP_ANSWER_MAX = 64 << 20, /* of one call, put together from its frames */
};

enum call_state { CALL_INBOX, CALL_WAITING, CALL_SENT, CALL_OVER };

struct net_oap_stream {
    uint32_t magic;
    atomic_uint refs; /* the client's, and for streams the caller's; the last one frees */
    struct net_oap_client *client;
    struct net_oap_stream *next, *prev; /* in waiting */
    struct net_inbox_item item;
    atomic_bool close_asked; /* release in net_oap_stream_close, acquire on the loop */
    enum call_state state;   /* the loop's */
    bool is_stream, answered;
    struct net_oap_head head;
    struct net_timer timer;
    int64_t deadline_ns;
    net_oap_answer_fn *on_answer;
    net_oap_stream_fn *on_frame;
    void *arg;
    struct buf answer; /* of a call whose answer takes several frames */
    size_t payload_n;
    uint8_t payload[];
};

struct net_oap_token {
    size_t n;
    char text[];
};

enum conn_state { CONN_NONE, CONN_CONNECTING, CONN_UP };

struct net_oap_client {
    uint32_t magic;
    struct net_oap_client_config cfg;
    struct net_loop *loop;
    union {
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    } addr;
    socklen_t addr_n;

    struct net_inbox *inbox;

    struct rt_lock lock; /* guards the two below */
    struct net_oap_token *token;
    uint64_t token_version;

    atomic_size_t calls; /* alive, for queue_max */
    atomic_bool up;

    /* the loop's */
    enum conn_state state;
    struct net_fd nf;
    struct net_timer timer; /* connect time-out, or the next attempt */
    struct rt_backoff backoff;
    uint64_t next_corr, sent_version;
    struct map64 sent;
    _Atomic size_t owed; /* the loop's; relaxed: a gauge reads it */
    struct net_oap_stream *wait_first, *wait_last;
    struct buf rx, tx;
    uint32_t events;
    bool ended; /* stopped, and everybody was told */
};

/* oap_client.c */
void net_oap_call__unwait(struct net_oap_client *c, struct net_oap_stream *call); /* out of the line */
void net_oap_call__unref(struct net_oap_stream *call);
/* The one end of every call: out of all lists, then the callback. */
void net_oap_call__over(struct net_oap_stream *call, enum err e, uint16_t status, struct bytes payload);

/* oap_client_conn.c */
void net_oap_client__work(struct net_oap_client *c);
void net_oap_client__watch(struct net_oap_client *c); /* asks for the events that are wanted now */
void net_oap_client__drop(struct net_oap_client *c);  /* the connection, without a word to anybody */
void net_oap_client__fail_sent(struct net_oap_client *c, enum err why);
void net_oap_client__fail_waiting(struct net_oap_client *c, enum err why);
void net_oap_client__tell_state(struct net_oap_client *c, enum err state);
void net_oap_client__on_timer(struct net_timer *t);

#endif
