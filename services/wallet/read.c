#include "services/wallet/read.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/wallet/tasks/ledger_words.h"

enum { READ_MAGIC = 0x72656164, FLIGHT_MAGIC = 0x666c6967 };

struct wallet_flight {
    struct wallet_read_item item;
    struct deadline by;
    struct wallet_wish *wishes; /* flight lock */
    int64_t sent_ns, sent_ms;
    size_t name_n;
    char name[132];
};

struct read_item {
    struct wallet_read_item item;
    struct wallet_read read;
};

static struct read_item *item_of(struct wallet_read *r)
{
    return (struct read_item *)(void *)((char *)r - offsetof(struct read_item, read));
}

/* ---- single reads ---- */

static void read_done(struct net_msg *m)
{
    struct wallet_read *r = (struct wallet_read *)(void *)((char *)m - offsetof(struct wallet_read, msg));
    r->done(r);
    wallet_read_free(r);
}

struct wallet_read *wallet_read_new(struct wallet *w, enum wallet_read_kind kind, struct str name,
                                    struct net_req *rq)
{
    CHECK(name.n < sizeof((struct wallet_read *)0)->name);
    if (!rt_inflight_take(&w->read_slots))
        return NULL;
    struct read_item *it = calloc(1, sizeof *it);
    if (!it) {
        rt_inflight_release(&w->read_slots);
        return NULL;
    }
    it->item = (struct wallet_read_item){.magic = READ_MAGIC, .w = w};
    struct wallet_read *r = &it->read;
    r->w = w;
    r->kind = kind;
    r->msg.fn = read_done;
    r->loop = net_req_loop(rq);
    r->by = wallet_deadline(w, rq);
    memcpy(r->name, name.p, name.n);
    r->name_n = name.n;
    arena_init(&r->arena, 4096, 64 << 10);
    return r;
}

void wallet_read_free(struct wallet_read *r)
{
    struct wallet *w = r->w;
    free(r->account);
    arena_fini(&r->arena);
    free(item_of(r));
    rt_inflight_release(&w->read_slots);
}

enum err wallet_read_submit(struct wallet_read *r)
{
    return rt_chan_try_send(r->w->read_tx, item_of(r));
}

static void finish(struct wallet_read *r, enum err e)
{
    r->err = e;
    net_loop_post(r->loop, &r->msg);
}

/* Until when one call may take. */
static struct deadline call_by(struct wallet *w, struct deadline by)
{
    return deadline_min(by, wallet_in_ms(w, wallet_config(w)->ledger_rpc_timeout));
}

static bool may_be_answered_later(const struct ledger_answer *a)
{
    if (a->err == ERR_LEDGER_FORKED)
        return false;
    return a->outcome == LEDGER_UNKNOWN ||
           (a->outcome == LEDGER_REFUSED &&
            (a->status == 0 || a->status >= 500 || a->status == 429 || a->err == ERR_BUSY));
}

/* On the ledger client's thread, after a call. True: it is the reader's again and will be asked once more. */
static bool ask_again(struct wallet_read_item *it, enum wallet_call call, const struct ledger_answer *a,
                      struct deadline by)
{
    struct wallet *w = it->w;
    const struct wallet_config *cfg = wallet_config(w);
    if (!may_be_answered_later(a) || ++it->tries >= cfg->retry_max_tries || wallet_cannot_read(w))
        return false;
    int64_t pause_ms = wallet_retry_pause_ms(cfg, it->tries, a->retry_after_s);
    if (wallet_left_ms(w, by) < pause_ms + cfg->retry_jitter + WALLET_SEND_LEFT_MS)
        return false;
    it->due = deadline_in_ms(pause_ms);
    if (rt_chan_try_send(w->read_tx, it) != ERR_OK)
        return false; /* closed: we are being stopped */
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_backoff_retries], call));
    return true;
}

static enum err failure(const struct ledger_answer *a)
{
    return a->err == ERR_NOT_FOUND ? ERR_NOT_FOUND : a->err == ERR_BUSY ? ERR_BUSY : ERR_UNAVAILABLE;
}

