#include "load/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "load/ledger_internal.h"
#include "load/oap.h"
#include "net/oap.h"

enum { CODE_INGEST = 1, MINTS = 256, BODY_MAX = 8 << 20 };
static const uint64_t mint_amount = UINT64_C(1) << 40;

static void names_make(struct load_ledger *l)
{
    unsigned long long run = rng_secure_u64() >> 16;
    snprintf(l->entry_head, sizeof l->entry_head, "e%llx-", run);
    snprintf(l->unit_head, sizeof l->unit_head, "b:%llx-", run);
    snprintf(l->account_head, sizeof l->account_head, "acct:%06llx:", run & 0xffffff);
    l->unit_head_n = strlen(l->unit_head);
}

static uint64_t send_body(struct load_ledger *l, unsigned slot, bool first_on_conn, struct buf *out)
{
    const struct load_ledger_slot *s = &l->slots[slot];
    const char *token = l->spec->token;
    if (l->oap)
        load_oap_put(out, NET_OAP_LEDGER, CODE_INGEST, slot, first_on_conn ? token : NULL,
                     buf_bytes(&s->body));
    else
        load_http_put(out, "POST", "/v1/ingest", token, NULL, buf_bytes(&s->body));
    return s->n_units;
}

/* ---- accounts ---- */

static void note_lowest(struct load_ledger *l, uint64_t unit, bool committed, uint64_t seq)
{
    (void)unit;
    if (committed && (l->first_seq == 0 || seq < l->first_seq))
        l->first_seq = seq;
}

static uint64_t ask_mint(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct load_ledger *l = app;
    struct load_ledger_slot *s = &l->slots[slot];
    uint64_t n = l->spec->hot ? 1 : l->spec->accounts;
    if (fresh && l->next_account == n)
        return 0;
    if (fresh) {
        load_ledger__body_begin(l, s);
        for (unsigned k = 0; k < MINTS && l->next_account < n; k++, l->next_account++) {
            load_ledger__unit_begin(l, s);
            load_ledger__entry(l, LOAD_MINT, l->next_account, 0, mint_amount, 0);
            load_ledger__unit_end(l, s);
        }
        load_ledger__body_end(l, s);
    }
    return send_body(l, slot, first_on_conn, out);
}

static enum load_verdict mint_answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct load_ledger *l = app;
    enum load_verdict v = load_verdict_of(a->status);
    if (v == LOAD_FAILED)
        load_complain(&l->r->complaint, a, l->oap);
    if (v == LOAD_DONE)
        (void)load_ledger__results(l, &l->slots[slot], a->body, note_lowest);
    return v;
}

/* ---- transfers ---- */

static void put_transfer(struct load_ledger *l, unsigned slot)
{
    const struct load_ledger_spec *spec = l->spec;
    struct load_ledger_slot *s = &l->slots[slot];
    uint64_t from, nonce, to;
    if (spec->hot) {
        from = 0;
        nonce = (uint64_t)slot << 48 | ++l->nonces[slot];
        to = 1 + l->next_entry * 7919 % (spec->accounts - 1); /* every payee as often, whatever the slots */
    } else { /* every slot has its own accounts, so that their nonces stay in order */
        uint64_t mine = spec->accounts / l->n_slots;
        from = slot + l->n_slots * (s->turn++ * 7919 % mine);
        nonce = ++l->nonces[from];
        to = (from + 1 + s->turn * 104729) % spec->accounts;
        if (to == from)
            to = (to + 1) % spec->accounts;
    }
    load_ledger__entry(l, LOAD_TRANSFER, from, to, 1, nonce);
}

static uint64_t ask_transfers(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct load_ledger *l = app;
    struct load_ledger_slot *s = &l->slots[slot];
    if (fresh && l->spec->check && !load_ledger__record_room(l))
        return 0;
    if (fresh) {
        load_ledger__body_begin(l, s);
        for (unsigned k = 0; k < l->spec->units; k++) {
            load_ledger__unit_begin(l, s);
            for (unsigned i = 0; i < l->spec->per_unit; i++)
                put_transfer(l, slot);
            load_ledger__unit_end(l, s);
        }
        load_ledger__body_end(l, s);
    }
    return send_body(l, slot, first_on_conn, out) * l->spec->per_unit;
}

