/*
 * Opening: lock, superblock, key, the newest good checkpoint, then every later frame through the same core that serves
 * requests. What the log says is recomputed, not believed: fingerprints, leaves, roots, seqs, and all rules of the domain.
 *
 * Ends Running, or in safe mode with the reason and the first bad byte; reads are served either way. A torn tail was never
 * acknowledged and is wiped by the journal; anything else that does not fit is corruption and is never repaired here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "services/ledger/checkpoint.h"
#include "services/ledger/files.h"
#include "services/ledger/policy.h"
#include "services/ledger/reads.h"
#include "services/ledger/replay.h"
#include "services/ledger/replica.h"
#include "store/file_replace.h"

static const struct obs_metric_def metric_rows[] = {
#include "obs/metrics_rows.h"
#include "services/ledger/metrics.def"
#include "obs/metrics_end.h"
};

static const char *const folders[] = {"journal", "tree", "index", "state", "ckpt"};

/* ---- opening ---- */

static enum err make_folders(struct ledger *l) RT_BLOCKS
{
    if (l->set.amnesia)
        return ERR_OK;
    char path[STORE_PATH_MAX];
    enum err err = store_disk_mkdirs(l->deps.disk, l->set.dir);
    for (size_t i = 0; err == ERR_OK && i < sizeof folders / sizeof folders[0]; i++) {
        store_path_join(path, l->set.dir, folders[i]);
        err = store_disk_mkdirs(l->deps.disk, path);
    }
    store_path_join(path, l->set.dir, "LOCK");
    return err == ERR_OK ? store_disk_lock(l->deps.disk, path, &l->lock_file) : err;
}

/* The last frame of the journal, for those who compare it with another copy. */
static enum err note_tail(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct ledger_replica_tail *t = ctx;
    *t = (struct ledger_replica_tail){at, f->group_no, f->prev_root, f->new_root};
    return ERR_OK;
}

static void sealed(void *ctx, const struct store_segment *segment)
{
    struct ledger *l = ctx;
    obs_log(l->deps.log, OBS_INFO, "segment_sealed", OBS_U64("segment", segment->segment_no), OBS_END);
}

static enum err open_journal(struct ledger *l, const struct ledger_checkpoint *ck, bool accept_damage,
                             struct ledger_replica_tail *tail,
                             struct store_journal_report *report) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    uint32_t begun = 0;
    enum err err = ledger_begun_read(l, &begun);
    if (err != ERR_OK)
        return err;
    store_path_join(dir, l->set.dir, "journal");
    struct store_journal_config cfg = {
        .disk = l->deps.disk,
        .dir = dir,
        .layout = {.align = l->set.align, .segment_bytes = l->set.segment_bytes},
        .epoch = l->replica != NULL && l->replica->lease.epoch > 1 ? l->replica->lease.epoch : 1,
        .unflushed = l->replica != NULL && !l->set.replica_local,
        .frame_bytes_max = l->set.commit_max_bytes + 2 * 4096,
        .direct = l->set.direct_io,
        .accept_damage = accept_damage,
        .clock = l->deps.clock,
        .first_segment =
            1, /* none is ever removed, only packed; a late checkpoint may lie in a packed one */
        .last_segment = begun,
        .packed_pread = l->packed_pread,
        .packed_ctx = l,
        .on_sealed = sealed,
        .sealed_ctx = l,
    };
    memcpy(cfg.stream_id, l->ledger_id, 16);
    sha256_of("", 0, &cfg.resume.root); /* what the first group continues: the empty tree */
    if (ck->there)
        cfg.resume = (struct store_resume){
            {ck->end.segment, ck->end.offset}, ck->group_no + 1, ck->entries + 1, ck->root};
    if (l->m[0] != NULL) {
        cfg.flush_seconds = obs_hist(l->m[LEDGER_M_journal_flush]);
        cfg.bytes_total = obs_counter(l->m[LEDGER_M_journal_bytes]);
        cfg.flush_fail_total = obs_counter(l->m[LEDGER_M_journal_flush_fail]);
        cfg.torn_bytes_total = obs_counter(l->m[LEDGER_M_journal_torn_bytes]);
    }
    if (l->set.amnesia)
        return store_sink_memory(&cfg, 0, &l->sink);
    return store_sink_local(&cfg, note_tail, tail, report, &l->sink);
}

