/*
 * Streams: envelopes while there is credit, as NDJSON (POST /v1/recv/stream, here) or as frames (oap_stream.c).
 *
 * The stream's worker gives it messages as credit allows and posts them here, one batch per group; this side writes them in
 * order and gives back (releases) what could not be written. Closing goes through the worker, so that no batch can arrive after
 * the last: client gone, token ended, drain -> close job -> done -> last words, end, free.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"
#include "services/mailbox/api/stream.h"

enum {
    LINE_MAX_BYTES = 2 << 20,
    PIECE = 16 << 10, /* of a line: the stream's buffer is smaller than a large message */
    BEAT_MS = 15000,
    TICK_MS = 200
};

struct stream_dto {
    struct str topic;
    uint64_t visibility_ms, credit, max_bytes;
    bool has_visibility_ms;
};

static const struct json_field stream_fields[] = {
    JSON_REQ(struct stream_dto, topic, JSON_KIND_STR, .min = 1, .max = MAILBOX_TOPIC_MAX,
             .check = mailbox_topic_valid),
    JSON_OPT(struct stream_dto, visibility_ms, JSON_KIND_U64),
    JSON_DEF(struct stream_dto, credit, JSON_KIND_U64, .min = 1, .max = 1024),
    JSON_DEF(struct stream_dto, max_bytes, JSON_KIND_U64, .min = 65536, .max = 8388608),
    JSON_END,
};

static void batch_free(struct mailbox_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        free(b->bodies[i]);
    free(b->bodies);
    free(b->got);
    free(b);
}

/* ---- closing ---- */

static void try_close(struct mailbox_stream *st)
{
    enum mailbox_why why;
    if (st->close_sent || !st->open_answered)
        return;
    st->close_sent = mailbox_submit(&st->close_job, true, &why) == ERR_OK;
    if (!st->close_sent &&
        why == MAILBOX_WHY_DRAINING) { /* the worker is gone: it let go of every stream when it ended */
        st->close_sent = true;
        st->close_job.done(&st->close_job);
    }
}

static void close_stream(struct mailbox_stream *st, const char *code)
{
    if (!st->end_code)
        st->end_code = code;
    st->closing = true;
    try_close(st); /* a full queue is tried again by the timer */
}

/* The worker has let go: nothing more will come. */
static void closed(struct mailbox_call *c)
{
    struct mailbox_stream *st = c->more;
    while (st->queue) {
        struct mailbox_batch *b = st->queue;
        st->queue = b->next;
        mailbox_release(st->close_job.lane, b->got + b->written, b->n - b->written);
        batch_free(b);
    }
    if (st->begun && st->gone && st->wire->lost)
        st->wire->lost(st);
    net_timer_cancel(c->loop, &st->timer);
    if (!st->begun) { /* the client left before the stream could begin */
        free(st);
        mailbox_call_refuse(c, ERR_BUSY, MAILBOX_WHY_STREAMS, NULL);
        return;
    }
    obs_log(svc_log(c->mb->svc), OBS_INFO, "stream.end",
            OBS_STR("code", st->end_code ? st->end_code : "client"), OBS_END);
    st->wire->end(st);
}

/* ---- writing ---- */

static void pump(struct mailbox_stream *st)
{
    while (st->queue && !st->gone) {
        struct mailbox_batch *b = st->queue;
        while (b->written < b->n) {
            enum err e = st->wire->write(st, b);
            if (e == ERR_CLOSED)
                st->gone = true;
            if (e == ERR_TOO_LARGE || e == ERR_NO_MEMORY)
                close_stream(st, "slow_consumer"); /* this one never fits the stream's buffer */
            if (e != ERR_OK)
                return;
        }
        st->queue = b->next;
        if (!st->queue)
            st->queue_end = &st->queue;
        batch_free(b);
    }
}

static void batch_arrived(struct net_msg *m)
{
    struct mailbox_batch *b = (struct mailbox_batch *)((char *)m - offsetof(struct mailbox_batch, msg));
    struct mailbox_stream *st = b->stream;
    b->next = NULL;
    *st->queue_end = b;
    st->queue_end = &b->next;
    pump(st);
}

void mailbox_stream_room(struct mailbox_stream *st)
{
    pump(st);
}

void mailbox_stream_left(struct mailbox_stream *st)
{
    st->gone = true;
    close_stream(st, NULL);
}

