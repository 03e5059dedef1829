/*
 * GET /v1/tx/{txid} and its proof.
 *
 * 200 committed, 202 on its way, 404 not committed (with the reason, for ten minutes after somebody was told "pending").
 * In the first moments after a start an unknown txid is 202: the process before may have sent it, and the ledger may
 * still take it.
 */
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "services/wallet/api/api.h"

struct ask {
    struct wallet *w;
    struct net_req *rq;
    struct auth_cap *cap;
    bool proof, tlog;
};

static void not_found(struct ask *q)
{
    wallet_refuse(q->w, q->rq, ERR_NOT_FOUND, "no such transaction");
}

static void pending(struct ask *q, struct str txid, int64_t since_ms)
{
    char room[256];
    struct buf b;
    struct json_w json;
    buf_init_fixed(&b, room, sizeof room);
    json_w_init(&json, &b);
    json_obj_begin(&json);
    json_put_str(&json, "txid", txid);
    json_put_cstr(&json, "status", "pending");
    json_put_time_ms(&json, "since", since_ms);
    json_obj_end(&json);
    net_reply(q->rq, 202, &(struct net_headers){.raw = STR("Retry-After: 1\r\n")}, buf_bytes(&b));
}

/* What is known to have failed, if the token covers either side of it; ERR_OK: nothing that it may know. */
static enum err why_not(struct ask *q, struct str txid, int64_t now_ns)
{
    struct wallet *w = q->w;
    rt_lock_take(&w->tomb_lock);
    const struct wallet_tomb *tomb =
        wallet_tombs_find(&w->tombs, wallet_txid_key(txid), now_ns, WALLET_TOMB_MS * INT64_C(1000000));
    enum err why = tomb && wallet_api_sees(q->cap, str_of(tomb->text, tomb->text_n), &tomb->sides)
                       ? tomb->why
                       : ERR_OK;
    rt_lock_release(&w->tomb_lock);
    return why;
}

/* Nobody knows it: is it too early to say no? */
static void unknown(struct ask *q, struct str txid)
{
    struct wallet *w = q->w;
    int64_t now = wallet_now_ns(w);
    enum err why = why_not(q, txid, now);
    int64_t up_ms = (now - w->started_ns) / 1000000;
    if (why != ERR_OK)
        wallet_refuse_details(w, q->rq, ERR_NOT_FOUND, "it was not committed, and will not be",
                              "{\"outcome\":\"not_committed\",\"code\":\"%s\"}", err_code(why));
    else if (up_ms < wallet_config(w)->request_timeout)
        pending(q, txid, clock_wall_ms(svc_clock(w->svc)) - up_ms);
    else
        not_found(q);
}

static void write_proof(struct json_w *json, const struct wallet_proof *p)
{
    json_key(json, "ledger_proof");
    json_obj_begin(json);
    json_put_str(json, "leaf", p->leaf);
    json_put_str(json, "envelope", p->envelope);
    json_put_u64(json, "leaf_index", p->leaf_index);
    json_put_hash(json, "leaf_hash", &p->leaf_hash);
    json_put_u64(json, "tree_size", p->tree_size);
    json_put_hash(json, "root", &p->root);
    json_key(json, "proof");
    json_arr_begin(json);
    for (size_t i = 0; i < p->n_path; i++)
        json_hash(json, &p->path[i]);
    json_arr_end(json);
    json_put_str(json, "checkpoint", p->checkpoint);
    json_obj_end(json);
}

static void reply_proof(struct ask *q, struct wallet_read *r)
{
    struct buf b;
    struct json_w json;
    buf_init(&b, 64 << 10);
    json_w_init(&json, &b);
    json_obj_begin(&json);
    json_put_raw(&json, "receipt", str_of(r->receipt, r->receipt_n));
    json_put_str(&json, "tenant", r->tenant);
    json_put_str(&json, "request", r->request);
    write_proof(&json, &r->proof);
    json_obj_end(&json);
    if (b.err == ERR_OK)
        net_reply_json(q->rq, 200, buf_bytes(&b));
    else
        wallet_refuse(q->w, q->rq, ERR_UNAVAILABLE, "no memory for it");
    buf_fini(&b);
}

