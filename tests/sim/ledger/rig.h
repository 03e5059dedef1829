/*
 * The ledger without threads: jobs go through validation, round and commit one after the other, on whatever disk and clock the
 * test brings. The same code as in the service, minus queues and doors.
 */
#ifndef RON_TESTS_SIM_LEDGER_RIG_H
#define RON_TESTS_SIM_LEDGER_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "rt/task.h"
#include "services/ledger/checkpoint.h"
#include "services/ledger/ledger.h"
#include "services/ledger/reads.h"
#include "store/disk_faulty.h"
#include "store/file_replace.h"

struct rig {
    struct store_disk *disk;
    struct ledger *l;
    struct obs_metrics *metrics; /* NULL: nothing is counted */
    int64_t mono_ns, wall_ms;
    struct clock clock;
    struct ledger_settings set;
};

static int64_t rig_mono(void *ctx)
{
    return ((struct rig *)ctx)->mono_ns;
}

static int64_t rig_wall(void *ctx)
{
    return ((struct rig *)ctx)->wall_ms;
}

/* One unit's outcome, copied out of the job. */
struct rig_outcome {
    bool answered;
    enum err err; /* of the job */
    enum ledger_verdict verdict;
    enum err reason;
    uint64_t seq, tree_size;
    struct sha256 root;
};

static void rig_answer(struct ledger_job *job)
{
    struct rig_outcome *out = job->door;
    for (uint32_t i = 0; i < job->n_units; i++) {
        const struct ledger_job_unit *u = &job->units[i];
        out[i] = (struct rig_outcome){true,   job->err,       u->verdict, u->reject.reason,
                                      u->seq, job->tree_size, job->root};
    }
    if (job->n_units == 0)
        out[0] = (struct rig_outcome){.answered = true, .err = job->err};
    ledger_job_free(job);
}

static const struct ledger_job_ops rig_ops = {NULL, rig_answer};

static inline void rig_init(struct rig *r, struct store_disk *disk)
{
    memset(r, 0, sizeof *r);
    r->disk = disk;
    r->mono_ns = 1000000000;
    r->wall_ms = 1760000000000;
    r->clock = (struct clock){.mono_ns = rig_mono, .wall_ms = rig_wall, .ctx = r};
    ledger_settings_default(&r->set);
    snprintf(r->set.dir, sizeof r->set.dir, "led");
    snprintf(r->set.key_file, sizeof r->set.key_file, "key");
    snprintf(r->set.origin, sizeof r->set.origin, "sim/ledger");
    r->set.segment_bytes = 256 << 10;
    r->set.commit_max_bytes = 32 << 10;
    r->set.commit_max_entries = 1024;
    r->set.checkpoint_entries = 256;
    r->set.merge_slice_bytes = 4096;
    r->set.max_jobs = 64;
}

static inline enum err rig_open(struct rig *r) RT_BLOCKS
{
    struct ledger_deps deps = {.disk = r->disk, .clock = &r->clock, .metrics = r->metrics};
    enum err err = ledger_open(&r->set, &deps, &r->l);
    if (err == ERR_OK)
        err = ledger_queues_create(r->l);
    return err;
}

static inline struct ledger_job *rig_job(struct rig *r, const struct core_unit *units, uint32_t n,
                                         struct rig_outcome *out)
{
    struct ledger_job *job = ledger_job_take(&r->l->jobs, r->l);
    CHECK(job != NULL);
    job->ops = &rig_ops;
    job->door = out;
    job->who = (struct core_caller){STR("k1"), {1, 2, 3, 4, 5, 6, 7, 8}};
    job->by = deadline_never();
    job->units = arena_array(&job->arena, n, sizeof *job->units);
    job->n_units = n;
    for (uint32_t i = 0; i < n; i++) {
        job->units[i].u = units[i];
        job->n_entries += units[i].n;
    }
    return job;
}

