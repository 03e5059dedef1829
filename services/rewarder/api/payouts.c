/* What a recipient asks: how much, why, and how can I check it. Also the table as CSV and the files of a run. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "base/money.h"
#include "base/str.h"
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"
#include "services/rewarder/core/explain.h"

enum { PAYOUT_BODY_MAX = 64 * 1024 };

static void put_amount(struct json_w *w, const char *name, wide_u128 v)
{
    json_put_money(w, name, (struct money){v});
}

static void put_proof(struct json_w *w, const struct rewarder_view *v, uint64_t row, struct str account)
{
    struct rewarder_proof p;
    struct rewarder_salter salter;
    uint8_t salt[REWARDER_LEAF_SALT_BYTES];
    rewarder_payouts_prove(&v->table, &v->tree, row, &p);
    rewarder_salter_init(&salter, v->table.salt);
    size_t salt_n = rewarder_leaf_salt(&salter, account, salt);
    json_key(w, "proof");
    json_obj_begin(w);
    json_put_cstr(w, "scheme", REWARDER_SCHEME);
    json_put_u64(w, "index", p.index);
    json_put_u64(w, "count", p.count);
    json_key(w, "salt");
    json_hex(w, salt, salt_n);
    json_key(w, "path");
    json_arr_begin(w);
    for (unsigned i = 0; i < p.steps; i++) {
        json_obj_begin(w);
        json_put_cstr(w, "side", p.step[i].left ? "left" : "right");
        json_put_hash(w, "hash", &p.step[i].node.hash);
        put_amount(w, "sum", p.step[i].node.sum);
        json_obj_end(w);
    }
    json_arr_end(w);
    json_put_hash(w, "root", &v->tree.root.hash);
    put_amount(w, "sum", v->tree.root.sum);
    json_obj_end(w);
}

static void put_explanation(struct json_w *w, const struct rewarder_view *v,
                            const struct rewarder_payout *row)
{
    const struct rewarder_policy *p = v->policy->policy;
    struct rewarder_explanation x = rewarder_explain(&v->table, p, row, v->cut_negative);
    json_key(w, "explain");
    json_obj_begin(w);
    json_key(w, "usage");
    json_obj_begin(w);
    for (unsigned d = 0; d < v->table.dim_count; d++) {
        json_key_str(w, v->table.dims[d]);
        json_u64(w, be64_get(row->usage + 8 * d));
    }
    json_obj_end(w);
    json_key(w, "weights");
    json_obj_begin(w);
    for (unsigned i = 0; i < p->weight_count; i++) {
        json_key(w, p->weights[i].dim);
        json_u64_text(w, p->weights[i].whole);
    }
    json_obj_end(w);
    put_amount(w, "score", x.score);
    put_amount(w, "score_total", v->table.score_total);
    put_amount(w, "pool", v->table.pool);
    put_amount(w, "floor", x.floor);
    put_amount(w, "remainder", x.remainder);
    json_put_cstr(w, "rounding", rewarder_rounding_name(p->rounding));
    json_put_u64(w, "rank", row->rank);
    json_put_i64(w, "cut", v->cut_negative ? -(int64_t)v->cut : (int64_t)v->cut);
    put_amount(w, "rounded", row->rounded);
    json_put_cstr(w, "why", x.why);
    json_obj_end(w);
}

static void put_entry(struct json_w *w, const struct rewarder_view *v, const struct rewarder_run *run,
                      struct str account, uint64_t leaf)
{
    char id[REWARDER_ENTRY_ID_LEN + 1];
    rewarder_entry_id(str_from_c(run->tenant), str_from_c(run->epoch), account, id);
    json_put_cstr(w, "entry_id", id);
    if (v->places)
        json_put_u64(w, "ledger_seq", v->places[leaf / REWARDER_CHUNK].seq_start + leaf % REWARDER_CHUNK);
}

static void answer_payout(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                          const struct rewarder_view *v, struct str account)
{
    uint64_t at;
    if (!rewarder_payouts_find(&v->table, account, &at)) {
        net_reply_problem(rq, ERR_NOT_FOUND, "the account is not in the inputs");
        return;
    }
    struct rewarder_payout row = rewarder_payouts_row(&v->table, at);
    struct buf b;
    struct json_w w;
    buf_init(&b, PAYOUT_BODY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "tenant", run->tenant);
    json_put_cstr(&w, "epoch", run->epoch);
    json_put_str(&w, "account", account);
    put_amount(&w, "amount", row.amount);
    json_put_cstr(&w, "asset", v->policy->policy->asset);
    json_put_cstr(&w, "state", rewarder_state_name(rewarder_run_read(&r->registry, run).state));
    if (row.flags & REWARDER_LEAF) {
        put_entry(&w, v, run, account, rewarder_payouts_leaf_of(&v->table, at));
        put_proof(&w, v, at, account);
    }
    put_explanation(&w, v, &row);
    json_obj_end(&w);
    net_reply_json(rq, 200, buf_bytes(&b));
    buf_fini(&b);
}

void rewarder_api_get_payout(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct auth_want want = {.bytes = 0};
    struct str account;
    bool named = net_req_query(rq, "account", &account) == ERR_OK && str_is_account(account);
    if (named)
        want.account = account;
    if (!api_allow_either(r, rq, "payout", "read", &want, &who))
        return;
    if (!named) {
        net_reply_problem(rq, ERR_BAD_REQUEST, "name one account: ?account=");
        return;
    }
    struct rewarder_run *run = api_run(r, rq, &who);
    struct rewarder_view *v = run ? api_view(r, rq, run, rewarder_api_get_payout) : NULL;
    if (v)
        answer_payout(r, rq, run, v, account);
    rewarder_view_unref(v);
    rewarder_run_unref(run);
}

/* ---- CSV ---- */

