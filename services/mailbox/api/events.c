/*
 * GET /admin/mailbox/events: what happens in the shards, as NDJSON, while the client listens.
 *
 * A tap is one more subscriber of events_tx. The bus says "there is more" from a worker's thread; the tap posts itself to its loop
 * and reads there, so a worker never waits for a slow operator: what is lost is told in a line of its own.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"

enum { TAP_MAGIC = 0x50415445, LINE_BYTES = 1024, BEAT_MS = 15000, TICK_MS = 500 };

struct tap {
    uint32_t magic;
    struct mailbox *mb;
    struct net_req *rq;
    struct net_loop *loop;
    struct rt_bcast_sub *sub;
    struct net_msg msg;
    atomic_bool posted; /* msg is on its way: set by the bus, cleared by the loop before it reads */
    struct net_timer timer;
    int64_t beat_at_ns, judge_at_ns;
    struct str token;
    struct auth_cap *cap; /* says which topics it may hear of */
    uint64_t lost;        /* passed by, or there was no room for them; not told yet */
    bool ending;
};

static const char *const names[] = {
    [MAILBOX_EV_TOPIC_CREATED] = "topic.created",   [MAILBOX_EV_TOPIC_FORGOTTEN] = "topic.forgotten",
    [MAILBOX_EV_DLQ_MOVED] = "dlq.moved",           [MAILBOX_EV_LEASE_EXPIRED] = "lease.expired",
    [MAILBOX_EV_INTEGRITY_FAIL] = "integrity.fail", [MAILBOX_EV_SHARD_READONLY] = "shard.readonly",
    [MAILBOX_EV_REPROCESS_DONE] = "reprocess.done",
};

static void put_note(struct buf *b, const struct mailbox_note *n)
{
    const struct mailbox_event *ev = &n->ev;
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_put_cstr(&w, "event", names[ev->kind]);
    json_put_time_ms(&w, "at", n->at_ms);
    json_put_u64(&w, "shard", n->shard);
    if (ev->topic_len)
        json_put_str(&w, "topic", str_of(ev->topic, ev->topic_len));
    if (ev->kind != MAILBOX_EV_TOPIC_CREATED && ev->kind != MAILBOX_EV_TOPIC_FORGOTTEN &&
        ev->kind != MAILBOX_EV_SHARD_READONLY) {
        json_key(&w, ev->kind == MAILBOX_EV_REPROCESS_DONE ? "job" : "msg_id");
        json_uuid(&w, &ev->msg_id);
    }
    if (ev->attempt)
        json_put_u64(&w, "attempt", ev->attempt);
    if (ev->cause)
        json_put_cstr(&w, "cause", mailbox_cause_name((enum mailbox_cause)ev->cause));
    json_obj_end(&w);
    buf_putc(b, '\n');
}

/* Frees the tap when nothing of it is on its way any more. */
static void end_tap(struct tap *t)
{
    if (!t->ending) {
        t->ending = true;
        rt_bcast_unsubscribe(t->sub); /* from here on the bus does not call */
        net_timer_cancel(t->loop, &t->timer);
    }
    if (atomic_load(&t->posted))
        return; /* its message arrives and ends it */
    struct net_req *rq = t->rq;
    auth_cap_release(t->cap);
    t->magic = 0;
    free(t);
    net_stream_end(rq);
}

/* The bus's times and places, and nothing of a topic that the token does not cover. */
static bool may_hear(const struct tap *t, const struct mailbox_note *n)
{
    const struct mailbox_event *ev = &n->ev;
    return !ev->topic_len || auth_covers(t->cap, AUTH_CV_TOPIC, str_of(ev->topic, ev->topic_len));
}

/* What it has missed comes before what it gets. */
static enum err tell_lost(struct tap *t)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"event\":\"lost\",\"n\":%llu}\n", (unsigned long long)t->lost);
    enum err e = t->lost ? net_stream_write(t->rq, bytes_of(text, (size_t)n)) : ERR_OK;
    if (e == ERR_OK)
        t->lost = 0;
    return e;
}

static enum err tell(struct tap *t, const struct mailbox_note *n)
{
    uint8_t storage[LINE_BYTES];
    struct buf b;
    enum err e = tell_lost(t);
    buf_init_fixed(&b, storage, sizeof storage);
    put_note(&b, n);
    if (e == ERR_OK)
        e = b.err == ERR_OK ? net_stream_write(t->rq, buf_bytes(&b)) : b.err;
    if (e == ERR_BUSY)
        t->lost++;
    return e;
}

