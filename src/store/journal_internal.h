/* What the journal's files share: journal.c (writing), journal_read.c (reading back), journal_recover.c (opening). */
#ifndef RON_STORE_JOURNAL_INTERNAL_H
#define RON_STORE_JOURNAL_INTERNAL_H

#include <stdatomic.h>

#include "store/file_replace.h"
#include "store/journal.h"

enum {
    STORE_JOURNAL_MAGIC = 0x4a524e4c,
    STORE_JOURNAL_LOCK_RANK = 980,
    STORE_OPEN_SEGMENTS_MAX = 64, /* read handles kept open */
    STORE_WINDOW_BYTES = 1 << 20, /* read at once by replay and scan */
};

/* One segment as readers know it; guarded by the journal's lock. */
struct journal_segment {
    struct store_segment info;
    bool packed;             /* its file is gone: read through packed_pread */
    struct store_file *file; /* read handle, opened on first use */
    unsigned readers;        /* inside pread with this handle */
    uint64_t last_use;
};

enum spare_state { SPARE_NONE, SPARE_MAKING, SPARE_READY };

/* A spare changes hands by its state: release when READY or NONE is stored, acquire when read. */
struct journal_spare {
    _Atomic int state;
    struct store_file *file;
    bool dsync;
};
extern const char *const journal__spare_names[STORE_SPARES_MAX];

struct store_journal {
    unsigned magic;
    struct store_journal_config cfg;
    char dir[STORE_PATH_MAX];
    _Atomic bool failed;    /* release when set; acquire before every write */
    _Atomic uint64_t epoch; /* relaxed: the writer's, looked at by those who check frames */

    /* The writer's own. */
    struct store_head head;
    struct store_file *active; /* write handle; NULL: the next frame opens a segment */
    bool active_dsync;         /* opened with O_DSYNC: a write is its own flush */
    bool active_blank;         /* the segment has no header yet: it goes out with the first frame */
    uint8_t *buffer;           /* page aligned */

    struct journal_spare spare[STORE_SPARES_MAX];

    _Atomic uint64_t room_active; /* relaxed: a hint for admission; the writer decides */
    _Atomic uint64_t durable_end; /* segment << 32 | offset; release by the writer, acquire by readers */
    _Atomic uint64_t frames, bytes, flushes; /* relaxed */

    struct rt_lock lock; /* guards the segments below; a leaf */
    size_t n_segments, cap_segments, n_open;
    uint64_t use_clock;
    struct journal_segment *segment; /* sorted by number, without gap */
};

/* What the next frame must say. */
struct journal_expect {
    uint64_t group, seq, epoch, ms;
    struct sha256 root;
};

/* Reads one segment in windows. */
struct journal_window {
    struct store_journal *j;
    uint32_t segment_no;
    uint32_t at, n, cap; /* what of the segment is in p */
    uint8_t *p;
};

/* Walks frames and says what is wrong with the first that is. */
struct journal_walk {
    struct store_journal *j;
    struct journal_window window;
    struct journal_expect expect;
    struct store_pos stop; /* segment 0: none */
    uint64_t from_group;   /* frames before it are checked but not reported to fn */
    store_replay_fn *fn;
    void *ctx;
    struct store_journal_report *report;
    struct store_pos last; /* the last valid frame; segment 0: none */
    uint32_t last_len;
};

void journal__segment_name(char out[32], uint32_t segment_no);
NODISCARD enum err journal__open_for_write(struct store_journal *j, const char *path,
                                           struct store_file **out, bool *out_dsync) RT_BLOCKS;
void journal__set_room(struct store_journal *j);
void journal__set_spare(struct journal_spare *s, struct store_file *file, bool dsync);
/* Opens a spare that is there and blank. ERR_NOT_FOUND: there is none, or it was not blank and is gone now. */
NODISCARD enum err journal__adopt_spare(struct store_journal *j, const char *name,
                                        struct store_file **out_file, bool *out_dsync) RT_BLOCKS;
NODISCARD enum err journal__add_segment(struct store_journal *j, const struct store_segment *info,
                                        bool packed);

/* ERR_NOT_FOUND: no such segment. ERR_CORRUPT: it is listed, and its file is gone, too short, or cannot be unpacked. */
NODISCARD enum err journal__read_at(struct store_journal *j, uint32_t segment_no, uint64_t at, void *p,
                                    size_t n) RT_BLOCKS;
void journal__walk_init(struct journal_walk *w, struct store_journal *j,
                        struct store_journal_report *report, store_replay_fn *fn, void *ctx);
void journal__walk_fini(struct journal_walk *w);
/* n bytes of the segment at `at`, valid until the next call. */
NODISCARD enum err journal__window(struct journal_walk *w, uint32_t segment_no, uint32_t at, uint32_t n,
                                   const uint8_t **out) RT_BLOCKS;
/* Frames from `at` on, up to the first place without a valid one, which goes to *out_end. */
NODISCARD enum err journal__walk_frames(struct journal_walk *w, uint32_t segment_no, uint32_t at,
                                        uint32_t *out_end) RT_BLOCKS;
/* After ERR_CORRUPT of journal__read_at. */
NODISCARD enum err journal__unreadable(struct journal_walk *w, uint32_t segment_no, uint64_t at);
NODISCARD enum err journal__damage(struct store_journal_report *r, uint32_t segment_no, uint64_t offset,
                                   const char *reason);
/* Whether the segment is zero from `from` to its end; *out_last: one past the last byte that is not. */
NODISCARD enum err journal__rest_is_zero(struct journal_walk *w, uint32_t segment_no, uint32_t from,
                                         bool *out_zero, uint32_t *out_last) RT_BLOCKS;

NODISCARD enum err journal__recover(struct store_journal *j, store_replay_fn *fn, void *ctx,
                                    struct store_journal_report *report) RT_BLOCKS;

#endif