/* The ledger's answer as a cache entry; NULL without memory, or when it is about another account. */
static struct wallet_account *account_from(const struct ledger_account_reply *a, struct str name,
                                           int64_t sent_ns, int64_t sent_ms)
{
    size_t holdings = a->n_balances; /* all: each of them may be asked for */
    size_t lanes = a->n_lanes < WALLET_LANES_MAX ? a->n_lanes : WALLET_LANES_MAX;
    struct wallet_account *out =
        str_eq(a->account, name) ? wallet_account_new(name, holdings, lanes) : NULL;
    if (!out)
        return NULL;
    out->fetched_ns = sent_ns;
    out->as_of_ms = sent_ms;
    out->as_of_seq = a->as_of_seq;
    out->lanes_cut = lanes < a->n_lanes;
    for (size_t i = 0; i < holdings; i++) {
        struct wallet_holding *h = &wallet_account_holdings(out)[i];
        struct str asset = a->balances[i].asset;
        memcpy(h->asset, asset.p, asset.n < sizeof h->asset ? asset.n : sizeof h->asset - 1);
        h->available = a->balances[i].available;
        h->held = a->balances[i].held;
    }
    for (size_t i = 0; i < lanes; i++)
        wallet_account_lanes(out)[i] =
            (struct wallet_lane){a->lanes[i].lane, a->lanes[i].last & WALLET_NONCE_MAX};
    return out;
}

static void on_fresh(void *ctx, const struct ledger_account_reply *a)
{
    struct wallet_read *r = ctx;
    struct wallet *w = r->w;
    int64_t sent_ns = r->sent_ns;
    enum err e = a->a.outcome == LEDGER_ANSWERED ? ERR_OK : failure(&a->a);
    if (e == ERR_OK) {
        r->account =
            account_from(a, str_of(r->name, r->name_n), r->sent_ns, clock_wall_ms(svc_clock(w->svc)));
        e = r->account ? ERR_OK : ERR_UNAVAILABLE;
    }
    struct ledger_answer answer = a->a;
    if (!ask_again(&item_of(r)->item, WALLET_CALL_ACCOUNT, &a->a, r->by))
        finish(r, e);
    wallet_call_end(w, WALLET_CALL_ACCOUNT, &answer, sent_ns);
}

static void on_proof(void *ctx, const struct ledger_proof_reply *p)
{
    struct wallet_read *r = ctx;
    struct wallet *w = r->w;
    int64_t sent_ns = r->sent_ns;
    struct ledger_answer answer = p->a;
    enum err e = p->a.outcome == LEDGER_ANSWERED ? ERR_OK : failure(&p->a);
    if (e == ERR_OK && (p->n_path > sizeof r->proof.path / sizeof r->proof.path[0] ||
                        !arena_str(&r->arena, p->checkpoint, &r->proof.checkpoint)))
        e = ERR_UNAVAILABLE;
    if (e == ERR_OK) {
        r->proof.leaf_index = p->seq - 1;
        r->proof.tree_size = p->tree_size;
        r->proof.root = p->root;
        r->proof.n_path = p->n_path;
        if (p->n_path)
            memcpy(r->proof.path, p->path, p->n_path * sizeof p->path[0]);
        wallet_saw_root(w, p->tree_size, &p->root);
    }
    if (!ask_again(&item_of(r)->item, WALLET_CALL_PROOF, &p->a, r->by))
        finish(r, e);
    wallet_call_end(w, WALLET_CALL_PROOF, &answer, sent_ns);
}

/* Keeps what a proof shows of the unit. */
static bool keep_for_proof(struct wallet_read *r, const struct ledger_result *unit,
                           const struct wallet_rebuilt *b)
{
    char text[WALLET_REQUEST_MAX];
    struct buf canonical;
    buf_init_fixed(&canonical, text, sizeof text);
    wallet_request_canonical(&b->op, &canonical);
    return canonical.err == ERR_OK && arena_str(&r->arena, buf_str(&canonical), &r->request) &&
           arena_str(&r->arena, b->tenant, &r->tenant) &&
           arena_str(&r->arena, unit->envelope, &r->proof.envelope);
}

