#include "services/mailbox/client/mbx.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/rng.h"
#include "net/http_client.h"
#include "obs/log.h"
#include "rt/bell.h"
#include "services/mailbox/core/ids.h"

enum {
    MBX_MAGIC = 0x3178626d,
    ANSWER_MAX = 8 << 20,
    ARENA_MAX = 16 << 20,
    TOKEN_MAX = 8192,
    REDIRECTS_MAX = 5,
    LINE_MAX_BYTES = 2 << 20,
    SILENCE_MS = 45000 /* a stream that lives says so every 15 s */
};

struct mbx {
    uint32_t magic;
    char *url, *uds, *authorization;
    int64_t timeout_ms;
    struct obs_log *log;
    struct rng rng;
    char why[256];
    atomic_bool canceled;  /* by any thread; looked at by the one whose call waits */
    struct rt_bell cancel; /* rings when it is; for the one that pauses */
};

static char *copy(const char *prefix, const char *s)
{
    size_t n = strlen(prefix) + strlen(s) + 1;
    char *p = malloc(n);
    if (p)
        snprintf(p, n, "%s%s", prefix, s);
    return p;
}

static void free_all(struct mbx *c)
{
    free(c->url);
    free(c->uds);
    free(c->authorization);
    c->magic = 0;
    free(c);
}

enum err mbx_open(const struct mbx_config *config, struct mbx **out)
{
    if (!config->url || !config->token || strlen(config->token) > TOKEN_MAX)
        return ERR_SYNTAX;
    struct mbx *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->magic = MBX_MAGIC;
    rt_bell_init(&c->cancel);
    c->url = copy("", config->url);
    c->authorization = copy("Authorization: Bearer ", config->token);
    c->uds = config->uds ? copy("", config->uds) : NULL;
    c->timeout_ms = config->timeout_ms ? config->timeout_ms : 5000;
    c->log = config->log;
    rng_seed(&c->rng, config->seed ? config->seed : rng_secure_u64());
    if (!c->url || !c->authorization || (config->uds && !c->uds)) {
        free_all(c);
        return ERR_NO_MEMORY;
    }
    *out = c;
    return ERR_OK;
}

void mbx_close(struct mbx *c)
{
    if (!c)
        return;
    CHECK_MAGIC(c, MBX_MAGIC);
    free_all(c);
}

void mbx_destroy(struct mbx *c)
{
    if (!c)
        return;
    CHECK_MAGIC(c, MBX_MAGIC);
    obs_log(c->log, OBS_DEBUG, "mbx.not_closed", OBS_END);
    free_all(c);
}

void mbx_cancel(struct mbx *c)
{
    CHECK_MAGIC(c, MBX_MAGIC);
    atomic_store(&c->canceled, true);
    rt_bell_ring(&c->cancel);
}

const char *mbx_why(const struct mbx *c)
{
    return c->why;
}

/* ---- one request ---- */

struct answer {
    enum err err;
    int status;
    int64_t retry_ms;
    char location[640]; /* of a 307 */
    struct buf body;
    struct stream *stream; /* where the lines of a 200 go instead of the body; NULL: none was asked for */
};

static void answered(void *arg, enum err e, const struct net_http_response *r)
{
    struct answer *a = arg;
    a->err = e;
    if (e != ERR_OK)
        return;
    struct str after = net_http_header(r, "retry-after");
    struct str location = net_http_header(r, "location");
    a->status = r->status;
    if (r->status == 307 && location.p && location.n < sizeof a->location)
        snprintf(a->location, sizeof a->location, "%.*s", STR_ARG(location));
    for (size_t i = 0; after.p && i < after.n && i < 4 && after.p[i] >= '0' && after.p[i] <= '9'; i++)
        a->retry_ms = a->retry_ms * 10 + (after.p[i] - '0') * 1000;
    buf_put_bytes(&a->body, r->body);
}

struct problem {
    struct str code, detail;
};

