/*
 * Answers. A handler on the loop's thread whose request is first in the pipe writes straight into the connection's output;
 * any other answer is stored in the request (headers as ready lines, body copied or pinned), posted to the loop when it
 * comes from another thread, and written when its turn comes.
 */
#include "net/http_internal.h"

#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "net/problem.h"

enum {
    COPY_BODY_MAX = 8 << 10, /* larger bodies are referenced, not copied into a block */
    HEAD_FIXED = 576,        /* status line, date, lengths, corr id, connection, transport security */
};

static struct net_req *req_of_msg(struct net_msg *m)
{
    return (struct net_req *)(void *)((char *)m - offsetof(struct net_req, msg));
}

/* ---- header text ---- */

struct reason {
    int status;
    struct str line;
};

#define LINE(code, text)                                                                                   \
    {                                                                                                      \
        code, STR_INIT("HTTP/1.1 " #code " " text "\r\n")                                                  \
    }
static const struct reason reasons[] = {
    LINE(200, "OK"),
    LINE(201, "Created"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(206, "Partial Content"),
    LINE(301, "Moved Permanently"),
    LINE(302, "Found"),
    LINE(303, "See Other"),
    LINE(304, "Not Modified"),
    LINE(307, "Temporary Redirect"),
    LINE(308, "Permanent Redirect"),
    LINE(400, "Bad Request"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(404, "Not Found"),
    LINE(405, "Method Not Allowed"),
    LINE(406, "Not Acceptable"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(410, "Gone"),
    LINE(412, "Precondition Failed"),
    LINE(413, "Content Too Large"),
    LINE(414, "URI Too Long"),
    LINE(415, "Unsupported Media Type"),
    LINE(416, "Range Not Satisfiable"),
    LINE(417, "Expectation Failed"),
    LINE(421, "Misdirected Request"),
    LINE(422, "Unprocessable Content"),
    LINE(425, "Too Early"),
    LINE(428, "Precondition Required"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(500, "Internal Server Error"),
    LINE(501, "Not Implemented"),
    LINE(502, "Bad Gateway"),
    LINE(503, "Service Unavailable"),
    LINE(504, "Gateway Timeout"),
    LINE(505, "HTTP Version Not Supported"),
    LINE(507, "Insufficient Storage"),
};

static uint8_t *put(uint8_t *at, struct str s)
{
    if (s.n)
        memcpy(at, s.p, s.n);
    return at + s.n;
}

#define PUT_LIT(at, lit) (memcpy((at), lit, sizeof(lit) - 1), (at) + sizeof(lit) - 1)

static uint8_t *put_u64(uint8_t *at, uint64_t v)
{
    uint8_t digits[20];
    size_t n = sizeof digits;
    do
        digits[--n] = (uint8_t)('0' + v % 10);
    while (v /= 10);
    memcpy(at, digits + n, sizeof digits - n);
    return at + (sizeof digits - n);
}

static uint8_t *put_status(uint8_t *at, int status)
{
    if (status == 200)
        return put(at, reasons[0].line);
    for (size_t i = 1; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return put(at, reasons[i].line);
    at = PUT_LIT(at, "HTTP/1.1 ");
    at = put_u64(at, (uint64_t)status);
    return PUT_LIT(at, " \r\n");
}

static uint8_t *put_date(uint8_t *at, struct net_worker *w)
{
    int64_t second = net_loop_wall_ms(w->loop) / 1000;
    if (second != w->date_s) {
        char text[TIME_HTTP_CHARS];
        time_format_http(second * 1000, text);
        snprintf(w->date, sizeof w->date, "Date: %s\r\n", text);
        w->date_s = second;
    }
    return put(at, (struct str){w->date, sizeof "Date: \r\n" - 1 + TIME_HTTP_CHARS - 1});
}

static bool field_ok(const struct net_header *h)
{
    return net_http_is_token(h->name) && (h->value.n == 0 || (!memchr(h->value.p, '\r', h->value.n) &&
                                                              !memchr(h->value.p, '\n', h->value.n) &&
                                                              !memchr(h->value.p, 0, h->value.n)));
}

static size_t lines_max(const struct net_headers *h)
{
    if (!h)
        return 64;
    size_t n = 64 + (h->type ? strlen(h->type) : 0) + h->raw.n;
    for (size_t i = 0; i < h->count; i++)
        n += h->list[i].name.n + h->list[i].value.n + 4;
    return n;
}

static uint8_t *put_lines(uint8_t *at, const struct net_headers *h)
{
    const char *type = h && h->type ? h->type : "application/json";
    if (*type) {
        at = PUT_LIT(at, "Content-Type: ");
        at = put(at, str_from_c(type));
        at = PUT_LIT(at, "\r\n");
    }
    for (size_t i = 0; h && i < h->count; i++) {
        const struct net_header *f = &h->list[i];
        if (!field_ok(f))
            continue;
        at = put(at, f->name);
        at = PUT_LIT(at, ": ");
        at = put(at, f->value);
        at = PUT_LIT(at, "\r\n");
    }
    return h ? put(at, h->raw) : at;
}

/* ---- writing a response ---- */

static bool bodyless(int status)
{
    return status == 204 || status == 304 || status < 200;
}

static uint64_t body_length(const struct net_answer *a)
{
    uint64_t n = 0;
    switch (a->kind) {
    case NET_ANSWER_COPY:
        return a->body.n;
    case NET_ANSWER_PARTS:
        for (size_t i = 0; i < a->part_count; i++)
            n += a->parts[i].n;
        return n;
    case NET_ANSWER_STREAM:
        return a->stream_n;
    }
    UNREACHABLE();
}

/* The last response of a connection says so. While draining that is the one nothing is queued behind. */
static bool says_close(const struct net_conn *c, const struct net_req *rq)
{
    return rq->close || !rq->want_keep || (c->eof && !rq->next) ||
           (net_server__draining(c->w->s) && !rq->next);
}

static uint8_t *put_head(uint8_t *at, struct net_conn *c, struct net_req *rq, const struct net_answer *a)
{
    const struct net_route_leaf *leaf = rq->match.leaf;
    at = put_status(at, a->status);
    at = put_date(at, c->w);
    at = PUT_LIT(at, "X-Corr-ID: ");
    at = put(at, rq->corr_id);
    at = PUT_LIT(at, "\r\n");
    if (a->headers || !a->lines.p)
        at = put_lines(at, a->headers);
    else
        at = put(at, a->lines);
    if (leaf)
        at = put(at, leaf->headers);
    at = put(at, rq->lines);
    at = put(at, c->w->s->headers);
    if (c->tls) /* RFC 6797 §7.2: never over plaintext */
        at = PUT_LIT(at, "Strict-Transport-Security: max-age=31536000\r\n");
    if (a->retry_after_s) {
        at = PUT_LIT(at, "Retry-After: ");
        at = put_u64(at, a->retry_after_s);
        at = PUT_LIT(at, "\r\n");
    }
    if (says_close(c, rq)) {
        at = PUT_LIT(at, "Connection: close\r\n");
        rq->close = true;
    } else if (rq->http10) {
        at = PUT_LIT(at, "Connection: keep-alive\r\n");
    }
    if (bodyless(a->status))
        return PUT_LIT(at, "\r\n");
    if (a->kind == NET_ANSWER_STREAM && !a->sized) {
        if (rq->http10)
            return PUT_LIT(at, "\r\n");
        return PUT_LIT(at, "Transfer-Encoding: chunked\r\n\r\n");
    }
    at = PUT_LIT(at, "Content-Length: ");
    at = put_u64(at, body_length(a));
    return PUT_LIT(at, "\r\n\r\n");
}

static void put_body(struct net_conn *c, struct net_req *rq, const struct net_answer *a)
{
    switch (a->kind) {
    case NET_ANSWER_COPY:
        if (!a->stable) {
            buf_reset(&rq->reply);
            buf_put_bytes(&rq->reply, a->body);
            CHECK(rq->reply.err == ERR_OK);
            net_out__ref(c, buf_bytes(&rq->reply));
        } else {
            net_out__ref(c, a->body);
        }
        break;
    case NET_ANSWER_PARTS:
        for (size_t i = 0; i < a->part_count; i++)
            net_out__part(c, a, &a->parts[i]);
        break;
    case NET_ANSWER_STREAM:
        break;
    }
}

static void pipe_pop(struct net_conn *c)
{
    struct net_req *rq = c->pipe_head;
    c->pipe_head = rq->next;
    if (!c->pipe_head)
        c->pipe_tail = NULL;
    c->pipe_n--;
    rq->next = NULL;
}

/* The first request of the pipe is completely in the output queue. */
static void finished(struct net_conn *c, struct net_req *rq)
{
    CHECK(c->pipe_head == rq);
    pipe_pop(c);
    rq->phase = NET_PHASE_SENT;
    rq->end_at = c->queued;
    if (c->sent_tail)
        c->sent_tail->next = rq;
    else
        c->sent_head = rq;
    c->sent_tail = rq;
    if (rq->close) {
        c->closing = c->read_off = true;
        c->linger = c->linger || c->reading != NET_READ_IDLE || net_server__draining(c->w->s);
    }
}

static void write_response(struct net_conn *c, struct net_req *rq, const struct net_answer *a)
{
    bool body = !rq->is_head && !bodyless(a->status);
    bool copy = body && a->kind == NET_ANSWER_COPY && a->body.n <= COPY_BODY_MAX;
    if (a->kind == NET_ANSWER_STREAM && !a->sized && rq->http10)
        rq->close = true;
    size_t most = HEAD_FIXED + rq->corr_id.n + rq->lines.n + c->w->s->headers.n + (copy ? a->body.n : 0) +
                  (rq->match.leaf ? rq->match.leaf->headers.n : 0) +
                  (a->headers || !a->lines.p ? lines_max(a->headers) : a->lines.n);
    uint8_t *start = net_out__reserve(c, most);
    uint8_t *at = put_head(start, c, rq, a);
    rq->status = a->status;
    rq->problem = a->problem;
    if (copy && a->body.n) {
        memcpy(at, a->body.p, a->body.n);
        at += a->body.n;
    }
    net_out__commit(c, (size_t)(at - start));
    if (body) {
        rq->bytes_out = body_length(a);
        if (!copy)
            put_body(c, rq, a);
    }
}

/* Writes what the pipe has ready, in order. */
void net_reply__emit(struct net_conn *c)
{
    while (c->pipe_head && !c->closing) {
        struct net_req *rq = c->pipe_head;
        if (rq->want_100 && (rq->phase == NET_PHASE_READING || rq->phase == NET_PHASE_HANDLER)) {
            rq->want_100 = false;
            net_out__put(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
            net_conn__dirty(c);
        }
        if (rq->phase == NET_PHASE_STORED) {
            write_response(c, rq, &rq->answer);
            net_conn__dirty(c);
            rq->phase = NET_PHASE_STREAM;
            if (rq->answer.kind != NET_ANSWER_STREAM) {
                finished(c, rq);
                continue;
            }
        }
        if (rq->phase != NET_PHASE_STREAM || !net_stream__pump(c, rq))
            return;
        finished(c, rq);
    }
}

/* ---- taking an answer ---- */

void net_reply__drop(struct net_req *rq, enum err result)
{
    struct net_answer *a = &rq->answer;
    if (a->close_fd)
        close(a->fd);
    a->close_fd = false;
    if (a->release) {
        net_release_fn *release = a->release;
        a->release = NULL;
        release(a->release_arg, result);
    }
}

/* On the loop's thread: rq->answer is complete. */
static void arrived(struct net_req *rq)
{
    struct net_conn *c = rq->conn;
    if (!c) {
        net_reply__drop(rq, ERR_DISCONNECTED);
        if (rq->answer.kind != NET_ANSWER_STREAM)
            net_req__free(rq);
        return;
    }
    if (c->cur == rq)
        c->cur = NULL; /* the rest of its body is skipped */
    rq->phase = NET_PHASE_STORED;
    net_reply__emit(c);
}

static void arrived_msg(struct net_msg *m)
{
    arrived(req_of_msg(m));
}

/* Headers become ready lines, a copied body follows them; parts are only noted. */
static void store(struct net_req *rq, const struct net_answer *a)
{
    struct net_answer *to = &rq->answer;
    *to = *a;
    size_t most = lines_max(a->headers);
    bool copy = a->kind == NET_ANSWER_COPY;
    buf_reset(&rq->reply);
    uint8_t *at = buf_reserve(&rq->reply, most + (copy ? a->body.n : 0));
    CHECK(at != NULL);
    size_t n = (size_t)(put_lines(at, a->headers) - at);
    if (copy && a->body.n)
        memcpy(at + n, a->body.p, a->body.n);
    buf_commit(&rq->reply, n + (copy ? a->body.n : 0));
    to->headers = NULL;
    to->lines = (struct str){(const char *)rq->reply.p, n};
    to->stable = true;
    if (copy)
        to->body = bytes_of(rq->reply.p + n, a->body.n);
    if (a->kind == NET_ANSWER_PARTS && a->part_count) {
        struct net_part *parts = rq->parts;
        if (a->part_count > NET_PARTS_INLINE)
            parts = arena_array(&rq->arena, a->part_count, sizeof *parts);
        CHECK(parts != NULL);
        memcpy(parts, a->parts, a->part_count * sizeof *parts);
        to->parts = parts;
    }
}

void net_reply__give(struct net_req *rq, const struct net_answer *a)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    CHECK(!atomic_exchange_explicit(&rq->answered, true, memory_order_relaxed)); /* answered twice */
    bool here = net_loop_current() == rq->w->loop;
    struct net_conn *c = here ? rq->conn : NULL;
    if (c && c->pipe_head == rq && a->kind != NET_ANSWER_STREAM && !c->closing) {
        if (c->cur == rq)
            c->cur = NULL;
        rq->answer.release = a->release;
        rq->answer.release_arg = a->release_arg;
        rq->answer.close_fd = a->close_fd;
        rq->answer.fd = a->fd;
        write_response(c, rq, a);
        finished(c, rq);
        net_conn__dirty(c);
        net_reply__emit(c);
        return;
    }
    store(rq, a);
    if (here) {
        arrived(rq);
        return;
    }
    rq->msg.fn = arrived_msg;
    net_loop_post(rq->w->loop, &rq->msg);
}

void net_req_answer_with(struct net_req *rq, struct str lines)
{
    struct str copy;
    if (arena_str(&rq->arena, lines, &copy))
        rq->lines = copy;
}

void net_reply(struct net_req *rq, int status, const struct net_headers *headers, struct bytes body)
{
    net_reply__give(rq, &(struct net_answer){
                            .kind = NET_ANSWER_COPY, .status = status, .headers = headers, .body = body});
}

void net_reply_json(struct net_req *rq, int status, struct bytes body)
{
    net_reply(rq, status, NULL, body);
}

void net_reply_file(struct net_req *rq, int status, const struct net_headers *headers, int fd, off_t off,
                    size_t len)
{
    net_reply__give(rq, &(struct net_answer){.kind = NET_ANSWER_PARTS,
                                             .status = status,
                                             .headers = headers,
                                             .fd = fd,
                                             .close_fd = true,
                                             .parts = &(struct net_part){.off = off, .n = len},
                                             .part_count = 1});
}

void net_reply_parts(struct net_req *rq, int status, const struct net_headers *headers,
                     const struct net_source *from, const struct net_part *parts, size_t count)
{
    net_reply__give(rq, &(struct net_answer){.kind = NET_ANSWER_PARTS,
                                             .status = status,
                                             .headers = headers,
                                             .fd = from->fd,
                                             .parts = parts,
                                             .part_count = count,
                                             .still = from->still,
                                             .ready = from->ready,
                                             .release = from->release,
                                             .release_arg = from->arg});
}

void net_reply_pinned(struct net_req *rq, int status, const struct net_headers *headers, struct bytes body,
                      net_release_fn *release, void *arg)
{
    net_reply_parts(rq, status, headers, &(struct net_source){.fd = -1, .release = release, .arg = arg},
                    &(struct net_part){.p = body.p, .n = body.n}, 1);
}

/* ---- problems ---- */

void net_reply_problem_full(struct net_req *rq, const struct net_problem *p)
{
    enum err e = net_problem_public(p->err);
    struct net_problem_body body = {.err = p->err,
                                    .status = p->status,
                                    .detail = p->detail,
                                    .corr_id = rq->corr_id,
                                    .details_json = p->details_json};
    size_t most = 512 + 6 * p->detail.n + 6 * rq->corr_id.n + p->details_json.n;
    char small[2048];
    struct buf b;
    if (most <= sizeof small)
        buf_init_fixed(&b, small, sizeof small);
    else
        buf_init(&b, most);
    net_problem_write(&body, &b);
    struct net_headers h = p->headers ? *p->headers : (struct net_headers){0};
    h.type = "application/problem+json";
    int status = p->status ? p->status : err_http_status(e);
    unsigned retry = 0;
    if (status == 429 || status == 503)
        retry = p->retry_after_s ? p->retry_after_s : net_server__retry_after(rq->w->s, e);
    net_reply__give(rq, &(struct net_answer){.kind = NET_ANSWER_COPY,
                                             .status = status,
                                             .problem = e,
                                             .headers = &h,
                                             .retry_after_s = retry,
                                             .body = buf_bytes(&b)});
    if (most > sizeof small)
        buf_fini(&b);
}

void net_reply_problem(struct net_req *rq, enum err e, const char *detail_fmt, ...)
{
    char detail[512];
    int n = 0;
    if (detail_fmt) {
        va_list args;
        va_start(args, detail_fmt);
        n = vsnprintf(detail, sizeof detail, detail_fmt, args);
        va_end(args);
    }
    size_t len = n < 0 ? 0 : (size_t)n < sizeof detail ? (size_t)n : sizeof detail - 1;
    net_reply_problem_full(rq, &(struct net_problem){.err = e, .detail = {detail, len}});
}

void net_reply_problem_details(struct net_req *rq, enum err e, const char *detail,
                               struct bytes details_json)
{
    net_reply_problem_full(
        rq, &(struct net_problem){.err = e, .detail = str_from_c(detail), .details_json = details_json});
}

void net_reply__refuse(struct net_req *rq, enum net_reject why, const struct net_problem *p)
{
    const struct net_hooks *hooks = &rq->w->s->hooks;
    struct net_problem full = *p;
    if (hooks->reject)
        hooks->reject(hooks->ctx, why);
    if (hooks->refusing)
        hooks->refusing(hooks->ctx, rq, why, &full);
    rq->phase = NET_PHASE_HANDLER;
    net_reply_problem_full(rq, &full);
}
