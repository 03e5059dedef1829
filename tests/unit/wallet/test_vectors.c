/* Names, receipts and meta of four operations, byte for byte (docs/formats/wallet.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hex.h"
#include "base/time_fmt.h"
#include "services/wallet/core/meta.h"
#include "services/wallet/core/receipt.h"

struct vector {
    const char *tenant, *key, *ts, *canonical, *txid, *receipt_hash, *meta;
    struct wallet_op op;
    struct wallet_receipt receipt;
    uint8_t meta_flags;
    const char *payee;
};

#define AMOUNT(n) .amount = {n}, .has_amount = true

static struct vector vectors[] = {
    {.tenant = "default",
     .key = "order-1001",
     .ts = "2026-03-02T09:30:00.123Z",
     .canonical = "{\"amount\":\"250000\",\"asset\":\"ron\",\"from\":\"acct:alice\",\"nonce\":42,\"op\":"
                  "\"transfer\","
                  "\"to\":\"acct:shop-7\"}",
     .txid = "tx_41892e7d297fbcbf28f2706a97637b40",
     .receipt_hash = "sha256:495d6bb9b65d3a6ac5154212ee6de6b4da517ca9e9520821ea6ea8a4c23ff094",
     .meta = "01000764656661756c740a6f726465722d313030310000",
     .op = {.kind = WALLET_TRANSFER,
            .from = STR_INIT("acct:alice"),
            .to = STR_INIT("acct:shop-7"),
            .asset = STR_INIT("ron"),
            AMOUNT(250000),
            .nonce = 42},
     .receipt = {.from = STR_INIT("acct:alice"), .to = STR_INIT("acct:shop-7"), .nonce = 42}},
    {.tenant = "t1",
     .key = "01JFA-ISSUE-KEY",
     .ts = "2026-03-02T09:30:00.124Z",
     .canonical = "{\"amount\":\"100000000000000000000\",\"asset\":\"ron\",\"memo\":\"grant \\\"spring\\\" "
                  "– 1\\\\2\","
                  "\"op\":\"issue\",\"to\":\"acct:alice\"}",
     .txid = "tx_48aa68d30faf7e135b9b51711f2aaeef",
     .receipt_hash = "sha256:d8a6080d3c54c5a05363714faefe5265c0ada973469048cd8e1b0bb59f9bb793",
     .meta = "01000274310f30314a46412d49535355452d4b4559166772616e742022737072696e672220e2809320315c3200",
     .op = {.kind = WALLET_ISSUE,
            .to = STR_INIT("acct:alice"),
            .asset = STR_INIT("ron"),
            AMOUNT((unsigned __int128)10000000000ULL * 10000000000ULL),
            .memo = STR_INIT("grant \"spring\" – 1\\2")},
     .receipt = {.to = STR_INIT("acct:alice"), .memo = STR_INIT("grant \"spring\" – 1\\2")}},
    {.tenant = "default",
     .key = "auth-77",
     .ts = "2026-03-02T09:30:00.123Z",
     .canonical =
         "{\"amount\":\"9900\",\"asset\":\"ron\",\"expires_in\":3600,\"from\":\"acct:alice\",\"lane\":3,"
         "\"nonce\":1,\"op\":\"hold\",\"to\":\"acct:shop-7\"}",
     .txid = "tx_1e5588f713605a32a3bba98a383db8f0",
     .receipt_hash = "sha256:9fb19604f389270946ba6606157c53f10322ce78c5568e7a8de3fb1684f7be37",
     .meta = "01010764656661756c7407617574682d3737000b616363743a73686f702d37",
     .meta_flags = WALLET_META_EXPIRES_IN,
     .payee = "acct:shop-7",
     .op = {.kind = WALLET_HOLD,
            .from = STR_INIT("acct:alice"),
            .to = STR_INIT("acct:shop-7"),
            .asset = STR_INIT("ron"),
            AMOUNT(9900),
            .nonce = 1,
            .lane = 3,
            .expires_in_s = 3600,
            .has_expires_in = true},
     .receipt = {.from = STR_INIT("acct:alice"),
                 .to = STR_INIT("acct:shop-7"),
                 .nonce = 1,
                 .lane = 3,
                 .expires_at_ms = 3600000}},
    {.tenant = "default",
     .key = "cap-77",
     .ts = "2026-03-02T09:31:00.123Z",
     .canonical =
         "{\"amount\":\"9000\",\"hold\":\"tx_1e5588f713605a32a3bba98a383db8f0\",\"op\":\"capture\"}",
     .txid = "tx_5792bc08261da560cd80e1d8302db1e8",
     .receipt_hash = "sha256:66157abe28a3a5f925889e661b60ba1aeb9d8627c9c26cf311adeb3ee7ea795a",
     .meta = "01020764656661756c74066361702d37370000",
     .meta_flags = WALLET_META_AMOUNT,
     .op = {.kind = WALLET_CAPTURE, AMOUNT(9000), .hold = STR_INIT("tx_1e5588f713605a32a3bba98a383db8f0")},
     .receipt = {.from = STR_INIT("acct:alice"),
                 .to = STR_INIT("acct:shop-7"),
                 .released = {900},
                 .hold = STR_INIT("tx_1e5588f713605a32a3bba98a383db8f0")}},
};

enum { COUNT = sizeof vectors / sizeof vectors[0] };

static void fill_receipt(struct vector *v)
{
    struct wallet_receipt *r = &v->receipt;
    wallet_txid(str_from_c(v->tenant), str_from_c(v->key), str_from_c(v->canonical), r->txid);
    assert_int_equal(time_parse_ms(str_from_c(v->ts), &r->ts_ms), ERR_OK);
    r->kind = v->op.kind;
    r->asset = STR("ron");
    r->amount = v->op.amount;
    r->idem = str_from_c(v->key);
    if (r->expires_at_ms)
        r->expires_at_ms = r->ts_ms + 3600000;
    wallet_receipt_seal(r);
}

static void canonical_requests_and_txids_match_the_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char room[WALLET_REQUEST_MAX], txid[WALLET_TXID_CHARS];
        struct buf b;
        buf_init_fixed(&b, room, sizeof room);
        wallet_request_canonical(&vectors[i].op, &b);
        assert_string_equal(buf_cstr(&b), vectors[i].canonical);
        wallet_txid(str_from_c(vectors[i].tenant), str_from_c(vectors[i].key), buf_str(&b), txid);
        assert_string_equal(txid, vectors[i].txid);
        assert_true(wallet_is_txid(str_from_c(txid)));
    }
}

static void the_idem_id_leaves_the_payload_out(void **state)
{
    (void)state;
    char id[WALLET_IDEM_ID_CHARS];
    wallet_idem_id(STR("default"), STR("order-1001"), id);
    assert_string_equal(id, "w:ac60743daef0fd66a60fc4085305efcbcbc71d0c52ad759998beea3d19ff28a8");
}

static void receipt_hashes_match_the_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char text[SHA256_TEXT_CHARS];
        fill_receipt(&vectors[i]);
        sha256_format(&vectors[i].receipt.receipt_hash, text);
        assert_string_equal(text, vectors[i].receipt_hash);
    }
}

static void a_whole_receipt_has_the_known_bytes(void **state)
{
    (void)state;
    char room[WALLET_RECEIPT_MAX], hex[65];
    struct buf b;
    struct sha256 hash;
    struct wallet_receipt *r = &vectors[0].receipt;
    fill_receipt(&vectors[0]);
    r->seq = r->tree_size = 1031;
    assert_int_equal(
        sha256_parse(STR("sha256:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"),
                     &r->root),
        ERR_OK);
    buf_init_fixed(&b, room, sizeof room);
    wallet_receipt_write(r, &b);
    assert_int_equal(b.n, 394);
    sha256_of(b.p, b.n, &hash);
    hex_encode(hash.b, 32, hex);
    assert_string_equal(hex, "06a73a46bfb56459b5cf5e83e2e868de332d046c56c7ed780890c6d5d6a29dab");
}

static struct wallet_meta meta_of(const struct vector *v)
{
    return (struct wallet_meta){.flags = v->meta_flags,
                                .tenant = str_from_c(v->tenant),
                                .key = str_from_c(v->key),
                                .memo = v->op.memo,
                                .payee = str_from_c(v->payee)};
}

static void meta_matches_the_vectors_and_reads_back(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        uint8_t bytes[WALLET_META_MAX];
        char hex[2 * WALLET_META_MAX + 1];
        struct wallet_meta in = meta_of(&vectors[i]), back;
        size_t n = wallet_meta_encode(&in, bytes);
        hex_encode(bytes, n, hex);
        assert_string_equal(hex, vectors[i].meta);
        assert_int_equal(wallet_meta_decode(bytes_of(bytes, n), &back), ERR_OK);
        assert_true(str_eq(back.key, in.key) && str_eq(back.memo, in.memo) && str_eq(back.payee, in.payee));
    }
}

static void meta_with_any_length_but_its_own_is_foreign(void **state)
{
    (void)state;
    uint8_t bytes[WALLET_META_MAX + 1] = {0};
    struct wallet_meta in = meta_of(&vectors[1]), back;
    size_t n = wallet_meta_encode(&in, bytes);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(wallet_meta_decode(bytes_of(bytes, cut), &back), ERR_CORRUPT);
    assert_int_equal(wallet_meta_decode(bytes_of(bytes, n + 1), &back), ERR_CORRUPT);
    bytes[0] = 2;
    assert_int_equal(wallet_meta_decode(bytes_of(bytes, n), &back), ERR_CORRUPT);
}

static void keys_are_the_same_bare_and_quoted(void **state)
{
    (void)state;
    struct str key;
    assert_int_equal(wallet_key_parse(STR("order-1"), &key), ERR_OK);
    assert_true(str_eq(key, STR("order-1")));
    assert_int_equal(wallet_key_parse(STR("\"order-1\""), &key), ERR_OK);
    assert_true(str_eq(key, STR("order-1")));
    assert_int_equal(wallet_key_parse(STR(""), &key), ERR_SYNTAX);
    assert_int_equal(wallet_key_parse(STR("\"\""), &key), ERR_SYNTAX);
    assert_int_equal(wallet_key_parse(STR("with space"), &key), ERR_SYNTAX);
    char long_key[WALLET_KEY_MAX + 1];
    memset(long_key, 'a', sizeof long_key);
    assert_int_equal(wallet_key_parse(str_of(long_key, WALLET_KEY_MAX), &key), ERR_OK);
    assert_int_equal(wallet_key_parse(str_of(long_key, WALLET_KEY_MAX + 1), &key), ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_requests_and_txids_match_the_vectors),
        cmocka_unit_test(the_idem_id_leaves_the_payload_out),
        cmocka_unit_test(receipt_hashes_match_the_vectors),
        cmocka_unit_test(a_whole_receipt_has_the_known_bytes),
        cmocka_unit_test(meta_matches_the_vectors_and_reads_back),
        cmocka_unit_test(meta_with_any_length_but_its_own_is_foreign),
        cmocka_unit_test(keys_are_the_same_bare_and_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
