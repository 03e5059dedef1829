/* What the client writes by hand is what the generated code reads, number by number and text by text, and not a byte longer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ledger_client/oap_codec.h"
#include "ron/ledger.pb-c.h"

enum { UNITS = 5, ENTRIES = 7, TEXT = 200, ROUNDS = 400 };

/* Lengths of a varint, and both sides of each step. */
static uint64_t number(struct rng *r)
{
    uint64_t shift = rng_below(r, 66), step = shift > 63 ? 0 : (uint64_t)1 << shift;
    return step - (rng_below(r, 2) && step ? 1 : 0);
}

static struct str text(struct rng *r, char *room)
{
    size_t n = rng_below(r, 3) ? (size_t)rng_below(r, TEXT) : 0;
    for (size_t i = 0; i < n; i++)
        room[i] = (char)('a' + rng_below(r, 26));
    return (struct str){room, n};
}

static void assert_text(struct str want, const char *got)
{
    assert_int_equal(want.n, strlen(got));
    assert_memory_equal(want.p, got, want.n);
}

static void assert_entry(const struct ledger_entry *want, const Ron__Ledger__V1__Entry *got)
{
    assert_text(want->id, got->id);
    assert_int_equal(want->ts_ms, got->ts);
    assert_int_equal(want->kind, got->kind);
    assert_text(want->account, got->account);
    assert_text(want->to, got->to);
    assert_text(want->asset, got->asset);
    assert_int_equal((uint64_t)want->amount.units, got->amount);
    assert_int_equal((uint64_t)(want->amount.units >> 64), got->amount_hi);
    assert_int_equal(want->nonce, got->nonce);
    assert_text(want->ref_id, got->ref_id);
    assert_int_equal(want->hold_until_ms, got->hold_until);
}

struct sample {
    struct ledger_ingest rq;
    struct ledger_unit units[UNITS];
    struct ledger_entry entries[UNITS][ENTRIES];
    char room[UNITS][ENTRIES][5][TEXT], own[UNITS][2][TEXT], head[2][TEXT];
};

static void fill(struct sample *s, struct rng *r)
{
    s->rq = (struct ledger_ingest){.units = s->units,
                                   .n_units = (size_t)rng_below(r, UNITS + 1),
                                   .balances = rng_below(r, 2),
                                   .proof = rng_below(r, 2),
                                   .corr_id = text(r, s->head[0]),
                                   .traceparent = text(r, s->head[1])};
    for (size_t i = 0; i < s->rq.n_units; i++) {
        struct str meta = text(r, s->own[i][1]);
        s->units[i] = (struct ledger_unit){.idem_id = text(r, s->own[i][0]),
                                           .meta = bytes_of(meta.p, meta.n),
                                           .not_after_ms = number(r),
                                           .entries = s->entries[i],
                                           .n_entries = (size_t)rng_below(r, ENTRIES + 1)};
        for (size_t k = 0; k < s->units[i].n_entries; k++)
            s->entries[i][k] = (struct ledger_entry){
                .id = text(r, s->room[i][k][0]),
                .ts_ms = number(r),
                .kind = (enum ledger_kind)rng_below(r, 5),
                .account = text(r, s->room[i][k][1]),
                .to = text(r, s->room[i][k][2]),
                .asset = text(r, s->room[i][k][3]),
                .amount = {(unsigned __int128)(rng_below(r, 2) ? number(r) : 0) << 64 | number(r)},
                .nonce = number(r),
                .ref_id = text(r, s->room[i][k][4]),
                .hold_until_ms = number(r)};
    }
}

static void assert_same(const struct sample *s, struct bytes wire)
{
    Ron__Ledger__V1__IngestRequest *got = ron__ledger__v1__ingest_request__unpack(NULL, wire.n, wire.p);
    assert_non_null(got);
    assert_int_equal(wire.n, ron__ledger__v1__ingest_request__get_packed_size(got));
    assert_text(s->rq.corr_id, got->corr_id);
    assert_text(s->rq.traceparent, got->traceparent);
    assert_int_equal(s->rq.balances, got->balances);
    assert_int_equal(s->rq.proof, got->proof);
    assert_int_equal(s->rq.n_units, got->n_units);
    for (size_t i = 0; i < s->rq.n_units; i++) {
        const struct ledger_unit *u = &s->units[i];
        const Ron__Ledger__V1__Unit *g = got->units[i];
        assert_text(u->idem_id, g->idem_id);
        assert_int_equal(u->meta.n, g->meta.len);
        if (u->meta.n)
            assert_memory_equal(u->meta.p, g->meta.data, u->meta.n);
        assert_int_equal(u->not_after_ms, g->not_after);
        assert_int_equal(u->n_entries, g->n_entries);
        for (size_t k = 0; k < u->n_entries; k++)
            assert_entry(&u->entries[k], g->entries[k]);
    }
    ron__ledger__v1__ingest_request__free_unpacked(got, NULL);
}

static void an_ingest_is_read_back_by_the_generated_code(void **state)
{
    (void)state;
    struct rng r;
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    rng_seed(&r, 1);
    for (int i = 0; i < ROUNDS; i++) {
        struct buf b;
        fill(s, &r);
        buf_init(&b, 1 << 20);
        ledger_oap_put_ingest(&b, &s->rq);
        assert_int_equal(b.err, ERR_OK);
        assert_same(s, buf_bytes(&b));
        buf_fini(&b);
    }
    free(s);
}

static void an_ingest_that_does_not_fit_says_so(void **state)
{
    (void)state;
    struct rng r;
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    rng_seed(&r, 2);
    do
        fill(s, &r);
    while (s->rq.n_units < UNITS);
    struct buf whole, tight;
    buf_init(&whole, 1 << 20);
    ledger_oap_put_ingest(&whole, &s->rq);
    for (size_t max = 1; max < whole.n; max += 13) {
        buf_init(&tight, max);
        ledger_oap_put_ingest(&tight, &s->rq);
        assert_int_not_equal(tight.err, ERR_OK);
        buf_fini(&tight);
    }
    buf_fini(&whole);
    free(s);
}

static void text_and_numbers_are_read_back_by_the_generated_code(void **state)
{
    (void)state;
    struct rng r;
    char room[TEXT];
    rng_seed(&r, 3);
    for (int i = 0; i < ROUNDS; i++) {
        struct str account = text(&r, room);
        uint64_t a = number(&r), b = number(&r);
        struct buf out;
        buf_init(&out, 4096);
        ledger_oap_put_text(&out, account, a);
        Ron__Ledger__V1__AccountRequest *q = ron__ledger__v1__account_request__unpack(NULL, out.n, out.p);
        assert_non_null(q);
        assert_text(account, q->account);
        assert_int_equal(q->min_seq, a);
        ron__ledger__v1__account_request__free_unpacked(q, NULL);
        buf_reset(&out);
        ledger_oap_put_numbers(&out, 1, a, b);
        Ron__Ledger__V1__ConsistencyRequest *c =
            ron__ledger__v1__consistency_request__unpack(NULL, out.n, out.p);
        assert_non_null(c);
        assert_int_equal(c->from, a);
        assert_int_equal(c->to, b);
        ron__ledger__v1__consistency_request__free_unpacked(c, NULL);
        buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ingest_is_read_back_by_the_generated_code),
        cmocka_unit_test(an_ingest_that_does_not_fit_says_so),
        cmocka_unit_test(text_and_numbers_are_read_back_by_the_generated_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
