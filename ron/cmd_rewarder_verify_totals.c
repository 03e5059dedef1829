/* `ron rewarder verify`: the sums of the table, what run.json says about the table as a whole, added up again, and the key of the run derived again. */
#include <string.h>

#include "base/money.h"
#include "base/sha256.h"
#include "ron/cmd_rewarder_verify.h"

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

/* Sums of a part cannot be told from others' that wrapped around, so each addition is watched. */
static void add_up(struct verify_run *r, struct verify_part *p)
{
    for (uint64_t i = p->from; i < p->to && !p->wrong; i++) {
        const struct verify_row *w = &r->row[i];
        bool is_dust = w->flags & VERIFY_DUST;
        if (i && str_cmp(r->row[i - 1].account, w->account) >= 0)
            p->wrong = "accounts do not ascend";
        else if (__builtin_add_overflow(is_dust ? p->dust : p->payouts, w->amount,
                                        is_dust ? &p->dust : &p->payouts))
            p->wrong = "the amounts overflow";
        p->dust_rows += is_dust;
        p->paid += !is_dust && w->amount > 0;
        p->unpaid += !is_dust && !w->amount;
    }
}

int verify_totals(struct cmd_ctx *ctx, struct verify_run *r)
{
    const json_t *totals = json_object_get(r->root, "totals"), *inputs = json_object_get(r->root, "inputs");
    const char *wrong = verify_each(r, add_up, NULL);
    u128 payouts = 0, dust = 0, sum;
    uint64_t paid = 0, unpaid = 0, dust_rows = 0;
    bool overflow = false;
    for (uint64_t i = 0; i < r->parts; i++) {
        const struct verify_part *p = &r->part[i];
        overflow = __builtin_add_overflow(payouts, p->payouts, &payouts) ||
                   __builtin_add_overflow(dust, p->dust, &dust) || overflow;
        paid += p->paid;
        unpaid += p->unpaid;
        dust_rows += p->dust_rows;
    }
    overflow = __builtin_add_overflow(payouts, dust, &sum) || overflow;
    if (wrong || overflow)
        return verify_mismatch(ctx, wrong ? wrong : "the amounts overflow");
    if (sum != r->pool || dust_rows > 1)
        return verify_mismatch(ctx, "payouts and dust do not add up to the pool");
    if (!key_fits(r))
        return verify_mismatch(ctx, "run_key is not that of this tenant, epoch, policy and inputs");
    if (verify_amount(totals, "score") != r->total || verify_amount(totals, "payouts") != payouts ||
        verify_amount(totals, "dust") != dust || !count_fits(totals, "paid", paid) ||
        !count_fits(totals, "unpaid", unpaid))
        return verify_mismatch(ctx, "the totals of the manifest are not those of the table");
    if (!count_fits(inputs, "rows", paid + unpaid) || !dims_fit(r, json_object_get(inputs, "dims")))
        return verify_mismatch(ctx, "rows or dimensions of the manifest are not those of the table");
    return CMD_OK;
}
