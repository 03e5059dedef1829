/* Tokens cross the border both ways: made here and narrowed and verified by foreign libraries, and the other way round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth/cap.h"
#include "auth/mint.h"

#define KEY_TEXT "0123456789abcdefghijklmnopqrstuv"
#define KEY_HEX  "303132333435363738396162636465666768696a6b6c6d6e6f70717273747576"
#define AUD      "aud = svc-wallet"
#define EXP      "exp < 2090-01-01T00:00:00Z"

static char dir[64], key_file[128];
static struct auth *auth;
static struct auth_keyring *keys;

/* Runs node on the peer with these arguments; the first line(s) of its output, or NULL when it failed. */
static char *peer(const char *const *args)
{
    static char out[16384];
    const char *argv[24] = {"node", "tests/interop/macaroon/peer.cjs"};
    size_t n = 2, got = 0;
    for (; *args != NULL && n < 23; args++)
        argv[n++] = *args;
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipe_fd[1], STDOUT_FILENO);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(126);
        execvp("node", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipe_fd[1]);
    for (ssize_t r = 1; r > 0; got += (size_t)r) {
        r = read(pipe_fd[0], out + got, sizeof out - 1 - got);
        if (r < 0)
            r = 0;
    }
    close(pipe_fd[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    out[got] = 0;
    while (got > 0 && out[got - 1] == '\n')
        out[--got] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? out : NULL;
}

#define PEER(...) peer((const char *const[]){__VA_ARGS__, NULL})

static int open_all(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ron-peers-XXXXXX");
    if (mkdtemp(dir) == NULL || setenv("PEER_MODULES", "build/npm/tests-interop-macaroon", 1) != 0)
        return -1;
    if (system("tools/npm_packages tests/interop/macaroon >/dev/null") != 0) {
        print_error("the foreign libraries cannot be installed\n");
        return -1;
    }
    snprintf(key_file, sizeof key_file, "%s/keys", dir);
    FILE *f = fopen(key_file, "w");
    if (f == NULL || fputs("k1 " KEY_HEX " 2090-01-01T00:00:00Z\n", f) < 0 || fclose(f) != 0)
        return -1;
    struct auth_config cfg = {
        .aud = "svc-wallet", .key_file = key_file, .understands = AUTH_BIT(AUTH_CV_ACCOUNT)};
    if (chmod(key_file, 0600) != 0 || auth_keyring_load(key_file, &keys, NULL) != ERR_OK)
        return -1;
    return auth_open(&cfg, &auth, NULL) == ERR_OK ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    auth_close(auth);
    auth_keyring_unref(keys);
    unlink(key_file);
    return rmdir(dir);
}

static enum err allowed(const char *token, const char *account)
{
    struct auth_cap *cap;
    enum err e = auth_verify(auth, str_from_c(token), &cap);
    if (e != ERR_OK)
        return e;
    struct auth_want w = {
        .op = STR("read"), .account = str_from_c(account), .now_ms = clock_wall_ms(clock_real())};
    e = auth_allows(cap, &w, NULL);
    auth_cap_release(cap);
    return e;
}

static void our_token(char *out)
{
    struct str caveats[] = {STR(AUD), STR(EXP)};
    struct buf b;
    buf_init_fixed(&b, out, AUTH_TOKEN_MAX);
    assert_int_equal(auth_mint(keys, STR("k1"), caveats, 2, &b, NULL), ERR_OK);
    out[b.n] = 0;
}

static void a_foreign_token_is_verified_and_its_caveats_hold(void **state)
{
    (void)state;
    static const char *const libs[] = {"v1", "v2"};
    for (int i = 0; i < 2; i++) {
        char *token = PEER(libs[i], "make", KEY_TEXT, "k1", AUD, EXP), wide[AUTH_TOKEN_MAX + 1];
        assert_non_null(token);
        assert_int_equal(allowed(token, "acct:bob"), ERR_OK);
        snprintf(wide, sizeof wide, "%s", token);
        token = PEER(libs[i], "narrow", wide, "account in acct:a*");
        assert_non_null(token);
        assert_int_equal(allowed(token, "acct:alice"), ERR_OK);
        assert_int_equal(allowed(token, "acct:bob"), ERR_FORBIDDEN);
        token = PEER(libs[i], "make", "another key of thirty-two bytes.", "k1", AUD, EXP);
        assert_non_null(token);
        assert_int_equal(allowed(token, "acct:alice"), ERR_UNAUTHENTICATED);
    }
}

static void our_token_narrowed_by_others_is_verified_and_narrower(void **state)
{
    (void)state;
    char ours[AUTH_TOKEN_MAX + 1];
    our_token(ours);
    assert_int_equal(allowed(ours, "acct:bob"), ERR_OK);
    char *narrow = PEER("v1", "narrow", ours, "account in acct:alice");
    assert_non_null(narrow);
    assert_int_equal(allowed(narrow, "acct:alice"), ERR_OK);
    assert_int_equal(allowed(narrow, "acct:bob"), ERR_FORBIDDEN);
    char *unknown = PEER("v1", "narrow", ours, "colour = red");
    assert_non_null(unknown);
    assert_int_equal(allowed(unknown, "acct:alice"), ERR_FORBIDDEN);
}

static void a_foreign_token_narrowed_here_is_verified_there(void **state)
{
    (void)state;
    char *theirs = PEER("v2", "make", KEY_TEXT, "k1", AUD, EXP);
    assert_non_null(theirs);
    struct str more[] = {STR("op in read")};
    char narrowed[AUTH_TOKEN_MAX + 1];
    struct buf b;
    buf_init_fixed(&b, narrowed, AUTH_TOKEN_MAX);
    assert_int_equal(auth_narrow(str_from_c(theirs), more, 1, &b, NULL), ERR_OK);
    narrowed[b.n] = 0;
    char *seen = PEER("v1", "verify", KEY_TEXT, narrowed);
    assert_non_null(seen);
    assert_string_equal(seen, AUD "\n" EXP "\nop in read");
}

static void our_tokens_are_verified_by_others_and_forged_ones_are_not(void **state)
{
    (void)state;
    char ours[AUTH_TOKEN_MAX + 1];
    our_token(ours);
    char *seen = PEER("v1", "verify", KEY_TEXT, ours); /* the other library cannot read version 1 */
    assert_non_null(seen);
    assert_string_equal(seen, AUD "\n" EXP);
    assert_null(PEER("v1", "verify", "another key of thirty-two bytes.", ours));
}

static void third_party_caveats_of_others_deny(void **state)
{
    (void)state;
    char ours[AUTH_TOKEN_MAX + 1];
    our_token(ours);
    char *third = PEER("v1", "third", ours);
    assert_non_null(third);
    assert_int_equal(allowed(third, "acct:alice"), ERR_UNAUTHENTICATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_token_is_verified_and_its_caveats_hold),
        cmocka_unit_test(our_token_narrowed_by_others_is_verified_and_narrower),
        cmocka_unit_test(a_foreign_token_narrowed_here_is_verified_there),
        cmocka_unit_test(our_tokens_are_verified_by_others_and_forged_ones_are_not),
        cmocka_unit_test(third_party_caveats_of_others_deny),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
