#include "ledger_client/json.h"

#include "base/json_read.h"
#include "base/json_write.h"

/* ---- writing ---- */

static void put_entry(struct json_w *w, const struct ledger_entry *e)
{
    json_obj_begin(w);
    json_put_str(w, "id", e->id);
    json_put_u64(w, "ts", e->ts_ms);
    json_put_cstr(w, "kind", ledger_kind_name(e->kind));
    json_put_str(w, "account", e->account);
    if (e->to.n != 0)
        json_put_str(w, "to", e->to);
    json_put_str(w, "asset", e->asset);
    json_put_money(w, "amount", e->amount);
    if (e->nonce != 0) {
        json_key(w, "nonce");
        json_u64_text(w, e->nonce);
    }
    if (e->ref_id.n != 0)
        json_put_str(w, "ref_id", e->ref_id);
    if (e->hold_until_ms != 0)
        json_put_u64(w, "hold_until", e->hold_until_ms);
    json_obj_end(w);
}

void ledger_json_put_units(struct buf *b, const struct ledger_ingest *rq)
{
    struct json_w w;
    json_w_init(&w, b);
    json_obj_begin(&w);
    json_key(&w, "units");
    json_arr_begin(&w);
    for (size_t i = 0; i < rq->n_units; i++) {
        const struct ledger_unit *u = &rq->units[i];
        json_obj_begin(&w);
        if (u->idem_id.n != 0)
            json_put_str(&w, "idem_id", u->idem_id);
        if (u->meta.n != 0)
            json_put_base64(&w, "meta", u->meta);
        if (u->not_after_ms != 0)
            json_put_u64(&w, "not_after", u->not_after_ms);
        json_key(&w, "entries");
        json_arr_begin(&w);
        for (size_t k = 0; k < u->n_entries; k++)
            put_entry(&w, &u->entries[k]);
        json_arr_end(&w);
        json_obj_end(&w);
    }
    json_arr_end(&w);
    json_obj_end(&w);
}

/* ---- reading ---- */

static const char *const statuses[] = {"none", "committed", "duplicate", "rejected", "pending", NULL};
static const char *const kinds[] = {"none",    "mint",    "burn",    "transfer", "hold",
                                    "capture", "release", "reverse", "expire",   NULL};

struct in_entry {
    struct str id, account, to, asset, ref_id;
    uint64_t ts, nonce, hold_until;
    int kind;
    struct money amount;
};

static const struct json_field entry_fields[] = {
    JSON_REQ(struct in_entry, id, JSON_KIND_STR),
    JSON_REQ(struct in_entry, ts, JSON_KIND_U64),
    JSON_REQ(struct in_entry, kind, JSON_KIND_ENUM, .names = kinds),
    JSON_REQ(struct in_entry, account, JSON_KIND_STR),
    JSON_DEF(struct in_entry, to, JSON_KIND_STR),
    JSON_REQ(struct in_entry, asset, JSON_KIND_STR),
    JSON_REQ(struct in_entry, amount, JSON_KIND_MONEY),
    JSON_DEF(struct in_entry, nonce, JSON_KIND_U64_TEXT),
    JSON_DEF(struct in_entry, ref_id, JSON_KIND_STR),
    JSON_DEF(struct in_entry, hold_until, JSON_KIND_U64),
    JSON_END,
};

struct in_balance {
    struct str account, asset;
    struct money available, held;
};

static const struct json_field balance_fields[] = {
    JSON_DEF(struct in_balance, account, JSON_KIND_STR),
    JSON_REQ(struct in_balance, asset, JSON_KIND_STR),
    JSON_REQ(struct in_balance, available, JSON_KIND_MONEY),
    JSON_REQ(struct in_balance, held, JSON_KIND_MONEY),
    JSON_END,
};

struct in_proof {
    struct str leaf;
    struct json_list proof;
};

static const struct json_field proof_fields[] = {
    JSON_REQ(struct in_proof, leaf, JSON_KIND_STR),
    JSON_REQ(struct in_proof, proof, JSON_KIND_STR_LIST),
    JSON_END,
};

