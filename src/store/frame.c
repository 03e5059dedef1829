/*
 * Frame      0 "RLF1" | 4 frame_len u32 | 8 payload_len u32 | 12 version u16 | 14 flags u16 | 16 group_no u64
 *           24 first_seq u64 | 32 count u32 | 36 count2 u32 | 40 ms u64 | 48 epoch u64 | 56 prev_root[32]
 *           88 new_root[32] | 120 CRC of 0..119 | 124 zero u32 | 128 payload | zeros
 *           frame_len-16 group_no u64 | frame_len-8 CRC of 0..frame_len-9 | frame_len-4 "RLFE"
 * Segment    0 "RONLSEG1" | 8 version u32 | 12 segment_no u32 | 16 first_seq u64 | 24 first_group u64
 *           32 stream_id[16] | 48 epoch u64 | 56 align u32 | 60 segment_bytes u32 | 64 prev_root[32]
 *           96 created_ms u64 | 104 CRC of 0..103 | zeros           (or zeros, and CRC of 0..4091 at 4092)
 *
 * The header has a CRC of its own, so that frame_len can be believed before the whole frame is read. What is
 * zero in a valid file is checked to be zero: every single bit of a frame and of a segment header counts.
 */
#include "store/frame.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "store/disk.h"

enum { VERSION = 1, HEADER_CRC_AT = 120, SEGMENT_FIELDS = 104, SEGMENT_CRC_END = STORE_SEGMENT_HEADER - 4 };

static const char frame_magic[4] = "RLF1", end_magic[4] = "RLFE", segment_magic[8] = "RONLSEG1";

bool store_is_zero(const void *p, size_t n)
{
    const uint8_t *b = p;
    return n == 0 || (b[0] == 0 && memcmp(b, b + 1, n - 1) == 0);
}

static void check_layout(const struct store_layout *l)
{
    CHECK(l->align == STORE_SECTOR || l->align == STORE_PAGE);
    CHECK(l->segment_bytes % STORE_PAGE == 0 && l->segment_bytes > STORE_SEGMENT_HEADER);
}

uint32_t store_frame_payload_max(const struct store_layout *l)
{
    check_layout(l);
    uint32_t room = l->segment_bytes - STORE_SEGMENT_HEADER;
    /* flags is 16 bits wide: no more sectors than it can count. */
    uint32_t counted = UINT16_MAX * (uint32_t)STORE_SECTOR / STORE_PAGE * STORE_PAGE;
    if (l->count_zero_sectors && room > counted)
        room = counted;
    return room - STORE_FRAME_HEADER - STORE_FRAME_TRAILER;
}

uint32_t store_frame_len(const struct store_layout *l, size_t payload_len)
{
    if (payload_len > store_frame_payload_max(l))
        return 0;
    uint32_t n = STORE_FRAME_HEADER + (uint32_t)payload_len + STORE_FRAME_TRAILER;
    return (n + l->align - 1) / l->align * l->align;
}

/* All-zero sectors among those that hold header or payload. */
static unsigned zero_sectors(const uint8_t *p, uint32_t frame_len, uint32_t payload_len)
{
    unsigned n = 0;
    for (uint32_t at = 0; at < STORE_FRAME_HEADER + payload_len && at < frame_len; at += STORE_SECTOR)
        n += store_is_zero(p + at, STORE_SECTOR);
    return n;
}

void store_frame_encode(const struct store_layout *l, const struct store_frame *f,
                        const struct bytes *parts, size_t n_parts, uint8_t *out)
{
    size_t payload_len = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n)
            memcpy(out + STORE_FRAME_HEADER + payload_len, parts[i].p, parts[i].n);
        payload_len += parts[i].n;
    }
    uint32_t len = store_frame_len(l, payload_len);
    CHECK(len > 0);
    memset(out, 0, STORE_FRAME_HEADER);
    memset(out + STORE_FRAME_HEADER + payload_len, 0, len - STORE_FRAME_HEADER - payload_len);
    memcpy(out, frame_magic, 4);
    le32_put(out + 4, len);
    le32_put(out + 8, (uint32_t)payload_len);
    le16_put(out + 12, VERSION);
    le64_put(out + 16, f->group_no);
    le64_put(out + 24, f->first_seq);
    le32_put(out + 32, f->count);
    le32_put(out + 36, f->count2);
    le64_put(out + 40, f->ms);
    le64_put(out + 48, f->epoch);
    memcpy(out + 56, f->prev_root.b, 32);
    memcpy(out + 88, f->new_root.b, 32);
    le64_put(out + len - 16, f->group_no);
    memcpy(out + len - 4, end_magic, 4);
    unsigned zeros = zero_sectors(out, len, (uint32_t)payload_len);
    /* Without the count a zero sector would look like one that was never written. */
    CHECK(l->count_zero_sectors || zeros == 0);
    le16_put(out + 14, (uint16_t)zeros);
    le32_put(out + HEADER_CRC_AT, crc32c(0, out, HEADER_CRC_AT));
    le32_put(out + len - 8, crc32c(0, out, len - 8));
}

