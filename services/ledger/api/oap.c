/*
 * The framed door (app 0x0401): ingest, account, unit, head, subscribe, consistency as protobuf messages. Requests go the same way
 * as over HTTP; here is only the form. Ingest, which is most of the traffic, is read and written in place (ingest_wire.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/hex.h"
#include "ron/ledger.pb-c.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/ingest_wire.h"
#include "services/ledger/api/oap_internal.h"
#include "services/ledger/replica.h"
#include "services/ledger/stream.h"

enum {
    OP_INGEST = 1,
    OP_ACCOUNT,
    OP_UNIT,
    OP_HEAD,
    OP_SUBSCRIBE,
    OP_CONSISTENCY,
    OP_ENTRIES,
    OP_ROOTS,
    OP_INCLUSION
};

static void *arena_pb_alloc(void *arena, size_t n)
{
    return arena_alloc(arena, n);
}

static void arena_pb_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

ProtobufCAllocator ledger_oap__allocator(struct arena *a)
{
    return (ProtobufCAllocator){arena_pb_alloc, arena_pb_free, a};
}

static struct str text_of(const char *c)
{
    return c == NULL ? (struct str){NULL, 0} : str_from_c(c);
}

/* protobuf-c wants terminated, writable text; it only reads it. */
char *ledger_oap__text(struct arena *a, struct str s)
{
    static char empty[1];
    char *p = s.n == 0 ? empty : arena_strdup(a, s);
    return p == NULL ? empty : p;
}

static ProtobufCBinaryData data_of(struct arena *a, const void *p, size_t n)
{
    uint8_t *copy = n == 0 ? NULL : arena_alloc(a, n);
    if (copy == NULL)
        return (ProtobufCBinaryData){0, NULL};
    memcpy(copy, p, n);
    return (ProtobufCBinaryData){n, copy};
}

ProtobufCBinaryData ledger_oap__hash(struct arena *a, const struct sha256 *h)
{
    return data_of(a, h->b, 32);
}

/* ---- ingest ---- */

static enum err decode(struct ledger_job *job)
{
    return ledger_ingest_decode(job, job->ledger->set.max_entries);
}

static void fill_balances(struct ledger_job *job, const struct ledger_job_unit *u,
                          Ron__Ledger__V1__Result *r)
{
    struct arena *a = &job->arena;
    r->balances = arena_array(a, u->n_fx + 1, sizeof *r->balances);
    for (uint32_t i = 0; r->balances != NULL && i < u->n_fx; i++) {
        const struct ledger_effect *fx = &u->fx[i];
        bool last = fx->type == FX_ROW;
        for (uint32_t k = i + 1; last && k < u->n_fx; k++)
            last = u->fx[k].type != FX_ROW || u->fx[k].index != fx->index;
        Ron__Ledger__V1__Balance *b = last ? arena_alloc(a, sizeof *b) : NULL;
        if (b == NULL)
            continue;
        ron__ledger__v1__balance__init(b);
        b->account = ledger_oap__text(a, ledger_state_row_account(job->ledger->state, fx->index));
        b->asset = ledger_oap__text(a, ledger_state_row_asset(job->ledger->state, fx->index));
        b->available = fx->new_a.lo;
        b->available_hi = fx->new_a.hi;
        b->held = fx->new_b.lo;
        b->held_hi = fx->new_b.hi;
        r->balances[r->n_balances++] = b;
    }
}

