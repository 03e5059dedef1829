/*
 * The rewarder: usage of three people becomes pay-outs that add up to the last unit, settled into the ledger, each with a
 * proof. The proof is recomputed here from its definition (docs/formats), not with the service's code:
 *
 *   leaf = SHA-256(0x00 | len salt | salt | len account | account | amount as 16 bytes)                 sum = amount
 *   node = SHA-256(0x01 | left hash | left sum | right hash | right sum)                                sum = left + right
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "ron/demo/demo.h"

enum { PEOPLE = 3, POOL = 1001, SALT_MAX = 64 };

static const char *const names[PEOPLE] = {"ada", "bob", "cy"};
static const int points[PEOPLE] = {3, 2, 2};

struct sum_hash {
    struct sha256 hash;
    uint64_t sum; /* the demo's pool is small; the format has 16 bytes */
};

static void put_sum(uint8_t out[16], uint64_t sum)
{
    memset(out, 0, 8);
    be64_put(out + 8, sum);
}

static bool leaf_of(const json_t *payout, const json_t *proof, struct sum_hash *out)
{
    const char *account = client_str(payout, "account"), *salt = client_str(proof, "salt");
    uint8_t salt_bytes[SALT_MAX], amount[16], salt_n = (uint8_t)(strlen(salt) / 2),
                                              account_n = (uint8_t)strlen(account);
    if (strlen(salt) > sizeof salt_bytes * 2 || hex_decode(str_from_c(salt), salt_bytes, salt_n) != ERR_OK)
        return false;
    out->sum = strtoull(client_str(payout, "amount"), NULL, 10);
    put_sum(amount, out->sum);
    sha256_of_parts((struct bytes[]){bytes_of("\0", 1), bytes_of(&salt_n, 1), bytes_of(salt_bytes, salt_n),
                                     bytes_of(&account_n, 1), bytes_of(account, account_n),
                                     bytes_of(amount, sizeof amount)},
                    6, &out->hash);
    return true;
}

static void join(struct sum_hash *at, const struct sum_hash *left, const struct sum_hash *right)
{
    uint8_t l[16], r[16];
    struct sha256 hash;
    put_sum(l, left->sum);
    put_sum(r, right->sum);
    sha256_of_parts((struct bytes[]){bytes_of("\1", 1), bytes_of(left->hash.b, 32), bytes_of(l, 16),
                                     bytes_of(right->hash.b, 32), bytes_of(r, 16)},
                    5, &hash);
    *at = (struct sum_hash){hash, left->sum + right->sum};
}

static bool proof_holds(const json_t *payout, const char *root, uint64_t pool)
{
    const json_t *proof = json_object_get(payout, "proof");
    struct sum_hash at;
    char text[SHA256_TEXT_CHARS];
    size_t i;
    json_t *step;
    if (!proof || !leaf_of(payout, proof, &at))
        return false;
    json_array_foreach(json_object_get(proof, "path"), i, step)
    {
        struct sum_hash other = {.sum = strtoull(client_str(step, "sum"), NULL, 10)};
        if (sha256_parse(str_from_c(client_str(step, "hash")), &other.hash) != ERR_OK)
            return false;
        bool right = strcmp(client_str(step, "side"), "right") == 0;
        struct sum_hash here = at;
        join(&at, right ? &here : &other, right ? &other : &here);
    }
    sha256_format(&at.hash, text);
    return strcmp(text, root) == 0 && at.sum == pool;
}

RT_BLOCKS
static bool fund(struct demo *d)
{
    struct client_answer a;
    char key[96], body[128];
    snprintf(key, sizeof key, "Idempotency-Key: demo-%s-pool", d->run);
    snprintf(body, sizeof body, "{\"to\":\"pool:rewards\",\"asset\":\"ron\",\"amount\":\"%d\"}", POOL);
    if (!demo_call(d, "wallet", 200,
                   &(struct client_request){.path = "/v1/issue", .body = body, .headers = {key}}, &a))
        return false;
    client_free(&a);
    return true;
}

