#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/keyring.h"
#include "auth/mint.h"
#include "auth/secret_file.h"

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static char dir[64], path[128];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ron-keyring-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/file", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void put(const char *text, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void several_keys_live_side_by_side(void **state)
{
    (void)state;
    struct auth_keyring *k;
    put("# keys\n\nold " KEY_A " 2026-01-01T00:00:00Z\n  new " KEY_B " 2030-01-01T00:00:00Z  \n", 0600);
    assert_int_equal(auth_keyring_load(path, &k, NULL), ERR_OK);
    assert_int_equal(auth_keyring_count(k), 2);
    assert_string_equal(auth_keyring_newest(k)->kid, "new");
    assert_int_equal(auth_keyring_find(k, STR("old"))->key[1], 1);
    assert_int_equal(auth_keyring_find(k, STR("new"))->key[0], 0xff);
    assert_null(auth_keyring_find(k, STR("ne")));
    auth_keyring_unref(k);
}

static void a_key_file_that_others_can_read_is_refused(void **state)
{
    (void)state;
    static const mode_t modes[] = {0640, 0604, 0660, 0601, 0777};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        struct auth_keyring *k = NULL;
        struct auth_file_error where;
        put("k1 " KEY_A " 2030-01-01T00:00:00Z\n", modes[i]);
        assert_int_equal(auth_keyring_load(path, &k, &where), ERR_PERMISSION);
        assert_null(k);
        assert_non_null(strstr(where.reason, "600"));
    }
}

static void a_bad_line_is_named_and_nothing_is_loaded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line;
        enum err want;
    } rows[] = {
        {"", 0, ERR_EMPTY},
        {"# nothing\n", 0, ERR_EMPTY},
        {"k1\n", 1, ERR_SYNTAX},
        {"k1 " KEY_A "\n", 1, ERR_SYNTAX},
        {"k1 " KEY_A " soon\n", 1, ERR_SYNTAX},
        {"k1 0011 2030-01-01T00:00:00Z\n", 1, ERR_SYNTAX},
        {"k1 " KEY_A "0 2030-01-01T00:00:00Z\n", 1, ERR_SYNTAX},
        {"k/1 " KEY_A " 2030-01-01T00:00:00Z\n", 1, ERR_SYNTAX},
        {"k1 " KEY_A " 2030-01-01T00:00:00Z\n\nk1 " KEY_B " 2030-01-01T00:00:00Z\n", 3, ERR_SYNTAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct auth_keyring *k = NULL;
        struct auth_file_error where = {99, NULL};
        put(rows[i].text, 0600);
        assert_int_equal(auth_keyring_load(path, &k, &where), rows[i].want);
        assert_int_equal(where.line, rows[i].line);
        assert_null(k);
    }
}

