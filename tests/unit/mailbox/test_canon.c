/* The published vectors of ids, canonical bytes, chain and journal records, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hex.h"
#include "services/mailbox/core/record.h"

#define TOPIC STR("user:42:inbox")

static struct uuid uuid_text(const char *text)
{
    struct uuid u;
    assert_int_equal(uuid_parse(str_from_c(text), &u), ERR_OK);
    return u;
}

static void assert_hash(const struct sha256 *h, const char *hex)
{
    char got[SHA256_HEX_CHARS];
    hex_encode(h->b, 32, got);
    assert_string_equal(got, hex);
}

static struct uuid chain_id(void)
{
    return uuid_text("0199d996-c5e8-7c3e-9b0a-51d2f0c3a8e7");
}

static size_t attrs_1(uint8_t out[64])
{
    struct mailbox_attr a = {STR("content-type"), STR("application/json")};
    size_t n;
    assert_int_equal(mailbox_attrs_encode(&a, 1, out, 64, &n), ERR_OK);
    return n;
}

static struct mailbox_link link_1(void)
{
    uint8_t attrs[64];
    size_t n = attrs_1(attrs);
    struct uuid id = chain_id();
    struct mailbox_link l = {.topic = TOPIC,
                             .idem_key = STR("email-2025-10-12-01"),
                             .msg_id = uuid_text("0199d996-c5e8-709d-8000-000000000001"),
                             .topic_seq = 1,
                             .ts_ms = UINT64_C(1760292161000)};
    mailbox_chain_genesis(TOPIC, &id, &l.prev);
    sha256_of("{\"subject\":\"Hi\"}", 16, &l.payload_hash);
    sha256_of(attrs, n, &l.attrs_hash);
    return l;
}

static void a_topic_finds_its_bucket_and_shard(void **state)
{
    (void)state;
    static const struct {
        const char *topic;
        unsigned bucket, of2, of8;
    } v[] = {{"user:42:inbox", 157, 1, 5}, {"orders/eu", 3568, 0, 0}, {"alerts", 3563, 1, 3}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct sha256 h;
        mailbox_topic_hash(str_from_c(v[i].topic), &h);
        assert_int_equal(mailbox_bucket(&h), v[i].bucket);
        assert_int_equal(mailbox_bucket(&h) % 2, v[i].of2);
        assert_int_equal(mailbox_bucket(&h) % 8, v[i].of8);
    }
}

static void an_id_carries_its_time_and_bucket(void **state)
{
    (void)state;
    struct uuid id = mailbox_id_make(UINT64_C(1760292161000), 157, 1);
    char text[UUID_CHARS];
    uuid_format(&id, text);
    assert_string_equal(text, "0199d996-c5e8-709d-8000-000000000001");
    assert_int_equal(mailbox_id_ts_ms(&id), UINT64_C(1760292161000));
    assert_int_equal(mailbox_id_bucket(&id), 157);
    id = mailbox_id_make(UINT64_C(0xffffffffffff), 4095, UINT64_MAX);
    assert_int_equal(id.b[6] >> 4, 7);
    assert_int_equal(id.b[8] >> 6, 2);
    assert_int_equal(mailbox_id_bucket(&id), 4095);
}

static void names_and_keys_follow_their_grammar(void **state)
{
    (void)state;
    char longest[258];
    memset(longest, 'a', sizeof longest);
    assert_true(mailbox_topic_valid(STR("a")));
    assert_true(mailbox_topic_valid(STR("A9:._/@-")));
    assert_true(mailbox_topic_valid(str_of(longest, 256)));
    assert_false(mailbox_topic_valid(str_of(longest, 257)));
    assert_false(mailbox_topic_valid(STR("")));
    assert_false(mailbox_topic_valid(STR("/a")));
    assert_false(mailbox_topic_valid(STR("a b")));
    assert_false(mailbox_topic_valid(STR("a\xc3\xa4")));
    assert_true(mailbox_idem_valid(STR("!~")));
    assert_true(mailbox_idem_valid(str_of(longest, 128)));
    assert_false(mailbox_idem_valid(str_of(longest, 129)));
    assert_false(mailbox_idem_valid(STR("a b")));
    assert_false(mailbox_idem_valid(STR("")));
}

static void the_dedup_digest_is_as_published(void **state)
{
    (void)state;
    struct mailbox_digest d;
    char hex[33];
    mailbox_dedup_digest(TOPIC, STR("email-2025-10-12-01"), &d);
    hex_encode(d.b, 16, hex);
    assert_string_equal(hex, "0f41f9bb49a69b1491c37cca1b993832");
}

static void attributes_are_sorted_and_hashed(void **state)
{
    (void)state;
    uint8_t out[256];
    size_t n;
    struct sha256 h;
    n = attrs_1(out);
    sha256_of(out, n, &h);
    assert_hash(&h, "dabcb809fc69224934c7b12223e2093538f8bea43c6b87b126416aa0bc9ba75a");
    assert_int_equal(mailbox_attrs_encode(NULL, 0, out, sizeof out, &n), ERR_OK);
    sha256_of(out, n, &h);
    assert_hash(&h, "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119");

    struct mailbox_attr two[] = {{STR("b"), STR("2")}, {STR("a"), STR("")}}, got;
    assert_int_equal(mailbox_attrs_encode(two, 2, out, sizeof out, &n), ERR_OK);
    assert_true(mailbox_attrs_wellformed(bytes_of(out, n)));
    size_t at = 0;
    assert_true(mailbox_attrs_next(bytes_of(out, n), &at, &got));
    assert_true(str_eq(got.key, STR("a")) && got.value.n == 0);
    assert_true(mailbox_attrs_next(bytes_of(out, n), &at, &got));
    assert_true(str_eq(got.key, STR("b")) && str_eq(got.value, STR("2")));
    assert_false(mailbox_attrs_next(bytes_of(out, n), &at, &got));
    for (size_t cut = 0; cut < n; cut++)
        assert_false(mailbox_attrs_wellformed(bytes_of(out, cut)));
    struct mailbox_attr twice[] = {{STR("a"), STR("1")}, {STR("a"), STR("2")}};
    assert_int_equal(mailbox_attrs_encode(twice, 2, out, sizeof out, &n), ERR_SYNTAX);
}

static void the_chain_is_as_published(void **state)
{
    (void)state;
    struct mailbox_link l = link_1();
    struct sha256 c1, c2;
    assert_hash(&l.prev, "2ef8e07f48f999a73facedf6d8de4c6fdfb51d9161cc8c80986e087a13ab4fc7");
    assert_hash(&l.payload_hash, "cf5f5780928ea38bd40ce1722a085b33989d8dc265ead09aaa0a1e7def576a42");
    mailbox_chain_next(&l, &c1);
    assert_hash(&c1, "df60d38678347140169678e1e5effafeb40c9542f1ff446a00b233a78cc09701");

    struct mailbox_link m = {.prev = c1,
                             .topic = TOPIC,
                             .idem_key = STR("demo-2"),
                             .msg_id = uuid_text("0199d996-c5e9-709d-8000-000000000002"),
                             .topic_seq = 2,
                             .ts_ms = UINT64_C(1760292161001),
                             .not_before_ms = UINT64_C(1760292461000)};
    uint8_t attrs[8];
    size_t n;
    assert_int_equal(mailbox_attrs_encode(NULL, 0, attrs, sizeof attrs, &n), ERR_OK);
    sha256_of(attrs, n, &m.attrs_hash);
    sha256_of(NULL, 0, &m.payload_hash);
    mailbox_chain_next(&m, &c2);
    assert_hash(&c2, "631ef6343e3bed1014eb8a0684ffe1c34cf9c6ee32fa60502242ac0687f3b294");
}

static void a_settle_record_is_as_published(void **state)
{
    (void)state;
    uint8_t mem[256];
    char hex[128];
    struct mailbox_rec_w w;
    struct uuid id = uuid_text("0199d996-c5e8-709d-8000-000000000001");
    mailbox_rec_w_init(&w, mem, sizeof mem);
    assert_int_equal(mailbox_rec_put_settle(&w, 1, &id, MAILBOX_SETTLE_ACK), ERR_OK);
    mailbox_rec_seal(&w);
    hex_encode(mem, w.n, hex);
    assert_string_equal(hex,
                        "280000006686f1eb05010100010000000199d996c5e8709d80000000000000010100000000000000");
}

/* The payload of the published frame: TOPIC, then message 1. */
static size_t group_1(uint8_t *mem, size_t cap)
{
    struct mailbox_rec_w w;
    struct mailbox_link l = link_1();
    struct mailbox_rec_topic t = {chain_id(), UINT64_C(1760292161000), 0, l.prev, TOPIC, {0}};
    uint8_t attrs[64];
    size_t n = attrs_1(attrs);
    struct mailbox_rec_enq q = {.msg_id = l.msg_id,
                                .topic_seq = 1,
                                .ts_ms = l.ts_ms,
                                .payload_hash = l.payload_hash,
                                .chain_prev = l.prev,
                                .idem_key = l.idem_key,
                                .corr_id = STR("0199d996-c5e8-7c3e-9b0a-51d2f0c3a8e7"),
                                .attrs = bytes_of(attrs, n),
                                .payload = bytes_of("{\"subject\":\"Hi\"}", 16)};
    mailbox_chain_next(&l, &q.chain);
    mailbox_rec_w_init(&w, mem, cap);
    assert_int_equal(mailbox_rec_put_topic(&w, 1, &t), ERR_OK);
    assert_int_equal(mailbox_rec_put_enq(&w, 1, &q), ERR_OK);
    mailbox_rec_seal(&w);
    return w.n;
}

