#include <string.h>

#include "auth/mint.h"
#include "base/check.h"
#include "base/hex.h"
#include "services/ledger/api/api.h"
#include "services/ledger/providers.h"

#include <stdio.h>

#include "base/str.h"
#include "services/ledger/replica.h"

void ledger_http_read_send(struct ledger_service *s, struct net_req *rq, const struct ledger_http_read *r,
                           void (*run)(struct ledger_service *s, struct ledger_read *r))
{
    struct ledger_http_read *copy = arena_alloc(net_req_arena(rq), sizeof *copy);
    if (copy == NULL) {
        auth_cap_release(r->cap);
        net_reply_problem(rq, ERR_BUSY, "no memory for this request");
        return;
    }
    *copy = *r;
    copy->rq = rq;
    copy->read = (struct ledger_read){run, rq};
    enum err err = ledger_read_submit(s, &copy->read);
    if (err == ERR_OK)
        return;
    auth_cap_release(copy->cap);
    net_reply_problem(rq, err == ERR_CLOSED ? ERR_DRAINING : ERR_BUSY, "read queue is full");
}

void ledger_http_mark_position(struct ledger_service *s, struct net_req *rq)
{
    struct ledger *l = s->l;
    char line[128];
    if (l->replica == NULL)
        return;
    int n = snprintf(line, sizeof line, "Ledger-Position: seq=%llu, role=%s, lag_ms=%lld\r\n",
                     (unsigned long long)ledger_head_seq(l), ledger_role_name(ledger_replica_role(l)),
                     (long long)ledger_replica_lag_ms(l));
    net_req_answer_with(rq, str_of(line, (size_t)n));
}

bool ledger_http_access(struct ledger_service *s, struct net_req *rq, enum ledger_access access,
                        struct auth_cap **out_cap)
{
    *out_cap = NULL;
    ledger_http_mark_position(s, rq);
    if (access == ACCESS_OPEN_ROOTS && s->l->set.public_roots)
        return true;
    struct auth_want want = {.op = STR("read"), .lacks = SVC_LACKS_ALL};
    struct auth_cap *cap;
    if (svc_authorize(s->svc, rq, &want, &cap) != ERR_OK)
        return false;
    if (access == ACCESS_READ_ALL && auth_cap_has(cap, AUTH_CV_ACCOUNT)) {
        auth_cap_release(cap);
        net_reply_problem(rq, ERR_FORBIDDEN, "this shows every account; the capability is for some");
        return false;
    }
    *out_cap = cap;
    return true;
}

bool ledger_http_number(struct net_req *rq, const char *name, uint64_t otherwise, uint64_t min,
                        uint64_t max, uint64_t *out)
{
    struct str text;
    uint64_t v = otherwise;
    if (net_req_query(rq, name, &text) == ERR_OK &&
        (str_parse_u64(text, &v) != ERR_OK || v < min || v > max)) {
        char details[160];
        int n = snprintf(details, sizeof details, "{\"member\":\"%s\",\"reason\":\"range\"}", name);
        net_reply_problem_details(rq, ERR_BAD_REQUEST, "a number of the query is out of range",
                                  bytes_of(details, (size_t)n));
        return false;
    }
    *out = v;
    return true;
}

bool ledger_covers(const struct auth_cap *cap, struct str account)
{
    return cap == NULL || auth_covers(cap, AUTH_CV_ACCOUNT, account);
}

struct str ledger_note_text(struct ledger_service *s, uint64_t size, struct arena *a)
{
    char text[NOTE_MAX];
    size_t n;
    struct str out = {NULL, 0};
    if (ledger_note_cached(s, size, text, &n) == ERR_OK && !arena_str(a, str_of(text, n), &out))
        out = (struct str){NULL, 0};
    return out;
}

/* ---- results ---- */

