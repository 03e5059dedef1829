/*
 * Writing is by hand: requests are small and hot, and protobuf-c would want every text copied and terminated first. A message
 * inside a message is preceded by its length, so lengths are summed before bytes are put. Members that are 0 or empty are left
 * out, as proto3 does. Reading is protobuf-c's, with the arena as its memory.
 */
#include "ledger_client/oap_codec.h"

#include <string.h>

#include "base/check.h"
#include "base/wire.h"
#include "ron/ledger.pb-c.h"

/* ---- writing ---- */

static size_t text_size(size_t n)
{
    return n == 0 ? 0 : wire_bytes_size(n);
}

static uint8_t *put_bytes(uint8_t *p, unsigned member, struct bytes in)
{
    return in.n == 0 ? p : wire_put_bytes(p, member, in.p, in.n);
}

static uint8_t *put_str(uint8_t *p, unsigned member, struct str s)
{
    return s.n == 0 ? p : wire_put_bytes(p, member, s.p, s.n);
}

static uint64_t low(struct money m)
{
    return (uint64_t)m.units;
}

static uint64_t high(struct money m)
{
    return (uint64_t)(m.units >> 64);
}

static size_t entry_size(const struct ledger_entry *e)
{
    return text_size(e->id.n) + wire_number_size(e->ts_ms) + wire_number_size((uint64_t)e->kind) +
           text_size(e->account.n) + text_size(e->to.n) + text_size(e->asset.n) +
           wire_number_size(low(e->amount)) + wire_number_size(high(e->amount)) +
           wire_number_size(e->nonce) + text_size(e->ref_id.n) + wire_number_size(e->hold_until_ms);
}

static uint8_t *put_entry(uint8_t *p, const struct ledger_entry *e)
{
    p = put_str(p, 1, e->id);
    p = wire_put_number(p, 2, e->ts_ms);
    p = wire_put_number(p, 3, (uint64_t)e->kind);
    p = put_str(p, 4, e->account);
    p = put_str(p, 5, e->to);
    p = put_str(p, 6, e->asset);
    p = wire_put_number(p, 7, low(e->amount));
    p = wire_put_number(p, 8, high(e->amount));
    p = wire_put_number(p, 9, e->nonce);
    p = put_str(p, 10, e->ref_id);
    return wire_put_number(p, 11, e->hold_until_ms);
}

static size_t unit_size(const struct ledger_unit *u)
{
    size_t n = text_size(u->idem_id.n) + text_size(u->meta.n) + wire_number_size(u->not_after_ms);
    for (size_t i = 0; i < u->n_entries; i++)
        n += wire_bytes_size(entry_size(&u->entries[i]));
    return n;
}

static uint8_t *put_unit(uint8_t *p, const struct ledger_unit *u)
{
    p = put_str(p, 1, u->idem_id);
    for (size_t k = 0; k < u->n_entries; k++) {
        p = wire_put_head(p, 2, entry_size(&u->entries[k]));
        p = put_entry(p, &u->entries[k]);
    }
    p = put_bytes(p, 3, u->meta);
    return wire_put_number(p, 4, u->not_after_ms);
}

/* Room for a unit is made when it is its turn, so that its entries are looked at while they are in the cache. */
void ledger_oap_put_ingest(struct buf *b, const struct ledger_ingest *rq)
{
    uint8_t *from = buf_reserve(b, text_size(rq->traceparent.n) + text_size(rq->corr_id.n));
    if (from == NULL)
        return;
    uint8_t *p = put_str(from, 5, rq->traceparent); /* first: the door sees it before the rest is decoded */
    p = put_str(p, 4, rq->corr_id);
    buf_commit(b, (size_t)(p - from));
    for (size_t i = 0; i < rq->n_units; i++) {
        size_t n = unit_size(&rq->units[i]);
        from = buf_reserve(b, wire_bytes_size(n));
        if (from == NULL)
            return;
        p = put_unit(wire_put_head(from, 1, n), &rq->units[i]);
        CHECK((size_t)(p - from) == wire_bytes_size(n));
        buf_commit(b, (size_t)(p - from));
    }
    ledger_oap_put_numbers(b, 2, rq->balances, rq->proof);
}

void ledger_oap_put_text(struct buf *b, struct str text, uint64_t second)
{
    uint8_t *from = buf_reserve(b, text_size(text.n) + wire_number_size(second));
    if (from == NULL)
        return;
    uint8_t *p = wire_put_number(put_str(from, 1, text), 2, second);
    buf_commit(b, (size_t)(p - from));
}