static void read_bus(struct tap *t)
{
    void *item;
    enum err e;
    while ((e = rt_bcast_try_recv(t->sub, &item)) == ERR_OK || e == ERR_LAGGED) {
        enum err told = ERR_OK;
        if (e == ERR_LAGGED) {
            t->lost += rt_bcast_take_lost(t->sub);
            continue;
        }
        if (may_hear(t, item))
            told = tell(t, item);
        mailbox_note_unref(item);
        if (told != ERR_OK && told != ERR_BUSY) {
            end_tap(t);
            return;
        }
    }
    if (e == ERR_CLOSED)
        end_tap(t);
}

static void arrived(struct net_msg *m)
{
    struct tap *t = (struct tap *)((char *)m - offsetof(struct tap, msg));
    CHECK_MAGIC(t, TAP_MAGIC);
    atomic_store(&t->posted, false);
    if (t->ending)
        end_tap(t);
    else
        read_bus(t);
}

/* On the publisher's thread: one post until the loop has read. */
static void more_there(void *arg)
{
    struct tap *t = arg;
    if (!atomic_exchange(&t->posted, true))
        net_loop_post(t->loop, &t->msg);
}

static void left(struct net_req *rq, void *arg)
{
    (void)rq;
    end_tap(arg);
}

/* Found again within auth.cache_ttl, as a stream's is. False: it has ended. */
static bool still_allowed(struct tap *t, int64_t now_ns)
{
    struct auth_want want = {.op = STR("admin"), .lacks = SVC_LACKS_ALL};
    struct auth_cap *cap;
    t->judge_at_ns = now_ns + svc_common(t->mb->svc)->auth_cache_ttl * 1000000;
    if (svc_authorize_again(t->mb->svc, net_req_peer(t->rq), t->token, &want, &cap) != ERR_OK)
        return false;
    auth_cap_release(t->cap);
    t->cap = cap;
    return true;
}

static void on_timer(struct net_timer *timer)
{
    struct tap *t = (struct tap *)((char *)timer - offsetof(struct tap, timer));
    int64_t now = net_loop_now_ns(t->loop);
    bool gone = svc_draining(t->mb->svc) || tell_lost(t) == ERR_CLOSED;
    if (!gone && now >= t->judge_at_ns && !still_allowed(t, now)) {
        static const char last[] = "{\"event\":\"end\",\"code\":\"unauthenticated\"}\n";
        gone = true;
        if (net_stream_write(t->rq, bytes_of(last, sizeof last - 1)) != ERR_OK)
            gone = true; /* a client that does not read does not miss it */
    }
    if (!gone && now >= t->beat_at_ns) {
        t->beat_at_ns = now + (int64_t)BEAT_MS * 1000000;
        gone = net_stream_write(t->rq, bytes_of("\n", 1)) == ERR_CLOSED;
    }
    if (gone)
        end_tap(t);
    else
        net_timer_set(t->loop, timer, now + (int64_t)TICK_MS * 1000000);
}

void mailbox_get_events(struct net_req *rq, void *ctx)
{
    struct mailbox *mb = ctx;
    if (!svc_allow_admin(mb->svc, rq))
        return;
    struct tap *t = calloc(1, sizeof *t);
    if (!t) {
        net_reply_problem(rq, ERR_NO_MEMORY, "no memory for this request");
        return;
    }
    *t = (struct tap){.magic = TAP_MAGIC, .mb = mb, .rq = rq, .loop = net_req_loop(rq)};
    t->msg.fn = arrived;
    t->timer.fn = on_timer;
    int64_t now = net_loop_now_ns(t->loop);
    if (auth_bearer(net_req_header(rq, "authorization"), &t->token) != ERR_OK || !still_allowed(t, now)) {
        free(t);
        svc_reply_unauthenticated(rq, NULL);
        return;
    }
    t->sub = rt_bcast_subscribe(mb->events, more_there, t);
    if (!t->sub) {
        auth_cap_release(t->cap);
        free(t);
        net_reply_problem(rq, ERR_NO_MEMORY, "no memory for this request");
        return;
    }
    net_req_on_close(rq, left, t);
    net_stream_begin(rq, 200, &(struct net_headers){.type = "application/x-ndjson"});
    t->beat_at_ns = now + (int64_t)BEAT_MS * 1000000;
    net_timer_set(t->loop, &t->timer, now + (int64_t)TICK_MS * 1000000);
    read_bus(t); /* arms the bus: it calls after an empty look */
}