static enum err learn(struct wallet_read *r, const struct ledger_result *unit)
{
    struct wallet *w = r->w;
    struct wallet_rebuilt b;
    struct buf text;
    if (r->kind == WALLET_READ_UNIT)
        memcpy(r->idem_id, r->name, WALLET_IDEM_ID_CHARS - 1);
    bool ours = wallet_words_rebuild(unit, &b) == ERR_OK;
    if (r->kind == WALLET_READ_UNIT && !ours)
        return ERR_OK; /* the key is taken, by somebody who is no wallet */
    if (!ours || (r->kind != WALLET_READ_UNIT && !str_eq_c(str_of(r->name, r->name_n), b.receipt.txid)))
        return ERR_NOT_FOUND; /* not a wallet's: never shown as a receipt */
    memcpy(r->txid, b.receipt.txid, sizeof r->txid);
    buf_init_fixed(&text, r->receipt, sizeof r->receipt);
    wallet_receipt_write(&b.receipt, &text);
    CHECK(text.err == ERR_OK);
    r->receipt_n = text.n;
    r->seq = b.receipt.seq;
    r->tree_size = b.receipt.tree_size;
    wallet_sides_of(&b.receipt, str_of(r->receipt, r->receipt_n), &r->sides);
    if (r->kind == WALLET_READ_PROOF && !keep_for_proof(r, unit, &b))
        return ERR_UNAVAILABLE;

    struct wallet_idem_name name = wallet_idem_name(r->idem_id, b.receipt.txid);
    size_t index;
    struct wallet_shard *s = wallet_shard_of(w, &name, &index);
    rt_lock_take(&s->idem_lock);
    wallet_idem_learn(&s->idem, &name, str_of(r->receipt, r->receipt_n), &r->sides, wallet_now_ns(w));
    rt_lock_release(&s->idem_lock);
    return ERR_OK;
}

static void on_unit(void *ctx, const struct ledger_unit_reply *u)
{
    struct wallet_read *r = ctx;
    struct wallet *w = r->w;
    int64_t sent_ns = r->sent_ns;
    struct ledger_answer answer = u->a;
    enum err e = u->a.outcome == LEDGER_ANSWERED ? ERR_OK : failure(&u->a);
    struct str asked = r->kind == WALLET_READ_UNIT ? str_of(r->name, r->name_n)
                                                   : str_of(r->idem_id, WALLET_IDEM_ID_CHARS - 1);
    if (e == ERR_OK && u->found && !str_eq(u->result.idem_id, asked))
        e = ERR_UNAVAILABLE;
    if (e == ERR_OK && (!u->found || u->result.status != LEDGER_COMMITTED))
        e = ERR_NOT_FOUND;
    if (e == ERR_OK)
        e = learn(r, &u->result);
    if (e == ERR_OK && r->kind == WALLET_READ_PROOF) {
        r->sent_ns = wallet_now_ns(w);
        wallet_call_begin(w);
        ledger_client_proof(w->ledger, r->seq, r->tree_size, call_by(w, r->by), on_proof, r);
    } else if (!ask_again(&item_of(r)->item, WALLET_CALL_UNIT, &u->a, r->by))
        finish(r, e);
    wallet_call_end(w, WALLET_CALL_UNIT, &answer, sent_ns);
}