struct in_result {
    struct str idem_id, reason, details, envelope, checkpoint, kid;
    int status;
    uint64_t seq_start, seq_end, tree_size, ledger_ms;
    struct sha256 root;
    struct json_list leaf_hashes, balances, ids, proofs, entries;
    struct bytes meta;
    bool retryable;
};

static const struct json_field result_fields[] = {
    JSON_REQ(struct in_result, idem_id, JSON_KIND_STR),
    JSON_REQ(struct in_result, status, JSON_KIND_ENUM, .names = statuses),
    JSON_DEF(struct in_result, seq_start, JSON_KIND_U64),
    JSON_DEF(struct in_result, seq_end, JSON_KIND_U64),
    JSON_DEF(struct in_result, tree_size, JSON_KIND_U64),
    JSON_DEF(struct in_result, ledger_ms, JSON_KIND_U64),
    JSON_DEF(struct in_result, root, JSON_KIND_HASH),
    JSON_DEF(struct in_result, leaf_hashes, JSON_KIND_STR_LIST),
    JSON_DEF(struct in_result, balances, JSON_KIND_OBJ_LIST, .fields = balance_fields,
             .item_bytes = sizeof(struct in_balance)),
    JSON_DEF(struct in_result, ids, JSON_KIND_STR_LIST),
    JSON_DEF(struct in_result, proofs, JSON_KIND_OBJ_LIST, .fields = proof_fields,
             .item_bytes = sizeof(struct in_proof)),
    JSON_DEF(struct in_result, entries, JSON_KIND_OBJ_LIST, .fields = entry_fields,
             .item_bytes = sizeof(struct in_entry)),
    JSON_DEF(struct in_result, meta, JSON_KIND_BASE64),
    JSON_DEF(struct in_result, kid, JSON_KIND_STR),
    JSON_DEF(struct in_result, reason, JSON_KIND_STR),
    JSON_DEF(struct in_result, retryable, JSON_KIND_BOOL),
    JSON_DEF(struct in_result, details, JSON_KIND_RAW),
    JSON_DEF(struct in_result, envelope, JSON_KIND_STR),
    JSON_DEF(struct in_result, checkpoint, JSON_KIND_STR),
    JSON_END,
};

struct in_results {
    struct json_list results;
};

static const struct json_field results_fields[] = {
    JSON_REQ(struct in_results, results, JSON_KIND_OBJ_LIST, .fields = result_fields,
             .item_bytes = sizeof(struct in_result)),
    JSON_END,
};

static enum err read_lax(struct bytes body, const struct json_field *fields, void *out, struct arena *a)
{
    struct json_error why;
    return json_read_dto_lax(body, fields, out, a, &why) == ERR_OK ? ERR_OK : ERR_CORRUPT;
}

static struct ledger_entry entry_of(const struct in_entry *e)
{
    return (struct ledger_entry){e->id,        e->ts,    (enum ledger_kind)e->kind,
                                 e->account,   e->to,    e->asset,
                                 e->amount,    e->nonce, e->ref_id,
                                 e->hold_until};
}

static enum err hashes_of(const struct json_list *list, struct arena *a, const struct sha256 **out,
                          size_t *out_n)
{
    struct sha256 *v = arena_array(a, list->n + 1, sizeof *v);
    const struct str *texts = list->items;
    if (v == NULL)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < list->n; i++)
        if (sha256_parse(texts[i], &v[i]) != ERR_OK)
            return ERR_CORRUPT;
    *out = v;
    *out_n = list->n;
    return ERR_OK;
}

