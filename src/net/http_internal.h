/*
 * What the files of the HTTP server share: the server, its workers (one loop each), connections and requests.
 *
 * A request is a link in its connection's pipe, in the order of arrival, until its answer is written into the output
 * queue; then it waits in the sent list for its last byte to leave. Everything here belongs to the worker's thread except
 * where an atomic says otherwise. A request whose handler still holds it when its connection ends, or its deadline
 * passes, loses its connection pointer ("orphan") and is recycled when the handler's answer arrives.
 */
#ifndef RON_NET_HTTP_INTERNAL_H
#define RON_NET_HTTP_INTERNAL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/rng.h"
#include "net/admission.h"
#include "net/http_inflate.h"
#include "net/http_parse.h"
#include "net/http_route.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/tls.h"
#include "rt/lock.h"

enum {
    NET_BLOCK = NET_HTTP_HEAD_MAX + 512, /* a head that is one byte too long must fit */
    NET_REQ_MAGIC = 0x51455248,
    NET_OUT_HIGH = 256 << 10,    /* more unsent output than this and no further request is started */
    NET_STREAM_AHEAD = 64 << 10, /* of a stream's bytes, at most this much waits in the output queue */
    NET_SKIP_MAX = 64 << 10, /* a refused request's body up to this is read away to keep the connection */
    NET_PARTS_INLINE = 4,
    NET_CORR_MAX = 128,
    NET_MS_NS = 1000000,
    NET_CONNS_OVER = 64, /* connections beyond the limit that are still told so */
};

enum net_out_kind { NET_OUT_BLOCK, NET_OUT_REF, NET_OUT_FILE };

struct net_out {
    struct net_out *next;
    enum net_out_kind kind;
    bool shared; /* see net_part */
    int fd;
    off_t off;
    const uint8_t *p; /* unsent bytes */
    size_t n;
    net_still_fn *still; /* NULL: not asked */
    net_ready_fn *ready; /* likewise */
    void *source_arg;
};

struct net_block {
    struct net_out out;
    size_t cap, used;
    uint8_t data[];
};

enum net_phase {
    NET_PHASE_READING, /* head or body is coming in */
    NET_PHASE_HANDLER, /* somebody owes the answer */
    NET_PHASE_STORED,  /* answered, waits for its turn */
    NET_PHASE_STREAM,  /* its turn: the stream is being pumped */
    NET_PHASE_SENT,    /* written into the output queue */
};

enum net_answer_kind { NET_ANSWER_COPY, NET_ANSWER_PARTS, NET_ANSWER_STREAM };

/* An answer as the writer of responses takes it; `headers` or ready `lines`. */
struct net_answer {
    enum net_answer_kind kind;
    int status;
    enum err problem; /* see net_done */
    const struct net_headers *headers;
    struct str lines;
    unsigned retry_after_s;
    bool stable; /* body stays where it is until the request is recycled */
    struct bytes body;
    const struct net_part *parts;
    size_t part_count;
    int fd;
    bool close_fd;
    net_still_fn *still;
    net_ready_fn *ready;
    bool sized;
    uint64_t stream_n;
    net_release_fn *release;
    void *release_arg;
};

/* Single-producer ring between the writer of a stream (any thread) and the loop. */
struct net_stream {
    struct net_req *owner;
    uint8_t *data;
    size_t cap;
    _Atomic size_t put,
        got;            /* bytes ever; put: release by the writer, acquire by the loop; got: the reverse */
    atomic_bool queued; /* write_msg is posted; exchanged by both sides */
    atomic_bool wants_room; /* the writer was told ERR_BUSY */
    struct net_msg write_msg, end_msg;
    bool end_seen, aborted;    /* loop only */
    bool sized, chunked, mute; /* mute: HEAD, 204, 304: bytes are accepted and not sent */
    uint64_t left;             /* sized: still owed, writer's view */
    void (*on_room)(struct net_req *rq, void *arg);
    void *on_room_arg;
};

struct net_query_member {
    struct str name, value;
};

struct net_req {
    uint32_t magic;
    struct net_msg msg;      /* the answer's way home */
    struct net_msg body_msg; /* resume of a paused body */
    struct net_req *next;    /* pipe, sent list or free list */
    struct net_worker *w;
    struct net_conn *conn; /* NULL: orphan */
    enum net_phase phase;
    bool close, want_100, is_head, http10, want_keep, body_owned, body_paused, body_ended, counted, waits;
    atomic_bool answered; /* exchanged by who answers: twice is a bug */
    atomic_bool gone;     /* set by the loop, read by anybody; a hint, hence relaxed */
    atomic_bool resuming; /* body_msg is posted; exchanged by both sides */
    int64_t started_ns, deadline_ns;
    enum err late_err; /* what passing the deadline means; 0: timeout */
    struct net_peer peer;
    struct net_match match;
    struct str method, corr_id, traceparent;
    struct str lines; /* ready header lines for whatever answer comes; lives in the arena */
    char corr[NET_CORR_MAX];
    char *text; /* the head, copied; spans refer to it. NULL: it was not, or not yet, read */
    struct net_http_head head;
    /* What outlives the request in the pool: its copy of the head, and of how many bytes head and match still tell (0: none). */
    char *kept;
    size_t kept_cap, known_n;
    struct net_memo memo; /* of that head */
    uint8_t *body;
    size_t body_n, body_cap;
    uint64_t bytes_in, bytes_out;
    struct net_query_member *query;
    size_t query_n;
    bool query_read;
    void *user;
    void (*on_close)(struct net_req *rq, void *arg);
    void *on_close_arg;
    void (*on_body)(struct net_req *rq, struct bytes piece, bool end, void *arg);
    void *on_body_arg;
    struct net_inflater *inflater; /* of a streamed gzip body, else NULL */
    struct arena arena;
    struct buf reply; /* header lines, then a copied body */
    struct net_answer answer;
    struct net_part parts[NET_PARTS_INLINE];
    struct net_stream *stream;
    struct net_admission_permit permit;
    int status;
    enum err problem;
    uint64_t end_at; /* position in the connection's output */
};