static void note_damage(struct ledger *l, const struct store_journal_report *rep)
{
    if (ledger_safe_cause(l) != CAUSE_NONE)
        return; /* what was found first is what is to be mended */
    snprintf(l->bad_file, sizeof l->bad_file, "%s", rep->bad_file);
    snprintf(l->bad_reason, sizeof l->bad_reason, "%s", rep->bad_reason == NULL ? "" : rep->bad_reason);
    l->bad_offset = rep->bad_offset;
    if (rep->group_missing && l->m[LEDGER_M_seq_gaps] != NULL)
        obs_counter_inc(obs_counter(l->m[LEDGER_M_seq_gaps]));
    char text[256];
    snprintf(text, sizeof text, "%s byte %llu: %s", l->bad_file, (unsigned long long)l->bad_offset,
             l->bad_reason);
    ledger_enter_safe_mode(l, CAUSE_CORRUPT, text);
}

static enum err replay_all(struct ledger *l, const struct ledger_checkpoint *ck) RT_BLOCKS
{
    struct ledger_replay r;
    ledger_replay_init(&r, l);
    enum err err = store_sink_replay(l->sink, ck->there ? ck->group_no + 1 : 1, ledger_replay_frame, &r);
    ledger_replay_fini(&r);
    if (l->m[LEDGER_M_replay_entries] != NULL)
        obs_counter_add(obs_counter(l->m[LEDGER_M_replay_entries]), r.entries);
    if (err == ERR_CORRUPT) {
        struct store_journal_report rep = {.bad_reason = r.why};
        snprintf(rep.bad_file, sizeof rep.bad_file, "group %llu", (unsigned long long)l->next_group);
        note_damage(l, &rep);
        return ERR_OK;
    }
    return err;
}

/*
 * Whether the last frame that the checkpoint covers was ever written in this journal: an older copy of a segment that was put back has
 * zeros there. What is not zero, or cannot be read, is judged by replaying.
 */
static void check_reach(struct ledger *l, const struct ledger_checkpoint *ck) RT_BLOCKS
{
    struct ledger_group_row g;
    uint8_t header[STORE_FRAME_HEADER];
    if (!ck->there || ledger_safe_cause(l) != CAUSE_NONE)
        return;
    enum err err = ledger_group_at(l, ck->group_no - 1, &g);
    if (err == ERR_OK)
        err = store_journal_pread(l->sink->journal, (struct store_pos){g.segment, g.offset}, header,
                                  sizeof header);
    if (err == ERR_OK && store_is_zero(header, sizeof header))
        ledger_enter_safe_mode(l, CAUSE_BEHIND_CHECKPOINT, "the journal ends before the checkpoint");
}

static enum err check_guards(struct ledger *l) RT_BLOCKS
{
    struct ledger_clean clean = {0};
    struct ledger_head head;
    enum err err = ledger_clean_read(l, &clean);
    ledger_head_read(l, &head);
    if (err != ERR_OK)
        return err;
    if (clean.there &&
        (clean.seq != head.seq || clean.group_no != head.group_no || !sha256_eq(&clean.root, &head.root)))
        ledger_enter_safe_mode(l, CAUSE_CLEAN_MISMATCH, "the journal is not the one that was closed");
    if (ledger_safe_file_there(l))
        ledger_enter_safe_mode(l, CAUSE_OPERATOR, "SAFE_MODE");
    return ledger_safe_cause(l) == CAUSE_NONE ? ledger_clean_remove(l) : ERR_OK;
}

/* A last frame that the others do not have goes aside; then the journal is opened once more, without it. */
static enum err compare_copies(struct ledger *l, const struct ledger_checkpoint *ck,
                               struct ledger_replica_tail *tail, struct store_journal_report *rep) RT_BLOCKS
{
    struct ledger_clean clean = {0};
    enum err err = ledger_clean_read(l, &clean);
    if (err == ERR_OK)
        err = ledger_replica_reconcile(l, tail, clean.there);
    if (err != ERR_TORN)
        return err;
    store_sink_close(l->sink);
    l->sink = NULL;
    *tail = (struct ledger_replica_tail){0};
    return open_journal(l, ck, false, tail, rep);
}