static void fill_proofs(struct ledger_job *job, const struct ledger_job_unit *u,
                        Ron__Ledger__V1__Result *r) RT_BLOCKS
{
    struct arena *a = &job->arena;
    r->proofs = arena_array(a, u->n, sizeof *r->proofs);
    for (uint32_t i = 0; r->proofs != NULL && i < u->n; i++) {
        struct ledger_proven made;
        Ron__Ledger__V1__Proof *p = arena_alloc(a, sizeof *p);
        if (p == NULL || ledger_prove_inclusion(job->ledger, u->seq + i, r->tree_size, &made) != ERR_OK)
            return;
        ron__ledger__v1__proof__init(p);
        p->leaf = ledger_oap__text(a, u->late->leaves[i]);
        p->path = arena_array(a, made.n + 1, sizeof *p->path);
        for (size_t k = 0; p->path != NULL && k < made.n; k++)
            p->path[p->n_path++] = ledger_oap__hash(a, &made.path[k]);
        r->proofs[r->n_proofs++] = p;
    }
    char envelope[CANON_ENVELOPE_MAX];
    r->envelope =
        ledger_oap__text(a, str_of(envelope, ledger_canon_envelope(&u->late->unit, &u->late->who,
                                                                   &u->late->read.record.fp, envelope)));
    r->checkpoint = ledger_oap__text(a, ledger_note_text(job->ledger->shell, r->tree_size, a));
}

static void fill_result(struct ledger_job *job, const struct ledger_job_unit *u,
                        Ron__Ledger__V1__Result *r) RT_BLOCKS
{
    struct arena *a = &job->arena;
    ron__ledger__v1__result__init(r);
    r->idem_id = ledger_oap__text(a, u->u.idem_id);
    if (u->verdict == VERDICT_REJECTED) {
        struct buf b;
        struct json_w w;
        const char *code = err_code(u->reject.reason);
        buf_init(&b, 4096);
        json_w_init(&w, &b);
        ledger_json_reject_details(&w, &u->reject, 0);
        r->status = RON__LEDGER__V1__STATUS__REJECTED;
        r->reason = ledger_oap__text(a, str_from_c(code));
        r->retryable = err_retryable(u->reject.reason);
        r->details = ledger_oap__text(a, buf_str(&b));
        buf_fini(&b);
        return;
    }
    bool dup = u->verdict == VERDICT_DUPLICATE;
    r->status = dup ? RON__LEDGER__V1__STATUS__DUPLICATE : RON__LEDGER__V1__STATUS__COMMITTED;
    r->seq_start = u->seq;
    r->seq_end = u->seq + u->n - 1;
    r->tree_size = dup && u->late != NULL ? u->late->group.last_seq : job->tree_size;
    /* The messages only borrow: everything they point to lives until the reply is packed. */
    const struct sha256 *root = dup && u->late != NULL ? &u->late->group.root : &job->root;
    union {
        const uint8_t *c;
        uint8_t *m;
    } bytes = {root->b};
    r->root = (ProtobufCBinaryData){32, bytes.m};
    r->leaf_hashes = arena_array(a, u->n, sizeof *r->leaf_hashes);
    for (uint32_t i = 0; r->leaf_hashes != NULL && i < u->n && (!dup || u->late != NULL); i++) {
        bytes.c = dup ? u->late->leaf_hashes[i].b : u->p.entries[i].leaf_hash.b;
        r->leaf_hashes[r->n_leaf_hashes++] = (ProtobufCBinaryData){32, bytes.m};
    }
    if (dup && u->late != NULL) {
        r->ids = arena_array(a, u->n, sizeof *r->ids);
        for (uint32_t i = 0; r->ids != NULL && i < u->n; i++)
            r->ids[r->n_ids++] = ledger_oap__text(a, u->late->entries[i].id);
    }
    if (job->want_balances && !dup)
        fill_balances(job, u, r);
    if (job->want_proof && u->late != NULL)
        fill_proofs(job, u, r);
}

static void reply_problem(struct net_oap_req *rq, enum err err, struct bytes details, struct bytes extra)
{
    struct net_oap_problem p = {.err = err, .details_json = str_of_bytes(details), .extra = extra};
    net_oap_reply_problem_full(rq, &p);
}

