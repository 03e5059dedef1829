/* Frames and segments: what is whole, what was never acknowledged, and what is damage. */
#include "ron/verify/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/crc32c.h"

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static bool frame_valid(const struct verify *c, const uint8_t *p, size_t left, uint32_t *out_len)
{
    if (left < 144 || memcmp(p, "RLF1", 4) != 0 || le32_get(p + 120) != crc32c(0, p, 120))
        return false;
    uint32_t len = le32_get(p + 4), payload = le32_get(p + 8);
    if (len < 144 || len % c->align != 0 || len > left || payload > len - 144 ||
        memcmp(p + len - 4, "RLFE", 4) != 0 || le32_get(p + len - 8) != crc32c(0, p, len - 8) ||
        memcmp(p + len - 16, p + 16, 8) != 0)
        return false;
    *out_len = len;
    return true;
}

static bool frame_check(struct verify *c, const uint8_t *p, uint64_t offset)
{
    uint64_t group = le64_get(p + 16), first = le64_get(p + 24), ms = le64_get(p + 40), start = c->tree.n,
             units = 0;
    uint32_t payload = le32_get(p + 8);
    if (group != c->group + 1 || first != c->tree.n + 1)
        return verify_wrong(c, "group or seq does not follow");
    if (memcmp(p + 56, c->root.b, 32) != 0)
        return verify_wrong(c, "prev_root is not the root before");
    if (ms < c->last_ms)
        return verify_wrong(c, "ledger time goes back");
    for (uint32_t at = 0; at < payload; units++) {
        uint32_t len = 0;
        c->at_byte = offset + 128 + at;
        if (!verify_unit(c, p + 128 + at, payload - at, ms, &len))
            return false;
        at += len;
    }
    c->at_byte = offset;
    if (c->tree.n - start != le32_get(p + 32) || units != le32_get(p + 36))
        return verify_wrong(c, "counts differ");
    verify_tree_root(&c->tree, &c->root);
    verify_meets_note(c);
    if (memcmp(p + 88, c->root.b, 32) != 0)
        return verify_wrong(c, "new_root differs from the recomputed one");
    uint8_t g[64];
    if (c->groups != NULL && fread(g, 1, 64, c->groups) == 64 &&
        (le64_get(g) != c->tree.n || le64_get(g + 8) != group || memcmp(g + 32, c->root.b, 32) != 0)) {
        snprintf(c->at_file, sizeof c->at_file, "groups");
        c->at_byte = (group - 1) * 64;
        return verify_wrong(c, "group table differs from the journal");
    }
    c->group = group;
    c->last_ms = ms;
    return true;
}

