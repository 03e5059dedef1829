/*
 * What a start learns from the disk: registry.log line by line, then run directories that are sealed but not listed (the
 * process died between the seal and its line), dry and shadow runs, then the inputs.
 */
#include <stdio.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/str.h"
#include "services/rewarder/compact.h"
#include "services/rewarder/line.h"
#include "services/rewarder/rewarder.h"

enum { ARENA_BYTES = 256 * 1024, META_BYTES = 8192 };

static void copy_text(char *out, size_t cap, struct str s)
{
    snprintf(out, cap, "%.*s", (int)(s.p ? s.n : 0), s.p ? s.p : "");
}

/* ---- registry.log ---- */

struct replay {
    struct rewarder *r;
    struct arena arena; /* one line's */
    uint64_t dead_max;  /* bytes of lines that a fold might drop: at least what it would */
};

/* One line, and how long its frame is. */
struct entry {
    const struct rewarder_line *line;
    uint32_t bytes;
};

static enum err add_sealed(struct rewarder *r, const struct entry *en)
{
    const struct rewarder_line *l = en->line;
    struct rewarder_run *run = rewarder_run_create(l->tenant, l->epoch, false), *holder;
    if (!run)
        return ERR_NO_MEMORY;
    bool ok = l->has_run_key && l->has_cid && l->has_digest && l->has_manifest && l->has_root &&
              l->has_policy_hash && l->has_declared && l->has_pool && l->has_payouts && l->has_dust;
    struct rewarder_run_info *i = &run->info; /* not shared yet */
    i->state = REWARDER_SEALED;
    i->n = l->n;
    i->log_bytes = en->bytes;
    i->has_key = i->maybe_sent = true;
    i->run_key = l->run_key;
    i->inputs_cid = l->cid;
    i->digest = l->digest;
    i->manifest_digest = l->manifest;
    i->root = l->root;
    i->policy_hash = l->policy_hash;
    copy_text(i->policy_id, sizeof i->policy_id, l->policy_id);
    copy_text(i->funding, sizeof i->funding, l->funding);
    copy_text(i->asset, sizeof i->asset, l->asset);
    i->pool_fixed = true;
    i->pool = (struct rewarder_pool){
        .declared = l->declared.units, .from_balance = l->from_balance, .ledger_seq = l->ledger_seq};
    i->amount = l->pool.units;
    i->payouts = l->payouts.units;
    i->dust = l->dust.units;
    i->paid = l->paid;
    i->leaves = l->leaves;
    i->sealed_at_ms = l->sealed_at;
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
    const struct entry *en = arg;
    const struct rewarder_line *l = en->line;
    i->log_bytes += en->bytes;
    if (str_eq(l->op, STR("quarantined"))) {
        i->state = REWARDER_QUARANTINED;
        copy_text(i->cause, sizeof i->cause, l->kind);
        copy_text(i->reason, sizeof i->reason, l->reason);
        i->placed = l->placed.units;
        i->since_ms = l->at;
    } else if (str_eq(l->op, STR("released"))) {
        i->state = REWARDER_SEALED;
    } else if (str_eq(l->op, STR("settled"))) {
        i->state = REWARDER_SETTLED;
        i->settled_at_ms = l->settled_at;
        i->seq_first = l->seq_first;
        i->seq_last = l->seq_last;
        i->chunks_done = rewarder_chunk_count(i->leaves);
    } else if (str_eq(l->op, STR("swept"))) {
        i->swept = true;
    }
}

static enum err add_breach(struct rewarder *r, struct entry *en)
{
    struct rewarder_run *run = rewarder_run_create(en->line->tenant, en->line->epoch, false), *holder;
    if (!run)
        return ERR_NO_MEMORY;
    run->info.n = en->line->n;
    apply_line(&run->info, en);
    enum err e = rewarder_registry_claim(&r->registry, run, &holder);
    if (e == ERR_EXISTS)
        rewarder_run_unref(holder);
    rewarder_run_unref(run);
    return e == ERR_EXISTS ? ERR_CORRUPT : e;
}

static enum err replay_entry(struct replay *p, struct entry *en)
{
    struct rewarder *r = p->r;
    const struct rewarder_line *l = en->line;
    if (!rewarder_is_tenant(l->tenant) || !rewarder_is_epoch(l->epoch))
        return ERR_CORRUPT;
    if (l->n >= r->registry.next_n) /* also of a run of which only the end is left: no task runs yet */
        r->registry.next_n = l->n + 1;
    if (str_eq(l->op, STR("sealed")))
        return add_sealed(r, en);
    struct rewarder_run *run = rewarder_registry_find(&r->registry, l->tenant, l->epoch, false);
    if (!run && str_eq(l->op, STR("quarantined")))
        return add_breach(r, en); /* quarantined without ever having been sealed */
    p->dead_max += en->bytes;
    if (!run)
        return ERR_OK;
    if (str_eq(l->op, STR("discarded"))) {
        p->dead_max += run->info.log_bytes;
        rewarder_registry_forget(&r->registry, run);
    } else {
        if ((str_eq(l->op, STR("settled")) && !run->info.settled_at_ms) || str_eq(l->op, STR("swept")))
            p->dead_max -= en->bytes; /* these stay */
        rewarder_run_edit(&r->registry, run, apply_line, en);
        rewarder_run_set_refused(&r->registry, run, l->refused);
    }
    rewarder_run_unref(run);
    return ERR_OK;
}