static void first_start_makes_a_key_and_the_next_one_keeps_it(void **state)
{
    (void)state;
    struct auth_keyring *first, *second;
    struct stat st;
    unlink(path);
    assert_int_equal(auth_keyring_load(path, &first, NULL), ERR_NOT_FOUND);
    assert_int_equal(auth_keyring_ensure_file(path, "k1", INT64_C(2000000000000)), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(auth_keyring_load(path, &first, NULL), ERR_OK);
    assert_int_equal(auth_keyring_ensure_file(path, "k1", INT64_C(2000000000000)), ERR_OK);
    assert_int_equal(auth_keyring_load(path, &second, NULL), ERR_OK);
    assert_int_equal(auth_keyring_at(first, 0)->not_after_ms, INT64_C(2000000000000));
    assert_memory_equal(auth_keyring_at(first, 0)->key, auth_keyring_at(second, 0)->key,
                        AUTH_KEY_BYTES_MIN);
    auth_keyring_unref(first);
    auth_keyring_unref(second);
}

static void revoked_ids_are_found_whatever_their_order(void **state)
{
    (void)state;
    struct auth_revoked *r;
    struct sha256 id = {{0}};
    put(KEY_B " stolen laptop\n# a remark\n" KEY_A "\n", 0644);
    assert_int_equal(auth_revoked_load(path, &r, NULL), ERR_OK);
    assert_int_equal(auth_revoked_count(r), 2);
    assert_false(auth_revoked_has(r, &id));
    for (uint8_t i = 0; i < 32; i++)
        id.b[i] = i;
    assert_true(auth_revoked_has(r, &id));
    id.b[0] = 0xff;
    assert_true(auth_revoked_has(r, &id));
    auth_revoked_unref(r);
    unlink(path);
    assert_int_equal(auth_revoked_load(path, &r, NULL),
                     ERR_NOT_FOUND); /* whoever asks knows what that means */
    put("", 0600);
    assert_int_equal(auth_revoked_load(path, &r, NULL), ERR_OK);
    assert_int_equal(auth_revoked_count(r), 0);
    auth_revoked_unref(r);
    unlink(path);
}

static void a_revocation_file_with_a_bad_line_is_refused(void **state)
{
    (void)state;
    struct auth_revoked *r = NULL;
    struct auth_file_error where;
    put(KEY_B "\nnonsense\n", 0600);
    assert_int_equal(auth_revoked_load(path, &r, &where), ERR_SYNTAX);
    assert_int_equal(where.line, 2);
    assert_null(r);
}

static void a_secret_file_is_never_overwritten_by_create(void **state)
{
    (void)state;
    struct auth_secret s;
    unlink(path);
    assert_int_equal(auth_secret_file_create(path, STR("one")), ERR_OK);
    assert_int_equal(auth_secret_file_create(path, STR("two")), ERR_EXISTS);
    assert_int_equal(auth_secret_file_read(path, 100, true, &s), ERR_OK);
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "one", 3);
    auth_secret_free(&s);
    assert_int_equal(auth_secret_file_replace(path, STR("three")), ERR_OK);
    assert_int_equal(auth_secret_file_read(path, 4, true, &s), ERR_TOO_LARGE);
    assert_int_equal(auth_secret_file_read(dir, 100, false, &s), ERR_PERMISSION);
}

static void a_token_file_is_kept_while_good_and_made_again_when_not(void **state)
{
    (void)state;
    const struct str caveats[] = {STR("aud in *"), STR("exp < 2030-01-01T00:00:00Z")};
    const int64_t now = INT64_C(1700000000000), later = INT64_C(1900000000000);
    struct auth_keyring *k, *other;
    struct buf a, b;
    buf_init(&a, AUTH_TOKEN_MAX);
    buf_init(&b, AUTH_TOKEN_MAX);
    unlink(path);
    assert_int_equal(auth_keyring_generate("k1", later * 2, &k), ERR_OK);
    assert_int_equal(auth_keyring_generate("k1", later * 2, &other), ERR_OK);
    assert_int_equal(auth_token_file_ensure(path, k, caveats, 2, now), ERR_OK);
    assert_int_equal(auth_token_file_read(path, &a), ERR_OK);
    const struct str narrower[] = {STR("aud = svc-wallet"), STR("exp < 2099-01-01T00:00:00Z")};
    assert_int_equal(auth_token_file_ensure(path, k, narrower, 2, now), ERR_OK);
    assert_int_equal(auth_token_file_read(path, &b), ERR_OK);
    assert_string_equal(buf_cstr(&a), buf_cstr(&b)); /* good: kept */
    assert_int_equal(auth_token_file_ensure(path, k, narrower, 2, later), ERR_OK);
    buf_reset(&b);
    assert_int_equal(auth_token_file_read(path, &b), ERR_OK);
    assert_string_not_equal(buf_cstr(&a), buf_cstr(&b)); /* expired: made again */
    buf_reset(&a);
    assert_int_equal(auth_token_file_ensure(path, other, narrower, 2, later), ERR_OK);
    assert_int_equal(auth_token_file_read(path, &a), ERR_OK);
    assert_string_not_equal(buf_cstr(&a), buf_cstr(&b)); /* another key: made again */
    auth_keyring_unref(k);
    auth_keyring_unref(other);
    buf_fini(&a);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_keys_live_side_by_side),
        cmocka_unit_test(a_key_file_that_others_can_read_is_refused),
        cmocka_unit_test(a_bad_line_is_named_and_nothing_is_loaded),
        cmocka_unit_test(first_start_makes_a_key_and_the_next_one_keeps_it),
        cmocka_unit_test(revoked_ids_are_found_whatever_their_order),
        cmocka_unit_test(a_revocation_file_with_a_bad_line_is_refused),
        cmocka_unit_test(a_secret_file_is_never_overwritten_by_create),
        cmocka_unit_test(a_token_file_is_kept_while_good_and_made_again_when_not),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
