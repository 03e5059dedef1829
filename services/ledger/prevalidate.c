/*
 * What can be said about a job without the state: is it well-formed, may its bearer do this, is it known already, what are its
 * bytes and hashes. Prevalidators do this in parallel; the sequencer then only judges.
 *
 * Order per unit: capability, idempotency, policy. A known unit is answered even when policy has changed since.
 */
#include <string.h>

#include "auth/cap.h"
#include "base/check.h"
#include "services/ledger/ledger.h"
#include "services/ledger/policy.h"
#include "services/ledger/providers.h"
#include "services/ledger/reads.h"

static void reject_unit(struct ledger_job_unit *u, enum err reason, const char *why)
{
    u->verdict = VERDICT_REJECTED;
    u->reject = (struct ledger_reject){.reason = reason, .why = why};
}

/* Texts without idem_id are named after their tuple. */
static bool name_units(struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct core_unit *u = &job->units[i].u;
        if (u->idem_id.n != 0)
            continue;
        char *id = arena_alloc(&job->arena, CANON_TUPLE_ID);
        if (id == NULL)
            return false;
        ledger_canon_tuple_id(u, id);
        u->idem_id = str_of(id, CANON_TUPLE_ID);
    }
    return true;
}

static enum err static_checks(struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++) {
        enum err err = ledger_unit_check(&job->units[i].u, job->own, &job->fault);
        if (err != ERR_OK) {
            job->has_fault = true;
            job->fault_unit = i;
            return err;
        }
    }
    return ERR_OK;
}

/* Records one behind the other, as the journal will have them. False: no memory left for this job. */
static bool build_units(struct ledger *l, struct ledger_job *job)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < job->n_units; i++)
        bytes += ledger_record_bound(&job->units[i].u, &job->who);
    uint8_t *record = arena_alloc(&job->arena, bytes);
    struct core_build *v = arena_alloc(&job->arena, job->n_units * sizeof *v);
    struct core_prepared_entry *entries = arena_alloc(&job->arena, job->n_entries * sizeof *entries);
    struct ledger_effect *fx = arena_alloc(&job->arena, job->n_entries * EFFECTS_PER_ENTRY * sizeof *fx);
    if (record == NULL || v == NULL || entries == NULL || fx == NULL)
        return false;
    for (uint32_t i = 0; i < job->n_units; i++) {
        struct ledger_job_unit *u = &job->units[i];
        v[i] = (struct core_build){&u->u, &u->p};
        u->p.entries = entries;
        u->fx = fx;
        entries += u->u.n;
        fx += (size_t)u->u.n * EFFECTS_PER_ENTRY;
    }
    ledger_record_build_many(v, job->n_units, &job->who, job->own, record);
    for (uint32_t i = 0; i < job->n_units; i++)
        ledger_state_hash_names(l->state, &job->units[i].u, &job->units[i].p);
    return true;
}

static void judge_capability(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u)
{
    if (job->cap == NULL)
        return;
    int64_t now = l->deps.clock->wall_ms(l->deps.clock->ctx);
    for (uint32_t i = 0; i < u->u.n; i++) {
        const struct core_entry *e = &u->u.entries[i];
        struct auth_want want = {.op = str_from_c(ledger_kind_text(e->kind)),
                                 .account = e->account,
                                 .asset = e->asset,
                                 .amount = &e->amount,
                                 .peer_ip = job->has_ip ? job->peer_ip : NULL,
                                 .bytes = job->body.n,
                                 .now_ms = now};
        struct auth_deny why = {.reason = "caveat"};
        if (auth_allows(job->cap, &want, &why) == ERR_OK)
            continue;
        reject_unit(u, ERR_FORBIDDEN, why.reason);
        u->reject.entry = i;
        u->reject.has_entry = true;
        return;
    }
}

enum lookup { LOOKUP_HOT, LOOKUP_FILTERED, LOOKUP_READ }; /* in the order of metrics.def */

static void count_lookup(struct ledger *l, enum lookup result)
{
    if (l->m[LEDGER_M_index_lookups] != NULL)
        obs_counter_inc(obs_counter_nth(l->m[LEDGER_M_index_lookups], result));
}

