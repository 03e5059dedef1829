/* The golden vectors of the reward formats, byte for byte: inputs, policy, split, tree, files, signature. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/money.h"
#include "services/rewarder/core/explain.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/snapshot.h"

#define V1_INPUT                                                                                           \
    "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"2026-W41\",\"dims\":[\"bytes_stored\",\"bytes_"    \
    "served\","                                                                                            \
    "\"uptime_seconds\"],\"count\":2}\n[\"acct:bob\",200,0,20]\n[\"acct:alice\",100,50,10]\n"
#define V1_POLICY                                                                                          \
    "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":\"pool:rewards\",\"id\":"       \
    "\"weekly\","                                                                                          \
    "\"min_payout\":\"1\",\"pool\":\"1000\",\"rounding\":\"largest_remainder\",\"tenants\":[\"default\"]," \
    "\"tie_break\":\"account_asc\",\"v\":1,\"weights\":[{\"den\":4,\"dim\":\"bytes_served\",\"num\":1},"   \
    "{\"den\":1,\"dim\":\"bytes_stored\",\"num\":1},{\"den\":1,\"dim\":\"uptime_seconds\",\"num\":1}]}"

struct run {
    struct rewarder_snapshot snap;
    struct rewarder_policy *policy;
    struct rewarder_calc *calc;
    struct rewarder_payouts table;
};

static struct bytes text(const char *s)
{
    return (struct bytes){(const uint8_t *)s, strlen(s)};
}

static void assert_hex(const void *p, size_t n, const char *hex)
{
    char got[2 * 64 + 1];
    assert_true(n <= 64);
    hex_encode(p, n, got);
    assert_string_equal(got, hex);
}

static struct run run_of(const char *input, const char *policy)
{
    struct run r;
    struct rewarder_snapshot_error why;
    const char *member;
    unsigned index;
    assert_int_equal(rewarder_snapshot_parse(text(input), REWARDER_NDJSON, 100, &r.snap, &why), ERR_OK);
    assert_int_equal(rewarder_policy_create(text(policy), &r.policy, &member), ERR_OK);
    assert_int_equal(rewarder_calc_create(&r.snap.rows, r.policy, r.policy->pool, 1024, &r.calc, &index),
                     ERR_OK);
    assert_int_equal(rewarder_calc_run(r.calc), ERR_OK);
    assert_int_equal(rewarder_payouts_open(rewarder_calc_file(r.calc), &r.table), ERR_OK);
    return r;
}

static void run_end(struct run *r)
{
    rewarder_payouts_close(&r->table);
    rewarder_calc_destroy(r->calc);
    rewarder_policy_destroy(r->policy);
    rewarder_snapshot_fini(&r->snap);
}

static void write_manifest(const struct run *r, struct buf *b)
{
    struct rewarder_manifest m = {
        .tenant = r->snap.rows.tenant,
        .epoch = r->snap.rows.epoch,
        .policy = r->policy,
        .rows = &r->snap.rows,
        .pool = {.declared = r->policy->pool},
        .result = rewarder_calc_result(r->calc),
    };
    rewarder_manifest_write(&m, b);
    assert_int_equal(b->err, ERR_OK);
}

static void assert_row(const struct run *r, const char *account, uint64_t amount, uint64_t rounded,
                       uint32_t rank, const char *why)
{
    uint64_t at;
    bool negative;
    assert_true(rewarder_payouts_find(&r->table, str_from_c(account), &at));
    struct rewarder_payout row = rewarder_payouts_row(&r->table, at);
    assert_true(row.amount == amount);
    assert_true(row.rounded == rounded);
    assert_int_equal(row.rank, rank);
    uint64_t cut = rewarder_explain_cut(&r->table, r->policy, &negative);
    assert_int_equal(cut, rewarder_calc_result(r->calc)->cut);
    assert_int_equal(negative, rewarder_calc_result(r->calc)->cut_negative);
    assert_string_equal(rewarder_explain(&r->table, r->policy, &row, negative).why, why);
}

static void v1_inputs_and_policy_have_their_known_digests(void **state)
{
    (void)state;
    struct run r = run_of(V1_INPUT, V1_POLICY);
    struct sha256 cid;
    sha256_of(V1_INPUT, strlen(V1_INPUT), &cid);
    assert_hex(cid.b, 32, "a49feb858ed0394f5c7891c66e8d2a50f73d24393b85799be06f40f08ef04438");
    assert_int_equal(r.snap.canonical_bytes, 144);
    assert_hex(r.snap.rows.digest.b, 32,
               "4136b7c13201e4eb91e8477a3cb6dcffcb4974789d176c54b02861a428301ed5");
    assert_string_equal(r.policy->canonical, V1_POLICY);
    assert_hex(r.policy->hash.b, 32, "8f41d1183732b502acfa7dd2011ad266cfff354fba9979d8a9601b6491bb95b8");
    struct sha256 key =
        rewarder_run_key(STR("default"), STR("2026-W41"), &r.policy->hash, &r.snap.rows.digest);
    assert_hex(key.b, 32, "e6004f27d90972ac9640bef03806ea9e73592f28fa6a6a7936cf7b8645c1864f");
    char unit[REWARDER_UNIT_ID_LEN + 1], entry[REWARDER_ENTRY_ID_LEN + 1];
    rewarder_unit_id(STR("default"), STR("2026-W41"), &key, 0, unit);
    assert_string_equal(unit, "r:9a8eb26da32b62904551cd00afa9a3ea");
    rewarder_entry_id(STR("default"), STR("2026-W41"), STR("acct:alice"), entry);
    assert_string_equal(entry, "rw_364891df997e0d8887d41b567d36950b");
    rewarder_entry_id(STR("default"), STR("2026-W41"), STR("acct:bob"), entry);
    assert_string_equal(entry, "rw_6887fe7d4cf0b349f399613e13173d74");
    assert_true(rewarder_lane_nonce(65280, 1) == 18374686479671623681u);
    run_end(&r);
}

static void v1_split_tree_and_table_are_the_known_bytes(void **state)
{
    (void)state;
    struct run r = run_of(V1_INPUT, V1_POLICY);
    const struct rewarder_result *res = rewarder_calc_result(r.calc);
    assert_row(&r, "acct:alice", 358, 358, 1, "rounded_up");
    assert_row(&r, "acct:bob", 642, 642, 2, "rounded_down");
    assert_true(res->score_total == 1370 && res->dust == 0 && res->cut == 1 && res->leaves == 2);
    struct rewarder_payout alice = rewarder_payouts_row(&r.table, 0);
    struct rewarder_explanation x = rewarder_explain(&r.table, r.policy, &alice, false);
    assert_true(x.score == 490 && x.floor == 357 && x.remainder == 910);
    struct rewarder_node leaf = rewarder_leaf((struct bytes){NULL, 0}, STR("acct:alice"), 358);
    assert_hex(leaf.hash.b, 32, "12f02eaeb12847f19b44cc1651ff66b4427aa7c2be3de43d4f41a47cfb004dc1");
    leaf = rewarder_leaf((struct bytes){NULL, 0}, STR("acct:bob"), 642);
    assert_hex(leaf.hash.b, 32, "050f6bc48cd0a35037343d3fb8307c86560e9e8fe688357d942d1772da1de6a5");
    assert_hex(res->root.hash.b, 32, "7663ec9a4fc8a7ef6e1519a46c2236e6994f07e83d8dbad774214ff6a75359b0");
    assert_true(res->root.sum == 1000);
    assert_int_equal(rewarder_calc_file(r.calc).n, 418);
    assert_hex(res->file_hash.b, 32, "25044da17786fdd5a37382e6664f4e9c7a6a20948d261aa4bdef221fa6317352");
    run_end(&r);
}

static void v1_manifest_is_1125_known_bytes_and_its_signature_is_known(void **state)
{
    (void)state;
    static const char seed_hex[] = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    struct run r = run_of(V1_INPUT, V1_POLICY);
    struct buf b;
    buf_init(&b, 1 << 16);
    write_manifest(&r, &b);
    assert_int_equal(b.n, 1125);
    struct sha256 h;
    sha256_of(b.p, b.n, &h);
    assert_hex(h.b, 32, "c6b9027364183b8b725902dee706c70d795e3309c6020779fc0970069258775e");

    uint8_t seed[32], pub[32], sig[64];
    char kid[REWARDER_KID_LEN + 1];
    assert_int_equal(hex_decode(str_from_c(seed_hex), seed, 32), ERR_OK);
    struct ed25519_key *key = ed25519_key_from_seed(seed);
    ed25519_public(key, pub);
    rewarder_kid(pub, kid);
    assert_string_equal(kid, "21fe31dfa154a261");
    assert_int_equal(ed25519_sign(key, buf_bytes(&b), sig), ERR_OK);
    assert_hex(sig, 32, "d63386f47d4d5d1ee0b4d8f36bdbcdba54e7382c0722ebf87875e8ba0c33df20");
    assert_hex(sig + 32, 32, "21a4eb49805c4348f6cb47085dc8c6dccee52c53e39ecdbb4fa73aca1b6bfe03");
    ed25519_key_destroy(key);
    buf_fini(&b);
    run_end(&r);
}

static void a_cap_sends_the_rest_to_the_dust_account(void **state)
{
    (void)state;
    static const char policy[] =
        "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":\"pool:rewards\",\"id\":"
        "\"weekly\","
        "\"max_payout\":\"600\",\"pool\":\"1000\",\"rounding\":\"largest_remainder\",\"v\":1,\"weights\":["
        "{\"den\":8,\"dim\":\"bytes_served\",\"num\":2},{\"den\":1,\"dim\":\"uptime_seconds\",\"num\":1},"
        "{\"den\":1,\"dim\":\"bytes_stored\",\"num\":1}]}";
    struct run r = run_of(V1_INPUT, policy);
    assert_row(&r, "acct:alice", 358, 358, 1, "rounded_up");
    assert_row(&r, "acct:bob", 600, 642, 2, "capped");
    assert_row(&r, "pool:dust", 42, 42, 0, "dust");
    assert_true(rewarder_calc_result(r.calc)->dust == 42);
    assert_true(rewarder_calc_result(r.calc)->root.sum == 1000);
    run_end(&r);
}

static void v2_floor_with_dust_and_salt_gives_the_known_proof(void **state)
{
    (void)state;
    static const char input[] =
        "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e2\",\"dims\":[\"points\"],\"count\":3,"
        "\"salt\":\"000102030405060708090a0b0c0d0e0f\"}\n[\"acct:c\",1]\n[\"acct:a\",1]\n[\"acct:b\",1]\n";
    static const char policy[] = "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":"
                                 "\"pool:rewards\",\"id\":\"thirds\","
                                 "\"pool\":\"100\",\"rounding\":\"floor\",\"v\":1,\"weights\":[{\"den\":1,"
                                 "\"dim\":\"points\",\"num\":1}]}";
    struct run r = run_of(input, policy);
    assert_hex(r.snap.rows.digest.b, 32,
               "83690f9c89bb37b8d3d99df4ff5f32e1367a13b654a5aab9ae342fab12864246");
    assert_hex(r.policy->hash.b, 32, "2b677bf3670103d6086ce4104f96a9c04c7460a8d0efbdfb3ae92443579d2058");
    struct sha256 key = rewarder_run_key(STR("default"), STR("e2"), &r.policy->hash, &r.snap.rows.digest);
    assert_hex(key.b, 32, "18b1a38eec5e42f4c7ce89a9512100ee51b69c6793975974d8117b95c5938ea3");
    struct buf b;
    buf_init(&b, 1 << 16);
    write_manifest(&r, &b);
    assert_int_equal(b.n, 974);
    struct sha256 h;
    sha256_of(b.p, b.n, &h);
    assert_hex(h.b, 32, "358f22d75f2a500b9afb1dd4beecf5021fd7e14fec4db1d28088089fef27a5b6");
    buf_fini(&b);

    const struct rewarder_result *res = rewarder_calc_result(r.calc);
    assert_hex(res->root.hash.b, 32, "27f12ea994ded045b1966fcfcf3cf3bf78d715657c4be79db0e68cab8edebd2e");
    assert_true(res->root.sum == 100 && res->leaves == 4);
    struct rewarder_salter salter;
    uint8_t salt[REWARDER_LEAF_SALT_BYTES];
    rewarder_salter_init(&salter, r.snap.rows.salt);
    assert_int_equal(rewarder_leaf_salt(&salter, STR("acct:c"), salt), 16);
    assert_hex(salt, 16, "a553c775e624bff353a5cf0e4ecd95ae");
    struct rewarder_node leaf = rewarder_leaf((struct bytes){salt, 16}, STR("acct:c"), 33);
    assert_hex(leaf.hash.b, 32, "51557633c0caf76a9d36524c15956850def7717bb15d139bbf91a89e59a8ba76");

    uint64_t row;
    struct rewarder_proof proof;
    assert_true(rewarder_payouts_find(&r.table, STR("acct:c"), &row));
    rewarder_payouts_prove(&r.table, rewarder_calc_tree(r.calc), row, &proof);
    assert_true(proof.index == 2 && proof.count == 4 && proof.steps == 2);
    assert_false(proof.step[0].left);
    assert_true(proof.step[1].left);
    assert_hex(proof.step[0].node.hash.b, 32,
               "f6cca4a749e084b6ff2cfca51673a633ee4c02c0474abe6fbdf12a4d9c48defb");
    assert_hex(proof.step[1].node.hash.b, 32,
               "c0358365ca313f3b6b4ef68b5a642ed78a05c1b5ea95618e450b3b88ec28756e");
    assert_true(proof.step[0].node.sum == 1 && proof.step[1].node.sum == 66);
    assert_int_equal(rewarder_proof_check(&proof, &leaf, &res->root), ERR_OK);
    proof.step[1].node.sum = 65;
    assert_int_equal(rewarder_proof_check(&proof, &leaf, &res->root), ERR_CORRUPT);
    run_end(&r);
}

struct method_case {
    const char *rounding;
    uint64_t scores[3], pool, amounts[3], dust;
    uint32_t ranks[3];
    const char *root;
};

static void v3_each_method_gives_the_known_amounts_and_ranks(void **state)
{
    (void)state;
    static const struct method_case cases[] = {
        {"floor", {53, 24, 23}, 10, {5, 2, 2}, 1, {0, 0, 0}, NULL},
        {"largest_remainder", {53, 24, 23}, 10, {5, 3, 2}, 0, {2, 1, 3}, NULL},
        {"webster",
         {53, 24, 23},
         10,
         {6, 2, 2},
         0,
         {1, 0, 0},
         "f0e6d803ca926ea56ba0edf77e0fb986227380d4b0f632896949332130f3f2a7"},
        {"floor", {7, 7, 18}, 3, {0, 0, 1}, 2, {0, 0, 0}, NULL},
        {"largest_remainder", {7, 7, 18}, 3, {1, 0, 2}, 0, {2, 3, 1}, NULL},
        {"webster",
         {7, 7, 18},
         3,
         {1, 1, 1},
         0,
         {0, 0, 1},
         "96d9e7c3f2c786407dc866bbd4c410a048b1ddc969eb9c0b0e576f0e3fb2724e"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct method_case *k = &cases[i];
        struct buf in, pol;
        buf_init(&in, 4096);
        buf_init(&pol, 4096);
        buf_puts(
            &in,
            "{\"snapshot\":1,\"tenant\":\"default\",\"epoch\":\"e3\",\"dims\":[\"points\"],\"count\":3}\n");
        for (int a = 0; a < 3; a++)
            buf_printf(&in, "[\"acct:%c\",%u]\n", 'a' + a, (unsigned)k->scores[a]);
        buf_printf(&pol,
                   "{\"asset\":\"ron\",\"dust_account\":\"pool:dust\",\"funding_account\":\"pool:rewards\","
                   "\"id\":\"m\",\"pool\":\"%u\",\"rounding\":\"%s\",\"v\":1,\"weights\":[{\"den\":1,"
                   "\"dim\":\"points\",\"num\":1}]}",
                   (unsigned)k->pool, k->rounding);
        struct run r = run_of(buf_cstr(&in), buf_cstr(&pol));
        for (uint64_t a = 0; a < 3; a++) {
            struct rewarder_payout row = rewarder_payouts_row(&r.table, a);
            assert_true(row.amount == k->amounts[a]);
            assert_int_equal(row.rank, k->ranks[a]);
        }
        const struct rewarder_result *res = rewarder_calc_result(r.calc);
        assert_true(res->dust == k->dust);
        if (k->root)
            assert_hex(res->root.hash.b, 32, k->root);
        run_end(&r);
        buf_fini(&in);
        buf_fini(&pol);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v1_inputs_and_policy_have_their_known_digests),
        cmocka_unit_test(v1_split_tree_and_table_are_the_known_bytes),
        cmocka_unit_test(v1_manifest_is_1125_known_bytes_and_its_signature_is_known),
        cmocka_unit_test(a_cap_sends_the_rest_to_the_dust_account),
        cmocka_unit_test(v2_floor_with_dust_and_salt_gives_the_known_proof),
        cmocka_unit_test(v3_each_method_gives_the_known_amounts_and_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
