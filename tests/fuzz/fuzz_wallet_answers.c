/*
 * What a ledger answers, as arbitrary bytes: the first says which answer it is meant to be, the rest is its body. Nothing in it
 * makes the wallet believe in a commit that does not span its entries, or show a unit that does not name itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ledger_client/json.h"
#include "services/wallet/tasks/ledger_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void judge(const struct ledger_answer *a, const struct ledger_result *r)
{
    struct wallet_said said;
    wallet_words_ingest(&said, a, r);
    for (size_t entries = 1; entries <= WALLET_UNIT_ENTRIES_MAX; entries++) {
        struct wallet_verdict v = wallet_words_verdict(&said, entries);
        if (v.kind == WALLET_V_COMMIT)
            CHECK(r && r->status == LEDGER_COMMITTED && r->seq_start > 0 &&
                  r->seq_end - r->seq_start + 1 == entries);
        if (v.kind == WALLET_V_REFUSE)
            CHECK(v.err != ERR_OK);
    }
}

static void unit(struct bytes body, struct arena *a)
{
    struct ledger_result r;
    struct wallet_rebuilt rebuilt;
    if (ledger_json_unit_result(body, a, &r) != ERR_OK || wallet_words_rebuild(&r, &rebuilt) != ERR_OK)
        return;
    /* It names itself: the request it is rebuilt to has its txid. */
    char text[WALLET_REQUEST_MAX], txid[WALLET_TXID_CHARS];
    struct buf canonical;
    buf_init_fixed(&canonical, text, sizeof text);
    wallet_request_canonical(&rebuilt.op, &canonical);
    CHECK(canonical.err == ERR_OK);
    wallet_txid(rebuilt.tenant, rebuilt.receipt.idem, buf_str(&canonical), txid);
    CHECK(strcmp(txid, rebuilt.receipt.txid) == 0 && str_eq_c(r.entries[0].id, txid));
}

static void results(struct bytes body, struct arena *a)
{
    const struct ledger_result *r = NULL;
    size_t n_results = 0;
    struct ledger_answer answered = {.outcome = LEDGER_ANSWERED, .status = 200};
    if (ledger_json_results(body, a, &r, &n_results) != ERR_OK)
        return;
    for (size_t i = 0; i < n_results; i++)
        judge(&answered, &r[i]);
}

static void problem(struct bytes body, struct arena *a)
{
    struct ledger_answer answer = {0};
    ledger_json_problem(body, 409, a, &answer);
    answer.outcome = LEDGER_REFUSED;
    judge(&answer, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct arena a;
    struct ledger_account_reply account;
    struct ledger_entries_reply entries;
    struct ledger_roots_reply roots;
    struct ledger_head_reply head;
    struct ledger_commit_event event;
    enum err e = ERR_OK;
    if (n == 0)
        return 0;
    struct bytes body = bytes_of(data + 1, n - 1);
    arena_init(&a, 4096, 1 << 20);
    switch (data[0] % 8) {
    case 0:
        results(body, &a);
        break;
    case 1:
        unit(body, &a);
        break;
    case 2:
        problem(body, &a);
        break;
    case 3:
        e = ledger_json_account(body, &a, &account);
        break;
    case 4:
        e = ledger_json_entry_list(body, &a, &entries);
        break;
    case 5:
        e = ledger_json_roots(body, &a, &roots);
        break;
    case 6:
        e = ledger_json_ready(body, &a, &head);
        break;
    default:
        e = ledger_json_event(body, &a, &event);
    }
    CHECK(e == ERR_OK || e == ERR_CORRUPT);
    arena_fini(&a);
    return 0;
}
