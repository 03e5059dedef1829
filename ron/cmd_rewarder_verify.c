/*
 * Checking a run without the service and without its code: nothing of services/rewarder is used here, so an error there
 * cannot hide here. From the fetched files it recomputes
 *
 *   the inputs digest   canonical rows put together again from payouts.bin
 *   scores and split    exact shares by long division on bits; rounding by its definition
 *   the tree            leaf by leaf, level by level
 *   run.json            its bytes (canonical form), what it says, and its signature
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/ed25519.h"
#include "base/hex.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/cmd_rewarder.h"
#include "ron/cmd_rewarder_verify.h"

enum { FILE_MAX = 1 << 30 };

int verify_mismatch(struct cmd_ctx *ctx, const char *what)
{
    return cmd_fail(ctx, VERIFY_MISMATCH, "mismatch: %s", what);
}

const char *verify_text(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

u128 verify_amount(const json_t *o, const char *name)
{
    struct money m = MONEY_ZERO;
    if (money_parse(str_from_c(verify_text(o, name)), &m) != ERR_OK)
        return 0;
    return m.units;
}

/* ---- reading ---- */

static bool parse_payouts(struct verify_run *r)
{
    const uint8_t *p = r->payouts.p;
    size_t n = r->payouts.n;
    struct sha256 sum;
    if (n < 160 || memcmp(p, "RONPAY01", 8) != 0)
        return false;
    r->dims = be32_get(p + 8);
    r->salt_n = be32_get(p + 12);
    r->rows = be64_get(p + 16);
    r->leaves = be64_get(p + 24);
    r->pool = be128_get(p + 32);
    r->total = be128_get(p + 48);
    if (r->dims < 1 || r->dims > VERIFY_DIMS || r->salt_n > 32 || r->rows > n / 56)
        return false;
    memcpy(r->salt, p + 64, 32);
    size_t at = 128 + 32u * r->dims, stride = 48 + 8u * r->dims, heap = at + r->rows * stride;
    if (heap + 32 > n)
        return false;
    sha256_of(p, n - 32, &sum);
    if (memcmp(sum.b, p + n - 32, 32) != 0)
        return false;
    for (unsigned d = 0; d < r->dims; d++)
        memcpy(r->dim[d], p + 128 + (size_t)32 * d, 32);
    r->row = calloc(r->rows + 1, sizeof *r->row);
    uint64_t expect = 0;
    for (uint64_t i = 0; r->row && i < r->rows; i++, at += stride) {
        struct verify_row *w = &r->row[i];
        uint64_t offset = be64_get(p + at + 32);
        if (offset != expect || heap + offset + p[at + 44] > n - 32)
            return false;
        w->amount = be128_get(p + at);
        w->rounded = be128_get(p + at + 16);
        w->rank = be32_get(p + at + 40);
        w->flags = p[at + 45];
        w->account = (struct str){(const char *)p + heap + offset, p[at + 44]};
        for (unsigned d = 0; d < r->dims; d++)
            w->usage[d] = be64_get(p + at + 48 + (size_t)8 * d);
        expect += w->account.n;
    }
    return r->row && heap + expect == n - 32;
}

static int load(struct cmd_ctx *ctx, const char *dir, struct verify_run *r)
{
    char path[1024];
    json_error_t why;
    buf_init(&r->payouts, FILE_MAX);
    buf_init(&r->manifest, FILE_MAX);
    snprintf(path, sizeof path, "%s/run.json", dir);
    if (rewarder_read_file(ctx, path, &r->manifest) != CMD_OK)
        return VERIFY_UNREADABLE;
    snprintf(path, sizeof path, "%s/payouts.bin", dir);
    if (rewarder_read_file(ctx, path, &r->payouts) != CMD_OK)
        return VERIFY_UNREADABLE;
    r->root = json_loadb((const char *)r->manifest.p, r->manifest.n, JSON_REJECT_DUPLICATES, &why);
    if (!r->root)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "run.json is not JSON");
    return parse_payouts(r) ? CMD_OK : verify_mismatch(ctx, "payouts.bin is damaged");
}

