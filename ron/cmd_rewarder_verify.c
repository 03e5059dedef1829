/*
 * Checking a run without the service and without its code: nothing of services/rewarder is used here, so an error there
 * cannot hide here. From the fetched files it recomputes
 *
 *   the inputs digest   canonical rows put together again from payouts.bin
 *   scores and split    exact shares by long division on bits; rounding by its definition
 *   the tree            leaf by leaf, level by level
 *   run.json            its bytes (canonical form), what it says, and its signature
 *
 * With --commitment the digest and the split are left out. The table is read in parts, on all cores.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/str.h"
#include "ron/cmd_rewarder.h"
#include "ron/cmd_rewarder_verify.h"
#include "ron/crew.h"
#include "rt/os.h"

#define RUN_TYPE "ron-reward-run/1"

enum { MANIFEST_MAX = 1 << 30 };

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

/* ---- all cores ---- */

enum { PART_ROWS = 65536 };

struct shift {
    struct verify_run *run;
    void (*part)(struct verify_run *r, struct verify_part *p);
    void (*beside)(struct verify_run *r);
};

static void work(void *arg, uint64_t i)
{
    const struct shift *s = arg;
    if (s->beside && i == 0)
        s->beside(s->run);
    else
        s->part(s->run, &s->run->part[i - (s->beside != NULL)]);
}

const char *verify_each(struct verify_run *r, void (*part)(struct verify_run *r, struct verify_part *p),
                        void (*beside)(struct verify_run *r))
{
    crew_run(os_cpus(), r->parts + (beside != NULL), work, &(struct shift){r, part, beside});
    for (uint64_t i = 0; i < r->parts; i++)
        if (r->part[i].wrong)
            return r->part[i].wrong;
    return NULL;
}

/* ---- reading ---- */

static const char damaged[] = "payouts.bin is damaged";

/* Offset 128: names of the dimensions; then the rows; then the names of the accounts, one after the other; then the hash. */
static size_t rows_at(const struct verify_run *r)
{
    return 128 + 32u * r->dims;
}

static size_t row_bytes(const struct verify_run *r)
{
    return 48 + 8u * r->dims;
}

static void read_rows(struct verify_run *r, struct verify_part *p)
{
    const uint8_t *at = r->payouts.p + rows_at(r) + p->from * row_bytes(r);
    size_t heap = rows_at(r) + r->rows * row_bytes(r), end = r->payouts.n - 32;
    uint64_t expect = 0; /* where the name before this part ends */
    if (p->from)
        expect = be64_get(at - row_bytes(r) + 32) + at[44 - (ptrdiff_t)row_bytes(r)];
    for (uint64_t i = p->from; i < p->to; i++, at += row_bytes(r)) {
        struct verify_row *w = &r->row[i];
        uint64_t offset = be64_get(at + 32);
        if (offset != expect || offset > end - heap || at[44] > end - heap - offset) {
            p->wrong = damaged;
            return;
        }
        w->amount = be128_get(at);
        w->rounded = be128_get(at + 16);
        w->rank = be32_get(at + 40);
        w->flags = at[45];
        w->account = (struct str){(const char *)r->payouts.p + heap + offset, at[44]};
        w->usage = at + 48;
        p->leaves += w->amount > 0;
        expect += w->account.n;
    }
    if (p->to == r->rows && heap + expect != end)
        p->wrong = damaged;
}

/* Of all of it, and of all but the hash at its end, in one pass. */
static void hash_file(struct verify_run *r)
{
    struct sha256_ctx h, whole;
    struct sha256 sum;
    size_t n = r->payouts.n - 32;
    sha256_init(&h);
    sha256_update(&h, r->payouts.p, n);
    whole = h;
    sha256_final(&h, &sum);
    sha256_update(&whole, r->payouts.p + n, 32);
    sha256_final(&whole, &r->payouts_digest);
    r->intact = !memcmp(sum.b, r->payouts.p + n, 32);
}

