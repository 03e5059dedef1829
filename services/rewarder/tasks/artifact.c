/*
 * The artifact writer: the only task that makes files durable. A run is sealed in this order:
 *
 *   1. payouts.bin, tree.bin, commitment, run.json, sigs/<kid>.sig written and flushed, their directories flushed
 *   2. seal.json, renamed into place and its directory flushed: from here on the run exists
 *   3. one line in registry.log
 *
 * A crash before 2 leaves rubbish that the next computation overwrites; between 2 and 3 the start adopts the run. Only
 * after 3 does the emitter learn that it may pay.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "services/rewarder/rewarder.h"
#include "services/rewarder/trace.h"
#include "store/file_replace.h"

enum { SWEEP_MS = 60000, FULL_LOOK_MS = 100 };

static void fsync_failed(struct rewarder *r, enum err e)
{
    rewarder_met(r, e);
    if (e == ERR_NO_SPACE)
        return;
    /* What a failed flush lost is unknown: never try again in this process. */
    if (!atomic_exchange(&r->seals_off, true))
        obs_log(r->log, OBS_ERROR, "seal.off", OBS_ERR(e), OBS_END);
}

static void give_receipt(struct rewarder_outcome *o, enum err e)
{
    if (o->receipt)
        rewarder_receipt_give(o->receipt, e == ERR_OK);
    o->receipt = NULL;
}

/* ---- runs ---- */

static enum err put(struct rewarder *r, const struct rewarder_run *run, const char *name,
                    struct bytes contents) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, name, path);
    return rewarder_files_write(&r->files, path, contents);
}

static enum err sign_file(struct rewarder *r, const struct rewarder_signer *signer,
                          const struct rewarder_run *run, const char *suffix, struct bytes text) RT_BLOCKS
{
    uint8_t sig[ED25519_SIGNATURE_BYTES];
    char name[64];
    enum err e = ed25519_sign(signer->key, text, sig);
    if (e != ERR_OK)
        return e;
    snprintf(name, sizeof name, "sigs/%s.%s", signer->public.kid, suffix);
    return put(r, run, name, bytes_of(sig, sizeof sig));
}

/* The names of the files; those of the directories were made durable with them. */
static enum err sync_dirs(struct rewarder *r, const struct rewarder_run *run) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "sigs", path);
    enum err e = store_disk_sync_dir(r->files.disk, path);
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "", path);
    return e == ERR_OK ? store_disk_sync_dir(r->files.disk, path) : e;
}

/* From here on the run does not exist. */
static enum err unseal(struct rewarder *r, const struct rewarder_run *run) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "seal.json", path);
    return store_file_remove(r->files.disk, path);
}

static enum err write_signed(struct rewarder *r, const struct rewarder_signer *signer,
                             const struct rewarder_outcome *o, const struct rewarder_run_info *i) RT_BLOCKS
{
    const struct rewarder_run *run = o->run;
    char path[STORE_PATH_MAX], storage[1024];
    struct buf seal;
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "sigs", path);
    enum err e = rewarder_files_mkdirs(&r->files, path);
    if (e == ERR_OK) /* a dry run replaces its predecessor: unseal first */
        e = unseal(r, run);
    rewarder_path_run(&r->files, run->dry, run->tenant, run->epoch, "seal.json", path);
    if (e == ERR_OK)
        e = put(r, run, "payouts.bin", bytes_of(o->payouts, o->payouts_n));
    if (e == ERR_OK)
        e = put(r, run, "tree.bin", bytes_of(o->tree, o->tree_n));
    if (e == ERR_OK)
        e = put(r, run, "commitment", buf_bytes(&o->commitment));
    if (e == ERR_OK)
        e = put(r, run, "run.json", buf_bytes(&o->manifest));
    if (e == ERR_OK)
        e = sign_file(r, signer, run, "sig", buf_bytes(&o->manifest));
    if (e == ERR_OK)
        e = sync_dirs(r, run);
    buf_init_fixed(&seal, storage, sizeof storage);
    rewarder_write_seal(run->corr_id, i, signer->public.kid, &seal);
    if (e == ERR_OK)
        e = seal.err == ERR_OK ? store_file_replace(r->files.disk, path, buf_bytes(&seal)) : seal.err;
    return e;
}

