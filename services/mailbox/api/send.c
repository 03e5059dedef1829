/* POST /v1/send: one message or a batch. */
#include <stdio.h>

#include "base/json_write.h"
#include "base/time_fmt.h"
#include "services/mailbox/api/call.h"
#include "services/mailbox/api/routes.h"
#include "services/mailbox/replica.h"

enum { BATCH_MAX = 64 };

struct message_dto {
    struct str topic, idem_key, deliver_at;
    struct bytes payload_b64;
    struct json_list attrs;
    struct sha256 payload_hash;
    uint64_t delay_ms;
    bool has_topic, has_idem_key, has_deliver_at, has_payload_b64, has_attrs, has_payload_hash,
        has_delay_ms;
};

static bool key_ok(struct str s)
{
    return mailbox_attr_key_valid(s);
}

#define MESSAGE_FIELDS(T)                                                                                  \
    JSON_OPT(T, topic, JSON_KIND_STR, .min = 1, .max = MAILBOX_TOPIC_MAX, .check = mailbox_topic_valid),   \
        JSON_OPT(T, idem_key, JSON_KIND_STR, .min = 1, .max = MAILBOX_IDEM_MAX,                            \
                 .check = mailbox_idem_valid),                                                             \
        JSON_OPT(T, payload_b64, JSON_KIND_BASE64, .max = MAILBOX_PAYLOAD_MAX),                            \
        JSON_OPT(T, attrs, JSON_KIND_STR_MAP, .max = MAILBOX_ATTRS_MAX, .check = key_ok),                  \
        JSON_OPT(T, payload_hash, JSON_KIND_HASH), JSON_OPT(T, delay_ms, JSON_KIND_U64),                   \
        JSON_OPT(T, deliver_at, JSON_KIND_STR, .max = 40)

struct send_dto {
    struct message_dto one;
    struct json_list messages;
    bool has_messages;
};

static const struct json_field message_fields[] = {MESSAGE_FIELDS(struct message_dto), JSON_END};

/* The single form is the message itself, so its members lie at the front of the struct. */
static const struct json_field send_fields[] = {MESSAGE_FIELDS(struct message_dto),
                                                {.name = "messages",
                                                 .name_n = 8,
                                                 .kind = JSON_KIND_OBJ_LIST,
                                                 .offset = offsetof(struct send_dto, messages),
                                                 .bytes = sizeof(struct json_list),
                                                 .has = offsetof(struct send_dto, has_messages),
                                                 .min = 1,
                                                 .max = BATCH_MAX,
                                                 .fields = message_fields,
                                                 .item_bytes = sizeof(struct message_dto)},
                                                JSON_END};

static enum err check_delay(struct mailbox_call *c, const struct mailbox_message *m,
                            struct mailbox_send_item *it, const char **out_detail)
{
    if (!m->has_delay && !m->has_deliver_at)
        return ERR_OK;
    uint64_t most = (uint64_t)mailbox_config(c->mb)->retention_ready,
             wall = (uint64_t)clock_wall_ms(c->mb->clock);
    if (m->has_delay && m->has_deliver_at) {
        *out_detail = "delay_ms and deliver_at exclude each other";
        return ERR_BAD_REQUEST;
    }
    if ((m->has_delay && m->delay_ms > most) || (m->has_deliver_at && m->deliver_at_ms > wall + most)) {
        *out_detail = m->has_delay ? "delay_ms: range (over retention.ready)"
                                   : "deliver_at: range (over retention.ready)";
        return ERR_BAD_REQUEST;
    }
    it->in.delay_ms = m->has_delay ? m->delay_ms : 0;
    it->in.deliver_at_ms = m->has_deliver_at ? m->deliver_at_ms : 0;
    return ERR_OK;
}

/* SHA-256 of four zero bytes: the canonical form of no attributes. */
static const struct sha256 no_attrs = {{0xdf, 0x3f, 0x61, 0x98, 0x04, 0xa9, 0x2f, 0xdb, 0x40, 0x57, 0x19,
                                        0x2d, 0xc4, 0x3d, 0xd7, 0x48, 0xea, 0x77, 0x8a, 0xdc, 0x52, 0xbc,
                                        0x49, 0x8c, 0xe8, 0x05, 0x24, 0xc0, 0x14, 0xb8, 0x11, 0x19}};