static bool read_heading(struct verify_run *r)
{
    const uint8_t *p = r->payouts.p;
    size_t n = r->payouts.n;
    r->dims = be32_get(p + 8);
    r->salt_n = be32_get(p + 12);
    r->rows = be64_get(p + 16);
    r->leaves = be64_get(p + 24);
    r->pool = be128_get(p + 32);
    r->total = be128_get(p + 48);
    if (r->dims < 1 || r->dims > VERIFY_DIMS || r->salt_n > 32 || r->rows > n / 56 ||
        rows_at(r) + r->rows * row_bytes(r) + 32 > n)
        return false;
    memcpy(r->salt, p + 64, 32);
    for (unsigned d = 0; d < r->dims; d++)
        memcpy(r->dim[d], p + 128 + (size_t)32 * d, 32);
    return true;
}

/* Nothing is wrong with it that we could know. */
static int other_version(struct cmd_ctx *ctx, const char *file, const char *is, size_t n, const char *ours)
{
    return cmd_fail(
        ctx, VERIFY_UNREADABLE,
        "%s is of the format %.*s, and this program knows %s: verify it with the version that wrote it",
        file, (int)(n < 32 ? n : 32), is, ours);
}

static int parse_payouts(struct cmd_ctx *ctx, struct verify_run *r)
{
    if (r->payouts.n > 8 && !memcmp(r->payouts.p, "RONPAY", 6) && memcmp(r->payouts.p, "RONPAY01", 8) != 0)
        return other_version(ctx, "payouts.bin", (const char *)r->payouts.p, 8, "RONPAY01");
    if (r->payouts.n < 160 || memcmp(r->payouts.p, "RONPAY01", 8) != 0 || !read_heading(r))
        return verify_mismatch(ctx, damaged);
    r->parts = (r->rows + PART_ROWS - 1) / PART_ROWS;
    r->row = malloc((r->rows + 1) * sizeof *r->row);
    r->part = calloc(r->parts + 1, sizeof *r->part);
    if (!r->row || !r->part)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "out of memory");
    for (uint64_t i = 0; i < r->parts; i++) {
        r->part[i].from = i * PART_ROWS;
        r->part[i].to = i + 1 < r->parts ? (i + 1) * PART_ROWS : r->rows;
    }
    return !verify_each(r, read_rows, hash_file) && r->intact ? CMD_OK : verify_mismatch(ctx, damaged);
}

static int load(struct cmd_ctx *ctx, const char *dir, struct verify_run *r)
{
    char path[1024];
    json_error_t why;
    buf_init(&r->payouts, REWARDER_FILE_MAX);
    buf_init(&r->manifest, MANIFEST_MAX);
    snprintf(path, sizeof path, "%s/run.json", dir);
    if (rewarder_read_file(ctx, path, &r->manifest) != CMD_OK)
        return VERIFY_UNREADABLE;
    snprintf(path, sizeof path, "%s/payouts.bin", dir);
    if (rewarder_read_file(ctx, path, &r->payouts) != CMD_OK)
        return VERIFY_UNREADABLE;
    r->root = json_loadb((const char *)r->manifest.p, r->manifest.n, JSON_REJECT_DUPLICATES, &why);
    if (!r->root)
        return cmd_fail(ctx, VERIFY_UNREADABLE, "run.json is not JSON");
    const char *type = verify_text(r->root, "type");
    if (strcmp(type, RUN_TYPE) != 0)
        return other_version(ctx, "run.json", type, strlen(type), RUN_TYPE);
    return parse_payouts(ctx, r);
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
    memcpy(out + n, row->usage, (size_t)8 * dims); /* both are big-endian */
    return n + (size_t)8 * dims;
}