/* The service's code becomes ours; one we do not know becomes its status' class. */
static enum err error_of(struct mbx *c, const struct answer *a)
{
    static const struct json_field fields[] = {JSON_REQ(struct problem, code, JSON_KIND_STR),
                                               JSON_DEF(struct problem, detail, JSON_KIND_STR), JSON_END};
    struct problem p = {STR(""), STR("")};
    struct json_error why;
    struct arena arena;
    enum err e = a->status >= 500 ? ERR_UNAVAILABLE : ERR_BAD_REQUEST;
    arena_init(&arena, 4096, 1 << 16);
    if (json_read_dto_lax(buf_bytes(&a->body), fields, &p, &arena, &why) == ERR_OK) {
        snprintf(c->why, sizeof c->why, "%.*s", STR_ARG(p.detail));
        for (int k = 1; k < ERR_COUNT; k++)
            if (str_eq_c(p.code, err_code((enum err)k)) && err_http_status((enum err)k) == a->status) {
                e = (enum err)k;
                break;
            }
    }
    arena_fini(&arena);
    return e;
}

static bool head_came(void *arg, const struct net_http_response *r)
{
    struct answer *a = arg;
    a->status = r->status;
    return true;
}

static bool piece_came(void *arg, struct bytes piece); /* lines of a stream, below */

static enum err ask(struct mbx *c, const char *url, const char *uds, struct buf *body, struct deadline by,
                    struct stream *stream, struct answer *a) RT_BLOCKS
{
    const char *const headers[] = {c->authorization, "Content-Type: application/json", NULL};
    *a = (struct answer){.err = ERR_DISCONNECTED, .stream = stream};
    buf_init(&a->body, ANSWER_MAX);
    struct net_http_request rq = {.method = "POST",
                                  .url = url,
                                  .uds = uds,
                                  .headers = headers,
                                  .body = buf_bytes(body),
                                  .by = by,
                                  .stall_ms = stream ? SILENCE_MS : 0,
                                  .response_max = stream ? SIZE_MAX : ANSWER_MAX,
                                  .stop = &c->canceled,
                                  .on_head = stream ? head_came : NULL,
                                  .on_body = stream ? piece_came : NULL};
    enum err e = net_http_once(&rq, NULL, answered, a);
    if (e != ERR_OK)
        return e;
    if (a->err != ERR_OK)
        return a->err;
    return a->status == 200 ? ERR_OK : error_of(c, a);
}

/*
 * One request, wherever it is sent: a mailbox of several nodes answers 307 for a shard of another one. Two nodes that are about to
 * swap may send us back and forth; then it is as if nobody had the shard at the moment.
 */
static enum err once(struct mbx *c, const char *path, struct buf *body, struct deadline by,
                     struct stream *stream, struct answer *a) RT_BLOCKS
{
    char url[640];
    const char *uds = c->uds;
    c->why[0] = 0;
    *a = (struct answer){.err = ERR_DISCONNECTED};
    if (atomic_load(&c->canceled))
        return ERR_CANCELED;
    if (body->err != ERR_OK || snprintf(url, sizeof url, "%s%s", c->url, path) >= (int)sizeof url)
        return ERR_TOO_LARGE;
    for (int hop = 0;; hop++) {
        enum err e = ask(c, url, uds, body, by, stream, a);
        if (a->status != 307 || !a->location[0])
            return e;
        if (hop == REDIRECTS_MAX)
            return ERR_UNAVAILABLE;
        memcpy(url, a->location, sizeof url);
        uds = NULL;
        buf_fini(&a->body);
    }
}

/* False: it was canceled meanwhile. */
static bool pause_ms(struct mbx *c, int64_t ms) RT_BLOCKS
{
    struct deadline until = deadline_in_ms(ms);
    uint64_t noted;
    do
        noted = rt_bell_note(&c->cancel);
    while (!atomic_load(&c->canceled) && rt_bell_wait(&c->cancel, noted, until) == ERR_OK);
    return !atomic_load(&c->canceled);
}

