#include "services/rewarder/view.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/money.h"
#include "base/time_fmt.h"
#include "services/rewarder/core/explain.h"

static bool get_text(const json_t *o, const char *name, struct str *out)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_string(v))
        return false;
    *out = (struct str){json_string_value(v), json_string_length(v)};
    return true;
}

static bool get_hash(const json_t *o, const char *name, struct sha256 *out)
{
    struct str s;
    return get_text(o, name, &s) && sha256_parse(s, out) == ERR_OK;
}

static bool get_amount(const json_t *o, const char *name, wide_u128 *out)
{
    struct str s;
    struct money m;
    if (!get_text(o, name, &s) || money_parse(s, &m) != ERR_OK)
        return false;
    *out = m.units;
    return true;
}

struct claims {
    struct sha256 payouts_hash, root;
    uint64_t count;
};

static bool read_manifest(struct rewarder_view *v, const json_t *root, struct claims *c)
{
    const json_t *pool = json_object_get(root, "pool"), *totals = json_object_get(root, "totals");
    const json_t *commitment = json_object_get(root, "commitment");
    struct rewarder_policy *policy;
    struct str source;
    const char *member;
    if (!get_hash(root, "run_key", &v->run_key) ||
        !get_hash(json_object_get(root, "inputs"), "digest", &v->inputs_digest) ||
        !get_hash(json_object_get(root, "files"), "payouts.bin", &c->payouts_hash) ||
        !get_hash(commitment, "root", &c->root) || !get_amount(pool, "declared", &v->pool.declared) ||
        !get_amount(pool, "amount", &v->amount) || !get_text(pool, "source", &source) ||
        !get_amount(totals, "payouts", &v->payouts) || !get_amount(totals, "dust", &v->dust))
        return false;
    c->count = (uint64_t)json_integer_value(json_object_get(commitment, "count"));
    v->paid = (uint64_t)json_integer_value(json_object_get(totals, "paid"));
    v->pool.from_balance = str_eq(source, STR("balance"));
    v->pool.ledger_seq = (uint64_t)json_integer_value(json_object_get(pool, "ledger_seq"));
    char *text = json_dumps(json_object_get(root, "policy"), JSON_COMPACT);
    enum err e =
        text ? rewarder_policy_create(bytes_of(text, strlen(text)), &policy, &member) : ERR_CORRUPT;
    free(text);
    if (e != ERR_OK)
        return false;
    v->policy = rewarder_policy_ref_create(policy);
    if (!v->policy)
        rewarder_policy_destroy(policy);
    return v->policy != NULL;
}

static bool read_seal(struct rewarder_view *v, struct bytes text)
{
    json_error_t why;
    struct str at, kid;
    json_t *root = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    bool ok = get_hash(root, "inputs_cid", &v->inputs_cid) && get_text(root, "sealed_at", &at) &&
              time_parse_ms(at, &v->sealed_at_ms) == ERR_OK && get_text(root, "kid", &kid) &&
              kid.n == REWARDER_KID_LEN;
    if (ok)
        memcpy(v->kid, kid.p, kid.n);
    json_decref(root);
    return ok;
}

struct place {
    struct rewarder_files *files;
    const struct rewarder_view_spec *run;
    const char *bad; /* the file that was missing or damaged */
};

static enum err load(const struct place *at, const char *name, struct rewarder_file *out) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    rewarder_path_run(at->files, at->run->dry, at->run->tenant, at->run->epoch, name, path);
    return rewarder_file_load(at->files, path, out);
}

static enum err corrupt(struct place *at, const char *file)
{
    at->bad = file;
    return ERR_ARTIFACT_CORRUPT;
}

/* The same name with another number at its end: nobody damaged it, but it is not ours to read or to mend. */
static bool is_other_version(struct bytes text, struct str ours)
{
    size_t name = ours.n;
    while (name && ours.p[name - 1] >= '0' && ours.p[name - 1] <= '9')
        name--;
    return text.n > name && !memcmp(text.p, ours.p, name) && text.p[name] >= '0' && text.p[name] <= '9' &&
           (text.n < ours.n || memcmp(text.p, ours.p, ours.n) != 0);
}

static enum err other_version(struct place *at, const char *file)
{
    at->bad = file;
    return ERR_VERSION;
}

const char *rewarder_view_words(enum err e)
{
    return e == ERR_VERSION ? "a stored file of the run was written by another version of the format; the "
                              "program that wrote it can read it"
                            : "a stored file of the run fails its hash";
}

static enum err open_seal(struct rewarder_view *v, struct place *at) RT_BLOCKS
{
    struct rewarder_file file;
    char name[64];
    enum err e = load(at, "seal.json", &file);
    if (e != ERR_OK)
        return e;
    bool ok = read_seal(v, file.bytes);
    rewarder_file_unload(&file);
    if (!ok)
        return corrupt(at, "seal.json");
    snprintf(name, sizeof name, "sigs/%s.sig", v->kid);
    e = load(at, name, &file);
    if (e != ERR_OK)
        return corrupt(at, "signature");
    ok = file.bytes.n == sizeof v->signature;
    if (ok)
        memcpy(v->signature, file.bytes.p, sizeof v->signature);
    rewarder_file_unload(&file);
    return ok ? ERR_OK : corrupt(at, "signature");
}

