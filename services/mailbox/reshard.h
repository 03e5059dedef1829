/*
 * Another number of shards: what the files of a mailbox need for it, while nobody has its shards open.
 *
 *   1. Directories above the old number are emptied: leftovers of a change that did not come to its end.
 *   2. Each shard that gives buckets away is read; every topic, message and remembered key in them is written at the end of the
 *      journal of the shard that gets the bucket (ADOPT, TOPIC, MOVE with its FAILs, DEDUP), and is durable there.
 *   3. `routing` is replaced. This is the change: before it every copy is of a bucket that its journal does not own, and is not
 *      read; after it the originals are.
 *   4. Directories above the new number are emptied. A start does it, too.
 *
 * So a cut anywhere leaves one layout or the other, whole. A bucket that comes back to a shard is adopted anew, and whatever the
 * journal said about it before, an unfinished attempt included, is void. Leases do not lie in the files: replay makes such a message
 * ready, with its attempt; whoever knows the leases puts them back (mailbox_replay_lease_held).
 *
 * Knows nothing of the service around it, so that the simulation drives the very code that runs.
 *
 * Memory      What moves of one shard at a time, 72 bytes a message and its place in two indexes.
 */
#ifndef RON_MAILBOX_RESHARD_H
#define RON_MAILBOX_RESHARD_H

#include "services/mailbox/log.h"
#include "services/mailbox/routing.h"

struct mailbox_reshard {
    struct store_disk *disk;
    const char *dir; /* of the mailbox */
    const uint8_t *instance;
    uint32_t segment_bytes;
    bool direct;
    uint64_t min_free; /* disk that is left free */
    const struct mailbox_rules *rules;
    const struct clock *clock;
    struct mailbox_now now;
    bool (*go_on)(void *ctx); /* asked with every group; false: leave it. NULL: to the end */
    void *ctx;
    /* out */
    uint64_t topics, messages, keys;
};

/*
 * ERR_CORRUPT, ERR_INTEGRITY: something that would have to move does not verify; ERR_NO_SPACE; ERR_CANCELED; as the disk says.
 * Whatever it returns, `routing` on disk says which layout holds.
 */
NODISCARD enum err mailbox_reshard(struct mailbox_reshard *r, const struct mailbox_routing *from,
                                   const struct mailbox_routing *to) RT_BLOCKS;
/* Empties the directories of shards from this one on. */
NODISCARD enum err mailbox_reshard_sweep(struct store_disk *disk, const char *dir, uint16_t from) RT_BLOCKS;

#endif