/* A batch usually speaks of one topic: the item before this one may know its hash. */
static void hash_topic(const struct mailbox_call *c, struct str topic, struct mailbox_send_item *it)
{
    const struct mailbox_send_item *before = c->send.items && it > c->send.items ? it - 1 : NULL;
    if (before && before->err == ERR_OK && str_eq(before->in.topic, topic))
        it->topic_hash = before->topic_hash;
    else
        mailbox_topic_hash(topic, &it->topic_hash);
}

static enum err encode_attrs(struct mailbox_call *c, const struct mailbox_message *m,
                             struct mailbox_send_item *it, const char **out_detail)
{
    static const uint8_t none[4];
    size_t need = 4, len;
    if (m->attrs_n == 0) {
        it->in.attrs = bytes_of(none, 4);
        it->in.attrs_hash = no_attrs;
        return ERR_OK;
    }
    for (size_t i = 0; i < m->attrs_n; i++)
        need += 8 + m->attrs[i].key.n + m->attrs[i].value.n;
    uint8_t *attrs = arena_alloc(mailbox_call_arena(c), need);
    if (!attrs) {
        *out_detail = "the request does not fit";
        return ERR_TOO_LARGE;
    }
    enum err e = mailbox_attrs_encode(m->attrs, m->attrs_n, attrs, need, &len);
    if (e != ERR_OK) {
        *out_detail = e == ERR_SYNTAX ? "attrs: pattern or repeated key" : "attrs: range";
        return ERR_BAD_REQUEST;
    }
    it->in.attrs = bytes_of(attrs, len);
    sha256_of(attrs, len, &it->in.attrs_hash);
    return ERR_OK;
}

/* The token's verdict on a topic holds for the rest of the batch, for payloads that are no larger. */
static enum err judge(struct mailbox_call *c, const struct mailbox_message *m)
{
    if (c->allowed_topic.n && m->payload.n <= c->allowed_bytes && str_eq(c->allowed_topic, m->topic))
        return ERR_OK;
    enum err e = mailbox_call_allows(c, m->topic, m->payload.n);
    if (e == ERR_OK) {
        c->allowed_topic = m->topic;
        c->allowed_bytes = m->payload.n;
    }
    return e;
}

enum err mailbox_send_prepare(struct mailbox_call *c, const struct mailbox_message *m,
                              struct mailbox_send_item *it, const char **out_detail)
{
    struct mailbox *mb = c->mb;
    if (m->payload.n > mailbox_config(mb)->max_payload) {
        *out_detail = "the payload is larger than max_payload";
        return ERR_TOO_LARGE;
    }
    enum err e = encode_attrs(c, m, it, out_detail);
    if (e == ERR_OK)
        e = check_delay(c, m, it, out_detail);
    if (e != ERR_OK)
        return e;
    if ((e = judge(c, m)) != ERR_OK) {
        *out_detail = "the capability does not cover this topic or size";
        return e;
    }
    hash_topic(c, m->topic, it);
    it->has_payload_hash = m->has_payload_hash;
    if (m->has_payload_hash) {
        sha256_of(m->payload.p, m->payload.n, &it->in.payload_hash);
        if (!sha256_eq(&m->payload_hash, &it->in.payload_hash)) {
            *out_detail = "payload_hash is not that of the payload";
            return ERR_INTEGRITY;
        }
    }
    it->in.topic = m->topic;
    it->in.idem_key = m->idem_key;
    it->in.tenant = auth_cap_tenant(c->cap);
    it->in.corr_id = mailbox_call_corr_id(c);
    it->in.topic_hash = &it->topic_hash;
    it->in.payload = m->payload;
    it->shard = mailbox_route(mb, mailbox_bucket(&it->topic_hash));
    it->err = ERR_OK;
    return ERR_OK;
}