static void on_entry(void *ctx, const struct ledger_entries_reply *en)
{
    struct wallet_read *r = ctx;
    struct wallet *w = r->w;
    int64_t sent_ns = r->sent_ns;
    struct ledger_answer answer = en->a;
    enum err e = en->a.outcome == LEDGER_ANSWERED && en->n_entries == 1 ? ERR_OK : failure(&en->a);
    if (e == ERR_OK && en->entries[0].idem_id.n != WALLET_IDEM_ID_CHARS - 1)
        e = ERR_NOT_FOUND;
    if (e == ERR_OK && !arena_str(&r->arena, en->entries[0].leaf, &r->proof.leaf))
        e = ERR_UNAVAILABLE;
    if (e == ERR_OK) {
        r->proof.leaf_hash = en->entries[0].leaf_hash;
        r->open = en->entries[0].open;
        r->remaining = en->entries[0].remaining;
        memcpy(r->idem_id, en->entries[0].idem_id.p, WALLET_IDEM_ID_CHARS - 1);
        r->sent_ns = wallet_now_ns(w);
        wallet_call_begin(w);
        ledger_client_unit(w->ledger, str_of(r->idem_id, WALLET_IDEM_ID_CHARS - 1), 0, call_by(w, r->by),
                           on_unit, r);
    } else if (!ask_again(&item_of(r)->item, WALLET_CALL_ENTRY, &en->a, r->by))
        finish(r, e);
    wallet_call_end(w, WALLET_CALL_ENTRY, &answer, sent_ns);
}

static void read_begin(struct wallet_read *r)
{
    struct wallet *w = r->w;
    struct str name = str_of(r->name, r->name_n);
    struct deadline by = call_by(w, r->by);
    arena_reset(&r->arena); /* what an earlier try found is found again */
    r->sent_ns = wallet_now_ns(w);
    wallet_call_begin(w);
    if (r->kind == WALLET_READ_FRESH)
        ledger_client_account(w->ledger, name, 0, by, on_fresh, r);
    else if (r->kind == WALLET_READ_UNIT)
        ledger_client_unit(w->ledger, name, 0, by, on_unit, r);
    else
        ledger_client_entry(w->ledger, name, by, on_entry, r);
}

/* ---- single flight ---- */

static struct wallet_flights *flights_of(struct wallet *w, struct str account)
{
    return &w->flights[wallet_slot(account) % WALLET_FLIGHT_STRIPES];
}

/* On the loop: fetched, or failed. */
static void wish_granted(struct net_msg *m)
{
    struct wallet_wish *wish =
        (struct wallet_wish *)(void *)((char *)m - offsetof(struct wallet_wish, msg));
    net_timer_cancel(net_req_loop(wish->rq), &wish->timer);
    wish->done(wish);
}

/* On the loop: out of patience. */
static void wish_late(struct net_timer *t)
{
    struct wallet_wish *wish =
        (struct wallet_wish *)(void *)((char *)t - offsetof(struct wallet_wish, timer));
    struct wallet_flights *f = flights_of(wish->w, wish->account);
    rt_lock_take(&f->lock);
    bool mine = wish->linked;
    if (mine) {
        struct wallet_wish **at = &wish->flight->wishes;
        while (*at != wish)
            at = &(*at)->next;
        *at = wish->next;
        wish->linked = false;
    }
    rt_lock_release(&f->lock);
    if (!mine)
        return; /* the answer is on the way */
    wish->err = ERR_TIMEOUT;
    wish->done(wish);
}

static void flight_lands(struct wallet_flight *fl, enum err e)
{
    struct wallet *w = fl->item.w;
    struct wallet_flights *f = flights_of(w, str_of(fl->name, fl->name_n));
    rt_lock_take(&f->lock);
    CHECK(map_remove(&f->by_account, bytes_of(fl->name, fl->name_n)) == fl);
    struct wallet_wish *wish = fl->wishes;
    for (struct wallet_wish *i = wish; i; i = i->next)
        i->linked = false;
    rt_lock_release(&f->lock);
    while (wish) {
        struct wallet_wish *next = wish->next;
        wish->err = e;
        net_loop_post(net_req_loop(wish->rq), &wish->msg);
        wish = next;
    }
    free(fl);
    rt_inflight_release(&w->read_slots);
}

