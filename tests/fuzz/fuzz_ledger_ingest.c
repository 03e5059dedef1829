/*
 * Ingest from a stranger, as JSON and as protobuf: bytes become units or an error, and units that pass the static checks must
 * survive the way through both forms unchanged (the client's encoders write them, the doors read them again).
 */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "ledger_client/json.h"
#include "ledger_client/oap_codec.h"
#include "services/ledger/api/api.h"
#include "services/ledger/api/ingest_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum form { JSON, PROTOBUF };

static struct ledger *engine(void)
{
    static struct ledger *l;
    if (l == NULL) {
        l = calloc(1, sizeof *l);
        CHECK(l != NULL);
        l->set.max_entries = 1024;
        CHECK(ledger_jobs_init(&l->jobs, 8) == ERR_OK);
    }
    return l;
}

static struct ledger_job *decode(enum form form, struct bytes in)
{
    struct ledger_job *job = ledger_job_take(&engine()->jobs, engine());
    CHECK(job != NULL);
    job->body = in;
    enum err err = form == JSON ? ledger_ingest_decode_json(job) : ledger_ingest_decode(job, 1024);
    for (uint32_t i = 0; err == ERR_OK && i < job->n_units; i++)
        err = ledger_unit_check(&job->units[i].u, false, &job->fault);
    if (err == ERR_OK)
        return job;
    ledger_job_free(job);
    return NULL;
}

/* As a client would send what was read. */
static void encode(enum form form, const struct ledger_job *job, struct buf *out)
{
    struct ledger_unit *u = calloc(job->n_units, sizeof *u);
    struct ledger_entry *e = calloc(job->n_entries + 1, sizeof *e);
    uint8_t *meta = calloc(job->n_units, CORE_META_MAX);
    CHECK(u != NULL && e != NULL && meta != NULL);
    struct ledger_ingest rq = {
        .units = u, .n_units = job->n_units, .balances = job->want_balances, .proof = job->want_proof};
    for (uint32_t i = 0, at = 0; i < job->n_units; i++) {
        const struct core_unit *c = &job->units[i].u;
        size_t n = 0;
        if (c->meta.n != 0)
            CHECK(base64_decode(c->meta, meta + (size_t)i * CORE_META_MAX, CORE_META_MAX, &n) == ERR_OK);
        u[i] = (struct ledger_unit){c->idem_id, bytes_of(meta + (size_t)i * CORE_META_MAX, n), c->not_after,
                                    &e[at], c->n};
        for (uint32_t k = 0; k < c->n; k++, at++) {
            const struct core_entry *in = &c->entries[k];
            e[at] = (struct ledger_entry){in->id,        in->ts,    (enum ledger_kind)in->kind,
                                          in->account,   in->to,    in->asset,
                                          in->amount,    in->nonce, in->ref_id,
                                          in->hold_until};
        }
    }
    if (form == JSON)
        ledger_json_put_units(out, &rq);
    else
        ledger_oap_put_ingest(out, &rq);
    free(u);
    free(e);
    free(meta);
}

static void same_entry(const struct core_entry *a, const struct core_entry *b)
{
    CHECK(str_eq(a->id, b->id) && a->ts == b->ts && a->kind == b->kind && str_eq(a->account, b->account));
    CHECK(str_eq(a->to, b->to) && str_eq(a->asset, b->asset) && a->amount.units == b->amount.units);
    CHECK(a->nonce == b->nonce && str_eq(a->ref_id, b->ref_id) && a->hold_until == b->hold_until);
}

static void same(const struct ledger_job *a, const struct ledger_job *b)
{
    CHECK(a->n_units == b->n_units && a->n_entries == b->n_entries);
    for (uint32_t i = 0; i < a->n_units; i++) {
        const struct core_unit *x = &a->units[i].u, *y = &b->units[i].u;
        CHECK(str_eq(x->idem_id, y->idem_id) && str_eq(x->meta, y->meta));
        CHECK(x->not_after == y->not_after && x->n == y->n);
        for (uint32_t k = 0; k < x->n; k++)
            same_entry(&x->entries[k], &y->entries[k]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 1)
        return 0;
    struct ledger_job *job = decode(p[0] & 1 ? PROTOBUF : JSON, bytes_of(p + 1, n - 1));
    if (job == NULL)
        return 0;
    for (enum form form = JSON; form <= PROTOBUF; form++) {
        struct buf first, second;
        buf_init(&first, 8 << 20);
        buf_init(&second, 8 << 20);
        encode(form, job, &first);
        CHECK(first.err == ERR_OK);
        struct ledger_job *again = decode(form, buf_bytes(&first));
        CHECK(again != NULL);
        same(job, again);
        encode(form, again, &second); /* one form only */
        CHECK(second.n == first.n && memcmp(first.p, second.p, first.n) == 0);
        ledger_job_free(again);
        buf_fini(&first);
        buf_fini(&second);
    }
    ledger_job_free(job);
    return 0;
}