static void head_from_checkpoint(struct ledger *l, const struct ledger_checkpoint *ck)
{
    struct ledger_head head = {0};
    ledger_frontier_root(&l->frontier, &head.root);
    if (ck->there)
        head = (struct ledger_head){ck->entries, ck->group_no, ck->ledger_ms, ck->root};
    l->next_group = head.group_no + 1;
    l->last_root = head.root;
    atomic_store(&l->checkpoint_seq, head.seq);
    atomic_store(&l->checkpoint_segment, ck->there ? ck->end.segment : 0);
    ledger_head_publish(l, &head);
}

static enum err open_in(struct ledger *l) RT_BLOCKS
{
    struct ledger_superblock sb;
    struct ledger_checkpoint ck;
    struct store_journal_report rep = {0};
    const struct clock *c = l->deps.clock;
    int64_t began = c->mono_ns(c->ctx);
    enum err err = make_folders(l);
    if (err == ERR_OK && l->set.replica_dsn[0] != 0)
        err = ledger_replica_connect(l);
    if (err == ERR_OK)
        err = ledger_superblock_open(l, &sb);
    if (err != ERR_OK)
        return err;
    memcpy(l->ledger_id, sb.ledger_id, 16);
    l->set.align = sb.align;
    l->set.segment_bytes = sb.segment_bytes;
    snprintf(l->set.origin, sizeof l->set.origin, "%s", sb.origin);
    err = ledger_key_open(l, sb.origin);
    if (err == ERR_OK && l->replica != NULL)
        err = ledger_replica_found(l);
    if (err == ERR_OK)
        err = ledger_checkpoint_load(l, &ck);
    if (err != ERR_OK)
        return err;
    head_from_checkpoint(l, &ck);
    struct ledger_replica_tail tail = {0};
    err = open_journal(l, &ck, false, &tail, &rep);
    if (err == ERR_CORRUPT) { /* keep what can be read readable */
        note_damage(l, &rep);
        err = open_journal(l, &ck, true, &tail, &rep);
    }
    if (err == ERR_OK && l->replica != NULL && ledger_safe_cause(l) == CAUSE_NONE)
        err = compare_copies(l, &ck, &tail, &rep);
    if (err == ERR_OK && l->replica != NULL)
        err = ledger_replica_tee(l);
    if (err != ERR_OK)
        return err;
    l->torn_bytes = rep.torn_bytes;
    if (rep.torn_bytes > 0)
        obs_log(l->deps.log, OBS_WARN, "torn_tail", OBS_U64("bytes", rep.torn_bytes), OBS_END);
    check_reach(l, &ck);
    err = replay_all(l, &ck);
    if (err == ERR_OK)
        err = check_guards(l);
    if (err == ERR_OK && ledger_safe_cause(l) == CAUSE_NONE && store_sink_prepare(l->sink) == ERR_NO_SPACE)
        atomic_store(&l->disk_pressure,
                     true); /* not fatal: the keeper tries again, the sequencer refuses meanwhile */
    struct ledger_head head;
    ledger_head_read(l, &head);
    l->next_seq = head.seq + 1;
    int64_t wall = c->wall_ms(c->ctx);
    ledger_time_start(&l->time, c->mono_ns(c->ctx), wall < 0 ? 0 : (uint64_t)wall, head.ledger_ms);
    atomic_store(&l->ledger_ms, l->time.last_ms);
    double took = (double)(c->mono_ns(c->ctx) - began) / 1e9;
    if (l->m[LEDGER_M_replay_seconds] != NULL)
        obs_gauge_set(obs_gauge(l->m[LEDGER_M_replay_seconds]), took);
    obs_log(l->deps.log, OBS_INFO, "replay_done", OBS_U64("head_seq", head.seq),
            OBS_U64("group_no", head.group_no), OBS_U64("checkpoint_seq", ck.entries),
            OBS_F64("seconds", took), OBS_END);
    return err;
}

enum err ledger_queues_create(struct ledger *l)
{
    struct {
        struct rt_chan **at;
        struct rt_chan_spec spec;
    } rows[] = {
        {&l->ingress, {.name = "ingress_tx", .capacity = l->set.q_ingress, .policy = RT_REJECT}},
        {&l->preval, {.name = "preval_tx", .capacity = l->set.q_preval, .policy = RT_DROP_OLDEST}},
        {&l->commit, {.name = "commit_tx", .capacity = l->set.q_commit, .policy = RT_REJECT}},
        {&l->late, {.name = "late_tx", .capacity = l->set.max_jobs, .policy = RT_REJECT}},
        {&l->gen_tx, {.name = "gen_tx", .capacity = 4, .policy = RT_REJECT}},
        {&l->read, {.name = "read_tx", .capacity = l->set.q_read, .policy = RT_REJECT}},
        {&l->admin, {.name = "admin_tx", .capacity = 16, .policy = RT_REJECT}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i].at = rt_chan_create(&rows[i].spec);
        if (*rows[i].at == NULL)
            return ERR_NO_MEMORY;
    }
    ledger_gen_logs_hand_over(l);
    return ERR_OK;
}

