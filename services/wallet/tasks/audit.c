/*
 * The audit stream: events_tx -> every reader of GET /admin/audit, as server-sent events. A reader that does not keep up
 * misses events; nobody waits for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/wallet/audit.h"

enum { STREAMS_MAX = 8, BEAT_MS = 500, EVENT_MAX = 1024 };

struct wallet_audit_stream {
    struct wallet_audit_stream *next;
    struct net_req *rq;
    struct svc_hearing hearing;
};

void wallet_event_ref(void *event)
{
    os_a32_add(&((struct wallet_event *)event)->refs, 1, memory_order_relaxed);
}

void wallet_event_unref(void *event)
{
    struct wallet_event *e = event;
    if (os_a32_add(&e->refs, (uint32_t)-1, memory_order_acq_rel) == 1)
        free(e);
}

static void publish(struct wallet *w, const char *name, struct buf *json)
{
    if (json->err != ERR_OK)
        return;
    struct wallet_event *e = malloc(sizeof *e + EVENT_MAX + 128);
    if (!e)
        return;
    os_a32_store(&e->refs, 1, memory_order_relaxed);
    e->n = (size_t)snprintf(e->text, EVENT_MAX + 128, "event: %s\ndata: %.*s\n\n", name,
                            STR_ARG(buf_str(json)));
    rt_bcast_publish(w->events, e);
}

static bool heard(struct wallet *w)
{
    return rt_bcast_stats(w->events).subscribers != 0;
}

static void tell_refusal(struct wallet *w, const char *op, enum err e, struct str corr_id, int64_t ts_ms)
{
    char room[EVENT_MAX];
    struct buf b;
    struct json_w json;
    buf_init_fixed(&b, room, sizeof room);
    json_w_init(&json, &b);
    json_obj_begin(&json);
    json_put_cstr(&json, "op", op);
    json_put_cstr(&json, "code", err_code(e));
    json_put_str(&json, "corr_id", corr_id);
    json_put_time_ms(&json, "ts", ts_ms);
    json_obj_end(&json);
    publish(w, "wallet.request.rejected", &b);
}

void wallet_audit_settled(struct wallet *w, const struct wallet_job *j)
{
    char room[EVENT_MAX], name[48];
    struct buf b;
    struct json_w json;
    if (!heard(w))
        return;
    if (j->answer.no.err == ERR_OK) {
        buf_init_fixed(&b, room, sizeof room);
        json_w_init(&json, &b);
        json_obj_begin(&json);
        struct str receipt = str_of(j->answer.body, j->answer.body_n);
        struct str from = wallet_side(receipt, j->sides.from, j->sides.from_n);
        struct str to = wallet_side(receipt, j->sides.to, j->sides.to_n);
        snprintf(name, sizeof name, "wallet.%s.accepted", wallet_kind_name(j->op.kind));
        json_put_cstr(&json, "txid", j->txid);
        if (from.n)
            json_put_str(&json, "from", from);
        if (to.n)
            json_put_str(&json, "to", to);
        json_put_str(&json, "asset", wallet_side(receipt, j->sides.asset, j->sides.asset_n));
        json_put_money(&json, "amount", j->sides.amount);
        json_put_u64(&json, "seq", j->said.seq_start);
        json_put_time_ms(&json, "ts", j->accepted_ms);
        json_obj_end(&json);
        publish(w, name, &b);
    } else
        tell_refusal(w, wallet_kind_name(j->op.kind), j->answer.no.err, j->corr_id, j->accepted_ms);
}

void wallet_audit_refused(struct wallet *w, const char *op, enum err e, struct str corr_id)
{
    if (heard(w))
        tell_refusal(w, op, e, corr_id, clock_wall_ms(svc_clock(w->svc)));
}

bool wallet_audit_subscribe(struct wallet *w, struct net_req *rq)
{
    struct wallet_audit_stream *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    s->rq = rq;
    s->hearing = svc_hearing_begin(w->svc, net_req_peer(rq), svc_bearer(rq));
    rt_lock_take(&w->streams_lock);
    bool room = w->n_streams < STREAMS_MAX;
    if (room)
        w->n_streams++;
    rt_lock_release(&w->streams_lock);
    if (!room) {
        free(s);
        return false;
    }
    net_stream_begin(rq, 200, &(struct net_headers){.type = "text/event-stream"});
    rt_lock_take(&w->streams_lock);
    s->next = w->streams;
    w->streams = s;
    rt_lock_release(&w->streams_lock);
    rt_bell_ring(&w->audit_bell);
    return true;
}

static const char last_words[] = "event: wallet.end\ndata: {\"code\":\"unauthenticated\"}\n\n";

/* The list is the audit task's while it writes: only it removes. Whose token has ended is told so, and nothing else. */
static void tell_all(struct wallet *w, struct bytes text, bool end)
{
    rt_lock_take(&w->streams_lock);
    struct wallet_audit_stream *all = w->streams, *keep = NULL;
    w->streams = NULL;
    rt_lock_release(&w->streams_lock);
    size_t gone = 0;
    while (all) {
        struct wallet_audit_stream *s = all;
        all = s->next;
        bool on = svc_hearing_goes_on(w->svc, &s->hearing, "admin");
        struct bytes words = on ? text : bytes_of(last_words, sizeof last_words - 1);
        enum err e = words.n ? net_stream_write(s->rq, words) : ERR_OK;
        if (e == ERR_BUSY)
            obs_counter_inc(obs_counter_nth(w->m[WALLET_M_bus_lagged], 0));
        if (end || !on || e == ERR_CLOSED || net_req_gone(s->rq)) {
            net_stream_end(s->rq);
            free(s);
            gone++;
        } else {
            s->next = keep;
            keep = s;
        }
    }
    rt_lock_take(&w->streams_lock);
    while (keep) {
        struct wallet_audit_stream *next = keep->next;
        keep->next = w->streams;
        w->streams = keep;
        keep = next;
    }
    w->n_streams -= gone;
    rt_lock_release(&w->streams_lock);
}

