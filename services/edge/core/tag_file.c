#include "services/edge/core/tag_file.h"

#include "base/check.h"
#include "base/crc32c.h"

static const char magic[8] = {'R', 'O', 'N', 'E', 'T', 'A', 'G', '1'};
enum { VERSION = 1, CRC_AT = 140 };

uint64_t edge_tag_buckets(uint64_t contents)
{
    uint64_t n = 1;
    while (n * EDGE_TAG_FILL < contents && n < (uint64_t)1 << 40)
        n *= 2;
    return n;
}

uint64_t edge_tag_bucket(uint64_t key, uint64_t buckets)
{
    if (buckets <= 1)
        return 0;
    return ((key + 1) * 0x9E3779B97F4A7C15u) >> (64 - __builtin_ctzll(buckets));
}

void edge_tag_header_encode(const struct edge_tag_header *h, uint8_t out[EDGE_TAG_PAGE])
{
    memset(out, 0, EDGE_TAG_PAGE);
    memcpy(out, magic, sizeof magic);
    le32_put(out + 8, VERSION);
    le32_put(out + 12, h->kind);
    le64_put(out + 16, h->buckets);
    le64_put(out + 24, h->file.dev);
    le64_put(out + 32, h->file.ino);
    le64_put(out + 40, h->file.size);
    le64_put(out + 48, h->file.mtime_ns);
    le64_put(out + 56, h->file.ctime_ns);
    memcpy(out + 64, h->head.b, 32);
    memcpy(out + 96, h->archive.b, 32);
    le64_put(out + 128, h->sealed_ms);
    le32_put(out + CRC_AT, crc32c(0, out, CRC_AT));
}

enum err edge_tag_header_decode(const uint8_t page[EDGE_TAG_PAGE], struct edge_tag_header *out)
{
    if (memcmp(page, magic, sizeof magic) != 0 || le32_get(page + CRC_AT) != crc32c(0, page, CRC_AT))
        return ERR_CORRUPT;
    if (le32_get(page + 8) != VERSION)
        return ERR_VERSION;
    struct edge_tag_header h = {
        .kind = le32_get(page + 12),
        .buckets = le64_get(page + 16),
        .file = {le64_get(page + 24), le64_get(page + 32), le64_get(page + 40), le64_get(page + 48),
                 le64_get(page + 56)},
        .sealed_ms = le64_get(page + 128),
    };
    memcpy(h.head.b, page + 64, 32);
    memcpy(h.archive.b, page + 96, 32);
    if (h.buckets == 0 || (h.buckets & (h.buckets - 1)) || h.buckets > (uint64_t)1 << 40)
        return ERR_CORRUPT;
    *out = h;
    return ERR_OK;
}

static uint32_t slot_crc(const uint8_t slot[EDGE_TAG_SLOT])
{
    return crc32c(crc32c(0, slot, 12), slot + 16, 32);
}

void edge_tag_encode(const struct edge_tag *t, uint8_t out[EDGE_TAG_SLOT])
{
    CHECK(t->key != UINT64_MAX);
    le64_put(out, t->key + 1);
    le32_put(out + 8, t->length);
    memcpy(out + 16, t->digest.b, 32);
    le32_put(out + 12, slot_crc(out));
}

bool edge_tag_decode(const uint8_t slot[EDGE_TAG_SLOT], struct edge_tag *out)
{
    uint64_t key = le64_get(slot);
    if (key == 0 || le32_get(slot + 12) != slot_crc(slot))
        return false;
    out->key = key - 1;
    out->length = le32_get(slot + 8);
    memcpy(out->digest.b, slot + 16, 32);
    return true;
}

static const uint8_t *slot_at(const uint8_t *page, int i)
{
    return page + EDGE_TAG_FIRST + i * EDGE_TAG_SLOT;
}

int edge_tag_find(const uint8_t page[EDGE_TAG_PAGE], uint64_t key, struct edge_tag *out)
{
    for (int i = 0; i < EDGE_TAG_SLOTS; i++)
        if (le64_get(slot_at(page, i)) == key + 1 && edge_tag_decode(slot_at(page, i), out))
            return i;
    return -1;
}

int edge_tag_place(const uint8_t page[EDGE_TAG_PAGE], uint64_t key)
{
    struct edge_tag t;
    int empty = -1;
    for (int i = 0; i < EDGE_TAG_SLOTS; i++) {
        if (le64_get(slot_at(page, i)) == key + 1)
            return i;
        if (empty < 0 && !edge_tag_decode(slot_at(page, i), &t))
            empty = i;
    }
    return empty;
}