static enum err result_of(const struct in_result *in, struct arena *a, struct ledger_result *out)
{
    struct ledger_result r = {.idem_id = in->idem_id,
                              .status = (enum ledger_status)in->status,
                              .seq_start = in->seq_start,
                              .seq_end = in->seq_end,
                              .tree_size = in->tree_size,
                              .ledger_ms = in->ledger_ms,
                              .root = in->root,
                              .ids = in->ids.items,
                              .n_ids = in->ids.n,
                              .envelope = in->envelope,
                              .checkpoint = in->checkpoint,
                              .meta = in->meta,
                              .kid = in->kid,
                              .reason_text = in->reason,
                              .retryable = in->retryable,
                              .details = in->details};
    if (in->reason.n != 0)
        r.reason = ledger_reason_from(in->reason);
    enum err err = hashes_of(&in->leaf_hashes, a, &r.leaf_hashes, &r.n_leaf_hashes);
    struct ledger_balance *b = arena_array(a, in->balances.n + 1, sizeof *b);
    struct ledger_proof_path *p = arena_array(a, in->proofs.n + 1, sizeof *p);
    struct ledger_entry *e = arena_array(a, in->entries.n + 1, sizeof *e);
    if (b == NULL || p == NULL || e == NULL)
        return ERR_NO_MEMORY;
    const struct in_balance *ib = in->balances.items;
    const struct in_proof *ip = in->proofs.items;
    const struct in_entry *ie = in->entries.items;
    for (size_t i = 0; i < in->balances.n; i++)
        b[i] = (struct ledger_balance){ib[i].account, ib[i].asset, ib[i].available, ib[i].held};
    for (size_t i = 0; err == ERR_OK && i < in->proofs.n; i++) {
        p[i].leaf = ip[i].leaf;
        err = hashes_of(&ip[i].proof, a, &p[i].path, &p[i].n_path);
    }
    for (size_t i = 0; i < in->entries.n; i++)
        e[i] = entry_of(&ie[i]);
    r.balances = b;
    r.n_balances = in->balances.n;
    r.proofs = p;
    r.n_proofs = in->proofs.n;
    r.entries = e;
    r.n_entries = in->entries.n;
    *out = r;
    return err;
}

enum err ledger_json_results(struct bytes body, struct arena *a, const struct ledger_result **out,
                             size_t *out_n)
{
    struct in_results in = {0};
    enum err err = read_lax(body, results_fields, &in, a);
    if (err != ERR_OK)
        return err;
    struct ledger_result *v = arena_array(a, in.results.n + 1, sizeof *v);
    const struct in_result *from = in.results.items;
    err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < in.results.n; i++)
        err = result_of(&from[i], a, &v[i]);
    if (err != ERR_OK)
        return err;
    *out = v;
    *out_n = in.results.n;
    return ERR_OK;
}

bool ledger_json_problem_results(struct str details, struct arena *a, const struct ledger_result **out,
                                 size_t *out_n)
{
    return details.n != 0 && ledger_json_results(bytes_of_str(details), a, out, out_n) == ERR_OK;
}

enum err ledger_json_unit_result(struct bytes body, struct arena *a, struct ledger_result *out)
{
    struct in_result in = {0};
    enum err err = read_lax(body, result_fields, &in, a);
    return err == ERR_OK ? result_of(&in, a, out) : err;
}

struct in_problem {
    struct str code, detail, details;
};

static const struct json_field problem_fields[] = {
    JSON_REQ(struct in_problem, code, JSON_KIND_STR),
    JSON_DEF(struct in_problem, detail, JSON_KIND_STR),
    JSON_DEF(struct in_problem, details, JSON_KIND_RAW),
    JSON_END,
};

void ledger_json_problem(struct bytes body, int status, struct arena *a, struct ledger_answer *out)
{
    struct in_problem in = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    out->status = status;
    out->err = ERR_INTERNAL;
    if (read_lax(body, problem_fields, &in, a) != ERR_OK)
        return;
    out->code = in.code;
    out->detail = in.detail;
    out->details = in.details;
    out->err = ledger_reason_from(in.code);
}

struct in_lane {
    uint64_t lane, last;
};
static const struct json_field lane_fields[] = {
    JSON_REQ(struct in_lane, lane, JSON_KIND_U64, .max = 65535),
    JSON_REQ(struct in_lane, last, JSON_KIND_U64_TEXT),
    JSON_END,
};

