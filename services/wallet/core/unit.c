#include "services/wallet/core/unit.h"

#include <string.h>

#include "base/check.h"

static const enum wallet_entry_kind entry_kinds[WALLET_KIND_COUNT] = {
    [WALLET_ISSUE] = WALLET_ENTRY_MINT,      [WALLET_TRANSFER] = WALLET_ENTRY_TRANSFER,
    [WALLET_BURN] = WALLET_ENTRY_BURN,       [WALLET_HOLD] = WALLET_ENTRY_HOLD,
    [WALLET_CAPTURE] = WALLET_ENTRY_CAPTURE, [WALLET_RELEASE] = WALLET_ENTRY_RELEASE,
};

/* Who stands where in the receipt. */
static void place_sides(const struct wallet_op *op, const struct wallet_hold *hold,
                        struct wallet_receipt *r)
{
    switch (op->kind) {
    case WALLET_ISSUE:
        r->to = op->to;
        break;
    case WALLET_BURN:
        r->from = op->from;
        break;
    case WALLET_TRANSFER:
    case WALLET_HOLD:
        r->from = op->from;
        r->to = op->to;
        break;
    case WALLET_CAPTURE:
        r->from = hold->payer;
        r->to = hold->payee;
        break;
    case WALLET_RELEASE:
        r->from = hold->payer;
        break;
    case WALLET_KIND_COUNT:
        UNREACHABLE();
    }
}

enum err wallet_receipt_draft(const struct wallet_op *op, const struct wallet_frame *frame,
                              const struct wallet_hold *hold, const char *txid, struct wallet_receipt *out)
{
    bool settles = op->kind == WALLET_CAPTURE || op->kind == WALLET_RELEASE;
    struct money amount = op->has_amount ? op->amount : hold ? hold->amount : MONEY_ZERO, rest = MONEY_ZERO;
    CHECK(settles == (hold != NULL));
    if (hold && money_sub(hold->amount, amount, &rest) != ERR_OK)
        return ERR_AMOUNT_EXCEEDS;
    struct wallet_receipt r = {.kind = op->kind,
                               .asset = hold ? hold->asset : op->asset,
                               .amount = amount,
                               .released = rest,
                               .memo = op->memo,
                               .idem = frame->key,
                               .ts_ms = frame->ts_ms};
    memcpy(r.txid, txid, sizeof r.txid);
    place_sides(op, hold, &r);
    if (wallet_kind_has_nonce(op->kind)) {
        r.nonce = op->nonce;
        r.lane = op->lane;
    }
    if (op->kind == WALLET_HOLD)
        r.expires_at_ms =
            frame->ts_ms + (op->has_expires_in ? (int64_t)op->expires_in_s : frame->hold_ttl_s) * 1000;
    if (settles)
        r.hold = op->hold;
    *out = r;
    return ERR_OK;
}

static void encode_meta(const struct wallet_op *op, const struct wallet_frame *frame, struct wallet_unit *u)
{
    struct wallet_meta m = {.tenant = frame->tenant, .key = frame->key, .memo = op->memo};
    if (op->has_expires_in)
        m.flags |= WALLET_META_EXPIRES_IN;
    if (op->kind == WALLET_CAPTURE && op->has_amount)
        m.flags |= WALLET_META_AMOUNT;
    if (op->kind == WALLET_HOLD)
        m.payee = op->to;
    u->meta_n = wallet_meta_encode(&m, u->meta);
}

/* What the first entry says, it has from the receipt. A hold's payee stands in meta until the hold is captured. */
static void first_entry(const struct wallet_receipt *r, struct wallet_unit *u)
{
    bool pays = r->kind == WALLET_TRANSFER || r->kind == WALLET_CAPTURE;
    u->entries[0] = (struct wallet_entry){.kind = entry_kinds[r->kind],
                                          .id = str_of(u->txid, WALLET_TXID_CHARS - 1),
                                          .account = r->kind == WALLET_ISSUE ? r->to : r->from,
                                          .to = pays ? r->to : str_of(NULL, 0),
                                          .asset = r->asset,
                                          .ref_id = r->hold,
                                          .amount = r->amount,
                                          .nonce = r->nonce ? wallet_ledger_nonce(r->lane, r->nonce) : 0,
                                          .ts_ms = r->ts_ms,
                                          .hold_until_ms = r->expires_at_ms};
    u->n_entries = 1;
}

/* A partly captured hold gives the rest back. */
static void rest_entry(const struct wallet_receipt *r, struct wallet_unit *u)
{
    struct wallet_entry *back = &u->entries[u->n_entries++];
    *back = u->entries[0];
    memcpy(u->rest_id, u->txid, WALLET_TXID_CHARS - 1);
    memcpy(u->rest_id + WALLET_TXID_CHARS - 1, ":r", 3);
    back->id = str_of(u->rest_id, WALLET_REST_ID_CHARS - 1);
    back->kind = WALLET_ENTRY_RELEASE;
    back->to = str_of(NULL, 0);
    back->amount = r->released;
}

enum err wallet_unit_build(const struct wallet_op *op, const struct wallet_frame *frame,
                           const struct wallet_hold *hold, const char *txid, struct wallet_unit *u)
{
    struct wallet_receipt *r = &u->receipt;
    enum err e = wallet_receipt_draft(op, frame, hold, txid, r);
    if (e != ERR_OK)
        return e;
    memcpy(u->txid, txid, sizeof u->txid);
    if (frame->idem_id)
        memcpy(u->idem_id, frame->idem_id, sizeof u->idem_id);
    else
        wallet_idem_id(frame->tenant, frame->key, u->idem_id);
    first_entry(r, u);
    if (!money_is_zero(r->released))
        rest_entry(r, u);
    encode_meta(op, frame, u);
    wallet_receipt_seal(r);
    return ERR_OK;
}

