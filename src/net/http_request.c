/* Requests: their pool, and what handlers may ask of them. */
#include "net/http_internal.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"
#include "net/http_range.h"
#include "rt/deadline.h"

enum {
    ARENA_CHUNK = 4096,
    ARENA_OWN = 64 << 10, /* small body, decoded params and query */
    HEAD_KEEP = 1024,     /* a longer head is forgotten with its request */
    HEAD_LOOKS = 4,       /* so many of the pool are asked whether they know a head */
    REPLY_KEEP = 16 << 10,
    REPLY_MAX = 1 << 30,
};

static void reset(struct net_req *rq, struct net_worker *w)
{
    rq->magic = NET_REQ_MAGIC;
    rq->next = NULL;
    rq->w = w;
    rq->conn = NULL;
    rq->phase = NET_PHASE_READING;
    rq->close = rq->want_100 = rq->is_head = rq->http10 = rq->want_keep = false;
    rq->body_owned = rq->body_paused = rq->body_ended = rq->counted = rq->waits = false;
    atomic_store_explicit(&rq->answered, false, memory_order_relaxed);
    atomic_store_explicit(&rq->gone, false, memory_order_relaxed);
    atomic_store_explicit(&rq->resuming, false, memory_order_relaxed);
    rq->deadline_ns = OS_NEVER;
    rq->late_err = ERR_OK;
    rq->method = rq->corr_id = rq->traceparent = rq->lines = (struct str){NULL, 0};
    rq->text = NULL;
    rq->body = NULL;
    rq->body_n = rq->body_cap = 0;
    rq->bytes_in = rq->bytes_out = 0;
    rq->query_read = false;
    rq->user = NULL;
    rq->on_close = NULL;
    rq->on_body = NULL;
    rq->inflater = NULL;
    rq->stream = NULL;
    rq->permit = (struct net_admission_permit){NULL, NULL};
    rq->status = 0;
    rq->problem = ERR_OK;
    rq->end_at = 0;
    rq->answer.release = NULL;
    rq->answer.close_fd = false;
}

static struct net_req *created(void)
{
    struct net_req *rq = calloc(1, sizeof *rq);
    CHECK(rq != NULL);
    arena_init(&rq->arena, ARENA_CHUNK, ARENA_OWN + NET_REQ_ARENA);
    buf_init(&rq->reply, REPLY_MAX);
    rq->body_msg.fn =
        net_body__resume; /* once: whoever resumes again while it is posted must not write it */
    return rq;
}

static bool knows(const struct net_req *rq, struct bytes in, const struct net_http_limits *l)
{
    const struct net_http_limits *had = &rq->head.limits;
    return rq->known_n > 0 && rq->known_n <= in.n && memcmp(rq->kept, in.p, rq->known_n) == 0 &&
           had->head_bytes == l->head_bytes && had->fields == l->fields && had->line_bytes == l->line_bytes;
}

/*
 * Who keeps a connection mostly says the same again. A head that came before, byte by byte, means what it meant then, so the pool's
 * objects keep the last head they had, and a request whose head one of them knows takes that one: nothing is read twice.
 */
struct net_req *net_req__new_for(struct net_worker *w, struct bytes in, const struct net_http_limits *l)
{
    struct net_req **at = &w->free_reqs;
    for (int i = 0; i < HEAD_LOOKS && *at; i++, at = &(*at)->next)
        if (knows(*at, in, l)) {
            struct net_req *rq = *at;
            *at = rq->next;
            reset(rq, w);
            return rq;
        }
    return net_req__new(w);
}

struct net_req *net_req__new(struct net_worker *w)
{
    struct net_req *rq = w->free_reqs;
    if (rq)
        w->free_reqs = rq->next;
    else
        rq = created();
    reset(rq, w);
    rq->known_n = 0;
    rq->match.leaf = NULL;
    return rq;
}

char *net_req__keep(struct net_req *rq, size_t n)
{
    if (n > rq->kept_cap) {
        free(rq->kept);
        rq->kept_cap = n > HEAD_KEEP ? n : HEAD_KEEP;
        rq->kept = malloc(rq->kept_cap);
        CHECK(rq->kept != NULL);
    }
    return rq->kept;
}

static void forget_long(struct net_req *rq)
{
    if (rq->kept_cap <= HEAD_KEEP)
        return;
    free(rq->kept);
    rq->kept = NULL;
    rq->kept_cap = rq->known_n = 0;
}

