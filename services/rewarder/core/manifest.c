#include "services/rewarder/core/manifest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/money.h"

/*
 * Keys are written in their sorted order by hand, so that the bytes can be read off this file. No string here can hold a
 * quote, a backslash or a control byte (the grammars forbid them), so none is escaped.
 */

static void put_amount(struct buf *b, const char *key, wide_u128 v)
{
    char text[MONEY_CHARS];
    money_format((struct money){v}, text);
    buf_printf(b, "\"%s\":\"%s\"", key, text);
}

static void put_hash(struct buf *b, const char *key, const struct sha256 *h)
{
    char text[SHA256_TEXT_CHARS];
    sha256_format(h, text);
    buf_printf(b, "\"%s\":\"%s\"", key, text);
}

static void put_name(struct buf *b, const char *key, struct str s)
{
    buf_printf(b, "\"%s\":\"%.*s\"", key, STR_ARG(s));
}

static void put_commitment(const struct rewarder_result *r, struct buf *b)
{
    buf_printf(b, "\"commitment\":{\"count\":%" PRIu64 ",", r->leaves);
    put_hash(b, "root", &r->root.hash);
    buf_puts(b, ",\"scheme\":\"" REWARDER_SCHEME "\",");
    put_amount(b, "sum", r->root.sum);
    buf_putc(b, '}');
}

static void put_inputs(const struct rewarder_rows *rows, struct buf *b)
{
    buf_puts(b, "\"inputs\":{");
    put_hash(b, "digest", &rows->digest);
    buf_puts(b, ",\"dims\":[");
    for (unsigned d = 0; d < rows->dim_count; d++)
        buf_printf(b, "%s\"%.*s\"", d ? "," : "", STR_ARG(rows->dims[d]));
    buf_printf(b, "],\"rows\":%" PRIu64 "}", rows->count);
}

static void put_pool(const struct rewarder_manifest *m, struct buf *b)
{
    buf_puts(b, "\"pool\":{");
    put_amount(b, "amount", m->result->pool);
    buf_putc(b, ',');
    put_amount(b, "declared", m->pool.declared);
    if (m->pool.from_balance)
        buf_printf(b, ",\"ledger_seq\":%" PRIu64, m->pool.ledger_seq);
    buf_printf(b, ",\"source\":\"%s\"}", m->pool.from_balance ? "balance" : "policy");
}

static void put_totals(const struct rewarder_result *r, struct buf *b)
{
    buf_puts(b, "\"totals\":{");
    put_amount(b, "dust", r->dust);
    buf_printf(b, ",\"paid\":%" PRIu64 ",", r->paid);
    put_amount(b, "payouts", r->payouts);
    buf_putc(b, ',');
    put_amount(b, "score", r->score_total);
    buf_printf(b, ",\"unpaid\":%" PRIu64 "}", r->unpaid);
}

void rewarder_manifest_write(const struct rewarder_manifest *m, struct buf *b)
{
    struct sha256 run_key = rewarder_run_key(m->tenant, m->epoch, &m->policy->hash, &m->rows->digest);
    buf_putc(b, '{');
    put_commitment(m->result, b);
    buf_putc(b, ',');
    put_name(b, "epoch", m->epoch);
    buf_puts(b, ",\"files\":{");
    put_hash(b, "payouts.bin", &m->result->file_hash);
    buf_puts(b, "},");
    put_inputs(m->rows, b);
    buf_puts(b, ",\"policy\":");
    buf_put(b, m->policy->canonical, m->policy->canonical_n);
    buf_putc(b, ',');
    put_hash(b, "policy_hash", &m->policy->hash);
    buf_putc(b, ',');
    put_pool(m, b);
    buf_putc(b, ',');
    put_hash(b, "run_key", &run_key);
    buf_putc(b, ',');
    put_name(b, "tenant", m->tenant);
    buf_putc(b, ',');
    put_totals(m->result, b);
    buf_puts(b, ",\"type\":\"ron-reward-run/1\"}");
}

void rewarder_commitment_write(const struct rewarder_result *r, struct buf *b)
{
    char root[SHA256_HEX_CHARS], sum[MONEY_CHARS];
    hex_encode(r->root.hash.b, 32, root);
    money_format((struct money){r->root.sum}, sum);
    buf_printf(b, REWARDER_SCHEME " %s %s %" PRIu64 "\n", root, sum, r->leaves);
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct rewarder_chunk_place *)a)->seq_start;
    uint64_t y = ((const struct rewarder_chunk_place *)b)->seq_start;
    return x < y ? -1 : x > y;
}

bool rewarder_settlement_is_bijection(const struct rewarder_chunk_place *places, uint64_t chunks,
                                      uint64_t leaves)
{
    if (chunks != rewarder_chunk_count(leaves))
        return false;
    if (chunks == 0)
        return true;
    for (uint64_t c = 0; c < chunks; c++)
        if (places[c].seq_start == 0 || places[c].leaves != rewarder_chunk_leaves(leaves, (uint32_t)c))
            return false;
    struct rewarder_chunk_place *sorted = malloc(chunks * sizeof *sorted);
    if (!sorted)
        return false;
    memcpy(sorted, places, chunks * sizeof *sorted);
    qsort(sorted, chunks, sizeof *sorted, by_seq);
    bool ok = true;
    for (uint64_t c = 1; c < chunks && ok; c++)
        ok = sorted[c].seq_start - sorted[c - 1].seq_start >= sorted[c - 1].leaves;
    free(sorted);
    return ok;
}

void rewarder_settlement_write(const struct rewarder_settlement *s, struct buf *b)
{
    buf_puts(b, "{\"chunks\":[");
    for (uint64_t c = 0; c < s->chunks; c++) {
        char id[REWARDER_UNIT_ID_LEN + 1];
        rewarder_unit_id(s->tenant, s->epoch, &s->run_key, (uint32_t)c, id);
        buf_printf(b,
                   "%s{\"chunk\":%" PRIu64 ",\"idem_id\":\"%s\",\"leaves\":%u,\"seq_start\":%" PRIu64 "}",
                   c ? "," : "", c, id, s->places[c].leaves, s->places[c].seq_start);
    }
    buf_puts(b, "],");
    put_hash(b, "ledger_root", &s->ledger_root);
    buf_putc(b, ',');
    put_hash(b, "root", &s->root);
    buf_putc(b, ',');
    put_hash(b, "run_key", &s->run_key);
    buf_printf(b, ",\"tree_size\":%" PRIu64 ",\"type\":\"ron-reward-settlement/1\"}", s->tree_size);
}

void rewarder_unit_meta_write(struct str tenant, struct str epoch, const struct sha256 *manifest,
                              const struct sha256 *root, uint32_t chunk, struct buf *b)
{
    buf_printf(b, "{\"chunk\":%u,", chunk);
    put_name(b, "epoch", epoch);
    buf_putc(b, ',');
    put_hash(b, "manifest", manifest);
    buf_putc(b, ',');
    put_hash(b, "root", root);
    buf_putc(b, ',');
    put_name(b, "tenant", tenant);
    buf_puts(b, ",\"type\":\"ron-reward-unit/1\"}");
}
