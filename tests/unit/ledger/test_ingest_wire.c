/* The hand-written reader and writer of ingest beside the generated ones: whatever one writes the other reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ron/ledger.pb-c.h"
#include "services/ledger/api/ingest_wire.h"

enum { UNITS = 5, ENTRIES = 4, TEXTS = 1 + 5 * ENTRIES, MAX_ENTRIES = 1024 };

typedef Ron__Ledger__V1__IngestRequest request;
typedef Ron__Ledger__V1__Unit unit;
typedef Ron__Ledger__V1__Entry entry;

struct made {
    request rq;
    unit units[UNITS], *unit_ptrs[UNITS];
    entry entries[UNITS][ENTRIES], *entry_ptrs[UNITS][ENTRIES];
    char text[UNITS][TEXTS][40];
    uint8_t meta[UNITS][64];
};

static char *text_of(struct rng *r, char *out)
{
    size_t n = rng_below(r, 39); /* empty ones too: absent */
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('!' + rng_below(r, 94));
    out[n] = 0;
    return out;
}

static uint64_t number_of(struct rng *r)
{
    return rng_u64(r) >> rng_below(r, 64) & (rng_below(r, 4) == 0 ? 0 : UINT64_MAX);
}

static void make(struct rng *r, struct made *m)
{
    ron__ledger__v1__ingest_request__init(&m->rq);
    m->rq.units = m->unit_ptrs;
    m->rq.n_units = 1 + rng_below(r, UNITS);
    m->rq.balances = rng_below(r, 2) == 0;
    m->rq.proof = rng_below(r, 2) == 0;
    for (size_t i = 0; i < m->rq.n_units; i++) {
        unit *u = m->unit_ptrs[i] = &m->units[i];
        size_t t = 0;
        ron__ledger__v1__unit__init(u);
        u->idem_id = text_of(r, m->text[i][t++]);
        u->entries = m->entry_ptrs[i];
        u->n_entries = rng_below(r, ENTRIES + 1);
        u->not_after = number_of(r);
        u->meta = (ProtobufCBinaryData){rng_below(r, 65), m->meta[i]};
        for (size_t k = 0; k < u->n_entries; k++) {
            entry *e = m->entry_ptrs[i][k] = &m->entries[i][k];
            ron__ledger__v1__entry__init(e);
            e->id = text_of(r, m->text[i][t++]);
            e->ts = number_of(r);
            e->kind = (Ron__Ledger__V1__Kind)rng_below(r, CORE_KIND_COUNT);
            e->account = text_of(r, m->text[i][t++]);
            e->to = text_of(r, m->text[i][t++]);
            e->asset = text_of(r, m->text[i][t++]);
            e->amount = number_of(r);
            e->amount_hi = number_of(r);
            e->nonce = number_of(r);
            e->ref_id = text_of(r, m->text[i][t++]);
            e->hold_until = number_of(r);
        }
    }
}

static void same_text(struct str ours, const char *theirs)
{
    assert_int_equal(ours.n, strlen(theirs));
    if (ours.n > 0)
        assert_memory_equal(ours.p, theirs, ours.n);
}

static void same_request(const struct ledger_job *job, const request *rq)
{
    assert_int_equal(job->n_units, rq->n_units);
    assert_int_equal(job->want_balances, rq->balances);
    assert_int_equal(job->want_proof, rq->proof);
    for (size_t i = 0; i < rq->n_units; i++) {
        const struct core_unit *u = &job->units[i].u;
        same_text(u->idem_id, rq->units[i]->idem_id);
        assert_int_equal(u->n, rq->units[i]->n_entries);
        assert_true(u->not_after == rq->units[i]->not_after);
        assert_int_equal(u->meta.n, (rq->units[i]->meta.len + 2) / 3 * 4);
        for (size_t k = 0; k < u->n; k++) {
            const struct core_entry *e = &u->entries[k];
            const entry *f = rq->units[i]->entries[k];
            same_text(e->id, f->id);
            same_text(e->account, f->account);
            same_text(e->to, f->to);
            same_text(e->asset, f->asset);
            same_text(e->ref_id, f->ref_id);
            assert_true(e->ts == f->ts && e->nonce == f->nonce && e->hold_until == f->hold_until);
            assert_true(e->amount.units == ((unsigned __int128)f->amount_hi << 64 | f->amount));
            assert_int_equal(e->kind, f->kind);
        }
    }
}

static enum err decode(struct ledger_job *job, const uint8_t *p, size_t n)
{
    arena_reset(&job->arena);
    struct arena a = job->arena;
    memset(job, 0, sizeof *job);
    job->arena = a;
    job->body = bytes_of(p, n);
    return ledger_ingest_decode(job, MAX_ENTRIES);
}