enum net_reading { NET_READ_IDLE, NET_READ_HEAD, NET_READ_BODY };

struct net_conn {
    struct net_fd nf;
    struct net_timer timer;
    struct net_worker *w;
    struct net_conn *prev, *next;
    struct net_conn *dirty_next, *resume_next;
    struct net_tls_session *tls;
    struct net_peer peer;
    struct net_block *in;
    size_t in_from, in_to;
    struct net_http_body body;
    struct net_req *cur; /* being read; NULL while a refused body is skipped */
    enum net_reading reading;
    struct net_req *pipe_head, *pipe_tail;
    size_t pipe_n;
    struct net_req *sent_head, *sent_tail;
    struct net_out *out_head, *out_tail;
    size_t out_n;
    uint64_t queued, sent; /* bytes ever */
    int64_t active_ns, read_by_ns, write_by_ns, linger_by_ns, eof_by_ns;
    int64_t ask_at_ns; /* starved: when it is asked again */
    bool is_dirty, is_resume;
    bool readable;  /* the last edge has not been read away */
    bool hangup;    /* the peer closed its side: EOF will not raise another edge */
    bool eof;       /* ... and it was read */
    bool blocked;   /* the socket takes nothing now */
    bool starved;   /* what comes next is being fetched */
    bool paused;    /* no further request for now */
    bool read_off;  /* nothing more is read as requests */
    bool closing;   /* close when everything is sent */
    bool linger;    /* ... after letting the peer finish */
    bool lingering; /* output is shut down, input is thrown away */
    bool dead;
    bool heard; /* anything came at all */
};

struct net_listener {
    struct net_fd nf;
    struct net_worker *w;
    size_t index;
};

struct net_worker {
    struct net_server *s;
    unsigned index;
    struct net_loop *loop;
    struct net_batch batch;
    struct net_msg poke;
    atomic_bool poked;
    struct net_listener *listeners;
    struct net_timer accept_again;
    atomic_bool accepting; /* cleared by the worker (release), looked at by the drain (acquire) */
    struct net_conn *conns, *dirty, *resume, *dead, *free_conns;
    struct net_conn
        *current; /* whose input is being worked on: flushed right after, not at the batch's end */
    struct net_req *free_reqs;
    struct net_out *free_blocks, *free_outs;
    size_t free_block_n;
    struct net_limits limits;
    uint64_t limits_seen;
    struct net_http_seen seen;
    struct rng rng;
    struct net_inflater *inflater;
    uint8_t *scratch; /* what was read of a file and leaves at once; NULL until somebody needs it */
    int64_t date_s;
    char date[48]; /* "Date: ...\r\n" */
    int64_t rate_from_ns;
    uint64_t rate_count;
    _Atomic uint64_t
        rate_milli; /* completed requests per 1000 s; a statistic, like the three below: relaxed */
    _Atomic uint64_t accepted, requests, responses;
};

struct net_server {
    struct net_router *router;
    struct net_admission *admission;
    struct net_hooks hooks;
    struct str headers;
    char *headers_copy;
    struct net_listen *listen;
    int *listen_fds; /* while the server is being made; then each worker has its own */
    uint16_t *ports;
    char **uds_paths;
    uid_t **uids;
    size_t listen_n;
    unsigned workers_n;
    struct net_worker *workers;
    size_t stream_buffer;
    atomic_size_t conns;
    atomic_bool draining,
        closed;          /* closed: no more accepting. Release in the setter, acquire in the workers */
    struct rt_lock lock; /* guards limits */
    struct net_limits limits;
    _Atomic uint64_t limits_version; /* bumped under the lock; workers compare */
    struct rt_watch *idle;           /* published when the last connection ends while closed */
};

/* http_request.c */
struct net_req *net_req__new(struct net_worker *w); /* without a head */
/* For the request that `in` begins with. known_n > 0: head and match tell of its head already, which is all there. */
struct net_req *net_req__new_for(struct net_worker *w, struct bytes in, const struct net_http_limits *l);
char *net_req__keep(struct net_req *rq, size_t n); /* room for a copy of the head */
void net_req__free(struct net_req *rq);
void net_req__left(struct net_req *rq); /* tells the handler that nobody may be there any more */
void net_req__orphan(struct net_req *rq);
enum err net_req__body_add(struct net_req *rq, struct bytes piece);