static void leave(struct net_req *rq)
{
    const struct net_server *s = rq->w->s;
    if (rq->counted && s->hooks.inflight)
        s->hooks.inflight(s->hooks.ctx, rq->match.leaf->route, -1);
    rq->counted = false;
    net_admission_leave(&rq->permit);
}

void net_req_waits(struct net_req *rq)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    rq->waits = true;
    leave(rq);
}

void net_req__free(struct net_req *rq)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    struct net_worker *w = rq->w;
    rq->magic = 0;
    leave(rq);
    net_stream__free(rq);
    net_inflater_destroy(rq->inflater);
    if (rq->body_owned)
        free(rq->body);
    arena_reset(&rq->arena);
    forget_long(rq);
    if (rq->reply.cap > REPLY_KEEP) {
        buf_fini(&rq->reply);
        buf_init(&rq->reply, REPLY_MAX);
    } else {
        buf_reset(&rq->reply);
    }
    rq->next = w->free_reqs;
    w->free_reqs = rq;
}

void net_req__left(struct net_req *rq)
{
    void (*fn)(struct net_req *, void *) = rq->on_close;
    rq->on_close = NULL; /* once */
    if (fn)
        fn(rq, rq->on_close_arg);
}

/* The handler keeps it; nobody waits for its answer any more. */
void net_req__orphan(struct net_req *rq)
{
    rq->conn = NULL;
    rq->next = NULL;
    atomic_store_explicit(&rq->gone, true, memory_order_relaxed);
    net_req__left(rq);
}

enum err net_req__body_add(struct net_req *rq, struct bytes piece)
{
    size_t need = rq->body_n + piece.n;
    if (need > rq->body_cap) {
        bool known = rq->head.has_length && rq->head.length <= NET_SMALL_BODY;
        if (!rq->body && (known || need <= NET_SMALL_BODY)) {
            rq->body_cap = known ? (size_t)rq->head.length : NET_SMALL_BODY;
            rq->body = arena_alloc(&rq->arena, rq->body_cap);
        } else {
            /* Grows with what really came: a declared length alone reserves nothing. */
            size_t cap = rq->body_cap * 2 > need ? rq->body_cap * 2 : need;
            uint8_t *bigger = rq->body_owned ? realloc(rq->body, cap) : malloc(cap);
            if (!bigger)
                return ERR_NO_MEMORY;
            if (!rq->body_owned && rq->body_n)
                memcpy(bigger, rq->body, rq->body_n);
            rq->body = bigger;
            rq->body_cap = cap;
            rq->body_owned = true;
        }
        if (!rq->body)
            return ERR_NO_MEMORY;
    }
    memcpy(rq->body + rq->body_n, piece.p, piece.n);
    rq->body_n = need;
    return ERR_OK;
}

/* ---- accessors ---- */

const struct net_route *net_req_route(const struct net_req *rq)
{
    return rq->match.leaf ? rq->match.leaf->route : NULL;
}

struct str net_req_method(const struct net_req *rq)
{
    return rq->method;
}

static struct str part(const struct net_req *rq, struct net_http_span s)
{
    return rq->text ? net_http_text(rq->text, s) : (struct str){NULL, 0};
}

struct str net_req_target(const struct net_req *rq)
{
    return part(rq, rq->head.target);
}

struct str net_req_path(const struct net_req *rq)
{
    return part(rq, rq->head.path);
}

struct str net_req_query_raw(const struct net_req *rq)
{
    return rq->text && rq->head.has_query ? part(rq, rq->head.query) : (struct str){NULL, 0};
}

struct str net_req_host(const struct net_req *rq)
{
    return part(rq, rq->head.host);
}

struct str net_req_param_raw_str(const struct net_req *rq, struct str name)
{
    const struct net_route_leaf *leaf = rq->match.leaf;
    for (size_t i = 0; leaf && i < leaf->param_count; i++)
        if (str_eq(leaf->param_names[i], name))
            return rq->match.params[i];
    UNREACHABLE(); /* the pattern has no such param */
}

/* The parser has refused broken escapes, so decoding cannot fail. */
static struct str decoded(struct net_req *rq, struct str raw, bool plus)
{
    if (!memchr(raw.p, '%', raw.n) && !(plus && memchr(raw.p, '+', raw.n)))
        return raw;
    char *out = arena_alloc(&rq->arena, raw.n);
    size_t n = 0;
    CHECK(out != NULL && net_http_percent_decode(raw, plus, out, &n) == ERR_OK);
    return (struct str){out, n};
}