static void put_csv_row(struct buf *b, const struct rewarder_view *v, const struct rewarder_run *run,
                        uint64_t i, uint64_t *leaf)
{
    char t[4][MONEY_CHARS], id[REWARDER_ENTRY_ID_LEN + 1] = "", seq[24] = "";
    struct rewarder_payout row = rewarder_payouts_row(&v->table, i);
    struct rewarder_explanation x = rewarder_explain(&v->table, v->policy->policy, &row, v->cut_negative);
    money_format((struct money){row.amount}, t[0]);
    money_format((struct money){x.score}, t[1]);
    money_format((struct money){x.floor}, t[2]);
    money_format((struct money){x.remainder}, t[3]);
    buf_printf(b, "%.*s,%s,%s,%s,%s,", STR_ARG(row.account), t[0], t[1], t[2], t[3]);
    money_format((struct money){row.rounded}, t[0]);
    if (row.flags & REWARDER_LEAF) {
        rewarder_entry_id(str_from_c(run->tenant), str_from_c(run->epoch), row.account, id);
        if (v->places)
            snprintf(
                seq, sizeof seq, "%llu",
                (unsigned long long)(v->places[*leaf / REWARDER_CHUNK].seq_start + *leaf % REWARDER_CHUNK));
        (*leaf)++;
    }
    buf_printf(b, "%s,%u,%s%s%s,%s,%s\n", t[0], row.rank, row.flags & REWARDER_DUST ? "dust" : "",
               row.flags & REWARDER_CAPPED ? "capped" : "",
               row.flags & REWARDER_BELOW_MIN ? "below_min" : "", id, seq);
}

static void free_body(void *arg, enum err result)
{
    (void)result;
    free(arg);
}

/* On a worker: a million rows take a while. */
static void write_csv(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct rewarder_run *run = net_req_user(rq);
    struct rewarder_view *v = rewarder_run_view(&r->registry, run);
    struct buf b;
    uint64_t leaf = 0;
    size_t n;
    buf_init(&b, (size_t)8 << 30);
    buf_puts(&b, "account,amount,score,floor,remainder,rounded,rank,flags,entry_id,ledger_seq\n");
    for (uint64_t i = 0; v && i < v->table.rows && b.err == ERR_OK; i++)
        put_csv_row(&b, v, run, i, &leaf);
    if (b.err == ERR_OK && v) {
        uint8_t *p = buf_take(&b, &n);
        net_reply_pinned(rq, 200, &(struct net_headers){.type = "text/csv"}, bytes_of(p, n), free_body, p);
    } else {
        net_reply_problem(rq, ERR_UNAVAILABLE, "out of memory");
        buf_fini(&b);
    }
    rewarder_view_unref(v);
}