/* Appends one result; plain ones by hand, all others by way of a message. */
static bool put_result(struct buf *b, struct ledger_job *job, const struct ledger_job_unit *u) RT_BLOCKS
{
    if (ledger_result_is_plain(job, u)) {
        size_t n = ledger_result_size(job, u);
        uint8_t *p = buf_reserve(b, n);
        if (p == NULL)
            return false;
        ledger_result_put(p, job, u);
        buf_commit(b, n);
        return true;
    }
    Ron__Ledger__V1__Result r, *one = &r;
    Ron__Ledger__V1__IngestResponse out = RON__LEDGER__V1__INGEST_RESPONSE__INIT;
    fill_result(job, u, &r);
    out.n_results = 1; /* repeated fields of a message may be written one after the other */
    out.results = &one;
    size_t n = ron__ledger__v1__ingest_response__get_packed_size(&out);
    uint8_t *p = buf_reserve(b, n);
    if (p == NULL)
        return false;
    ron__ledger__v1__ingest_response__pack(&out, p);
    buf_commit(b, n);
    return true;
}

static void reply_results(struct ledger_job *job) RT_BLOCKS
{
    struct net_oap_req *rq = job->door;
    struct buf b;
    size_t plain = 0;
    bool all = true, whole = true;
    enum err reason;
    buf_init(&b, 16 << 20);
    for (uint32_t i = 0; i < job->n_units; i++) {
        all = all && job->units[i].verdict != VERDICT_REJECTED;
        plain += ledger_result_is_plain(job, &job->units[i]) ? ledger_result_size(job, &job->units[i]) : 0;
    }
    if (plain > 0)
        whole = buf_reserve(&b, plain) != NULL; /* once, not doubling on the way */
    for (uint32_t i = 0; whole && i < job->n_units; i++)
        whole = put_result(&b, job, &job->units[i]);
    if (!whole)
        reply_problem(rq, ERR_OUTCOME_UNKNOWN, bytes_of(NULL, 0), bytes_of(NULL, 0));
    else if (ledger_job_refused_alike(job, &reason))
        reply_problem(rq, reason, bytes_of(NULL, 0), buf_bytes(&b));
    else
        net_oap_reply(rq, all ? 200 : 207, buf_bytes(&b));
    buf_fini(&b);
}

static void reply_ingest(struct net_msg *m) RT_BLOCKS
{
    struct ledger_job *job = (struct ledger_job *)((char *)m - offsetof(struct ledger_job, msg));
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    if (job->err == ERR_OK) {
        reply_results(job);
    } else {
        struct buf b;
        buf_init(&b, 4096);
        reply_problem(job->door, job->err, ledger_json_job_details(job, &b), bytes_of(NULL, 0));
        buf_fini(&b);
    }
    ledger_job_free(job);
}

static void answer(struct ledger_job *job)
{
    job->msg.fn = reply_ingest;
    net_loop_post(net_oap_req_loop(job->door), &job->msg);
}

static const struct ledger_job_ops ops = {decode, answer};

/* As X-Corr-ID must be: it goes into logs as it is. */
static bool corr_is_plain(struct str s, size_t cap)
{
    bool ok = s.n < cap;
    for (size_t i = 0; ok && i < s.n; i++)
        ok = s.p[i] > ' ' && s.p[i] < 0x7f;
    return ok;
}

