/*
 * POST /v1/ingest. The loop thread checks the token and hands the body on; a prevalidator decodes it; the answer is written
 * back on the loop's thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"

/* ---- decoding ---- */

struct in_entry {
    struct str id, account, to, asset, ref_id;
    uint64_t ts, nonce, hold_until;
    int kind;
    struct money amount;
};

struct in_unit {
    struct str idem_id, meta;
    uint64_t not_after;
    struct json_list entries;
};

struct in_request {
    struct json_list units;
};

static bool meta_ok(struct str s)
{
    uint8_t bytes[CORE_META_MAX];
    size_t n;
    return base64_decode(s, bytes, sizeof bytes, &n) == ERR_OK;
}

static const char *const kind_names[] = {"mint",    "burn",    "transfer", "hold",
                                         "capture", "release", "reverse",  NULL};

static const struct json_field entry_fields[] = {
    JSON_REQ(struct in_entry, id, JSON_KIND_STR, .min = 1, .max = CORE_ID_MAX, .check = ledger_id_ok),
    JSON_REQ(struct in_entry, ts, JSON_KIND_U64, .max = CORE_TS_MAX),
    JSON_REQ(struct in_entry, kind, JSON_KIND_ENUM, .names = kind_names),
    JSON_REQ(struct in_entry, account, JSON_KIND_STR, .min = 1, .max = CORE_ACCOUNT_MAX,
             .check = ledger_account_ok),
    JSON_DEF(struct in_entry, to, JSON_KIND_STR, .min = 1, .max = CORE_ACCOUNT_MAX,
             .check = ledger_account_ok),
    JSON_REQ(struct in_entry, asset, JSON_KIND_STR, .min = 1, .max = CORE_ASSET_MAX,
             .check = ledger_asset_ok),
    JSON_REQ(struct in_entry, amount, JSON_KIND_MONEY, .min = 1),
    JSON_DEF(struct in_entry, nonce, JSON_KIND_U64_TEXT, .min = 1),
    JSON_DEF(struct in_entry, ref_id, JSON_KIND_STR, .min = 1, .max = CORE_ID_MAX, .check = ledger_id_ok),
    JSON_DEF(struct in_entry, hold_until, JSON_KIND_U64, .min = 1, .max = CORE_TS_MAX),
    JSON_END,
};

static const struct json_field unit_fields[] = {
    JSON_DEF(struct in_unit, idem_id, JSON_KIND_STR, .min = 1, .max = CORE_ID_MAX, .check = ledger_id_ok),
    JSON_DEF(struct in_unit, meta, JSON_KIND_STR, .min = 1, .max = CORE_META_TEXT_MAX, .check = meta_ok),
    JSON_DEF(struct in_unit, not_after, JSON_KIND_U64, .min = 1),
    JSON_REQ(struct in_unit, entries, JSON_KIND_OBJ_LIST, .fields = entry_fields,
             .item_bytes = sizeof(struct in_entry), .min = 1),
    JSON_END,
};

static const struct json_field request_fields[] = {
    JSON_REQ(struct in_request, units, JSON_KIND_OBJ_LIST, .fields = unit_fields,
             .item_bytes = sizeof(struct in_unit), .min = 1),
    JSON_END,
};

/* "units[3].entries[0].amount" → {"unit":3,"entry":0,"member":"amount","reason":"pattern"} */
static void fault_json(struct ledger_job *job, const struct json_error *e)
{
    unsigned unit = 0, entry = 0;
    const char *dot = strrchr(e->path, '.');
    const char *member = dot == NULL ? e->path : dot + 1;
    int n = 0;
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, job->fault_path, sizeof job->fault_path - 1);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    if (sscanf(e->path, "units[%u]%n", &unit, &n) == 1) {
        json_put_u64(&w, "unit", unit);
        if (sscanf(e->path + n, ".entries[%u]", &entry) == 1)
            json_put_u64(&w, "entry", entry);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(member, "["), member);
    json_put_cstr(&w, "member", name);
    json_put_cstr(&w, "reason", json_reason_name(e->reason));
    json_obj_end(&w);
    job->fault_path[b.err == ERR_OK ? b.n : 0] = 0;
}

enum err ledger_ingest_decode_json(struct ledger_job *job)
{
    struct in_request in = {0};
    struct json_error why = {0};
    enum err err = json_read_dto(job->body, request_fields, &in, &job->arena, &why);
    if (err != ERR_OK) {
        fault_json(job, &why);
        return err;
    }
    const struct in_unit *units = in.units.items;
    size_t total = 0;
    for (size_t i = 0; i < in.units.n; i++)
        total += units[i].entries.n;
    if (in.units.n > CORE_UNIT_ENTRIES_MAX || total > job->ledger->set.max_entries)
        return ERR_TOO_LARGE;
    if (job->want_proof && total > 64) {
        job->why_key = "member";
        job->why = "proof";
        return ERR_BAD_REQUEST;
    }
    struct core_entry *entries = arena_array(&job->arena, total, sizeof *entries);
    job->units = arena_array(&job->arena, in.units.n, sizeof *job->units);
    if (entries == NULL || job->units == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < in.units.n; i++) {
        const struct in_entry *from = units[i].entries.items;
        job->units[i].u = (struct core_unit){units[i].idem_id, units[i].meta, units[i].not_after, entries,
                                             (uint32_t)units[i].entries.n};
        for (size_t k = 0; k < units[i].entries.n; k++, entries++)
            *entries =
                (struct core_entry){from[k].id,        from[k].ts,    (enum core_kind)(from[k].kind + 1),
                                    from[k].account,   from[k].to,    from[k].asset,
                                    from[k].amount,    from[k].nonce, from[k].ref_id,
                                    from[k].hold_until};
    }
    job->n_units = (uint32_t)in.units.n;
    job->n_entries = (uint32_t)total;
    return ERR_OK;
}

