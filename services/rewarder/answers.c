/* Bodies that several handlers and tasks answer with, and the lines of registry.log. */
#include <stdio.h>

#include "base/json_write.h"
#include "base/money.h"
#include "services/rewarder/rewarder.h"

enum { BODY_MAX = 4 << 20 };

void rewarder_count_quarantine(struct rewarder *r, const struct rewarder_run *run)
{
    REWARDER_COUNT(r, runs, "quarantined");
    rewarder_quarantines_add(&r->quarantines, run->epoch);
}

int64_t rewarder_now_ms(const struct rewarder *r)
{
    return clock_wall_ms(svc_clock(r->svc));
}

static void put_amount(struct json_w *w, const char *name, wide_u128 v)
{
    json_put_money(w, name, (struct money){v});
}

static void put_settlement(struct json_w *w, const struct rewarder_run_info *i, struct str refused)
{
    json_key(w, "settlement");
    json_obj_begin(w);
    json_put_u64(w, "chunks", rewarder_chunk_count(i->leaves));
    json_put_u64(w, "done", i->chunks_done);
    json_put_raw(w, "refused", refused.n ? refused : STR("[]"));
    if (i->seq_first) {
        json_put_u64(w, "seq_first", i->seq_first);
        json_put_u64(w, "seq_last", i->seq_last);
    }
    if (i->settled_at_ms)
        json_put_time_ms(w, "settled_at", i->settled_at_ms);
    json_obj_end(w);
}

static void put_state_members(struct json_w *w, const struct rewarder_run *run,
                              const struct rewarder_run_info *i)
{
    if (i->state == REWARDER_HELD) {
        json_key(w, "held");
        json_obj_begin(w);
        json_put_cstr(w, "cause", i->cause);
        json_put_time_ms(w, "since", i->since_ms);
        json_obj_end(w);
    } else if (i->state == REWARDER_QUARANTINED) {
        json_key(w, "quarantine");
        json_obj_begin(w);
        json_put_cstr(w, "kind", i->cause);
        json_put_time_ms(w, "since", i->since_ms);
        json_put_cstr(w, "reason", i->reason);
        json_obj_end(w);
    } else if (i->state == REWARDER_FAILED) {
        json_key(w, "failure");
        json_obj_begin(w);
        json_put_cstr(w, "code", err_code(i->failure));
        json_put_cstr(w, "detail", i->reason);
        if (i->details[0])
            json_put_raw(w, "details", str_from_c(i->details));
        json_obj_end(w);
    } else if (i->state == REWARDER_COMPUTING) {
        unsigned phase = atomic_load_explicit(&run->phase, memory_order_relaxed);
        json_key(w, "progress");
        json_obj_begin(w);
        json_put_cstr(w, "phase",
                      phase < REWARDER_PHASES ? rewarder_phase_name((enum rewarder_phase)phase) : "write");
        json_put_u64(w, "done", atomic_load_explicit(&run->done, memory_order_relaxed));
        json_put_u64(w, "of", atomic_load_explicit(&run->of, memory_order_relaxed));
        json_obj_end(w);
    }
}

static void put_manifest(struct json_w *w, const struct rewarder_view *v)
{
    json_put_raw(w, "manifest", str_of_bytes(v->manifest_file.bytes));
    json_put_hash(w, "manifest_digest", &v->manifest_digest);
    json_key(w, "signatures");
    json_arr_begin(w);
    json_obj_begin(w);
    json_put_cstr(w, "kid", v->kid);
    json_put_cstr(w, "alg", "ed25519");
    json_put_base64(w, "sig", bytes_of(v->signature, sizeof v->signature));
    json_obj_end(w);
    json_arr_end(w);
}

void rewarder_write_run(struct rewarder *r, struct rewarder_run *run, struct buf *b)
{
    struct rewarder_run_info i = rewarder_run_read(&r->registry, run);
    struct rewarder_view *v =
        rewarder_state_has_files(i.state) ? rewarder_run_view(&r->registry, run) : NULL;
    char refused[REWARDER_REFUSED_CHARS];
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_put_cstr(&w, "tenant", run->tenant);
    json_put_cstr(&w, "epoch", run->epoch);
    json_put_cstr(&w, "state", rewarder_state_name(i.state));
    if (i.has_key)
        json_put_hash(&w, "run_key", &i.run_key);
    json_put_bool(&w, "dry_run", run->dry);
    json_put_hash(&w, "inputs_cid", &i.inputs_cid);
    json_put_cstr(&w, "policy_id", i.policy_id);
    if (i.sealed_at_ms)
        json_put_time_ms(&w, "sealed_at", i.sealed_at_ms);
    if (v)
        put_manifest(&w, v);
    put_state_members(&w, run, &i);
    if (i.sealed_at_ms && !run->dry)
        put_settlement(&w, &i, rewarder_run_refused(&r->registry, run, refused));
    if (i.swept)
        json_put_bool(&w, "swept", true);
    json_obj_end(&w);
    rewarder_view_unref(v);
}