/* http_head.c */
void net_req__read_head(struct net_req *rq, const char *text);

/* http_reply.c: unified way out; takes over the answer. */
void net_reply__give(struct net_req *rq, const struct net_answer *a);
void net_reply__emit(struct net_conn *c);
void net_reply__refuse(struct net_req *rq, enum net_reject why, const struct net_problem *p);
void net_reply__drop(struct net_req *rq, enum err result); /* release what an answer holds */

/* http_stream.c */
bool net_stream__pump(struct net_conn *c, struct net_req *rq); /* true: the stream is complete */
bool net_stream__has_more(const struct net_req *rq);
void net_stream__free(struct net_req *rq);

/* http_out.c */
struct net_block *net_out__block(struct net_worker *w, size_t at_least);
void net_out__block_free(struct net_worker *w, struct net_block *b);
uint8_t *net_out__reserve(struct net_conn *c, size_t n);
void net_out__commit(struct net_conn *c, size_t n);
void net_out__put(struct net_conn *c, const void *p, size_t n);
void net_out__ref(struct net_conn *c, struct bytes b);
void net_out__part(struct net_conn *c, const struct net_answer *a, const struct net_part *part);
void net_out__free_all(struct net_conn *c);
/* NET_IO_OK: all of it left; NET_IO_AGAIN: the socket is full (c->blocked), what comes next is not at hand (c->starved), or it is
 * others' turn. */
enum net_io net_out__flush(struct net_conn *c, enum err *out_why);

/* http_conn.c */
void net_conn__open(struct net_worker *w, int fd, const struct net_peer *peer, struct net_tls_session *tls,
                    bool refuse);
void net_conn__close(struct net_conn *c, enum err why);
void net_conn__dirty(struct net_conn *c);
void net_conn__resume(struct net_conn *c);
void net_conn__arm(struct net_conn *c, int64_t at_ns);
void net_conn__batch_end(struct net_worker *w);
void net_conn__drain(struct net_worker *w);
void net_conn__go_on(struct net_worker *w);           /* those that are starved */
void net_conn__cut(struct net_req *rq, enum err why); /* it will not be answered on its connection */

/* http_intake.c */
void net_intake__read(struct net_conn *c);
void net_intake__resumed(struct net_conn *c); /* goes on where a pause stopped it */
void net_intake__discard(struct net_conn *c); /* reads and forgets */
void net_intake__drop(struct net_conn *c);    /* gives the input block back */
bool net_intake__reading(const struct net_conn *c);
void net_intake__expire(struct net_conn *c, int64_t now_ns); /* deadlines of requests, 408 */

/* http_admit.c */
void net_admit__head(struct net_conn *c,
                     struct net_req *rq); /* a head is complete: refuse, wait for the body, or answer */
void net_admit__whole(struct net_conn *c, struct net_req *rq); /* so is its body */

/* http_body.c */
size_t net_body__max(const struct net_req *rq);
bool net_body__read(struct net_conn *c); /* false: nothing more can be done with what is there */
void net_body__failed(struct net_conn *c, enum err e, const char *why);
void net_body__resume(struct net_msg *m); /* a handler that had paused its body takes more */

/* http_refuse.c */
void net_pipe__push(struct net_conn *c, struct net_req *rq);
void net_pipe__replace(struct net_conn *c, struct net_req *rq,
                       struct net_req *with); /* NULL: it just goes */
void net_refuse__last_words(struct net_conn *c, struct net_req *rq);
void net_refuse__close(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                       const char *detail);
void net_refuse__keep(struct net_conn *c, struct net_req *rq, enum net_reject why,
                      const struct net_problem *p);
void net_refuse__complete(struct net_conn *c, struct net_req *rq, enum net_reject why,
                          const struct net_problem *p);
void net_refuse__instead(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                         const char *detail, bool close);
void net_refuse__conn(struct net_conn *c); /* one too many: told so and closed */

/* http_server.c */
unsigned net_server__retry_after(struct net_server *s, enum err e);
void net_server__completed(struct net_worker *w);
void net_server__conn_gone(struct net_server *s);

/* A statistic with one writer: no bus lock. */
static inline void net__count(_Atomic uint64_t *n)
{
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline int64_t net_conn__now_ns(const struct net_conn *c)
{
    return net_loop_now_ns(c->w->loop);
}

static inline size_t net_conn__in_n(const struct net_conn *c)
{
    return c->in_to - c->in_from;
}

static inline void net_conn__in_used(struct net_conn *c, size_t n)
{
    c->in_from += n;
    if (c->in_from == c->in_to)
        c->in_from = c->in_to = 0;
}

static inline bool net_server__closed(const struct net_server *s)
{
    return atomic_load_explicit(&s->closed, memory_order_acquire);
}

static inline bool net_server__draining(const struct net_server *s)
{
    return atomic_load_explicit(&s->draining, memory_order_acquire);
}

#endif