static enum err replay_line(void *ctx, struct bytes text)
{
    struct replay *p = ctx;
    struct rewarder_line line;
    struct entry en = {&line, (uint32_t)text.n + 8};
    arena_reset(&p->arena);
    enum err e = rewarder_line_read(text, &p->arena, &line);
    return e == ERR_OK ? replay_entry(p, &en) : e;
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

static enum err replay_log(struct rewarder *r) RT_BLOCKS
{
    struct replay p = {.r = r};
    arena_init(&p.arena, ARENA_BYTES, ARENA_BYTES);
    enum err e = rewarder_log_replay(&r->files, replay_line, &p);
    arena_fini(&p.arena);
    if (e != ERR_OK)
        return e;
    r->files.log_alive = r->files.log_end > p.dead_max ? r->files.log_end - p.dead_max : 0;
    return rewarder_tidy_log(r);
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
    snprintf(i->funding, sizeof i->funding, "%s", v->policy->policy->funding);
    snprintf(i->asset, sizeof i->asset, "%s", v->policy->policy->asset);
    i->pool_fixed = true;
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
    const char *bad;
    enum err e = rewarder_view_open(
        &r->files, &(struct rewarder_view_spec){tenant, epoch, dry, .rebuild_tree = true}, &v, &bad);
    if (e == ERR_NOT_FOUND)
        return ERR_OK; /* never sealed: the next computation overwrites it */
    /* No line vouches for it, so it must have been us who sealed it: what is adopted is paid. */
    if (e == ERR_OK && !rewarder_keys_signed(&r->keys, v->kid, v->manifest_file.bytes, v->signature)) {
        rewarder_view_unref(v);
        e = ERR_ARTIFACT_CORRUPT;
        bad = "signature";
    }
    if (e == ERR_VERSION) { /* sealed, and not ours to compute over */
        obs_log(r->log, OBS_ERROR, "artifact.version", OBS_STR("tenant", tenant), OBS_STR("epoch", epoch),
                OBS_STR("file", bad), OBS_STR("detail", rewarder_view_words(e)), OBS_END);
        return e;
    }
    if (e != ERR_OK) {
        if (bad && r->metrics[REWARDER_M_corrupt]) /* `fsck` counts nothing */
            REWARDER_COUNT(r, corrupt, bad);
        obs_log(r->log, OBS_ERROR, "artifact.corrupt", OBS_STR("tenant", tenant), OBS_STR("epoch", epoch),
                OBS_STR("file", bad ? bad : ""), OBS_ERR(e), OBS_END);
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

struct meta {
    struct str tenant, epoch, dims;
    struct sha256 digest;
    uint64_t bytes, rows;
    int64_t stored_at;
    bool ndjson;
};

static const struct json_field meta_fields[] = {
    JSON_REQ(struct meta, digest, JSON_KIND_HASH),
    JSON_REQ(struct meta, tenant, JSON_KIND_STR, .max = REWARDER_NAME_MAX),
    JSON_REQ(struct meta, epoch, JSON_KIND_STR, .max = REWARDER_NAME_MAX),
    JSON_REQ(struct meta, dims, JSON_KIND_RAW),
    JSON_REQ(struct meta, bytes, JSON_KIND_U64),
    JSON_REQ(struct meta, rows, JSON_KIND_U64),
    JSON_DEF(struct meta, stored_at, JSON_KIND_I64),
    JSON_DEF(struct meta, ndjson, JSON_KIND_BOOL),
    JSON_END,
};

/* Facts that cannot be read are as good as none: the input is fetched or uploaded again. */
static enum err read_meta(struct rewarder *r, const struct sha256 *cid) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct rewarder_file file;
    struct rewarder_input in = {.cid = *cid};
    struct meta m = {.stored_at = 0};
    struct json_error why;
    struct arena arena;
    rewarder_path_input(&r->files, cid, ".meta", path);
    enum err e = rewarder_file_load(&r->files, path, &file);
    if (e != ERR_OK)
        return e;
    arena_init(&arena, META_BYTES, META_BYTES);
    bool ok =
        json_read_dto_lax(file.bytes, meta_fields, &m, &arena, &why) == ERR_OK && m.dims.n < sizeof in.dims;
    rewarder_file_unload(&file);
    if (ok) {
        in.digest = m.digest;
        copy_text(in.tenant, sizeof in.tenant, m.tenant);
        copy_text(in.epoch, sizeof in.epoch, m.epoch);
        copy_text(in.dims, sizeof in.dims, m.dims);
        in.bytes = m.bytes;
        in.rows = m.rows;
        in.stored_at_ms = m.stored_at;
        in.ndjson = m.ndjson;
    }
    arena_fini(&arena);
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
            e = rewarder_files_remove_run(&r->files, false, run->tenant, run->epoch);
    }
    return e;
}

enum err rewarder_recover(struct rewarder *r)
{
    char dir[STORE_PATH_MAX];
    enum err e = replay_log(r);
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
