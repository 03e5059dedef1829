/* The wallet: money is issued and moves, a repeated request moves nothing twice, and nobody spends what is not there. */
#include <stdio.h>
#include <string.h>

#include "ron/demo/demo.h"

struct op {
    const char *path, *key;
    char body[512];
};

RT_BLOCKS
static bool perform(struct demo *d, int want, const struct op *op, struct client_answer *out)
{
    char key[96];
    snprintf(key, sizeof key, "Idempotency-Key: demo-%s-%s", d->run, op->key);
    return demo_call(d, "wallet", want,
                     &(struct client_request){.path = op->path, .body = op->body, .headers = {key}}, out);
}

RT_BLOCKS
static bool balance(struct demo *d, const char *account, char out[64])
{
    struct client_answer a;
    char path[160];
    snprintf(path, sizeof path, "/v1/balance?account=%s&asset=ron", account);
    if (!demo_call(d, "wallet", 200, &(struct client_request){.path = path}, &a))
        return false;
    snprintf(out, 64, "%s", client_str(a.json, "available"));
    client_free(&a);
    return true;
}

RT_BLOCKS
static bool claim_balance(struct demo *d, const char *account, const char *who, const char *want)
{
    char got[64];
    return balance(d, account, got) &&
           demo_claim(d, strcmp(got, want) == 0, "%s has %s ron (the wallet says %s)", who, want, got);
}

RT_BLOCKS
static bool issue(struct demo *d)
{
    struct op op = {.path = "/v1/issue", .key = "grant"};
    struct client_answer a;
    snprintf(op.body, sizeof op.body, "{\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"1000\"}", d->alice);
    if (!perform(d, 200, &op, &a))
        return false;
    bool ok = demo_claim(d, client_int(a.json, "seq") > 0,
                         "1000 ron were minted for %s: entry %lld of the ledger", d->alice,
                         client_int(a.json, "seq"));
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool transfer_twice(struct demo *d)
{
    struct op op = {.path = "/v1/transfer", .key = "order-1"};
    struct client_answer first, again;
    snprintf(op.body, sizeof op.body,
             "{\"from\":\"%s\",\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"250\",\"nonce\":1}", d->alice,
             d->shop);
    if (!perform(d, 200, &op, &first))
        return false;
    snprintf(d->txid, sizeof d->txid, "%s", client_str(first.json, "txid"));
    snprintf(d->receipt_root, sizeof d->receipt_root, "%s", client_str(first.json, "root"));
    bool ok =
        demo_claim(d, strncmp(d->txid, "tx_", 3) == 0, "250 ron went to the shop: receipt %s", d->txid);
    if (ok && perform(d, 200, &op, &again)) {
        bool same = first.body.n == again.body.n && memcmp(first.body.p, again.body.p, first.body.n) == 0;
        ok = demo_claim(d, same && strcmp(again.replayed, "true") == 0,
                        "the same request again returned the same %zu bytes, marked as a replay",
                        again.body.n) &&
             claim_balance(d, d->alice, "alice", "750") && claim_balance(d, d->shop, "the shop", "250");
        client_free(&again);
    } else
        ok = false;
    client_free(&first);
    return ok;
}

RT_BLOCKS
static bool reuse_key(struct demo *d)
{
    struct op op = {.path = "/v1/transfer", .key = "order-1"};
    struct client_answer a;
    snprintf(op.body, sizeof op.body,
             "{\"from\":\"%s\",\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"251\",\"nonce\":2}", d->alice,
             d->shop);
    if (!perform(d, 422, &op, &a))
        return false;
    bool ok = demo_claim(d, strcmp(client_str(a.json, "code"), "idempotency_mismatch") == 0,
                         "the same key with another amount was refused: %s", client_str(a.json, "code"));
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool overdraw(struct demo *d)
{
    struct op op = {.path = "/v1/transfer", .key = "order-2"};
    struct client_answer a;
    snprintf(op.body, sizeof op.body,
             "{\"from\":\"%s\",\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"5000\",\"nonce\":2}", d->alice,
             d->shop);
    if (!perform(d, 409, &op, &a))
        return false;
    bool ok = demo_claim(d, strcmp(client_str(a.json, "code"), "insufficient_funds") == 0,
                         "an overdraft of 5000 ron was refused: %s", client_str(a.json, "code"));
    client_free(&a);
    return ok && claim_balance(d, d->alice, "alice", "750");
}

RT_BLOCKS
static bool hold_and_capture(struct demo *d)
{
    struct op op = {.path = "/v1/hold", .key = "hold-1"};
    struct client_answer a;
    snprintf(op.body, sizeof op.body,
             "{\"from\":\"%s\",\"to\":\"%s\",\"asset\":\"ron\",\"amount\":\"100\",\"nonce\":2}", d->alice,
             d->shop);
    if (!perform(d, 200, &op, &a))
        return false;
    struct op capture = {.path = "/v1/capture", .key = "capture-1"};
    snprintf(capture.body, sizeof capture.body, "{\"hold\":\"%s\",\"amount\":\"60\"}",
             client_str(a.json, "txid"));
    client_free(&a);
    if (!claim_balance(d, d->alice, "while 100 are on hold alice", "650") || !perform(d, 200, &capture, &a))
        return false;
    bool ok = demo_claim(d, strcmp(client_str(a.json, "released"), "40") == 0,
                         "60 of the held 100 were captured, %s came back", client_str(a.json, "released"));
    client_free(&a);
    return ok && claim_balance(d, d->alice, "alice", "690") && claim_balance(d, d->shop, "the shop", "310");
}

void demo_money(struct demo *d)
{
    demo_chapter(d, "Money");
    if (issue(d) && transfer_twice(d) && reuse_key(d) && overdraw(d))
        hold_and_capture(d);
}
