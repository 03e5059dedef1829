/*
 * ron cap: make, narrow and look at capabilities. Narrowing needs no key: that is the point of them.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "auth/mint.h"
#include "auth/secret_file.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/json_write.h"
#include "base/str.h"
#include "base/time_fmt.h"
#include "ron/cmd.h"
#include "ron/table.h"

enum { CAVEATS_MAX = 32, TOKEN_MAX = 8192 };

static int print_token(const struct cmd_ctx *ctx, struct buf *token)
{
    printf(cmd_global(ctx)->json ? "{\"token\":\"%.*s\"}\n" : "%.*s\n", (int)token->n,
           (const char *)token->p);
    buf_fini(token);
    return CMD_OK;
}

/* "exp 30d" would read well, but a caveat is absolute: --for 30d becomes "exp < <date>". */
static int lifetime_caveat(struct cmd_ctx *ctx, const char *text, char *out, size_t n)
{
    int64_t ms;
    char date[TIME_FMT_CHARS];
    if (str_parse_duration_ms(str_from_c(text), &ms) != ERR_OK || ms <= 0)
        return cmd_fail(ctx, CMD_USAGE, "--for takes a duration like 15m, 24h or 30d, not '%s'", text);
    time_format_ms(clock_wall_ms(clock_real()) + ms, date);
    snprintf(out, n, "exp < %s", date);
    return CMD_OK;
}

static int run_mint(struct cmd_ctx *ctx, int argc, char **argv)
{
    char path[PATH_MAX], expires[64], advice[AUTH_SECRET_ADVICE_MAX];
    struct str caveats[CAVEATS_MAX];
    struct auth_keyring *keys;
    struct auth_file_error where = {0};
    size_t n = 0, bad = 0;

    for (; n < (size_t)argc && n < CAVEATS_MAX - 1; n++)
        caveats[n] = str_from_c(argv[n]);
    const char *lifetime = cmd_flag(ctx, "for", NULL);
    if (lifetime) {
        int status = lifetime_caveat(ctx, lifetime, expires, sizeof expires);
        if (status != CMD_OK)
            return status;
        caveats[n++] = str_from_c(expires);
    }
    snprintf(path, sizeof path, "%s/keys/capabilities", cmd_global(ctx)->data);
    const char *key_file = cmd_flag(ctx, "keys", path);
    enum err e = auth_keyring_load(key_file, &keys, &where);
    if (e == ERR_NOT_FOUND)
        return cmd_fail(ctx, CMD_FAILED,
                        "%s does not exist; start ron once, or name a key file with --keys", key_file);
    if (e == ERR_PERMISSION)
        return cmd_fail(ctx, CMD_FAILED, "%s %s", key_file, auth_secret_file_advice(key_file, advice));
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s line %u: %s", key_file, where.line,
                        where.reason ? where.reason : err_title(e));
    struct buf token;
    buf_init(&token, TOKEN_MAX);
    e = auth_mint(keys, str_from_c(cmd_flag(ctx, "kid", "")), caveats, n, &token, &bad);
    auth_keyring_unref(keys);
    if (e == ERR_SYNTAX)
        return cmd_fail(ctx, CMD_USAGE, "this is not a caveat: '%.*s'; write it like 'op in read'",
                        STR_ARG(caveats[bad]));
    if (e == ERR_UNPROCESSABLE)
        return cmd_fail(ctx, CMD_USAGE,
                        "a token needs an audience and an end: add 'aud = svc-wallet' and --for 24h");
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "cannot mint: %s", err_title(e));
    return print_token(ctx, &token);
}

/* A token given as "-" comes from standard input, so that it need not stand in the shell's history. */
static struct str token_argument(const char *arg, char *room, size_t n)
{
    if (strcmp(arg, "-") != 0)
        return str_from_c(arg);
    size_t got = fread(room, 1, n, stdin);
    return str_trim(str_of(room, got && room[got - 1] == '\n' ? got - 1 : got));
}