static void op_ingest(struct ledger_service *s, struct net_oap_req *rq)
{
    struct ledger *l = s->l;
    struct ledger_job *job = ledger_job_take(&l->jobs, l);
    if (job == NULL) {
        obs_counter_inc(OBS_COUNTER_OF(l->m[LEDGER_M_busy_rejections], "inflight"));
        ledger_refused(l, ERR_BUSY);
        reply_problem(rq, ERR_BUSY, bytes_of("{\"queue\":\"inflight\"}", 20), bytes_of(NULL, 0));
        return;
    }
    enum err err = ledger_job_identify(s, job, net_oap_req_cap(rq));
    if (err != ERR_OK) {
        ledger_refused(l, err);
        net_oap_reply_problem(rq, err,
                              err == ERR_RATE_LIMITED ? "the capability's rate is used up"
                                                      : "a capability for ron-ledger is needed");
        ledger_job_free(job);
        return;
    }
    job->ops = &ops;
    job->door = rq;
    job->body = net_oap_req_payload(rq);
    struct str corr, trace;
    ledger_ingest_origin(job->body, &corr, &trace);
    if (corr_is_plain(corr, sizeof job->corr_id))
        snprintf(job->corr_id, sizeof job->corr_id, "%.*s", STR_ARG(corr));
    if (obs_traceparent_parse(trace, &job->trace) != ERR_OK)
        job->trace = (struct obs_trace){0}; /* a trace of its own */
    const struct net_peer *peer = net_oap_req_peer(rq);
    job->has_ip = peer->kind != NET_PEER_UNIX;
    memcpy(job->peer_ip, peer->addr, 16);
    job->by = deadline_in_ms(l->set.request_ms);
    net_oap_req_answer_by(rq, ledger_answer_by(l, job->by), ERR_OUTCOME_UNKNOWN);
    err = ledger_door_submit(s, net_oap_req_loop(rq), job);
    if (err == ERR_OK)
        return;
    struct buf b;
    buf_init(&b, 4096);
    job->err = err;
    reply_problem(rq, err, ledger_json_job_details(job, &b), bytes_of(NULL, 0));
    buf_fini(&b);
    ledger_job_free(job);
}

/* ---- reads ---- */

bool ledger_oap__may_read(struct ledger_service *s, struct net_oap_req *rq, struct str account,
                          struct auth_cap **out)
{
    struct auth_want want = {.op = STR("read"), .lacks = SVC_LACKS_ALL};
    if (account.n != 0) {
        want.account = account;
        want.lacks &= ~(unsigned)AUTH_BIT(AUTH_CV_ACCOUNT);
    }
    struct auth_deny why = {.reason = ""};
    enum err err = svc_authorize_token(s->svc, net_oap_req_cap(rq), &want, out, &why);
    if (err != ERR_OK)
        net_oap_reply_problem(rq, err, "not covered by the capability");
    return err == ERR_OK;
}

void ledger_oap__reply(struct net_oap_req *rq, const ProtobufCMessage *m)
{
    struct buf b;
    buf_init(&b, 16 << 20);
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *p = buf_reserve(&b, n + 1);
    if (p == NULL) {
        net_oap_reply_problem(rq, ERR_BUSY, "no memory");
    } else {
        protobuf_c_message_pack(m, p);
        buf_commit(&b, n);
        net_oap_reply(rq, 200, buf_bytes(&b));
    }
    buf_fini(&b);
}

void ledger_oap__read(struct ledger_service *s, struct net_oap_req *rq, struct ledger_oap_read r,
                      void (*run)(struct ledger_service *, struct ledger_read *))
{
    struct ledger_oap_read *copy = arena_alloc(net_oap_req_arena(rq), sizeof *copy);
    if (copy != NULL) {
        *copy = r;
        copy->rq = rq;
        copy->read = (struct ledger_read){run, rq};
    }
    if (copy == NULL || ledger_read_submit(s, &copy->read) != ERR_OK) {
        auth_cap_release(r.cap);
        net_oap_reply_problem(rq, ERR_BUSY, "read queue is full");
    }
}