void ledger_json_entry(struct json_w *w, const struct core_entry *e)
{
    json_obj_begin(w);
    json_put_str(w, "id", e->id);
    json_put_u64(w, "ts", e->ts);
    json_put_cstr(w, "kind", ledger_kind_text(e->kind));
    json_put_str(w, "account", e->account);
    if (e->to.n != 0)
        json_put_str(w, "to", e->to);
    json_put_str(w, "asset", e->asset);
    json_put_money(w, "amount", e->amount);
    if (e->nonce != 0) {
        json_key(w, "nonce");
        json_u64_text(w, e->nonce);
    }
    if (e->ref_id.n != 0)
        json_put_str(w, "ref_id", e->ref_id);
    if (e->hold_until != 0)
        json_put_u64(w, "hold_until", e->hold_until);
    json_obj_end(w);
}

static void put_why(struct json_w *w, const char *name, const char *why)
{
    if (why != NULL)
        json_put_cstr(w, name, why);
}

void ledger_json_reject_details(struct json_w *w, const struct ledger_reject *r, uint32_t index)
{
    (void)index;
    json_obj_begin(w);
    if (r->has_entry)
        json_put_u64(w, "entry", r->entry);
    switch ((int)r->reason) {
    case ERR_CONFLICT:
        json_put_u64(w, "seq_start", r->number);
        break;
    case ERR_NONCE_CONFLICT:
    case ERR_NONCE_GAP:
        json_put_str(w, "account", r->account);
        json_put_u64(w, "lane", r->got >> CORE_LANE_SHIFT);
        json_key(w, "last");
        json_u64_text(w, r->last);
        json_key(w, "got");
        json_u64_text(w, r->got);
        break;
    case ERR_INSUFFICIENT_FUNDS:
        json_put_str(w, "account", r->account);
        json_put_str(w, "asset", r->asset);
        json_put_money(w, "available", r->value);
        break;
    case ERR_AMOUNT_EXCEEDS:
        json_put_money(w, "remaining", r->value);
        break;
    case ERR_EXPIRED:
        json_put_u64(w, "ledger_ms", r->number);
        break;
    case ERR_LIMIT_REACHED:
        put_why(w, "limit", r->why);
        break;
    case ERR_UNAVAILABLE:
        put_why(w, "disk", r->why);
        break;
    case ERR_BUSY:
        put_why(w, "queue", r->why);
        break;
    default:
        put_why(w, "why", r->why);
        break;
    }
    json_obj_end(w);
}

static void put_balances(struct json_w *w, struct ledger *l, const struct ledger_job_unit *u)
{
    json_key(w, "balances");
    json_arr_begin(w);
    for (uint32_t i = 0; i < u->n_fx; i++) {
        const struct ledger_effect *fx = &u->fx[i];
        bool last = fx->type == FX_ROW;
        for (uint32_t k = i + 1; last && k < u->n_fx; k++)
            last = u->fx[k].type != FX_ROW || u->fx[k].index != fx->index;
        if (!last)
            continue;
        json_obj_begin(w);
        json_put_str(w, "account", ledger_state_row_account(l->state, fx->index));
        json_put_str(w, "asset", ledger_state_row_asset(l->state, fx->index));
        json_put_money(w, "available",
                       (struct money){(unsigned __int128)fx->new_a.hi << 64 | fx->new_a.lo});
        json_put_money(w, "held", (struct money){(unsigned __int128)fx->new_b.hi << 64 | fx->new_b.lo});
        json_obj_end(w);
    }
    json_arr_end(w);
}

static void put_path(struct json_w *w, const char *name, const struct sha256 *path, size_t n)
{
    json_key(w, name);
    json_arr_begin(w);
    for (size_t i = 0; i < n; i++)
        json_hash(w, &path[i]);
    json_arr_end(w);
}