struct in_account {
    struct str account;
    struct json_list balances, nonces;
    uint64_t as_of_seq;
    struct sha256 root;
};
static const struct json_field account_fields[] = {
    JSON_REQ(struct in_account, account, JSON_KIND_STR),
    JSON_REQ(struct in_account, balances, JSON_KIND_OBJ_LIST, .fields = balance_fields,
             .item_bytes = sizeof(struct in_balance)),
    JSON_REQ(struct in_account, nonces, JSON_KIND_OBJ_LIST, .fields = lane_fields,
             .item_bytes = sizeof(struct in_lane)),
    JSON_REQ(struct in_account, as_of_seq, JSON_KIND_U64),
    JSON_REQ(struct in_account, root, JSON_KIND_HASH),
    JSON_END,
};

enum err ledger_json_account(struct bytes body, struct arena *a, struct ledger_account_reply *out)
{
    struct in_account in = {0};
    enum err err = read_lax(body, account_fields, &in, a);
    if (err != ERR_OK)
        return err;
    struct ledger_balance *b = arena_array(a, in.balances.n + 1, sizeof *b);
    struct ledger_lane *l = arena_array(a, in.nonces.n + 1, sizeof *l);
    if (b == NULL || l == NULL)
        return ERR_NO_MEMORY;
    const struct in_balance *ib = in.balances.items;
    const struct in_lane *il = in.nonces.items;
    for (size_t i = 0; i < in.balances.n; i++)
        b[i] = (struct ledger_balance){in.account, ib[i].asset, ib[i].available, ib[i].held};
    for (size_t i = 0; i < in.nonces.n; i++)
        l[i] = (struct ledger_lane){(uint16_t)il[i].lane, il[i].last};
    out->account = in.account;
    out->balances = b;
    out->n_balances = in.balances.n;
    out->lanes = l;
    out->n_lanes = in.nonces.n;
    out->as_of_seq = in.as_of_seq;
    out->root = in.root;
    return ERR_OK;
}

struct in_unit_ref {
    struct str idem_id;
    uint64_t seq_start, seq_end;
};
static const struct json_field unit_ref_fields[] = {
    JSON_REQ(struct in_unit_ref, idem_id, JSON_KIND_STR),
    JSON_REQ(struct in_unit_ref, seq_start, JSON_KIND_U64),
    JSON_REQ(struct in_unit_ref, seq_end, JSON_KIND_U64),
    JSON_END,
};

struct in_info {
    uint64_t seq, ledger_ms;
    struct sha256 leaf_hash;
    struct str leaf;
    struct in_entry entry;
    struct in_unit_ref unit;
    struct money remaining, reversed;
    bool open;
};
static const struct json_field info_fields[] = {
    JSON_REQ(struct in_info, seq, JSON_KIND_U64),
    JSON_REQ(struct in_info, leaf_hash, JSON_KIND_HASH),
    JSON_REQ(struct in_info, leaf, JSON_KIND_STR),
    JSON_REQ(struct in_info, entry, JSON_KIND_OBJ, .fields = entry_fields),
    JSON_REQ(struct in_info, unit, JSON_KIND_OBJ, .fields = unit_ref_fields),
    JSON_REQ(struct in_info, ledger_ms, JSON_KIND_U64),
    JSON_DEF(struct in_info, remaining, JSON_KIND_MONEY),
    JSON_DEF(struct in_info, reversed, JSON_KIND_MONEY),
    JSON_DEF(struct in_info, open, JSON_KIND_BOOL),
    JSON_END,
};

static struct ledger_entry_info info_of(const struct in_info *in)
{
    return (struct ledger_entry_info){
        in->seq,  in->ledger_ms,    in->unit.seq_start,   in->unit.seq_end, in->leaf_hash,
        in->leaf, in->unit.idem_id, entry_of(&in->entry), in->remaining,    in->reversed,
        in->open};
}

enum err ledger_json_entry_one(struct bytes body, struct arena *a, struct ledger_entries_reply *out)
{
    struct in_info in = {0};
    struct ledger_entry_info *v = arena_alloc(a, sizeof *v);
    enum err err = v == NULL ? ERR_NO_MEMORY : read_lax(body, info_fields, &in, a);
    if (err != ERR_OK)
        return err;
    *v = info_of(&in);
    out->entries = v;
    out->n_entries = 1;
    return ERR_OK;
}

