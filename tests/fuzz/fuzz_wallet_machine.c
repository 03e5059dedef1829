/*
 * The six operations in any order, with keys used again, keys used for something else, wrong nonces, holds settled twice,
 * receipts evicted, restarts and lost answers: five bytes an action. The wallet's own rules (names, keys, units, verdicts,
 * receipts) run over a ledger in memory, beside a model that only knows what a key was first used for and what everybody has.
 * After every action: conservation, the model's balances, and the bytes of every receipt ever given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mem_ledger.h"
#include "services/wallet/core/idem.h"
#include "services/wallet/core/unit.h"
#include "services/wallet/tasks/ledger_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { KEYS = 12, ACCOUNTS = 3, ACTIONS_MAX = 200, BODY = 2048 };

static const char *const accounts[ACCOUNTS] = {"acct:a", "acct:b", "acct:c"};

struct known {
    bool used;
    char request[WALLET_REQUEST_MAX], receipt[BODY];
    /* of a hold */
    bool holds, settled;
    int payer, payee;
    uint64_t amount;
    char txid[WALLET_TXID_CHARS];
};

struct machine {
    struct mem_ledger *ledger;
    struct wallet_idem idem;
    struct known keys[KEYS];
    uint64_t available[ACCOUNTS], held[ACCOUNTS], last[ACCOUNTS];
    int64_t now_ms;
    /* the ledger's last word */
    struct wallet_said said;
    struct wallet_rebuilt rebuilt;
    bool found, ours;
    char found_receipt[BODY];
};

static void on_ingest(void *ctx, const struct ledger_ingest_reply *r)
{
    struct machine *m = ctx;
    wallet_words_ingest(&m->said, &r->a,
                        r->a.outcome == LEDGER_ANSWERED && r->n_results == 1 ? r->results : NULL);
}

static void write_receipt(const struct wallet_receipt *r, char out[BODY])
{
    struct buf b;
    buf_init_fixed(&b, out, BODY - 1);
    wallet_receipt_write(r, &b);
    CHECK(b.err == ERR_OK);
    out[b.n] = 0;
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct machine *m = ctx;
    CHECK(r->a.outcome == LEDGER_ANSWERED);
    m->found = r->found;
    m->ours = r->found && wallet_words_rebuild(&r->result, &m->rebuilt) == ERR_OK;
    if (m->ours)
        write_receipt(&m->rebuilt.receipt, m->found_receipt);
}

/* ---- what the model expects ---- */

enum expect { COMMITS, REPLAYS, MISMATCH, REFUSED };

struct action {
    struct wallet_op op;
    int key, from, to;
    uint64_t amount;
    struct known *hold; /* that it settles; NULL: there is none */
};

static enum expect expected(const struct machine *m, const struct action *a, const char *request)
{
    const struct known *k = &m->keys[a->key];
    if (k->used)
        return strcmp(k->request, request) == 0 ? REPLAYS : MISMATCH;
    switch (a->op.kind) {
    case WALLET_ISSUE:
        return COMMITS;
    case WALLET_TRANSFER:
    case WALLET_BURN:
    case WALLET_HOLD:
        return a->op.nonce == m->last[a->from] + 1 && m->available[a->from] >= a->amount ? COMMITS
                                                                                         : REFUSED;
    case WALLET_CAPTURE:
    case WALLET_RELEASE:
        return a->hold && !a->hold->settled && a->amount <= a->hold->amount ? COMMITS : REFUSED;
    case WALLET_KIND_COUNT:
        break;
    }
    UNREACHABLE();
}

static void apply(struct machine *m, const struct action *a, const char *txid)
{
    struct known *h = a->hold;
    switch (a->op.kind) {
    case WALLET_ISSUE:
        m->available[a->to] += a->amount;
        break;
    case WALLET_TRANSFER:
        m->available[a->from] -= a->amount;
        m->available[a->to] += a->amount;
        break;
    case WALLET_BURN:
        m->available[a->from] -= a->amount;
        break;
    case WALLET_HOLD:
        m->available[a->from] -= a->amount;
        m->held[a->from] += a->amount;
        m->keys[a->key].holds = true;
        m->keys[a->key].payer = a->from;
        m->keys[a->key].payee = a->to;
        m->keys[a->key].amount = a->amount;
        memcpy(m->keys[a->key].txid, txid, WALLET_TXID_CHARS);
        break;
    case WALLET_CAPTURE:
    case WALLET_RELEASE: {
        uint64_t paid = a->op.kind == WALLET_CAPTURE ? a->amount : 0;
        m->held[h->payer] -= h->amount;
        m->available[h->payer] += h->amount - paid;
        m->available[h->payee] += paid;
        h->settled = true;
        break;
    }
    case WALLET_KIND_COUNT:
        break;
    }
    if (wallet_kind_has_nonce(a->op.kind))
        m->last[a->from]++;
}

