/* A chunk of the table as a ledger unit: its entries, what they add up to, and the digest by which a unit is known again. */
#include "base/check.h"
#include "services/rewarder/settlement_internal.h"

/* The leaves of one chunk, in order. */
struct walk {
    const struct rewarder_payouts *table;
    uint64_t row;
    uint32_t left;
};

static struct walk walk_chunk(const struct rewarder_payouts *t, uint32_t chunk)
{
    return (struct walk){.table = t,
                         .row = rewarder_payouts_row_of_leaf(t, (uint64_t)chunk * REWARDER_CHUNK),
                         .left = rewarder_chunk_leaves(t->leaves, chunk)};
}

static bool walk_next(struct walk *w, struct rewarder_payout *out)
{
    if (w->left == 0)
        return false;
    while (!rewarder_payouts_is_leaf(w->table, w->row))
        w->row++;
    w->left--;
    *out = rewarder_payouts_row(w->table, w->row++);
    return true;
}

void rewarder_settle__content_add(struct sha256_ctx *h, struct str id, struct str to, struct str asset,
                                  struct money amount)
{
    uint8_t units[MONEY_BYTES], len[3] = {(uint8_t)id.n, (uint8_t)to.n, (uint8_t)asset.n};
    money_encode(amount, units);
    sha256_update(h, len, sizeof len);
    sha256_update(h, id.p, id.n);
    sha256_update(h, to.p, to.n);
    sha256_update(h, asset.p, asset.n);
    sha256_update(h, units, sizeof units);
}

struct sha256 rewarder_settle__content(const struct rewarder_settle_job *job, uint32_t chunk)
{
    struct walk w = walk_chunk(job->table, chunk);
    struct rewarder_payout pay;
    struct sha256_ctx h;
    struct sha256 out;
    sha256_init(&h);
    while (walk_next(&w, &pay)) {
        char id[REWARDER_ENTRY_ID_LEN + 1];
        rewarder_entry_id(job->tenant, job->epoch, pay.account, id);
        rewarder_settle__content_add(&h, str_from_c(id), pay.account, job->asset,
                                     (struct money){pay.amount});
    }
    sha256_final(&h, &out);
    return out;
}

wide_u128 rewarder_chunk_amount(const struct rewarder_payouts *t, uint32_t chunk)
{
    struct walk w = walk_chunk(t, chunk);
    struct rewarder_payout pay;
    wide_u128 sum = 0;
    while (walk_next(&w, &pay))
        sum += pay.amount; /* below the pool: the table was conserved */
    return sum;
}

size_t rewarder_settle__entries(const struct rewarder_settle_job *job, uint32_t chunk, uint64_t nonce,
                                struct ledger_entry *out, char (*ids)[REWARDER_ENTRY_ID_LEN + 1])
{
    struct walk w = walk_chunk(job->table, chunk);
    struct rewarder_payout pay;
    size_t n = 0;
    for (; walk_next(&w, &pay); n++) {
        rewarder_entry_id(job->tenant, job->epoch, pay.account, ids[n]);
        out[n] = (struct ledger_entry){
            .id = {ids[n], REWARDER_ENTRY_ID_LEN},
            .ts_ms = (uint64_t)job->sealed_at_ms,
            .kind = LEDGER_TRANSFER,
            .account = job->funding,
            .to = pay.account,
            .asset = job->asset,
            .amount = {pay.amount},
            .nonce = nonce + n,
        };
    }
    return n;
}