/* One signer for the whole run: its seal names the key that signed it. */
static enum err write_files(struct rewarder *r, const struct rewarder_outcome *o,
                            const struct rewarder_run_info *i) RT_BLOCKS
{
    struct rewarder_signer *signer = rewarder_keys_signer(&r->keys);
    enum err e = write_signed(r, signer, o, i);
    rewarder_signer_unref(signer);
    return e;
}

static void set_sealed(struct rewarder_run_info *i, void *arg)
{
    const struct rewarder_run_info *from = arg;
    i->manifest_digest = from->manifest_digest;
    i->root = from->root;
    i->amount = from->amount;
    i->payouts = from->payouts;
    i->dust = from->dust;
    i->paid = from->paid;
    i->leaves = from->leaves;
    i->cut = from->cut;
    i->cut_negative = from->cut_negative;
    i->sealed_at_ms = from->sealed_at_ms;
}

static void tell_emitter(struct rewarder_run *run, uintptr_t what)
{
    (void)!rt_oneshot_send(&run->sealed, (void *)what);
}

static enum err write_run(struct rewarder *r, struct rewarder_outcome *o,
                          struct rewarder_run_info *i) RT_BLOCKS
{
    struct rewarder_run *run = o->run;
    struct obs_span span;
    rewarder_trace_begin(r, run, "rewarder.write", &span);
    enum err e = atomic_load(&r->seals_off)                          ? ERR_SAFE_MODE
                 : o->no_room                                        ? ERR_NO_SPACE
                 : deadline_passed(deadline_at_ns(run->deadline_ns)) ? ERR_TIMEOUT
                                                                     : write_files(r, o, i);
    if (e == ERR_OK && !run->dry) {
        rewarder_note_sealed(run, i, &o->line);
        e = o->line.err == ERR_OK ? rewarder_log_append(&r->files, buf_bytes(&o->line)) : o->line.err;
        if (e == ERR_NO_SPACE) /* it is said to have failed: a start must not find it sealed, and pay it */
            (void)!unseal(r, run);
    }
    obs_span_u64(&span, "leaves", i->leaves);
    rewarder_trace_end(r, &span, e);
    return e;
}

static void seal_run(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder_run *run = o->run;
    int64_t began = os_now_ns();
    struct rewarder_run_info i = rewarder_run_read(&r->registry, run);
    const struct rewarder_result *res = &o->result;
    sha256_of(o->manifest.p, o->manifest.n, &i.manifest_digest);
    i.root = res->root.hash;
    i.amount = res->pool;
    i.payouts = res->payouts;
    i.dust = res->dust;
    i.paid = res->paid;
    i.leaves = res->leaves;
    i.cut = res->cut;
    i.cut_negative = res->cut_negative;
    i.sealed_at_ms = rewarder_now_ms(r);
    enum err e = write_run(r, o, &i);
    if (e == ERR_TIMEOUT || e == ERR_SAFE_MODE) {
        rewarder_run_fail(r, run, e, e == ERR_TIMEOUT ? "the deadline passed before it was sealed" : NULL,
                          NULL);
        tell_emitter(run, 2);
        return;
    }
    if (e != ERR_OK) {
        fsync_failed(r, e);
        rewarder_run_fail(r, run, ERR_UNAVAILABLE, "storage: the run could not be written", NULL);
        tell_emitter(run, 2);
        return;
    }
    rewarder_outcome_forget_files(o); /* the view maps the same bytes: not twice in memory at once */
    struct rewarder_view *v = NULL;
    const char *bad;
    if (rewarder_view_open(&r->files,
                           &(struct rewarder_view_spec){run->tenant, run->epoch, run->dry, false}, &v,
                           &bad) == ERR_OK) {
        rewarder_run_set_view(&r->registry, run, v);
        rewarder_view_unref(v);
    }
    e = rewarder_run_move(&r->registry, run, REWARDER_EV_SEAL, set_sealed, &i);
    CHECK(e == ERR_OK); /* computing: nobody else moves it */
    obs_hist_observe(OBS_HIST_OF(r->metrics[REWARDER_M_phase], "write"),
                     (double)(os_now_ns() - began) / 1e9);
    if (run->dry)
        REWARDER_COUNT(r, runs, "dry");
    rewarder_log_run(r, OBS_INFO, "run.sealed", run, NULL);
    tell_emitter(run, 1);
}