static void on_account(void *ctx, const struct ledger_account_reply *a)
{
    struct wallet_flight *fl = ctx;
    struct wallet *w = fl->item.w;
    int64_t sent_ns = fl->sent_ns;
    struct ledger_answer answer = a->a;
    enum err e = a->a.outcome == LEDGER_ANSWERED ? ERR_OK : failure(&a->a);
    if (e == ERR_OK) {
        struct str name = str_of(fl->name, fl->name_n);
        struct wallet_account *account = account_from(a, name, fl->sent_ns, fl->sent_ms);
        if (account) {
            struct wallet_shard *s = &w->shards[wallet_slot(name) & w->shard_mask];
            rt_lock_take(&s->cache_lock);
            wallet_cache_put(&s->cache, account);
            rt_lock_release(&s->cache_lock);
            wallet_saw_root(w, a->as_of_seq, &a->root);
        } else
            e = ERR_UNAVAILABLE;
    }
    if (!ask_again(&fl->item, WALLET_CALL_ACCOUNT, &a->a, fl->by))
        flight_lands(fl, e);
    wallet_call_end(w, WALLET_CALL_ACCOUNT, &answer, sent_ns);
}

static struct wallet_flight *flight_new(struct wallet *w, struct str account)
{
    if (!rt_inflight_take(&w->read_slots))
        return NULL;
    struct wallet_flight *fl = calloc(1, sizeof *fl);
    if (!fl) {
        rt_inflight_release(&w->read_slots);
        return NULL;
    }
    fl->item = (struct wallet_read_item){.magic = FLIGHT_MAGIC, .w = w};
    fl->by = wallet_in_ms(w, wallet_config(w)->request_timeout);
    memcpy(fl->name, account.p, account.n);
    fl->name_n = account.n;
    return fl;
}

static void flight_free(struct wallet_flight *fl)
{
    rt_inflight_release(&fl->item.w->read_slots);
    free(fl);
}

enum err wallet_wish_make(struct wallet_wish *wish, int64_t patience_ms)
{
    struct wallet *w = wish->w;
    struct wallet_flights *f = flights_of(w, wish->account);
    struct wallet_flight *fresh = NULL, *fl;
    enum err e = ERR_OK;
    wish->msg.fn = wish_granted;
    wish->timer.fn = wish_late;
    for (;;) {
        rt_lock_take(&f->lock);
        fl = map_get(&f->by_account, bytes_of_str(wish->account));
        if (!fl && fresh) {
            e = map_add(&f->by_account, bytes_of(fresh->name, fresh->name_n), fresh);
            fl = e == ERR_OK ? fresh : NULL;
        }
        if (fl) {
            wish->flight = fl;
            wish->next = fl->wishes;
            wish->linked = true;
            fl->wishes = wish;
        }
        rt_lock_release(&f->lock);
        if (fl || e != ERR_OK)
            break;
        if (!(fresh = flight_new(w, wish->account)))
            return ERR_BUSY;
    }
    if (fresh && fl != fresh)
        flight_free(fresh);
    if (e != ERR_OK)
        return ERR_BUSY;
    net_timer_set(net_req_loop(wish->rq), &wish->timer, wallet_now_ns(w) + patience_ms * 1000000);
    if (fl == fresh && rt_chan_try_send(w->read_tx, &fresh->item) != ERR_OK)
        flight_lands(fresh, ERR_BUSY); /* whoever joined meanwhile is told too */
    return ERR_OK;
}

void wallet_read_run(struct wallet_read_item *it)
{
    struct wallet *w = it->w;
    if (it->magic == READ_MAGIC) {
        read_begin(&((struct read_item *)(void *)it)->read);
        return;
    }
    CHECK_MAGIC(it, FLIGHT_MAGIC);
    struct wallet_flight *fl = (struct wallet_flight *)(void *)it;
    fl->sent_ns = wallet_now_ns(w);
    fl->sent_ms = clock_wall_ms(svc_clock(w->svc));
    wallet_call_begin(w);
    ledger_client_account(w->ledger, str_of(fl->name, fl->name_n), 0, call_by(w, fl->by), on_account, fl);
}
