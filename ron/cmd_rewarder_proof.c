/* `ron rewarder check-proof`, and signatures of manifests: what a recipient checks with a payout, a manifest and a public key alone. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/cmd_rewarder.h"
#include "ron/cmd_rewarder_verify.h"
#include "ron/merkle_sum.h"

enum { PATH_CHARS = 1024, FILES_MAX = 1 << 20, ACCOUNT_MAX = 255, SALT_MAX = 16 };

/* False: what is wrong was said. */
static bool read_public_key(struct cmd_ctx *ctx, const char *path, uint8_t pub[32])
{
    struct buf pem;
    uint8_t der[64];
    size_t n = 0;
    buf_init(&pem, 4096);
    bool there = rewarder_read_file(ctx, path, &pem) == CMD_OK, ok = there;
    const char *text = buf_cstr(&pem), *begin = strchr(text, '\n'),
               *end = begin ? strstr(begin + 1, "\n-----END") : NULL;
    ok = ok && end &&
         base64_decode(str_of(begin + 1, (size_t)(end - begin - 1)), der, sizeof der, &n) == ERR_OK &&
         n == 44;
    if (ok)
        memcpy(pub, der + 12, 32);
    else if (there)
        (void)!cmd_fail(ctx, VERIFY_UNREADABLE, "%s is not an Ed25519 public key (PEM)", path);
    buf_fini(&pem);
    return ok;
}

static void signature_path(const char *dir, const uint8_t pub[32], char out[PATH_CHARS])
{
    struct sha256 h;
    char hex[SHA256_HEX_CHARS];
    sha256_of(pub, 32, &h);
    hex_encode(h.b, 32, hex);
    snprintf(out, PATH_CHARS, "%s/sigs/%.16s.sig", dir, hex);
}

int verify_signature(struct cmd_ctx *ctx, struct bytes manifest, const char *dir, const char *key_file,
                     const char *path)
{
    uint8_t pub[32];
    char beside[PATH_CHARS];
    struct buf sig;
    if (!read_public_key(ctx, key_file, pub))
        return VERIFY_UNREADABLE;
    signature_path(dir, pub, beside);
    if (!path && access(beside, R_OK) != 0)
        return verify_mismatch(ctx, "the run is not signed with this key");
    buf_init(&sig, 4096);
    int status = rewarder_read_file(ctx, path ? path : beside, &sig) == CMD_OK ? CMD_OK : VERIFY_UNREADABLE;
    struct ed25519_key *key = status == CMD_OK ? ed25519_key_from_public(pub) : NULL;
    if (status == CMD_OK && (sig.n != 64 || !key || ed25519_verify(key, manifest, sig.p) != ERR_OK))
        status = verify_mismatch(ctx, "the signature of run.json");
    ed25519_key_destroy(key);
    buf_fini(&sig);
    return status;
}

static bool climb(const json_t *proof, struct merkle_sum *node)
{
    uint64_t n = (uint64_t)json_integer_value(json_object_get(proof, "count"));
    uint64_t at = (uint64_t)json_integer_value(json_object_get(proof, "index"));
    const json_t *path = json_object_get(proof, "path");
    size_t used = 0;
    if (at >= n)
        return false;
    for (; n > 1; n = (n + 1) / 2, at /= 2) {
        if ((at ^ 1) >= n)
            continue;
        const json_t *step = json_array_get(path, used++);
        struct merkle_sum sibling;
        struct sha256 h;
        if (sha256_parse(str_from_c(verify_text(step, "hash")), &h) != ERR_OK)
            return false;
        memcpy(sibling.b, h.b, 32);
        be128_put(sibling.b + 32, verify_amount(step, "sum"));
        bool left = !strcmp(verify_text(step, "side"), "left");
        if (left != (at % 2 == 1) ||
            !(left ? merkle_sum_join(&sibling, node, node) : merkle_sum_join(node, &sibling, node)))
            return false;
    }
    return used == json_array_size(path);
}

static int check_path(struct cmd_ctx *ctx, const json_t *payout, const json_t *commitment)
{
    const json_t *proof = json_object_get(payout, "proof");
    struct str account = str_from_c(verify_text(payout, "account")),
               salt_hex = str_from_c(verify_text(proof, "salt"));
    uint8_t salt[SALT_MAX];
    char root[SHA256_TEXT_CHARS];
    struct sha256 h;
    if (!proof || !commitment || account.n > ACCOUNT_MAX || salt_hex.n > 2 * sizeof salt ||
        hex_decode(salt_hex, salt, salt_hex.n / 2) != ERR_OK)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "the files hold no proof and commitment");
    struct merkle_sum node =
        merkle_sum_leaf(bytes_of(salt, salt_hex.n / 2), account, verify_amount(payout, "amount"));
    bool ok = climb(proof, &node);
    memcpy(h.b, node.b, 32);
    sha256_format(&h, root);
    if (!ok || strcmp(root, verify_text(commitment, "root")) != 0 ||
        be128_get(node.b + 32) != verify_amount(commitment, "sum") ||
        json_integer_value(json_object_get(proof, "count")) !=
            json_integer_value(json_object_get(commitment, "count")))
        return verify_mismatch(ctx,
                               "the path does not lead from this payout to the committed root and sum");
    return CMD_OK;
}

static void say_paid(struct cmd_ctx *ctx, const json_t *payout, const char *sum, bool is_signed)
{
    const char *account = verify_text(payout, "account"), *amount = verify_text(payout, "amount");
    if (cmd_global(ctx)->json) {
        json_t *all = json_pack("{s:b,s:s,s:s,s:s,s:b}", "verified", 1, "account", account, "amount",
                                amount, "sum", sum, "signed", is_signed);
        json_dumpf(all, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(all);
    } else
        printf("verified: %s is paid %s of %s%s\n", account, amount, sum,
               is_signed ? "" : " by this run.json; who signed it was not asked (--key PUB.pem)");
}

int rewarder_check_proof_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct buf payout, manifest;
    json_t *p = NULL, *m = NULL;
    json_error_t why;
    char dir[PATH_CHARS];
    const char *run = cmd_flag(ctx, "run", NULL), *key = cmd_flag(ctx, "key", NULL),
               *sig = cmd_flag(ctx, "sig", NULL);
    (void)argc;
    if (!run || (sig && !key))
        return cmd_fail(ctx, CMD_USAGE,
                        run ? "name the key of the signature: --key PUB.pem"
                            : "name the manifest: --run run.json");
    const char *slash = strrchr(run, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - run) : 1, slash ? run : ".");
    buf_init(&payout, FILES_MAX);
    buf_init(&manifest, FILES_MAX);
    int status = rewarder_read_file(ctx, argv[0], &payout) == CMD_OK &&
                         rewarder_read_file(ctx, run, &manifest) == CMD_OK
                     ? CMD_OK
                     : VERIFY_UNREADABLE;
    if (status == CMD_OK) {
        p = json_loadb((const char *)payout.p, payout.n, JSON_REJECT_DUPLICATES, &why);
        m = json_loadb((const char *)manifest.p, manifest.n, JSON_REJECT_DUPLICATES, &why);
        status = check_path(ctx, p, json_object_get(m, "commitment"));
    }
    if (status == CMD_OK && key)
        status = verify_signature(ctx, buf_bytes(&manifest), dir, key, sig);
    if (status == CMD_OK)
        say_paid(ctx, p, verify_text(json_object_get(m, "commitment"), "sum"), key != NULL);
    json_decref(p);
    json_decref(m);
    buf_fini(&payout);
    buf_fini(&manifest);
    return status;
}
