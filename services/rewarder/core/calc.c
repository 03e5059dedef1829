#include "services/rewarder/core/calc.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "services/rewarder/core/calc_internal.h"

enum { HUGE_PAGE = 2 << 20 };

/* Large columns are written once, front to back: with huge pages that is a few hundred faults instead of tens of thousands. */
static void *alloc_large(size_t n)
{
    if (n < 4 * HUGE_PAGE)
        return malloc(n ? n : 1);
    void *p = aligned_alloc(HUGE_PAGE, (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (p)
        (void)madvise(p, n, MADV_HUGEPAGE); /* a hint: without it everything works, slower */
    return p;
}

static const char *const phase_names[] = {"scores",  "split", "scatter",  "rank",
                                          "amounts", "table", "conserve", "commit"};

const char *rewarder_phase_name(enum rewarder_phase p)
{
    CHECK(p < REWARDER_PHASES);
    return phase_names[p];
}

/* ---- set-up ---- */

static enum err bind_weights(struct rewarder_calc *c, unsigned *out_index)
{
    for (unsigned w = 0; w < c->policy->weight_count; w++) {
        unsigned d = 0;
        while (d < c->rows->dim_count && !str_eq_c(c->rows->dims[d], c->policy->weights[w].dim))
            d++;
        if (d == c->rows->dim_count) {
            *out_index = w;
            return ERR_DIMENSION_MISSING;
        }
        c->weights[d] = c->policy->weights[w].whole;
    }
    return ERR_OK;
}

static void cut_parts(struct rewarder_calc *c, uint64_t partition_rows)
{
    size_t at = c->rows->first;
    for (uint64_t p = 0; p < c->part_count; p++) {
        uint64_t first = p * partition_rows;
        uint64_t rest = c->rows->count - first;
        c->parts[p] = (struct calc_part){
            .rows_at = at, .first = first, .n = rest < partition_rows ? rest : partition_rows};
        for (uint64_t i = 0; i < c->parts[p].n; i++)
            (void)rewarder_rows_next(c->rows, &at);
    }
}

static bool alloc_columns(struct rewarder_calc *c)
{
    size_t n = c->rows->count ? c->rows->count : 1;
    c->score = alloc_large(n * sizeof *c->score);
    c->remainder = alloc_large(n * sizeof *c->remainder);
    c->amount = alloc_large(n * sizeof *c->amount);
    c->rank = calloc(n, sizeof *c->rank);
    return c->score && c->remainder && c->amount && c->rank;
}

enum err rewarder_calc_create(const struct rewarder_rows *rows, const struct rewarder_policy *policy,
                              wide_u128 pool, uint64_t partition_rows, struct rewarder_calc **out,
                              unsigned *out_index)
{
    CHECK(partition_rows > 0 && rows->count < UINT32_MAX);
    if (policy->rounding == REWARDER_WEBSTER && (pool >> 127))
        return ERR_POOL_TOO_LARGE; /* 2a+1 would not fit 128 bits */
    struct rewarder_calc *c = calloc(1, sizeof *c);
    if (!c)
        return ERR_NO_MEMORY;
    c->rows = rows;
    c->policy = policy;
    c->declared = pool;
    c->part_count = (rows->count + partition_rows - 1) / partition_rows;
    c->parts = calloc(c->part_count ? c->part_count : 1, sizeof *c->parts);
    enum err e = bind_weights(c, out_index);
    if (e == ERR_OK && (!c->parts || !alloc_columns(c)))
        e = ERR_NO_MEMORY;
    if (e != ERR_OK) {
        rewarder_calc_destroy(c);
        return e;
    }
    cut_parts(c, partition_rows);
    rewarder_salter_init(&c->salter, rows->salt);
    *out = c;
    return ERR_OK;
}

static void free_split_columns(struct rewarder_calc *c)
{
    free(c->score);
    free(c->remainder);
    c->score = c->remainder = NULL;
}

void rewarder_calc_destroy(struct rewarder_calc *c)
{
    if (!c)
        return;
    free_split_columns(c);
    free(c->amount);
    free(c->rank);
    free(c->items);
    free(c->parts);
    free(c->file);
    rewarder_tree_fini(&c->tree);
    free(c);
}

/* ---- SCORES ---- */

static bool is_account(struct str a, const char *name)
{
    return str_eq_c(a, name);
}

static enum err scores_part(struct rewarder_calc *c, struct calc_part *p)
{
    size_t at = p->rows_at;
    wide_u128 total = 0;
    uint64_t heap_n = 0;
    size_t funding_n = strlen(c->policy->funding), dust_n = strlen(c->policy->dust);
    for (uint64_t i = 0; i < p->n; i++) {
        struct rewarder_row row = rewarder_rows_next(c->rows, &at);
        wide_u128 score = 0;
        for (unsigned d = 0; d < c->rows->dim_count; d++) {
            /* usage < 2^63 and weight < 2^64: one product fits, their sum may not */
            if (wide_add_overflows(score, (wide_u128)be64_get(row.usage + 8 * d) * c->weights[d], &score))
                return ERR_OVERFLOW;
        }
        if (wide_add_overflows(total, score, &total))
            return ERR_OVERFLOW;
        if (row.account.n == funding_n && is_account(row.account, c->policy->funding))
            p->reserved = "funding";
        if (row.account.n == dust_n && is_account(row.account, c->policy->dust))
            p->reserved = "dust";
        c->score[p->first + i] = score;
        heap_n += row.account.n;
    }
    p->score = total;
    p->heap_n = heap_n;
    return p->reserved ? ERR_RESERVED_ACCOUNT : ERR_OK;
}

static enum err scores_close(struct rewarder_calc *c)
{
    wide_u128 total = 0;
    for (uint64_t p = 0; p < c->part_count; p++) {
        if (c->parts[p].reserved && !c->reserved)
            c->reserved = c->parts[p].reserved;
        if (wide_add_overflows(total, c->parts[p].score, &total))
            return ERR_OVERFLOW;
    }
    c->result.score_total = total;
    c->result.pool = total ? c->declared : 0;
    return c->reserved ? ERR_RESERVED_ACCOUNT : ERR_OK;
}

/* ---- SPLIT ---- */

static bool is_ranked(const struct rewarder_calc *c)
{
    return c->result.score_total && c->policy->rounding == REWARDER_LARGEST_REMAINDER;
}

static enum err split_part(struct rewarder_calc *c, struct calc_part *p)
{
    wide_u128 total = c->result.score_total, pool = c->result.pool, sum = 0;
    bool webster = c->policy->rounding == REWARDER_WEBSTER, ranked = is_ranked(c);
    int shift = ranked ? wide_clz(total) : 0;
    memset(p->range_n, 0, sizeof p->range_n);
    for (uint64_t i = p->first; i < p->first + p->n; i++) {
        wide_u128 rem = 0, q = 0;
        if (total)
            q = wide_share(pool, c->score[i], total, &rem);
        if (webster && rem && rem >= total - rem)
            q++;
        c->remainder[i] = rem;
        c->amount[i] = q;
        if (ranked && c->score[i])
            p->range_n[calc_rank_key(rem, shift) >> (32 - CALC_RANGE_BITS)]++;
        /* Webster's roundings may pass the pool by one half per row, which still fits: pool < 2^127. */
        if (wide_add_overflows(sum, q, &sum))
            return ERR_OVERFLOW;
    }
    p->whole = sum;
    return ERR_OK;
}

static enum err split_close(struct rewarder_calc *c)
{
    wide_u128 sum = 0;
    for (uint64_t p = 0; p < c->part_count; p++)
        if (wide_add_overflows(sum, c->parts[p].whole, &sum))
            return ERR_OVERFLOW;
    if (is_ranked(c)) {
        CHECK(sum <= c->result.pool);
        return calc_rank_prepare(c, c->result.pool - sum);
    }
    return c->result.score_total && c->policy->rounding == REWARDER_WEBSTER ? calc_webster(c, sum) : ERR_OK;
}

/* ---- SCATTER, RANK ---- */

static enum err scatter_close(struct rewarder_calc *c)
{
    free(c->score); /* only rows with a score were scattered */
    c->score = NULL;
    return ERR_OK;
}

static enum err rank_close(struct rewarder_calc *c)
{
    free(c->items);
    c->items = NULL;
    free_split_columns(c);
    return ERR_OK;
}

/* What row i gets before caps and minimums: ranks 1 to left_over get one of the units left over. */
static inline wide_u128 rounded(const struct rewarder_calc *c, uint64_t i)
{
    return c->amount[i] + (c->rank[i] && c->rank[i] <= c->left_over);
}

/* ---- AMOUNTS ---- */

static wide_u128 limited(const struct rewarder_policy *policy, wide_u128 whole, uint8_t *out_flags)
{
    *out_flags = 0;
    if (policy->has_max && whole > policy->max_payout) {
        *out_flags = REWARDER_CAPPED | REWARDER_LEAF;
        return policy->max_payout;
    }
    if (whole > 0 && whole < policy->min_payout) {
        *out_flags = REWARDER_BELOW_MIN;
        return 0;
    }
    *out_flags = whole ? REWARDER_LEAF : 0;
    return whole;
}

static enum err amounts_part(struct rewarder_calc *c, struct calc_part *p)
{
    wide_u128 sum = 0;
    uint64_t paid = 0;
    for (uint64_t i = p->first; i < p->first + p->n; i++) {
        uint8_t flags;
        if (wide_add_overflows(sum, limited(c->policy, rounded(c, i), &flags), &sum))
            return ERR_OVERFLOW;
        paid += flags & REWARDER_LEAF;
    }
    p->amount = sum;
    p->paid = paid;
    return ERR_OK;
}

/* Where the dust account belongs among the rows. */
static uint64_t dust_position(const struct rewarder_calc *c)
{
    struct str dust = str_from_c(c->policy->dust);
    uint64_t p = c->part_count;
    while (p-- > 0) {
        size_t at = c->parts[p].rows_at;
        if (str_cmp(rewarder_rows_next(c->rows, &at).account, dust) > 0)
            continue;
        at = c->parts[p].rows_at;
        for (uint64_t i = 0; i < c->parts[p].n; i++)
            if (str_cmp(rewarder_rows_next(c->rows, &at).account, dust) > 0)
                return c->parts[p].first + i;
        return c->parts[p].first + c->parts[p].n;
    }
    return 0;
}

static void write_head(struct rewarder_calc *c)
{
    uint8_t *p = c->file;
    const struct rewarder_rows *rows = c->rows;
    memset(p, 0, c->records_at);
    memcpy(p, "RONPAY01", 8);
    be32_put(p + 8, rows->dim_count);
    be32_put(p + 12, (uint32_t)rows->salt.n);
    be64_put(p + 16, c->record_count);
    be64_put(p + 24, c->result.leaves);
    be128_put(p + 32, c->result.pool);
    be128_put(p + 48, c->result.score_total);
    if (rows->salt.n)
        memcpy(p + 64, rows->salt.p, rows->salt.n);
    memcpy(p + 96, rows->digest.b, 32);
    for (unsigned d = 0; d < rows->dim_count; d++)
        memcpy(p + REWARDER_PAY_HEAD + 32u * d, rows->dims[d].p, rows->dims[d].n);
}

static void put_record(struct rewarder_calc *c, uint64_t record, uint64_t heap_at, struct str account,
                       wide_u128 amount, wide_u128 rounded, uint32_t rank, uint8_t flags,
                       const uint8_t *usage)
{
    uint8_t *p = c->file + c->records_at + record * c->stride;
    be128_put(p, amount);
    be128_put(p + 16, rounded);
    be64_put(p + 32, heap_at);
    be32_put(p + 40, rank);
    p[44] = (uint8_t)account.n;
    p[45] = flags;
    p[46] = p[47] = 0;
    if (usage)
        memcpy(p + REWARDER_PAY_ROW, usage, 8u * c->rows->dim_count);
    else
        memset(p + REWARDER_PAY_ROW, 0, 8u * c->rows->dim_count);
    memcpy(c->file + c->heap_at + heap_at, account.p, account.n);
}

static enum err lay_out(struct rewarder_calc *c)
{
    uint64_t heap = 0;
    struct str dust = str_from_c(c->policy->dust);
    bool has_dust = c->result.dust > 0;
    uint64_t dust_row = has_dust ? dust_position(c) : UINT64_MAX;
    for (uint64_t p = 0; p < c->part_count; p++) {
        c->parts[p].heap_at = heap;
        heap += c->parts[p].heap_n;
    }
    c->record_count = c->rows->count + has_dust;
    c->dust_row = has_dust ? dust_row : c->record_count;
    c->stride = REWARDER_PAY_ROW + 8u * c->rows->dim_count;
    c->records_at = REWARDER_PAY_HEAD + 32u * c->rows->dim_count;
    c->heap_at = c->records_at + c->record_count * c->stride;
    c->file_n = c->heap_at + heap + (has_dust ? dust.n : 0) + 32;
    c->file = alloc_large(c->file_n);
    if (!c->file)
        return ERR_NO_MEMORY;
    write_head(c);
    return ERR_OK;
}

static enum err amounts_close(struct rewarder_calc *c)
{
    wide_u128 sum = 0;
    uint64_t paid = 0;
    for (uint64_t p = 0; p < c->part_count; p++) {
        if (wide_add_overflows(sum, c->parts[p].amount, &sum))
            return ERR_OVERFLOW;
        paid += c->parts[p].paid;
    }
    if (sum > c->result.pool)
        return ERR_CONSERVATION;
    c->result.payouts = sum;
    c->result.dust = c->result.pool - sum;
    c->result.paid = paid;
    c->result.unpaid = c->rows->count - paid;
    c->result.leaves = paid + (c->result.dust > 0);
    return lay_out(c);
}

/* ---- TABLE ---- */

static enum err table_part(struct rewarder_calc *c, struct calc_part *p)
{
    size_t at = p->rows_at, dust_n = strlen(c->policy->dust);
    uint64_t heap = p->heap_at;
    if (c->dust_row < p->first)
        heap += dust_n;
    for (uint64_t i = p->first; i < p->first + p->n; i++) {
        struct rewarder_row row = rewarder_rows_next(c->rows, &at);
        if (i == c->dust_row)
            heap += dust_n;
        uint8_t flags;
        wide_u128 whole = rounded(c, i), amount = limited(c->policy, whole, &flags);
        put_record(c, i + (i >= c->dust_row), heap, row.account, amount, whole, c->rank[i], flags,
                   row.usage);
        heap += row.account.n;
    }
    return ERR_OK;
}

static enum err table_close(struct rewarder_calc *c)
{
    if (c->dust_row < c->record_count) {
        uint64_t heap = 0;
        if (c->dust_row) {
            const uint8_t *before = c->file + c->records_at + (c->dust_row - 1) * c->stride;
            heap = be64_get(before + 32) + before[44];
        }
        put_record(c, c->dust_row, heap, str_from_c(c->policy->dust), c->result.dust, c->result.dust, 0,
                   REWARDER_DUST | REWARDER_LEAF, NULL);
    }
    free(c->amount);
    free(c->rank);
    c->amount = NULL;
    c->rank = NULL;
    return ERR_OK;
}

/* ---- driving ---- */

uint64_t rewarder_calc_parts(const struct rewarder_calc *c, enum rewarder_phase phase)
{
    if (phase == REWARDER_COMMIT)
        return calc_commit_parts(c);
    if (phase == REWARDER_SCATTER)
        return c->items ? c->part_count : 0;
    if (phase == REWARDER_RANK)
        return c->items ? CALC_RANGES : 0;
    return c->part_count;
}

enum err rewarder_calc_part(struct rewarder_calc *c, enum rewarder_phase phase, uint64_t part)
{
    CHECK(c->phase == phase && part < rewarder_calc_parts(c, phase));
    switch (phase) {
    case REWARDER_SCORES:
        return scores_part(c, &c->parts[part]);
    case REWARDER_SPLIT:
        return split_part(c, &c->parts[part]);
    case REWARDER_SCATTER:
        calc_rank_scatter(c, &c->parts[part]);
        return ERR_OK;
    case REWARDER_RANK:
        return calc_rank_range(c, (unsigned)part);
    case REWARDER_AMOUNTS:
        return amounts_part(c, &c->parts[part]);
    case REWARDER_TABLE:
        return table_part(c, &c->parts[part]);
    case REWARDER_CONSERVE:
        return calc_conserve_part(c, part);
    case REWARDER_COMMIT:
        return calc_commit_part(c, part);
    case REWARDER_PHASES:
        break;
    }
    UNREACHABLE();
}

enum err rewarder_calc_close(struct rewarder_calc *c, enum rewarder_phase phase)
{
    static enum err (*const closers[])(struct rewarder_calc *) = {
        [REWARDER_SCORES] = scores_close,          [REWARDER_SPLIT] = split_close,
        [REWARDER_SCATTER] = scatter_close,        [REWARDER_RANK] = rank_close,
        [REWARDER_AMOUNTS] = amounts_close,        [REWARDER_TABLE] = table_close,
        [REWARDER_CONSERVE] = calc_conserve_close, [REWARDER_COMMIT] = calc_commit_close,
    };
    CHECK(c->phase == phase && phase < REWARDER_PHASES);
    enum err e = closers[phase](c);
    if (e == ERR_OK)
        c->phase++;
    return e;
}

enum err rewarder_calc_run(struct rewarder_calc *c)
{
    for (enum rewarder_phase phase = c->phase; phase < REWARDER_PHASES; phase++) {
        enum err e = ERR_OK, reserved = ERR_OK;
        uint64_t parts = rewarder_calc_parts(c, phase);
        for (uint64_t p = 0; p < parts && e == ERR_OK; p++) {
            e = rewarder_calc_part(c, phase, p);
            if (e == ERR_RESERVED_ACCOUNT)
                reserved = e, e = ERR_OK;
        }
        if (e != ERR_OK)
            return e;
        e = rewarder_calc_close(c, phase);
        if (e != ERR_OK || reserved != ERR_OK)
            return e != ERR_OK ? e : reserved;
    }
    return ERR_OK;
}

const char *rewarder_calc_reserved_role(const struct rewarder_calc *c)
{
    return c->reserved ? c->reserved : "";
}

const struct rewarder_result *rewarder_calc_result(const struct rewarder_calc *c)
{
    CHECK(c->phase == REWARDER_PHASES);
    return &c->result;
}

const struct rewarder_tree *rewarder_calc_tree(const struct rewarder_calc *c)
{
    CHECK(c->phase == REWARDER_PHASES);
    return &c->tree;
}

struct bytes rewarder_calc_file(const struct rewarder_calc *c)
{
    CHECK(c->phase == REWARDER_PHASES);
    return (struct bytes){c->file, c->file_n};
}

uint8_t *rewarder_calc_take_file(struct rewarder_calc *c, size_t *out_n)
{
    CHECK(c->phase == REWARDER_PHASES);
    uint8_t *p = c->file;
    *out_n = c->file_n;
    c->file = NULL;
    return p;
}

uint8_t *rewarder_calc_table(struct rewarder_calc *c, size_t *out_n)
{
    CHECK(c->phase == REWARDER_CONSERVE);
    *out_n = c->file_n;
    return c->file;
}