/* ---- one request, as the wallet handles it ---- */

static void committed(struct machine *m, const struct action *a, const struct wallet_idem_name *name,
                      const char *request, const char *receipt, const char *txid, bool fresh)
{
    struct known *k = &m->keys[a->key];
    struct wallet_sides sides = {.kind = a->op.kind};
    if (fresh) {
        apply(m, a, txid);
        k->used = true;
        strcpy(k->request, request);
        strcpy(k->receipt, receipt);
    }
    CHECK(strcmp(k->receipt, receipt) == 0); /* the same bytes, wherever they come from */
    wallet_idem_done(&m->idem, name, m, str_from_c(receipt), STR(""), &sides, m->now_ms);
}

static void carry_out(struct machine *m, const struct action *a, enum expect want, const char *request,
                      const struct wallet_idem_name *name, const char *txid, const char *idem_id,
                      struct str key)
{
    struct wallet_unit u;
    struct ledger_entry entries[WALLET_UNIT_ENTRIES_MAX];
    struct wallet_hold hold = {0};
    bool settles = a->op.kind == WALLET_CAPTURE || a->op.kind == WALLET_RELEASE;
    char receipt[BODY];
    if (settles)
        hold =
            (struct wallet_hold){str_from_c(accounts[a->hold->payer]), str_from_c(accounts[a->hold->payee]),
                                 STR("ron"), money_from_u64(a->hold->amount)};
    struct wallet_frame frame = {STR("default"), key, m->now_ms, 3600, NULL};
    enum err e = wallet_unit_build(&a->op, &frame, settles ? &hold : NULL, txid, &u);
    if (e == ERR_AMOUNT_EXCEEDS) {
        CHECK(want == REFUSED || want == MISMATCH);
        wallet_idem_drop(&m->idem, name, m);
        return;
    }
    CHECK(e == ERR_OK);
    for (size_t i = 0; i < u.n_entries; i++)
        wallet_words_entry(&u.entries[i], &entries[i]);
    struct ledger_unit unit = {.idem_id = str_from_c(idem_id),
                               .meta = bytes_of(u.meta, u.meta_n),
                               .not_after_ms = UINT64_MAX,
                               .entries = entries,
                               .n_entries = u.n_entries};
    ledger_client_ingest(mem_ledger_client(m->ledger),
                         &(struct ledger_ingest){.units = &unit, .n_units = 1}, deadline_never(), on_ingest,
                         m);
    struct wallet_verdict v = wallet_words_verdict(&m->said, u.n_entries);
    if (v.kind == WALLET_V_COMMIT) {
        CHECK(want == COMMITS);
        u.receipt.seq = m->said.seq_start;
        u.receipt.root = m->said.root;
        u.receipt.tree_size = m->said.tree_size;
        write_receipt(&u.receipt, receipt);
        committed(m, a, name, request, receipt, txid, true);
    } else if (v.kind == WALLET_V_LOOK_UP || v.kind == WALLET_V_UNKNOWN) {
        ledger_client_unit(mem_ledger_client(m->ledger), str_from_c(idem_id), 0, deadline_never(), on_unit,
                           m);
        if (m->ours && strcmp(m->rebuilt.receipt.txid, txid) == 0) {
            CHECK(want == REPLAYS || want == COMMITS);
            committed(m, a, name, request, m->found_receipt, txid, want == COMMITS);
        } else {
            CHECK(m->found ? want == MISMATCH : v.kind == WALLET_V_UNKNOWN);
            wallet_idem_drop(&m->idem, name, m);
        }
    } else {
        CHECK(want == REFUSED || want == MISMATCH || v.kind == WALLET_V_RETRY);
        wallet_idem_drop(&m->idem, name, m);
    }
}