static void a_topics_record_names_its_tenant_when_it_is_not_the_default(void **state)
{
    (void)state;
    static const char *const tenants[] = {
        "", "a", "acme-and-sons", "0123456789012345678901234567890123456789012345678901234567890ab"};
    uint8_t mem[1024];
    for (size_t i = 0; i < sizeof tenants / sizeof *tenants; i++) {
        struct mailbox_rec_topic t = {chain_id(), 1, 7, link_1().prev, TOPIC, str_from_c(tenants[i])};
        struct mailbox_rec_w w;
        struct mailbox_rec r;
        size_t at = 0;
        mailbox_rec_w_init(&w, mem, sizeof mem);
        assert_int_equal(mailbox_rec_put_topic(&w, 3, &t), ERR_OK);
        mailbox_rec_seal(&w);
        assert_int_equal(mailbox_rec_next(bytes_of(mem, w.n), &at, &r), ERR_OK);
        assert_true(str_eq(r.topic.tenant, t.tenant) && str_eq(r.topic.name, TOPIC));
        assert_int_equal(r.topic.last_seq, 7);
        if (t.tenant.n == 0)
            continue;
        uint8_t *length =
            mem + MAILBOX_REC_HEAD + 66 + TOPIC.n; /* a tenant that does not end where the record does */
        assert_int_equal(*length, t.tenant.n);
        static const uint8_t wrong[] = {0, MAILBOX_TENANT_MAX + 1, 255};
        for (size_t k = 0; k < sizeof wrong; k++) {
            *length = wrong[k];
            at = 0;
            assert_int_equal(mailbox_rec_next_trusted(bytes_of(mem, w.n), &at, &r), ERR_CORRUPT);
        }
    }
}