/* ---- breaches ---- */

struct breach {
    const char *kind;
    int64_t now_ms;
};

static void set_breach(struct rewarder_run_info *i, void *arg)
{
    const struct breach *b = arg;
    snprintf(i->cause, sizeof i->cause, "%s", b->kind);
    snprintf(i->reason, sizeof i->reason, "the computation broke an invariant; nothing was emitted");
    i->since_ms = b->now_ms;
}

static void record_breach(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder_run *run = o->run;
    char dir[STORE_PATH_MAX], path[STORE_PATH_MAX];
    bool overflow = memmem(o->line.p, o->line.n, "\"overflow\"", 10) != NULL;
    struct breach b = {overflow ? "overflow" : "conservation", rewarder_now_ms(r)};
    struct rewarder_run_info i = rewarder_run_read(&r->registry, run);
    snprintf(dir, sizeof dir, "%s/quarantine/%s/%s-%llu", r->files.root, run->tenant, run->epoch,
             (unsigned long long)i.n);
    enum err e = rewarder_files_mkdirs(&r->files, dir);
    store_path_join(path, dir, "report.json");
    if (e == ERR_OK)
        e = store_file_replace(r->files.disk, path, buf_bytes(&o->line));
    if (e == ERR_OK)
        e = rewarder_log_append(&r->files, buf_bytes(&o->line));
    if (e != ERR_OK)
        fsync_failed(r, e);
    (void)!rewarder_run_move(&r->registry, run, REWARDER_EV_BREACH, set_breach, &b);
    rewarder_count_quarantine(r, run);
    rewarder_log_run(r, OBS_ERROR, "run.quarantined", run, b.kind);
    tell_emitter(run, 2);
}

/* ---- inputs ---- */

static enum err store_input(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    char path[STORE_PATH_MAX], dir[STORE_PATH_MAX], storage[2048];
    struct store_file *f;
    struct buf meta;
    rewarder_path_input(&r->files, &o->input.cid, "", dir);
    enum err e = rewarder_files_mkdirs(&r->files, dir);
    if (e == ERR_OK)
        e = store_file_open(r->files.disk, o->spool, STORE_WRITE, &f);
    if (e != ERR_OK)
        return e;
    e = store_file_sync(f);
    store_file_close(f);
    rewarder_path_input(&r->files, &o->input.cid, ".raw", path);
    if (e == ERR_OK)
        e = store_disk_rename(r->files.disk, o->spool, path);
    if (e == ERR_OK)
        o->spool[0] = '\0';
    rewarder_path_input(&r->files, &o->input.cid, ".rows", path);
    if (e == ERR_OK)
        e = rewarder_files_write(&r->files, path, bytes_of(o->rows, o->rows_n));
    if (e == ERR_OK)
        e = store_disk_sync_dir(r->files.disk, dir);
    buf_init_fixed(&meta, storage, sizeof storage);
    rewarder_write_input(&o->input, &meta);
    CHECK(meta.err == ERR_OK && meta.n > 1);
    buf_truncate(&meta, meta.n - 1);
    buf_printf(&meta, ",\"stored_at\":%lld,\"ndjson\":%s}", (long long)o->input.stored_at_ms,
               o->input.ndjson ? "true" : "false");
    rewarder_path_input(&r->files, &o->input.cid, ".meta", path);
    return e == ERR_OK ? store_file_replace(r->files.disk, path, buf_bytes(&meta)) : e;
}

