#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "auth/mint.h"
#include "auth/secret_file.h"

#define FAR INT64_C(4000000000000)

static struct auth_keyring *keys;

static int open_keys(void **state)
{
    (void)state;
    return auth_keyring_generate("k1", FAR, &keys) == ERR_OK ? 0 : -1;
}

static int close_keys(void **state)
{
    (void)state;
    auth_keyring_unref(keys);
    return 0;
}

static void a_minted_token_says_what_it_was_told(void **state)
{
    (void)state;
    const struct str caveats[] = {STR("aud = svc-wallet"), STR("exp < 2030-01-01T00:00:00Z"),
                                  STR("daily <= 10")};
    struct buf b;
    struct auth_token_info info;
    buf_init(&b, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 3, &b, NULL), ERR_OK);
    assert_int_equal(auth_inspect(buf_str(&b), &info), ERR_OK);
    assert_true(str_eq(info.m.kid, STR("k1")));
    assert_int_equal(info.m.ncaveats, 3);
    assert_int_equal(info.caveats[2].kind, AUTH_CV_DAILY);
    assert_true(money_cmp(info.caveats[2].amount, money_from_u64(10)) == 0);
    struct sha256 h;
    sha256_of(b.p, b.n, &h);
    char hex[SHA256_TEXT_CHARS];
    sha256_format(&h, hex);
    assert_memory_equal(info.ref, hex + 7, 16);
    buf_fini(&b);
}

static void a_token_without_aud_or_exp_is_not_made(void **state)
{
    (void)state;
    const struct str no_exp[] = {STR("aud = svc-wallet"), STR("op in read")};
    const struct str no_aud[] = {STR("exp < 2030-01-01T00:00:00Z")};
    struct buf b;
    buf_init(&b, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR(""), no_exp, 2, &b, NULL), ERR_UNPROCESSABLE);
    assert_int_equal(auth_mint(keys, STR(""), no_aud, 1, &b, NULL), ERR_UNPROCESSABLE);
    assert_int_equal(auth_mint(keys, STR(""), NULL, 0, &b, NULL), ERR_UNPROCESSABLE);
    assert_int_equal(b.n, 0);
    buf_fini(&b);
}

static void a_caveat_nobody_would_understand_is_named(void **state)
{
    (void)state;
    const struct str caveats[] = {STR("aud = svc-wallet"), STR("colour = red")};
    struct buf b;
    size_t bad = 77;
    buf_init(&b, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 2, &b, &bad), ERR_SYNTAX);
    assert_int_equal(bad, 1);
    assert_int_equal(auth_mint(keys, STR("k2"), caveats, 2, &b, &bad), ERR_NOT_FOUND);
    assert_int_equal(auth_narrow(STR("rubbish"), caveats, 2, &b, &bad), ERR_SYNTAX);
    assert_int_equal(bad, 2); /* the token, not a caveat */
    buf_fini(&b);
}

static void the_id_of_a_token_grows_with_its_caveats_and_ignores_its_encoding(void **state)
{
    (void)state;
    const struct str caveats[] = {STR("aud = svc-wallet"), STR("exp < 2030-01-01T00:00:00Z")};
    const struct str more[] = {STR("op in read")};
    struct buf wide, narrow;
    struct auth_token_info a, b;
    buf_init(&wide, AUTH_TOKEN_MAX);
    buf_init(&narrow, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 2, &wide, NULL), ERR_OK);
    assert_int_equal(auth_narrow(buf_str(&wide), more, 1, &narrow, NULL), ERR_OK);
    assert_int_equal(auth_inspect(buf_str(&wide), &a), ERR_OK);
    assert_int_equal(auth_inspect(buf_str(&narrow), &b), ERR_OK);
    struct sha256 id = a.id;
    auth_token_id_add(&id, more[0]);
    assert_true(sha256_eq(&id, &b.id));
    assert_false(sha256_eq(&a.id, &b.id));
    while (wide.n % 4 != 0)
        buf_putc(&wide, '=');
    assert_int_equal(auth_inspect(buf_str(&wide), &b), ERR_OK);
    assert_true(sha256_eq(&a.id, &b.id));
    buf_fini(&wide);
    buf_fini(&narrow);
}

/* Where whoever gets it cannot put any. */
static void what_a_token_grants_stands_first_in_it(void **state)
{
    (void)state;
    const struct str caveats[] = {STR("aud = svc-wallet"), STR("op in issue,read"),
                                  STR("exp < 2030-01-01T00:00:00Z"), STR("tenant = t1")};
    static const size_t order[] = {1, 3, 0, 2};
    struct buf b;
    struct auth_token_info info;
    buf_init(&b, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 4, &b, NULL), ERR_OK);
    assert_int_equal(auth_inspect(buf_str(&b), &info), ERR_OK);
    assert_int_equal(info.m.ncaveats, 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(str_eq(info.m.caveats[i], caveats[order[i]]));
    buf_fini(&b);
}

static void read_token(const char *path, struct buf *out)
{
    buf_reset(out);
    assert_int_equal(auth_token_file_read(path, out), ERR_OK);
}

/* One whose ops stand behind aud and exp grants none that has to be spelled out: who starts with such a file gets a new one. */
static void a_token_file_from_before_is_replaced_and_a_narrowed_one_is_kept(void **state)
{
    (void)state;
    const struct str bare[] = {STR("aud = svc-wallet"), STR("exp < 2030-01-01T00:00:00Z")},
                     ops[] = {STR("op in admin")}, caveats[] = {bare[0], bare[1], STR("op in admin,read")};
    const int64_t now = INT64_C(1780000000000);
    char dir[] = "/tmp/ron-mint-XXXXXX", path[64];
    struct buf old, kept, wide;
    buf_init(&old, AUTH_TOKEN_MAX);
    buf_init(&kept, AUTH_TOKEN_MAX);
    buf_init(&wide, AUTH_TOKEN_MAX);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/token", dir);
    assert_int_equal(auth_mint(keys, STR("k1"), bare, 2, &wide, NULL), ERR_OK);
    assert_int_equal(auth_narrow(buf_str(&wide), ops, 1, &old, NULL), ERR_OK);
    assert_int_equal(auth_secret_file_replace(path, buf_str(&old)), ERR_OK);
    assert_int_equal(auth_token_file_ensure(path, keys, caveats, 3, now), ERR_OK);
    read_token(path, &kept);
    assert_false(str_eq(buf_str(&kept), buf_str(&old)));
    buf_reset(&old);
    assert_int_equal(auth_narrow(buf_str(&kept), ops, 1, &old, NULL), ERR_OK);
    assert_int_equal(auth_secret_file_replace(path, buf_str(&old)), ERR_OK);
    assert_int_equal(auth_token_file_ensure(path, keys, caveats, 3, now), ERR_OK);
    read_token(path, &kept);
    assert_true(str_eq(buf_str(&kept), buf_str(&old)));
    unlink(path);
    rmdir(dir);
    buf_fini(&old);
    buf_fini(&kept);
    buf_fini(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minted_token_says_what_it_was_told),
        cmocka_unit_test(a_token_without_aud_or_exp_is_not_made),
        cmocka_unit_test(a_caveat_nobody_would_understand_is_named),
        cmocka_unit_test(the_id_of_a_token_grows_with_its_caveats_and_ignores_its_encoding),
        cmocka_unit_test(what_a_token_grants_stands_first_in_it),
        cmocka_unit_test(a_token_file_from_before_is_replaced_and_a_narrowed_one_is_kept),
    };
    return cmocka_run_group_tests(tests, open_keys, close_keys);
}