/* ---- send ---- */

struct sent_dto {
    struct str msg_id;
    uint64_t topic_seq;
    bool duplicate;
};

static enum err read_sent(const struct answer *a, struct mbx_sent *out)
{
    static const struct json_field fields[] = {JSON_REQ(struct sent_dto, msg_id, JSON_KIND_STR),
                                               JSON_REQ(struct sent_dto, topic_seq, JSON_KIND_U64),
                                               JSON_REQ(struct sent_dto, duplicate, JSON_KIND_BOOL),
                                               JSON_END};
    struct sent_dto d = {0};
    struct json_error why;
    struct arena arena;
    arena_init(&arena, 4096, 1 << 16);
    enum err e = json_read_dto_lax(buf_bytes(&a->body), fields, &d, &arena, &why);
    if (e == ERR_OK)
        e = uuid_parse(d.msg_id, &out->msg_id);
    out->topic_seq = d.topic_seq;
    out->duplicate = d.duplicate;
    arena_fini(&arena);
    return e;
}

enum err mbx_send(struct mbx *c, const struct mbx_message *m, struct mbx_sent *out)
{
    struct deadline by = deadline_in_ms(c->timeout_ms);
    struct buf body;
    struct json_w w;
    enum err e;
    CHECK_MAGIC(c, MBX_MAGIC);
    buf_init(&body, 2 << 20);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", m->topic);
    json_put_cstr(&w, "idem_key", m->key);
    json_put_base64(&w, "payload_b64", m->payload);
    if (m->delay_ms)
        json_put_u64(&w, "delay_ms", m->delay_ms);
    json_obj_end(&w);
    for (int64_t most = 200;; most = most < 60000 ? most * 2 : 60000) {
        struct answer a;
        e = once(c, "/v1/send", &body, by, NULL, &a);
        if (e == ERR_OK)
            e = read_sent(&a, out);
        int64_t pause = a.retry_ms + 1 + (int64_t)rng_below(&c->rng, (uint64_t)most);
        buf_fini(&a.body);
        if (!err_retryable(e) || deadline_left_ms(by) <= pause)
            break;
        /* the same key: whatever became of the lost one, there will be one message */
        if (!pause_ms(c, pause)) {
            e = ERR_CANCELED;
            break;
        }
    }
    buf_fini(&body);
    return e;
}

/* ---- receive ---- */

struct envelope_dto {
    struct str msg_id, idem_key;
    uint64_t topic_seq, attempt;
    struct bytes payload_b64;
};

struct batch_dto {
    struct json_list messages;
};

static const struct json_field envelope[] = {
    JSON_REQ(struct envelope_dto, msg_id, JSON_KIND_STR),
    JSON_REQ(struct envelope_dto, idem_key, JSON_KIND_STR),
    JSON_REQ(struct envelope_dto, topic_seq, JSON_KIND_U64),
    JSON_REQ(struct envelope_dto, attempt, JSON_KIND_U64, .max = 65535),
    JSON_REQ(struct envelope_dto, payload_b64, JSON_KIND_BASE64),
    JSON_END};

static enum err to_delivery(const struct envelope_dto *v, struct mbx_delivery *m)
{
    *m = (struct mbx_delivery){.topic_seq = v->topic_seq,
                               .attempt = (uint16_t)v->attempt,
                               .key = v->idem_key,
                               .payload = v->payload_b64};
    return uuid_parse(v->msg_id, &m->msg_id);
}