static void store_snapshot(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder_input known;
    char storage[2048], location[100], cid[SHA256_TEXT_CHARS];
    struct buf b;
    bool new = !rewarder_registry_input(&r->registry, &o->input.cid, &known);
    enum err e = ERR_OK;
    o->input.stored_at_ms = rewarder_now_ms(r);
    if (new) {
        e = atomic_load(&r->seals_off) ? ERR_SAFE_MODE : o->no_room ? ERR_NO_SPACE : store_input(r, o);
        if (e == ERR_OK)
            e = rewarder_registry_add_input(&r->registry, &o->input);
        obs_counter_add(obs_counter(r->metrics[REWARDER_M_input_bytes]), o->input.bytes);
    }
    if (o->spool[0])
        (void)!store_disk_unlink(r->files.disk, o->spool);
    if (e != ERR_OK && e != ERR_SAFE_MODE)
        fsync_failed(r, e);
    sha256_format(&o->input.cid, cid);
    obs_log(r->log, OBS_INFO, "inputs.stored", OBS_STR("cid", (const char *)cid),
            OBS_U64("rows", o->input.rows), OBS_BOOL("new", new), OBS_ERR(e), OBS_END);
    give_receipt(o, e);
    if (!o->rq)
        return;
    if (e != ERR_OK) {
        net_reply_problem(o->rq,
                          e == ERR_SAFE_MODE         ? e
                          : rewarder_refuses_more(r) ? ERR_BUSY
                                                     : ERR_UNAVAILABLE,
                          "the snapshot could not be stored");
    } else {
        buf_init_fixed(&b, storage, sizeof storage);
        rewarder_write_input(&o->input, &b);
        snprintf(location, sizeof location, "/rewarder/inputs/%s", cid);
        struct net_header list[] = {{STR("Location"), str_from_c(location)}};
        net_reply(o->rq, new ? 201 : 200, &(struct net_headers){.list = list, .count = 1}, buf_bytes(&b));
    }
    o->rq = NULL;
}

/* ---- notes ---- */

static enum err move_discarded(struct rewarder *r, const struct rewarder_run *run, uint64_t n) RT_BLOCKS
{
    static const char *const names[] = {"seal.json",  "run.json",   "payouts.bin",    "tree.bin",
                                        "commitment", "settle.log", "settlement.json"};
    char dir[STORE_PATH_MAX], from[STORE_PATH_MAX], to[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/quarantine/%s/%s-%llu", r->files.root, run->tenant, run->epoch,
             (unsigned long long)n);
    enum err e = rewarder_files_mkdirs(&r->files, dir);
    for (size_t i = 0; e == ERR_OK && i < sizeof names / sizeof *names; i++) {
        rewarder_path_run(&r->files, false, run->tenant, run->epoch, names[i], from);
        store_path_join(to, dir, names[i]);
        e = store_disk_rename(r->files.disk, from, to);
        if (e == ERR_NOT_FOUND)
            e = ERR_OK;
    }
    if (e == ERR_OK)
        e = store_disk_sync_dir(r->files.disk, dir);
    if (e == ERR_OK) /* of what is gone; the next run of the epoch may be signed with another key */
        e = rewarder_files_remove_sigs(&r->files, false, run->tenant, run->epoch);
    rewarder_path_run(&r->files, false, run->tenant, run->epoch, "", from);
    if (e == ERR_OK)
        e = store_disk_sync_dir(r->files.disk, from);
    return e == ERR_NOT_FOUND ? ERR_OK : e; /* a breach never had a directory */
}