void ledger_oap_put_numbers(struct buf *b, unsigned first_field, uint64_t first, uint64_t second)
{
    CHECK(first_field < 15); /* keys of one byte */
    uint8_t *from = buf_reserve(b, wire_number_size(first) + wire_number_size(second));
    if (from == NULL)
        return;
    uint8_t *p = wire_put_number(wire_put_number(from, first_field, first), first_field + 1, second);
    buf_commit(b, (size_t)(p - from));
}

/* ---- reading ---- */

static void *pb_alloc(void *arena, size_t n)
{
    return arena_alloc(arena, n);
}

static void pb_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

/* NULL: not such a message (or no memory for it, which a bounded answer does not reach). */
static void *unpack(const ProtobufCMessageDescriptor *what, struct bytes in, struct arena *a)
{
    ProtobufCAllocator alloc = {pb_alloc, pb_free, a};
    return protobuf_c_message_unpack(what, &alloc, in.n, in.p);
}

static struct str text_of(const char *c)
{
    return c == NULL ? (struct str){NULL, 0} : str_from_c(c);
}

static struct money money_of(uint64_t lo, uint64_t hi)
{
    return (struct money){(unsigned __int128)hi << 64 | lo};
}

static enum err hash_of(const ProtobufCBinaryData *d, struct sha256 *out)
{
    if (d->len != sizeof out->b)
        return ERR_CORRUPT;
    memcpy(out->b, d->data, sizeof out->b);
    return ERR_OK;
}

static enum err hashes_of(const ProtobufCBinaryData *d, size_t n, struct arena *a,
                          const struct sha256 **out, size_t *out_n)
{
    struct sha256 *v = arena_array(a, n + 1, sizeof *v);
    if (v == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (hash_of(&d[i], &v[i]) != ERR_OK)
            return ERR_CORRUPT;
    *out = v;
    *out_n = n;
    return ERR_OK;
}

static enum err entry_of(const Ron__Ledger__V1__Entry *e, struct ledger_entry *out)
{
    if (e == NULL || e->kind < 0 || (unsigned)e->kind >= LEDGER_KIND_COUNT)
        return ERR_CORRUPT;
    *out = (struct ledger_entry){text_of(e->id),
                                 e->ts,
                                 (enum ledger_kind)e->kind,
                                 text_of(e->account),
                                 text_of(e->to),
                                 text_of(e->asset),
                                 money_of(e->amount, e->amount_hi),
                                 e->nonce,
                                 text_of(e->ref_id),
                                 e->hold_until};
    return ERR_OK;
}

static enum err balances_of(Ron__Ledger__V1__Balance *const *in, size_t n, struct arena *a,
                            const struct ledger_balance **out, size_t *out_n)
{
    struct ledger_balance *v = arena_array(a, n + 1, sizeof *v);
    if (v == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        v[i] = (struct ledger_balance){text_of(in[i]->account), text_of(in[i]->asset),
                                       money_of(in[i]->available, in[i]->available_hi),
                                       money_of(in[i]->held, in[i]->held_hi)};
    *out = v;
    *out_n = n;
    return ERR_OK;
}

static enum err entries_of(const Ron__Ledger__V1__Result *in, struct arena *a, struct ledger_result *r)
{
    struct ledger_entry *v = arena_array(a, in->n_entries + 1, sizeof *v);
    struct str *ids = arena_array(a, in->n_ids + 1, sizeof *ids);
    if (v == NULL || ids == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < in->n_entries; i++)
        if (entry_of(in->entries[i], &v[i]) != ERR_OK)
            return ERR_CORRUPT;
    for (size_t i = 0; i < in->n_ids; i++)
        ids[i] = text_of(in->ids[i]);
    r->entries = v;
    r->n_entries = in->n_entries;
    r->ids = ids;
    r->n_ids = in->n_ids;
    return ERR_OK;
}

static enum err proofs_of(const Ron__Ledger__V1__Result *in, struct arena *a, struct ledger_result *r)
{
    struct ledger_proof_path *v = arena_array(a, in->n_proofs + 1, sizeof *v);
    enum err err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < in->n_proofs; i++) {
        v[i].leaf = text_of(in->proofs[i]->leaf);
        err = hashes_of(in->proofs[i]->path, in->proofs[i]->n_path, a, &v[i].path, &v[i].n_path);
    }
    r->proofs = v;
    r->n_proofs = in->n_proofs;
    return err;
}

static enum err result_of(const Ron__Ledger__V1__Result *in, struct arena *a, struct ledger_result *out)
{
    if (in->status < RON__LEDGER__V1__STATUS__COMMITTED || in->status > RON__LEDGER__V1__STATUS__PENDING)
        return ERR_CORRUPT;
    struct ledger_result r = {.idem_id = text_of(in->idem_id),
                              .status = (enum ledger_status)in->status,
                              .seq_start = in->seq_start,
                              .seq_end = in->seq_end,
                              .tree_size = in->tree_size,
                              .ledger_ms = in->ledger_ms,
                              .envelope = text_of(in->envelope),
                              .checkpoint = text_of(in->checkpoint),
                              .meta = bytes_of(in->meta.data, in->meta.len),
                              .kid = text_of(in->kid),
                              .reason_text = text_of(in->reason),
                              .retryable = in->retryable,
                              .details = text_of(in->details)};
    bool durable = r.status == LEDGER_COMMITTED || r.status == LEDGER_DUPLICATE;
    if (r.reason_text.n != 0)
        r.reason = ledger_reason_from(r.reason_text);
    enum err err = durable ? hash_of(&in->root, &r.root) : ERR_OK;
    if (err == ERR_OK)
        err = hashes_of(in->leaf_hashes, in->n_leaf_hashes, a, &r.leaf_hashes, &r.n_leaf_hashes);
    if (err == ERR_OK)
        err = balances_of(in->balances, in->n_balances, a, &r.balances, &r.n_balances);
    if (err == ERR_OK)
        err = entries_of(in, a, &r);
    if (err == ERR_OK)
        err = proofs_of(in, a, &r);
    if (err == ERR_OK)
        *out = r;
    return err;
}

enum err ledger_oap_results(struct bytes in, struct arena *a, const struct ledger_result **out,
                            size_t *out_n)
{
    Ron__Ledger__V1__IngestResponse *m = unpack(&ron__ledger__v1__ingest_response__descriptor, in, a);
    if (m == NULL)
        return ERR_CORRUPT;
    struct ledger_result *v = arena_array(a, m->n_results + 1, sizeof *v);
    enum err err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < m->n_results; i++)
        err = result_of(m->results[i], a, &v[i]);
    if (err != ERR_OK)
        return err;
    *out = v;
    *out_n = m->n_results;
    return ERR_OK;
}

