/*
 * Repair: a damaged shard's files are read leniently and written again as a journal of their own, offline.
 *
 * What is intact stays: messages with their ids, numbers, links, attempts and causes, dead letters, remembered keys. Records are
 * looked for one by one where a frame does not verify, so one flipped bit costs the record it is in. Topics that lost a record, or
 * may have, get a new chain id (core/salvage.c). A settlement that is lost means that its message is delivered again.
 *
 * The new files are made beside the old ones and put in their place by renaming; the old directory is kept under another name.
 *
 * Threads     The service must not run: the caller holds the data directory.
 * Memory      As a start, and one segment.
 */
#ifndef RON_MAILBOX_REPAIR_H
#define RON_MAILBOX_REPAIR_H

#include "base/clock.h"
#include "services/mailbox/core/shard.h"
#include "store/disk.h"

struct mailbox_repair_config {
    struct store_disk *disk;
    const char *dir; /* of the mailbox: META is in it */
    const uint8_t *instance;
    const uint16_t *routing; /* buckets of other shards are left out */
    uint16_t shard;
    uint32_t segment_bytes;
    const struct clock *clock;
    void (*tell)(void *ctx, struct str harmed_topic); /* one by one */
    void *ctx;
};

struct mailbox_repair_report {
    uint32_t segments, indexes; /* read */
    uint32_t bad_frames;        /* did not verify; their records were looked for one by one */
    uint32_t bad_indexes;       /* of stripped segments: remembered keys that are gone */
    uint64_t bad_bytes;         /* in which no record was found */
    uint64_t orphans;           /* records that contradict what is left, or whose topic is unknown */
    uint64_t bodies_lost;       /* messages whose body does not verify */
    uint32_t topics, topics_harmed;
    uint64_t messages, keys; /* kept */
    char old_dir[STORE_PATH_MAX], new_dir[STORE_PATH_MAX];
};

struct mailbox_repair;

/* Reads what is left. Nothing is changed yet. */
NODISCARD enum err mailbox_repair_open(const struct mailbox_repair_config *cfg, struct mailbox_repair **out,
                                       struct mailbox_repair_report *out_report) RT_BLOCKS;
/* Writes it anew and puts it in place. After an error the old files are where they were. */
NODISCARD enum err mailbox_repair_write(struct mailbox_repair *r,
                                        struct mailbox_repair_report *out_report) RT_BLOCKS;
void mailbox_repair_close(struct mailbox_repair *r) RT_BLOCKS; /* NULL is fine */

#endif