void rewarder_api_get_csv(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    if (!api_allow(r, rq, "read", &(struct auth_want){.account = API_EVERY_ACCOUNT}, &who))
        return;
    struct rewarder_run *run = api_run(r, rq, &who);
    if (!run)
        return;
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    struct rewarder_item *it = NULL;
    if (info.state == REWARDER_QUARANTINED)
        rewarder_reply_conflict(r, rq, run);
    else if (!rewarder_state_has_files(info.state))
        rewarder_reply_not_sealed(rq, info.state);
    else if (info.swept)
        net_reply_problem(rq, ERR_NOT_FOUND, "the run was settled long ago and its files were removed");
    else
        it = api_item(r, rq, REWARDER_READ, &who);
    if (it) {
        it->run = rewarder_run_ref(run);
        it->again = write_csv;
        net_req_set_user(rq, run); /* the item keeps it alive until write_csv has run */
        (void)!api_enqueue(r, it, "compute");
    }
    rewarder_run_unref(run);
}

/* ---- files ---- */

static bool is_artifact(struct str name)
{
    static const char *const names[] = {"run.json",  "commitment", "payouts.bin",    "tree.bin",
                                        "seal.json", "settle.log", "settlement.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_eq_c(name, names[i]))
            return true;
    if (!str_starts(name, STR("sigs/")) || name.n < 5 + REWARDER_KID_LEN)
        return false;
    for (size_t i = 5; i < 5 + REWARDER_KID_LEN; i++)
        if (!((name.p[i] >= '0' && name.p[i] <= '9') || (name.p[i] >= 'a' && name.p[i] <= 'f')))
            return false;
    struct str rest = str_of(name.p + 5 + REWARDER_KID_LEN, name.n - 5 - REWARDER_KID_LEN);
    return str_eq(rest, STR(".sig")) || str_eq(rest, STR(".settlement.sig"));
}

static bool is_public(struct str name)
{
    return str_eq(name, STR("run.json")) || str_eq(name, STR("commitment")) ||
           str_starts(name, STR("sigs/"));
}

/* The manifest knows the digest of the table. */
static bool digest_of_table(struct rewarder *r, const struct rewarder_run *run,
                            struct sha256 *out) RT_BLOCKS
{
    struct rewarder_file file;
    char path[STORE_PATH_MAX];
    json_error_t why;
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "run.json", path);
    if (rewarder_file_load(&r->files, path, &file) != ERR_OK)
        return false;
    json_t *root = json_loadb((const char *)file.bytes.p, file.bytes.n, 0, &why);
    const char *text = json_string_value(json_object_get(json_object_get(root, "files"), "payouts.bin"));
    bool known = text && sha256_parse(str_from_c(text), out) == ERR_OK;
    json_decref(root);
    rewarder_file_unload(&file);
    return known;
}

/* A file's digest is its tag. The table may be too large to be hashed on the way out; everything else is small. */
static void tag_of(struct rewarder *r, const struct rewarder_run *run, struct str name,
                   const struct rewarder_file *file, struct sha256 *out) RT_BLOCKS
{
    if (!str_eq(name, STR("payouts.bin")) || !digest_of_table(r, run, out))
        sha256_of(file->bytes.p, file->bytes.n, out);
}

static void send_artifact(struct rewarder *r, struct net_req *rq, struct rewarder_run *run,
                          struct str name) RT_BLOCKS
{
    struct rewarder_file file;
    struct sha256 tag;
    char path[STORE_PATH_MAX], text[64];
    snprintf(text, sizeof text, "%.*s", STR_ARG(name));
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, text, path);
    if (rewarder_file_load(&r->files, path, &file) != ERR_OK) {
        net_reply_problem(rq, ERR_NOT_FOUND, "the run has no such file");
        return;
    }
    tag_of(r, run, name, &file, &tag);
    if (api_not_modified(rq, &tag))
        rewarder_file_unload(&file);
    else
        api_reply_file(rq,
                       str_ends(name, STR(".json"))      ? "application/json"
                       : str_eq(name, STR("commitment")) ? "text/plain"
                                                         : "application/octet-stream",
                       &tag, false, &file);
}

void rewarder_api_get_artifact(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct auth_want want = {.bytes = 0}, whole = {.account = API_EVERY_ACCOUNT};
    struct str name = net_req_param(rq, "name");
    bool known = is_artifact(name);
    if (!(!known || is_public(name) ? api_allow_either(r, rq, "payout", "read", &want, &who)
                                    : api_allow(r, rq, "read", &whole, &who)))
        return;
    if (!known) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such file of a run");
        return;
    }
    struct rewarder_run *run = api_run(r, rq, &who);
    if (run && !rewarder_run_read(&r->registry, run).sealed_at_ms)
        net_reply_problem(rq, ERR_NOT_FOUND, "the run has no such file");
    else if (run)
        send_artifact(r, rq, run, name);
    rewarder_run_unref(run);
}