enum err ledger_oap_unit_result(struct bytes in, struct arena *a, struct ledger_result *out)
{
    Ron__Ledger__V1__Result *m = unpack(&ron__ledger__v1__result__descriptor, in, a);
    return m == NULL ? ERR_CORRUPT : result_of(m, a, out);
}

enum err ledger_oap_account(struct bytes in, struct arena *a, struct ledger_account_reply *out)
{
    Ron__Ledger__V1__Account *m = unpack(&ron__ledger__v1__account__descriptor, in, a);
    if (m == NULL)
        return ERR_CORRUPT;
    struct ledger_account_reply r = *out;
    struct ledger_lane *lanes = arena_array(a, m->n_nonces + 1, sizeof *lanes);
    enum err err = lanes == NULL ? ERR_NO_MEMORY : hash_of(&m->root, &r.root);
    if (err == ERR_OK)
        err = balances_of(m->balances, m->n_balances, a, &r.balances, &r.n_balances);
    if (err != ERR_OK)
        return err;
    for (size_t i = 0; i < m->n_nonces; i++)
        lanes[i] = (struct ledger_lane){(uint16_t)(m->nonces[i] >> 48), m->nonces[i]};
    r.account = text_of(m->account);
    r.lanes = lanes;
    r.n_lanes = m->n_nonces;
    r.as_of_seq = m->as_of_seq;
    *out = r;
    return ERR_OK;
}

enum err ledger_oap_head(struct bytes in, struct arena *a, struct ledger_head_reply *out)
{
    Ron__Ledger__V1__Head *m = unpack(&ron__ledger__v1__head__descriptor, in, a);
    struct sha256 root;
    if (m == NULL || hash_of(&m->root, &root) != ERR_OK)
        return ERR_CORRUPT;
    out->ready = m->ready;
    out->follows = m->follows;
    out->safe_mode = m->safe_mode;
    out->head_seq = m->tree_size;
    out->group_no = m->group_no;
    out->ledger_ms = m->ledger_ms;
    out->root = root;
    return ERR_OK;
}