uint8_t *verify_slurp(const char *path, size_t *out_n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    size_t n = (size_t)st.st_size, at = 0;
    uint8_t *p = malloc(n + 1);
    while (p != NULL && at < n) {
        ssize_t k = read(fd, p + at, n - at);
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    close(fd);
    *out_n = at;
    return p;
}

static uint8_t *unpack(struct verify *c, uint8_t *z, size_t n, size_t *out_n)
{
    uint32_t chunks = n < 60 ? 0 : le32_get(z + 16);
    size_t table = 56 + (size_t)chunks * 4, at = table + 4, size = (size_t)chunks * 65536;
    uint8_t *image = NULL;
    struct sha256 hash;
    if (n >= 60 && memcmp(z, "RONLSGZ1", 8) == 0 && n >= at && size == c->segment_bytes &&
        le32_get(z + table) == crc32c(0, z, table))
        image = calloc(1, size + 1);
    for (uint32_t i = 0; image != NULL && i < chunks; i++) {
        uint32_t len = le32_get(z + 56 + (size_t)i * 4);
        if (len != 0 &&
            (at + len > n || ZSTD_decompress(image + (size_t)i * 65536, 65536, z + at, len) != 65536)) {
            free(image);
            image = NULL;
        }
        at += len;
    }
    if (image != NULL) {
        sha256_of(image, size, &hash);
        if (memcmp(hash.b, z + 24, 32) != 0) {
            free(image);
            image = NULL;
        }
    }
    free(z);
    *out_n = size;
    return image;
}

static bool later_frame(const struct verify *c, const uint8_t *p, size_t from, size_t n)
{
    uint32_t len;
    for (size_t at = from; at + 144 <= n; at += c->align)
        if (frame_valid(c, p + at, n - at, &len) && le64_get(p + at + 16) > c->group)
            return true;
    return false;
}

/* One segment; *out_end: nothing more follows. */
bool verify_segment(struct verify *c, const uint8_t *p, size_t n, bool last, bool *out_end)
{
    *out_end = false;
    c->at_byte = n;
    if (n != c->segment_bytes)
        return verify_wrong(c, "segment has the wrong size");
    c->at_byte = 0;
    if (all_zero(p, 4096)) {
        *out_end = last;
        return last || verify_wrong(c, "segment without header between others");
    }
    if (memcmp(p, "RONLSEG1", 8) != 0 || le32_get(p + 104) != crc32c(0, p, 104)) {
        if (last && !later_frame(c, p, 4096, n)) {
            *out_end = true;
            return true;
        }
        return verify_wrong(c, "segment header");
    }
    if (memcmp(p + 32, c->ledger_id, 16) != 0 || le64_get(p + 16) != c->tree.n + 1 ||
        memcmp(p + 64, c->root.b, 32) != 0)
        return verify_wrong(c, "segment does not continue the log");
    size_t at = 4096;
    uint32_t len;
    while (at + 144 <= n && frame_valid(c, p + at, n - at, &len)) {
        c->at_byte = at;
        if (!frame_check(c, p + at, at))
            return false;
        at += len;
    }
    c->at_byte = at;
    if (at < n && !all_zero(p + at, n - at)) {
        if (!last || later_frame(c, p, at, n))
            return verify_wrong(c, "frame is damaged");
        /* A torn tail shows that sectors are missing; anything else is damage. */
        uint32_t frame_len = le32_get(p + at + 4), payload = le32_get(p + at + 8);
        bool header_ok = memcmp(p + at, "RLF1", 4) == 0 &&
                         le32_get(p + at + 120) == crc32c(0, p + at, 120) && frame_len <= n - at &&
                         payload <= frame_len - 144;
        bool missing = !header_ok ? all_zero(p + at, 512) || !later_frame(c, p, at, n)
                                  : all_zero(p + at + frame_len - 16, 16);
        for (size_t s = 0; header_ok && !missing && s + 512 <= 128 + (size_t)payload; s += 512)
            missing = all_zero(p + at + s, 512);
        if (header_ok && !missing)
            return verify_wrong(c, "frame is damaged");
        c->r->torn_bytes = n - at;
    }
    return true;
}

uint8_t *verify_segment_read(struct verify *c, uint32_t no, size_t *out_n)
{
    char path[1024];
    snprintf(c->at_file, sizeof c->at_file, "journal/%08u.seg", no);
    snprintf(path, sizeof path, "%s/%s", c->dir, c->at_file);
    uint8_t *p = verify_slurp(path, out_n);
    if (p != NULL)
        return p;
    snprintf(c->at_file, sizeof c->at_file, "journal/%08u.segz", no);
    snprintf(path, sizeof path, "%s/%s", c->dir, c->at_file);
    p = verify_slurp(path, out_n);
    if (p == NULL)
        return NULL;
    p = unpack(c, p, *out_n, out_n);
    if (p == NULL)
        verify_wrong(c, "packed segment is damaged");
    return p;
}

bool verify_segment_exists(const struct verify *c, uint32_t no)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/journal/%08u.seg", c->dir, no);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof path, "%s/journal/%08u.segz", c->dir, no);
    return access(path, F_OK) == 0;
}