static void request(struct machine *m, const struct action *a)
{
    char text[WALLET_REQUEST_MAX], key[16], txid[WALLET_TXID_CHARS], idem_id[WALLET_IDEM_ID_CHARS];
    struct buf canonical;
    struct wallet_idem_entry *e = NULL;
    enum wallet_claim claim;
    snprintf(key, sizeof key, "key-%d", a->key);
    buf_init_fixed(&canonical, text, sizeof text - 1);
    wallet_request_canonical(&a->op, &canonical);
    text[canonical.n] = 0;
    wallet_txid(STR("default"), str_from_c(key), buf_str(&canonical), txid);
    wallet_idem_id(STR("default"), str_from_c(key), idem_id);
    struct wallet_idem_name name = wallet_idem_name(idem_id, txid);
    enum expect want = expected(m, a, text);
    CHECK(wallet_idem_claim(&m->idem, &name, m, &claim, &e) == ERR_OK);
    switch (claim) {
    case WALLET_CLAIM_DONE:
        CHECK(want == REPLAYS && str_eq_c(str_of(e->receipt, e->n), m->keys[a->key].receipt));
        return;
    case WALLET_CLAIM_OTHER:
        CHECK(want == MISMATCH);
        return;
    case WALLET_CLAIM_OWNER:
        carry_out(m, a, want, text, &name, txid, idem_id, str_from_c(key));
        return;
    case WALLET_CLAIM_OPEN:
    case WALLET_CLAIM_ABSENT:
        break;
    }
    UNREACHABLE();
}

/* ---- actions from bytes ---- */

static void act(struct machine *m, const uint8_t p[5])
{
    struct action a = {.key = p[1] % KEYS, .from = p[2] % ACCOUNTS, .amount = 1 + p[3] % 40};
    a.to = (a.from + 1 + (p[2] >> 4) % (ACCOUNTS - 1)) % ACCOUNTS;
    a.op = (struct wallet_op){.kind = (enum wallet_kind)(p[0] % WALLET_KIND_COUNT),
                              .asset = STR("ron"),
                              .amount = money_from_u64(a.amount),
                              .has_amount = true};
    if (p[4] & 1)
        a.op.memo = STR("memo \"1\" \xe2\x80\x93");
    m->now_ms++;
    if (a.op.kind == WALLET_ISSUE)
        a.op.to = str_from_c(accounts[a.to]);
    else if (a.op.kind == WALLET_CAPTURE || a.op.kind == WALLET_RELEASE) {
        a.hold = &m->keys[p[2] % KEYS];
        if (!a.hold->holds)
            return; /* the handler finds no such hold: 404 before anything is claimed */
        a.op.asset = str_of(NULL, 0);
        a.op.hold = str_from_c(a.hold->txid);
        if (a.op.kind == WALLET_RELEASE || (p[4] & 2)) {
            a.amount = a.hold->amount;
            a.op.has_amount = false;
            a.op.amount = MONEY_ZERO;
        }
    } else {
        a.op.from = str_from_c(accounts[a.from]);
        if (a.op.kind != WALLET_BURN)
            a.op.to = str_from_c(accounts[a.to]);
        a.op.nonce = m->last[a.from] + 1 + (p[4] & 4 ? 1 : 0); /* the next, or one too far */
        if ((p[4] & 8) && a.op.nonce > 1)
            a.op.nonce--; /* or used up */
        a.op.has_expires_in = a.op.kind == WALLET_HOLD && (p[4] & 16);
        a.op.expires_in_s = a.op.has_expires_in ? 60 : 0;
    }
    static const enum mem_fault faults[] = {MEM_OK, MEM_REFUSE, MEM_LOSE_BEFORE, MEM_LOSE_AFTER};
    mem_ledger_ingest_fault(m->ledger, faults[(p[0] >> 4) & 3], 1);
    request(m, &a);
    mem_ledger_ingest_fault(m->ledger, MEM_OK, 0);
}

static void check_books(struct machine *m)
{
    CHECK(mem_ledger_conserves(m->ledger));
    CHECK(m->idem.open == 0); /* no key is left claimed */
    for (int i = 0; i < ACCOUNTS; i++) {
        CHECK(money_cmp(mem_ledger_available(m->ledger, accounts[i], "ron"),
                        money_from_u64(m->available[i])) == 0);
        CHECK(money_cmp(mem_ledger_held(m->ledger, accounts[i], "ron"), money_from_u64(m->held[i])) == 0);
        CHECK(mem_ledger_last(m->ledger, accounts[i], 0) == m->last[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct machine *m = calloc(1, sizeof *m);
    CHECK(m);
    m->ledger = mem_ledger_create();
    m->now_ms = (int64_t)1 << 41;
    CHECK(wallet_idem_init(&m->idem, 1 << 20) == ERR_OK);
    for (size_t i = 0; i + 5 <= n && i < ACTIONS_MAX * 5; i += 5) {
        if (data[i] >=
            0xF8) { /* everything is evicted, or the wallet starts again: it keeps nothing but this */
            wallet_idem_fini(&m->idem);
            CHECK(wallet_idem_init(&m->idem, 1 << 20) == ERR_OK);
        } else
            act(m, data + i);
        check_books(m);
    }
    wallet_idem_fini(&m->idem);
    mem_ledger_destroy(m->ledger);
    free(m);
    return 0;
}