/* A unit found in the index: the same one (duplicate), or another under its name (conflict). */
static void judge_known(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u,
                        const struct ledger_found *f) RT_BLOCKS
{
    struct sha256 fp = f->fp;
    uint32_t n = f->n;
    if (!f->young) { /* fingerprint and size stand in the journal */
        struct ledger_unit_read read;
        if (ledger_read_unit(l, f->place, &job->arena, &read) != ERR_OK) {
            reject_unit(u, ERR_UNAVAILABLE, "disk");
            return;
        }
        fp = read.record.fp;
        n = read.record.n;
        count_lookup(l, LOOKUP_READ);
    }
    if (!sha256_eq(&fp, &u->p.fp)) {
        struct ledger_unit_facts
            facts; /* "another" is final: not said because a byte of the journal rotted */
        if (!f->young && ledger_read_facts(l, f->place, f->seq, NULL, &job->arena, &facts) != ERR_OK) {
            reject_unit(u, ERR_UNAVAILABLE, "disk");
            return;
        }
        reject_unit(u, ERR_CONFLICT, NULL);
        u->reject.number = f->seq;
        return;
    }
    u->verdict = VERDICT_DUPLICATE;
    u->seq = f->seq;
    u->n = n;
    u->place = f->place;
    u->place_known = !f->young;
}

static void judge_index(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    struct ledger_found f;
    if (ledger_view_find_unit(job->view, u->p.idem_key, &f)) {
        if (f.young)
            count_lookup(l, LOOKUP_HOT);
        judge_known(l, job, u, &f);
        return;
    }
    count_lookup(l, LOOKUP_FILTERED);
    for (uint32_t i = 0; i < u->u.n; i++) {
        if (!ledger_view_find_entry(job->view, u->p.entries[i].id_key, &f))
            continue;
        reject_unit(u, ERR_ID_EXISTS, NULL);
        u->reject.entry = i;
        u->reject.has_entry = true;
        return;
    }
}

/* Reverses and entries that draw on a hold need to know what their ref_id was. */
static enum err find_facts(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    for (uint32_t i = 0; i < u->u.n; i++) {
        if (u->u.entries[i].ref_id.n == 0)
            continue;
        if (u->facts == NULL)
            u->facts = arena_array(&job->arena, u->u.n, sizeof *u->facts);
        struct ledger_fact *fact = arena_zalloc(&job->arena, sizeof *fact);
        if (u->facts == NULL || fact == NULL)
            return ERR_NO_MEMORY;
        enum err err = ledger_fact_find(l, job->view, u->p.entries[i].ref_key, &job->arena, fact);
        if (err != ERR_OK)
            return err;
        u->facts[i] = fact;
    }
    return ERR_OK;
}

static void judge_names(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    if (u->verdict == VERDICT_NONE)
        judge_index(l, job, u);
    if (u->verdict == VERDICT_NONE && u->p.id_twice)
        reject_unit(u, ERR_ID_EXISTS, NULL);
}

static void judge_policy(struct ledger *l, struct ledger_job_unit *u)
{
    const char *why = NULL;
    const struct ledger_policy *policy = atomic_load_explicit(&l->policy, memory_order_acquire);
    if (u->verdict == VERDICT_NONE && policy != NULL && !ledger_policy_allows(policy, &u->u, &why))
        reject_unit(u, ERR_POLICY_DENIED, why);
}

static void judge_facts(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    if (u->verdict == VERDICT_NONE && find_facts(l, job, u) != ERR_OK)
        reject_unit(u, ERR_UNAVAILABLE, "disk");
}

static void judge_unit(struct ledger *l, struct ledger_job *job, struct ledger_job_unit *u) RT_BLOCKS
{
    judge_capability(l, job, u);
    judge_names(l, job, u);
    judge_policy(l, u);
    judge_facts(l, job, u);
}

static bool any_undecided(const struct ledger_job *job)
{
    for (uint32_t i = 0; i < job->n_units; i++)
        if (job->units[i].verdict == VERDICT_NONE)
            return true;
    return false;
}