static enum err fill_batch(const struct answer *a, struct mbx_batch *out)
{
    static const struct json_field fields[] = {JSON_REQ(struct batch_dto, messages, JSON_KIND_OBJ_LIST,
                                                        .fields = envelope,
                                                        .item_bytes = sizeof(struct envelope_dto)),
                                               JSON_END};
    struct batch_dto d = {0};
    struct json_error why;
    struct arena *arena = malloc(sizeof *arena);
    if (!arena)
        return ERR_NO_MEMORY;
    arena_init(arena, 64 << 10, ARENA_MAX);
    enum err e = json_read_dto_lax(buf_bytes(&a->body), fields, &d, arena, &why);
    struct mbx_delivery *m = e == ERR_OK ? arena_array(arena, d.messages.n + 1, sizeof *m) : NULL;
    if (e == ERR_OK && !m)
        e = ERR_NO_MEMORY;
    for (size_t i = 0; e == ERR_OK && i < d.messages.n; i++)
        e = to_delivery((const struct envelope_dto *)d.messages.items + i, &m[i]);
    if (e != ERR_OK) {
        arena_fini(arena);
        free(arena);
        return e;
    }
    *out = (struct mbx_batch){m, d.messages.n, arena};
    return ERR_OK;
}

enum err mbx_recv(struct mbx *c, const char *topic, const struct mbx_wish *wish, struct mbx_batch *out)
{
    struct buf body;
    struct json_w w;
    struct answer a;
    CHECK_MAGIC(c, MBX_MAGIC);
    buf_init(&body, 4096);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", topic);
    if (wish->max)
        json_put_u64(&w, "max_messages", wish->max);
    if (wish->visibility_ms)
        json_put_u64(&w, "visibility_ms", wish->visibility_ms);
    json_put_u64(&w, "wait_ms", wish->wait_ms);
    json_obj_end(&w);
    enum err e = once(c, "/v1/recv", &body, deadline_in_ms(c->timeout_ms + wish->wait_ms), NULL, &a);
    if (e == ERR_OK)
        e = fill_batch(&a, out);
    buf_fini(&a.body);
    buf_fini(&body);
    return e;
}

void mbx_batch_free(struct mbx_batch *b)
{
    if (b->memory) {
        arena_fini(b->memory);
        free(b->memory);
    }
    *b = (struct mbx_batch){0};
}

/* ---- streams ---- */

struct stream {
    mbx_message_fn *fn;
    void *arg;
    struct buf line; /* what came after the last end of a line */
    enum err end;    /* why it ends; ERR_OK: fn has had enough */
    bool ended;
};

struct end_dto {
    struct problem end;
};

/* The last words; what the service does for its own sake, and is over soon, is one thing for us. */
static enum err read_end(struct bytes line, struct arena *arena)
{
    static const struct json_field words[] = {JSON_REQ(struct problem, code, JSON_KIND_STR), JSON_END};
    static const struct json_field fields[] = {
        JSON_REQ(struct end_dto, end, JSON_KIND_OBJ, .fields = words), JSON_END};
    struct end_dto d = {0};
    struct json_error why;
    if (json_read_dto_lax(line, fields, &d, arena, &why) != ERR_OK)
        return ERR_SYNTAX;
    return str_eq_c(d.end.code, "draining")          ? ERR_DRAINING
           : str_eq_c(d.end.code, "unauthenticated") ? ERR_UNAUTHENTICATED
           : str_eq_c(d.end.code, "safe_mode")       ? ERR_SAFE_MODE
           : str_eq_c(d.end.code, "slow_consumer")   ? ERR_BUSY
                                                     : ERR_UNAVAILABLE;
}

/* False: the stream is over. */
static bool line_came(struct stream *st, struct bytes line)
{
    static const char last[] = "{\"end\":";
    struct envelope_dto v = {0};
    struct mbx_delivery m;
    struct json_error why;
    struct arena arena;
    if (line.n == 0)
        return true; /* it lives */
    arena_init(&arena, 16 << 10, ARENA_MAX);
    if (line.n > sizeof last - 1 && memcmp(line.p, last, sizeof last - 1) == 0) {
        st->end = read_end(line, &arena);
        st->ended = true;
    } else {
        enum err e = json_read_dto_lax(line, envelope, &v, &arena, &why);
        if (e == ERR_OK)
            e = to_delivery(&v, &m);
        st->end = e;
        st->ended = e != ERR_OK || !st->fn(st->arg, &m);
    }
    arena_fini(&arena);
    return !st->ended;
}