struct str net_req_param(struct net_req *rq, const char *name)
{
    return decoded(rq, net_req_param_raw(rq, name), false);
}

static void query_split(struct net_req *rq)
{
    if (rq->query_read)
        return;
    rq->query_read = true;
    rq->query_n = 0;
    struct str rest = net_req_query_raw(rq);
    size_t most = 1;
    for (size_t i = 0; i < rest.n; i++)
        most += rest.p[i] == '&';
    if (rest.n == 0)
        return;
    bool escaped = memchr(rest.p, '%', rest.n) || memchr(rest.p, '+', rest.n); /* mostly not: ask once */
    rq->query = arena_array(&rq->arena, most, sizeof *rq->query);
    CHECK(rq->query != NULL);
    while (rest.p) {
        struct str member, name;
        rest = str_cut(rest, '&', &member);
        if (member.n == 0)
            continue;
        struct str value = str_cut(member, '=', &name);
        if (!value.p)
            value = (struct str){member.p + member.n, 0};
        rq->query[rq->query_n++] =
            escaped ? (struct net_query_member){decoded(rq, name, true), decoded(rq, value, true)}
                    : (struct net_query_member){name, value};
    }
}

enum err net_req_query(struct net_req *rq, const char *name, struct str *out_value)
{
    query_split(rq);
    for (size_t i = 0; i < rq->query_n; i++) {
        if (str_eq_c(rq->query[i].name, name)) {
            *out_value = rq->query[i].value;
            return ERR_OK;
        }
    }
    return ERR_NOT_FOUND;
}

size_t net_req_query_count(struct net_req *rq)
{
    query_split(rq);
    return rq->query_n;
}

void net_req_query_at(struct net_req *rq, size_t index, struct str *out_name, struct str *out_value)
{
    query_split(rq);
    CHECK(index < rq->query_n);
    *out_name = rq->query[index].name;
    *out_value = rq->query[index].value;
}

struct str net_req_header_str(const struct net_req *rq, struct str want)
{
    for (size_t i = 0; rq->text && i < rq->head.field_count; i++) {
        const struct net_http_field *f = &rq->head.fields[i];
        if (f->name.n == want.n && net_http_name_eq(net_http_text(rq->text, f->name), want))
            return net_http_text(rq->text, f->value);
    }
    return (struct str){NULL, 0};
}

size_t net_req_header_count(const struct net_req *rq, const char *name)
{
    size_t n = 0;
    struct str want = str_from_c(name);
    for (size_t i = 0; rq->text && i < rq->head.field_count; i++)
        n += net_http_name_eq(net_http_text(rq->text, rq->head.fields[i].name), want);
    return n;
}

size_t net_req_headers(const struct net_req *rq)
{
    return rq->text ? rq->head.field_count : 0;
}

void net_req_header_at(const struct net_req *rq, size_t index, struct str *out_name, struct str *out_value)
{
    CHECK(index < net_req_headers(rq));
    *out_name = net_http_text(rq->text, rq->head.fields[index].name);
    *out_value = net_http_text(rq->text, rq->head.fields[index].value);
}

struct bytes net_req_body(const struct net_req *rq)
{
    return bytes_of(rq->body, rq->body_n);
}

struct str net_req_corr_id(const struct net_req *rq)
{
    return rq->corr_id;
}

struct str net_req_traceparent(const struct net_req *rq)
{
    return rq->traceparent;
}

struct deadline net_req_deadline(const struct net_req *rq)
{
    return deadline_at_ns(rq->deadline_ns);
}

void net_req_answer_by(struct net_req *rq, struct deadline by, enum err late)
{
    CHECK_MAGIC(rq, NET_REQ_MAGIC);
    rq->deadline_ns = by.at_ns;
    rq->late_err = late;
    if (rq->conn != NULL)
        net_conn__arm(rq->conn, rq->deadline_ns);
}

int64_t net_req_started_ns(const struct net_req *rq)
{
    return rq->started_ns;
}

const struct net_peer *net_req_peer(const struct net_req *rq)
{
    return &rq->peer;
}

const struct net_peer *net_req_socket_peer(const struct net_req *rq)
{
    return &rq->conn->peer;
}

struct arena *net_req_arena(struct net_req *rq)
{
    return &rq->arena;
}

struct net_loop *net_req_loop(const struct net_req *rq)
{
    return rq->w->loop;
}

