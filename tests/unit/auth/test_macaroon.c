#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "auth/macaroon.h"
#include "base/base64.h"

static const uint8_t key_bytes[] = "0123456789abcdef0123456789abcdef";
static const struct bytes key = {key_bytes, 32};

/* Made with the library's own command: location ron, key above, identifier k1, caveat "aud = svc". */
static const char golden[] =
    "MDAxMWxvY2F0aW9uIHJvbgowMDEyaWRlbnRpZmllciBrMQowMDEyY2lkIGF1ZCA9IHN2YwowMDJmc2lnbmF0dXJlIH2Q"
    "TUcvTFj3LWYbhUzlGBou8Td8QcohPQk7SD9ultRFCg";

static void token_of(const char *const *caveats, struct buf *out)
{
    struct auth_macaroon m;
    assert_int_equal(auth_macaroon_create(STR("ron"), key, STR("k1"), &m), ERR_OK);
    for (; *caveats != NULL; caveats++)
        assert_int_equal(auth_macaroon_append(&m, str_from_c(*caveats)), ERR_OK);
    assert_int_equal(auth_macaroon_encode(&m, out), ERR_OK);
}

static void what_we_write_is_what_the_library_writes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, AUTH_TOKEN_MAX);
    token_of((const char *const[]){"aud = svc", NULL}, &b);
    assert_string_equal(buf_cstr(&b), golden);
    buf_fini(&b);
}

static void a_token_is_read_back_part_by_part_and_verifies(void **state)
{
    (void)state;
    struct auth_macaroon m;
    assert_int_equal(auth_macaroon_decode(str_from_c(golden), &m), ERR_OK);
    assert_int_equal(m.version, 1);
    assert_true(str_eq(m.location, STR("ron")));
    assert_true(str_eq(m.kid, STR("k1")));
    assert_int_equal(m.ncaveats, 1);
    assert_true(str_eq(m.caveats[0], STR("aud = svc")));
    assert_int_equal(auth_macaroon_verify(&m, key), ERR_OK);
    assert_int_equal(auth_macaroon_verify(&m, (struct bytes){key_bytes, 31}), ERR_UNAUTHENTICATED);
}