/* ---- inputs digest ---- */

static void add_lp(struct sha256_ctx *h, const void *p, size_t n)
{
    uint8_t len = (uint8_t)n;
    sha256_update(h, &len, 1);
    sha256_update(h, p, n);
}

enum { ROW_MAX = 1 + 255 + 8 * VERIFY_DIMS };

/* In one piece, because a hash of many tiny pieces costs more than the hash. */
static size_t canonical_row(const struct verify_row *row, unsigned dims, uint8_t out[ROW_MAX])
{
    size_t n = 1 + row->account.n;
    out[0] = (uint8_t)row->account.n;
    memcpy(out + 1, row->account.p, row->account.n);
    for (unsigned d = 0; d < dims; d++, n += 8)
        be64_put(out + n, row->usage[d]);
    return n;
}

static int check_digest(struct cmd_ctx *ctx, const struct verify_run *r)
{
    struct sha256_ctx h;
    struct sha256 got;
    char text[SHA256_TEXT_CHARS];
    uint8_t n8[8], row[ROW_MAX];
    uint64_t inputs = 0;
    for (uint64_t i = 0; i < r->rows; i++)
        inputs += !(r->row[i].flags & 2);
    sha256_init(&h);
    sha256_update(&h, "RONROWS1", 8);
    add_lp(&h, verify_text(r->root, "tenant"), strlen(verify_text(r->root, "tenant")));
    add_lp(&h, verify_text(r->root, "epoch"), strlen(verify_text(r->root, "epoch")));
    add_lp(&h, r->salt, r->salt_n);
    uint8_t d8 = (uint8_t)r->dims;
    sha256_update(&h, &d8, 1);
    for (unsigned d = 0; d < r->dims; d++)
        add_lp(&h, r->dim[d], strlen(r->dim[d]));
    be64_put(n8, inputs);
    sha256_update(&h, n8, 8);
    for (uint64_t i = 0; i < r->rows; i++) {
        if (r->row[i].flags & 2)
            continue;
        sha256_update(&h, row, canonical_row(&r->row[i], r->dims, row));
    }
    sha256_final(&h, &got);
    sha256_format(&got, text);
    if (strcmp(text, verify_text(json_object_get(r->root, "inputs"), "digest")) != 0)
        return verify_mismatch(ctx, "the rows in payouts.bin are not the inputs the manifest names");
    return CMD_OK;
}

/* ---- tree ---- */

struct node {
    uint8_t b[48]; /* hash, then the sum */
};

enum { JOIN_BYTES = 97, AT_ONCE = 16, LEAF_MAX = 2 + 16 + 1 + 255 + 16 };

static bool join_text(const struct node *l, const struct node *r, uint8_t out[JOIN_BYTES], u128 *out_sum)
{
    out[0] = 1;
    memcpy(out + 1, l->b, 48);
    memcpy(out + 49, r->b, 48);
    return !__builtin_add_overflow(be128_get(l->b + 32), be128_get(r->b + 32), out_sum);
}

static bool join(const struct node *l, const struct node *r, struct node *out)
{
    uint8_t pre[JOIN_BYTES];
    struct sha256 h;
    u128 sum;
    if (!join_text(l, r, pre, &sum))
        return false;
    sha256_of(pre, sizeof pre, &h);
    memcpy(out->b, h.b, 32);
    be128_put(out->b + 32, sum);
    return true;
}