static void put_proofs(struct json_w *w, struct ledger_job *job, const struct ledger_job_unit *u,
                       uint64_t size) RT_BLOCKS
{
    struct ledger_service *s = job->ledger->shell;
    json_key(w, "proofs");
    json_arr_begin(w);
    for (uint32_t i = 0; i < u->late->n; i++) {
        struct ledger_proven p;
        if (ledger_prove_inclusion(job->ledger, u->seq + i, size, &p) != ERR_OK)
            continue;
        json_obj_begin(w);
        json_put_str(w, "leaf", u->late->leaves[i]);
        put_path(w, "proof", p.path, p.n);
        json_obj_end(w);
    }
    json_arr_end(w);
    char envelope[CANON_ENVELOPE_MAX];
    size_t n = ledger_canon_envelope(&u->late->unit, &u->late->who, &u->late->read.record.fp, envelope);
    json_put_str(w, "envelope", str_of(envelope, n));
    struct str note = ledger_note_text(s, size, &job->arena);
    if (note.n != 0)
        json_put_str(w, "checkpoint", note);
}

void ledger_json_result(struct json_w *w, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    struct ledger *l = job->ledger;
    json_obj_begin(w);
    json_put_str(w, "idem_id", u->u.idem_id);
    if (u->verdict == VERDICT_REJECTED) {
        json_put_cstr(w, "status", "rejected");
        json_put_cstr(w, "reason", err_code(u->reject.reason));
        json_put_bool(w, "retryable", err_retryable(u->reject.reason));
        json_key(w, "details");
        ledger_json_reject_details(w, &u->reject, 0);
        json_obj_end(w);
        return;
    }
    bool dup = u->verdict == VERDICT_DUPLICATE;
    uint64_t size = dup && u->late != NULL ? u->late->group.last_seq : job->tree_size;
    const struct sha256 *root = dup && u->late != NULL ? &u->late->group.root : &job->root;
    json_put_cstr(w, "status", dup ? "duplicate" : "committed");
    json_put_u64(w, "seq_start", u->seq);
    json_put_u64(w, "seq_end", u->seq + u->n - 1);
    json_put_u64(w, "tree_size", size);
    json_put_hash(w, "root", root);
    json_put_u64(w, "leaf_index", u->seq - 1);
    json_key(w, "leaf_hashes");
    json_arr_begin(w);
    for (uint32_t i = 0; i < u->n; i++) {
        if (!dup)
            json_hash(w, &u->p.entries[i].leaf_hash);
        else if (u->late != NULL)
            json_hash(w, &u->late->leaf_hashes[i]);
    }
    json_arr_end(w);
    if (dup && u->late != NULL) {
        json_key(w, "ids");
        json_arr_begin(w);
        for (uint32_t i = 0; i < u->late->n; i++)
            json_str(w, u->late->entries[i].id);
        json_arr_end(w);
    }
    if (job->want_balances && !dup)
        put_balances(w, l, u);
    if (job->want_proof && u->late != NULL)
        put_proofs(w, job, u, size);
    json_obj_end(w);
}

void ledger_json_unit(struct json_w *w, struct ledger *l, const struct ledger_unit_facts *f)
{
    (void)l;
    json_obj_begin(w);
    json_put_str(w, "idem_id", f->unit.idem_id);
    json_put_cstr(w, "status", "committed");
    json_put_u64(w, "seq_start", f->seq);
    json_put_u64(w, "seq_end", f->seq + f->n - 1);
    json_put_u64(w, "tree_size", f->group.last_seq);
    json_put_hash(w, "root", &f->group.root);
    json_put_u64(w, "leaf_index", f->seq - 1);
    put_path(w, "leaf_hashes", f->leaf_hashes, f->n);
    json_key(w, "entries");
    json_arr_begin(w);
    for (uint32_t i = 0; i < f->n; i++)
        ledger_json_entry(w, &f->entries[i]);
    json_arr_end(w);
    if (f->unit.meta.n != 0)
        json_put_str(w, "meta", f->unit.meta);
    if (f->who.kid.n != 0)
        json_put_str(w, "kid", f->who.kid);
    char envelope[CANON_ENVELOPE_MAX];
    size_t n = ledger_canon_envelope(&f->unit, &f->who, &f->read.record.fp, envelope);
    json_put_str(w, "envelope", str_of(envelope, n));
    json_put_u64(w, "ledger_ms", f->group.ledger_ms);
    json_obj_end(w);
}

