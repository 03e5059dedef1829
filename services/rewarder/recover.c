/*
 * What a start learns from the disk: registry.log line by line, then run directories that are sealed but not listed (the
 * process died between the seal and its line), dry and shadow runs, then the inputs.
 */
#include <jansson.h>
#include <stdio.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/money.h"
#include "base/str.h"
#include "services/rewarder/compact.h"
#include "services/rewarder/rewarder.h"

static struct str text_of(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return (struct str){json_string_value(v), json_string_length(v)};
}

static bool hash_of(const json_t *o, const char *name, struct sha256 *out)
{
    struct str s = text_of(o, name);
    return s.p && sha256_parse(s, out) == ERR_OK;
}

static uint64_t number_of(const json_t *o, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(o, name));
}

static bool amount_of(const json_t *o, const char *name, wide_u128 *out)
{
    struct money m;
    struct str s = text_of(o, name);
    if (!s.p || money_parse(s, &m) != ERR_OK)
        return false;
    *out = m.units;
    return true;
}

static void copy_text(char *out, size_t cap, struct str s)
{
    snprintf(out, cap, "%.*s", (int)(s.p ? s.n : 0), s.p ? s.p : "");
}

static enum err add_sealed(struct rewarder *r, const json_t *o, struct str tenant, struct str epoch)
{
    struct rewarder_run *run = rewarder_run_create(tenant, epoch, false), *holder;
    if (!run)
        return ERR_NO_MEMORY;
    struct rewarder_run_info *i = &run->info; /* not shared yet */
    i->state = REWARDER_SEALED;
    i->n = number_of(o, "n");
    i->has_key = i->maybe_sent = true;
    i->paid = number_of(o, "paid");
    i->leaves = number_of(o, "leaves");
    i->sealed_at_ms = (int64_t)number_of(o, "sealed_at");
    copy_text(i->policy_id, sizeof i->policy_id, text_of(o, "policy_id"));
    i->pool.from_balance = json_is_true(json_object_get(o, "from_balance"));
    i->pool.ledger_seq = number_of(o, "ledger_seq");
    bool ok = hash_of(o, "run_key", &i->run_key) && hash_of(o, "cid", &i->inputs_cid) &&
              hash_of(o, "digest", &i->digest) && hash_of(o, "manifest", &i->manifest_digest) &&
              hash_of(o, "root", &i->root) && hash_of(o, "policy_hash", &i->policy_hash) &&
              amount_of(o, "declared", &i->pool.declared) && amount_of(o, "pool", &i->amount) &&
              amount_of(o, "payouts", &i->payouts) && amount_of(o, "dust", &i->dust);
    enum err e = ok ? rewarder_registry_claim(&r->registry, run, &holder) : ERR_CORRUPT;
    if (e == ERR_EXISTS) {
        rewarder_run_unref(holder);
        e = ERR_CORRUPT;
    }
    rewarder_run_unref(run);
    return e;
}

/* Lines say what happened; the state table is not asked again, the disk is the truth. */
static void apply_line(struct rewarder_run_info *i, void *arg)
{
    const json_t *o = arg;
    struct str op = text_of(o, "op");
    if (str_eq(op, STR("quarantined"))) {
        i->state = REWARDER_QUARANTINED;
        copy_text(i->cause, sizeof i->cause, text_of(o, "kind"));
        copy_text(i->reason, sizeof i->reason, text_of(o, "reason"));
        i->since_ms = (int64_t)number_of(o, "at");
    } else if (str_eq(op, STR("released"))) {
        i->state = REWARDER_SEALED;
    } else if (str_eq(op, STR("settled"))) {
        i->state = REWARDER_SETTLED;
        i->settled_at_ms = (int64_t)number_of(o, "settled_at");
        i->seq_first = number_of(o, "seq_first");
        i->seq_last = number_of(o, "seq_last");
        i->chunks_done = rewarder_chunk_count(i->leaves);
    } else if (str_eq(op, STR("swept"))) {
        i->swept = true;
    }
}

static enum err add_breach(struct rewarder *r, json_t *o, struct str tenant, struct str epoch)
{
    struct rewarder_run *run = rewarder_run_create(tenant, epoch, false), *holder;
    if (!run)
        return ERR_NO_MEMORY;
    run->info.n = number_of(o, "n");
    apply_line(&run->info, o);
    enum err e = rewarder_registry_claim(&r->registry, run, &holder);
    if (e == ERR_EXISTS)
        rewarder_run_unref(holder);
    rewarder_run_unref(run);
    return e == ERR_EXISTS ? ERR_CORRUPT : e;
}