static bool over_quota(struct mailbox_call *c)
{
    uint64_t messages = 0, bytes = 0;
    for (size_t i = 0; i < c->send.n; i++) {
        messages += c->send.items[i].err == ERR_OK;
        bytes += c->send.items[i].err == ERR_OK ? c->send.items[i].in.payload.n : 0;
    }
    return mailbox_quotas_take(&c->mb->quotas, auth_cap_tenant(c->cap), messages, bytes, c->started_ns) !=
           ERR_OK;
}

enum { AT_ONCE = 16 };

static void hash_some(struct mailbox_send_item *const *items, size_t n)
{
    struct sha256_job jobs[2 * AT_ONCE] = {0};
    struct sha256 keys[AT_ONCE];
    uint8_t bytes[AT_ONCE][MAILBOX_DEDUP_BYTES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!items[i]->has_payload_hash)
            jobs[count++] = (struct sha256_job){items[i]->in.payload, &items[i]->in.payload_hash};
    for (size_t i = 0; i < n; i++) {
        size_t len = mailbox_dedup_bytes(items[i]->in.topic, items[i]->in.idem_key, bytes[i]);
        jobs[count++] = (struct sha256_job){bytes_of(bytes[i], len), &keys[i]};
    }
    sha256_of_many(jobs, count);
    for (size_t i = 0; i < n; i++)
        memcpy(items[i]->in.digest.b, keys[i].b, sizeof items[i]->in.digest.b);
}

/* Of all messages that were found good; none waits for another, so they are hashed side by side. */
static void hash_items(struct mailbox_call *c)
{
    struct mailbox_send_item *some[AT_ONCE];
    size_t n = 0;
    for (size_t i = 0; i < c->send.n; i++) {
        if (c->send.items[i].err == ERR_OK)
            some[n++] = &c->send.items[i];
        if (n == AT_ONCE || (n > 0 && i + 1 == c->send.n)) {
            hash_some(some, n);
            n = 0;
        }
    }
}

/* One job per shard touched, its items in the order of the request. */
void mailbox_send_submit(struct mailbox_call *c)
{
    uint16_t shards[MAILBOX_SHARDS_MAX];
    size_t n = 0;
    struct mailbox_send_item *last[MAILBOX_SHARDS_MAX];
    for (size_t i = 0; i < c->send.n; i++) {
        struct mailbox_send_item *it = &c->send.items[i];
        size_t k = 0;
        if (it->err != ERR_OK)
            continue;
        while (k < n && shards[k] != it->shard)
            k++;
        if (k == n)
            shards[n++] = it->shard;
    }
    if (n == 0) {
        c->finish(c);
        return;
    }
    if (over_quota(c)) {
        mailbox_call_refuse(c, ERR_RATE_LIMITED, MAILBOX_WHY_QUOTA, NULL);
        return;
    }
    struct mailbox_job *jobs = mailbox_call_jobs(c, n);
    if (!jobs) {
        mailbox_call_refuse(c, ERR_NO_MEMORY, MAILBOX_WHY_NONE, NULL);
        return;
    }
    hash_items(c);
    for (size_t i = 0; i < c->send.n; i++) {
        struct mailbox_send_item *it = &c->send.items[i];
        size_t k = 0;
        if (it->err != ERR_OK)
            continue;
        while (shards[k] != it->shard)
            k++;
        if (!jobs[k].lane) {
            jobs[k].kind = MAILBOX_JOB_SEND;
            jobs[k].lane = &c->mb->lanes[it->shard];
            jobs[k].send = it;
            jobs[k].fair.key = be64_get(it->topic_hash.b);
        } else {
            last[k]->next = it;
        }
        last[k] = it;
        size_t bytes = 168 + it->in.payload.n + it->in.attrs.n + it->in.idem_key.n;
        jobs[k].bytes += bytes;
        jobs[k].fair.cost += (uint32_t)bytes;
    }
    mailbox_call_submit(c, false);
}

/* ---- HTTP ---- */

