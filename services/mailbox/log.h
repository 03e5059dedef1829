/*
 * A shard's log: the core's groups as frames of a journal, and back.
 *
 * Open applies the index files beside sealed segments (idx.h) and replays every later frame through the core, checking CRCs, roots,
 * sequence numbers, links and payload hashes; what does not fit is damage, and the log comes up read-only. Commit seals the group, computes its root, writes one frame with one flush, and
 * tells the entries where their bodies are. A failed write closes the log until a restart has read what is really there.
 *
 * Knows nothing of the service around it, so that the simulation drives the very code that runs in production.
 *
 * Ownership   The caller owns shard, disk, clock and routing, and keeps them alive.
 * Threads     Open, commit and read: the shard's worker. The journal's own calls as its header says.
 * Memory      The tail cache (tail_bytes), the blocks of a backlog (blocks.h) and the journal's write buffer; commit does not allocate.
 */
#ifndef RON_MAILBOX_LOG_H
#define RON_MAILBOX_LOG_H

#include <stdatomic.h>

#include "services/mailbox/blocks.h"
#include "services/mailbox/core/shard.h"
#include "services/mailbox/idx.h"
#include "services/mailbox/tail.h"
#include "store/sink_replica.h"

struct mailbox_log;

struct mailbox_log_config {
    struct store_disk *disk;
    const char *dir;
    const uint8_t *instance; /* 16 bytes; the last two become the shard's number */
    const uint16_t *routing; /* NULL: everything is ours */
    uint32_t segment_bytes;
    size_t tail_bytes;
    bool direct, read_only;
    bool build_idx; /* collect index files while committing, for segments up to MAILBOX_COLLECT_MAX */
    bool trust_idx; /* start from index files where there are segments too */
    const struct clock *clock;
    /* One of several nodes that share the shard (replica.h); 0 and NULL: alone. */
    uint64_t epoch; /* the lease's; no frame is newer */
    bool unflushed; /* the quorum is enough */
    struct store_resume
        begins; /* what the first frame of an empty directory continues; next_group 0: nothing */
    /* After the journal was replayed, before the state is taken into use: may add frames with mailbox_log_follow. */
    enum err (*catch_up)(void *ctx, struct mailbox_log *g);
    void *catch_up_ctx;
    struct mailbox_now now; /* times found in the journal are turned into monotonic ones from here */
    /* May be NULL. */
    struct obs_hist *flush_seconds;
    struct obs_counter *bytes_total, *flush_fail_total, *torn_bytes_total, *cold_reads;
    struct obs_family *integrity; /* by reason */
};

enum { MAILBOX_COLLECT_MAX = 64 << 20 };

struct mailbox_log {
    struct mailbox_shard *shard;
    struct store_sink *sink;
    struct store_journal *journal;      /* the sink's, for everything but appending */
    struct mailbox_log_tail *replaying; /* while open replays and follows */
    struct mailbox_tail tail;
    struct mailbox_blocks blocks;
    struct sha256 root;
    uint64_t next_group, next_seq;
    uint32_t segment_bytes, active_segment;
    uint32_t active_from; /* where its newest frame begins: bytes before it are there for good */
    bool build_idx;
    struct mailbox_idx_builder
        *builder; /* of the active segment; NULL: it was not seen from its first group on */
    /* Of a sealed segment, until the rebalancer takes it: release by the worker, acquire by the rebalancer. */
    _Atomic(struct mailbox_idx_builder *) built;
    uint32_t indexed_to; /* the last segment whose index file was used by open; 0 = none */
    struct store_disk *disk;
    char dir[STORE_PATH_MAX];
    uint8_t instance[16];
    const uint16_t *routing;
    struct mailbox_now opened;
    struct obs_counter *cold_reads;
    struct obs_family *integrity;
};

/* The last frame replayed so far; segment 0: none was (index files say how the segments before end). */
struct mailbox_log_tail {
    struct store_pos at;
    struct sha256 prev_root, root;
};

/* DIR/sNN */
void mailbox_log_shard_dir(char out[STORE_PATH_MAX], const char *dir, uint16_t shard);
/* Damage is no error: the report says so, and the shard is read-only. */
NODISCARD enum err mailbox_log_open(struct mailbox_log *g, struct mailbox_shard *shard,
                                    const struct mailbox_log_config *cfg,
                                    struct store_journal_report *out_report) RT_BLOCKS;
void mailbox_log_close(struct mailbox_log *g) RT_BLOCKS; /* also after a failed open */

/* From catch_up: a frame that continues this log, from another node; written here, then replayed. ERR_CORRUPT: it does not. */
NODISCARD enum err mailbox_log_follow(struct mailbox_log *g, const struct store_frame *f) RT_BLOCKS;
/* From here on groups also go to a stream; cfg->local is filled in, cfg->pg taken over, also on failure. */
NODISCARD enum err mailbox_log_tee(struct mailbox_log *g, struct store_sink_replica_config *cfg,
                                   uint64_t epoch);

/* ERR_OK; ERR_NO_SPACE, nothing happened; ERR_FENCED, the shard is another node's; else it is read-only from now on. */
NODISCARD enum err mailbox_log_commit(struct mailbox_log *g, struct mailbox_now now) RT_BLOCKS;
bool mailbox_log_has_room(const struct mailbox_log *g); /* for the largest group there can be */

/* The record of an entry: every byte of it checked. `into` has length64 * 64 bytes. ERR_INTEGRITY, ERR_IO, ERR_NOT_FOUND. */
NODISCARD enum err mailbox_log_read(struct mailbox_log *g, uint32_t segment, uint32_t offset8,
                                    uint32_t length64, uint8_t *into, struct mailbox_rec *out) RT_BLOCKS;

/* Where its index files are. */
static inline struct mailbox_idx_place mailbox_log_place(const struct mailbox_log *g)
{
    return (struct mailbox_idx_place){g->disk, g->dir, g->instance, g->shard->no};
}

/* What is left of a record whose segment was stripped: see mailbox_idx_find. */
NODISCARD enum err mailbox_log_read_key(struct mailbox_log *g, const struct mailbox_entry *e,
                                        struct mailbox_rec *out) RT_BLOCKS;

enum {
    MAILBOX_FRAME_MAX =
        (MAILBOX_GROUP_MEMORY + STORE_FRAME_HEADER + STORE_FRAME_TRAILER + 4095) / 4096 * 4096
};

#endif