/* The stages in the order of the questions; each is done for the whole job before the next, since a question is asked once. */
enum { AT_START, AT_CAPABILITY, AT_NAMES, AT_POLICY, AT_WALLET, AT_FACTS };

static bool must_ask(struct ledger *l, struct ledger_job *job, enum ledger_provider which)
{
    if (!any_undecided(job) ||
        !(ledger_provider_asked(l->providers, which) || (which == PROVIDER_KMS && job->token.n != 0)))
        return false;
    job->asks = (uint8_t)which;
    return true;
}

static enum ledger_step judge_in_stages(struct ledger *l, struct ledger_job *job) RT_BLOCKS
{
    for (;;) {
        unsigned stage = job->stage++;
        enum ledger_provider which = stage == AT_CAPABILITY ? PROVIDER_KMS
                                     : stage == AT_POLICY   ? PROVIDER_POLICY
                                     : stage == AT_WALLET   ? PROVIDER_WALLET
                                                            : PROVIDER_NONE;
        for (uint32_t i = 0; i < job->n_units; i++) {
            struct ledger_job_unit *u = &job->units[i];
            if (stage == AT_CAPABILITY)
                judge_capability(l, job, u);
            else if (stage == AT_NAMES)
                judge_names(l, job, u);
            else if (stage == AT_POLICY)
                judge_policy(l, u);
            else if (stage == AT_FACTS)
                judge_facts(l, job, u);
        }
        /* What is known here is judged here first; somebody else's yes never makes up for our no. */
        if (which != PROVIDER_NONE && must_ask(l, job, which))
            return STEP_ASK;
        if (stage == AT_FACTS)
            return STEP_PASS;
    }
}

static bool asks_anybody(const struct ledger *l, const struct ledger_job *job)
{
    if (l->providers == NULL || job->own)
        return false;
    return job->token.n != 0 || ledger_provider_asked(l->providers, PROVIDER_KMS) ||
           ledger_provider_asked(l->providers, PROVIDER_POLICY) ||
           ledger_provider_asked(l->providers, PROVIDER_WALLET);
}

enum { LOOK_AHEAD = 4 }; /* units: long enough for a line to come from memory */

enum ledger_step ledger_prevalidate_step(struct ledger *l, struct ledger_job *job)
{
    CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
    if (deadline_passed(job->by)) {
        ledger_job_refuse(job, ERR_TIMEOUT, "op", "prevalidate");
        return STEP_REFUSED;
    }
    if (job->stage != AT_START)
        return judge_in_stages(l, job);
    enum err err = job->ops->decode == NULL ? ERR_OK : job->ops->decode(job);
    if (err == ERR_OK)
        err = static_checks(job);
    if (err == ERR_OK && (!name_units(job) || !build_units(l, job)))
        err = ERR_NO_MEMORY;
    if (err ==
        ERR_NO_MEMORY) { /* a job's arena takes every job that is allowed: the process has none left */
        ledger_job_refuse(job, ERR_UNAVAILABLE, "task", "prevalidator");
        return STEP_NO_MEMORY;
    }
    if (err != ERR_OK) {
        ledger_job_refuse(job, err, NULL, NULL);
        return STEP_REFUSED;
    }
    job->view = ledger_index_pin(&l->index);
    ledger_job_pend(&l->jobs, job);
    if (asks_anybody(l, job)) {
        job->stage = AT_CAPABILITY;
        return judge_in_stages(l, job);
    }
    for (uint32_t i = 0; i < job->n_units; i++) {
        if (i + LOOK_AHEAD < job->n_units) {
            const struct core_prepared *p = &job->units[i + LOOK_AHEAD].p;
            ledger_view_prefetch(job->view, p->idem_key, p->entries[0].id_key);
        }
        judge_unit(l, job, &job->units[i]);
    }
    return STEP_PASS;
}

bool ledger_prevalidate(struct ledger *l, struct ledger_job *job)
{
    enum ledger_step step = ledger_prevalidate_step(l, job);
    CHECK(step != STEP_ASK);
    return step == STEP_PASS;
}
