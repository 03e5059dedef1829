/*
 * A lane: one shard with its log, its queues and what its worker keeps between two turns.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "net/outbox.h"
#include "services/mailbox/mailbox.h"
#include "services/mailbox/tenancy.h"
#include "store/file_replace.h"

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
    return heap_entry(a, struct mailbox_recv, deadline_node)->deadline_us <
           heap_entry(b, struct mailbox_recv, deadline_node)->deadline_us;
}

static enum err open_memory(struct mailbox_lane *l)
{
    struct mailbox *mb = l->mb;
    const struct mailbox_config *cfg = mailbox_config(mb);
    const struct rt_topology *t = svc_topology(mb->svc);
    enum err e = mailbox_fair_init(&l->fair, (uint32_t)cfg->shard_capacity + MAILBOX_BATCH_JOBS,
                                   (uint32_t)cfg->fair_quantum);
    if (e == ERR_OK)
        e = heap_init(&l->parked, 0, MAILBOX_WAITERS_MAX, sooner);
    l->group_memory = malloc(MAILBOX_GROUP_MEMORY);
    l->read_buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    l->work =
        rt_chan_create(&(struct rt_chan_spec){.name = "work_tx",
                                              .label = l->label,
                                              .capacity = rt_topology_find_queue(t, "work_tx")->capacity,
                                              .policy = RT_REJECT});
    l->requeue =
        rt_chan_create(&(struct rt_chan_spec){.name = "requeue_tx",
                                              .label = l->label,
                                              .capacity = rt_topology_find_queue(t, "requeue_tx")->capacity,
                                              .policy = RT_REJECT});
    if (e == ERR_OK && (!l->group_memory || !l->read_buffer || !l->work || !l->requeue))
        e = ERR_NO_MEMORY;
    return e;
}

static enum err open_log(struct mailbox_lane *l, const struct mailbox_log_config *share,
                         struct store_journal_report *report) RT_BLOCKS
{
    struct mailbox *mb = l->mb;
    const struct mailbox_config *cfg = mailbox_config(mb);
    enum err e = store_disk_mkdirs(svc_disk(mb->svc), l->dir);
    if (e != ERR_OK && e != ERR_EXISTS)
        return e;
    return mailbox_log_open(
        &l->log, &l->shard,
        &(struct mailbox_log_config){.disk = svc_disk(mb->svc),
                                     .dir = l->dir,
                                     .instance = mb->instance,
                                     .routing = mb->routing.of,
                                     .segment_bytes = mb->segment_bytes,
                                     .tail_bytes = cfg->tail_cache,
                                     .direct = true,
                                     .trust_idx = true,
                                     .build_idx = true,
                                     .clock = mb->clock,
                                     .now = mailbox_now(mb),
                                     .flush_seconds = obs_hist(mb->m[MAILBOX_M_flush]),
                                     .bytes_total = obs_counter(mb->m[MAILBOX_M_journal_bytes]),
                                     .flush_fail_total = obs_counter(mb->m[MAILBOX_M_flush_fail]),
                                     .torn_bytes_total = obs_counter(mb->m[MAILBOX_M_torn_bytes]),
                                     .epoch = share->epoch,
                                     .unflushed = share->unflushed,
                                     .begins = share->begins,
                                     .catch_up = share->catch_up,
                                     .catch_up_ctx = share->catch_up_ctx,
                                     .cold_reads = obs_counter(mb->m[MAILBOX_M_cold_reads]),
                                     .integrity = mb->m[MAILBOX_M_integrity]},
        report);
}

static void log_recovery(struct mailbox_lane *l, const struct store_journal_report *r)
{
    struct obs_log *lg = svc_log(l->mb->svc);
    if (r->torn_bytes)
        obs_log(lg, OBS_WARN, "journal.torn_tail", OBS_U64("shard", l->no), OBS_U64("bytes", r->torn_bytes),
                OBS_END);
    if (r->damaged)
        obs_log(lg, OBS_ERROR, "journal.corrupt", OBS_U64("shard", l->no), OBS_STR("file", r->bad_file),
                OBS_U64("byte", r->bad_offset), OBS_STR("why", r->bad_reason ? r->bad_reason : "contents"),
                OBS_END);
    obs_log(lg, OBS_INFO, "journal.recovered", OBS_U64("shard", l->no), OBS_U64("groups", r->frames),
            OBS_U64("bytes", r->bytes), OBS_U64("indexed_to", l->log.indexed_to),
            OBS_U64("messages", l->shard.slabs.live), OBS_END);
}

enum err mailbox_lane_init(struct mailbox *mb, struct mailbox_lane *l, uint16_t no)
{
    char why[200];
    l->mb = mb;
    l->no = no;
    l->held_end = &l->held;
    l->operators_end = &l->operators;
    snprintf(l->label, sizeof l->label, "%u", no);
    mailbox_log_shard_dir(l->dir, svc_data_dir(mb->svc), no);
    atomic_store(&l->next_due_us, INT64_MAX);
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++)
        atomic_store(&l->oldest_ready_us[c], INT64_MAX);
    rt_breaker_init(&l->breaker, &(struct rt_breaker_spec){.window_ms = 10000,
                                                           .rate_calls = 20,
                                                           .rate_percent = 50,
                                                           .open_ms = 5000,
                                                           .probes = 3,
                                                           .successes = 3,
                                                           .seed = no + 1u});
    enum err e = mailbox_rules_make(mailbox_config(mb), mb->shards, &l->rules, why);
    return e == ERR_OK ? open_memory(l) : e;
}

enum err mailbox_lane_load(struct mailbox_lane *l, const struct mailbox_log_config *share)
{
    static const struct mailbox_log_config alone;
    struct store_journal_report report = {0};
    l->loaded = true; /* there is something to unload, whatever becomes of it */
    enum err e = mailbox_shard_init(&l->shard, l->no, &l->rules, rng_secure_u64(), mailbox_now(l->mb),
                                    l->group_memory);
    if (e == ERR_OK)
        e = open_log(l, share ? share : &alone, &report);
    if (e != ERR_OK)
        return e;
    atomic_store(&l->readonly, l->shard.readonly);
    atomic_store(&l->active_segment, l->log.active_segment);
    atomic_store(&l->sealed_every_ms, INT64_C(3600000));
    if (!l->shard.readonly &&
        !mailbox_log_has_room(&l->log)) { /* otherwise the rebalancer has time to look */
        e = store_journal_adopt_spares(l->log.journal);
        if (e == ERR_OK && store_journal_wants_spare(l->log.journal))
            e = store_journal_prepare_spare(l->log.journal);
        atomic_store(&l->no_space, e == ERR_NO_SPACE);
        atomic_store(&l->disk_full, e == ERR_NO_SPACE);
        if (e == ERR_NO_SPACE)
            e = ERR_OK;
    }
    mailbox_tenancy_tell(l);
    log_recovery(l, &report);
    return e;
}

