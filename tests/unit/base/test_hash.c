#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/rng.h"
#include "base/sha256.h"

static void sha256_gives_the_published_vectors(void **state)
{
    (void)state;
    struct sha256 h;
    char text[SHA256_TEXT_CHARS];
    sha256_of("", 0, &h);
    sha256_format(&h, text);
    assert_string_equal(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_of("abc", 3, &h);
    sha256_format(&h, text);
    assert_string_equal(text, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct sha256 back;
    assert_int_equal(sha256_parse(str_from_c(text), &back), ERR_OK);
    assert_true(sha256_eq(&h, &back));
    assert_int_equal(sha256_parse(STR("sha256:BA"), &back), ERR_SYNTAX);
    assert_int_equal(sha256_parse(STR("sha1:ba"), &back), ERR_SYNTAX);
}

static void every_way_to_hash_agrees_at_every_length(void **state)
{
    (void)state;
    uint8_t data[300];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= sizeof data; n++) {
        struct sha256 once, parts, stream;
        sha256_of(data, n, &once);
        sha256_of_parts((const struct bytes[]){{data, n / 3}, {data + n / 3, n - n / 3}}, 2, &parts);
        struct sha256_ctx c;
        sha256_init(&c);
        for (size_t i = 0; i < n; i++)
            sha256_update(&c, data + i, 1);
        sha256_final(&c, &stream);
        assert_true(sha256_eq(&once, &parts));
        assert_true(sha256_eq(&once, &stream));
    }
    struct sha256 l, r, pair, plain;
    sha256_of("l", 1, &l);
    sha256_of("r", 1, &r);
    sha256_of_pair(1, &l, &r, &pair);
    sha256_of_parts((const struct bytes[]){{(const uint8_t *)"\1", 1}, {l.b, 32}, {r.b, 32}}, 3, &plain);
    assert_true(sha256_eq(&pair, &plain));
}

static void hmac_gives_the_vectors_of_rfc_4231(void **state)
{
    (void)state;
    struct sha256 mac;
    char text[SHA256_HEX_CHARS];
    sha256_hmac(bytes_of("Jefe", 4), bytes_of("what do ya want for nothing?", 28), &mac);
    hex_encode(mac.b, 32, text);
    assert_string_equal(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    uint8_t key[131];
    memset(key, 0xaa, sizeof key);
    sha256_hmac(bytes_of(key, sizeof key),
                bytes_of("Test Using Larger Than Block-Size Key - Hash Key First", 54), &mac);
    hex_encode(mac.b, 32, text);
    assert_string_equal(text, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void crc32c_gives_the_check_value_and_chains(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c_portable(0, "123456789", 9), 0xe3069283u);
    struct rng r;
    rng_seed(&r, 1);
    uint8_t data[517];
    rng_bytes(&r, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++) {
        uint32_t whole = crc32c(0, data, cut);
        assert_int_equal(whole, crc32c_portable(0, data, cut));
        assert_int_equal(crc32c(whole, data + cut, sizeof data - cut), crc32c(0, data, sizeof data));
    }
}

static void ed25519_gives_the_vector_of_rfc_8032_and_refuses_changes(void **state)
{
    (void)state;
    uint8_t seed[32], pub[32], sig[64];
    char text[129];
    assert_int_equal(
        hex_decode(STR("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"), seed, 32),
        ERR_OK);
    struct ed25519_key *key = ed25519_key_from_seed(seed);
    assert_non_null(key);
    ed25519_public(key, pub);
    hex_encode(pub, 32, text);
    assert_string_equal(text, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    assert_int_equal(ed25519_sign(key, bytes_of("\x72", 1), sig), ERR_OK);
    hex_encode(sig, 64, text);
    assert_string_equal(text, "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                              "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
    struct ed25519_key *other = ed25519_key_from_public(pub);
    assert_non_null(other);
    assert_int_equal(ed25519_verify(other, bytes_of("\x72", 1), sig), ERR_OK);
    assert_int_equal(ed25519_verify(other, bytes_of("\x73", 1), sig), ERR_UNAUTHENTICATED);
    sig[3] ^= 1;
    assert_int_equal(ed25519_verify(other, bytes_of("\x72", 1), sig), ERR_UNAUTHENTICATED);
    assert_int_equal(ed25519_sign(other, bytes_of("x", 1), sig), ERR_PERMISSION);
    ed25519_key_destroy(key);
    ed25519_key_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_published_vectors),
        cmocka_unit_test(every_way_to_hash_agrees_at_every_length),
        cmocka_unit_test(hmac_gives_the_vectors_of_rfc_4231),
        cmocka_unit_test(crc32c_gives_the_check_value_and_chains),
        cmocka_unit_test(ed25519_gives_the_vector_of_rfc_8032_and_refuses_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
