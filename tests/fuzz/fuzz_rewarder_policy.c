/*
 * Policies and the files of a run. Structure-aware where it pays: the input chooses members of a policy and rows of an epoch,
 * so that most inputs are valid and reach the allocation, which must conserve or refuse.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/explain.h"
#include "services/rewarder/core/policy.h"
#include "take.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rewarder_policy *build_policy(struct take *t)
{
    static const char *const roundings[] = {"floor", "largest_remainder", "webster", "nearest"};
    struct buf b;
    struct rewarder_policy *p = NULL;
    const char *member;
    unsigned how = (unsigned)take_number(t, 1);
    buf_init(&b, 8192);
    buf_printf(&b,
               "{\"v\":1,\"id\":\"p\",\"asset\":\"ron\",\"funding_account\":\"f\",\"dust_account\":\"%s\",",
               how & 64 ? "f" : "m");
    buf_printf(&b, "\"pool\":\"%llu%s\",", (unsigned long long)take_number(t, 8),
               how & 32 ? "0000000000000000000" : "");
    if (how & 4)
        buf_printf(&b, "\"min_payout\":\"%llu\",", (unsigned long long)take_number(t, 2));
    if (how & 8)
        buf_printf(&b, "\"max_payout\":\"%llu\",", (unsigned long long)take_number(t, 3));
    buf_printf(&b, "\"rounding\":\"%s\",\"weights\":[", roundings[how % 4 == 3 && how < 250 ? 1 : how % 4]);
    unsigned n = 1 + (unsigned)take_number(t, 1) % 3;
    for (unsigned i = 0; i < n; i++)
        buf_printf(&b, "%s{\"dim\":\"d%u\",\"num\":%u,\"den\":%u}", i ? "," : "", i,
                   (unsigned)take_number(t, 2), 1 + (unsigned)take_number(t, 2));
    buf_puts(&b, "]}");
    if (rewarder_policy_create(buf_bytes(&b), &p, &member) != ERR_OK)
        p = NULL;
    buf_fini(&b);
    return p;
}

static void allocate(struct take *t, const struct rewarder_policy *p)
{
    uint8_t bytes[8192];
    struct rewarder_rows rows = {
        .tenant = STR_INIT("t"), .epoch = STR_INIT("e"), .dim_count = p->weight_count};
    struct rewarder_calc *c;
    struct rewarder_payouts v;
    unsigned index;
    for (unsigned d = 0; d < p->weight_count; d++)
        rows.dims[d] = str_from_c(p->weights[d].dim);
    rows.count = take_number(t, 1) % 24;
    size_t at = rewarder_rows_header(&rows, bytes);
    for (unsigned i = 0; i < rows.count; i++) {
        bytes[at++] = 1;
        bytes[at++] = (uint8_t)('a' + i);
        for (unsigned d = 0; d < p->weight_count; d++, at += 8)
            be64_put(bytes + at, take_number(t, 1 + (unsigned)take_number(t, 1) % 8) >> 1);
    }
    CHECK(rewarder_rows_open((struct bytes){bytes, at}, &rows) == ERR_OK);
    if (rewarder_calc_create(&rows, p, p->pool, 1 + take_number(t, 1) % 9, &c, &index) != ERR_OK)
        return;
    enum err e = rewarder_calc_run(c);
    CHECK(e == ERR_OK || e == ERR_OVERFLOW || e == ERR_RESERVED_ACCOUNT);
    if (e == ERR_OK) {
        const struct rewarder_result *res = rewarder_calc_result(c);
        CHECK(res->payouts + res->dust == res->pool && res->root.sum == res->pool);
        CHECK(rewarder_payouts_open(rewarder_calc_file(c), &v) == ERR_OK);
        bool negative;
        CHECK(rewarder_explain_cut(&v, p, &negative) == res->cut && negative == res->cut_negative);
        rewarder_payouts_close(&v);
    }
    rewarder_calc_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct take t = {data, size};
    const char *member;
    struct rewarder_policy *p;
    struct rewarder_payouts v;
    struct rewarder_tree tree;
    unsigned mode = (unsigned)take_number(&t, 1);
    if (mode < 32) {
        if (rewarder_policy_create((struct bytes){t.p, t.n}, &p, &member) == ERR_OK) {
            struct rewarder_policy *again;
            CHECK(rewarder_policy_create(bytes_of(p->canonical, p->canonical_n), &again, &member) ==
                  ERR_OK);
            CHECK(sha256_eq(&p->hash, &again->hash));
            rewarder_policy_destroy(again);
            rewarder_policy_destroy(p);
        }
    } else if (mode < 48) {
        if (rewarder_payouts_open((struct bytes){t.p, t.n}, &v) == ERR_OK)
            rewarder_payouts_close(&v);
        if (rewarder_tree_decode((struct bytes){t.p, t.n}, &tree) == ERR_OK)
            rewarder_tree_fini(&tree);
    } else if ((p = build_policy(&t))) {
        allocate(&t, p);
        rewarder_policy_destroy(p);
    }
    return 0;
}