static void op_account(struct ledger_service *s, struct net_oap_req *rq)
{
    struct arena *a = net_oap_req_arena(rq);
    ProtobufCAllocator alloc = ledger_oap__allocator(a);
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__AccountRequest *m = ron__ledger__v1__account_request__unpack(&alloc, in.n, in.p);
    struct str account = m == NULL ? (struct str){NULL, 0} : text_of(m->account);
    struct auth_cap *cap;
    if (m == NULL || !ledger_account_ok(account)) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not an account");
        return;
    }
    if (!ledger_oap__may_read(s, rq, account, &cap))
        return;
    auth_cap_release(cap);
    struct ledger_head head;
    struct ledger_account_read read = {0};
    enum err err = ERR_BUSY;
    for (unsigned i = 0; err == ERR_BUSY && i < (1u << 20); i++) {
        ledger_head_read(s->l, &head);
        err = ledger_state_read_account(s->l->state, account, head.seq, &read);
    }
    Ron__Ledger__V1__Account out;
    ron__ledger__v1__account__init(&out);
    out.balances = arena_array(a, read.n_balances + 1, sizeof *out.balances);
    out.nonces = arena_array(a, read.n_lanes + 1, sizeof *out.nonces);
    if (err != ERR_OK || out.balances == NULL || out.nonces == NULL) {
        net_oap_reply_problem(rq, ERR_BUSY, "the account is changing");
    } else if (head.seq < m->min_seq) {
        net_oap_reply_problem(rq, ERR_BEHIND, "the head is below min_seq");
    } else {
        out.account = m->account;
        out.as_of_seq = head.seq;
        out.root = (ProtobufCBinaryData){32, head.root.b};
        for (size_t i = 0; i < read.n_balances; i++) {
            Ron__Ledger__V1__Balance *b = arena_alloc(a, sizeof *b);
            if (b == NULL)
                break;
            ron__ledger__v1__balance__init(b);
            b->account = m->account;
            b->asset = ledger_oap__text(a, read.balances[i].asset);
            b->available = (uint64_t)read.balances[i].available.units;
            b->available_hi = (uint64_t)(read.balances[i].available.units >> 64);
            b->held = (uint64_t)read.balances[i].held.units;
            b->held_hi = (uint64_t)(read.balances[i].held.units >> 64);
            out.balances[out.n_balances++] = b;
        }
        for (size_t i = 0; i < read.n_lanes; i++)
            out.nonces[out.n_nonces++] =
                (uint64_t)read.lanes[i].lane << CORE_LANE_SHIFT | read.lanes[i].counter;
        ledger_oap__reply(rq, &out.base);
    }
    ledger_account_read_fini(&read);
}

Ron__Ledger__V1__Entry *ledger_oap__entry(struct arena *a, const struct core_entry *e)
{
    Ron__Ledger__V1__Entry *out = arena_alloc(a, sizeof *out);
    if (out == NULL)
        return NULL;
    ron__ledger__v1__entry__init(out);
    out->id = ledger_oap__text(a, e->id);
    out->ts = e->ts;
    out->kind = (Ron__Ledger__V1__Kind)e->kind;
    out->account = ledger_oap__text(a, e->account);
    out->to = ledger_oap__text(a, e->to);
    out->asset = ledger_oap__text(a, e->asset);
    out->amount = (uint64_t)e->amount.units;
    out->amount_hi = (uint64_t)(e->amount.units >> 64);
    out->nonce = e->nonce;
    out->ref_id = ledger_oap__text(a, e->ref_id);
    out->hold_until = e->hold_until;
    return out;
}