static void on_timer(struct net_timer *t)
{
    struct mailbox_stream *st =
        (struct mailbox_stream *)((char *)t - offsetof(struct mailbox_stream, timer));
    struct mailbox_call *c = st->call;
    int64_t now = net_loop_now_ns(c->loop);
    if (st->closing)
        try_close(st);
    else if (svc_draining(c->mb->svc))
        close_stream(st, "draining");
    else if (atomic_load(&st->close_job.lane->readonly))
        close_stream(st, "safe_mode");
    else if (c->mb->replica && !mailbox_presence_is_here(&st->close_job.lane->presence))
        close_stream(st, "moved");
    else if (!atomic_load(&st->opened)) /* its worker let go of it, and may have the shard again by now */
        close_stream(st, c->mb->replica ? "moved" : "rebalancing");
    if (!st->closing && now >= st->judge_at_ns) {
        st->judge_at_ns = now + svc_common(c->mb->svc)->auth_cache_ttl * 1000000;
        if (mailbox_call_judge_again(c, st->topic) != ERR_OK)
            close_stream(st, "unauthenticated");
    }
    if (!st->closing && now >= st->beat_at_ns) {
        st->beat_at_ns = now + (int64_t)BEAT_MS * 1000000;
        if (st->wire->beat(st) == ERR_CLOSED)
            st->gone = true;
    }
    net_timer_set(c->loop, &st->timer, now + (int64_t)TICK_MS * 1000000);
}

/* ---- opening ---- */

static void opened(struct mailbox_call *c)
{
    struct mailbox_stream *st = c->more;
    st->open_answered = true;
    if (st->open_job.err != ERR_OK) {
        enum err e = st->open_job.err;
        enum mailbox_why why = st->open_job.why;
        free(st);
        mailbox_call_refuse(c, e, why, NULL);
        return;
    }
    c->finish = closed;
    if (st->closing) {
        try_close(st);
    } else {
        st->begun = true;
        st->wire->begin(st);
    }
    int64_t now = net_loop_now_ns(c->loop);
    st->beat_at_ns = now + (int64_t)BEAT_MS * 1000000;
    st->judge_at_ns = now + svc_common(c->mb->svc)->auth_cache_ttl * 1000000;
    st->timer.fn = on_timer;
    net_timer_set(c->loop, &st->timer, now + (int64_t)TICK_MS * 1000000);
}

static void stream_job_done(struct mailbox_job *j)
{
    struct mailbox_stream *st = j->arg;
    atomic_store(&st->call->jobs_left, 1);
    struct mailbox_job for_call = {.arg = st->call};
    mailbox_call_job_done(&for_call);
}

struct mailbox_stream *mailbox_stream_create(struct mailbox_call *c, const struct mailbox_wire_recv *want,
                                             const struct mailbox_stream_wire *wire)
{
    struct mailbox_stream *st = calloc(1, sizeof *st);
    if (!st)
        return NULL;
    st->call = c;
    st->wire = wire;
    st->topic = want->topic;
    mailbox_topic_hash(want->topic, &st->topic_hash);
    st->visibility_us = (int64_t)want->visibility_ms * 1000;
    st->credit = want->credit;
    st->max_bytes = want->max_bytes;
    st->queue_end = &st->queue;
    st->batch_fn = batch_arrived;
    struct mailbox_job job = {.magic = MAILBOX_JOB_MAGIC, .done = stream_job_done, .arg = st, .stream = st};
    job.lane = mailbox_lane_of(c->mb, mailbox_bucket(&st->topic_hash));
    st->open_job = st->close_job = job;
    st->open_job.kind = MAILBOX_JOB_STREAM;
    st->close_job.kind = MAILBOX_JOB_STREAM_CLOSE;
    c->more = st;
    c->finish = opened;
    return st;
}

void mailbox_stream_submit(struct mailbox_stream *st)
{
    struct mailbox_call *c = st->call;
    enum mailbox_why full;
    c->lane = st->open_job.lane;
    enum err e = mailbox_submit(&st->open_job, false, &full);
    if (e != ERR_OK) {
        free(st);
        mailbox_call_refuse(c, e, full, NULL);
    }
}

/* ---- over HTTP ---- */

static void put_end(struct mailbox_stream *st)
{
    uint8_t storage[512];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "end");
    json_obj_begin(&w);
    json_put_cstr(&w, "code", st->end_code ? st->end_code : "draining");
    json_put_cstr(&w, "detail", "the stream has ended; open another to go on");
    json_put_bool(&w, "retryable", true);
    json_put_str(&w, "corr_id", mailbox_call_corr_id(st->call));
    json_obj_end(&w);
    json_obj_end(&w);
    buf_putc(&b, '\n');
    if (net_stream_write(st->call->http, buf_bytes(&b)) != ERR_OK)
        return; /* a client that does not read does not miss it */
}

static void http_end(struct mailbox_stream *st)
{
    struct net_req *rq = st->call->http;
    bool cut = st->line_at > 0; /* in the middle of a line no other can begin */
    if (!st->gone && !cut)
        put_end(st);
    mailbox_call_ended(st->call, ERR_OK);
    buf_fini(&st->line);
    free(st->lines);
    free(st);
    if (cut)
        net_stream_abort(rq);
    else
        net_stream_end(rq);
}