static void hash_rows(struct verify_run *r)
{
    struct sha256_ctx h;
    uint8_t n8[8], d8 = (uint8_t)r->dims, row[ROW_MAX];
    uint64_t inputs = r->rows;
    for (uint64_t i = 0; i < r->parts; i++)
        inputs -= r->part[i].dust_rows;
    sha256_init(&h);
    sha256_update(&h, "RONROWS1", 8);
    add_lp(&h, verify_text(r->root, "tenant"), strlen(verify_text(r->root, "tenant")));
    add_lp(&h, verify_text(r->root, "epoch"), strlen(verify_text(r->root, "epoch")));
    add_lp(&h, r->salt, r->salt_n);
    sha256_update(&h, &d8, 1);
    for (unsigned d = 0; d < r->dims; d++)
        add_lp(&h, r->dim[d], strlen(r->dim[d]));
    be64_put(n8, inputs);
    sha256_update(&h, n8, 8);
    for (uint64_t i = 0; i < r->rows; i++)
        if (!(r->row[i].flags & VERIFY_DUST))
            sha256_update(&h, row, canonical_row(&r->row[i], r->dims, row));
    sha256_final(&h, &r->rows_digest);
}

static int check_digest(struct cmd_ctx *ctx, const struct verify_run *r)
{
    char text[SHA256_TEXT_CHARS];
    sha256_format(&r->rows_digest, text);
    if (strcmp(text, verify_text(json_object_get(r->root, "inputs"), "digest")) != 0)
        return verify_mismatch(ctx, "the rows in payouts.bin are not the inputs the manifest names");
    return CMD_OK;
}

/* ---- manifest ---- */

static int check_manifest(struct cmd_ctx *ctx, const struct verify_run *r, const char *dir)
{
    struct sha256 h;
    char text[SHA256_TEXT_CHARS], key[1024];
    char *canonical = json_dumps(r->root, JSON_COMPACT | JSON_SORT_KEYS);
    bool same =
        canonical && strlen(canonical) == r->manifest.n && !memcmp(canonical, r->manifest.p, r->manifest.n);
    free(canonical);
    if (!same)
        return verify_mismatch(ctx, "run.json is not in canonical form");
    sha256_format(&r->payouts_digest, text);
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
    return verify_signature(ctx, buf_bytes(&r->manifest), dir, cmd_flag(ctx, "key", key), NULL);
}

/* ---- a run ---- */

static void say_verified(struct cmd_ctx *ctx, const struct verify_run *r, bool brief, bool ledger)
{
    char pool[MONEY_CHARS];
    const char *root = verify_text(json_object_get(r->root, "commitment"), "root"),
               *epoch = verify_text(r->root, "epoch");
    money_format((struct money){r->pool}, pool);
    if (cmd_global(ctx)->json)
        printf("{\"verified\":true,\"epoch\":\"%s\",\"recipients\":%llu,\"pool\":\"%s\",\"root\":\"%s\","
               "\"split\":%s,\"ledger\":%s}\n",
               epoch, (unsigned long long)r->leaves, pool, root, brief ? "false" : "true",
               ledger ? "true" : "false");
    else
        printf("verified: epoch %s, %llu recipients, every unit of %s accounted for, root %s%s\n", epoch,
               (unsigned long long)r->leaves, pool, root,
               brief ? "; who should have got what was not computed again" : "");
}

int rewarder_verify_run(struct cmd_ctx *ctx, int argc, char **argv) RT_BLOCKS
{
    struct verify_run r = {.root = NULL};
    const char *inputs = cmd_flag(ctx, "inputs", NULL), *ledger = cmd_flag(ctx, "ledger", NULL);
    bool brief = cmd_switch(ctx, "commitment");
    (void)argc;
    int status = load(ctx, argv[0], &r);
    if (status == CMD_OK)
        status = verify_totals(ctx, &r);
    if (status == CMD_OK)
        status = verify_tree(ctx, &r, brief ? NULL : hash_rows);
    if (status == CMD_OK)
        status = check_manifest(ctx, &r, argv[0]);
    if (status == CMD_OK && !brief)
        status = check_digest(ctx, &r);
    if (status == CMD_OK && !brief)
        status = verify_split(ctx, &r);
    if (status == CMD_OK && inputs)
        status = verify_inputs(ctx, &r, inputs);
    if (status == CMD_OK && ledger)
        status = verify_ledger(ctx, &r, argv[0], ledger);
    if (status == CMD_OK)
        say_verified(ctx, &r, brief, ledger != NULL);
    json_decref(r.root);
    free(r.row);
    free(r.part);
    buf_fini(&r.payouts);
    buf_fini(&r.manifest);
    return status;
}
