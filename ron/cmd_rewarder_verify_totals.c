/* `ron rewarder verify`: what run.json says about the table as a whole, added up again, and the key of the run derived again. */
#include <string.h>

#include "base/money.h"
#include "base/sha256.h"
#include "ron/cmd_rewarder_verify.h"

enum { DUST = 2 };

static void put_text(struct sha256_ctx *h, const char *text)
{
    uint8_t n = (uint8_t)strlen(text);
    sha256_update(h, &n, 1);
    sha256_update(h, text, n);
}

static bool key_fits(const struct verify_run *r)
{
    struct sha256_ctx h;
    struct sha256 policy, digest, key;
    char text[SHA256_TEXT_CHARS];
    if (sha256_parse(str_from_c(verify_text(r->root, "policy_hash")), &policy) != ERR_OK ||
        sha256_parse(str_from_c(verify_text(json_object_get(r->root, "inputs"), "digest")), &digest) !=
            ERR_OK)
        return false;
    sha256_init(&h);
    sha256_update(&h, "ron-rewarder/run/1", 19); /* with its zero */
    put_text(&h, verify_text(r->root, "tenant"));
    put_text(&h, verify_text(r->root, "epoch"));
    sha256_update(&h, policy.b, 32);
    sha256_update(&h, digest.b, 32);
    sha256_final(&h, &key);
    sha256_format(&key, text);
    return !strcmp(text, verify_text(r->root, "run_key"));
}

static bool count_fits(const json_t *o, const char *name, uint64_t n)
{
    const json_t *v = json_object_get(o, name);
    return json_is_integer(v) && (uint64_t)json_integer_value(v) == n;
}

static bool dims_fit(const struct verify_run *r, const json_t *dims)
{
    bool ok = json_array_size(dims) == r->dims;
    for (unsigned d = 0; ok && d < r->dims; d++) {
        const char *name = json_string_value(json_array_get(dims, d));
        ok = name && !strcmp(name, r->dim[d]);
    }
    return ok;
}

int verify_totals(struct cmd_ctx *ctx, const struct verify_run *r)
{
    const json_t *totals = json_object_get(r->root, "totals"), *inputs = json_object_get(r->root, "inputs");
    u128 payouts = 0, dust = 0;
    uint64_t rows = 0, paid = 0;
    for (uint64_t i = 0; i < r->rows; i++) { /* the split was checked: nothing overflows */
        bool is_dust = r->row[i].flags & DUST;
        dust += is_dust ? r->row[i].amount : 0;
        payouts += is_dust ? 0 : r->row[i].amount;
        rows += !is_dust;
        paid += !is_dust && r->row[i].amount > 0;
    }
    if (!key_fits(r))
        return verify_mismatch(ctx, "run_key is not that of this tenant, epoch, policy and inputs");
    if (verify_amount(totals, "score") != r->total || verify_amount(totals, "payouts") != payouts ||
        verify_amount(totals, "dust") != dust || !count_fits(totals, "paid", paid) ||
        !count_fits(totals, "unpaid", rows - paid))
        return verify_mismatch(ctx, "the totals of the manifest are not those of the table");
    if (!count_fits(inputs, "rows", rows) || !dims_fit(r, json_object_get(inputs, "dims")))
        return verify_mismatch(ctx, "rows or dimensions of the manifest are not those of the table");
    return CMD_OK;
}