void rewarder_reply_run(struct rewarder *r, struct net_req *rq, int status, struct rewarder_run *run)
{
    struct buf b;
    char location[160];
    snprintf(location, sizeof location, "/rewarder/epochs/%s%s", run->epoch,
             run->dry ? "?dry_run=true" : "");
    struct net_header list[] = {{STR("Location"), str_from_c(location)}, {STR("Retry-After"), STR("1")}};
    buf_init(&b, BODY_MAX);
    rewarder_write_run(r, run, &b);
    if (b.err == ERR_OK)
        net_reply(rq, status, &(struct net_headers){.list = list, .count = status == 202 ? 2 : 0},
                  buf_bytes(&b));
    else
        net_reply_problem(rq, ERR_INTERNAL, "the answer is too large");
    buf_fini(&b);
}

void rewarder_reply_conflict(struct rewarder *r, struct net_req *rq, struct rewarder_run *holder)
{
    struct rewarder_run_info i = rewarder_run_read(&r->registry, holder);
    char storage[1024];
    struct buf b;
    struct json_w w;
    buf_init_fixed(&b, storage, sizeof storage);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    if (i.state == REWARDER_QUARANTINED) {
        json_put_cstr(&w, "kind", i.cause);
        json_put_time_ms(&w, "since", i.since_ms);
        json_obj_end(&w);
        net_reply_problem_details(rq, ERR_QUARANTINED, "the epoch is quarantined", buf_bytes(&b));
        return;
    }
    if (i.has_key) {
        json_put_hash(&w, "run_key", &i.run_key);
        json_put_hash(&w, "inputs_digest", &i.digest);
    }
    json_put_hash(&w, "policy_hash", &i.policy_hash);
    json_put_cstr(&w, "state", rewarder_state_name(i.state));
    json_obj_end(&w);
    net_reply_problem_details(rq, ERR_EPOCH_CONFLICT,
                              "the epoch belongs to a run with other inputs or another policy",
                              buf_bytes(&b));
}

void rewarder_reply_not_sealed(struct net_req *rq, enum rewarder_state state)
{
    char details[64];
    int n = snprintf(details, sizeof details, "{\"state\":\"%s\"}", rewarder_state_name(state));
    net_reply_problem_details(rq, ERR_NOT_SEALED, "the run has no result yet",
                              bytes_of(details, (size_t)n));
}

struct failure {
    enum err why;
    const char *detail, *details;
    int64_t now_ms;
};

static void set_failure(struct rewarder_run_info *i, void *arg)
{
    const struct failure *f = arg;
    i->failure = f->why;
    i->since_ms = f->now_ms;
    snprintf(i->reason, sizeof i->reason, "%s", f->detail ? f->detail : err_title(f->why));
    snprintf(i->details, sizeof i->details, "%s", f->details ? f->details : "");
}

void rewarder_run_fail(struct rewarder *r, struct rewarder_run *run, enum err why, const char *detail,
                       const char *details)
{
    struct failure f = {why, detail, details, rewarder_now_ms(r)};
    if (rewarder_run_move(&r->registry, run, REWARDER_EV_FAIL, set_failure, &f) != ERR_OK)
        return; /* sealed or quarantined meanwhile */
    REWARDER_COUNT(r, runs, "failed");
    if (why == ERR_CANCELED && svc_draining(r->svc))
        atomic_fetch_add_explicit(&r->drain.canceled, 1, memory_order_relaxed);
    rewarder_log_run(r, OBS_WARN, "run.failed", run, err_code(why));
}

void rewarder_write_input(const struct rewarder_input *in, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_put_hash(&w, "cid", &in->cid);
    json_put_hash(&w, "digest", &in->digest);
    json_put_u64(&w, "bytes", in->bytes);
    json_put_u64(&w, "rows", in->rows);
    json_put_raw(&w, "dims", str_from_c(in->dims));
    json_put_cstr(&w, "tenant", in->tenant);
    json_put_cstr(&w, "epoch", in->epoch);
    json_obj_end(&w);
}

void rewarder_write_seal(const char *corr_id, const struct rewarder_run_info *i, const char *kid,
                         struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_put_cstr(&w, "corr_id", corr_id);
    json_put_hash(&w, "inputs_cid", &i->inputs_cid);
    json_put_cstr(&w, "kid", kid);
    json_put_time_ms(&w, "sealed_at", i->sealed_at_ms);
    json_put_u64(&w, "version", 1);
    json_obj_end(&w);
}