/* How much of what it was given has left the stream's buffer. */
static size_t left_buffer(const struct mailbox_stream *st)
{
    return st->put - (st->buffer - net_stream_room(st->call->http));
}

/* Remembered until they have left; a client that was given more than its credit and reads none of it has let leases run out before. */
static void remember_line(struct mailbox_stream *st, const struct mailbox_delivery *d)
{
    size_t left = left_buffer(st);
    while (st->lines_first != st->lines_end && (st->lines[st->lines_first % st->credit].end <= left ||
                                                st->lines_end - st->lines_first == st->credit))
        st->lines_first++;
    if (st->lines)
        st->lines[st->lines_end++ % st->credit] =
            (struct mailbox_stream_line){d->enq.msg_id, st->put, d->attempt};
}

static void http_lost(struct mailbox_stream *st)
{
    size_t left = left_buffer(st);
    for (; st->lines_first != st->lines_end; st->lines_first++) {
        const struct mailbox_stream_line *x = &st->lines[st->lines_first % st->credit];
        struct mailbox_delivery d = {.enq = {.msg_id = x->id}, .attempt = x->attempt};
        if (x->end > left)
            mailbox_release(st->close_job.lane, &d, 1);
    }
}

static enum err put_piece(struct mailbox_stream *st, struct bytes piece)
{
    enum err e = net_stream_write(st->call->http, piece);
    if (e == ERR_OK)
        st->put += piece.n;
    return e;
}

static enum err http_write(struct mailbox_stream *st, struct mailbox_batch *batch)
{
    const struct mailbox_delivery *d = &batch->got[batch->written];
    enum err e = ERR_OK;
    if (st->line.n == 0) {
        struct json_w w;
        json_w_init(&w, &st->line);
        mailbox_put_envelope(&w, st->topic, d, st->close_job.lane->no);
        buf_putc(&st->line, '\n');
        e = st->line.err;
    }
    while (e == ERR_OK && st->line_at < st->line.n) {
        size_t rest = st->line.n - st->line_at, n = rest < PIECE ? rest : PIECE;
        e = put_piece(st, bytes_of(st->line.p + st->line_at, n));
        st->line_at += e == ERR_OK ? n : 0;
    }
    if (e == ERR_BUSY || (e == ERR_CLOSED && st->line_at))
        return e; /* goes on where it stopped, or nowhere */
    buf_fini(&st->line);
    buf_init(&st->line, LINE_MAX_BYTES);
    st->line_at = 0;
    if (e == ERR_OK) {
        remember_line(st, d);
        batch->written++;
    }
    return e;
}

static enum err http_beat(struct mailbox_stream *st)
{
    return st->line_at ? ERR_OK : put_piece(st, bytes_of("\n", 1));
}

static void room_again(struct net_req *rq, void *arg)
{
    (void)rq;
    mailbox_stream_room(arg);
}

static void http_begin(struct mailbox_stream *st)
{
    net_stream_begin(st->call->http, 200, &(struct net_headers){.type = "application/x-ndjson"});
    st->buffer = net_stream_room(st->call->http);
    st->lines = calloc(st->credit, sizeof *st->lines); /* without them leases end by their time */
    buf_init(&st->line, LINE_MAX_BYTES);
    net_stream_on_room(st->call->http, room_again, st);
}

static void client_left(struct net_req *rq, void *arg)
{
    (void)rq;
    mailbox_stream_left(arg);
}

static const struct mailbox_stream_wire over_http = {http_begin, http_write, http_beat, http_lost,
                                                     http_end};

void mailbox_post_stream(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_STREAM, "recv");
    struct json_error why;
    struct stream_dto d = {.credit = 64, .max_bytes = 1 << 20};
    if (!c)
        return;
    enum err e = json_read_dto(net_req_body(rq), stream_fields, &d, net_req_arena(rq), &why);
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return;
    }
    const struct mailbox_config *cfg = mailbox_config(c->mb);
    if (d.has_visibility_ms && ((int64_t)d.visibility_ms < cfg->visibility_ms_min ||
                                d.visibility_ms > (uint64_t)cfg->visibility_max)) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "visibility_ms: range");
        return;
    }
    if ((e = mailbox_call_allows(c, d.topic, 0)) != ERR_OK) {
        mailbox_call_refuse(c, e, MAILBOX_WHY_NONE, "the capability does not cover this topic");
        return;
    }
    struct mailbox_wire_recv want = {.topic = d.topic,
                                     .visibility_ms = (uint32_t)d.visibility_ms,
                                     .credit = (uint32_t)d.credit,
                                     .max_bytes = (uint32_t)d.max_bytes};
    struct mailbox_stream *st = mailbox_stream_create(c, &want, &over_http);
    if (!st) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    net_req_on_close(rq, client_left, st);
    net_req_waits(rq); /* max_streams bounds them */
    mailbox_stream_submit(st);
}