struct in_list {
    struct json_list entries;
    uint64_t next, as_of_seq;
};
static const struct json_field list_fields[] = {
    JSON_REQ(struct in_list, entries, JSON_KIND_OBJ_LIST, .fields = info_fields,
             .item_bytes = sizeof(struct in_info)),
    JSON_DEF(struct in_list, next, JSON_KIND_U64),
    JSON_REQ(struct in_list, as_of_seq, JSON_KIND_U64),
    JSON_END,
};

enum err ledger_json_entry_list(struct bytes body, struct arena *a, struct ledger_entries_reply *out)
{
    struct in_list in = {0};
    enum err err = read_lax(body, list_fields, &in, a);
    struct ledger_entry_info *v = err == ERR_OK ? arena_array(a, in.entries.n + 1, sizeof *v) : NULL;
    if (v == NULL)
        return err == ERR_OK ? ERR_NO_MEMORY : err;
    const struct in_info *from = in.entries.items;
    for (size_t i = 0; i < in.entries.n; i++)
        v[i] = info_of(&from[i]);
    out->entries = v;
    out->n_entries = in.entries.n;
    out->next = in.next;
    out->as_of_seq = in.as_of_seq;
    return ERR_OK;
}

struct in_root {
    uint64_t seq, group_no, ledger_ms;
    struct sha256 root;
};
static const struct json_field root_fields[] = {
    JSON_REQ(struct in_root, seq, JSON_KIND_U64),
    JSON_REQ(struct in_root, root, JSON_KIND_HASH),
    JSON_REQ(struct in_root, group_no, JSON_KIND_U64),
    JSON_REQ(struct in_root, ledger_ms, JSON_KIND_U64),
    JSON_END,
};
struct in_roots {
    struct json_list roots;
    uint64_t next_since;
};
static const struct json_field roots_fields[] = {
    JSON_REQ(struct in_roots, roots, JSON_KIND_OBJ_LIST, .fields = root_fields,
             .item_bytes = sizeof(struct in_root)),
    JSON_REQ(struct in_roots, next_since, JSON_KIND_U64),
    JSON_END,
};

enum err ledger_json_roots(struct bytes body, struct arena *a, struct ledger_roots_reply *out)
{
    struct in_roots in = {0};
    enum err err = read_lax(body, roots_fields, &in, a);
    struct ledger_root *v = err == ERR_OK ? arena_array(a, in.roots.n + 1, sizeof *v) : NULL;
    if (v == NULL)
        return err == ERR_OK ? ERR_NO_MEMORY : err;
    const struct in_root *from = in.roots.items;
    for (size_t i = 0; i < in.roots.n; i++)
        v[i] = (struct ledger_root){from[i].seq, from[i].group_no, from[i].ledger_ms, from[i].root};
    out->roots = v;
    out->n_roots = in.roots.n;
    out->next_since = in.next_since;
    return ERR_OK;
}

struct in_path {
    uint64_t seq, tree_size, from, to;
    struct sha256 leaf_hash, root, from_root, to_root;
    struct json_list proof;
    struct str checkpoint;
};
static const struct json_field inclusion_fields[] = {
    JSON_REQ(struct in_path, seq, JSON_KIND_U64),
    JSON_REQ(struct in_path, leaf_hash, JSON_KIND_HASH),
    JSON_REQ(struct in_path, tree_size, JSON_KIND_U64),
    JSON_REQ(struct in_path, root, JSON_KIND_HASH),
    JSON_REQ(struct in_path, proof, JSON_KIND_STR_LIST),
    JSON_DEF(struct in_path, checkpoint, JSON_KIND_STR),
    JSON_END,
};
static const struct json_field consistency_fields[] = {
    JSON_REQ(struct in_path, from, JSON_KIND_U64),       JSON_REQ(struct in_path, to, JSON_KIND_U64),
    JSON_REQ(struct in_path, from_root, JSON_KIND_HASH), JSON_REQ(struct in_path, to_root, JSON_KIND_HASH),
    JSON_REQ(struct in_path, proof, JSON_KIND_STR_LIST), JSON_END,
};