static bool piece_came(void *arg, struct bytes piece)
{
    struct answer *a = arg;
    struct stream *st = a->stream;
    if (a->status != 200) {
        buf_put_bytes(&a->body, piece);
        return a->body.err == ERR_OK;
    }
    for (size_t at = 0; at < piece.n;) {
        const uint8_t *from = (const uint8_t *)piece.p + at, *nl = memchr(from, '\n', piece.n - at);
        size_t n = nl ? (size_t)(nl - from) : piece.n - at;
        buf_put_bytes(&st->line, bytes_of(from, n));
        at += n + 1;
        if (st->line.err != ERR_OK) {
            st->end = ERR_TOO_LARGE;
            st->ended = true;
            return false;
        }
        if (!nl)
            break;
        if (!line_came(st, buf_bytes(&st->line)))
            return false;
        buf_reset(&st->line);
    }
    return true;
}

enum err mbx_stream(struct mbx *c, const char *topic, const struct mbx_stream_wish *wish,
                    mbx_message_fn *fn, void *arg)
{
    struct stream st = {.fn = fn, .arg = arg};
    struct buf body;
    struct json_w w;
    struct answer a;
    CHECK_MAGIC(c, MBX_MAGIC);
    buf_init(&body, 4096);
    buf_init(&st.line, LINE_MAX_BYTES);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    json_put_cstr(&w, "topic", topic);
    if (wish->visibility_ms)
        json_put_u64(&w, "visibility_ms", wish->visibility_ms);
    if (wish->credit)
        json_put_u64(&w, "credit", wish->credit);
    if (wish->max_bytes)
        json_put_u64(&w, "max_bytes", wish->max_bytes);
    json_obj_end(&w);
    enum err e = once(c, "/v1/recv/stream", &body, deadline_never(), &st, &a);
    if (st.ended)
        e = st.end;
    else if (e == ERR_OK)
        e = ERR_DISCONNECTED; /* it ended without a word */
    buf_fini(&a.body);
    buf_fini(&st.line);
    buf_fini(&body);
    return e;
}

/* ---- settle ---- */

static enum err settle(struct mbx *c, const char *verb, const struct mbx_delivery *d, const char *reason,
                       unsigned visibility_ms) RT_BLOCKS
{
    char path[80], id[UUID_CHARS];
    struct buf body;
    struct json_w w;
    struct answer a;
    CHECK_MAGIC(c, MBX_MAGIC);
    uuid_format(&d->msg_id, id);
    snprintf(path, sizeof path, "/v1/%s/%s", verb, id);
    buf_init(&body, 4096);
    json_w_init(&w, &body);
    json_obj_begin(&w);
    if (d->attempt)
        json_put_u64(&w, "attempt", d->attempt);
    if (reason)
        json_put_cstr(&w, "reason", reason);
    if (visibility_ms)
        json_put_u64(&w, "visibility_ms", visibility_ms);
    json_obj_end(&w);
    enum err e = once(c, path, &body, deadline_in_ms(c->timeout_ms), NULL, &a);
    buf_fini(&a.body);
    buf_fini(&body);
    return e;
}

enum err mbx_ack(struct mbx *c, const struct mbx_delivery *d)
{
    return settle(c, "ack", d, NULL, 0);
}

enum err mbx_nack(struct mbx *c, const struct mbx_delivery *d, const char *reason)
{
    return settle(c, "nack", d, reason, 0);
}

enum err mbx_extend(struct mbx *c, const struct mbx_delivery *d, unsigned visibility_ms)
{
    return settle(c, "extend", d, NULL, visibility_ms);
}