enum err mailbox_lane_open(struct mailbox *mb, struct mailbox_lane *l, uint16_t no)
{
    enum err e = mailbox_lane_init(mb, l, no);
    return e == ERR_OK ? mailbox_lane_load(l, NULL) : e;
}

void mailbox_lane_unload(struct mailbox_lane *l)
{
    if (!l->loaded)
        return;
    l->loaded = false;
    mailbox_tenancy_forget(l);
    mailbox_log_close(&l->log);
    mailbox_shard_fini(&l->shard);
    memset(&l->shard, 0, sizeof l->shard);
    mailbox_lane_count_leases(l);
    l->reclaim = (struct mailbox_reclaim){0};
    l->published = (struct mailbox_stats){0};
    l->more_ticks = false;
    l->retention_at_us = l->counted_at_us = 0;
    for (int st = 0; st < MAILBOX_STATES; st++)
        atomic_store(&l->count[st], 0);
    atomic_store(&l->topics, 0);
    atomic_store(&l->waiters, 0);
    atomic_store(&l->open_streams, 0);
    atomic_store(&l->entries, 0);
    atomic_store(&l->live_bytes, 0);
    atomic_store(&l->idx_bytes, 0);
    atomic_store(&l->next_due_us, INT64_MAX);
    for (int c = 0; c < MAILBOX_CLASSES_MAX; c++)
        atomic_store(&l->oldest_ready_us[c], INT64_MAX);
    atomic_store(&l->readonly, false);
    atomic_store(&l->disk_full, false);
    atomic_store(&l->no_space, false);
    atomic_store(&l->awaits_segment, false);
    atomic_store(&l->damaged, false);
    atomic_store(&l->strip_wish, 0);
    atomic_store(&l->strip_ok, 0);
    atomic_store(&l->drop_wish, 0);
    atomic_store(&l->drop_ok, 0);
}

static void give_back(void *item, void *arg)
{
    (void)arg;
    struct mailbox_job *j = item;
    if (j == NULL || j->magic != MAILBOX_JOB_MAGIC)
        return; /* a tick */
    j->err = ERR_BUSY;
    j->why = MAILBOX_WHY_DRAINING;
    mailbox_job_done(j);
}