unsigned net_req_loop_index(const struct net_req *rq)
{
    return rq->w->index;
}

bool net_req_is_head(const struct net_req *rq)
{
    return rq->is_head;
}

bool net_req_gone(const struct net_req *rq)
{
    return atomic_load_explicit(&rq->gone, memory_order_relaxed);
}

void net_req_set_user(struct net_req *rq, void *user)
{
    rq->user = user;
}

void *net_req_user(const struct net_req *rq)
{
    return rq->user;
}

struct net_memo *net_req_memo(struct net_req *rq)
{
    return rq->text && net_loop_current() == rq->w->loop ? &rq->memo : NULL;
}

void net_req_on_close(struct net_req *rq, void (*fn)(struct net_req *rq, void *arg), void *arg)
{
    CHECK(net_loop_current() == rq->w->loop);
    rq->on_close = fn;
    rq->on_close_arg = arg;
}

void net_req_on_body(struct net_req *rq,
                     void (*fn)(struct net_req *rq, struct bytes piece, bool end, void *arg), void *arg)
{
    CHECK(net_loop_current() == rq->w->loop && rq->match.leaf &&
          (rq->match.leaf->route->flags & NET_STREAM_BODY));
    rq->on_body = fn;
    rq->on_body_arg = arg;
}

void net_req_pause_body(struct net_req *rq)
{
    CHECK(net_loop_current() == rq->w->loop);
    rq->body_paused = true;
}

void net_req_resume_body(struct net_req *rq)
{
    if (net_loop_current() == rq->w->loop)
        net_body__resume(&rq->body_msg); /* at once: the handler may answer next, and end the request */
    else if (!atomic_exchange_explicit(&rq->resuming, true, memory_order_acq_rel))
        net_loop_post(rq->w->loop, &rq->body_msg);
}

struct str net_req_header_list(struct net_req *rq, const char *name)
{
    size_t count = 0, n = 0, total = 0;
    struct str want = str_from_c(name), field, value, first = {NULL, 0};
    for (size_t i = 0; rq->text && i < rq->head.field_count; i++) {
        const struct net_http_field *f = &rq->head.fields[i];
        if (f->name.n != want.n || !net_http_name_eq(net_http_text(rq->text, f->name), want))
            continue;
        if (count++ == 0)
            first = net_http_text(rq->text, f->value);
        total += (size_t)f->value.n + 2;
    }
    if (count <= 1)
        return first;
    char *out = arena_alloc(&rq->arena, total);
    CHECK(out != NULL);
    for (size_t i = 0; i < rq->head.field_count; i++) {
        net_req_header_at(rq, i, &field, &value);
        if (!net_http_name_eq(field, want))
            continue;
        if (n) {
            memcpy(out + n, ", ", 2);
            n += 2;
        }
        memcpy(out + n, value.p, value.n);
        n += value.n;
    }
    return (struct str){out, n};
}

/* Where a conditional field's value goes; NULL: it is none. */
static struct str *condition_of(struct net_conditions *c, struct str name)
{
    const struct {
        struct str name;
        struct str *to;
    } rows[] = {{STR("range"), &c->range},
                {STR("if-match"), &c->if_match},
                {STR("if-range"), &c->if_range},
                {STR("if-none-match"), &c->if_none_match},
                {STR("if-modified-since"), &c->if_modified_since},
                {STR("if-unmodified-since"), &c->if_unmodified_since}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].name.n == name.n && net_http_name_eq(rows[i].name, name))
            return rows[i].to;
    return NULL;
}

void net_req_conditions(struct net_req *rq, struct net_conditions *out)
{
    *out = (struct net_conditions){.is_get = str_eq(rq->method, STR("GET")), .is_head = rq->is_head};
    for (size_t i = 0; rq->text && i < rq->head.field_count; i++) {
        const struct net_http_field *f = &rq->head.fields[i];
        if (f->name.n < 5 || (*(rq->text + f->name.at) | 0x20) < 'i')
            continue; /* Host, Accept, Connection: most fields end here */
        struct str *to = condition_of(out, net_http_text(rq->text, f->name));
        if (!to)
            continue;
        if (to == &out->range && to->p)
            out->range_repeated = true;
        else if (!to->p)
            *to = net_http_text(rq->text, f->value);
        else if (to == &out->if_match)
            *to = net_req_header_list(rq, "if-match");
        else if (to == &out->if_none_match)
            *to = net_req_header_list(rq, "if-none-match");
    }
}