static enum err replay_object(struct rewarder *r, json_t *o)
{
    struct str tenant = text_of(o, "t"), epoch = text_of(o, "e"), op = text_of(o, "op");
    if (number_of(o, "n") >=
        r->registry.next_n) /* also of a run of which only the end is left: no task runs yet */
        r->registry.next_n = number_of(o, "n") + 1;
    if (!tenant.p || !rewarder_is_tenant(tenant) || !epoch.p || !rewarder_is_epoch(epoch) || !op.p)
        return ERR_CORRUPT;
    if (str_eq(op, STR("sealed")))
        return add_sealed(r, o, tenant, epoch);
    struct rewarder_run *run = rewarder_registry_find(&r->registry, tenant, epoch, false);
    if (!run) /* a breach is quarantined without ever having been sealed */
        return str_eq(op, STR("quarantined")) ? add_breach(r, o, tenant, epoch) : ERR_OK;
    if (str_eq(op, STR("discarded")))
        rewarder_registry_forget(&r->registry, run);
    else
        rewarder_run_edit(&r->registry, run, apply_line, o);
    rewarder_run_unref(run);
    return ERR_OK;
}

static enum err replay_line(void *ctx, struct bytes line)
{
    json_error_t why;
    json_t *o = json_loadb((const char *)line.p, line.n, JSON_REJECT_DUPLICATES, &why);
    enum err e = o ? replay_object(ctx, o) : ERR_CORRUPT;
    json_decref(o);
    return e;
}

/* ---- sealed, but not listed ---- */

struct walk {
    struct rewarder *r;
    const char *tenant;
    bool dry;
};

static enum err list_adopted(struct rewarder *r, struct rewarder_run *run) RT_BLOCKS
{
    struct buf line;
    struct rewarder_run_info info = rewarder_run_read(&r->registry, run);
    buf_init(&line, 4096);
    rewarder_note_sealed(run, &info, &line);
    enum err e = line.err == ERR_OK ? rewarder_log_append(&r->files, buf_bytes(&line)) : line.err;
    buf_fini(&line);
    rewarder_log_run(r, OBS_INFO, "run.sealed", run, "adopted");
    return e;
}

struct rewarder_run *rewarder_run_from_view(const char *tenant, const char *epoch, bool dry,
                                            const struct rewarder_view *v)
{
    struct rewarder_run *run = rewarder_run_create(str_from_c(tenant), str_from_c(epoch), dry);
    if (!run)
        return NULL;
    struct rewarder_run_info *i = &run->info;
    i->state = REWARDER_SEALED;
    i->has_key = i->maybe_sent = true;
    i->run_key = v->run_key;
    i->inputs_cid = v->inputs_cid;
    i->digest = v->inputs_digest;
    i->manifest_digest = v->manifest_digest;
    i->root = v->tree.root.hash;
    i->policy_hash = v->policy->policy->hash;
    snprintf(i->policy_id, sizeof i->policy_id, "%s", v->policy->policy->id);
    i->pool = v->pool;
    i->amount = v->amount;
    i->payouts = v->payouts;
    i->dust = v->dust;
    i->paid = v->paid;
    i->leaves = v->table.leaves;
    i->sealed_at_ms = v->sealed_at_ms;
    return run;
}

static enum err adopt(struct rewarder *r, const char *tenant, const char *epoch, bool dry) RT_BLOCKS
{
    struct rewarder_view *v;
    enum err e = rewarder_view_open(&r->files, dry, tenant, epoch, true, &v);
    if (e == ERR_NOT_FOUND)
        return ERR_OK; /* never sealed: the next computation overwrites it */
    if (e != ERR_OK) {
        obs_log(r->log, OBS_ERROR, "artifact.corrupt", OBS_STR("tenant", tenant), OBS_STR("epoch", epoch),
                OBS_ERR(e), OBS_END);
        return ERR_OK;
    }
    struct rewarder_run *run = rewarder_run_from_view(tenant, epoch, dry, v), *holder;
    if (!run) {
        rewarder_view_unref(v);
        return ERR_NO_MEMORY;
    }
    e = rewarder_registry_claim(&r->registry, run, &holder);
    if (e == ERR_OK && !dry) {
        e = list_adopted(r, run);
    } else if (e == ERR_EXISTS) {
        rewarder_run_unref(holder);
        e = ERR_OK;
    }
    rewarder_view_unref(v);
    rewarder_run_unref(run);
    return e;
}

static enum err visit_epoch(void *ctx, const char *epoch) RT_BLOCKS
{
    struct walk *w = ctx;
    if (!rewarder_is_epoch(str_from_c(epoch)))
        return ERR_OK;
    struct rewarder_run *run =
        rewarder_registry_find(&w->r->registry, str_from_c(w->tenant), str_from_c(epoch), w->dry);
    if (run) {
        rewarder_run_unref(run);
        return ERR_OK;
    }
    return adopt(w->r, w->tenant, epoch, w->dry);
}

