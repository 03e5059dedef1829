/* GET /v1/topics and GET /v1/topics/{topic}. */
#include <stdlib.h>

#include "base/json_write.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"
#include "services/mailbox/replica.h"

enum { BODY_MAX = 4 << 20 };

static void put_topic(struct json_w *w, const struct mailbox_topic_info *t)
{
    json_obj_begin(w);
    json_put_str(w, "topic", str_of(t->name, t->name_len));
    json_put_u64(w, "shard", t->shard);
    json_put_u64(w, "ready", t->ready);
    json_put_u64(w, "delayed", t->delayed);
    json_put_u64(w, "leased", t->leased);
    json_put_u64(w, "dlq", t->dlq);
    json_put_u64(w, "waiters", t->waiters);
    json_put_u64(w, "streams", t->streams);
    if (t->has_ready)
        json_put_u64(w, "oldest_ready_s", t->oldest_ready_s);
    if (t->has_due)
        json_put_u64(w, "next_due_ms", t->next_due_ms);
    json_put_u64(w, "enqueued", t->enqueued);
    json_put_u64(w, "acked", t->acked);
    json_put_u64(w, "redelivered", t->redelivered);
    if (t->last_send_ms)
        json_put_time_ms(w, "last_send", (int64_t)t->last_send_ms);
    json_key(w, "chain_id");
    json_uuid(w, &t->chain_id);
    json_key(w, "head");
    json_obj_begin(w);
    json_put_u64(w, "topic_seq", t->topic_seq);
    json_put_hash(w, "hash_chain", &t->chain);
    json_obj_end(w);
    json_key(w, "policy");
    json_obj_begin(w);
    json_put_cstr(w, "class", t->policy.class_name);
    if (t->policy.t_replay_ms == MAILBOX_UNLIMITED)
        json_put_cstr(w, "t_replay", "unlimited");
    else
        json_put_u64(w, "t_replay_ms", t->policy.t_replay_ms);
    json_put_u64(w, "max_attempts", t->policy.max_attempts);
    json_put_bool(w, "ordered", t->policy.ordered);
    json_put_u64(w, "default_visibility_ms", t->policy.default_visibility_ms);
    json_obj_end(w);
    json_obj_end(w);
}

static void free_queries(struct mailbox_call *c)
{
    for (size_t i = 0; i < c->jobs_n; i++)
        free(c->topics[i].got);
}

static void finish_one(struct mailbox_call *c)
{
    struct mailbox_topics_query *q = c->topics;
    struct buf b;
    struct json_w w;
    enum err e = c->jobs[0].err;
    if (e != ERR_OK || q->n == 0) {
        enum mailbox_why why = c->jobs[0].why;
        free_queries(c);
        mailbox_call_refuse(c, e != ERR_OK ? e : ERR_NOT_FOUND, why, e == ERR_OK ? "no such topic" : NULL);
        return;
    }
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    put_topic(&w, &q->got[0]);
    free_queries(c);
    mailbox_call_reply(c, 200, buf_bytes(&b));
    buf_fini(&b);
}

/* Shards of other nodes are named with their owners: whoever wants all topics asks those, too. */
static void put_elsewhere(struct json_w *w, struct mailbox_call *c)
{
    if (!c->mb->replica)
        return;
    json_key(w, "elsewhere");
    json_arr_begin(w);
    for (size_t i = 0; i < c->jobs_n; i++) {
        struct mailbox_owner o;
        if (c->jobs[i].err != ERR_NOT_OWNER)
            continue;
        mailbox_replica_owner(c->mb, c->jobs[i].lane->no, &o);
        json_obj_begin(w);
        json_put_u64(w, "shard", c->jobs[i].lane->no);
        json_put_cstr(w, "url", o.url);
        json_obj_end(w);
    }
    json_arr_end(w);
}

/* A shard that cannot be read now, for a reason of its own: the others can. */
static bool is_missing(const struct mailbox_job *j)
{
    return j->err == ERR_SAFE_MODE || j->err == ERR_UNAVAILABLE;
}

/* What cannot be listed is named, so that nobody takes the rest for all there is. */
static void put_missing(struct json_w *w, const struct mailbox_call *c)
{
    bool any = false;
    for (size_t i = 0; i < c->jobs_n; i++) {
        const struct mailbox_job *j = &c->jobs[i];
        if (!is_missing(j))
            continue;
        if (!any) {
            json_key(w, "missing");
            json_arr_begin(w);
        }
        any = true;
        json_obj_begin(w);
        json_put_u64(w, "shard", j->lane->no);
        json_put_cstr(w, "code", err_code(j->err));
        json_put_cstr(w, "detail", mailbox_detail(j->err, j->why));
        json_obj_end(w);
    }
    if (any)
        json_arr_end(w);
}