/* Everything that is complete goes to disk, without merging; ERR_OK also when nothing was. */
static inline enum err rig_write(struct rig *r) RT_BLOCKS
{
    void *log;
    enum err err = ERR_OK;
    while (err == ERR_OK && rt_chan_try_recv(r->l->gen_tx, &log) == ERR_OK) {
        err = ledger_checkpoint_write(r->l, log);
        if (err != ERR_OK)
            ledger_gen_log_free(log);
    }
    return err;
}

/* The same, and every merge that is due. */
static inline enum err rig_checkpoint(struct rig *r) RT_BLOCKS
{
    enum err err = rig_write(r);
    return err == ERR_OK ? ledger_checkpoint_merge_all(r->l) : err;
}

/* What l->round holds, validated, as sequencer and committer would. */
static inline void rig_judge(struct rig *r) RT_BLOCKS
{
    struct ledger *l = r->l;
    struct ledger_round *round = &l->round;
    ledger_sequence(l, round, l->set.q_commit);
    for (uint32_t i = 0; i < round->n_refused; i++)
        ledger_answer(l, round->refused[i]);
    for (uint32_t at = 0; at < round->n_out;) {
        struct ledger_group_size size = {0};
        uint32_t k = 0;
        while (at + k < round->n_out && ledger_group_takes(l, &size, round->out[at + k]))
            k++;
        enum err err = ledger_commit(l, &round->out[at], k);
        for (uint32_t i = 0; i < k; i++) {
            struct ledger_job *job = round->out[at + i];
            if (err != ERR_OK)
                job->err =
                    job->new_entries > 0 && err != ERR_SAFE_MODE ? ERR_OUTCOME_UNKNOWN : ERR_SAFE_MODE;
            ledger_answer(l, job);
        }
        at += k;
    }
}

/* One round of jobs, committed as the committer would. */
static inline void rig_round(struct rig *r, struct ledger_job *const *jobs, uint32_t n) RT_BLOCKS
{
    struct ledger *l = r->l;
    l->round.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ledger_prevalidate(l, jobs[i]))
            l->round.jobs[l->round.n++] = jobs[i];
        else
            ledger_answer(l, jobs[i]);
    }
    rig_judge(r);
}

static inline void rig_one(struct rig *r, const struct core_unit *u, struct rig_outcome *out) RT_BLOCKS
{
    *out = (struct rig_outcome){0};
    struct ledger_job *job = rig_job(r, u, 1, out);
    rig_round(r, &job, 1);
}

/* The i-th of a row of mints, each for an account of its own. */
static inline struct rig_outcome rig_mint(struct rig *r, unsigned i) RT_BLOCKS
{
    char id[16];
    struct rig_outcome out;
    snprintf(id, sizeof id, "m%u", i);
    struct core_entry e = {.id = str_from_c(id),
                           .ts = 1 + i,
                           .kind = CORE_MINT,
                           .account = str_from_c(id),
                           .asset = STR("ron"),
                           .amount = {1}};
    struct core_unit u = {str_from_c(id), {NULL, 0}, 0, &e, 1};
    rig_one(r, &u, &out);
    return out;
}

/* Removes what is derived from the journal. */
struct rig_names {
    char v[256][40];
    size_t n;
};

static enum err rig_name(void *ctx, const char *name)
{
    struct rig_names *names = ctx;
    if (names->n < 256)
        snprintf(names->v[names->n++], 40, "%s", name);
    return ERR_OK;
}

static inline void rig_forget_derived(struct rig *r) RT_BLOCKS
{
    const char *folders[] = {"led/tree", "led/index", "led/state", "led/ckpt"};
    for (size_t i = 0; i < 4; i++) {
        struct rig_names names = {.n = 0};
        char path[STORE_PATH_MAX];
        CHECK(store_disk_list(r->disk, folders[i], rig_name, &names) == ERR_OK);
        for (size_t k = 0; k < names.n; k++) {
            store_path_join(path, folders[i], names.v[k]);
            CHECK(store_disk_unlink(r->disk, path) == ERR_OK);
        }
    }
    CHECK(store_disk_unlink(r->disk, "led/groups") == ERR_OK);
}

#endif