/* One level up in place, a few nodes at a time: hashes that do not wait for each other are cheaper together. */
static bool join_level(struct node *nodes, uint64_t n)
{
    uint8_t pre[AT_ONCE][JOIN_BYTES];
    struct sha256 h[AT_ONCE] = {{{0}}};
    struct sha256_job job[AT_ONCE];
    u128 sum[AT_ONCE];
    for (uint64_t first = 0; first < n / 2; first += AT_ONCE) {
        size_t k = n / 2 - first < AT_ONCE ? (size_t)(n / 2 - first) : AT_ONCE;
        for (size_t i = 0; i < k; i++) {
            if (!join_text(&nodes[2 * (first + i)], &nodes[2 * (first + i) + 1], pre[i], &sum[i]))
                return false;
            job[i] = (struct sha256_job){{pre[i], JOIN_BYTES}, &h[i]};
        }
        sha256_of_many(job, k);
        for (size_t i = 0; i < k; i++) {
            memcpy(nodes[first + i].b, h[i].b, 32);
            be128_put(nodes[first + i].b + 32, sum[i]);
        }
    }
    if (n % 2)
        nodes[n / 2] = nodes[n - 1];
    return true;
}

static size_t leaf_text(const void *salt, size_t salt_n, struct str account, u128 amount,
                        uint8_t out[LEAF_MAX])
{
    size_t n = 2;
    out[0] = 0;
    out[1] = (uint8_t)salt_n;
    if (salt_n)
        memcpy(out + n, salt, salt_n);
    n += salt_n;
    out[n++] = (uint8_t)account.n;
    memcpy(out + n, account.p, account.n);
    n += account.n;
    be128_put(out + n, amount);
    return n + 16;
}

static struct node leaf_of(const void *salt, size_t salt_n, struct str account, u128 amount)
{
    struct node n;
    struct sha256 h;
    uint8_t text[LEAF_MAX];
    sha256_of(text, leaf_text(salt, salt_n, account, amount, text), &h);
    memcpy(n.b, h.b, 32);
    be128_put(n.b + 32, amount);
    return n;
}

/* The leaves of all rows that are paid, at most `max`; returns how many there are. */
static uint64_t hash_leaves(const struct verify_run *r, struct node *nodes, uint64_t max)
{
    uint8_t text[AT_ONCE][LEAF_MAX];
    struct sha256 h[AT_ONCE] = {{{0}}};
    struct sha256_job job[AT_ONCE];
    uint64_t n = 0;
    size_t k = 0;
    for (uint64_t i = 0; i < r->rows; i++) {
        const struct verify_row *w = &r->row[i];
        struct sha256 mac;
        if (w->amount && n == max)
            return n + 1;
        if (w->amount && r->salt_n)
            sha256_hmac(bytes_of(r->salt, r->salt_n), bytes_of_str(w->account), &mac);
        if (w->amount) {
            size_t len = leaf_text(mac.b, r->salt_n ? 16 : 0, w->account, w->amount, text[k]);
            job[k] = (struct sha256_job){{text[k], len}, &h[k]};
            be128_put(nodes[n++].b + 32, w->amount);
            k++;
        }
        if (k == AT_ONCE || (k && i + 1 == r->rows)) {
            sha256_of_many(job, k);
            for (size_t j = 0; j < k; j++)
                memcpy(nodes[n - k + j].b, h[j].b, 32);
            k = 0;
        }
    }
    return n;
}

static int check_tree(struct cmd_ctx *ctx, const struct verify_run *r)
{
    const json_t *c = json_object_get(r->root, "commitment");
    struct node *nodes = malloc((r->leaves + 1) * sizeof *nodes);
    struct sha256 root;
    char text[SHA256_TEXT_CHARS];
    u128 sum = 0;
    if (!nodes)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "out of memory");
    uint64_t n = hash_leaves(r, nodes, r->leaves);
    bool ok = n == r->leaves && n == (uint64_t)json_integer_value(json_object_get(c, "count"));
    sha256_of("", 0, &root);
    for (uint64_t m = n; ok && m > 1; m = (m + 1) / 2)
        ok = join_level(nodes, m);
    if (n) {
        memcpy(root.b, nodes[0].b, 32);
        sum = be128_get(nodes[0].b + 32);
    }
    free(nodes);
    sha256_format(&root, text);
    if (!ok || strcmp(text, verify_text(c, "root")) != 0 || sum != verify_amount(c, "sum") ||
        sum != r->pool)
        return verify_mismatch(ctx, "the tree over the payouts does not have the committed root and sum");
    return CMD_OK;
}

