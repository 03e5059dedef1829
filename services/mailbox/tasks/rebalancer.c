/*
 * The rebalancer keeps house so that workers never wait for it: it prepares spare segments, names the oldest segment that may go,
 * drops it when its worker has moved everything out, and reads old segments again at a modest pace.
 */
#include <stdio.h>
#include <stdlib.h>

#include "services/mailbox/mailbox.h"

enum { EVERY_MS = 50, RECLAIM_EVERY = 4, SEGMENTS_MAX = 4096 };

static void spare(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    uint64_t free_bytes = 0;
    if (atomic_load(&l->readonly) || !store_journal_wants_spare(l->log.journal))
        return;
    const struct mailbox_config *cfg = mailbox_config(mb);
    bool low = store_disk_free_bytes(svc_disk(mb->svc), l->dir, &free_bytes) == ERR_OK &&
               free_bytes < cfg->storage_min_free + cfg->segment_bytes;
    bool over = store_journal_segments(l->log.journal, NULL, 0) * cfg->segment_bytes * mb->shards >
                cfg->storage_max_bytes;
    enum err e =
        (low && !svc_amnesia(mb->svc)) || over ? ERR_NO_SPACE : store_journal_prepare_spare(l->log.journal);
    if (e != ERR_OK)
        obs_log(svc_log(mb->svc), OBS_WARN, "storage.no_spare", OBS_U64("shard", l->no), OBS_ERR(e),
                OBS_END);
}

/* Links of settled messages stay readable for retention.audit, or until they take too much disk. */
static bool audit_over(struct mailbox *mb, struct mailbox_lane *l, uint32_t segment, uint64_t segments) RT_BLOCKS
{
    const struct mailbox_config *cfg = mailbox_config(mb);
    char path[STORE_PATH_MAX];
    struct store_stat st;
    if (segments * cfg->segment_bytes > cfg->retention_audit_bytes / mb->shards)
        return true;
    store_journal_segment_path(path, l->dir, segment);
    return store_disk_stat(svc_disk(mb->svc), path, &st) == ERR_OK &&
           clock_wall_ms(mb->clock) - st.modified_ms > cfg->retention_audit;
}

static void reclaim(struct mailbox *mb, struct mailbox_lane *l) RT_BLOCKS
{
    struct store_segment seg[2];
    uint32_t done = atomic_load(&l->evacuated);
    size_t n = store_journal_segments(l->log.journal, seg, 2);
    obs_gauge_set(OBS_GAUGE_OF(mb->m[MAILBOX_M_storage_bytes], "seg"),
                  (double)(n * mailbox_config(mb)->segment_bytes * mb->shards));
    if (atomic_load(&l->readonly) || n < 2 || !seg[0].sealed)
        return;
    if (done && done == seg[0].segment_no) {
        enum err e = store_journal_drop(l->log.journal, done, false);
        obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_WARN, "segment.drop",
                OBS_U64("shard", l->no), OBS_U64("segment", done), OBS_ERR(e), OBS_END);
        return;
    }
    if (audit_over(mb, l, seg[0].segment_no, n))
        atomic_store(&l->oldest_sealed, seg[0].segment_no);
}

enum err mailbox_rebalancer_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    for (unsigned turn = 0;
         rt_task_sleep(self, deadline_in_ms(EVERY_MS)) == ERR_OK && !rt_task_stopping(self); turn++) {
        for (uint16_t i = 0; i < mb->shards; i++) {
            spare(mb, &mb->lanes[i]);
            if (turn % RECLAIM_EVERY == 0)
                reclaim(mb, &mb->lanes[i]);
        }
    }
    return ERR_OK;
}
