/*
 * /admin/mailbox/shards: what the shards of this node are doing and which node has which; POST …/{shard}/claim and …/{shard}/release
 * move one by command. A command is answered when it was noted; the list shows when it was carried out.
 */
#include <stdlib.h>

#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"
#include "services/mailbox/replica.h"

enum { BODY_MAX = 1 << 20 };

static void put_journal(struct json_w *w, struct mailbox_lane *l)
{
    struct store_journal_stats st;
    if (!mailbox_presence_pin(&l->presence))
        return;
    store_journal_stats(l->log.journal, &st);
    mailbox_presence_unpin(&l->presence);
    json_put_u64(w, "segment", atomic_load(&l->active_segment));
    json_put_u64(w, "groups", st.frames);
    json_put_bool(w, "direct_io", st.direct);
}

static void put_owner(struct json_w *w, struct mailbox *mb, struct mailbox_lane *l)
{
    static const char *const stages[] = {"here", "away", "coming", "going"};
    struct mailbox_owner o;
    if (!mb->replica)
        return;
    bool known = mailbox_replica_owner(mb, l->no, &o);
    json_put_cstr(w, "stage", stages[mailbox_presence_stage(&l->presence)]);
    json_put_u64(w, "epoch", o.epoch);
    if (known) {
        json_put_cstr(w, "node", o.node);
        json_put_cstr(w, "url", o.url);
        json_put_i64(w, "lease_ms", o.left_ms);
    }
}

static void put_shard(struct json_w *w, struct mailbox *mb, struct mailbox_lane *l)
{
    json_obj_begin(w);
    json_put_u64(w, "shard", l->no);
    put_owner(w, mb, l);
    json_put_bool(w, "readonly", atomic_load(&l->readonly));
    json_put_bool(w, "disk_full", atomic_load(&l->disk_full));
    json_put_u64(w, "jobs", atomic_load(&l->jobs));
    json_put_u64(w, "ready", atomic_load(&l->count[MAILBOX_READY]));
    json_put_u64(w, "delayed", atomic_load(&l->count[MAILBOX_DELAYED]));
    json_put_u64(w, "leased", atomic_load(&l->count[MAILBOX_LEASED]));
    json_put_u64(w, "dlq", atomic_load(&l->count[MAILBOX_DLQ]));
    json_put_u64(w, "done", atomic_load(&l->count[MAILBOX_DONE]));
    json_put_u64(w, "topics", atomic_load(&l->topics));
    put_journal(w, l);
    json_obj_end(w);
}

static void put_node(struct json_w *w, struct mailbox *mb)
{
    struct mailbox_replica *x = mb->replica;
    char why[MAILBOX_REPLICA_WHY];
    if (!x)
        return;
    mailbox_replica_why(mb, why);
    json_put_cstr(w, "node", x->node);
    json_put_u64(w, "nodes", atomic_load(&x->live));
    json_put_u64(w, "share", atomic_load(&x->share));
    json_put_u64(w, "here", atomic_load(&x->here));
    if (why[0])
        json_put_cstr(w, "replica_error", why);
}

void mailbox_get_shards(struct net_req *rq, void *ctx)
{
    struct mailbox *mb = ctx;
    struct mailbox_call *c = mailbox_call_http(mb, rq, MAILBOX_OP_TOPICS, "admin");
    struct buf b;
    struct json_w w;
    if (!c)
        return;
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    put_node(&w, mb);
    json_key(&w, "shards");
    json_arr_begin(&w);
    for (uint16_t i = 0; i < mb->shards; i++)
        put_shard(&w, mb, &mb->lanes[i]);
    json_arr_end(&w);
    json_put_bool(&w, "rebalancing",
                  atomic_load(&mb->rebalancing)); /* after them: false says that they hold */
    json_obj_end(&w);
    mailbox_call_reply(c, 200, buf_bytes(&b));
    buf_fini(&b);
}

static bool shard_of(struct mailbox *mb, struct str text, uint16_t *out)
{
    unsigned n = 0;
    if (text.n < 1 || text.n > 2)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        n = n * 10 + (unsigned)(text.p[i] - '0');
    }
    *out = (uint16_t)n;
    return n < mb->shards;
}

static void command(struct net_req *rq, struct mailbox *mb, bool claim)
{
    struct mailbox_call *c = mailbox_call_http(mb, rq, MAILBOX_OP_TOPICS, "admin");
    uint16_t shard;
    if (!c)
        return;
    if (!mb->replica) {
        mailbox_call_refuse(c, ERR_CONFLICT, MAILBOX_WHY_NONE,
                            "this mailbox is alone (replica.dsn is empty)");
        return;
    }
    if (!shard_of(mb, net_req_param(rq, "shard"), &shard)) {
        mailbox_call_refuse(c, ERR_NOT_FOUND, MAILBOX_WHY_NONE, "no such shard");
        return;
    }
    atomic_fetch_or(claim ? &mb->replica->want_claim : &mb->replica->want_release, UINT64_C(1) << shard);
    obs_log(svc_log(mb->svc), OBS_INFO, "admin_call",
            OBS_STR("what", claim ? "shard claim" : "shard release"), OBS_U64("shard", shard), OBS_END);
    mailbox_call_reply(c, 202, bytes_of("{\"ok\":true}", 11));
}

void mailbox_post_shard_claim(struct net_req *rq, void *ctx)
{
    command(rq, ctx, true);
}

void mailbox_post_shard_release(struct net_req *rq, void *ctx)
{
    command(rq, ctx, false);
}