enum err store_frame_peek(const struct store_layout *l, const uint8_t *header, uint32_t *out_len,
                          uint64_t *out_group)
{
    if (memcmp(header, frame_magic, 4) != 0 ||
        le32_get(header + HEADER_CRC_AT) != crc32c(0, header, HEADER_CRC_AT))
        return ERR_CORRUPT;
    if (le16_get(header + 12) != VERSION)
        return ERR_VERSION;
    uint32_t len = le32_get(header + 4), payload_len = le32_get(header + 8);
    if (len == 0 || len != store_frame_len(l, payload_len) || le32_get(header + 124) != 0 ||
        le64_get(header + 16) == 0)
        return ERR_CORRUPT;
    *out_len = len;
    *out_group = le64_get(header + 16);
    return ERR_OK;
}

enum err store_frame_decode(const struct store_layout *l, const uint8_t *p, size_t n,
                            struct store_frame *out)
{
    uint32_t len;
    uint64_t group;
    if (n < STORE_FRAME_HEADER)
        return ERR_CORRUPT;
    enum err e = store_frame_peek(l, p, &len, &group);
    if (e)
        return e;
    if (len != n || memcmp(p + len - 4, end_magic, 4) != 0 || le64_get(p + len - 16) != group ||
        le32_get(p + len - 8) != crc32c(0, p, len - 8))
        return ERR_CORRUPT;
    uint32_t payload_len = le32_get(p + 8), used = STORE_FRAME_HEADER + payload_len;
    unsigned zeros = zero_sectors(p, len, payload_len);
    if (!store_is_zero(p + used, len - STORE_FRAME_TRAILER - used) ||
        le16_get(p + 14) != (l->count_zero_sectors ? zeros : 0))
        return ERR_CORRUPT;
    out->group_no = group;
    out->first_seq = le64_get(p + 24);
    out->count = le32_get(p + 32);
    out->count2 = le32_get(p + 36);
    out->ms = le64_get(p + 40);
    out->epoch = le64_get(p + 48);
    memcpy(out->prev_root.b, p + 56, 32);
    memcpy(out->new_root.b, p + 88, 32);
    out->payload = bytes_of(p + STORE_FRAME_HEADER, payload_len);
    return ERR_OK;
}

bool store_frame_incomplete(const struct store_layout *l, const uint8_t *p, size_t n)
{
    uint32_t len;
    uint64_t group;
    CHECK(n >= STORE_FRAME_HEADER && store_frame_peek(l, p, &len, &group) == ERR_OK && len == n);
    unsigned by_content = l->count_zero_sectors ? le16_get(p + 14) : 0;
    return store_is_zero(p + len - STORE_FRAME_TRAILER, STORE_FRAME_TRAILER) ||
           zero_sectors(p, len, le32_get(p + 8)) > by_content;
}

void store_segment_encode(const struct store_layout *l, const struct store_segment_header *h,
                          uint8_t out[STORE_SEGMENT_HEADER])
{
    check_layout(l);
    memset(out, 0, STORE_SEGMENT_HEADER);
    memcpy(out, segment_magic, 8);
    le32_put(out + 8, VERSION);
    le32_put(out + 12, h->segment_no);
    le64_put(out + 16, h->first_seq);
    le64_put(out + 24, h->first_group);
    memcpy(out + 32, h->stream_id, 16);
    le64_put(out + 48, h->epoch);
    le32_put(out + 56, l->align);
    le32_put(out + 60, l->segment_bytes);
    memcpy(out + 64, h->prev_root.b, 32);
    le64_put(out + 96, h->created_ms);
    uint32_t crc_at = l->crc_at_end ? SEGMENT_CRC_END : SEGMENT_FIELDS;
    le32_put(out + crc_at, crc32c(0, out, crc_at));
}

enum err store_segment_decode(const struct store_layout *l, const uint8_t *p,
                              struct store_segment_header *out)
{
    uint32_t crc_at = l->crc_at_end ? SEGMENT_CRC_END : SEGMENT_FIELDS;
    if (memcmp(p, segment_magic, 8) != 0 || le32_get(p + crc_at) != crc32c(0, p, crc_at))
        return ERR_CORRUPT;
    if (le32_get(p + 8) != VERSION)
        return ERR_VERSION;
    uint32_t fields = l->crc_at_end ? SEGMENT_FIELDS : SEGMENT_FIELDS + 4;
    uint32_t zero_end = l->crc_at_end ? SEGMENT_CRC_END : STORE_SEGMENT_HEADER;
    if (le32_get(p + 56) != l->align || le32_get(p + 60) != l->segment_bytes ||
        !store_is_zero(p + fields, zero_end - fields))
        return ERR_CORRUPT;
    out->segment_no = le32_get(p + 12);
    out->first_seq = le64_get(p + 16);
    out->first_group = le64_get(p + 24);
    memcpy(out->stream_id, p + 32, 16);
    out->epoch = le64_get(p + 48);
    memcpy(out->prev_root.b, p + 64, 32);
    out->created_ms = le64_get(p + 96);
    return ERR_OK;
}

bool store_segment_incomplete(const struct store_layout *l, const uint8_t *p)
{
    return store_is_zero(p, STORE_SECTOR) ||
           (l->crc_at_end && store_is_zero(p + STORE_SEGMENT_HEADER - STORE_SECTOR, STORE_SECTOR));
}
