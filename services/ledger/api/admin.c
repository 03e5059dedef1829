/* The administrator's own routes. Each call is logged with its key id; the frame already keeps them on loopback. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_read.h"
#include "base/time_fmt.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/routes.h"
#include "services/ledger/files.h"
#include "services/ledger/providers.h"
#include "services/ledger/snapshot.h"
#include "store/file_replace.h"

static void admin_send(struct ledger_service *s, struct net_req *rq, const struct ledger_http_read *r,
                       void (*run)(struct ledger_service *s, struct ledger_read *r))
{
    struct ledger_http_read *copy = arena_alloc(net_req_arena(rq), sizeof *copy);
    if (copy != NULL) {
        *copy = *r;
        copy->rq = rq;
        copy->read = (struct ledger_read){run, rq};
    }
    if (copy == NULL || rt_chan_try_send(s->l->admin, &copy->read) != ERR_OK) {
        obs_counter_inc(OBS_COUNTER_OF(s->l->m[LEDGER_M_busy_rejections], "admin"));
        net_reply_problem(rq, ERR_BUSY, "admin queue is full");
    }
}

/* ---- recovery ---- */

static const char *state_name(const struct ledger *l)
{
    if (ledger_safe_cause(l) != CAUSE_NONE)
        return "safe_mode";
    switch (atomic_load(&l->phase)) {
    case PHASE_REPLAYING:
        return "replaying";
    case PHASE_FOLLOWING:
        return "following";
    case PHASE_RUNNING:
        return "running";
    case PHASE_DRAINING:
        return "draining";
    default:
        return "stopped";
    }
}

static void run_recovery(struct ledger_service *s, struct ledger_read *r)
{
    struct ledger_http_read *h = (struct ledger_http_read *)r;
    struct ledger *l = s->l;
    struct ledger_head head;
    struct buf b;
    struct json_w w;
    struct sha256 digest;
    buf_init(&b, 1 << 20);
    json_w_init(&w, &b);
    ledger_head_read(l, &head);
    json_obj_begin(&w);
    json_put_cstr(&w, "state", state_name(l));
    json_put_cstr(&w, "cause", ledger_cause_name(ledger_safe_cause(l)));
    json_put_u64(&w, "head_seq", head.seq);
    json_put_hash(&w, "root", &head.root);
    json_put_u64(&w, "group_no", head.group_no);
    json_put_u64(&w, "checkpoint_seq", atomic_load(&l->checkpoint_seq));
    if (h->a == 1) {
        ledger_state_digest(l->state, &digest);
        json_put_hash(&w, "state_digest", &digest);
    }
    json_put_u64(&w, "torn_bytes", l->torn_bytes);
    json_key(&w, "last_error");
    json_obj_begin(&w);
    if (l->bad_file[0] != 0) {
        json_put_cstr(&w, "file", l->bad_file);
        json_put_u64(&w, "offset", l->bad_offset);
        json_put_cstr(&w, "reason", l->bad_reason);
    }
    json_obj_end(&w);
    json_obj_end(&w);
    net_reply_json(h->rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

void ledger_admin_recovery(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (ledger_http_number(rq, "digest", 0, 0, 1, &h.a) && svc_allow_admin(s->svc, rq))
        admin_send(s, rq, &h, run_recovery);
}

/* ---- safe mode ---- */

struct safe_mode_in {
    int action;
    struct str reason;
};
static const char *const actions[] = {"enter", "ack", NULL};
static const struct json_field safe_mode_fields[] = {
    JSON_REQ(struct safe_mode_in, action, JSON_KIND_ENUM, .names = actions),
    JSON_DEF(struct safe_mode_in, reason, JSON_KIND_STR, .max = 200),
    JSON_END,
};

/* After damage that scrub found: is everything readable again? */
static bool whole_again(struct ledger *l) RT_BLOCKS
{
    size_t n = 0;
    struct store_segment *v = ledger_segments(l, &n);
    struct store_journal_report rep;
    bool whole = v != NULL && !atomic_load(&l->derived_damaged);
    for (size_t i = 0; whole && i < n; i++)
        whole = store_journal_scan(l->sink->journal, v[i].segment_no, NULL, NULL, &rep) == ERR_OK;
    free(v);
    return whole;
}

static void run_safe_mode(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = (struct ledger_http_read *)r;
    struct ledger *l = s->l;
    enum ledger_cause cause = ledger_safe_cause(l);
    char reason[256];
    snprintf(reason, sizeof reason, "%.*s", STR_ARG(h->text));
    if (h->a == 0) {
        enum err kept = ledger_safe_file_write(l, reason);
        if (kept != ERR_OK)
            obs_log(svc_log(s->svc), OBS_WARN, "safe_mode_file", OBS_ERR(kept), OBS_END);
        ledger_enter_safe_mode(l, CAUSE_OPERATOR, reason);
        struct str said = kept == ERR_OK ? STR("{\"state\":\"safe_mode\"}")
                                         : STR("{\"durable\":false,\"state\":\"safe_mode\"}");
        net_reply_json(h->rq, 200, bytes_of_str(said));
        return;
    }
    if (cause == CAUSE_NONE) {
        net_reply_json(h->rq, 200, bytes_of("{\"state\":\"running\"}", 19));
        return;
    }
    if ((cause != CAUSE_OPERATOR && cause != CAUSE_SCRUB) || !whole_again(l)) {
        net_reply_problem(h->rq, ERR_RESTART_REQUIRED,
                          "cause %s ends with a restart that re-reads the journal",
                          ledger_cause_name(cause));
        return;
    }
    if (ledger_safe_file_write(l, NULL) != ERR_OK) {
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "SAFE_MODE cannot be removed");
        return;
    }
    atomic_store(&l->cause, CAUSE_NONE);
    obs_log(svc_log(s->svc), OBS_INFO, "safe_mode_exit", OBS_STR("cause", ledger_cause_name(cause)),
            OBS_END);
    net_reply_json(h->rq, 200, bytes_of("{\"state\":\"running\"}", 19));
}

void ledger_admin_safe_mode(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct safe_mode_in in = {0};
    struct json_error why;
    if (!svc_allow_admin(s->svc, rq))
        return;
    if (json_read_dto(net_req_body(rq), safe_mode_fields, &in, net_req_arena(rq), &why) != ERR_OK) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "%s: %s", json_error_place(&why),
                          json_reason_name(why.reason));
        return;
    }
    struct ledger_http_read h = {.a = (uint64_t)in.action, .text = in.reason};
    admin_send(s, rq, &h, run_safe_mode);
}