enum err wallet_audit_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct rt_bcast_sub *sub = NULL;
    enum err e = ERR_OK;
    while (!rt_task_stopping(self)) {
        void *item;
        uint64_t noted = rt_bell_note(&w->audit_bell);
        rt_task_beat(self);
        rt_lock_take(&w->streams_lock);
        bool readers = w->streams != NULL;
        rt_lock_release(&w->streams_lock);
        /* Events are only made while somebody listens. */
        if (readers && !sub)
            sub = rt_bcast_subscribe(w->events, NULL, NULL);
        if (!sub) /* nothing waits for anybody */
            os_count_set(&w->events_read, rt_bcast_stats(w->events).published);
        if (!readers && sub) {
            rt_bcast_unsubscribe(sub);
            sub = NULL;
        }
        if (!sub) {
            if (rt_bell_doze(&w->audit_bell, noted, deadline_never()) != ERR_OK)
                break;
            continue;
        }
        e = rt_bcast_recv(sub, deadline_in_ms(BEAT_MS), &item);
        if (e == ERR_OK) {
            struct wallet_event *ev = item;
            tell_all(w, bytes_of(ev->text, ev->n), false);
            wallet_event_unref(ev);
            os_count_add(&w->events_read, 1);
        } else if (e == ERR_LAGGED) {
            uint64_t lost = rt_bcast_take_lost(sub);
            os_count_add(&w->events_read, lost);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_bus_lagged], 0), lost);
            obs_counter_add(obs_counter_nth(w->m[WALLET_M_queue_dropped], 1), lost);
        } else if (e == ERR_TIMEOUT)
            tell_all(w, bytes_of(":\n\n", 3), false); /* finds out who has left */
        else
            break;
    }
    if (sub)
        rt_bcast_unsubscribe(sub);
    if (svc_draining(w->svc))
        tell_all(w, bytes_of(NULL, 0), true);
    return rt_task_canceled(self) ? ERR_CANCELED : ERR_OK;
}
