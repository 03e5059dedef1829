/* Hashing side by side gives the bytes that hashing one by one gives, and OpenSSL's digest interface agrees with both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <openssl/evp.h>
#include <string.h>

#include "base/sha256.h"
#include "tests/prop/base/seed.h"

enum { MANY = 9, LONG = 2000 };

static void openssl_says(struct bytes m, struct sha256 *out)
{
    unsigned n = 0;
    assert_int_equal(EVP_Digest(m.p, m.n, out->b, &n, EVP_sha256(), NULL), 1);
    assert_int_equal(n, sizeof out->b);
}

static void check_jobs(const struct sha256_job *jobs, size_t n)
{
    struct sha256 expected, portable[MANY];
    struct sha256_job again[MANY];
    sha256_of_many(jobs, n);
    for (size_t i = 0; i < n; i++)
        again[i] = (struct sha256_job){jobs[i].message, &portable[i]};
    sha256_of_many_portable(again, n);
    for (size_t i = 0; i < n; i++) {
        openssl_says(jobs[i].message, &expected);
        assert_memory_equal(jobs[i].out, &expected, sizeof expected);
        assert_memory_equal(&portable[i], &expected, sizeof expected);
    }
}

static void two_messages_of_any_two_lengths_hash_as_alone(void **state)
{
    (void)state;
    struct rng r = seed_rng("lengths");
    uint8_t a[260], b[260];
    rng_bytes(&r, a, sizeof a);
    rng_bytes(&r, b, sizeof b);
    for (size_t n = 0; n <= sizeof a; n++)
        for (size_t k = 0; k <= sizeof b; k += 1 + n % 7) {
            struct sha256 out[2];
            check_jobs((const struct sha256_job[]){{bytes_of(a, n), &out[0]}, {bytes_of(b, k), &out[1]}},
                       2);
        }
}

static void any_number_of_messages_anywhere_in_memory_hash_as_alone(void **state)
{
    (void)state;
    struct rng r = seed_rng("many");
    static uint8_t text[MANY][LONG + 64];
    struct sha256 out[MANY];
    struct sha256_job jobs[MANY];
    for (unsigned round = 0; round < 4000; round++) {
        size_t n = rng_below(&r, MANY + 1);
        for (size_t i = 0; i < n; i++) {
            size_t at = rng_below(&r, 64), len = rng_below(&r, round % 4 == 0 ? LONG : 200);
            rng_bytes(&r, text[i] + at, len);
            jobs[i] = (struct sha256_job){bytes_of(text[i] + at, len), &out[i]};
        }
        check_jobs(jobs, n);
    }
}

static void nodes_hash_in_place_as_pair_by_pair(void **state)
{
    (void)state;
    struct rng r = seed_rng("nodes");
    struct sha256 nodes[2 * MANY], one[MANY], portable[MANY];
    for (unsigned round = 0; round < 4000; round++) {
        size_t n = rng_below(&r, MANY + 1);
        rng_bytes(&r, nodes, sizeof nodes);
        for (size_t i = 0; i < n; i++) {
            uint8_t text[65] = {(uint8_t)round};
            memcpy(text + 1, &nodes[2 * i], 64);
            openssl_says(bytes_of(text, sizeof text), &one[i]);
        }
        size_t further = rng_below(&r, 2);
        sha256_of_pairs_portable((uint8_t)round, nodes, n, portable);
        sha256_of_pairs((uint8_t)round, nodes, n, nodes + further);
        if (n > 0) {
            assert_memory_equal(nodes + further, one, n * sizeof one[0]);
            assert_memory_equal(portable, one, n * sizeof one[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_messages_of_any_two_lengths_hash_as_alone),
        cmocka_unit_test(any_number_of_messages_anywhere_in_memory_hash_as_alone),
        cmocka_unit_test(nodes_hash_in_place_as_pair_by_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