/* C2SP tlog-proof: index, path, checkpoint. */
static void reply_tlog(struct ask *q, struct wallet_read *r)
{
    struct buf b;
    char line[48];
    buf_init(&b, 64 << 10);
    buf_printf(&b, "c2sp.org/tlog-proof@v1\nindex %llu\n", (unsigned long long)r->proof.leaf_index);
    for (size_t i = 0; i < r->proof.n_path; i++) {
        base64_encode(r->proof.path[i].b, sizeof r->proof.path[i].b, line);
        buf_printf(&b, "%s\n", line);
    }
    buf_putc(&b, '\n');
    buf_put_str(&b, r->proof.checkpoint);
    if (b.err == ERR_OK)
        net_reply(q->rq, 200, &(struct net_headers){.type = "text/plain; charset=utf-8"}, buf_bytes(&b));
    else
        wallet_refuse(q->w, q->rq, ERR_UNAVAILABLE, "no memory for it");
    buf_fini(&b);
}

static void was_read(struct wallet_read *r)
{
    struct ask *q = r->arg;
    struct str txid = str_of(r->name, r->name_n), receipt = str_of(r->receipt, r->receipt_n);
    if (r->err == ERR_NOT_FOUND)
        unknown(q, txid);
    else if (r->err != ERR_OK)
        wallet_api_down(q->w, q->rq, r->err);
    else if (!wallet_api_sees(q->cap, receipt, &r->sides))
        not_found(q);
    else if (!q->proof)
        net_reply_json(q->rq, 200, bytes_of_str(receipt));
    else if (q->tlog)
        reply_tlog(q, r);
    else
        reply_proof(q, r);
    auth_cap_release(q->cap);
}

static void from_ledger(struct ask *q, struct str txid)
{
    struct wallet_read *r =
        wallet_read_new(q->w, q->proof ? WALLET_READ_PROOF : WALLET_READ_TX, txid, q->rq);
    if (r) {
        r->done = was_read;
        r->arg = q;
        if (wallet_read_submit(r) == ERR_OK)
            return;
        wallet_read_free(r);
    }
    auth_cap_release(q->cap);
    wallet_refuse_busy(q->w, q->rq, q->proof ? WALLET_EP_PROOF : WALLET_EP_TX, "read_queue");
}

static void answer(struct ask *q, struct str txid)
{
    char receipt[WALLET_BODY_MAX];
    struct wallet_sides sides;
    size_t n = 0;
    int64_t since_ms = 0;
    enum wallet_tx found = wallet_api_find_tx(q->w, txid, receipt, &n, &sides, &since_ms);
    if (found == WALLET_TX_ABSENT || (found == WALLET_TX_DONE && q->proof)) {
        from_ledger(q, txid);
        return;
    }
    if (!wallet_api_sees(q->cap, str_of(receipt, n), &sides))
        not_found(q);
    else if (found == WALLET_TX_OPEN)
        pending(q, txid, since_ms);
    else
        net_reply_json(q->rq, 200, bytes_of(receipt, n));
    auth_cap_release(q->cap);
}

static void begin(struct wallet *w, struct net_req *rq, bool proof)
{
    static const char *const names[] = {"format"};
    struct str format[1], txid = net_req_param(rq, "txid");
    struct auth_cap *cap;
    /* Which accounts it concerns is not known yet: that is judged on the receipt. */
    if (wallet_api_verify(w, rq, &cap) != ERR_OK)
        return;
    struct ask *q = arena_zalloc(net_req_arena(rq), sizeof *q);
    struct auth_want want = {.op = STR("read"), .lacks = SVC_LACKS_ALL};
    if (!q) {
        auth_cap_release(cap);
        wallet_refuse(w, rq, ERR_BUSY, "no memory for it");
        return;
    }
    *q = (struct ask){w, rq, cap, proof, false};
    if (wallet_api_query(w, rq, names, format, proof ? 1 : 0) != ERR_OK)
        goto out;
    if (!wallet_is_txid(txid)) {
        wallet_api_bad(w, rq, "txid", "pattern");
        goto out;
    }
    if (proof && format[0].p) {
        q->tlog = str_eq(format[0], STR("tlog"));
        if (!q->tlog && !str_eq(format[0], STR("json"))) {
            wallet_api_bad(w, rq, "format", "pattern");
            goto out;
        }
    }
    if (wallet_api_allow(w, rq, cap, &want) != ERR_OK)
        goto out;
    answer(q, txid);
    return;
out:
    auth_cap_release(cap);
}

void wallet_api_tx(struct net_req *rq, void *ctx)
{
    begin(ctx, rq, false);
}

void wallet_api_proof(struct net_req *rq, void *ctx)
{
    begin(ctx, rq, true);
}