/* The queue was closed when the loop's iteration ended: it cannot be full, for every job has a place (submit.c). */
static void door_refused(void *item, enum err why, void *ctx)
{
    CHECK(why == ERR_CLOSED);
    give_back(item, ctx);
}

enum err mailbox_lane_doors(struct mailbox_lane *l)
{
    return net_outbox_create(svc_server(l->mb->svc), l->work, RT_REJECT, door_refused, NULL, &l->doors);
}

static void drop_tick(void *item, void *arg)
{
    (void)item, (void)arg;
}

void mailbox_lane_close(struct mailbox_lane *l)
{
    mailbox_lane_unload(l);
    net_outbox_destroy(l->doors);
    if (l->work)
        rt_chan_destroy(l->work, give_back, NULL);
    if (l->requeue)
        rt_chan_destroy(l->requeue, drop_tick, NULL);
    rt_breaker_fini(&l->breaker);
    mailbox_fair_fini(&l->fair);
    heap_fini(&l->parked);
    free(l->group_memory);
    free(l->read_buffer);
    free(l->served);
    free(l->leases_held);
}

void mailbox_lane_count_leases(struct mailbox_lane *l)
{
    uint64_t out = l->shard.count[MAILBOX_LEASED];
    if (out != l->leases_taken)
        atomic_fetch_add(&l->mb->leases, out - l->leases_taken); /* modulo 2^64: it may be fewer */
    l->leases_taken = out;
}

void mailbox_lane_found_damage(struct mailbox_lane *l, size_t reason, const struct store_journal_report *r)
{
    obs_counter_inc(obs_counter_nth(l->mb->m[MAILBOX_M_integrity], reason));
    obs_log(svc_log(l->mb->svc), OBS_ERROR, "journal.corrupt", OBS_U64("shard", l->no),
            OBS_STR("file", r->bad_file), OBS_U64("byte", r->bad_offset),
            OBS_STR("why", r->bad_reason ? r->bad_reason : "contents"), OBS_END);
    atomic_store(&l->damaged, true);
}

uint64_t mailbox_lane_bytes_max(const struct mailbox *mb)
{
    return svc_amnesia(mb->svc) ? mailbox_config(mb)->amnesia_bytes : mailbox_config(mb)->storage_max_bytes;
}

/*
 * Sends end before the room does: handing out and settling are records too, and a mailbox that could not write them would stay full
 * for ever. A sixteenth is kept for them, at least two segments; with room for hardly any, the second one.
 */
bool mailbox_lane_over_quota(const struct mailbox_lane *l)
{
    const struct mailbox *mb = l->mb;
    uint64_t each = mb->segment_bytes, segments = store_journal_segments(l->log.journal, NULL, 0),
             most = mailbox_lane_bytes_max(mb), reserve = most / 16 / mb->shards / each;
    if (segments < 2)
        return false;
    return ((segments + (reserve < 2 ? 2 : reserve)) * each + atomic_load(&l->idx_bytes)) * mb->shards >
           most;
}

enum err mailbox_lane_commit(struct mailbox_lane *l, struct mailbox_now now)
{
    struct mailbox *mb = l->mb;
    uint32_t records = l->shard.group.records;
    size_t bytes = l->shard.group.n;
    atomic_store(&l->busy_since_ns, clock_mono_ns(mb->clock));
    enum err e = mailbox_log_commit(&l->log, now);
    atomic_store(&l->busy_since_ns, 0);
    if (e == ERR_OK) {
        obs_hist_observe(obs_hist(mb->m[MAILBOX_M_group_records]), records);
        obs_hist_observe(obs_hist(mb->m[MAILBOX_M_group_bytes]), (double)bytes);
        atomic_store(&l->active_segment, l->log.active_segment);
    } else if (e == ERR_FENCED) {
        (void)mailbox_presence_lose(&l->presence);
        obs_log(svc_log(mb->svc), OBS_WARN, "shard.fenced", OBS_U64("shard", l->no),
                OBS_STR("why", store_sink_replica_why(l->log.sink)), OBS_END);
    } else if (e != ERR_NO_SPACE) {
        atomic_store(&l->readonly, true);
        obs_log(svc_log(mb->svc), OBS_ERROR, "shard.readonly", OBS_U64("shard", l->no), OBS_ERR(e),
                OBS_END);
        mailbox_tell(mb, l->no, &(struct mailbox_event){.kind = MAILBOX_EV_SHARD_READONLY});
    }
    return e;
}
