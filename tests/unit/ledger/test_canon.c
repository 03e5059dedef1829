/* The golden vectors: canonical bytes, hashes, keys, roots, proofs, note, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "services/ledger/core/merkle.h"
#include "services/ledger/core/note.h"
#include "services/ledger/core/record.h"
#include "store/frame.h"

static struct core_entry mint_entry(void)
{
    return (struct core_entry){.id = STR("demo-1"),
                               .ts = 1760000000000,
                               .kind = CORE_MINT,
                               .account = STR("acct:alice"),
                               .asset = STR("ron"),
                               .amount = {1000}};
}

static struct core_entry pay_entry(void)
{
    return (struct core_entry){.id = STR("demo-2"),
                               .ts = 1760000000500,
                               .kind = CORE_TRANSFER,
                               .account = STR("acct:alice"),
                               .to = STR("acct:shop"),
                               .asset = STR("ron"),
                               .amount = {250},
                               .nonce = 1};
}

static struct core_entry hold_entry(void)
{
    return (struct core_entry){.id = STR("demo-3"),
                               .ts = 1760000001000,
                               .kind = CORE_HOLD,
                               .account = STR("acct:alice"),
                               .asset = STR("ron"),
                               .amount = {100},
                               .nonce = 281474976710657,
                               .hold_until = 1760000600000};
}

static const struct core_caller caller = {STR_INIT("k1"), {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77}};

struct built {
    struct core_entry entry;
    struct core_unit unit;
    struct core_prepared p;
    struct core_prepared_entry pe[1];
    uint8_t record[4096];
};

static void build(struct built *b, struct core_entry e, struct str idem, struct str meta)
{
    b->entry = e;
    b->unit = (struct core_unit){idem, meta, 0, &b->entry, 1};
    b->p.record = b->record;
    b->p.entries = b->pe;
    assert_true(ledger_record_bound(&b->unit, &caller) <= sizeof b->record);
    ledger_record_build(&b->unit, &caller, false, &b->p);
    assert_true(b->p.len <= ledger_record_bound(&b->unit, &caller));
}

static void is_hex(const void *p, size_t n, const char *hex)
{
    char text[129];
    hex_encode(p, n, text);
    assert_string_equal(text, hex);
}

static void a_mint_has_the_published_fingerprint_envelope_leaf_and_hash(void **state)
{
    (void)state;
    struct built b;
    build(&b, mint_entry(), STR("demo:mint:1"), (struct str){NULL, 0});
    is_hex(b.p.fp.b, 32, "c0966dba37c52a88fa3280894d8deaa9c47b5d5d8b3e67fba74db43ec3bcbba7");
    char envelope[CANON_ENVELOPE_MAX];
    size_t n = ledger_canon_envelope(&b.unit, &caller, &b.p.fp, envelope);
    const char *expect = "{\"cap\":\"0011223344556677\",\"fp\":\"sha256:"
                         "c0966dba37c52a88fa3280894d8deaa9c47b5d5d8b3e67fba74db43ec3bcbba7\","
                         "\"idem_id\":\"demo:mint:1\",\"kid\":\"k1\",\"n\":1}";
    assert_int_equal(n, strlen(expect));
    assert_memory_equal(envelope, expect, n);
    const char *leaf =
        "{\"account\":\"acct:alice\",\"amount\":\"1000\",\"asset\":\"ron\",\"id\":\"demo-1\",\"kind\":"
        "\"mint\",\"ts\":1760000000000,"
        "\"unit\":\"sha256:285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}";
    assert_int_equal(b.pe[0].leaf_len, 188);
    assert_memory_equal(b.record + b.pe[0].leaf_at, leaf, 188);
    is_hex(b.pe[0].leaf_hash.b, 32, "bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06");
    assert_int_equal(b.p.len, 255); /* the payload of frame 1 */
}

static void a_transfer_has_the_published_hashes_and_index_keys(void **state)
{
    (void)state;
    struct built b;
    build(&b, pay_entry(), STR("demo:pay:1"), (struct str){NULL, 0});
    assert_int_equal(b.pe[0].leaf_len, 220);
    is_hex(b.p.fp.b, 32, "bfe141d1e710c45828f5264abb7cb403427719101478d1d1df19cfefe19de8cd");
    is_hex(b.p.unit.b, 32, "8394f14fbf5c1b66b5659f2f682b0976f863db631242581f8e28e939a48d5ce0");
    is_hex(b.pe[0].leaf_hash.b, 32, "15099fff46667d20d0709fa9f523a3f1e7443ce7eb20ec38ee187f96252f9437");
    is_hex(&b.p.idem_key, 16, "e647469469ef3ccd832dec09cfa6ee01");
    is_hex(&b.pe[0].id_key, 16, "5e308767272b98f92500341bc6411308");
}