static void put_sent(struct json_w *w, const struct mailbox_send_item *it)
{
    json_key(w, "msg_id");
    json_uuid(w, &it->sent.msg_id);
    json_put_u64(w, "topic_seq", it->sent.topic_seq);
    json_put_time_ms(w, "ts", (int64_t)it->sent.ts_ms);
    json_put_bool(w, "duplicate", it->sent.duplicate);
    if (it->has_chain)
        json_put_hash(w, "hash_chain", &it->sent.chain);
}

static void put_refused(struct json_w *w, struct mailbox *mb, const struct mailbox_send_item *it)
{
    json_put_i64(w, "status", err_http_status(it->err));
    json_put_cstr(w, "code", err_code(it->err));
    json_put_cstr(w, "detail", it->detail ? it->detail : mailbox_detail(it->err, it->why));
    json_put_bool(w, "retryable", err_retryable(it->err));
    if (it->why) {
        json_key(w, "details");
        json_obj_begin(w);
        json_put_cstr(w, "reason", mailbox_why_name(it->why));
        if (it->err == ERR_NOT_OWNER) {
            struct mailbox_owner o;
            mailbox_replica_owner(mb, it->shard, &o);
            json_put_cstr(w, "url", o.url);
        }
        json_obj_end(w);
    }
    if (it->err == ERR_IDEM_CONFLICT) {
        json_key(w, "details");
        json_obj_begin(w);
        json_key(w, "msg_id");
        json_uuid(w, &it->sent.msg_id);
        json_obj_end(w);
    }
    if (err_http_status(it->err) == 429 || err_http_status(it->err) == 503)
        json_put_u64(w, "retry_after", 1);
}

/* A job that was refused as a whole refuses its items. */
static void spread_errors(struct mailbox_call *c)
{
    for (size_t k = 0; k < c->jobs_n; k++)
        for (struct mailbox_send_item *it = c->jobs[k].send; c->jobs[k].err != ERR_OK && it;
             it = it->next) {
            it->err = c->jobs[k].err;
            it->why = c->jobs[k].why;
        }
}

static void finish_one(struct mailbox_call *c)
{
    struct mailbox_send_item *it = &c->send.items[0];
    uint8_t storage[512];
    struct buf b;
    struct json_w w;
    spread_errors(c);
    if (it->err == ERR_IDEM_CONFLICT) {
        char id[UUID_CHARS], json[64];
        uuid_format(&it->sent.msg_id, id);
        int n = snprintf(json, sizeof json, "{\"msg_id\":\"%s\"}", id);
        mailbox_call_refuse_details(c, it->err, "this key was used with another payload",
                                    bytes_of(json, (size_t)n));
        return;
    }
    if (it->err == ERR_SAFE_MODE) {
        mailbox_call_refuse_details(c, it->err, mailbox_detail(it->err, it->why),
                                    bytes_of("{\"outcome\":\"unknown\"}", 21));
        return;
    }
    if (it->err != ERR_OK) {
        mailbox_call_refuse(c, it->err, it->why, it->detail);
        return;
    }
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    put_sent(&w, it);
    json_obj_end(&w);
    mailbox_call_reply(c, 200, buf_bytes(&b));
}

static void finish_batch(struct mailbox_call *c)
{
    struct buf b;
    struct json_w w;
    spread_errors(c);
    buf_init(&b, 64 << 10);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "results");
    json_arr_begin(&w);
    for (size_t i = 0; i < c->send.n; i++) {
        struct mailbox_send_item *it = &c->send.items[i];
        json_obj_begin(&w);
        if (it->err == ERR_OK) {
            json_put_u64(&w, "status", 200);
            put_sent(&w, it);
        } else {
            mailbox_call_refused(c, it->err);
            put_refused(&w, c->mb, it);
        }
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    mailbox_call_reply(c, 200, buf_bytes(&b));
    buf_fini(&b);
}

