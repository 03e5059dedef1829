/*
 * The sweeper: what is kept for a time only. It runs in the artifact task, so nothing else writes meanwhile.
 *
 *   settled runs       after retain_runs: first the line `swept` in registry.log, then the files. The line keeps the
 *                      epoch claimed for ever; a crash in between leaves files that the next start removes.
 *   inputs             after retain_inputs, when no live run refers to them: out of the index, then .meta (the proof
 *                      that they are there), then the rest
 *   dry, shadow runs   after a day
 *   failures           are forgotten after a day
 *
 * In amnesia mode the oldest settled runs also go when memory runs short, with the inputs that were stored before they ended.
 */
#include <stdio.h>

#include "base/hex.h"
#include "services/rewarder/rewarder.h"
#include "store/file_replace.h"

enum { AT_ONCE = 64 };

struct age {
    int64_t runs_before_ms, rest_before_ms;
};

static bool is_settled_long_ago(const struct rewarder_run *run, const void *arg)
{
    const struct age *a = arg;
    const struct rewarder_run_info *i = &run->info;
    return !run->dry && i->state == REWARDER_SETTLED && !i->swept && i->settled_at_ms < a->runs_before_ms;
}

static bool is_old_dry_run(const struct rewarder_run *run, const void *arg)
{
    const struct age *a = arg;
    return run->dry && run->info.state == REWARDER_SEALED && run->info.sealed_at_ms < a->rest_before_ms;
}

static bool is_old_failure(const struct rewarder_run *run, const void *arg)
{
    const struct age *a = arg;
    return run->info.state == REWARDER_FAILED && run->info.since_ms < a->rest_before_ms;
}

static void set_swept(struct rewarder_run_info *i, void *arg)
{
    (void)arg;
    i->swept = true;
}

static void remove_files(struct rewarder *r, struct rewarder_run *run) RT_BLOCKS
{
    enum err e = rewarder_files_remove_run(&r->files, run->dry, run->tenant, run->epoch);
    if (e != ERR_OK)
        rewarder_log_run(r, OBS_WARN, "run.swept", run, err_code(e));
}

static void sweep_run(struct rewarder *r, struct rewarder_run *run) RT_BLOCKS
{
    char storage[512];
    struct buf line;
    buf_init_fixed(&line, storage, sizeof storage);
    rewarder_note_swept(run, rewarder_run_read(&r->registry, run).n, &line);
    if (line.err != ERR_OK || rewarder_log_append(&r->files, buf_bytes(&line)) != ERR_OK)
        return; /* it stays, and is tried again */
    rewarder_run_edit(&r->registry, run, set_swept, NULL);
    rewarder_run_set_view(&r->registry, run, NULL);
    remove_files(r, run);
    REWARDER_COUNT(r, swept, "run");
    rewarder_log_run(r, OBS_INFO, "run.swept", run, NULL);
}

static void forget_run(struct rewarder *r, struct rewarder_run *run) RT_BLOCKS
{
    if (run->dry) {
        remove_files(r, run);
        REWARDER_COUNT(r, swept, "dry");
    }
    rewarder_registry_forget(&r->registry, run);
}

static void each_run(struct rewarder *r, const struct age *age,
                     bool (*wanted)(const struct rewarder_run *, const void *),
                     void (*act)(struct rewarder *, struct rewarder_run *)) RT_BLOCKS
{
    struct rewarder_run *runs[AT_ONCE];
    size_t n = rewarder_registry_pick(&r->registry, wanted, age, runs, AT_ONCE);
    for (size_t i = 0; i < n; i++) {
        act(r, runs[i]);
        rewarder_run_unref(runs[i]);
    }
}

static void sweep_inputs(struct rewarder *r, int64_t before_ms) RT_BLOCKS
{
    static const char *const parts[] = {".meta", ".raw", ".rows"};
    struct rewarder_input in;
    char path[STORE_PATH_MAX], cid[SHA256_TEXT_CHARS];
    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (!rewarder_registry_take_old_input(&r->registry, before_ms, &in))
            return;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            rewarder_path_input(&r->files, &in.cid, parts[k], path);
            (void)!(k == 0 ? store_file_remove(r->files.disk, path)
                           : store_disk_unlink(r->files.disk, path));
        }
        sha256_format(&in.cid, cid);
        REWARDER_COUNT(r, swept, "inputs");
        obs_log(r->log, OBS_INFO, "inputs.swept", OBS_STR("cid", (const char *)cid), OBS_END);
    }
}

static void sweep_shadows(struct rewarder *r, int64_t before_ms) RT_BLOCKS
{
    static const char *const names[] = {"meta.json", "shadow.json", "diff.csv"};
    struct rewarder_shadow *s;
    char path[STORE_PATH_MAX];
    while ((s = rewarder_shadow_take_old(r, before_ms))) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            rewarder_path_shadow(&r->files, &s->id, names[k], path);
            (void)!(k == 0 ? store_file_remove(r->files.disk, path)
                           : store_disk_unlink(r->files.disk, path));
        }
        REWARDER_COUNT(r, swept, "shadow");
        rewarder_shadow_unref(s);
    }
}

static bool is_settled(const struct rewarder_run *run, const void *arg)
{
    (void)arg;
    return !run->dry && run->info.state == REWARDER_SETTLED && !run->info.swept;
}

void rewarder_sweep_for_room(struct rewarder *r, uint64_t bytes)
{
    struct rewarder_run *oldest;
    while (r->memory && (!rewarder_has_room(r, bytes) || !rewarder_is_roomy(r)) &&
           rewarder_registry_pick(&r->registry, is_settled, NULL, &oldest, 1) == 1) {
        int64_t settled_ms = rewarder_run_read(&r->registry, oldest).settled_at_ms;
        sweep_run(r, oldest);
        bool gone = rewarder_run_read(&r->registry, oldest).swept;
        rewarder_run_unref(oldest);
        if (!gone)
            return; /* not even the line could be written */
        sweep_inputs(r, settled_ms);
    }
}

void rewarder_sweep(struct rewarder *r, int64_t now_ms)
{
    const struct rewarder_config *cfg = rewarder_config(r);
    struct age age = {.runs_before_ms = now_ms - cfg->retain_runs,
                      .rest_before_ms = now_ms - REWARDER_REMEMBER_MS};
    if (cfg->retain_runs)
        each_run(r, &age, is_settled_long_ago, sweep_run);
    each_run(r, &age, is_old_dry_run, forget_run);
    each_run(r, &age, is_old_failure, forget_run);
    if (cfg->retain_inputs)
        sweep_inputs(r, now_ms - cfg->retain_inputs);
    sweep_shadows(r, age.rest_before_ms);
}