static void a_unit_without_name_is_named_after_its_tuple(void **state)
{
    (void)state;
    struct core_entry e = pay_entry();
    struct core_unit u = {{NULL, 0}, {NULL, 0}, 0, &e, 1};
    char id[CANON_TUPLE_ID];
    ledger_canon_tuple_id(&u, id);
    assert_memory_equal(id, "_t:91b9faa5d110e41413a96b4dc79c25807ee0297bbafd48d174a0b67bae810d00",
                        CANON_TUPLE_ID);
}

struct tree {
    struct sha256 level[3][4];
};

static void tree_put(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    ((struct tree *)ctx)->level[level][index] = *h;
}

static enum err tree_get(void *ctx, unsigned level, uint64_t index, struct sha256 *out)
{
    *out = ((struct tree *)ctx)->level[level][index];
    return ERR_OK;
}

static void three_entries_have_the_published_roots_proofs_and_note(void **state)
{
    (void)state;
    struct built a, b, c;
    build(&a, mint_entry(), STR("demo:mint:1"), (struct str){NULL, 0});
    build(&b, pay_entry(), STR("demo:pay:1"), (struct str){NULL, 0});
    build(&c, hold_entry(), STR("demo:hold:1"), STR("aGVsbG8="));
    assert_int_equal(c.pe[0].leaf_len, 240);
    assert_int_equal(b.p.len + c.p.len, 601); /* the payload of frame 2 */
    is_hex(c.p.fp.b, 32, "33ba7434387d3bb7a08f5129331ca2d2d12e615d9e3013d33b0bdaeeb5d3f315");
    is_hex(c.p.unit.b, 32, "bac70ea7fcd26764b4626f6385a5ec23c7d5d35d642f4ca0f4b71088f6e4ad2b");
    is_hex(c.pe[0].leaf_hash.b, 32, "1368ab84fa39820ab0317c67063b870b18c01b7cb39b72f88bee8e80b3bbe05d");

    struct tree t;
    struct ledger_node_sink sink = {tree_put, &t};
    struct ledger_node_source src = {tree_get, &t};
    struct ledger_frontier f;
    struct sha256 root;
    ledger_frontier_init(&f);
    ledger_frontier_append(&f, &a.pe[0].leaf_hash, &sink);
    ledger_frontier_root(&f, &root);
    is_hex(root.b, 32, "bc059994155caf5c5c994872c71c4be72640fcb1b2901d0d389372bd67321f06");
    ledger_frontier_append(&f, &b.pe[0].leaf_hash, &sink);
    ledger_frontier_root(&f, &root);
    is_hex(root.b, 32, "67540ad3b57b4bc6001f76f052e5f2c4f777b60a156eded64246bcca2fd6fac1");
    ledger_frontier_append(&f, &c.pe[0].leaf_hash, &sink);
    ledger_frontier_root(&f, &root);
    is_hex(root.b, 32, "5b47952d6d560d938edb107a7980f1f3b6c9b7d3f6c43c20d4252dd21cb7185e");

    struct sha256 path[MERKLE_PATH_MAX];
    size_t n;
    assert_int_equal(ledger_merkle_consistency(&src, 2, 3, path, &n), ERR_OK);
    assert_int_equal(n, 1);
    assert_true(sha256_eq(&path[0], &c.pe[0].leaf_hash));
    assert_int_equal(ledger_merkle_inclusion(&src, 0, 3, path, &n), ERR_OK);
    assert_int_equal(n, 2);
    assert_true(sha256_eq(&path[0], &b.pe[0].leaf_hash));
    assert_true(sha256_eq(&path[1], &c.pe[0].leaf_hash));

    uint8_t seed[32];
    for (unsigned i = 0; i < 32; i++)
        seed[i] = (uint8_t)i;
    struct ledger_signer *s = ledger_signer_create(STR("example.com/ron-ledger"), seed);
    char note[NOTE_MAX], vkey[NOTE_VKEY_MAX], secret[NOTE_VKEY_MAX + 16];
    assert_int_equal(ledger_note_sign(s, 3, &root, note, &n), ERR_OK);
    assert_int_equal(n, 191);
    const char *expect =
        "example.com/ron-ledger\n3\nW0eVLW1WDZOO2xB6eYDx87bJt9P2xDwg1CUt0hy3GF4=\n\n"
        "\xe2\x80\x94 example.com/ron-ledger "
        "AjugIiW8zSjALpy5KlFVTOnVqeUVxGN2lbf5CeNMs8ggWp1fPEGe20GIY8dfUVCVRAM1rl1vbjOkatLROWqdiuppSQE=\n";
    assert_memory_equal(note, expect, n);
    ledger_signer_vkey(s, vkey);
    assert_string_equal(vkey,
                        "example.com/ron-ledger+023ba022+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4");
    struct ledger_note opened;
    assert_int_equal(ledger_note_open(str_of(note, n), str_from_c(vkey), &opened), ERR_OK);
    assert_int_equal(opened.size, 3);
    assert_true(sha256_eq(&opened.root, &root));
    for (size_t i = 0; i < n; i++) { /* no character of it may differ */
        note[i] ^= 1;
        assert_int_not_equal(ledger_note_open(str_of(note, n), str_from_c(vkey), &opened), ERR_OK);
        note[i] ^= 1;
    }
    size_t len = ledger_signer_secret(STR("example.com/ron-ledger"), seed, secret);
    struct ledger_signer *again = NULL;
    assert_int_equal(ledger_signer_open(str_of(secret, len), &again), ERR_OK);
    char vkey2[NOTE_VKEY_MAX];
    ledger_signer_vkey(again, vkey2);
    assert_string_equal(vkey, vkey2);
    ledger_signer_destroy(again);
    ledger_signer_destroy(s);
}