static void requests_of_the_generated_code_are_read_alike(void **state)
{
    (void)state;
    static struct made m;
    struct ledger_job *job = calloc(1, sizeof *job);
    struct rng r;
    rng_seed(&r, 7);
    arena_init(&job->arena, 65536, 1 << 20);
    for (int round = 0; round < 2000; round++) {
        make(&r, &m);
        uint8_t body[16384];
        size_t n = ron__ledger__v1__ingest_request__pack(&m.rq, body);
        assert_int_equal(decode(job, body, n), ERR_OK);
        same_request(job, &m.rq);
        /* A damaged one: what ours takes, theirs takes, and finds the same in it. */
        body[rng_below(&r, n)] = (uint8_t)rng_u64(&r);
        n -= rng_below(&r, 2) == 0 ? 0 : rng_below(&r, n);
        uint8_t *exact = malloc(n + 1); /* so that reading beyond it is seen */
        memcpy(exact, body, n);
        bool ours = decode(job, exact, n) == ERR_OK;
        request *theirs = ron__ledger__v1__ingest_request__unpack(NULL, n, exact);
        assert_true(!ours || theirs != NULL);
        if (ours && memchr(exact, 0, n) == NULL)
            same_request(job, theirs);
        if (theirs != NULL)
            ron__ledger__v1__ingest_request__free_unpacked(theirs, NULL);
        free(exact);
    }
    arena_fini(&job->arena);
    free(job);
}

static void limits_and_unknown_kinds_are_refused(void **state)
{
    (void)state;
    static struct made m;
    struct ledger_job *job = calloc(1, sizeof *job);
    struct rng r;
    uint8_t body[32768];
    rng_seed(&r, 9);
    arena_init(&job->arena, 65536, 1 << 20);
    make(&r, &m);
    m.rq.n_units = 0;
    assert_int_equal(decode(job, body, ron__ledger__v1__ingest_request__pack(&m.rq, body)),
                     ERR_BAD_REQUEST);
    assert_string_equal(job->why, "units");

    m.rq.n_units = 1;
    m.units[0].n_entries = 1;
    ron__ledger__v1__entry__init(m.entry_ptrs[0][0] = &m.entries[0][0]);
    m.entries[0][0].kind = (Ron__Ledger__V1__Kind)CORE_KIND_COUNT;
    assert_int_equal(decode(job, body, ron__ledger__v1__ingest_request__pack(&m.rq, body)),
                     ERR_BAD_REQUEST);
    assert_true(job->has_fault);
    assert_string_equal(job->fault.member, "kind");

    uint8_t many[2 * (CORE_UNIT_ENTRIES_MAX + 1)];
    for (size_t i = 0; i < sizeof many; i += 2) {
        many[i] = 1 << 3 | 2; /* an empty unit */
        many[i + 1] = 0;
    }
    assert_int_equal(decode(job, many, sizeof many), ERR_TOO_LARGE);
    assert_int_equal(decode(job, many, sizeof many - 2), ERR_OK);
    /* a known member of another type */
    assert_int_equal(decode(job, (const uint8_t[]){1 << 3, 1}, 2), ERR_BAD_REQUEST);
    arena_fini(&job->arena);
    free(job);
}

static void plain_results_are_what_the_generated_code_reads(void **state)
{
    (void)state;
    struct ledger_job job = {.tree_size = UINT64_C(1) << 40};
    struct core_prepared_entry entries[3] = {{.leaf_at = 0}};
    struct ledger_job_unit u = {.verdict = VERDICT_COMMITTED, .seq = 300, .n = 3};
    uint8_t out[2048], *p = out;
    u.p.entries = entries;
    memset(job.root.b, 0x5a, 32);
    for (unsigned i = 0; i < 3; i++)
        memset(entries[i].leaf_hash.b, (int)i + 1, 32);
    const char *ids[] = {"a", "w:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (unsigned i = 0; i < 2; i++) {
        u.u.idem_id = str_from_c(ids[i]);
        u.seq += i;
        assert_true(ledger_result_is_plain(&job, &u));
        uint8_t *end = ledger_result_put(p, &job, &u);
        assert_int_equal(end - p, ledger_result_size(&job, &u));
        p = end;
    }
    Ron__Ledger__V1__IngestResponse *in =
        ron__ledger__v1__ingest_response__unpack(NULL, (size_t)(p - out), out);
    assert_non_null(in);
    assert_int_equal(in->n_results, 2);
    for (unsigned i = 0; i < 2; i++) {
        const Ron__Ledger__V1__Result *r = in->results[i];
        assert_string_equal(r->idem_id, ids[i]);
        assert_int_equal(r->status, RON__LEDGER__V1__STATUS__COMMITTED);
        assert_int_equal(r->seq_start, 300 + i);
        assert_int_equal(r->seq_end, 302 + i);
        assert_true(r->tree_size == job.tree_size);
        assert_int_equal(r->n_leaf_hashes, 3);
        assert_memory_equal(r->root.data, job.root.b, 32);
        assert_memory_equal(r->leaf_hashes[2].data, entries[2].leaf_hash.b, 32);
    }
    ron__ledger__v1__ingest_response__free_unpacked(in, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_the_generated_code_are_read_alike),
        cmocka_unit_test(limits_and_unknown_kinds_are_refused),
        cmocka_unit_test(plain_results_are_what_the_generated_code_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