static void the_first_group_and_its_frame_are_as_published(void **state)
{
    (void)state;
    uint8_t frame[4096] = {0};
    size_t n = group_1(frame + 128, 1024);
    struct sha256 zero = {{0}}, root;
    uint32_t enqs;
    assert_int_equal(n, 376);
    mailbox_group_root(&zero, 1, bytes_of(frame + 128, n), &root, &enqs);
    assert_int_equal(enqs, 1);
    assert_hash(&root, "2b79a51465dbd931c5f0f70478974d1edb47ed42cf08a060d981ba216a168743");

    memcpy(frame, "RLF1", 4);
    le32_put(frame + 4, 4096);
    le32_put(frame + 8, 376);
    le16_put(frame + 12, 1);
    le64_put(frame + 16, 1);
    le64_put(frame + 24, 1);
    le32_put(frame + 32, 2);
    le32_put(frame + 36, 1);
    le64_put(frame + 40, UINT64_C(1760292161000));
    le64_put(frame + 48, 1);
    memcpy(frame + 88, root.b, 32);
    le32_put(frame + 120, crc32c(0, frame, 120));
    assert_memory_equal(frame + 120, "\x84\x17\xe3\x71", 4);
    le64_put(frame + 4080, 1);
    le32_put(frame + 4088, crc32c(0, frame, 4088));
    memcpy(frame + 4092, "RLFE", 4);
    struct sha256 h;
    sha256_of(frame, sizeof frame, &h);
    assert_hash(&h, "b92970350a529f4618a6f56a4982a2e4a9504fa65802a2b371898c6864a833a5");
}