void ledger_json_entry_info(struct json_w *w, struct ledger *l, const struct ledger_unit_facts *f,
                            uint32_t i)
{
    const struct core_entry *e = &f->entries[i];
    struct money left = {0};
    json_obj_begin(w);
    json_put_u64(w, "seq", f->seq + i);
    json_put_hash(w, "leaf_hash", &f->leaf_hashes[i]);
    json_put_str(w, "leaf", f->leaves[i]);
    json_key(w, "entry");
    ledger_json_entry(w, e);
    if (e->kind == CORE_HOLD) {
        bool there = ledger_state_read_hold(l->state, ledger_canon_id_key(e->id), &left);
        json_put_money(w, "remaining", left);
        json_put_bool(w, "open", there && left.units != 0);
    } else {
        json_put_money(w, "reversed", ledger_state_read_reversed(l->state, f->seq + i));
    }
    json_put_u64(w, "ledger_ms", f->group.ledger_ms);
    json_key(w, "unit");
    json_obj_begin(w);
    json_put_str(w, "idem_id", f->unit.idem_id);
    json_put_u64(w, "seq_start", f->seq);
    json_put_u64(w, "seq_end", f->seq + f->n - 1);
    json_obj_end(w);
    json_obj_end(w);
}

bool ledger_job_refused_alike(const struct ledger_job *job, enum err *out_reason)
{
    for (uint32_t i = 0; i < job->n_units; i++)
        if (job->units[i].verdict != VERDICT_REJECTED ||
            job->units[i].reject.reason != job->units[0].reject.reason)
            return false;
    *out_reason = job->units[0].reject.reason;
    return true;
}

struct bytes ledger_json_job_details(struct ledger_job *job, struct buf *b)
{
    struct json_w w;
    if (job->err == ERR_BAD_REQUEST && job->has_fault) {
        json_w_init(&w, b);
        json_obj_begin(&w);
        json_put_u64(&w, "unit", job->fault_unit);
        json_put_u64(&w, "entry", job->fault.entry);
        json_put_cstr(&w, "member", job->fault.member);
        json_put_cstr(&w, "reason", job->fault.reason);
        json_obj_end(&w);
    } else if (job->why_key != NULL && job->why != NULL) {
        json_w_init(&w, b);
        json_obj_begin(&w);
        json_put_cstr(&w, job->why_key, job->why);
        json_obj_end(&w);
    } else if (job->fault_path[0] != 0) {
        buf_puts(b, job->fault_path); /* ready JSON of the decoder */
    }
    return buf_bytes(b);
}

enum err ledger_job_identify(struct ledger_service *s, struct ledger_job *job, struct str token)
{
    int64_t retry_ms = 0;
    if (!ledger_provider_is_http(s->l->providers, PROVIDER_KMS)) {
        struct auth_deny why = {0};
        if (auth_verify_why(svc_auth(s->svc), token, &job->cap, &why) != ERR_OK) {
            job->why = why.reason;
            return ERR_UNAUTHENTICATED;
        }
        if (auth_rate_take(job->cap, &retry_ms) != ERR_OK)
            return ERR_RATE_LIMITED;
        job->who.kid = str_from_c(auth_cap_kid(job->cap));
        CHECK(hex_decode(str_of(auth_cap_ref(job->cap), 16), job->who.cap, 8) == ERR_OK);
        return ERR_OK;
    }
    struct auth_token_info info;
    struct sha256 hash;
    if (token.n == 0 || auth_inspect(token, &info) != ERR_OK || info.m.kid.n == 0 || info.m.kid.n > 64 ||
        !arena_str(&job->arena, token, &job->token) || !arena_str(&job->arena, info.m.kid, &job->who.kid))
        return ERR_UNAUTHENTICATED;
    sha256_of(token.p, token.n, &hash);
    memcpy(job->who.cap, hash.b, 8);
    return ERR_OK;
}
