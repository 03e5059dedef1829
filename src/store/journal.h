/*
 * Journal: an append-only sequence of commit groups in preallocated segment files.
 *
 * One group is one frame, one positioned write and one flush; when append returns ERR_OK the group survives
 * any crash. A frame that does not fit into the active segment goes into the spare, which somebody else
 * prepared (store_journal_prepare_spare): the writer never waits for space to be found. Opening replays
 * every frame, tells a torn tail (never acknowledged; wiped) from corruption (reported, never repaired).
 *
 * Fail closed After any write or flush that failed, nothing is ever written again by this journal: what
 *             reached the disk is unknown, and only reading it again after a restart can tell.
 * Ownership   The journal owns its files; the caller keeps disk, clock and metrics alive.
 * Threads     One writer thread calls append. prepare_spare belongs to one other thread. room, stats, head
 *             and failed are for any thread and do not wait; reads and segment lists are for any thread.
 * Memory      The write buffer (frame_bytes_max + 4096) is allocated by open; append does not allocate.
 *             Replay and scan allocate one buffer as large as the largest frame, at least 1 MiB.
 * Order       Groups are numbered without gap; prev_root of each is new_root of the one before.
 */
#ifndef RON_STORE_JOURNAL_H
#define RON_STORE_JOURNAL_H

#include "base/clock.h"
#include "obs/metrics.h"
#include "store/disk.h"
#include "store/frame.h"

/* Where a frame starts. offset < segment_bytes <= 4 GiB. */
struct store_pos {
    uint32_t segment, offset;
};

/*
 * Called for every frame on replay and scan, in order; the payload is valid during the call. ERR_CORRUPT
 * says that the contents are wrong (the frame is then reported as damage); other errors end the replay.
 */
typedef enum err store_replay_fn(void *ctx, const struct store_frame *f, struct store_pos at);

struct store_segment {
    uint32_t segment_no;
    uint32_t bytes_used; /* up to the end of its last frame; segment_bytes when that is not known */
    uint64_t first_group, first_seq;
    bool sealed;
};
typedef void store_sealed_fn(void *ctx, const struct store_segment *s);

/*
 * Where replay starts: the position behind a frame that a checkpoint covers, and what must follow there. With pos all
 * zero replay starts at the oldest segment; root (and next_group, next_seq when not 1) then say what the very first frame
 * of the journal continues.
 */
struct store_resume {
    struct store_pos pos;
    uint64_t next_group, next_seq;
    struct sha256 root;
};

struct store_journal_config {
    struct store_disk *disk;
    const char *dir; /* exists */
    struct store_layout layout;
    uint8_t stream_id[16];
    uint64_t epoch;           /* written into frames; replayed ones must not be newer */
    bool unflushed;           /* somebody else keeps it durable: write, but do not wait for the disk */
    uint32_t frame_bytes_max; /* the largest frame that append may be given */
    bool direct;              /* O_DIRECT | O_DSYNC when the file system allows it */
    bool read_only;           /* for tools: no write at all, a torn tail is only reported */
    bool accept_damage;       /* corruption opens the journal read-only instead of failing */
    bool spares_later;        /* open leaves the spares it finds to store_journal_adopt_spares */
    struct store_resume resume;
    /*
     * Oldest segment to be found, when its file may be packed; 0: the oldest file. In an empty directory: the number of the first
     * segment. Number 1 must begin with resume; a journal that begins in the middle of another one's history begins with 2.
     */
    uint32_t first_segment;
    uint32_t
        last_segment; /* the newest that is known to have begun, 0 unknown: one that ends before it is damaged */
    const struct clock *clock;

    /* Reads a segment whose file is gone because the owner packed it; NULL when it never does. */
    enum err (*packed_pread)(void *ctx, uint32_t segment_no, void *p, size_t n, uint64_t at);
    void *packed_ctx;

    store_sealed_fn
        *on_sealed; /* by the writer, after the next segment's first frame is durable; may be NULL */
    void *sealed_ctx;

    /* All may be NULL. */
    struct obs_hist *flush_seconds;
    struct obs_counter *bytes_total, *flush_fail_total, *torn_bytes_total;
};

/* What opening found; filled in on success and on ERR_CORRUPT. */
struct store_journal_report {
    uint64_t frames, bytes; /* replayed */
    uint64_t torn_bytes;    /* wiped (or seen, read-only) */
    bool damaged;
    char bad_file[64]; /* first damage: file name, byte in it, and what is wrong */
    uint64_t bad_offset;
    const char *bad_reason;
    bool group_missing; /* a group between two others is gone */
};

struct store_head {
    uint64_t last_group, next_seq, last_ms, last_epoch;
    struct sha256 root;
    struct store_pos end; /* behind the last frame */
};