static enum err visit_tenant(void *ctx, const char *tenant) RT_BLOCKS
{
    struct walk *w = ctx;
    char dir[STORE_PATH_MAX];
    if (!rewarder_is_tenant(str_from_c(tenant)))
        return ERR_OK;
    snprintf(dir, sizeof dir, "%s/%s/%s", w->r->files.root, w->dry ? "dry" : "runs", tenant);
    return store_disk_list(w->r->files.disk, dir, visit_epoch, &(struct walk){w->r, tenant, w->dry});
}

static enum err visit_runs(struct rewarder *r, bool dry) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/%s", r->files.root, dry ? "dry" : "runs");
    return store_disk_list(r->files.disk, dir, visit_tenant, &(struct walk){r, NULL, dry});
}

/* ---- inputs ---- */

static enum err read_meta(struct rewarder *r, const struct sha256 *cid) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct rewarder_file file;
    struct rewarder_input in = {.cid = *cid};
    json_error_t why;
    rewarder_path_input(&r->files, cid, ".meta", path);
    enum err e = rewarder_file_load(&r->files, path, &file);
    if (e != ERR_OK)
        return e;
    json_t *o = json_loadb((const char *)file.bytes.p, file.bytes.n, JSON_REJECT_DUPLICATES, &why);
    rewarder_file_unload(&file);
    char *dims = json_dumps(json_object_get(o, "dims"), JSON_COMPACT);
    bool ok = dims && hash_of(o, "digest", &in.digest) && text_of(o, "tenant").p && text_of(o, "epoch").p;
    if (ok) {
        copy_text(in.tenant, sizeof in.tenant, text_of(o, "tenant"));
        copy_text(in.epoch, sizeof in.epoch, text_of(o, "epoch"));
        snprintf(in.dims, sizeof in.dims, "%s", dims);
        in.bytes = number_of(o, "bytes");
        in.rows = number_of(o, "rows");
        in.stored_at_ms = (int64_t)number_of(o, "stored_at");
        in.ndjson = json_is_true(json_object_get(o, "ndjson"));
    }
    free(dims);
    json_decref(o);
    return ok ? rewarder_registry_add_input(&r->registry, &in) : ERR_OK;
}

static enum err visit_input(void *ctx, const char *name) RT_BLOCKS
{
    struct sha256 cid;
    struct str s = str_from_c(name);
    if (!str_ends(s, STR(".meta")) || hex_decode(str_of(s.p, s.n - 5), cid.b, 32) != ERR_OK)
        return ERR_OK;
    return read_meta(ctx, &cid);
}

static enum err visit_input_dir(void *ctx, const char *name) RT_BLOCKS
{
    struct rewarder *r = ctx;
    char dir[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/inputs/%s", r->files.root, name);
    return store_disk_list(r->files.disk, dir, visit_input, r);
}

/* The process died between the line `swept` and the last file of the run. No task runs yet: the list is ours. */
static enum err finish_sweeps(struct rewarder *r) RT_BLOCKS
{
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < r->registry.order_n; i++) {
        const struct rewarder_run *run = r->registry.order[i];
        char path[STORE_PATH_MAX];
        struct store_stat st;
        rewarder_path_run(&r->files, false, run->tenant, run->epoch, "seal.json", path);
        if (run->info.swept && store_disk_stat(r->files.disk, path, &st) == ERR_OK)
            e = rewarder_files_remove_run(&r->files, false, run->tenant, run->epoch, r->kid);
    }
    return e;
}

enum err rewarder_tidy_log(struct rewarder *r)
{
    uint64_t saved;
    enum err e = rewarder_log_compact(&r->files, &saved);
    if (saved)
        obs_log(r->log, OBS_INFO, "registry.compacted", OBS_U64("bytes", r->files.log_end),
                OBS_U64("saved", saved), OBS_END);
    else if (e != ERR_OK)
        obs_log(r->log, OBS_ERROR, "registry.compacted", OBS_ERR(e), OBS_END);
    return r->files.log ? ERR_OK : e; /* the old log still serves */
}

enum err rewarder_recover(struct rewarder *r)
{
    char dir[STORE_PATH_MAX];
    enum err e = rewarder_log_replay(&r->files, replay_line, r);
    if (e == ERR_OK)
        e = rewarder_tidy_log(r);
    if (e == ERR_OK)
        e = finish_sweeps(r);
    if (e == ERR_OK)
        e = visit_runs(r, false);
    if (e == ERR_OK)
        e = visit_runs(r, true);
    if (e == ERR_OK)
        e = rewarder_shadows_recover(r);
    snprintf(dir, sizeof dir, "%s/inputs", r->files.root);
    if (e == ERR_OK)
        e = store_disk_list(r->files.disk, dir, visit_input_dir, r);
    return e;
}