/* ---- manifest ---- */

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

static int check_signature(struct cmd_ctx *ctx, struct bytes manifest, const char *key_file,
                           const char *sig_file)
{
    uint8_t pub[32];
    struct buf sig;
    if (!read_public_key(ctx, key_file, pub))
        return VERIFY_UNREADABLE;
    buf_init(&sig, 4096);
    int status =
        rewarder_read_file(ctx, sig_file, &sig) == CMD_OK && sig.n == 64 ? CMD_OK : VERIFY_UNREADABLE;
    struct ed25519_key *key = status == CMD_OK ? ed25519_key_from_public(pub) : NULL;
    if (status == CMD_OK && (!key || ed25519_verify(key, manifest, sig.p) != ERR_OK))
        status = verify_mismatch(ctx, "the signature of run.json");
    ed25519_key_destroy(key);
    buf_fini(&sig);
    return status;
}

static void signature_path(const char *dir, const uint8_t pub[32], char out[1024])
{
    struct sha256 h;
    char hex[SHA256_HEX_CHARS];
    sha256_of(pub, 32, &h);
    hex_encode(h.b, 32, hex);
    snprintf(out, 1024, "%s/sigs/%.16s.sig", dir, hex);
}

static int check_manifest(struct cmd_ctx *ctx, const struct verify_run *r, const char *dir)
{
    struct sha256 h;
    char text[SHA256_TEXT_CHARS], key[1024], sig[1024];
    uint8_t pub[32];
    char *canonical = json_dumps(r->root, JSON_COMPACT | JSON_SORT_KEYS);
    bool same =
        canonical && strlen(canonical) == r->manifest.n && !memcmp(canonical, r->manifest.p, r->manifest.n);
    free(canonical);
    if (!same)
        return verify_mismatch(ctx, "run.json is not in canonical form");
    sha256_of(r->payouts.p, r->payouts.n, &h);
    sha256_format(&h, text);
    if (strcmp(text, verify_text(json_object_get(r->root, "files"), "payouts.bin")) != 0)
        return verify_mismatch(ctx, "payouts.bin is not the file the manifest names");
    char *policy = json_dumps(json_object_get(r->root, "policy"), JSON_COMPACT | JSON_SORT_KEYS);
    sha256_of(policy, policy ? strlen(policy) : 0, &h);
    free(policy);
    sha256_format(&h, text);
    if (strcmp(text, verify_text(r->root, "policy_hash")) != 0)
        return verify_mismatch(ctx, "policy_hash is not the hash of the policy");
    if (verify_amount(json_object_get(r->root, "pool"), "amount") != r->pool)
        return verify_mismatch(ctx, "the pool of the manifest is not that of the table");
    snprintf(key, sizeof key, "%s/pub.pem", dir);
    const char *file = cmd_flag(ctx, "key", key);
    if (!read_public_key(ctx, file, pub))
        return VERIFY_UNREADABLE;
    signature_path(dir, pub, sig);
    if (access(sig, R_OK) != 0)
        return verify_mismatch(ctx, "the run is not signed with this key");
    return check_signature(ctx, buf_bytes(&r->manifest), file, sig);
}

/* ---- a run ---- */