enum err ledger_open(const struct ledger_settings *set, const struct ledger_deps *deps, struct ledger **out)
{
    struct ledger *l = calloc(1, sizeof *l);
    if (l == NULL)
        return ERR_NO_MEMORY;
    l->set = *set;
    l->deps = *deps;
    l->seed0 = rng_secure_u64();
    l->seed1 = rng_secure_u64();
    l->state = ledger_state_create(l->seed0, l->seed1);
    l->policy = ledger_policy_default();
    l->packed_pread = ledger_packed_pread;
    ledger_frontier_init(&l->frontier);
    struct rt_bcast_spec roots = {.name = "root_pub_tx",
                                  .capacity = 1024,
                                  .ref = ledger_group_event_ref,
                                  .unref = ledger_group_event_unref};
    rt_bell_init(&l->segment_want);
    l->root_pub = rt_bcast_create(&roots);
    enum err err = l->root_pub == NULL ? ERR_NO_MEMORY : ledger_jobs_init(&l->jobs, set->max_jobs);
    if (err == ERR_OK)
        err = ledger_index_init(&l->index);
    if (err == ERR_OK && deps->metrics != NULL)
        err = obs_metrics_add(deps->metrics, metric_rows, LEDGER_M_COUNT, l->m);
    if (err == ERR_OK)
        err = open_in(l);
    if (err != ERR_OK) {
        ledger_close(l, false);
        return err;
    }
    atomic_store(&l->phase, l->replica != NULL ? PHASE_FOLLOWING : PHASE_RUNNING);
    *out = l;
    return ERR_OK;
}

static void chan_end(struct rt_chan *ch)
{
    if (ch != NULL)
        rt_chan_destroy(ch, NULL, NULL);
}

/* Reads that a drain could not wait for. They live with their requests, which ended with the event loops. */
static void forget(void *item, void *arg)
{
    (void)item;
    (void)arg;
}

static void reads_end(struct rt_chan *ch)
{
    if (ch != NULL)
        rt_chan_destroy(ch, forget, NULL);
}

void ledger_close(struct ledger *l, bool clean)
{
    struct ledger_head head;
    ledger_head_read(l, &head);
    if (clean && !l->set.amnesia && l->sink != NULL && ledger_safe_cause(l) == CAUSE_NONE &&
        (ledger_note_write(l, &head) != ERR_OK || ledger_clean_write(l, &head) != ERR_OK))
        obs_log(l->deps.log, OBS_WARN, "clean_not_written", OBS_END);
    if (l->sink != NULL)
        store_sink_close(l->sink);
    ledger_replica_free(l);
    for (unsigned level = 0; level < MERKLE_LEVELS; level++)
        ledger_column_fini(&l->levels[level]);
    ledger_column_fini(&l->groups);
    if (l->gen_log_last != NULL)
        ledger_gen_log_free(l->gen_log_last);
    for (unsigned i = 0; i < l->n_gen_log_done; i++)
        ledger_gen_log_free(l->gen_log_done[i]);
    void *item;
    while (l->gen_tx != NULL && rt_chan_try_recv(l->gen_tx, &item) == ERR_OK)
        ledger_gen_log_free(item);
    chan_end(l->ingress);
    chan_end(l->preval);
    chan_end(l->commit);
    chan_end(l->late);
    chan_end(l->gen_tx);
    reads_end(l->read);
    reads_end(l->admin);
    if (l->root_pub != NULL)
        rt_bcast_destroy(l->root_pub);
    ledger_index_fini(&l->index);
    ledger_jobs_fini(&l->jobs);
    ledger_state_destroy(l->state);
    ledger_signer_destroy(l->signer);
    ledger_policy_free(l->policy);
    store_file_close(l->lock_file);
    ledger_checkpoint_merge_drop(l);
    free(l->runs);
    free(l);
}
