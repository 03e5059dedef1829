/*
 * The rebalancer keeps house so that workers never wait for it: it prepares spare segments, drops segments that hold nothing
 * any more, and asks the worker to compact those that hold little.
 */
#include <stdio.h>
#include <stdlib.h>

#include "services/mailbox/mailbox.h"

enum { EVERY_MS = 50, RECLAIM_EVERY = 20 };

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

enum err mailbox_rebalancer_run(struct rt_task *self, void *arg)
{
    struct mailbox *mb = arg;
    while (rt_task_sleep(self, deadline_in_ms(EVERY_MS)) == ERR_OK && !rt_task_stopping(self))
        for (uint16_t i = 0; i < mb->shards; i++)
            spare(mb, &mb->lanes[i]);
    return ERR_OK;
}