static bool kind_of_entry(enum wallet_entry_kind entry, enum wallet_kind *out)
{
    for (int k = 0; k < WALLET_KIND_COUNT; k++)
        if (entry_kinds[k] == entry) {
            *out = (enum wallet_kind)k;
            return true;
        }
    return false;
}

static struct str present(struct str s)
{
    return s.n ? s : str_of(NULL, 0);
}

/* The request that leads to this unit: the inverse of wallet_unit_build. */
static bool request_of(enum wallet_kind kind, const struct wallet_entry *e, const struct wallet_meta *m,
                       struct wallet_op *op)
{
    bool settles = kind == WALLET_CAPTURE || kind == WALLET_RELEASE;
    *op = (struct wallet_op){.kind = kind, .memo = present(m->memo)};
    if (wallet_kind_has_nonce(kind)) {
        if (!e->nonce)
            return false;
        op->lane = (uint32_t)(e->nonce >> 48);
        op->nonce = e->nonce & WALLET_NONCE_MAX;
    }
    if (settles)
        op->hold = present(e->ref_id);
    else
        op->asset = present(e->asset);
    op->has_amount = !settles || (m->flags & WALLET_META_AMOUNT);
    op->amount = op->has_amount ? e->amount : MONEY_ZERO;
    if (kind == WALLET_ISSUE)
        op->to = present(e->account);
    else if (!settles)
        op->from = present(e->account);
    if (kind == WALLET_TRANSFER)
        op->to = present(e->to);
    if (kind == WALLET_HOLD)
        op->to = present(m->payee);
    if (m->flags & WALLET_META_EXPIRES_IN) {
        int64_t ms = e->hold_until_ms - e->ts_ms;
        if (kind != WALLET_HOLD || ms <= 0 || ms % 1000)
            return false;
        op->has_expires_in = true;
        op->expires_in_s = (uint64_t)ms / 1000;
    }
    return !(m->flags & WALLET_META_AMOUNT) || kind == WALLET_CAPTURE;
}

/* The second entry of a partly captured hold must be the one build() makes. */
static bool rest_fits(enum wallet_kind kind, const struct wallet_entry *e, size_t n)
{
    if (n == 1)
        return true;
    const struct wallet_entry *back = &e[1];
    return n == 2 && kind == WALLET_CAPTURE && back->kind == WALLET_ENTRY_RELEASE &&
           str_eq(back->account, e->account) && str_eq(back->asset, e->asset) &&
           str_eq(back->ref_id, e->ref_id) && !money_is_zero(back->amount) && str_starts(back->id, e->id) &&
           str_eq(str_of(back->id.p + e->id.n, back->id.n - e->id.n), STR(":r"));
}

enum err wallet_unit_rebuild(struct str idem_id, const struct wallet_entry *e, size_t n, struct bytes meta,
                             uint64_t seq, const struct sha256 *root, uint64_t tree_size,
                             struct wallet_rebuilt *out)
{
    struct wallet_meta m;
    struct wallet_rebuilt b = {0};
    enum wallet_kind kind;
    char text[WALLET_REQUEST_MAX], txid[WALLET_TXID_CHARS], own_idem[WALLET_IDEM_ID_CHARS];
    struct buf canonical;

    if (n < 1 || n > WALLET_UNIT_ENTRIES_MAX || !wallet_is_txid(e->id) ||
        wallet_meta_decode(meta, &m) != ERR_OK || !kind_of_entry(e->kind, &kind) ||
        !request_of(kind, e, &m, &b.op) || !rest_fits(kind, e, n))
        return ERR_CORRUPT;
    if ((kind == WALLET_HOLD) != (m.payee.n > 0))
        return ERR_CORRUPT;
    buf_init_fixed(&canonical, text, sizeof text);
    wallet_request_canonical(&b.op, &canonical);
    if (canonical.err != ERR_OK)
        return ERR_CORRUPT;
    wallet_txid(m.tenant, m.key, buf_str(&canonical), txid);
    wallet_idem_id(m.tenant, m.key, own_idem);
    if (!str_eq_c(e->id, txid) || !str_eq_c(idem_id, own_idem))
        return ERR_CORRUPT;

    struct wallet_receipt *r = &b.receipt;
    memcpy(r->txid, txid, sizeof txid);
    r->kind = kind;
    r->asset = e->asset;
    r->amount = e->amount;
    r->released = n == 2 ? e[1].amount : MONEY_ZERO;
    r->nonce = b.op.nonce;
    r->lane = b.op.lane;
    r->hold = b.op.hold;
    r->memo = b.op.memo;
    r->idem = m.key;
    r->ts_ms = e->ts_ms;
    if (kind == WALLET_ISSUE)
        r->to = e->account;
    else
        r->from = e->account;
    if (kind == WALLET_TRANSFER || kind == WALLET_CAPTURE)
        r->to = e->to;
    if (kind == WALLET_HOLD) {
        r->to = m.payee;
        r->expires_at_ms = e->hold_until_ms;
    }
    r->seq = seq;
    r->root = *root;
    r->tree_size = tree_size;
    wallet_receipt_seal(r);
    b.tenant = m.tenant;
    *out = b;
    return ERR_OK;
}
