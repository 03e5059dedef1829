/*
 * What stands in the ledger's folder besides journal and checkpoints: lock, superblock, signing key, CLEAN, BEGUN, checkpoint,
 * SAFE_MODE.
 *
 * SUPERBLOCK, 4096 bytes: 0 "RONLEDG1" | 8 version u32 = 1 | 12 align u32 | 16 segment_bytes u32 | 20 created_ms u64
 *   28 ledger_id[16] | 44 origin_len u16 | 46 origin | zero | 4092 CRC-32C of 0..4091
 * CLEAN: {"group_no":…,"root":"sha256:…","seq":…} of an orderly stop; removed when opening.
 * BEGUN: number of the newest segment that has begun, 8 digits, a space, CRC-32C of the digits as 8 hex digits, newline.
 * checkpoint: the signed head of the last orderly stop.
 * SAFE_MODE: the reason of an operator's safe mode, which survives restarts.
 */
#ifndef RON_LEDGER_FILES_H
#define RON_LEDGER_FILES_H

#include "services/ledger/ledger.h"

struct ledger_superblock {
    uint32_t align, segment_bytes;
    uint64_t created_ms;
    uint8_t ledger_id[16];
    char origin[NOTE_ORIGIN_MAX + 1];
};

void ledger_superblock_encode(const struct ledger_superblock *sb, uint8_t out[4096]);
NODISCARD enum err ledger_superblock_decode(const uint8_t in[4096],
                                            struct ledger_superblock *out); /* ERR_CORRUPT, ERR_VERSION */

/* Reads it, or founds the ledger where none has been. ERR_CONFLICT when the configured origin is another one. */
NODISCARD enum err ledger_superblock_open(struct ledger *l, struct ledger_superblock *out) RT_BLOCKS;
/* A new signing key of the log with this origin, in `file` (0600); NULL: it lives in memory only. */
NODISCARD enum err ledger_key_new(struct store_disk *disk, const char *file, const char *origin,
                                  struct ledger_signer **out_signer) RT_BLOCKS;
/* Opens the signing key, or makes one for a log that has no entries. ERR_CONFLICT when it is for another origin. */
NODISCARD enum err ledger_key_open(struct ledger *l, const char *origin) RT_BLOCKS;

/* All segments of the journal, oldest first, to be freed; NULL without memory. */
struct store_segment *ledger_segments(struct ledger *l, size_t *out_n);

struct ledger_clean {
    bool there;
    uint64_t seq, group_no;
    struct sha256 root;
};
NODISCARD enum err ledger_clean_read(struct ledger *l, struct ledger_clean *out) RT_BLOCKS;
NODISCARD enum err ledger_clean_write(struct ledger *l, const struct ledger_head *head) RT_BLOCKS;
/* The signed head, for whoever looks at the folder while the ledger is down. */
NODISCARD enum err ledger_note_write(struct ledger *l, const struct ledger_head *head) RT_BLOCKS;
NODISCARD enum err ledger_clean_remove(struct ledger *l) RT_BLOCKS;
/*
 * A journal whose newest segments are gone looks like one that ends there, unless a checkpoint or CLEAN says more. So the number of the
 * newest segment stands in a file of its own. 0: nothing is known.
 */
NODISCARD enum err ledger_begun_read(struct ledger *l, uint32_t *out) RT_BLOCKS;
NODISCARD enum err ledger_begun_write(struct ledger *l, uint32_t segment_no) RT_BLOCKS;
NODISCARD enum err ledger_safe_file_write(struct ledger *l,
                                          const char *reason) RT_BLOCKS; /* NULL removes it */
bool ledger_safe_file_there(struct ledger *l) RT_BLOCKS;

#endif
