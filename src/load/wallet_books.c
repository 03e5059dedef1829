/*
 * Before and after a load of payments: payers get something to spend; then what left their accounts is compared with their nonces,
 * and the nonces with what was acknowledged. A payer pays 1 each time, so that the three are the same number.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "load/wallet.h"

enum { CONNS = 8 };
static const int64_t step_ms = 60000;
const uint64_t load_wallet_fund_amount = 1000000000;

enum what { ISSUE, NONCE, BALANCE };

struct books {
    const struct load_wallet_spec *spec;
    struct load_complaint *why;
    enum what what;
    unsigned next, end;
    unsigned *of; /* per slot: which one is under way */
    uint64_t *out;
};

static uint64_t ask(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct books *b = app;
    const struct load_wallet_spec *s = b->spec;
    char path[256], more[128], body[256];
    (void)first_on_conn;
    if (fresh && b->next == b->end)
        return 0;
    if (fresh)
        b->of[slot] = b->next++;
    unsigned i = b->of[slot], payer = s->first_payer + i % s->payers;
    int n = 0;
    switch (b->what) {
    case ISSUE:
        n = snprintf(body, sizeof body, "{\"to\":\"%s%u\",\"asset\":\"%s\",\"amount\":\"%llu\"}",
                     s->payer_head, payer, s->asset, (unsigned long long)load_wallet_fund_amount);
        snprintf(more, sizeof more, "\r\nIdempotency-Key: fund-%s-%u", s->run, payer);
        load_http_put(out, "POST", "/v1/issue", s->token, more, bytes_of(body, (size_t)n));
        break;
    case NONCE:
        snprintf(path, sizeof path, "/v1/nonce?account=%s%u&lane=%u", s->payer_head, payer, i / s->payers);
        load_http_put(out, "GET", path, s->token, NULL, bytes_of(NULL, 0));
        break;
    case BALANCE:
        snprintf(path, sizeof path, "/v1/balance?account=%s%u&asset=%s", s->payer_head, payer, s->asset);
        load_http_put(out, "GET", path, s->token, NULL, bytes_of(NULL, 0));
        break;
    }
    return 1;
}

static enum load_verdict answered(void *app, unsigned slot, const struct load_answer *a)
{
    struct books *b = app;
    enum load_verdict v = load_verdict_of(a->status);
    if (v == LOAD_FAILED)
        load_complain(b->why, a, false);
    if (v != LOAD_DONE || b->what == ISSUE)
        return v;
    json_t *body = json_loadb((const char *)a->body.p, a->body.n, 0, NULL);
    const char *text = json_string_value(json_object_get(body, "available"));
    uint64_t *out = &b->out[b->of[slot]];
    if (b->what == NONCE)
        *out = (uint64_t)json_integer_value(json_object_get(body, "last"));
    else if (text == NULL || str_parse_u64(str_from_c(text), out) != ERR_OK)
        v = LOAD_FAILED;
    json_decref(body);
    return v;
}

static enum err each(const struct load_wallet_spec *s, enum what what, unsigned n, uint64_t *out,
                     struct load_complaint *why)
{
    static const struct load_wire wire = {.ask = ask, .parse = load_http_parse, .answered = answered};
    unsigned of[CONNS];
    struct load_mill_result r;
    struct books b = {.spec = s, .why = why, .what = what, .end = n, .of = of, .out = out};
    enum err e = load_mill_run(&(struct load_mill_spec){.wire = &wire,
                                                        .app = &b,
                                                        .addrs = &s->addr,
                                                        .n_addrs = 1,
                                                        .conns = CONNS,
                                                        .inflight = 1,
                                                        .ms = step_ms},
                               &r);
    if (e != ERR_OK)
        return e;
    return r.failed > 0 ? ERR_REFUSED : r.done_in_all < n ? ERR_TIMEOUT : ERR_OK;
}

enum err load_wallet_fund(const struct load_wallet_spec *spec, struct load_complaint *out_why)
{
    return each(spec, ISSUE, spec->payers, NULL, out_why);
}

static void compare(const struct load_wallet_spec *s, const uint64_t *acked, const uint64_t *last,
                    const uint64_t *left, struct load_wallet_books *out)
{
    *out = (struct load_wallet_books){0};
    for (unsigned i = 0; i < s->conns; i++) {
        out->acknowledged += acked[i];
        out->found += last[i];
        out->lost += acked[i] > last[i] ? acked[i] - last[i] : 0;
    }
    uint64_t spent = 0;
    for (unsigned i = 0; i < s->payers; i++)
        spent += load_wallet_fund_amount - left[i];
    out->doubled = spent > out->found ? spent - out->found : 0;
    out->lost += spent < out->found ? out->found - spent : 0;
}

enum err load_wallet_check(const struct load_wallet_spec *spec, const uint64_t *acked, int64_t wait_ms,
                           struct load_wallet_books *out, struct load_complaint *out_why)
{
    int64_t by_ns = load_now_ns() + wait_ms * 1000000;
    uint64_t *last = calloc(spec->conns, sizeof *last), *left = calloc(spec->payers, sizeof *left);
    enum err e = last == NULL || left == NULL ? ERR_NO_MEMORY : ERR_OK;
    while (e == ERR_OK) {
        e = each(spec, NONCE, spec->conns, last, out_why);
        if (e == ERR_OK)
            e = each(spec, BALANCE, spec->payers, left, out_why);
        if (e != ERR_OK)
            break;
        compare(spec, acked, last, left, out);
        if ((out->lost == 0 && out->doubled == 0) || load_now_ns() > by_ns)
            break;
    }
    free(last);
    free(left);
    return e;
}
