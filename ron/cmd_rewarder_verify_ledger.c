/*
 * `ron rewarder verify DIR --ledger URL`: leaf by leaf against the ledger's own entries. settlement.json says where each chunk
 * lies; the ledger is asked for those sequence numbers, and what it holds must be the payouts in leaf order: id, payer, payee,
 * asset, amount. Ids are derived here again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/money.h"
#include "base/sha256.h"
#include "ron/client.h"
#include "ron/cmd_rewarder.h"
#include "ron/cmd_rewarder_verify.h"

enum { CHUNK_LEAVES = 512, SETTLEMENT_MAX = 256 << 20 };

static void add_lp(struct sha256_ctx *h, struct str s)
{
    uint8_t n = (uint8_t)s.n;
    sha256_update(h, &n, 1);
    sha256_update(h, s.p, s.n);
}

static void entry_id(const struct verify_run *r, struct str account, char out[64])
{
    struct sha256_ctx h;
    struct sha256 sum;
    sha256_init(&h);
    sha256_update(&h, "ron-rewarder/entry/1", 21); /* with its NUL */
    add_lp(&h, str_from_c(client_str(r->root, "tenant")));
    add_lp(&h, str_from_c(client_str(r->root, "epoch")));
    add_lp(&h, account);
    sha256_final(&h, &sum);
    memcpy(out, "rw_", 3);
    hex_encode(sum.b, 16, out + 3);
}

/* The row of the leaf after `row` (or the first: UINT64_MAX). */
static uint64_t next_leaf(const struct verify_run *r, uint64_t row)
{
    do
        row++;
    while (row < r->rows && !r->row[row].amount);
    return row;
}

static bool is_payout(const struct verify_run *r, const struct verify_row *row, const json_t *item,
                      uint64_t seq)
{
    const json_t *e = json_object_get(item, "entry"), *policy = json_object_get(r->root, "policy");
    char id[64], amount[MONEY_CHARS];
    entry_id(r, row->account, id);
    money_format((struct money){row->amount}, amount);
    return (uint64_t)client_int(item, "seq") == seq && !strcmp(client_str(e, "id"), id) &&
           !strcmp(client_str(e, "kind"), "transfer") && str_eq_c(row->account, client_str(e, "to")) &&
           !strcmp(client_str(e, "amount"), amount) &&
           !strcmp(client_str(e, "account"), client_str(policy, "funding_account")) &&
           !strcmp(client_str(e, "asset"), client_str(policy, "asset"));
}

static int check_chunk(struct cmd_ctx *ctx, const struct verify_run *r, const json_t *chunk,
                       uint64_t *row) RT_BLOCKS
{
    uint64_t seq = (uint64_t)client_int(chunk, "seq_start"), n = (uint64_t)client_int(chunk, "leaves");
    struct client_answer a;
    char path[96];
    if (n == 0 || n > CHUNK_LEAVES)
        return verify_mismatch(ctx, "settlement.json names a chunk of no or too many leaves");
    snprintf(path, sizeof path, "/v1/entries?from=%llu&limit=%llu", (unsigned long long)seq,
             (unsigned long long)n);
    int status =
        client_call(ctx, "ledger", &(struct client_request){.path = path, .timeout_ms = 30000}, &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    const json_t *list = json_object_get(a.json, "entries");
    for (uint64_t i = 0; i < n && status == CMD_OK; i++, *row = next_leaf(r, *row)) {
        if (*row >= r->rows || !is_payout(r, &r->row[*row], json_array_get(list, i), seq + i)) {
            char what[200];
            snprintf(what, sizeof what, "ledger entry %llu is not the payout of %.*s",
                     (unsigned long long)(seq + i), *row < r->rows ? (int)r->row[*row].account.n : 7,
                     *row < r->rows ? r->row[*row].account.p : "no leaf");
            status = verify_mismatch(ctx, what);
        }
    }
    client_free(&a);
    return status;
}

int verify_ledger(struct cmd_ctx *ctx, const struct verify_run *r, const char *dir, const char *url)
{
    struct buf text;
    char path[1024];
    json_error_t why;
    uint64_t row = next_leaf(r, UINT64_MAX), seen = 0;
    snprintf(path, sizeof path, "%s/settlement.json", dir);
    buf_init(&text, SETTLEMENT_MAX);
    if (rewarder_read_file(ctx, path, &text) != CMD_OK) {
        buf_fini(&text);
        return VERIFY_UNREADABLE;
    }
    json_t *root = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    const json_t *chunks = json_object_get(root, "chunks");
    setenv("RON_LEDGER_URL", url, 1);
    int status = CMD_OK;
    if (strcmp(client_str(root, "run_key"), client_str(r->root, "run_key")))
        status = verify_mismatch(ctx, "settlement.json is of another run");
    for (size_t i = 0; i < json_array_size(chunks) && status == CMD_OK; i++) {
        const json_t *chunk = json_array_get(chunks, i);
        seen += (uint64_t)client_int(chunk, "leaves");
        status = check_chunk(ctx, r, chunk, &row);
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "\rledger %zu/%zu ", i + 1, json_array_size(chunks));
    }
    if (status == CMD_OK && seen != r->leaves)
        status = verify_mismatch(ctx, "settlement.json does not cover every leaf");
    if (status == CMD_OK && !cmd_global(ctx)->json)
        printf("verified: the ledger holds exactly one transfer for each of %llu leaves\n",
               (unsigned long long)seen);
    json_decref(root);
    buf_fini(&text);
    return status;
}