RT_BLOCKS
static bool upload(struct demo *d, const char *epoch, char cid[80])
{
    struct client_answer a;
    char body[512];
    int n = snprintf(body, sizeof body,
                     "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"%s\",\"dims\":[\"points\"],"
                     "\"count\":%d,\"rows\":[",
                     epoch, PEOPLE);
    for (int i = 0; i < PEOPLE; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "%s[\"demo:%s:%s\",%d]", i ? "," : "", d->run,
                      names[i], points[i]);
    snprintf(body + n, sizeof body - (size_t)n, "]}");
    if (!demo_call(d, "rewarder", 201,
                   &(struct client_request){.method = "PUT", .path = "/rewarder/inputs", .body = body}, &a))
        return false;
    struct sha256 hash;
    char text[SHA256_TEXT_CHARS];
    sha256_of(body, strlen(body), &hash);
    sha256_format(&hash, text);
    snprintf(cid, 80, "%s", client_str(a.json, "cid"));
    bool ok = demo_claim(d, strcmp(cid, text) == 0 && client_int(a.json, "rows") == PEOPLE,
                         "the usage of %d people is sealed under its hash: %.20s...", PEOPLE, cid);
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool settle(struct demo *d, const char *epoch, const char *cid, char root[80], uint64_t *out_pool)
{
    static const char *const over[] = {"settled", "held", "quarantined", "failed", NULL};
    struct client_answer a;
    char path[160], body[192];
    snprintf(path, sizeof path, "/rewarder/epochs/%s/compute", epoch);
    snprintf(body, sizeof body, "{\"inputs_cid\":\"%s\",\"policy_id\":\"default\"}", cid);
    if (!demo_call(d, "rewarder", 202, &(struct client_request){.path = path, .body = body}, &a))
        return false;
    client_free(&a);
    snprintf(path, sizeof path, "/rewarder/epochs/%s", epoch);
    if (!demo_until(d, "rewarder", path, "state", over, &a))
        return false;
    const json_t *manifest = json_object_get(a.json, "manifest"),
                 *totals = json_object_get(manifest, "totals");
    const char *amount = client_str(json_object_get(manifest, "pool"), "amount");
    unsigned long long paid = strtoull(client_str(totals, "payouts"), NULL, 10),
                       dust = strtoull(client_str(totals, "dust"), NULL, 10);
    *out_pool = strtoull(amount, NULL, 10);
    snprintf(root, 80, "%s", client_str(json_object_get(manifest, "commitment"), "root"));
    bool ok = demo_claim(d, strcmp(client_str(a.json, "state"), "settled") == 0,
                         "the epoch is %s in the ledger", client_str(a.json, "state")) &&
              demo_claim(d, *out_pool >= POOL && paid + dust == *out_pool,
                         "pay-outs %llu + dust %llu = the pool of %s, to the unit", paid, dust, amount);
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool paid_and_proven(struct demo *d, const char *epoch, const char *root, uint64_t pool)
{
    uint64_t total = 0;
    for (int i = 0; i < PEOPLE; i++) {
        struct client_answer payout, account;
        char path[256];
        snprintf(path, sizeof path, "/rewarder/epochs/%s/payouts?account=demo:%s:%s", epoch, d->run,
                 names[i]);
        if (!demo_call(d, "rewarder", 200, &(struct client_request){.path = path}, &payout))
            return false;
        snprintf(path, sizeof path, "/v1/accounts/demo:%s:%s", d->run, names[i]);
        if (!demo_call(d, "ledger", 200, &(struct client_request){.path = path}, &account)) {
            client_free(&payout);
            return false;
        }
        const json_t *row = json_array_get(json_object_get(account.json, "balances"), 0);
        const char *amount = client_str(payout.json, "amount");
        total += strtoull(amount, NULL, 10);
        bool ok = demo_claim(d,
                             *amount && strcmp(client_str(row, "available"), amount) == 0 &&
                                 proof_holds(payout.json, root, pool),
                             "%s got %s for %d points: paid, and proven part of the signed %" PRIu64,
                             names[i], amount, points[i], pool);
        client_free(&account);
        client_free(&payout);
        if (!ok)
            return false;
    }
    return demo_claim(d, total <= pool, "together they got %" PRIu64 ", never more than there was", total);
}

void demo_rewards(struct demo *d)
{
    char epoch[64], cid[80], root[80];
    uint64_t pool;
    demo_chapter(d, "Rewards");
    snprintf(epoch, sizeof epoch, "demo-%s", d->run);
    if (fund(d) && upload(d, epoch, cid) && settle(d, epoch, cid, root, &pool))
        paid_and_proven(d, epoch, root, pool);
}
