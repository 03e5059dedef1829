/*
 * The journal's two byte formats, as pure functions: frames and segment headers (docs/formats/journal.md).
 *
 * A frame is one commit group. Counts and roots are the service's; here they are only carried and checked
 * for integrity. Integers are little-endian, CRC is CRC-32C.
 *
 * Ownership   A decoded frame's payload points into the bytes it was decoded from.
 * Threads     Pure.
 * Memory      Nothing allocates.
 */
#ifndef RON_STORE_FRAME_H
#define RON_STORE_FRAME_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"

enum {
    STORE_FRAME_HEADER = 128,
    STORE_FRAME_TRAILER = 16,
    STORE_SEGMENT_HEADER = 4096,
};

struct store_frame {
    uint64_t group_no;  /* 1, 2, 3 ... */
    uint64_t first_seq; /* number of the first record of this group */
    uint32_t count;     /* records: the next group's first_seq is first_seq + count */
    uint32_t count2;    /* a second number of the service's choice (units, messages) */
    uint64_t ms;
    uint64_t epoch;
    struct sha256 prev_root, new_root;
    struct bytes payload;
};

/* How frames of one journal are laid out. */
struct store_layout {
    uint32_t align;          /* 512 or 4096: frames start and end on multiples */
    uint32_t segment_bytes;  /* multiple of 4096 */
    bool count_zero_sectors; /* flags say how many sectors of header and payload are zero by content */
    bool
        crc_at_end; /* the segment header's CRC is in its last 4 bytes instead of right behind its fields */
};

/* Whole length of a frame with this payload; 0 when it fits no segment. */
uint32_t store_frame_len(const struct store_layout *l, size_t payload_len);
/* The largest payload a segment can hold. */
uint32_t store_frame_payload_max(const struct store_layout *l);

/*
 * Writes store_frame_len() bytes. parts are concatenated to the payload; f->payload is ignored. Unless zero
 * sectors are counted, no sector that holds payload may be zero throughout (text never is): it is a bug.
 */
void store_frame_encode(const struct store_layout *l, const struct store_frame *f,
                        const struct bytes *parts, size_t n_parts, uint8_t *out);

/* The first 128 bytes alone: ERR_CORRUPT, else the frame's whole length (which fits a segment). */
NODISCARD enum err store_frame_peek(const struct store_layout *l, const uint8_t *header, uint32_t *out_len,
                                    uint64_t *out_group);
/* A whole frame of n bytes: every byte is checked. ERR_CORRUPT. */
NODISCARD enum err store_frame_decode(const struct store_layout *l, const uint8_t *p, size_t n,
                                      struct store_frame *out);

/*
 * Whether the bytes of an invalid frame, whose header is good, show that sectors were never written: the
 * trailer is missing, or more sectors of header and payload are zero than the frame says.
 */
bool store_frame_incomplete(const struct store_layout *l, const uint8_t *p, size_t n);

struct store_segment_header {
    uint32_t segment_no; /* 1, 2, 3 ... */
    uint64_t first_seq, first_group;
    uint8_t stream_id[16];
    uint64_t epoch;
    struct sha256 prev_root;
    uint64_t created_ms;
};

void store_segment_encode(const struct store_layout *l, const struct store_segment_header *h,
                          uint8_t out[STORE_SEGMENT_HEADER]);
/* ERR_CORRUPT; ERR_VERSION for a version we do not know. */
NODISCARD enum err store_segment_decode(const struct store_layout *l, const uint8_t *p,
                                        struct store_segment_header *out);
/* Whether a segment header shows that one of its sectors was never written. */
bool store_segment_incomplete(const struct store_layout *l, const uint8_t *p);

bool store_is_zero(const void *p, size_t n);

#endif