static void two_groups_have_the_published_frames(void **state)
{
    (void)state;
    struct built b[3];
    build(&b[0], mint_entry(), STR("demo:mint:1"), (struct str){NULL, 0});
    build(&b[1], pay_entry(), STR("demo:pay:1"), (struct str){NULL, 0});
    build(&b[2], hold_entry(), STR("demo:hold:1"), STR("aGVsbG8="));
    struct store_layout layout = {.align = 4096, .segment_bytes = 64 << 20};
    struct ledger_frontier f;
    struct sha256 hash;
    static uint8_t out[8192];
    struct bytes parts[3];
    struct store_frame frame = {
        .group_no = 1, .first_seq = 1, .count = 1, .count2 = 1, .ms = 1760000000123, .epoch = 1};
    for (int i = 0; i < 3; i++)
        parts[i] = bytes_of(b[i].record, b[i].p.len);
    ledger_frontier_init(&f);
    ledger_frontier_root(&f, &frame.prev_root);
    ledger_frontier_append(&f, &b[0].pe[0].leaf_hash, NULL);
    ledger_frontier_root(&f, &frame.new_root);
    uint32_t len = store_frame_len(&layout, 255);
    store_frame_encode(&layout, &frame, parts, 1, out);
    sha256_of(out, len, &hash);
    is_hex(hash.b, 32, "67c73d220bc8dabaf0d6bf2d8b45cf4467229cd9730c6a9f9d57ff3a9414d446");
    is_hex(out + 120, 4, "5011d91d");
    is_hex(out + len - 16, 16, "0100000000000000c8116eed524c4645");
    frame = (struct store_frame){.group_no = 2,
                                 .first_seq = 2,
                                 .count = 2,
                                 .count2 = 2,
                                 .ms = 1760000001234,
                                 .epoch = 1,
                                 .prev_root = frame.new_root};
    ledger_frontier_append(&f, &b[1].pe[0].leaf_hash, NULL);
    ledger_frontier_append(&f, &b[2].pe[0].leaf_hash, NULL);
    ledger_frontier_root(&f, &frame.new_root);
    len = store_frame_len(&layout, 601);
    store_frame_encode(&layout, &frame, parts + 1, 2, out);
    sha256_of(out, len, &hash);
    is_hex(hash.b, 32, "6bb9ef486ce510a5f3f91f2daa3b780ee79ebe908ea9d2c345c3c068282ecf12");
    is_hex(out + 120, 4, "5bacad2c");
    is_hex(out + len - 16, 16, "0200000000000000c8a86ea8524c4645");
}

