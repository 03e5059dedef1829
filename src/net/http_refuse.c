/*
 * How a request is told no, in its place in the pipe.
 *
 * A connection's requests stand in a pipe in the order in which they came, and are answered in that order. Whoever refuses one
 * says here what that means for the connection: it may go on, or this was the last thing it said. A handler that keeps its
 * request for too long is answered for: another request takes its place, and the handler's is nobody's.
 */
#include "net/http_internal.h"

void net_pipe__push(struct net_conn *c, struct net_req *rq)
{
    rq->conn = c;
    rq->next = NULL;
    if (c->pipe_tail)
        c->pipe_tail->next = rq;
    else
        c->pipe_head = rq;
    c->pipe_tail = rq;
    c->pipe_n++;
}

/* Takes `rq` out of the pipe; `with` (or nobody) takes its place. */
void net_pipe__replace(struct net_conn *c, struct net_req *rq, struct net_req *with)
{
    struct net_req **at = &c->pipe_head, *before = NULL;
    while (*at != rq) {
        before = *at;
        at = &(*at)->next;
    }
    struct net_req *next = rq->next;
    *at = with ? with : next;
    if (with) {
        with->conn = c;
        with->next = next;
    } else {
        c->pipe_n--;
    }
    if (!next)
        c->pipe_tail = with ? with : before;
    rq->next = NULL;
}

/* The answer is the last thing this connection says. */
void net_refuse__last_words(struct net_conn *c, struct net_req *rq)
{
    rq->close = true;
    c->read_off = c->linger = true;
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
}

void net_refuse__close(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                       const char *detail)
{
    net_refuse__last_words(c, rq);
    if (!rq->corr_id.p)
        net_req__read_head(rq, NULL);
    net_reply__refuse(rq, why, &(struct net_problem){.err = e, .detail = str_from_c(detail)});
}

/* A refusal that leaves the connection usable when the rest of the request is small enough to be read away. */
void net_refuse__keep(struct net_conn *c, struct net_req *rq, enum net_reject why,
                      const struct net_problem *p)
{
    const struct net_http_head *h = &rq->head;
    bool body = h->chunked || h->length > 0;
    c->cur = NULL;
    if (!body) {
        c->reading = NET_READ_IDLE;
        if (!rq->want_keep)
            c->read_off = true;
    } else if (h->expect_continue || h->length > NET_SKIP_MAX || !rq->want_keep) {
        net_refuse__last_words(c, rq);
    } else {
        net_http_body_init(&c->body, h, NET_SKIP_MAX);
        c->reading = NET_READ_BODY;
    }
    net_reply__refuse(rq, why, p);
}

/* Its body is read: the connection stays usable. */
void net_refuse__complete(struct net_conn *c, struct net_req *rq, enum net_reject why,
                          const struct net_problem *p)
{
    c->cur = NULL;
    c->reading = NET_READ_IDLE;
    if (!rq->want_keep)
        c->read_off = true;
    net_reply__refuse(rq, why, p);
}

/* The handler keeps `rq`; the server answers in its place. */
void net_refuse__instead(struct net_conn *c, struct net_req *rq, enum net_reject why, enum err e,
                         const char *detail, bool close)
{
    struct net_req *ghost = net_req__new(c->w);
    ghost->started_ns = rq->started_ns;
    ghost->peer = rq->peer;
    ghost->is_head = rq->is_head;
    ghost->http10 = rq->http10;
    ghost->want_keep = rq->want_keep;
    ghost->match.leaf = rq->match.leaf;
    ghost->bytes_in = rq->bytes_in;
    if (rq->text) { /* what it asked for is still the question */
        ghost->head = rq->head;
        ghost->text = memcpy(net_req__keep(ghost, rq->head.head_bytes), rq->text, rq->head.head_bytes);
    }
    memcpy(ghost->corr, rq->corr_id.p, rq->corr_id.n);
    ghost->corr_id = (struct str){ghost->corr, rq->corr_id.n};
    if (rq->method.n)
        ghost->method = (struct str){arena_strdup(&ghost->arena, rq->method), rq->method.n};
    net_pipe__replace(c, rq, ghost);
    if (c->cur == rq)
        c->cur = NULL;
    if (close)
        net_refuse__last_words(c, ghost);
    net_req__orphan(rq);
    net_reply__refuse(ghost, why, &(struct net_problem){.err = e, .detail = str_from_c(detail)});
}

void net_refuse__conn(struct net_conn *c)
{
    struct net_req *rq = net_req__new(c->w);
    rq->started_ns = c->active_ns;
    rq->peer = c->peer;
    net_pipe__push(c, rq);
    net_refuse__close(c, rq, NET_REJECT_CONNS, ERR_BUSY, "too many connections");
}