enum err ledger_oap_entries(struct bytes in, struct arena *a, struct ledger_entries_reply *out)
{
    Ron__Ledger__V1__Entries *m = unpack(&ron__ledger__v1__entries__descriptor, in, a);
    if (m == NULL)
        return ERR_CORRUPT;
    struct ledger_entry_info *v = arena_array(a, m->n_entries + 1, sizeof *v);
    if (v == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < m->n_entries; i++) {
        const Ron__Ledger__V1__EntryInfo *e = m->entries[i];
        v[i] = (struct ledger_entry_info){.seq = e->seq,
                                          .ledger_ms = e->ledger_ms,
                                          .unit_seq_start = e->unit_seq_start,
                                          .unit_seq_end = e->unit_seq_end,
                                          .leaf = text_of(e->leaf),
                                          .idem_id = text_of(e->idem_id),
                                          .remaining = money_of(e->remaining, e->remaining_hi),
                                          .reversed = money_of(e->reversed, e->reversed_hi),
                                          .open = e->open};
        if (hash_of(&e->leaf_hash, &v[i].leaf_hash) != ERR_OK || entry_of(e->entry, &v[i].entry) != ERR_OK)
            return ERR_CORRUPT;
    }
    out->entries = v;
    out->n_entries = m->n_entries;
    out->next = m->next;
    out->as_of_seq = m->as_of_seq;
    return ERR_OK;
}

enum err ledger_oap_roots(struct bytes in, struct arena *a, struct ledger_roots_reply *out)
{
    Ron__Ledger__V1__Roots *m = unpack(&ron__ledger__v1__roots__descriptor, in, a);
    if (m == NULL)
        return ERR_CORRUPT;
    struct ledger_root *v = arena_array(a, m->n_roots + 1, sizeof *v);
    if (v == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < m->n_roots; i++) {
        v[i] = (struct ledger_root){.seq = m->roots[i]->seq,
                                    .group_no = m->roots[i]->group_no,
                                    .ledger_ms = m->roots[i]->ledger_ms};
        if (hash_of(&m->roots[i]->root, &v[i].root) != ERR_OK)
            return ERR_CORRUPT;
    }
    out->roots = v;
    out->n_roots = m->n_roots;
    out->next_since = m->next_since;
    return ERR_OK;
}

enum err ledger_oap_inclusion(struct bytes in, struct arena *a, struct ledger_proof_reply *out)
{
    Ron__Ledger__V1__Inclusion *m = unpack(&ron__ledger__v1__inclusion__descriptor, in, a);
    struct ledger_proof_reply r = *out;
    if (m == NULL || hash_of(&m->leaf_hash, &r.leaf_hash) != ERR_OK || hash_of(&m->root, &r.root) != ERR_OK)
        return ERR_CORRUPT;
    r.seq = m->seq;
    r.tree_size = m->tree_size;
    r.checkpoint = text_of(m->checkpoint);
    enum err err = hashes_of(m->path, m->n_path, a, &r.path, &r.n_path);
    if (err == ERR_OK)
        *out = r;
    return err;
}

enum err ledger_oap_consistency(struct bytes in, struct arena *a, struct ledger_proof_reply *out)
{
    Ron__Ledger__V1__Consistency *m = unpack(&ron__ledger__v1__consistency__descriptor, in, a);
    struct ledger_proof_reply r = *out;
    if (m == NULL || hash_of(&m->from_root, &r.from_root) != ERR_OK ||
        hash_of(&m->to_root, &r.root) != ERR_OK)
        return ERR_CORRUPT;
    r.seq = m->from;
    r.tree_size = m->to;
    enum err err = hashes_of(m->path, m->n_path, a, &r.path, &r.n_path);
    if (err == ERR_OK)
        *out = r;
    return err;
}

enum err ledger_oap_event(struct bytes in, struct arena *a, struct ledger_commit_event *out,
                          bool *out_lagged)
{
    Ron__Ledger__V1__CommitEvent *m = unpack(&ron__ledger__v1__commit_event__descriptor, in, a);
    if (m == NULL)
        return ERR_CORRUPT;
    struct ledger_commit_event ev = {m->seq_start, m->seq_end, m->tree_size, {{0}}, NULL, m->n_accounts};
    struct str *accounts = arena_array(a, m->n_accounts + 1, sizeof *accounts);
    if (accounts == NULL)
        return ERR_NO_MEMORY;
    if (!m->lagged && hash_of(&m->root, &ev.root) != ERR_OK)
        return ERR_CORRUPT;
    for (size_t i = 0; i < m->n_accounts; i++)
        accounts[i] = text_of(m->accounts[i]);
    ev.accounts = accounts;
    *out = ev;
    *out_lagged = m->lagged;
    return ERR_OK;
}