static void run_unit(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap; /* r lives with the request, and that ends with the answer */
    struct ledger *l = s->l;
    struct arena a;
    struct ledger_unit_facts f;
    arena_init(&a, 64 << 10, 64 << 20);
    uint64_t ledger_ms =
        atomic_load(&l->ledger_ms); /* before the look: a later one could hide a commit in between */
    bool pending = ledger_jobs_is_pending(&l->jobs, ledger_canon_idem_key(r->text));
    enum err err = ledger_find_unit(l, r->text, &a, &f);
    int64_t now = l->deps.clock->mono_ns(l->deps.clock->ctx);
    if (err == ERR_NOT_FOUND && pending && now < r->until_ns && !net_oap_req_gone(r->rq)) {
        ledger_nap();
        if (ledger_read_submit(s, read) == ERR_OK) {
            arena_fini(&a);
            return;
        }
    }
    Ron__Ledger__V1__Result out;
    ron__ledger__v1__result__init(&out);
    out.idem_id = ledger_oap__text(&a, r->text);
    bool covered = false;
    for (uint32_t i = 0; err == ERR_OK && i < f.n; i++)
        covered = covered || ledger_covers(r->cap, f.entries[i].account) ||
                  (f.entries[i].to.n != 0 && ledger_covers(r->cap, f.entries[i].to));
    if (err == ERR_OK && covered) {
        char envelope[CANON_ENVELOPE_MAX];
        uint8_t meta[CORE_META_MAX];
        size_t n = 0;
        out.status = RON__LEDGER__V1__STATUS__COMMITTED;
        out.seq_start = f.seq;
        out.seq_end = f.seq + f.n - 1;
        out.tree_size = f.group.last_seq;
        out.root = ledger_oap__hash(&a, &f.group.root);
        out.ledger_ms = f.group.ledger_ms;
        out.kid = ledger_oap__text(&a, f.who.kid);
        out.envelope = ledger_oap__text(
            &a, str_of(envelope, ledger_canon_envelope(&f.unit, &f.who, &f.read.record.fp, envelope)));
        if (f.unit.meta.n != 0 && base64_decode(f.unit.meta, meta, sizeof meta, &n) == ERR_OK)
            out.meta = data_of(&a, meta, n);
        out.leaf_hashes = arena_array(&a, f.n, sizeof *out.leaf_hashes);
        out.entries = arena_array(&a, f.n, sizeof *out.entries);
        for (uint32_t i = 0; out.leaf_hashes != NULL && out.entries != NULL && i < f.n; i++) {
            out.leaf_hashes[out.n_leaf_hashes++] = ledger_oap__hash(&a, &f.leaf_hashes[i]);
            out.entries[out.n_entries++] = ledger_oap__entry(&a, &f.entries[i]);
        }
        ledger_oap__reply(r->rq, &out.base);
    } else if (err == ERR_NOT_FOUND && pending) {
        out.status = RON__LEDGER__V1__STATUS__PENDING;
        ledger_oap__reply(r->rq, &out.base);
    } else if (err == ERR_OK || err == ERR_NOT_FOUND) {
        char details[64];
        int n = snprintf(details, sizeof details, "{\"ledger_ms\":%llu}", (unsigned long long)ledger_ms);
        reply_problem(r->rq, ERR_NOT_FOUND, bytes_of(details, (size_t)n), bytes_of(NULL, 0));
    } else {
        net_oap_reply_problem(r->rq, ERR_UNAVAILABLE, "the journal cannot be read");
    }
    auth_cap_release(cap);
    arena_fini(&a);
}

static void op_unit(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__UnitRequest *m = ron__ledger__v1__unit_request__unpack(&alloc, in.n, in.p);
    struct ledger_oap_read r = {0};
    if (m == NULL || !ledger_id_ok(text_of(m->idem_id)) || m->wait_ms > 5000) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not an idem_id, or wait_ms over 5000");
        return;
    }
    r.text = text_of(m->idem_id);
    r.until_ns = s->l->deps.clock->mono_ns(s->l->deps.clock->ctx) + (int64_t)m->wait_ms * 1000000;
    net_oap_req_set_timeout(rq, 11000);
    if (ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
        ledger_oap__read(s, rq, r, run_unit);
}

static void run_head(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap; /* r lives with the request, and that ends with the answer */
    struct ledger_head head;
    char note[NOTE_MAX + 1];
    size_t n = 0;
    struct obs_health_view view;
    ledger_head_read(s->l, &head);
    obs_health_read(svc_health(s->svc), &view);
    bool ready = view.ready && !svc_draining(s->svc);
    Ron__Ledger__V1__Head out;
    ron__ledger__v1__head__init(&out);
    if (ledger_note_cached(s, head.seq, note, &n) != ERR_OK)
        n = 0;
    note[n] = 0;
    out.tree_size = head.seq;
    out.root = (ProtobufCBinaryData){32, head.root.b};
    out.group_no = head.group_no;
    out.ledger_ms = atomic_load(&s->l->ledger_ms);
    out.checkpoint = note;
    out.ready = ready;
    enum ledger_role role = ledger_replica_role(s->l);
    out.follows = role == ROLE_STANDBY || role == ROLE_FENCED;
    out.safe_mode = ledger_safe_cause(s->l) != CAUSE_NONE;
    ledger_oap__reply(r->rq, &out.base);
    auth_cap_release(cap);
}