static enum err write_note(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    enum err e = o->settlement.err;
    /* Files first: a run that is discarded by the log but still sealed on the disk would be adopted, and paid. */
    if (e == ERR_OK && o->discard)
        e = move_discarded(r, o->run, rewarder_run_read(&r->registry, o->run).n);
    if (e == ERR_OK && o->settlement.n) {
        struct rewarder_signer *signer = rewarder_keys_signer(&r->keys);
        e = sign_file(r, signer, o->run, "settlement.sig", buf_bytes(&o->settlement));
        rewarder_signer_unref(signer);
        rewarder_path_run(&r->files, false, o->run->tenant, o->run->epoch, "settlement.json", path);
        if (e == ERR_OK)
            e = store_file_replace(r->files.disk, path, buf_bytes(&o->settlement));
    }
    if (e == ERR_OK)
        e = o->line.err == ERR_OK ? rewarder_log_append(&r->files, buf_bytes(&o->line)) : o->line.err;
    if (e == ERR_OK && o->discard)
        rewarder_registry_forget(&r->registry, o->run);
    return e;
}

/* ---- runs the emitter could not be told of ---- */

static void set_unannounced(struct rewarder_run_info *i, void *arg)
{
    snprintf(i->cause, sizeof i->cause, "emit_unavailable");
    snprintf(i->reason, sizeof i->reason, "the emitter did not take the run in time");
    i->since_ms = *(const int64_t *)arg;
}

/* `results` is first in, first out: the run itself was handled before. */
static void quarantine_unannounced(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    int64_t now_ms = rewarder_now_ms(r);
    struct rewarder_run_info i = rewarder_run_read(&r->registry, o->run);
    if (rewarder_run_move(&r->registry, o->run, REWARDER_EV_QUARANTINE, set_unannounced, &now_ms) != ERR_OK)
        return; /* it was not sealed */
    rewarder_note_quarantined(
        o->run,
        &(struct rewarder_quarantine){.n = i.n,
                                      .kind = "emit_unavailable",
                                      .reason = "the emitter did not take the run in time",
                                      .now_ms = now_ms},
        &o->line);
    enum err e = o->line.err == ERR_OK ? rewarder_log_append(&r->files, buf_bytes(&o->line)) : o->line.err;
    if (e != ERR_OK)
        fsync_failed(r, e);
    rewarder_count_quarantine(r, o->run);
    rewarder_log_run(r, OBS_ERROR, "run.quarantined", o->run, "emit_unavailable");
}

/* ---- shadow runs ---- */

static enum err write_shadow(struct rewarder *r, struct rewarder_shadow *s, struct buf *body) RT_BLOCKS
{
    char path[STORE_PATH_MAX], meta[160];
    rewarder_shadow_write(s, true, body);
    rewarder_path_shadow(&r->files, &s->id, "", path);
    enum err e = body->err == ERR_OK ? rewarder_files_mkdirs(&r->files, path) : body->err;
    rewarder_path_shadow(&r->files, &s->id, "diff.csv", path);
    if (e == ERR_OK)
        e = rewarder_files_write(&r->files, path, buf_bytes(&s->csv));
    rewarder_path_shadow(&r->files, &s->id, "shadow.json", path);
    if (e == ERR_OK)
        e = rewarder_files_write(&r->files, path, buf_bytes(body));
    int n = snprintf(meta, sizeof meta, "{\"made_at\":%lld,\"tenant\":\"%s\"}", (long long)s->made_ms,
                     s->tenant);
    rewarder_path_shadow(&r->files, &s->id, "meta.json", path);
    return e == ERR_OK ? store_file_replace(r->files.disk, path, bytes_of(meta, (size_t)n)) : e;
}

static void keep_shadow(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    struct rewarder_shadow *s = o->shadow;
    struct buf body;
    buf_init(&body, 1 << 20);
    enum err e = atomic_load(&r->seals_off) ? ERR_SAFE_MODE
                 : o->no_room               ? ERR_NO_SPACE
                                            : write_shadow(r, s, &body);
    buf_fini(&body);
    if (e != ERR_OK && e != ERR_SAFE_MODE)
        fsync_failed(r, e);
    s->failure = e;
    atomic_store_explicit(&s->state, e == ERR_OK ? REWARDER_SHADOW_DONE : REWARDER_SHADOW_FAILED,
                          memory_order_release);
}

