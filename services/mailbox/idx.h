/*
 * The index file beside a sealed segment: what a start needs of it, without the bodies.
 *
 * A start that finds an unbroken run of index files from the oldest segment on applies them and replays only the segments behind
 * them; bodies are checked when they are delivered and by the scrub. When nothing in a segment waits any more its file may go
 * (strip) while the index stays until the dedup windows in it are over. Layout: docs/formats/mailbox.md.
 *
 *   header 256 | items, 80 bytes each: every ENQ, MOVE and DEDUP, by rising offset | events: all other records as they were, each
 *   with the number of items before it | topics: the newest link of each topic that was sent to | CRC
 *
 * Validity    The two CRCs cover every byte; both are checked before anything is applied. Groups, record numbers and roots of
 *             consecutive files must join, and the first segment replayed must continue the last file.
 * Threads     Write, find: any, of sealed segments. Load: the thread that opens the log.
 * Memory      A builder, write and load hold one file in memory: about a sixth of a segment of small messages.
 */
#ifndef RON_MAILBOX_IDX_H
#define RON_MAILBOX_IDX_H

#include "services/mailbox/core/shard.h"
#include "store/journal.h"

enum { MAILBOX_IDX_HEADER = 256, MAILBOX_IDX_ITEM = 80 };

struct mailbox_idx_place {
    struct store_disk *disk;
    const char *dir;
    const uint8_t *instance; /* 16 bytes */
    uint16_t shard;
};

struct mailbox_idx_info {
    uint32_t segment, items, settled, topics;
    uint64_t first_group, last_group, first_seq, next_seq, event_bytes;
    struct sha256 prev_root, root;
};

/*
 * A builder: the file's contents, collected group by group from the segment's first one on. f->payload is the group, known(ctx, k)
 * the dedup digest of its k-th message (NULL: computed from the records). save writes the file (temp, flush, rename).
 */
struct mailbox_idx_builder;
struct mailbox_idx_builder *mailbox_idx_builder_create(uint32_t segment); /* NULL: no memory */
void mailbox_idx_builder_destroy(struct mailbox_idx_builder *b);          /* NULL is fine */
NODISCARD enum err mailbox_idx_builder_add(struct mailbox_idx_builder *b, const struct store_frame *f,
                                           uint64_t payload_offset,
                                           const struct mailbox_digest *(*known)(void *ctx, uint32_t k),
                                           void *ctx);
NODISCARD enum err mailbox_idx_builder_save(struct mailbox_idx_builder *b,
                                            const struct mailbox_idx_place *at,
                                            uint64_t *out_bytes) RT_BLOCKS;
uint32_t mailbox_idx_builder_segment(const struct mailbox_idx_builder *b);

/* Reads the sealed segment, checking every frame, and writes its file. ERR_CORRUPT: see the report. */
NODISCARD enum err mailbox_idx_write(const struct mailbox_idx_place *at, struct store_journal *j,
                                     uint32_t segment, struct store_journal_report *out_report,
                                     uint64_t *out_bytes) RT_BLOCKS;

/* The header alone, checked: ERR_NOT_FOUND, ERR_CORRUPT, ERR_VERSION. */
NODISCARD enum err mailbox_idx_peek(const struct mailbox_idx_place *at, uint32_t segment,
                                    struct mailbox_idx_info *out) RT_BLOCKS;
/*
 * Applies the file to a replaying shard. ERR_INTEGRITY: it cannot be used and nothing was applied. ERR_CORRUPT: it
 * contradicts what came before it.
 */
NODISCARD enum err mailbox_idx_load(const struct mailbox_idx_place *at, uint32_t segment,
                                    struct mailbox_shard *s, const uint16_t *routing, uint64_t wall_ms,
                                    struct mailbox_idx_info *out) RT_BLOCKS;

/* Reads the whole file and applies nothing: ERR_INTEGRITY when it cannot be used, ERR_NOT_FOUND, ERR_VERSION, ERR_IO. */
NODISCARD enum err mailbox_idx_check(const struct mailbox_idx_place *at, uint32_t segment,
                                     uint64_t *out_bytes) RT_BLOCKS;

/*
 * Tells every topic that was sent to in the segment with its newest number and link there. ERR_NOT_FOUND, ERR_INTEGRITY: nobody was told.
 */
NODISCARD enum err mailbox_idx_topics(const struct mailbox_idx_place *at, uint32_t segment,
                                      void (*fn)(void *ctx, uint32_t topic_id, uint64_t topic_seq,
                                                 const struct sha256 *chain),
                                      void *ctx) RT_BLOCKS;

/*
 * The numbers of a topic's first and last message in the segment, 0 and 0 if there is none: read from the table of topics alone, whose
 * bytes are not summed up by themselves. Good for leaving a segment out; what is left out wrongly is missed later. ERR_NOT_FOUND, ERR_CORRUPT, ERR_IO.
 */
NODISCARD enum err mailbox_idx_range(const struct mailbox_idx_place *at, uint32_t segment,
                                     uint32_t topic_id, uint64_t *out_first, uint64_t *out_last) RT_BLOCKS;

/*
 * What is left of an entry's record, whose segment was stripped, as a DEDUP: digest, first half of the payload's hash. One item is read, and
 * held against what the entry knows: ERR_INTEGRITY when it is not there, or another's. ERR_NOT_FOUND: there is no such file. ERR_IO.
 */
NODISCARD enum err mailbox_idx_find(const struct mailbox_idx_place *at, const struct mailbox_entry *e,
                                    struct mailbox_rec *out) RT_BLOCKS;

void mailbox_idx_path(char out[STORE_PATH_MAX], const char *dir, uint32_t segment);

/* The numbers of index files and segments there are; 0 = none. */
struct mailbox_idx_files {
    uint32_t first_idx, last_idx, first_seg, last_seg;
};
NODISCARD enum err mailbox_idx_list(struct store_disk *disk, const char *dir,
                                    struct mailbox_idx_files *out) RT_BLOCKS;

#endif