static void run_consistency(struct ledger_service *s, struct ledger_read *read) RT_BLOCKS
{
    struct ledger_oap_read *r = (struct ledger_oap_read *)read;
    struct auth_cap *cap = r->cap; /* r lives with the request, and that ends with the answer */
    struct ledger_proven p;
    ProtobufCBinaryData parts[MERKLE_PATH_MAX];
    uint64_t end = r->b == 0 ? ledger_head_seq(s->l) : r->b;
    enum err err = ledger_prove_consistency(s->l, r->a, end, &p);
    if (err == ERR_NOT_FOUND) {
        net_oap_reply_problem(r->rq, err, "beyond the head");
    } else if (err != ERR_OK) {
        net_oap_reply_problem(r->rq, ERR_UNAVAILABLE, "the tree cannot be read");
    } else {
        Ron__Ledger__V1__Consistency out = RON__LEDGER__V1__CONSISTENCY__INIT;
        for (size_t i = 0; i < p.n; i++)
            parts[i] = (ProtobufCBinaryData){32, p.path[i].b};
        out.from = r->a;
        out.to = end;
        out.from_root = (ProtobufCBinaryData){32, p.from_root.b};
        out.to_root = (ProtobufCBinaryData){32, p.root.b};
        out.path = parts;
        out.n_path = p.n;
        ledger_oap__reply(r->rq, &out.base);
    }
    auth_cap_release(cap);
}

static void op_consistency(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__ConsistencyRequest *m =
        ron__ledger__v1__consistency_request__unpack(&alloc, in.n, in.p);
    struct ledger_oap_read r = {0};
    if (m == NULL) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not a ConsistencyRequest");
        return;
    }
    r.a = m->from;
    r.b = m->to;
    if (ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
        ledger_oap__read(s, rq, r, run_consistency);
}

/* ---- subscribe ---- */

struct oap_stream {
    struct ledger_stream st;
    struct net_oap_req *rq;
    struct svc *svc;
    struct svc_hearing hearing;
    struct arena arena;
    bool opened;
};

static enum err pack_event(struct oap_stream *e, const Ron__Ledger__V1__CommitEvent *ev, bool end)
{
    size_t n = ron__ledger__v1__commit_event__get_packed_size(ev);
    uint8_t *p = arena_alloc(&e->arena, n + 1);
    if (p == NULL)
        return ERR_CLOSED;
    ron__ledger__v1__commit_event__pack(ev, p);
    if (end) {
        net_oap_end(e->rq, NET_OAP_EVENT, 200, bytes_of(p, n));
        return ERR_OK;
    }
    enum err err = net_oap_send(e->rq, NET_OAP_EVENT, 200, bytes_of(p, n));
    return err == ERR_TOO_LARGE ? ERR_CLOSED : err;
}

static enum err oap_event(struct ledger_stream *st, const struct ledger_stream_event *ev)
{
    struct oap_stream *e = (struct oap_stream *)st;
    Ron__Ledger__V1__CommitEvent out;
    if (!svc_hearing_goes_on(e->svc, &e->hearing, "read"))
        return ERR_CLOSED;
    ron__ledger__v1__commit_event__init(&out);
    arena_reset(&e->arena);
    out.seq_start = ev->seq_start;
    out.seq_end = ev->seq_end;
    out.tree_size = ev->tree_size;
    out.root = ledger_oap__hash(&e->arena, &ev->root);
    out.accounts = arena_array(&e->arena, ev->n_accounts + 1, sizeof *out.accounts);
    for (size_t i = 0; out.accounts != NULL && i < ev->n_accounts; i++)
        out.accounts[out.n_accounts++] = ledger_oap__text(&e->arena, ev->accounts[i]);
    return pack_event(e, &out, false);
}

static enum err oap_idle(struct ledger_stream *st)
{
    struct oap_stream *e = (struct oap_stream *)st;
    return svc_hearing_goes_on(e->svc, &e->hearing, "read") ? ERR_OK : ERR_CLOSED;
}