struct store_room {
    uint64_t active; /* bytes left for frames in the active segment */
    uint64_t spare;  /* in the spare, 0 when there is none */
};

struct store_journal_stats {
    uint64_t frames, bytes, flushes;
    bool direct;
};

struct store_journal;

/*
 * Opens or starts a journal. ERR_CORRUPT: see the report. ERR_VERSION: a newer program wrote it. replay may be NULL.
 * No spare is made; call store_journal_prepare_spare before the first append of an empty journal.
 */
NODISCARD enum err store_journal_open(const struct store_journal_config *cfg, store_replay_fn *replay,
                                      void *ctx, struct store_journal_report *out_report,
                                      struct store_journal **out) RT_BLOCKS;
void store_journal_close(struct store_journal *j) RT_BLOCKS;

/* Makes the spare when there is none. ERR_NO_SPACE leaves everything as it was: try again later. */
NODISCARD enum err store_journal_prepare_spare(struct store_journal *j) RT_BLOCKS;
bool store_journal_wants_spare(const struct store_journal *j);
/* For journals that use up a segment faster than one can be made: one more spare unless there are `want` (at most two). */
enum { STORE_SPARES_MAX = 2 };
NODISCARD enum err store_journal_prepare_spares(struct store_journal *j, unsigned want) RT_BLOCKS;
unsigned store_journal_spares(const struct store_journal *j); /* ready ones */
/*
 * Takes the spares that lie there, reading each to be sure that it is blank (one that is not goes). With `spares_later` the thread
 * that prepares spares calls it once: a start is then not held up by reading empty files.
 */
NODISCARD enum err store_journal_adopt_spares(struct store_journal *j) RT_BLOCKS;

struct store_room store_journal_room(const struct store_journal *j);
bool store_journal_fits(const struct store_journal *j, size_t payload_len);

/*
 * Appends one group. group_no, first_seq and prev_root must continue the journal (else it is a bug); epoch
 * is filled in. ERR_NO_SPACE: it fits neither the active segment nor a spare, nothing was written.
 * ERR_TOO_LARGE likewise. ERR_IO: outcome unknown, closed for ever. ERR_CLOSED: was closed before.
 */
NODISCARD enum err store_journal_append(struct store_journal *j, const struct store_frame *f,
                                        const struct bytes *parts, size_t n_parts,
                                        struct store_pos *out_pos) RT_BLOCKS;

bool store_journal_failed(const struct store_journal *j);
/* The epoch of the frames to come, not lower than that of the last one. Writer thread, or while it rests. */
void store_journal_set_epoch(struct store_journal *j, uint64_t epoch);
/*
 * Copies the last frame, which lies at `at`, into the file `path` and takes it out of the journal; the journal is closed for
 * ever and must be opened again. For a group that was never acknowledged. ERR_RANGE: it is not the last.
 */
NODISCARD enum err store_journal_set_aside(struct store_journal *j, struct store_pos at,
                                           const char *path) RT_BLOCKS;
/* Closes it for ever, as a failed write would: for an owner that found something wrong. */
void store_journal_fail(struct store_journal *j);
void store_journal_head(const struct store_journal *j,
                        struct store_head *out); /* writer thread, or while it rests */
void store_journal_stats(const struct store_journal *j, struct store_journal_stats *out);

/* Bytes of a durable frame; the caller knows where it is. ERR_RANGE past the end, ERR_NOT_FOUND. */
NODISCARD enum err store_journal_pread(struct store_journal *j, struct store_pos at, void *p,
                                       size_t n) RT_BLOCKS;
/* A whole frame, checked. buf is reset and holds the bytes that out points into. */
NODISCARD enum err store_journal_read(struct store_journal *j, struct store_pos at, struct buf *buf,
                                      struct store_frame *out) RT_BLOCKS;

/* Copies at most max segments, oldest first, the active one last; returns how many there are. */
size_t store_journal_segments(struct store_journal *j, struct store_segment *out, size_t max);
/* Checks every frame of one segment again (fn may be NULL, and may pace itself). Report as for open. */
NODISCARD enum err store_journal_scan(struct store_journal *j, uint32_t segment_no, store_replay_fn *fn,
                                      void *ctx, struct store_journal_report *out_report) RT_BLOCKS;
/* Frames with group_no >= from_group that were durable when the call began. */
NODISCARD enum err store_journal_replay(struct store_journal *j, uint64_t from_group, store_replay_fn *fn,
                                        void *ctx) RT_BLOCKS;
/* Unlinks a sealed segment's file durably. keep_listed: it was packed and can still be read. */
NODISCARD enum err store_journal_drop(struct store_journal *j, uint32_t segment_no,
                                      bool keep_listed) RT_BLOCKS;

void store_journal_segment_path(char out[STORE_PATH_MAX], const char *dir, uint32_t segment_no);

#endif
