/* What oap_server.c (listeners), oap_conn.c (bytes) and oap_req.c (requests and answers) share. */
#ifndef RON_NET_OAP_SERVER_INTERNAL_H
#define RON_NET_OAP_SERVER_INTERNAL_H

#include <stdatomic.h>

#include "base/uuid.h"
#include "net/loop.h"
#include "net/oap_server.h"

enum {
    NET_OAP_SERVER_MAGIC = 0x6f617073,
    NET_OAP_CONN_MAGIC = 0x6f617063,
    NET_OAP_REQ_MAGIC = 0x6f617071,
    NET_OAP_SCRATCH = 256 * 1024,
};

struct net_oap_shard;

/* A capability as sent; requests keep the one that was in force when they came. Counted on the loop's
 * thread, and freed there. */
struct net_oap_cap {
    unsigned refs;
    size_t n;
    char text[];
};

/* Bytes on their way out: frames of one answer, posted to the loop, then queued at the connection. */
struct net_oap_out {
    struct net_msg msg;
    struct net_oap_out *next;
    struct net_oap_req *rq; /* NULL: the server's own words */
    bool end;
    uint16_t status;
    size_t payload_n;
    size_t n, at;
    uint8_t bytes[];
};

struct net_oap_conn {
    uint32_t magic;
    struct net_fd nf;
    struct net_timer timer;
    struct net_oap_shard *shard;
    struct net_oap_conn *next, *prev; /* all of the shard */
    struct net_oap_conn *next_dirty;  /* to be flushed at the end of the iteration */
    struct net_peer peer;
    struct buf rx; /* a frame that has begun, and what came behind it */
    struct net_oap_cap *cap;
    struct net_oap_req *first, *last; /* not ended yet, oldest first */
    size_t inflight;
    struct net_oap_out *out_first, *out_last;
    atomic_size_t
        tx_bytes; /* given to net_oap_send and not yet with the kernel; seq_cst with rq->wants_room */
    int64_t frame_began_ns, write_began_ns, active_ns, linger_until_ns;
    uint32_t events; /* what epoll watches */
    bool dirty, dead;
    bool closing;   /* no more requests: flush, then half close */
    bool shut;      /* half closed: what comes is thrown away */
    bool last_look; /* draining: what had come was read once more */
};

struct net_oap_req {
    uint32_t magic;
    struct net_oap_conn *conn;
    struct net_oap_shard *shard;
    /* In the connection's list; `next` stays as it is after the end, so that a walk along the list survives
     * callbacks that end requests. Ended ones lie in the shard's grave until the iteration is over. */
    struct net_oap_req *next, *prev;
    struct net_oap_req *next_grave;
    struct net_oap_head head;
    struct net_oap_cap *cap;
    struct bytes payload;
    uint8_t *inflated; /* NULL: the payload lies behind the struct */
    struct arena arena;
    char corr_id[UUID_CHARS];
    int64_t started_ns, deadline_ns; /* INT64_MAX: none */
    enum err late_err;               /* what passing the deadline means; 0: timeout */
    uint64_t bytes_out;
    void (*on_close)(struct net_oap_req *rq, void *arg);
    void *on_close_arg;
    void (*on_room)(struct net_oap_req *rq, void *arg);
    void *on_room_arg;
    atomic_bool wants_room; /* set by a sender that found no room, taken by the loop after it made some */
    atomic_bool gone;       /* set by the loop (release), read anywhere (acquire) */
    atomic_bool ended;      /* by whoever ends it; twice is a bug */
    atomic_uint posted;     /* outs between a sender and the loop; while there are any, all go that way */
    uint8_t tail[];
};

struct net_oap_listener {
    struct net_fd nf;
    struct net_timer again; /* after a lack of descriptors */
    struct net_oap_shard *shard;
    const struct net_listen *spec;
};

struct net_oap_shard {
    struct net_oap_server *server;
    struct net_loop *loop;
    struct net_batch batch;
    struct net_msg stop;
    atomic_bool stop_posted;
    struct net_oap_conn *conns, *dirty;
    struct net_oap_req *grave;
    struct net_oap_listener *listeners;
    size_t listeners_count;
    uint8_t *scratch;
};

struct net_oap_server {
    uint32_t magic;
    struct net_oap_limits limits;
    struct net_oap_hooks hooks;
    enum err draining_err;
    struct net_oap_handler *handlers;
    size_t handlers_count;
    struct net_listen *
        listen; /* own copies of the specs; their strings and lists are the caller's until create returns */
    size_t listen_count;
    uint16_t *ports;
    struct net_oap_shard *shards;
    size_t shards_count;
    atomic_size_t conns, inflight;
    atomic_bool draining, stopping;
};

/* oap_conn.c */
void net_oap_conn__open(struct net_oap_shard *s, int fd, const struct net_peer *peer);
void net_oap_conn__kill(struct net_oap_conn *c);
void net_oap_conn__queue(struct net_oap_conn *c, struct net_oap_out *out);
void net_oap_conn__mark_dirty(struct net_oap_conn *c);
void net_oap_conn__arm(struct net_oap_conn *c, int64_t at_ns);
void net_oap_conn__free_if_done(struct net_oap_conn *c);
void net_oap_conn__flush_dirty(struct net_batch *b);
void net_oap_conn__close_if_idle(struct net_oap_conn *c);

/* oap_req.c */
void net_oap_req__start(struct net_oap_conn *c, const struct net_oap_frame *f);
void net_oap_req__refuse(struct net_oap_conn *c, const struct net_oap_head *head, enum err e,
                         const char *detail);
void net_oap_req__abandon(struct net_oap_req *rq); /* nobody waits for it any more */
void net_oap_req__expire(struct net_oap_req *rq);
bool net_oap_req__over(const struct net_oap_req *rq); /* ended, or nobody waits */
void net_oap_req__bury(struct net_oap_shard *sh);     /* frees what was ended in this iteration */
void net_oap_req__cancel(struct net_oap_req *rq);
void net_oap_cap__unref(struct net_oap_cap *cap);
void net_oap__reject(struct net_oap_server *s, enum net_reject why);

#endif