static enum err open_manifest(struct rewarder_view *v, struct place *at, struct claims *c) RT_BLOCKS
{
    json_error_t why;
    if (load(at, "run.json", &v->manifest_file) != ERR_OK)
        return corrupt(at, "run.json");
    struct bytes text = v->manifest_file.bytes;
    sha256_of(text.p, text.n, &v->manifest_digest);
    json_t *root = json_loadb((const char *)text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    struct str type = {NULL, 0};
    bool other =
        get_text(root, "type", &type) && is_other_version(bytes_of_str(type), STR("ron-reward-run/1"));
    bool ok = root && !other && read_manifest(v, root, c);
    json_decref(root);
    return ok ? ERR_OK : other ? other_version(at, "run.json") : corrupt(at, "run.json");
}

static enum err open_tree(struct rewarder_view *v, struct place *at) RT_BLOCKS
{
    struct rewarder_file file;
    if (!at->run->rebuild_tree && load(at, "tree.bin", &file) == ERR_OK) {
        enum err e = rewarder_tree_decode(file.bytes, &v->tree);
        rewarder_file_unload(&file);
        if (e == ERR_OK)
            return ERR_OK;
        at->bad = "tree.bin";
    }
    return rewarder_payouts_tree(&v->table, &v->tree); /* tree.bin is a cache */
}

/* Where the ledger put each chunk, once it did. */
static enum err open_settlement(struct rewarder_view *v, struct place *at) RT_BLOCKS
{
    struct rewarder_file file;
    json_error_t why;
    uint64_t chunks = rewarder_chunk_count(v->table.leaves);
    enum err e = load(at, "settlement.json", &file);
    if (e != ERR_OK)
        return e == ERR_NOT_FOUND ? ERR_OK : e;
    json_t *root = json_loadb((const char *)file.bytes.p, file.bytes.n, JSON_REJECT_DUPLICATES, &why);
    const json_t *list = json_object_get(root, "chunks");
    rewarder_file_unload(&file);
    v->places = json_array_size(list) == chunks ? calloc(chunks ? chunks : 1, sizeof *v->places) : NULL;
    for (uint64_t c = 0; v->places && c < chunks; c++) {
        const json_t *o = json_array_get(list, c);
        v->places[c].leaves = (uint32_t)json_integer_value(json_object_get(o, "leaves"));
        v->places[c].seq_start = (uint64_t)json_integer_value(json_object_get(o, "seq_start"));
    }
    json_decref(root);
    return v->places ? ERR_OK : corrupt(at, "settlement.json");
}

static enum err open_all(struct rewarder_view *v, struct place *at) RT_BLOCKS
{
    struct claims claims = {.count = 0};
    enum err e = open_seal(v, at);
    if (e == ERR_OK)
        e = open_manifest(v, at, &claims);
    if (e == ERR_OK && load(at, "payouts.bin", &v->payouts_file) != ERR_OK)
        e = corrupt(at, "payouts.bin");
    if (e == ERR_OK && is_other_version(v->payouts_file.bytes, STR("RONPAY01")))
        e = other_version(at, "payouts.bin");
    if (e == ERR_OK && rewarder_payouts_open(v->payouts_file.bytes, &v->table) != ERR_OK)
        e = corrupt(at, "payouts.bin");
    if (e != ERR_OK)
        return e;
    if (!sha256_eq(&v->table.file_hash, &claims.payouts_hash) || v->table.leaves != claims.count ||
        !sha256_eq(&v->table.inputs_digest, &v->inputs_digest) || v->table.pool != v->amount)
        return corrupt(at, "payouts.bin");
    e = open_tree(v, at);
    if (e != ERR_OK)
        return e;
    if (!sha256_eq(&v->tree.root.hash, &claims.root) || v->tree.root.sum != v->amount)
        return corrupt(at, at->bad ? at->bad : "run.json");
    v->cut = rewarder_explain_cut(&v->table, v->policy->policy, &v->cut_negative);
    return at->run->dry ? ERR_OK : open_settlement(v, at);
}

enum err rewarder_view_open(struct rewarder_files *f, const struct rewarder_view_spec *spec,
                            struct rewarder_view **out, const char **out_bad)
{
    struct rewarder_view *v = calloc(1, sizeof *v);
    *out_bad = NULL;
    if (!v)
        return ERR_NO_MEMORY;
    atomic_init(&v->refs, 1);
    struct place at = {f, spec, NULL};
    enum err e = open_all(v, &at);
    *out_bad = at.bad;
    if (e != ERR_OK) {
        rewarder_view_unref(v);
        return e;
    }
    rewarder_view_rest(v); /* every page was looked at, and few readers need more than a few */
    *out = v;
    return ERR_OK;
}

void rewarder_view_rest(struct rewarder_view *v)
{
    rewarder_file_rest(&v->payouts_file);
}

struct rewarder_view *rewarder_view_ref(struct rewarder_view *v)
{
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

void rewarder_view_unref(struct rewarder_view *v)
{
    if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
        return;
    rewarder_payouts_close(&v->table);
    rewarder_tree_fini(&v->tree);
    rewarder_policy_unref(v->policy);
    free(v->places);
    rewarder_file_unload(&v->manifest_file);
    rewarder_file_unload(&v->payouts_file);
    free(v);
}
