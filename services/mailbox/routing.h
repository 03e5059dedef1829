/*
 * Which shard owns which bucket: the file `routing` of the data directory. Replacing it is the one moment at which another number
 * of shards comes into force.
 *
 * Threads     Pure, but for load and save.
 */
#ifndef RON_MAILBOX_ROUTING_H
#define RON_MAILBOX_ROUTING_H

#include "services/mailbox/core/ids.h"
#include "store/disk.h"

enum {
    MAILBOX_SHARDS_MAX = 64,
    MAILBOX_NOBODY = UINT16_MAX, /* in a table of owners: no shard */
};

struct mailbox_routing {
    uint64_t generation; /* one more with every change */
    uint16_t shards;
    uint16_t of[MAILBOX_BUCKETS];
};

/* A new mailbox: bucket modulo shards. */
void mailbox_routing_first(struct mailbox_routing *r, uint16_t shards);
/* Another number of shards with the fewest buckets moved: all own the same number, give or take one. */
void mailbox_routing_change(const struct mailbox_routing *from, uint16_t shards,
                            struct mailbox_routing *out);

/* ERR_NOT_FOUND, ERR_CORRUPT. */
NODISCARD enum err mailbox_routing_load(struct store_disk *d, const char *dir,
                                        struct mailbox_routing *out) RT_BLOCKS;
/* The same, and it stays so: a replacement that was cut short may be seen and not be durable. To be asked before anything is built on it. */
NODISCARD enum err mailbox_routing_settle(struct store_disk *d, const char *dir,
                                          struct mailbox_routing *out) RT_BLOCKS;
/* The old one or the new one is there, whatever happens; after an error settle says which. */
NODISCARD enum err mailbox_routing_save(struct store_disk *d, const char *dir,
                                        const struct mailbox_routing *r) RT_BLOCKS;

/* files.c: what META says. ERR_NOT_FOUND, ERR_CORRUPT, ERR_VERSION; then *out is as it was. */
struct mailbox_meta {
    uint16_t shards; /* at first */
    uint8_t instance[16];
};
NODISCARD enum err mailbox_files_meta(struct store_disk *disk, const char *dir,
                                      struct mailbox_meta *out) RT_BLOCKS;

/* files.c: what CLEAN says, the last group of each journal at an orderly stop. ERR_NOT_FOUND, ERR_CORRUPT. */
struct mailbox_last_groups {
    uint32_t shards;
    uint64_t group[MAILBOX_SHARDS_MAX];
};
NODISCARD enum err mailbox_files_last_groups(struct store_disk *disk, const char *dir,
                                             struct mailbox_last_groups *out) RT_BLOCKS;
/* CLEAN says nothing of this shard any more, and as before of the others; it goes when there are none. */
NODISCARD enum err mailbox_files_forget_last_group(struct store_disk *disk, const char *dir,
                                                   uint16_t shard) RT_BLOCKS;

#endif