static enum err to_message(const struct message_dto *d, struct str key, struct mailbox_message *m,
                           const char **out_detail)
{
    int64_t at = 0;
    if (!d->has_topic || !d->has_payload_b64 || key.n == 0) {
        *out_detail = !d->has_topic ? "topic: missing"
                      : key.n == 0  ? "idem_key: missing"
                                    : "payload_b64: missing";
        return ERR_BAD_REQUEST;
    }
    if (d->has_deliver_at && time_parse_ms(d->deliver_at, &at) != ERR_OK) {
        *out_detail = "deliver_at: pattern";
        return ERR_BAD_REQUEST;
    }
    _Static_assert(sizeof(struct json_pair) == sizeof(struct mailbox_attr), "a pair is an attribute");
    *m = (struct mailbox_message){.topic = d->topic,
                                  .idem_key = key,
                                  .payload = d->payload_b64,
                                  .attrs = d->attrs.items,
                                  .attrs_n = d->attrs.n,
                                  .payload_hash = d->payload_hash,
                                  .has_payload_hash = d->has_payload_hash,
                                  .delay_ms = d->delay_ms,
                                  .deliver_at_ms = at > 0 ? (uint64_t)at : 0, /* what is past is now */
                                  .has_delay = d->has_delay_ms,
                                  .has_deliver_at = d->has_deliver_at};
    return ERR_OK;
}

static void send_many(struct mailbox_call *c, const struct send_dto *d)
{
    c->send.n = d->messages.n;
    c->send.items = arena_zalloc(mailbox_call_arena(c), c->send.n * sizeof *c->send.items);
    if (!c->send.items) {
        mailbox_call_refuse(c, ERR_TOO_LARGE, MAILBOX_WHY_NONE, "the batch does not fit");
        return;
    }
    for (size_t i = 0; i < c->send.n; i++) {
        const struct message_dto *one = (const struct message_dto *)d->messages.items + i;
        struct mailbox_send_item *it = &c->send.items[i];
        struct mailbox_message m;
        const char *detail = NULL;
        enum err e = to_message(one, one->idem_key, &m, &detail);
        if (e == ERR_OK)
            e = mailbox_send_prepare(c, &m, it, &detail);
        it->err = e;
        it->detail = detail;
    }
    c->finish = finish_batch;
    mailbox_send_submit(c);
}

void mailbox_post_send(struct net_req *rq, void *ctx)
{
    struct mailbox_call *c = mailbox_call_http(ctx, rq, MAILBOX_OP_SEND, "send");
    struct json_error why;
    if (!c)
        return;
    struct send_dto d = {0};
    enum err e = json_read_dto(net_req_body(rq), send_fields, &d, net_req_arena(rq), &why);
    if (e != ERR_OK) {
        mailbox_call_refuse_json(c, e, &why);
        return;
    }
    struct str header = net_req_header(rq, "idempotency-key");
    if (d.has_messages) {
        if (d.one.has_topic || d.one.has_idem_key || d.one.has_payload_b64 || d.one.has_attrs ||
            d.one.has_payload_hash || d.one.has_delay_ms || d.one.has_deliver_at)
            mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                                "messages: unknown beside the members of a single message");
        else
            send_many(c, &d);
        return;
    }
    if (header.p &&
        (!mailbox_idem_valid(header) || (d.one.has_idem_key && !str_eq(header, d.one.idem_key)))) {
        mailbox_call_refuse(c, ERR_BAD_REQUEST, MAILBOX_WHY_NONE,
                            "Idempotency-Key and idem_key differ, or it is not valid");
        return;
    }
    struct mailbox_message m;
    struct mailbox_send_item *it = arena_zalloc(net_req_arena(rq), sizeof *it);
    const char *detail = "the request does not fit";
    e = it ? to_message(&d.one, d.one.has_idem_key ? d.one.idem_key : header, &m, &detail) : ERR_TOO_LARGE;
    if (e == ERR_OK)
        e = mailbox_send_prepare(c, &m, it, &detail);
    if (e != ERR_OK) {
        mailbox_call_refuse(c, e, MAILBOX_WHY_NONE, detail);
        return;
    }
    c->send.items = it;
    c->send.n = 1;
    c->finish = finish_one;
    mailbox_send_submit(c);
}