/* ---- checkpoint, journal, snapshot ---- */

void ledger_admin_checkpoint(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    if (!svc_allow_admin(s->svc, rq))
        return;
    atomic_store(&s->l->want_gen, true);
    net_reply_json(rq, 202, bytes_of("{\"status\":\"asked\"}", 18));
}

static void run_journal(struct ledger_service *s, struct ledger_read *r)
{
    struct ledger_http_read *h = (struct ledger_http_read *)r;
    size_t n = 0;
    struct store_segment *v = ledger_segments(s->l, &n);
    struct buf b;
    struct json_w w;
    if (v == NULL) {
        net_reply_problem(h->rq, ERR_BUSY, "no memory");
        return;
    }
    buf_init(&b, 16 << 20);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "segments");
    json_arr_begin(&w);
    for (size_t i = 0; i < n; i++) {
        json_obj_begin(&w);
        json_put_u64(&w, "segment", v[i].segment_no);
        json_put_u64(&w, "first_seq", v[i].first_seq);
        json_put_u64(&w, "first_group", v[i].first_group);
        json_put_u64(&w, "bytes_used", v[i].bytes_used);
        json_put_bool(&w, "sealed", v[i].sealed);
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_obj_end(&w);
    net_reply_json(h->rq, 200, buf_bytes(&b));
    buf_fini(&b);
    free(v);
}

void ledger_admin_journal(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (svc_allow_admin(s->svc, rq))
        admin_send(s, rq, &h, run_journal);
}

static void run_snapshot(struct ledger_service *s, struct ledger_read *r) RT_BLOCKS
{
    struct ledger_http_read *h = (struct ledger_http_read *)r;
    struct ledger_head head;
    char id[64], dir[STORE_PATH_MAX], name[96], full[STORE_PATH_MAX];
    ledger_head_read(s->l, &head);
    snprintf(id, sizeof id, "%020llu-%lld", (unsigned long long)head.seq,
             (long long)svc_clock(s->svc)->wall_ms(svc_clock(s->svc)->ctx));
    snprintf(name, sizeof name, "snapshots/%s", id);
    store_path_join(dir, s->l->set.dir, name);
    enum err err = ledger_snapshot(s->l, dir, &head, h->a == 1);
    if (err != ERR_OK) {
        net_reply_problem(h->rq, ERR_UNAVAILABLE, "snapshot failed: %s", err_name(err));
        return;
    }
    struct buf b;
    struct json_w w;
    buf_init(&b, 4096);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "id", id);
    store_path_absolute(full, dir);
    json_put_cstr(&w, "path", full);
    json_put_u64(&w, "seq", head.seq);
    json_put_hash(&w, "root", &head.root);
    json_obj_end(&w);
    net_reply_json(h->rq, 201, buf_bytes(&b));
    buf_fini(&b);
}

void ledger_admin_snapshot(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct ledger_http_read h = {0};
    if (!ledger_http_number(rq, "derived", 0, 0, 1, &h.a) || !svc_allow_admin(s->svc, rq))
        return;
    if (s->l->set.amnesia)
        net_reply_problem(rq, ERR_CONFLICT, "nothing is kept with --amnesia");
    else
        admin_send(s, rq, &h, run_snapshot);
}

/* ---- providers ---- */

void ledger_admin_providers(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct buf b;
    struct json_w w;
    if (!svc_allow_admin(s->svc, rq))
        return;
    buf_init(&b, 65536);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_key(&w, "providers");
    ledger_providers_report(s->l->providers, &w);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

struct drill_in {
    int mode;
};
static const char *const drills[] = {"off", "timeout", "5xx", "deny", NULL};
static const struct json_field drill_fields[] = {
    JSON_REQ(struct drill_in, mode, JSON_KIND_ENUM, .names = drills),
    JSON_END,
};

void ledger_admin_provider_fail(struct net_req *rq, void *ctx)
{
    struct ledger_service *s = ctx;
    struct drill_in in;
    struct json_error bad;
    enum ledger_provider which = ledger_provider_from(net_req_param(rq, "name"));
    if (!svc_allow_admin(s->svc, rq))
        return;
    if (!((const struct ledger_config *)svc_config(s->svc))->drills_enabled || which == PROVIDER_NONE) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such provider, or drills are off");
        return;
    }
    if (json_read_dto(net_req_body(rq), drill_fields, &in, net_req_arena(rq), &bad) != ERR_OK) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "mode is one of off, timeout, 5xx, deny");
        return;
    }
    ledger_provider_drill(s->l->providers, which, (enum ledger_drill)in.mode);
    net_reply(rq, 204, NULL, bytes_of(NULL, 0));
}