static void no_single_bit_of_a_token_can_be_changed(void **state)
{
    (void)state;
    uint8_t raw[256];
    size_t n;
    char text[512];
    assert_int_equal(base64url_decode(str_from_c(golden), raw, sizeof raw, &n), ERR_OK);
    for (size_t bit = 0; bit < n * 8; bit++) {
        raw[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        size_t chars = base64url_encode(raw, n, text);
        struct auth_macaroon m;
        /* The location is a hint and is not signed: everything else is. */
        bool in_location = bit / 8 >= 13 && bit / 8 < 16;
        if (auth_macaroon_decode((struct str){text, chars}, &m) == ERR_OK && !in_location)
            assert_int_equal(auth_macaroon_verify(&m, key), ERR_UNAUTHENTICATED);
        raw[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

static void every_prefix_of_a_token_is_refused(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof golden - 1; n++) {
        struct auth_macaroon m;
        assert_int_not_equal(auth_macaroon_decode((struct str){golden, n}, &m), ERR_OK);
    }
}

static void both_alphabets_and_padding_are_read(void **state)
{
    (void)state;
    uint8_t raw[256];
    size_t n;
    char text[512];
    struct auth_macaroon m;
    assert_int_equal(base64url_decode(str_from_c(golden), raw, sizeof raw, &n), ERR_OK);
    size_t chars = base64_encode(raw, n, text);
    assert_int_equal(auth_macaroon_decode((struct str){text, chars}, &m), ERR_OK);
    assert_int_equal(auth_macaroon_verify(&m, key), ERR_OK);
    text[chars++] = '=';
    assert_int_equal(auth_macaroon_decode((struct str){text, chars}, &m), ERR_SYNTAX);
}

static void version_two_means_the_same(void **state)
{
    (void)state;
    struct auth_macaroon one, two;
    assert_int_equal(auth_macaroon_decode(str_from_c(golden), &one), ERR_OK);
    uint8_t raw[128];
    char text[256];
    struct buf b;
    buf_init_fixed(&b, raw, sizeof raw);
    buf_put(&b,
            "\x02\x01\x03ron\x02\x02k1\x00\x02\x09"
            "aud = svc\x00\x00\x06\x20",
            26);
    buf_put(&b, one.sig, sizeof one.sig);
    size_t chars = base64url_encode(b.p, b.n, text);
    assert_int_equal(auth_macaroon_decode((struct str){text, chars}, &two), ERR_OK);
    assert_int_equal(two.version, 2);
    assert_int_equal(auth_macaroon_verify(&two, key), ERR_OK);
    struct buf again;
    buf_init(&again, AUTH_TOKEN_MAX);
    assert_int_equal(auth_macaroon_encode(&two, &again), ERR_OK);
    assert_string_equal(buf_cstr(&again), golden);
    buf_fini(&again);
}

static void tokens_with_wrong_shape_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *raw;
        size_t n;
    } rows[] = {
#define RAW(lit) {lit, sizeof(lit) - 1}
        RAW("0011location ron\n"),
        RAW("0012identifier k1\n0011location ron\n"),
        RAW("ffff"),
        RAW("0000"),
        RAW("0005\n"),
        RAW("000Alocation ron\n"),
        RAW("0011location ron\n0010identifier \n"),             /* no identifier */
        RAW("0011location ron\n0012identifier k1\n0006vid \n"), /* a vid without cid */
        RAW("0011location ron\n0012identifier k1\n000bcl x\n"),
        RAW("\x02"),
        RAW("\x02\x00"),
        RAW("\x02\x02\x02k1\x00\x00"),          /* no signature */
        RAW("\x02\x02\x82\x00k1\x00\x00"),      /* a length with two spellings */
        RAW("\x02\x02\x02k1\x01\x01x\x00\x00"), /* fields out of order */
        RAW("\x02\x02\xff\xff\xff\x7f"),
#undef RAW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        struct auth_macaroon m;
        size_t chars = base64url_encode(rows[i].raw, rows[i].n, text);
        if (auth_macaroon_decode((struct str){text, chars}, &m) == ERR_OK)
            fail_msg("accepted row %zu", i);
    }
}

static void third_party_caveats_are_counted_and_never_verify(void **state)
{
    (void)state;
    static const char raw[] =
        "0011location ron\n0012identifier k1\n000ecid a = b\n000fvid secret\n000ccl else\n"
        "002fsignature xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
    char text[512];
    struct auth_macaroon m;
    size_t chars = base64url_encode(raw, sizeof raw - 1, text);
    assert_int_equal(auth_macaroon_decode((struct str){text, chars}, &m), ERR_OK);
    assert_int_equal(m.nthird_party, 1);
    assert_int_equal(m.ncaveats, 0);
    assert_int_equal(auth_macaroon_verify(&m, key), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_macaroon_append(&m, STR("op in read")), ERR_UNPROCESSABLE);
}

static void bounds_are_kept_before_the_library_sees_anything(void **state)
{
    (void)state;
    struct auth_macaroon m;
    char big[AUTH_TOKEN_MAX + 8];
    memset(big, 'A', sizeof big);
    assert_int_equal(auth_macaroon_decode((struct str){big, sizeof big}, &m), ERR_TOO_LARGE);
    assert_int_equal(auth_macaroon_create(STR(""), key, (struct str){big, AUTH_KID_MAX + 1}, &m),
                     ERR_RANGE);
    assert_int_equal(auth_macaroon_create(STR(""), key, STR(""), &m), ERR_RANGE);
    assert_int_equal(auth_macaroon_create(STR("ron"), key, STR("k1"), &m), ERR_OK);
    assert_int_equal(auth_macaroon_append(&m, (struct str){big, AUTH_CAVEAT_MAX + 1}), ERR_RANGE);
    assert_int_equal(auth_macaroon_append(&m, STR("")), ERR_RANGE);
    size_t added = 0;
    while (auth_macaroon_append(&m, STR("op in read")) == ERR_OK)
        added++;
    assert_int_equal(added, AUTH_CAVEATS_MAX);
}

static void a_narrowed_token_verifies_and_cannot_be_widened(void **state)
{
    (void)state;
    struct auth_macaroon m;
    assert_int_equal(auth_macaroon_decode(str_from_c(golden), &m), ERR_OK);
    assert_int_equal(auth_macaroon_append(&m, STR("op in read")), ERR_OK);
    assert_int_equal(auth_macaroon_verify(&m, key), ERR_OK);
    m.ncaveats--; /* drop the last caveat, keep the signature */
    assert_int_equal(auth_macaroon_verify(&m, key), ERR_UNAUTHENTICATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_write_is_what_the_library_writes),
        cmocka_unit_test(a_token_is_read_back_part_by_part_and_verifies),
        cmocka_unit_test(no_single_bit_of_a_token_can_be_changed),
        cmocka_unit_test(every_prefix_of_a_token_is_refused),
        cmocka_unit_test(both_alphabets_and_padding_are_read),
        cmocka_unit_test(version_two_means_the_same),
        cmocka_unit_test(tokens_with_wrong_shape_are_refused),
        cmocka_unit_test(third_party_caveats_are_counted_and_never_verify),
        cmocka_unit_test(bounds_are_kept_before_the_library_sees_anything),
        cmocka_unit_test(a_narrowed_token_verifies_and_cannot_be_widened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