void rewarder_tell_run(struct rewarder *r, const char *event, const struct rewarder_run *run,
                       const char *detail)
{
    if (!svc_feed_is_heard(r->events))
        return;
    struct rewarder_run_info i = rewarder_run_read(&r->registry, run);
    struct buf b;
    struct json_w w;
    buf_init(&b, 1024);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "tenant", run->tenant);
    json_put_cstr(&w, "epoch", run->epoch);
    if (i.has_key)
        json_put_hash(&w, "run_key", &i.run_key);
    json_put_cstr(&w, "state", rewarder_state_name(i.state));
    json_put_cstr(&w, "detail", detail ? detail : "");
    json_obj_end(&w);
    if (b.err == ERR_OK)
        svc_feed_tell(r->events, event, "%.*s", (int)b.n, (const char *)b.p);
    buf_fini(&b);
}

void rewarder_log_run(struct rewarder *r, enum obs_level level, const char *event,
                      const struct rewarder_run *run, const char *detail)
{
    struct rewarder_run_info i = rewarder_run_read(&r->registry, run);
    char key[SHA256_TEXT_CHARS];
    sha256_format(&i.run_key, key);
    obs_log(r->log, level, event, OBS_STR("tenant", (const char *)run->tenant),
            OBS_STR("epoch", (const char *)run->epoch), OBS_STR("run", str_of(key + 7, i.has_key ? 16 : 0)),
            OBS_STR("detail", detail ? detail : ""), OBS_U64("leaves", i.leaves),
            OBS_U64("units", i.chunks_done),
            OBS_I64("ms", run->began_ns ? (os_now_ns() - run->began_ns) / 1000000 : 0),
            OBS_CORR((const char *)run->corr_id), OBS_END);
    if (level > OBS_DEBUG)
        rewarder_tell_run(r, event, run, detail);
}

/* ---- registry.log ---- */

static void note_head(struct json_w *w, const struct rewarder_run *run, uint64_t n, const char *op)
{
    json_obj_begin(w);
    json_put_u64(w, "n", n);
    json_put_cstr(w, "t", run->tenant);
    json_put_cstr(w, "e", run->epoch);
    json_put_cstr(w, "op", op);
}

void rewarder_note_sealed(const struct rewarder_run *run, const struct rewarder_run_info *i, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    note_head(&w, run, i->n, "sealed");
    json_put_hash(&w, "run_key", &i->run_key);
    json_put_hash(&w, "cid", &i->inputs_cid);
    json_put_hash(&w, "digest", &i->digest);
    json_put_hash(&w, "manifest", &i->manifest_digest);
    json_put_hash(&w, "root", &i->root);
    json_put_hash(&w, "policy_hash", &i->policy_hash);
    json_put_cstr(&w, "policy_id", i->policy_id);
    json_put_cstr(&w, "funding", i->funding);
    json_put_cstr(&w, "asset", i->asset);
    put_amount(&w, "declared", i->pool.declared);
    json_put_bool(&w, "from_balance", i->pool.from_balance);
    json_put_u64(&w, "ledger_seq", i->pool.ledger_seq);
    put_amount(&w, "pool", i->amount);
    put_amount(&w, "payouts", i->payouts);
    put_amount(&w, "dust", i->dust);
    json_put_u64(&w, "paid", i->paid);
    json_put_u64(&w, "leaves", i->leaves);
    json_put_i64(&w, "sealed_at", i->sealed_at_ms);
    json_obj_end(&w);
}

void rewarder_note_quarantined(const struct rewarder_run *run, const struct rewarder_quarantine *q,
                               struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    note_head(&w, run, q->n, "quarantined");
    json_put_cstr(&w, "kind", q->kind);
    json_put_cstr(&w, "reason", q->reason);
    if (q->refused)
        json_put_raw(&w, "refused", str_from_c(q->refused));
    if (q->placed)
        json_put_money(&w, "placed", (struct money){q->placed});
    json_put_i64(&w, "at", q->now_ms);
    json_obj_end(&w);
}

void rewarder_note_simple(const struct rewarder_run *run, uint64_t n, const char *op, const char *reason,
                          struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    note_head(&w, run, n, op);
    json_put_cstr(&w, "reason", reason);
    json_obj_end(&w);
}

void rewarder_note_swept(const struct rewarder_run *run, uint64_t n, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    note_head(&w, run, n, "swept");
    json_obj_end(&w);
}

void rewarder_note_settled(const struct rewarder_run *run, const struct rewarder_run_info *i, struct buf *b)
{
    struct json_w w;
    json_w_init(&w, b);
    note_head(&w, run, i->n, "settled");
    json_put_i64(&w, "settled_at", i->settled_at_ms);
    json_put_u64(&w, "seq_first", i->seq_first);
    json_put_u64(&w, "seq_last", i->seq_last);
    json_obj_end(&w);
}