static void a_record_reads_back_and_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct built b;
    struct core_entry e = hold_entry();
    e.id = STR("quote\"back\\slash");
    build(&b, e, STR("demo:\"x\\"), STR("aGVsbG8="));
    struct core_entry back[1];
    char *scratch = malloc(CORE_LEAF_MAX);
    struct core_unit u;
    struct core_caller who;
    struct core_prepared_entry pe[1];
    struct core_prepared p = {.entries = pe};
    assert_int_equal(ledger_record_decode(bytes_of(b.record, b.p.len), back, scratch, &u, &who, &p),
                     ERR_OK);
    assert_true(str_eq(back[0].id, e.id) && str_eq(u.idem_id, b.unit.idem_id) &&
                str_eq(who.kid, caller.kid));
    assert_true(back[0].hold_until == e.hold_until && back[0].nonce == e.nonce && back[0].ts == e.ts);
    assert_true(sha256_eq(&pe[0].leaf_hash, &b.pe[0].leaf_hash));
    for (size_t bit = 0; bit < b.p.len * 8; bit++) {
        b.record[bit / 8] ^= (uint8_t)(1u << bit % 8);
        enum err err = ledger_record_decode(bytes_of(b.record, b.p.len), back, scratch, &u, &who, &p);
        /* A flip inside a leaf that leaves it canonical is caught by the leaf hash, that is by the root. */
        if (err == ERR_OK)
            assert_false(sha256_eq(&pe[0].leaf_hash, &b.pe[0].leaf_hash));
        b.record[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(scratch);
}

/* Units of one and of several entries mixed, more than one wave of them: every hash is what its text says, one at a time. */
static void units_built_together_are_those_built_one_by_one(void **state)
{
    (void)state;
    enum { UNITS = 21, ENTRIES = 19 };
    static struct core_entry e[UNITS][ENTRIES];
    static struct core_prepared_entry pe[UNITS][ENTRIES];
    static struct core_prepared p[UNITS];
    static struct core_unit u[UNITS];
    static char names[UNITS][ENTRIES][2][32];
    static uint8_t together[UNITS * ENTRIES * 1024];
    struct core_build v[UNITS];
    for (uint32_t i = 0; i < UNITS; i++) {
        uint32_t n = i % 3 == 2 ? 1 + i % ENTRIES : 1;
        for (uint32_t k = 0; k < n; k++) {
            int a = snprintf(names[i][k][0], 32, "id-%u-%u", i, k),
                b = snprintf(names[i][k][1], 32, "ref-%u", k);
            e[i][k] = k % 2 == 0 ? pay_entry() : hold_entry();
            e[i][k].id = str_of(names[i][k][0], (size_t)a);
            if (k % 5 == 3) {
                e[i][k].kind = CORE_RELEASE;
                e[i][k].ref_id = str_of(names[i][k][1], (size_t)b);
            }
        }
        u[i] = (struct core_unit){.idem_id = e[i][0].id, .entries = e[i], .n = n};
        p[i] = (struct core_prepared){.entries = pe[i]};
        v[i] = (struct core_build){&u[i], &p[i]};
    }
    ledger_record_build_many(v, UNITS, &caller, false, together);
    const uint8_t *at = together;
    for (uint32_t i = 0; i < UNITS; i++) {
        char text[CANON_ENVELOPE_MAX];
        struct sha256 fp, unit, leaf_hash;
        ledger_canon_fp(&u[i], &fp);
        sha256_of(text, ledger_canon_envelope(&u[i], &caller, &fp, text), &unit);
        assert_true(sha256_eq(&fp, &p[i].fp));
        assert_true(sha256_eq(&unit, &p[i].unit));
        assert_true(core_key_eq(p[i].idem_key, ledger_canon_idem_key(u[i].idem_id)));
        assert_ptr_equal(p[i].record, at);
        at += p[i].len;
        struct core_record r;
        struct str leaf;
        assert_int_equal(ledger_record_parse(bytes_of(p[i].record, p[i].len), &r), ERR_OK);
        assert_int_equal(r.n, u[i].n);
        for (uint32_t k = 0; k < u[i].n; k++) {
            char expected[CORE_LEAF_MAX];
            size_t n = ledger_canon_leaf(&e[i][k], &unit, expected);
            assert_true(ledger_record_next_leaf(&r.bundle, &leaf));
            assert_int_equal(leaf.n, n);
            assert_memory_equal(leaf.p, expected, n);
            ledger_merkle_leaf(bytes_of(expected, n), &leaf_hash);
            assert_true(sha256_eq(&leaf_hash, &pe[i][k].leaf_hash));
            assert_true(core_key_eq(pe[i][k].id_key, ledger_canon_id_key(e[i][k].id)));
            struct core_key none = {{0, 0}};
            assert_true(core_key_eq(pe[i][k].ref_key,
                                    e[i][k].ref_id.n != 0 ? ledger_canon_id_key(e[i][k].ref_id) : none));
        }
    }
}

/* Such a record cannot be built, but a disk can hold anything, with a good checksum too. */
static void a_leaf_with_an_id_that_is_too_long_is_damage_and_no_bug(void **state)
{
    (void)state;
    char id[CORE_ID_MAX + 1], leaf[CORE_LEAF_MAX], scratch[CORE_LEAF_MAX];
    uint8_t record[4096] = {0};
    memset(id, 'x', sizeof id);
    struct core_entry e = pay_entry(), back[1];
    struct sha256 unit = {{0}};
    e.id = str_of(id, sizeof id);
    size_t n = ledger_canon_leaf(&e, &unit, leaf);
    le16_put(record + 4, 1);
    record[6] = record[7] = 1;
    memcpy(record + RECORD_HEADER, "ik", 2);
    be16_put(record + RECORD_HEADER + 2, (uint16_t)n);
    memcpy(record + RECORD_HEADER + 4, leaf, n);
    le32_put(record, (uint32_t)(RECORD_HEADER + 4 + n));
    struct core_prepared_entry pe[1];
    struct core_prepared p = {.entries = pe};
    struct core_unit u;
    struct core_caller who;
    assert_int_equal(
        ledger_record_decode(bytes_of(record, RECORD_HEADER + 4 + n), back, scratch, &u, &who, &p),
        ERR_CORRUPT);
}

static void leaves_are_read_back_only_in_their_canonical_form(void **state)
{
    (void)state;
    const char *bad[] = {
        "",
        "{}",
        "{\"account\":\"a\",\"amount\":\"01\",\"asset\":\"ron\",\"id\":\"x\",\"kind\":\"mint\",\"ts\":1,"
        "\"unit\":\"sha256:"
        "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}",
        "{\"account\":\"a\",\"amount\":\"1\",\"asset\":\"ron\",\"id\":\"x\\u0041\",\"kind\":\"mint\","
        "\"ts\":1,\"unit\":\"sha256:"
        "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}",
        "{\"account\":\"a\",\"amount\":\"1\",\"asset\":\"ron\",\"id\":\"x\",\"kind\":\"gift\",\"ts\":1,"
        "\"unit\":\"sha256:"
        "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}",
        "{\"account\":\"a\",\"amount\":\"1\",\"asset\":\"ron\",\"id\":\"x\",\"kind\":\"mint\",\"ts\":1,"
        "\"unit\":\"sha256:"
        "285DF40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}",
        "{\"account\":\"a\",\"amount\":\"1\",\"asset\":\"ron\",\"id\":\"x\",\"kind\":\"mint\",\"ts\":1,"
        "\"unit\":\"sha256:"
        "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1} ",
        "{\"account\":\"a\",\"amount\":\"340282366920938463463374607431768211456\",\"asset\":\"ron\","
        "\"id\":\"x\",\"kind\":"
        "\"mint\",\"ts\":1,\"unit\":\"sha256:"
        "285df40c053867a68ac306f223b407967f88b40b41f613501d85bbe02ad154d7\",\"v\":1}",
    };
    char scratch[CORE_LEAF_MAX];
    struct core_entry e;
    struct sha256 unit;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ledger_canon_leaf_parse(str_from_c(bad[i]), scratch, &e, &unit), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mint_has_the_published_fingerprint_envelope_leaf_and_hash),
        cmocka_unit_test(a_transfer_has_the_published_hashes_and_index_keys),
        cmocka_unit_test(a_unit_without_name_is_named_after_its_tuple),
        cmocka_unit_test(three_entries_have_the_published_roots_proofs_and_note),
        cmocka_unit_test(two_groups_have_the_published_frames),
        cmocka_unit_test(a_record_reads_back_and_every_flipped_bit_is_noticed),
        cmocka_unit_test(units_built_together_are_those_built_one_by_one),
        cmocka_unit_test(a_leaf_with_an_id_that_is_too_long_is_damage_and_no_bug),
        cmocka_unit_test(leaves_are_read_back_only_in_their_canonical_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