static int run_narrow(struct cmd_ctx *ctx, int argc, char **argv)
{
    char room[TOKEN_MAX], expires[64];
    struct str caveats[CAVEATS_MAX], token = token_argument(argv[0], room, sizeof room);
    size_t n = 0, bad = 0;
    for (; n + 1 < (size_t)argc && n < CAVEATS_MAX - 1; n++)
        caveats[n] = str_from_c(argv[n + 1]);
    const char *lifetime = cmd_flag(ctx, "for", NULL);
    if (lifetime) {
        int status = lifetime_caveat(ctx, lifetime, expires, sizeof expires);
        if (status != CMD_OK)
            return status;
        caveats[n++] = str_from_c(expires);
    }
    if (n == 0)
        return cmd_fail(ctx, CMD_USAGE, "name at least one caveat to add, for example 'op in read'");
    struct buf narrowed;
    buf_init(&narrowed, TOKEN_MAX);
    enum err e = auth_narrow(token, caveats, n, &narrowed, &bad);
    if (e == ERR_SYNTAX && bad < n)
        return cmd_fail(ctx, CMD_USAGE, "this is not a caveat: '%.*s'; write it like 'op in read'",
                        STR_ARG(caveats[bad]));
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_USAGE, "the first argument is not a token");
    return print_token(ctx, &narrowed);
}

/* Whoever made the token wrote these words, and the terminal must not take them for its own. */
static const char *tamed(struct str text, char out[TOKEN_MAX])
{
    snprintf(out, TOKEN_MAX, "%.*s", STR_ARG(text));
    table_tame(out, strlen(out), "");
    return out;
}

static int run_inspect(struct cmd_ctx *ctx, int argc, char **argv)
{
    char room[TOKEN_MAX], shown[TOKEN_MAX], id[65];
    struct auth_token_info info;
    (void)argc;
    if (auth_inspect(token_argument(argv[0], room, sizeof room), &info) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "this is not a token");
    hex_encode(info.id.b, sizeof info.id.b, id);
    if (cmd_global(ctx)->json) {
        struct buf b;
        struct json_w w;
        buf_init(&b, 1 << 20);
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_key(&w, "kid");
        json_str(&w, info.m.kid);
        json_key(&w, "id");
        json_str(&w, str_from_c(id));
        json_key(&w, "ref");
        json_str(&w, str_from_c(info.ref));
        json_key(&w, "caveats");
        json_arr_begin(&w);
        for (size_t i = 0; i < info.m.ncaveats; i++)
            json_str(&w, info.m.caveats[i]);
        json_arr_end(&w);
        json_obj_end(&w);
        printf("%s\n", buf_cstr(&b));
        buf_fini(&b);
        return CMD_OK;
    }
    printf("key id   %s\n", tamed(info.m.kid, shown));
    printf("token id %s   (put this into keys/revoked to revoke it)\n", id);
    printf("in logs  %s\n", info.ref);
    for (size_t i = 0; i < info.m.ncaveats; i++)
        printf("caveat   %s%s\n", tamed(info.m.caveats[i], shown),
               info.caveats[i].kind == AUTH_CV_UNKNOWN ? "   (unknown: denies)" : "");
    puts("Nothing above is verified: only a service that holds the key can do that.");
    return CMD_OK;
}

static const struct cmd_flag mint_flags[] = {
    {"for", CMD_VALUE, "DURATION", "how long it lives: 15m, 24h, 30d"},
    {"kid", CMD_VALUE, "ID", "sign with this key (default: the one that lives longest)"},
    {"keys", CMD_VALUE, "FILE", "key file (default DIR/keys/capabilities)"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd_flag narrow_flags[] = {
    {"for", CMD_VALUE, "DURATION", "let it end earlier: 15m, 24h, 30d"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {"mint", "CAVEAT...", "make a capability",
     "  ron cap mint 'aud = svc-wallet' 'op in read' --for 24h\n"
     "  ron cap mint 'aud = svc-wallet' 'op in transfer' 'account in acct:alice' 'max_amount <= 5000' "
     "--for 1h",
     mint_flags, 0, CAVEATS_MAX - 1, run_mint},
    {"narrow", "TOKEN|- CAVEAT...", "take rights away from a capability; needs no key",
     "  ron cap narrow \"$TOKEN\" 'op in read'\n  ron cap narrow - --for 5m < operator.token", narrow_flags,
     1, CAVEATS_MAX, run_narrow},
    {"inspect", "TOKEN|-", "show what a capability says", "  ron cap inspect - < ron-data/operator.token",
     NULL, 1, 1, run_inspect},
    {.run = NULL},
};

const struct cmd_group cmd_cap = {
    .noun = "cap", .summary = "make, narrow and inspect capabilities", .commands = commands};
