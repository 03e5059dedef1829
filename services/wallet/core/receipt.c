#include "services/wallet/core/receipt.h"

#include "base/check.h"
#include "base/json_write.h"
#include "base/time_fmt.h"

void wallet_receipt_preimage(const struct wallet_receipt *r, struct buf *out)
{
    struct json_w w;
    json_w_init(&w, out);
    json_obj_begin(&w);
    json_put_money(&w, "amount", r->amount);
    json_put_str(&w, "asset", r->asset);
    if (r->expires_at_ms)
        json_put_time_ms(&w, "expires_at", r->expires_at_ms);
    if (r->from.p)
        json_put_str(&w, "from", r->from);
    if (r->hold.p)
        json_put_str(&w, "hold", r->hold);
    json_put_str(&w, "idem", r->idem);
    if (r->lane)
        json_put_u64(&w, "lane", r->lane);
    if (r->memo.p)
        json_put_str(&w, "memo", r->memo);
    if (r->nonce)
        json_put_u64(&w, "nonce", r->nonce);
    json_put_cstr(&w, "op", wallet_kind_name(r->kind));
    if (!money_is_zero(r->released))
        json_put_money(&w, "released", r->released);
    if (r->to.p)
        json_put_str(&w, "to", r->to);
    json_put_time_ms(&w, "ts", r->ts_ms);
    json_put_cstr(&w, "txid", r->txid);
    json_obj_end(&w);
}

void wallet_receipt_seal(struct wallet_receipt *r)
{
    uint8_t room[WALLET_RECEIPT_MAX];
    struct buf b;
    buf_init_fixed(&b, room, sizeof room);
    wallet_receipt_preimage(r, &b);
    CHECK(b.err == ERR_OK); /* every member has its limit, the sum is below the room */
    sha256_of(b.p, b.n, &r->receipt_hash);
}

static void write_before_idem(const struct wallet_receipt *r, struct json_w *w)
{
    json_put_cstr(w, "txid", r->txid);
    json_put_cstr(w, "op", wallet_kind_name(r->kind));
    if (r->from.p)
        json_put_str(w, "from", r->from);
    if (r->to.p)
        json_put_str(w, "to", r->to);
    json_put_str(w, "asset", r->asset);
    json_put_money(w, "amount", r->amount);
    if (!money_is_zero(r->released))
        json_put_money(w, "released", r->released);
    if (r->nonce)
        json_put_u64(w, "nonce", r->nonce);
    if (r->lane)
        json_put_u64(w, "lane", r->lane);
    if (r->hold.p)
        json_put_str(w, "hold", r->hold);
    if (r->expires_at_ms)
        json_put_time_ms(w, "expires_at", r->expires_at_ms);
    if (r->memo.p)
        json_put_str(w, "memo", r->memo);
}

void wallet_receipt_write(const struct wallet_receipt *r, struct buf *out)
{
    struct json_w w;
    json_w_init(&w, out);
    json_obj_begin(&w);
    write_before_idem(r, &w);
    json_put_str(&w, "idem", r->idem);
    json_put_time_ms(&w, "ts", r->ts_ms);
    json_put_hash(&w, "receipt_hash", &r->receipt_hash);
    json_put_u64(&w, "seq", r->seq);
    json_put_hash(&w, "root", &r->root);
    json_put_u64(&w, "tree_size", r->tree_size);
    json_obj_end(&w);
}

void wallet_receipt_write_draft(const struct wallet_receipt *r, struct buf *out)
{
    struct json_w w;
    json_w_init(&w, out);
    json_obj_begin(&w);
    write_before_idem(r, &w);
    json_obj_end(&w);
}
