/*
 * The body of a POST as arbitrary bytes, plain or gzip. What is accepted is within every limit, and its canonical form read
 * again is the same operation with the same canonical form: a request has one name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/http_inflate.h"
#include "services/wallet/api/body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { RATIO = 10, CAP = 1 << 20 };

static const struct wallet_body_limits limits = {255, INT64_C(7776000000)};

static size_t canonical(const struct wallet_op *op, char out[WALLET_REQUEST_MAX])
{
    struct buf b;
    buf_init_fixed(&b, out, WALLET_REQUEST_MAX);
    wallet_request_canonical(op, &b);
    CHECK(b.err == ERR_OK);
    return b.n;
}

static void check_limits(const struct wallet_op *op)
{
    CHECK(op->lane <= 255 && op->nonce <= WALLET_NONCE_MAX && op->memo.n <= WALLET_MEMO_MAX);
    CHECK(!wallet_kind_has_nonce(op->kind) || (op->nonce >= 1 && op->from.n >= 1));
    CHECK(!op->has_amount || !money_is_zero(op->amount));
    CHECK(!op->hold.p || wallet_is_txid(op->hold));
    CHECK(!op->has_expires_in || (op->expires_in_s >= 1 && op->expires_in_s <= 7776000));
}

static void read_plain(struct bytes body, enum wallet_kind kind, bool simulated)
{
    struct arena a;
    struct wallet_op op = {0}, again = {0};
    struct json_error why = {0};
    char first[WALLET_REQUEST_MAX], second[WALLET_REQUEST_MAX];
    arena_init(&a, 4096, 1 << 20);
    enum err e = wallet_body_read(body, kind, simulated, &limits, &a, &op, &why);
    CHECK(e == ERR_OK || (e == ERR_BAD_REQUEST && why.reason != JSON_OK));
    if (e == ERR_OK) {
        CHECK(simulated || op.kind == kind);
        check_limits(&op);
        size_t len = canonical(&op, first);
        /* The canonical form names its operation: it is what a simulation takes. */
        CHECK(wallet_body_read(bytes_of(first, len), kind, true, &limits, &a, &again, &why) == ERR_OK);
        CHECK(canonical(&again, second) == len && memcmp(first, second, len) == 0);
    }
    arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct net_inflater *z;
    uint8_t *plain;
    size_t plain_n;
    if (!z)
        CHECK(net_inflater_create(&z) == ERR_OK);
    if (n == 0)
        return 0;
    enum wallet_kind kind = (enum wallet_kind)(data[0] % WALLET_KIND_COUNT);
    bool simulated = data[0] & 0x40, zipped = data[0] & 0x80;
    struct bytes body = bytes_of(data + 1, n - 1);
    if (!zipped)
        read_plain(body, kind, simulated);
    else if (net_inflate(z, body, RATIO, CAP, &plain, &plain_n) == ERR_OK) {
        CHECK(plain_n <= CAP && plain_n <= body.n * RATIO);
        read_plain(bytes_of(plain, plain_n), kind, simulated);
        free(plain);
    }
    return 0;
}