enum err ledger_json_inclusion(struct bytes body, struct arena *a, struct ledger_proof_reply *out)
{
    struct in_path in = {0};
    enum err err = read_lax(body, inclusion_fields, &in, a);
    if (err != ERR_OK)
        return err;
    out->seq = in.seq;
    out->tree_size = in.tree_size;
    out->leaf_hash = in.leaf_hash;
    out->root = in.root;
    out->checkpoint = in.checkpoint;
    return hashes_of(&in.proof, a, &out->path, &out->n_path);
}

enum err ledger_json_consistency(struct bytes body, struct arena *a, struct ledger_proof_reply *out)
{
    struct in_path in = {0};
    enum err err = read_lax(body, consistency_fields, &in, a);
    if (err != ERR_OK)
        return err;
    out->seq = in.from;
    out->tree_size = in.to;
    out->from_root = in.from_root;
    out->root = in.to_root;
    return hashes_of(&in.proof, a, &out->path, &out->n_path);
}

struct in_ready {
    bool ready, safe_mode;
    uint64_t head_seq, group_no, ledger_ms;
    struct sha256 root;
    struct str role;
};
static const struct json_field ready_fields[] = {
    JSON_REQ(struct in_ready, ready, JSON_KIND_BOOL),
    JSON_DEF(struct in_ready, safe_mode, JSON_KIND_BOOL),
    JSON_REQ(struct in_ready, head_seq, JSON_KIND_U64),
    JSON_DEF(struct in_ready, group_no, JSON_KIND_U64),
    JSON_REQ(struct in_ready, ledger_ms, JSON_KIND_U64),
    JSON_DEF(struct in_ready, root, JSON_KIND_HASH),
    JSON_DEF(struct in_ready, role, JSON_KIND_STR, .max = 32),
    JSON_END,
};

enum err ledger_json_ready(struct bytes body, struct arena *a, struct ledger_head_reply *out)
{
    struct in_ready in = {0};
    enum err err = read_lax(body, ready_fields, &in, a);
    if (err != ERR_OK)
        return err;
    out->ready = in.ready;
    out->safe_mode = in.safe_mode;
    out->follows = str_eq_c(in.role, "standby") || str_eq_c(in.role, "fenced");
    out->head_seq = in.head_seq;
    out->group_no = in.group_no;
    out->ledger_ms = in.ledger_ms;
    out->root = in.root;
    return ERR_OK;
}

struct in_event {
    uint64_t seq_start, seq_end, tree_size;
    struct sha256 root;
    struct json_list accounts;
};
static const struct json_field event_fields[] = {
    JSON_REQ(struct in_event, seq_start, JSON_KIND_U64),
    JSON_REQ(struct in_event, seq_end, JSON_KIND_U64),
    JSON_REQ(struct in_event, tree_size, JSON_KIND_U64),
    JSON_REQ(struct in_event, root, JSON_KIND_HASH),
    JSON_REQ(struct in_event, accounts, JSON_KIND_STR_LIST),
    JSON_END,
};

enum err ledger_json_event(struct bytes body, struct arena *a, struct ledger_commit_event *out)
{
    struct in_event in = {0};
    enum err err = read_lax(body, event_fields, &in, a);
    if (err == ERR_OK)
        *out = (struct ledger_commit_event){in.seq_start, in.seq_end,        in.tree_size,
                                            in.root,      in.accounts.items, in.accounts.n};
    return err;
}

struct in_ms {
    uint64_t ledger_ms;
};
static const struct json_field ms_fields[] = {
    JSON_REQ(struct in_ms, ledger_ms, JSON_KIND_U64),
    JSON_END,
};

uint64_t ledger_json_ledger_ms(struct str details, struct arena *a)
{
    struct in_ms in = {0};
    if (details.n == 0 || read_lax(bytes_of_str(details), ms_fields, &in, a) != ERR_OK)
        return 0;
    return in.ledger_ms;
}