static void every_record_kind_reads_back_as_written(void **state)
{
    (void)state;
    static uint8_t mem[8192];
    struct mailbox_rec_w w;
    struct mailbox_rec r;
    size_t at = 0;
    struct uuid a = mailbox_id_make(5, 7, 1), b = mailbox_id_make(6, 7, 2);
    uint8_t attrs[4] = {0};
    struct mailbox_rec_enq q = {.msg_id = a,
                                .topic_seq = 3,
                                .ts_ms = 5,
                                .idem_key = STR("k"),
                                .attrs = bytes_of(attrs, 4),
                                .payload = bytes_of("xyz", 3)};
    struct mailbox_rec_move m = {.attempt = 9, .tries = 2, .state = 4, .late = true, .due_ms = 77};
    struct mailbox_rec_fail f = {.msg_id = b,
                                 .at_ms = 8,
                                 .not_before_ms = 9,
                                 .attempt = 3,
                                 .cause = MAILBOX_CAUSE_DEAD,
                                 .to = MAILBOX_TO_DLQ,
                                 .reason = STR("because")};
    struct mailbox_rec_dedup d = {.msg_id = a, .topic_seq = 3, .ts_ms = 5};
    memset(d.digest.b, 0xab, 16);

    mailbox_rec_w_init(&w, mem, sizeof mem);
    assert_int_equal(mailbox_rec_put_move(&w, 1, &m, &q), ERR_OK);
    assert_int_equal(mailbox_rec_put_lease(&w, 1, &a, 4, 2), ERR_OK);
    assert_int_equal(mailbox_rec_put_lease(&w, 1, &b, 65535, 100), ERR_OK);
    assert_int_equal(mailbox_rec_put_lease(&w, 2, &b, 1, 1), ERR_OK); /* another topic: another record */
    assert_int_equal(mailbox_rec_put_fail(&w, 1, &f), ERR_OK);
    assert_int_equal(mailbox_rec_put_reproc(&w, 1, &b, 123), ERR_OK);
    assert_int_equal(mailbox_rec_put_dedup(&w, 1, &d), ERR_OK);
    assert_int_equal(mailbox_rec_put_forget(&w, 2), ERR_OK);
    for (uint16_t k = 0; k < 5; k++)
        assert_int_equal(mailbox_rec_put_adopt(&w, (uint16_t)(k * 1000)), ERR_OK);
    mailbox_rec_seal(&w);
    assert_int_equal(w.records, 8);
    struct bytes p = bytes_of(mem, w.n);

    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_int_equal(r.type, MAILBOX_REC_MOVE);
    assert_int_equal(r.move.attempt, 9);
    assert_int_equal(r.move.due_ms, 77);
    assert_true(bytes_eq(r.enq.payload, bytes_of("xyz", 3)));
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(mailbox_rec_lease_at(&r, 1).attempt, 65535);
    assert_int_equal(mailbox_rec_lease_at(&r, 1).tries, 100);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_int_equal(r.topic_id, 2);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_true(str_eq(r.fail.reason, STR("because")));
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    uint64_t nb;
    struct uuid got = mailbox_rec_reproc_at(&r, 0, &nb);
    assert_true(mailbox_id_eq(&got, &b) && nb == 123);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_memory_equal(r.dedup.digest.b, d.digest.b, 16);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_int_equal(r.type, MAILBOX_REC_FORGET);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_OK);
    assert_int_equal(r.n, 5);
    assert_int_equal(mailbox_rec_adopt_at(&r, 4), 4000);
    assert_int_equal(mailbox_rec_next(p, &at, &r), ERR_EMPTY);
}

static void any_flipped_bit_of_a_record_is_found(void **state)
{
    (void)state;
    uint8_t mem[1024];
    size_t n = group_1(mem, sizeof mem);
    for (size_t bit = 0; bit < n * 8; bit++) {
        mem[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        struct mailbox_rec r;
        size_t at = 0;
        enum err e;
        while ((e = mailbox_rec_next(bytes_of(mem, n), &at, &r)) == ERR_OK)
            ;
        assert_int_equal(e, ERR_CORRUPT);
        mem[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

static void a_full_group_refuses_a_record_and_stays_as_it_was(void **state)
{
    (void)state;
    uint8_t mem[64];
    struct mailbox_rec_w w;
    struct uuid a = mailbox_id_make(5, 7, 1);
    mailbox_rec_w_init(&w, mem, sizeof mem);
    assert_int_equal(mailbox_rec_put_settle(&w, 1, &a, MAILBOX_SETTLE_ACK), ERR_OK);
    assert_int_equal(mailbox_rec_put_settle(&w, 1, &a, MAILBOX_SETTLE_ACK), ERR_OK);
    size_t n = w.n;
    assert_int_equal(mailbox_rec_put_settle(&w, 1, &a, MAILBOX_SETTLE_ACK), ERR_NO_SPACE);
    assert_int_equal(w.n, n);
    assert_int_equal(w.records, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_finds_its_bucket_and_shard),
        cmocka_unit_test(an_id_carries_its_time_and_bucket),
        cmocka_unit_test(names_and_keys_follow_their_grammar),
        cmocka_unit_test(the_dedup_digest_is_as_published),
        cmocka_unit_test(attributes_are_sorted_and_hashed),
        cmocka_unit_test(the_chain_is_as_published),
        cmocka_unit_test(a_settle_record_is_as_published),
        cmocka_unit_test(a_topics_record_names_its_tenant_when_it_is_not_the_default),
        cmocka_unit_test(the_first_group_and_its_frame_are_as_published),
        cmocka_unit_test(every_record_kind_reads_back_as_written),
        cmocka_unit_test(any_flipped_bit_of_a_record_is_found),
        cmocka_unit_test(a_full_group_refuses_a_record_and_stays_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