static void oap_lagged(struct ledger_stream *st, uint64_t next_since)
{
    struct oap_stream *e = (struct oap_stream *)st;
    Ron__Ledger__V1__CommitEvent out;
    ron__ledger__v1__commit_event__init(&out);
    out.lagged = true;
    out.seq_end = next_since;
    if (pack_event(e, &out, false) != ERR_OK)
        return; /* being cut says the same */
}

static void oap_end(struct ledger_stream *st)
{
    struct oap_stream *e = (struct oap_stream *)st;
    net_oap_end(e->rq, NET_OAP_EVENT, 200, bytes_of(NULL, 0));
    arena_fini(&e->arena);
    free(e);
}

/* The publisher asks this before anything else: the first time, the client learns that it is heard. */
static bool oap_gone(struct ledger_stream *st)
{
    struct oap_stream *e = (struct oap_stream *)st;
    if (!e->opened && net_oap_send(e->rq, NET_OAP_RESP, 200, bytes_of(NULL, 0)) == ERR_OK)
        e->opened = true;
    return net_oap_req_gone(e->rq);
}

static const struct ledger_stream_ops stream_ops = {oap_event, oap_idle, oap_lagged, oap_end, oap_gone};

static void op_subscribe(struct ledger_service *s, struct net_oap_req *rq)
{
    ProtobufCAllocator alloc = ledger_oap__allocator(net_oap_req_arena(rq));
    struct bytes in = net_oap_req_payload(rq);
    Ron__Ledger__V1__SubscribeRequest *m = ron__ledger__v1__subscribe_request__unpack(&alloc, in.n, in.p);
    struct auth_cap *cap;
    if (m == NULL) {
        net_oap_reply_problem(rq, ERR_BAD_REQUEST, "not a SubscribeRequest");
        return;
    }
    if (!ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &cap))
        return;
    bool narrow = auth_cap_has(cap, AUTH_CV_ACCOUNT);
    auth_cap_release(cap);
    if (narrow) {
        net_oap_reply_problem(rq, ERR_FORBIDDEN, "this shows every account; the capability is for some");
        return;
    }
    struct oap_stream *e = calloc(1, sizeof *e);
    if (e == NULL) {
        net_oap_reply_problem(rq, ERR_BUSY, "no memory");
        return;
    }
    e->st = (struct ledger_stream){.ops = &stream_ops, .commits = true, .since = m->since};
    e->rq = rq;
    e->svc = s->svc;
    e->hearing = svc_hearing_begin(s->svc, net_oap_req_peer(rq), net_oap_req_cap(rq));
    arena_init(&e->arena, 16 << 10, 16 << 20);
    net_oap_req_set_timeout(rq, 0);
    if (ledger_stream_submit(s, &e->st) != ERR_OK) {
        arena_fini(&e->arena);
        free(e);
        net_oap_reply_problem(rq, ERR_BUSY, "as many subscribers as allowed");
    }
}

void ledger_oap(struct net_oap_req *rq, void *state)
{
    struct ledger_service *s = state;
    struct ledger_oap_read r = {0};
    switch (net_oap_req_code(rq)) {
    case OP_INGEST:
        op_ingest(s, rq);
        break;
    case OP_ACCOUNT:
        op_account(s, rq);
        break;
    case OP_UNIT:
        op_unit(s, rq);
        break;
    case OP_HEAD:
        if (ledger_oap__may_read(s, rq, (struct str){NULL, 0}, &r.cap))
            ledger_oap__read(s, rq, r, run_head);
        break;
    case OP_SUBSCRIBE:
        op_subscribe(s, rq);
        break;
    case OP_CONSISTENCY:
        op_consistency(s, rq);
        break;
    case OP_ENTRIES:
        ledger_oap__entries(s, rq);
        break;
    case OP_ROOTS:
        ledger_oap__roots(s, rq);
        break;
    case OP_INCLUSION:
        ledger_oap__inclusion(s, rq);
        break;
    default:
        net_oap_reply_problem(rq, ERR_NOT_FOUND, "no such operation");
        break;
    }
}