static void take_note(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    enum err e = write_note(r, o);
    if (e != ERR_OK)
        fsync_failed(r, e);
    give_receipt(o, e);
    if (o->rq) {
        if (e == ERR_OK)
            rewarder_reply_run(r, o->rq, o->status, o->run);
        else
            net_reply_problem(o->rq, ERR_UNAVAILABLE, "it could not be written");
    }
    o->rq = NULL;
}

/* What a result adds to the files. A note is a line: room for it is kept. */
static uint64_t bytes_of_outcome(const struct rewarder_outcome *o)
{
    uint64_t shadow = o->shadow ? o->shadow->csv.n + o->shadow->top.n : 0;
    return o->payouts_n + o->tree_n + o->manifest.n + o->commitment.n + o->rows_n + shadow;
}

static void handle(struct rewarder *r, struct rewarder_outcome *o) RT_BLOCKS
{
    o->no_room = false;
    if (r->memory && o->kind != REWARDER_OUT_NOTE) {
        rewarder_sweep_for_room(r, bytes_of_outcome(o));
        o->no_room = !rewarder_has_room(r, bytes_of_outcome(o));
    }
    switch (o->kind) {
    case REWARDER_OUT_RUN:
        seal_run(r, o);
        break;
    case REWARDER_OUT_SNAPSHOT:
        store_snapshot(r, o);
        break;
    case REWARDER_OUT_BREACH:
        record_breach(r, o);
        break;
    case REWARDER_OUT_NOTE:
        take_note(r, o);
        break;
    case REWARDER_OUT_UNANNOUNCED:
        quarantine_unannounced(r, o);
        break;
    case REWARDER_OUT_SHADOW:
        keep_shadow(r, o);
        break;
    }
    rewarder_outcome_destroy(r, o);
    if (svc_draining(r->svc))
        atomic_fetch_add_explicit(&r->drain.written, 1, memory_order_relaxed);
    enum err e = rewarder_tidy_log(r);
    if (e != ERR_OK)
        fsync_failed(r, e);
}

/* One item of a queue. *over: it is closed and empty. */
static bool handle_next(struct rewarder *r, struct rt_chan *queue, bool *over) RT_BLOCKS
{
    void *item;
    enum err e = rt_chan_try_recv(queue, &item);
    *over = e == ERR_CLOSED;
    if (e == ERR_OK)
        handle(r, item);
    return e == ERR_OK;
}

/* While everything is refused nothing new asks for room: what is settled meanwhile must make it. */
static struct deadline next_look(struct rewarder *r, int64_t sweep_ns)
{
    struct deadline sweep = deadline_at_ns(sweep_ns);
    return rewarder_refuses_more(r) ? deadline_min(sweep, deadline_in_ms(FULL_LOOK_MS)) : sweep;
}

/* Two queues, one reader: `notes` are few and small, so they are looked at first. */
enum err rewarder_artifact_run(struct rt_task *self, void *arg)
{
    struct rewarder *r = arg;
    bool results_over = false, notes_over = false;
    int64_t sweep_ns = deadline_in_ms(SWEEP_MS).at_ns;
    while (!results_over || !notes_over) {
        uint64_t noted = rt_bell_note(&r->artifact_bell);
        rt_task_beat(self);
        if (rt_task_canceled(self))
            return ERR_CANCELED;
        if (handle_next(r, r->notes, &notes_over))
            continue;
        if (!handle_next(r, r->results, &results_over) && !(results_over && notes_over) &&
            rt_bell_wait(&r->artifact_bell, noted,
                         results_over ? deadline_never() : next_look(r, sweep_ns)) == ERR_CANCELED)
            return ERR_CANCELED;
        if (rewarder_refuses_more(r))
            rewarder_sweep_for_room(r, 0);
        if (!results_over && os_now_ns() >= sweep_ns) {
            rewarder_sweep(r, rewarder_now_ms(r));
            sweep_ns = deadline_in_ms(SWEEP_MS).at_ns;
        }
    }
    return ERR_OK;
}