/* Why there is no list at all: the job that says so, or NULL when some shard can be listed, or another node asked. */
static const struct mailbox_job *no_list(const struct mailbox_call *c)
{
    size_t missing = 0;
    for (size_t i = 0; i < c->jobs_n; i++) {
        const struct mailbox_job *j = &c->jobs[i];
        if (j->err != ERR_OK && j->err != ERR_NOT_OWNER && !is_missing(j))
            return j;
        missing += is_missing(j);
    }
    return missing == c->jobs_n ? &c->jobs[0] : NULL;
}

/* Every shard gave its page in order, and one more, which tells that there is more; the answer is their merge. */
static void finish_list(struct mailbox_call *c)
{
    uint32_t at[MAILBOX_SHARDS_MAX] = {0}, n = 0, limit = c->topics[0].limit - 1;
    const struct mailbox_topic_info *last = NULL;
    struct buf b;
    struct json_w w;
    const struct mailbox_job *none = no_list(c);
    if (none) {
        free_queries(c);
        mailbox_call_refuse(c, none->err, none->why, NULL);
        return;
    }
    buf_init(&b, BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "topics");
    json_arr_begin(&w);
    for (;;) {
        const struct mailbox_topic_info *best = NULL;
        size_t from = 0;
        for (size_t i = 0; i < c->jobs_n; i++) {
            const struct mailbox_topic_info *t = at[i] < c->topics[i].n ? &c->topics[i].got[at[i]] : NULL;
            if (t &&
                (!best || str_cmp(str_of(t->name, t->name_len), str_of(best->name, best->name_len)) < 0)) {
                best = t;
                from = i;
            }
        }
        if (!best || n == limit) {
            json_arr_end(&w);
            if (best && last)
                json_put_str(&w, "next", str_of(last->name, last->name_len));
            break;
        }
        put_topic(&w, best);
        last = best;
        at[from]++;
        n++;
    }
    put_elsewhere(&w, c);
    put_missing(&w, c);
    json_obj_end(&w);
    free_queries(c);
    mailbox_call_reply(c, 200, buf_bytes(&b));
    buf_fini(&b);
}

static bool make_jobs(struct mailbox_call *c, size_t n, uint32_t room)
{
    struct mailbox_job *jobs = mailbox_call_jobs(c, n);
    c->topics = jobs ? arena_zalloc(mailbox_call_arena(c), n * sizeof *c->topics) : NULL;
    if (!c->topics) {
        c->jobs_n = 0;
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        c->topics[i].limit = room;
        c->topics[i].cap = c->cap;
        c->topics[i].got = calloc(room, sizeof *c->topics[i].got);
        jobs[i].kind = MAILBOX_JOB_TOPICS;
        jobs[i].lane = &c->mb->lanes[i];
        jobs[i].topics = &c->topics[i];
        if (!c->topics[i].got) {
            free_queries(c);
            mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
            return false;
        }
    }
    return true;
}

void mailbox_get_topic(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_TOPICS, "read");
    if (!c)
        return;
    struct str topic = net_req_param(rq, "topic");
    enum err e = mailbox_topic_valid(topic) ? mailbox_call_allows(c, topic, 0) : ERR_NOT_FOUND;
    if (e != ERR_OK) {
        mailbox_call_refuse(c, e, MAILBOX_WHY_NONE, e == ERR_NOT_FOUND ? "no such topic" : NULL);
        return;
    }
    if (!make_jobs(c, 1, 1))
        return;
    c->topics->exact = topic;
    mailbox_topic_hash(topic, &c->topics->exact_hash);
    c->jobs[0].lane = mailbox_lane_of(c->mb, mailbox_bucket(&c->topics->exact_hash));
    c->finish = finish_one;
    mailbox_call_submit(c, true);
}

void mailbox_get_topics(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_TOPICS, "read");
    struct str prefix = STR(""), after = STR("");
    uint32_t room = 100;
    if (!c)
        return;
    if (net_req_query(rq, "prefix", &prefix) != ERR_OK)
        prefix = STR("");
    if (net_req_query(rq, "after", &after) != ERR_OK)
        after = STR("");
    bool ok = mailbox_query_u32(rq, "limit", 1, 1000, &room);
    if (!ok || prefix.n > MAILBOX_TOPIC_MAX || after.n > MAILBOX_TOPIC_MAX) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE, "limit, prefix or after: range");
        return;
    }
    if (!make_jobs(c, c->mb->shards, room + 1))
        return;
    for (size_t i = 0; i < c->jobs_n; i++) {
        c->topics[i].prefix = prefix;
        c->topics[i].after = after;
    }
    c->finish = finish_list;
    mailbox_call_submit(c, true);
}
