/*
 * ron mailbox repair: says what a damaged shard has lost, asks, and writes what is left as a journal that starts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ron/cmd_mailbox.h"
#include "services/mailbox/log.h"
#include "services/mailbox/repair.h"
#include "store/file_replace.h"
#include "svc/data.h"

const struct cmd_flag cmd_mailbox_repair_flags[] = {
    {"shard", CMD_VALUE, "N", "the shard that is read-only"},
    {"yes", CMD_SWITCH, NULL, "do not ask"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static void say_topic(void *ctx, struct str topic)
{
    (void)ctx;
    printf("new chain id: %.*s\n", (int)topic.n, topic.p);
}

static void say_loss(uint32_t shard, const struct mailbox_repair_report *r)
{
    printf("shard %u: %u segments and %u indexes of stripped segments were read\n", shard, r->segments,
           r->indexes);
    printf("lost: %" PRIu64 " bytes in %u frames, %" PRIu64 " records that fit nothing, %u indexes\n",
           r->bad_bytes, r->bad_frames, r->orphans, r->bad_indexes);
    printf("kept: %" PRIu64 " messages and %" PRIu64
           " remembered keys in %u topics, %u of them with a new chain id\n",
           r->messages, r->keys, r->topics, r->topics_harmed);
}

static bool agreed(struct cmd_ctx *ctx)
{
    char answer[16];
    if (cmd_switch(ctx, "yes"))
        return true;
    printf("Write these as the shard's files? The old ones are kept under another name. [y/N] ");
    fflush(stdout);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int repair(struct cmd_ctx *ctx, const struct mailbox_repair_config *cfg) RT_BLOCKS
{
    struct mailbox_repair *r = NULL;
    struct mailbox_repair_report report;
    int status = CMD_OK;
    enum err e = mailbox_repair_open(cfg, &r, &report);
    if (e != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "shard %u cannot be read: %s", cfg->shard, err_title(e));
    say_loss(cfg->shard, &report);
    if (!agreed(ctx)) {
        status = cmd_fail(ctx, CMD_FAILED, "nothing was changed");
    } else if ((e = mailbox_repair_write(r, &report)) != ERR_OK) {
        status = cmd_fail(ctx, CMD_FAILED, "writing failed (%s); the old files are where they were",
                          err_title(e));
    } else {
        if (report.bodies_lost)
            printf("%" PRIu64 " messages could not be read and are gone\n", report.bodies_lost);
        printf("done; the old files are in %s\n", report.old_dir);
    }
    mailbox_repair_close(r);
    return status;
}

/* A node's copy is not the truth: what repair would write, its stream would not know. */
static bool is_shared(const char *dir) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    store_path_join(path, dir, "REPLICA");
    return store_disk_stat(store_disk_real(), path, &st) == ERR_OK;
}

int cmd_mailbox_repair(struct cmd_ctx *ctx, int argc, char **argv)
{
    char dir[STORE_PATH_MAX], shard_dir[STORE_PATH_MAX], *end;
    uint8_t instance[16];
    struct mailbox_routing routing;
    const char *which = cmd_flag(ctx, "shard", NULL), *why = NULL;
    struct svc_data *data;
    (void)argc, (void)argv;
    unsigned long shard = which ? strtoul(which, &end, 10) : 0;
    if (!which || *end || end == which)
        return cmd_fail(ctx, CMD_USAGE, "say which shard: --shard N");
    snprintf(dir, sizeof dir, "%s/mailbox", cmd_global(ctx)->data);
    int status = cmd_mailbox_meta(ctx, dir, &routing, instance);
    if (status != CMD_OK)
        return status;
    if (shard >= routing.shards)
        return cmd_fail(ctx, CMD_USAGE, "there are %u shards, numbered from 0", routing.shards);
    if (is_shared(dir))
        return cmd_fail(
            ctx, CMD_FAILED,
            "this is a node of a shared mailbox: PostgreSQL has what is missing here, and a repaired "
            "copy would be another history; start the node, it puts a damaged copy aside and gets "
            "the shard again");
    mailbox_log_shard_dir(shard_dir, dir, (uint16_t)shard);
    struct mailbox_repair_config cfg = {.disk = store_disk_real(),
                                        .dir = dir,
                                        .instance = instance,
                                        .routing = routing.of,
                                        .shard = (uint16_t)shard,
                                        .segment_bytes = cmd_mailbox_segment_bytes(shard_dir),
                                        .clock = clock_real(),
                                        .tell = say_topic};
    if (!cfg.segment_bytes)
        return cmd_fail(ctx, CMD_FAILED, "shard %lu has no segments: there is nothing to repair", shard);
    if (svc_data_open(cmd_global(ctx)->data, false, SVC_DATA_WHOLE, &data, &why) != ERR_OK)
        return cmd_fail(ctx, CMD_FAILED, "%s", why ? why : "the data directory is in use");
    status = repair(ctx, &cfg);
    svc_data_close(data);
    return status;
}