/* ---- answering ---- */

enum { REPLY_MAX = 8 << 20 };

static void reply_refused(struct ledger_job *job, struct net_req *rq, struct buf *b)
{
    struct net_problem p = {.err = job->err, .details_json = ledger_json_job_details(job, b)};
    if (job->err == ERR_TOO_LARGE)
        p.detail = STR("more entries than one request may hold");
    else if (job->err == ERR_BUSY)
        p.detail = STR("a queue is full");
    else if (job->err == ERR_OUTCOME_UNKNOWN)
        p.detail = STR("sequenced, durability not known: send the units again or ask /v1/units");
    net_reply_problem_full(rq, &p);
}

static void reply_judged(struct ledger_job *job, struct net_req *rq, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_key(&w, "results");
    json_arr_begin(&w);
    bool all = true;
    for (uint32_t i = 0; i < job->n_units; i++) {
        all = all && job->units[i].verdict != VERDICT_REJECTED;
        ledger_json_result(&w, job, &job->units[i]);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    enum err reason;
    if (b->err != ERR_OK) {
        net_reply_problem(rq, ERR_OUTCOME_UNKNOWN, "the answer is too large; ask /v1/units");
    } else if (ledger_job_refused_alike(job, &reason)) {
        struct net_problem p = {
            .err = reason, .detail = STR("every unit was refused"), .details_json = buf_bytes(b)};
        net_reply_problem_full(rq, &p);
    } else {
        net_reply_json(rq, all ? 200 : 207, buf_bytes(b));
    }
}

static void reply(struct net_msg *m)
{
    struct ledger_job *job = (struct ledger_job *)((char *)m - offsetof(struct ledger_job, msg));
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    struct net_req *rq = job->door;
    struct buf b;
    buf_init(&b, REPLY_MAX);
    if (job->err != ERR_OK)
        reply_refused(job, rq, &b);
    else
        reply_judged(job, rq, &b);
    buf_fini(&b);
    ledger_job_free(job);
}

static void answer(struct ledger_job *job)
{
    job->msg.fn = reply;
    net_loop_post(net_req_loop(job->door), &job->msg);
}

static const struct ledger_job_ops ops = {ledger_ingest_decode_json, answer};

/* ---- the handler ---- */

static bool flag(struct net_req *rq, const char *name, bool *out)
{
    uint64_t v;
    if (!ledger_http_number(rq, name, 0, 0, 1, &v))
        return false;
    *out = v == 1;
    return true;
}

void ledger_post_ingest(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger *l = s->l;
    bool balances, proof;
    if (net_req_header(rq, "idempotency-key").p != NULL) {
        net_reply_problem(rq, ERR_BAD_REQUEST,
                          "Idempotency-Key is not for this service: units carry idem_id");
        return;
    }
    if (!flag(rq, "balances", &balances) || !flag(rq, "proof", &proof))
        return;
    struct str token;
    if (auth_bearer(net_req_header(rq, "authorization"), &token) != ERR_OK) {
        ledger_refused(l, ERR_UNAUTHENTICATED);
        svc_reply_unauthenticated(rq, NULL);
        return;
    }
    struct ledger_job *job = ledger_job_take(&l->jobs, l);
    if (job == NULL) {
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "inflight"));
        ledger_refused(l, ERR_BUSY);
        net_reply_problem_details(rq, ERR_BUSY, "too many requests in flight",
                                  bytes_of("{\"queue\":\"inflight\"}", 20));
        return;
    }
    enum err err = ledger_job_identify(s, job, token);
    if (err != ERR_OK) {
        ledger_refused(l, err);
        if (err == ERR_RATE_LIMITED)
            net_reply_problem(rq, err, "the capability's rate is used up");
        else
            svc_reply_unauthenticated(rq, job->why);
        ledger_job_free(job);
        return;
    }
    job->ops = &ops;
    job->door = rq;
    job->body = net_req_body(rq);
    job->want_balances = balances;
    job->want_proof = proof;
    const struct net_peer *peer = net_req_peer(rq);
    job->has_ip = peer->kind != NET_PEER_UNIX;
    memcpy(job->peer_ip, peer->addr, 16);
    struct str corr = net_req_corr_id(rq);
    snprintf(job->corr_id, sizeof job->corr_id, "%.*s", STR_ARG(corr));
    if (obs_traceparent_parse(net_req_header(rq, "traceparent"), &job->trace) != ERR_OK)
        job->trace = (struct obs_trace){0}; /* a trace of its own */
    job->by = deadline_min(deadline_in_ms(l->set.request_ms), net_req_deadline(rq));
    net_req_answer_by(rq, ledger_answer_by(l, job->by), ERR_OUTCOME_UNKNOWN);
    err = ledger_door_submit(s, net_req_loop(rq), job);
    if (err != ERR_OK) {
        struct buf b;
        buf_init(&b, 4096);
        job->err = err;
        reply_refused(job, rq, &b);
        buf_fini(&b);
        ledger_job_free(job);
    }
}