static void note_acked(struct load_ledger *l, uint64_t unit, bool committed, uint64_t seq)
{
    if (committed && unit < l->units_room)
        l->units[unit].acked_seq = seq;
}

static enum load_verdict transfers_answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct load_ledger *l = app;
    enum load_verdict v = load_verdict_of(a->status);
    if (v == LOAD_FAILED)
        load_complain(&l->r->complaint, a, l->oap);
    /* 207: some were taken, and are owed */
    if (l->spec->check && (a->status == 200 || a->status == 207) &&
        !load_ledger__results(l, &l->slots[slot], a->body, note_acked))
        return LOAD_FAILED;
    return v;
}

/* ---- the run ---- */

static enum err mill(struct load_ledger *l, bool mint, size_t first_addr, struct load_mill_result *out)
{
    const struct load_ledger_spec *s = l->spec;
    struct load_wire w = {.ask = mint ? ask_mint : ask_transfers,
                          .parse = l->oap ? load_oap_parse : load_http_parse,
                          .answered = mint ? mint_answered : transfers_answered,
                          .by_slot = l->oap};
    return load_mill_run(&(struct load_mill_spec){.wire = &w,
                                                  .app = l,
                                                  .addrs = s->addrs,
                                                  .n_addrs = s->n_addrs,
                                                  .first_addr = first_addr,
                                                  .conns = s->conns,
                                                  .inflight = s->inflight,
                                                  .rate = mint ? 0 : s->rate,
                                                  .ms = mint ? s->patience_ms : s->ms,
                                                  .count_max = mint ? 0 : s->entries,
                                                  .timeout_ms = s->timeout_ms,
                                                  .patience_ms = s->patience_ms,
                                                  .stop = s->stop,
                                                  .each_second = mint ? NULL : s->each_second},
                         out);
}

static enum err run(struct load_ledger *l)
{
    struct load_mill_result mint;
    enum err e = mill(l, true, 0, &mint);
    if (e != ERR_OK)
        return e;
    l->r->minted = mint.done_in_all;
    if (mint.failed > 0)
        return ERR_REFUSED;
    if (mint.unanswered > 0 || l->r->minted != (l->spec->hot ? 1 : l->spec->accounts))
        return ERR_TIMEOUT;
    l->next_unit = 0;
    l->unit_head[0] = 't'; /* mints keep their own names */
    e = mill(l, false, mint.last_addr, &l->r->load);
    if (e == ERR_OK && l->spec->check)
        e = load_ledger__check(l, l->r->load.last_addr);
    return e;
}

enum err load_ledger_run(const struct load_ledger_spec *spec, struct load_ledger_result *out)
{
    struct load_ledger l = {
        .spec = spec, .r = out, .n_slots = spec->conns * spec->inflight, .oap = spec->addrs[0].oap};
    memset(out, 0, sizeof *out);
    CHECK(spec->units > 0 && spec->per_unit > 0 && spec->units * spec->per_unit <= LOAD_LEDGER_ENTRIES_MAX);
    CHECK(spec->accounts >= 2 && (spec->hot || spec->accounts >= l.n_slots));
    names_make(&l);
    l.slots = calloc(l.n_slots, sizeof *l.slots);
    l.nonces = calloc(spec->accounts + l.n_slots, sizeof *l.nonces);
    enum err e = ERR_NO_MEMORY;
    if (l.slots != NULL && l.nonces != NULL) {
        buf_init(&l.scratch, BODY_MAX);
        for (unsigned i = 0; i < l.n_slots; i++)
            buf_init(&l.slots[i].body, BODY_MAX);
        e = run(&l);
        for (unsigned i = 0; i < l.n_slots; i++)
            buf_fini(&l.slots[i].body);
        buf_fini(&l.scratch);
    }
    free(l.slots);
    free(l.nonces);
    free(l.units);
    return e;
}