int rewarder_verify_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct verify_run r = {.root = NULL};
    const char *inputs = cmd_flag(ctx, "inputs", NULL);
    (void)argc;
    int status = load(ctx, argv[0], &r);
    if (status == CMD_OK)
        status = check_digest(ctx, &r);
    if (status == CMD_OK)
        status = verify_split(ctx, &r);
    if (status == CMD_OK)
        status = verify_totals(ctx, &r);
    if (status == CMD_OK)
        status = check_tree(ctx, &r);
    if (status == CMD_OK)
        status = check_manifest(ctx, &r, argv[0]);
    if (status == CMD_OK && inputs)
        status = verify_inputs(ctx, &r, inputs);
    const char *ledger = cmd_flag(ctx, "ledger", NULL);
    if (status == CMD_OK && ledger)
        status = verify_ledger(ctx, &r, argv[0], ledger);
    if (status == CMD_OK) {
        char pool[MONEY_CHARS];
        money_format((struct money){r.pool}, pool);
        printf(cmd_global(ctx)->json
                   ? "{\"verified\":true,\"epoch\":\"%s\",\"recipients\":%llu,\"pool\":\"%s\",\"root\":\"%"
                     "s\"}\n"
                   : "verified: epoch %s, %llu recipients, every unit of %s accounted for, root %s\n",
               verify_text(r.root, "epoch"), (unsigned long long)r.leaves, pool,
               verify_text(json_object_get(r.root, "commitment"), "root"));
    }
    json_decref(r.root);
    free(r.row);
    buf_fini(&r.payouts);
    buf_fini(&r.manifest);
    return status;
}

/* ---- one proof ---- */

static bool climb(const json_t *proof, struct node *node)
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
        struct node sibling;
        struct sha256 h;
        if (sha256_parse(str_from_c(verify_text(step, "hash")), &h) != ERR_OK)
            return false;
        memcpy(sibling.b, h.b, 32);
        be128_put(sibling.b + 32, verify_amount(step, "sum"));
        bool left = !strcmp(verify_text(step, "side"), "left");
        if (left != (at % 2 == 1) || !(left ? join(&sibling, node, node) : join(node, &sibling, node)))
            return false;
    }
    return used == json_array_size(path);
}

int rewarder_check_proof_run(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct buf payout, manifest;
    json_error_t why;
    uint8_t salt[16];
    char root[SHA256_TEXT_CHARS];
    struct sha256 h;
    const char *run = cmd_flag(ctx, "run", NULL), *key = cmd_flag(ctx, "key", NULL),
               *sig = cmd_flag(ctx, "sig", NULL);
    (void)argc;
    if (!run)
        return cmd_fail(ctx, CMD_USAGE, "name the manifest: --run run.json");
    buf_init(&payout, 1 << 20);
    buf_init(&manifest, 1 << 20);
    if (rewarder_read_file(ctx, argv[0], &payout) != CMD_OK ||
        rewarder_read_file(ctx, run, &manifest) != CMD_OK)
        return VERIFY_UNREADABLE;
    json_t *p = json_loadb((const char *)payout.p, payout.n, 0, &why),
           *m = json_loadb((const char *)manifest.p, manifest.n, 0, &why);
    const json_t *proof = json_object_get(p, "proof"), *c = json_object_get(m, "commitment");
    const char *salt_hex = verify_text(proof, "salt");
    size_t salt_n = strlen(salt_hex) / 2;
    int status = CMD_OK;
    if (!proof || !c || salt_n > 16 || hex_decode(str_from_c(salt_hex), salt, salt_n) != ERR_OK) {
        status = cmd_fail(ctx, VERIFY_UNREADABLE, "the files hold no proof and commitment");
    } else {
        struct node node =
            leaf_of(salt, salt_n, str_from_c(verify_text(p, "account")), verify_amount(p, "amount"));
        bool ok = climb(proof, &node);
        memcpy(h.b, node.b, 32);
        sha256_format(&h, root);
        if (!ok || strcmp(root, verify_text(c, "root")) != 0 ||
            be128_get(node.b + 32) != verify_amount(c, "sum"))
            status = verify_mismatch(
                ctx, "the path does not lead from this payout to the committed root and sum");
    }
    if (status == CMD_OK && key && sig)
        status = check_signature(ctx, buf_bytes(&manifest), key, sig);
    if (status == CMD_OK)
        printf("verified: %s is paid %s of %s\n", verify_text(p, "account"), verify_text(p, "amount"),
               verify_text(c, "sum"));
    json_decref(p);
    json_decref(m);
    buf_fini(&payout);
    buf_fini(&manifest);
    return status;
}
