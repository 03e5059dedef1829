#include "services/ledger/segz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/file_replace.h"

enum { ZSTD_LEVEL = 3 };

enum err ledger_segz_parse(struct bytes head, struct ledger_segz *out)
{
    if (head.n < SEGZ_HEADER + 4 || memcmp(head.p, "RONLSGZ1", 8) != 0 ||
        le32_get(head.p + 12) != SEGZ_CHUNK)
        return ERR_CORRUPT;
    struct ledger_segz z = {.segment_no = le32_get(head.p + 8), .n_chunks = le32_get(head.p + 16)};
    size_t table = SEGZ_HEADER + (size_t)z.n_chunks * 4;
    if (z.n_chunks > (UINT32_C(1) << 16) || head.n < table + 4 ||
        le32_get(head.p + table) != crc32c(0, head.p, table))
        return ERR_CORRUPT;
    memcpy(z.image.b, head.p + 24, 32);
    z.lengths = head.p + SEGZ_HEADER;
    z.data_at = table + 4;
    *out = z;
    return ERR_OK;
}

/* Where the frame of a chunk lies, and how long it is; 0 = zeros. */
static uint64_t chunk_at(const struct ledger_segz *z, uint32_t chunk, uint32_t *out_len)
{
    uint64_t at = z->data_at;
    for (uint32_t i = 0; i < chunk; i++)
        at += le32_get(z->lengths + (size_t)i * 4);
    *out_len = le32_get(z->lengths + (size_t)chunk * 4);
    return at;
}

static enum err inflate(struct bytes frame, uint8_t *out)
{
    size_t n = ZSTD_decompress(out, SEGZ_CHUNK, frame.p, frame.n);
    return ZSTD_isError(n) || n != SEGZ_CHUNK ? ERR_CORRUPT : ERR_OK;
}

enum err ledger_segz_chunk(const struct ledger_segz *z, struct bytes file, uint32_t chunk, uint8_t *out)
{
    uint32_t len;
    uint64_t at = chunk_at(z, chunk, &len);
    if (len == 0) {
        memset(out, 0, SEGZ_CHUNK);
        return ERR_OK;
    }
    return at + len > file.n ? ERR_CORRUPT : inflate(bytes_of(file.p + at, len), out);
}

void ledger_segz_path(const struct ledger *l, uint32_t segment_no, char out[STORE_PATH_MAX])
{
    char name[40];
    snprintf(name, sizeof name, "journal/%08u.segz", segment_no);
    store_path_join(out, l->set.dir, name);
}

static enum err head_read(struct store_file *f, uint8_t **out_head, struct ledger_segz *out) RT_BLOCKS
{
    uint8_t first[SEGZ_HEADER];
    enum err err = store_file_read_all(f, first, sizeof first, 0);
    if (err != ERR_OK)
        return err == ERR_RANGE ? ERR_CORRUPT : err;
    uint32_t chunks = le32_get(first + 16);
    if (chunks > (UINT32_C(1) << 16))
        return ERR_CORRUPT;
    size_t n = SEGZ_HEADER + (size_t)chunks * 4 + 4;
    uint8_t *head = malloc(n);
    err = head == NULL ? ERR_NO_MEMORY : store_file_read_all(f, head, n, 0);
    if (err == ERR_OK)
        err = ledger_segz_parse(bytes_of(head, n), out);
    if (err != ERR_OK) {
        free(head);
        return err == ERR_RANGE ? ERR_CORRUPT : err;
    }
    *out_head = head;
    return ERR_OK;
}

static enum err chunk_read(struct store_file *f, const struct ledger_segz *z, uint32_t chunk,
                           uint8_t *frame, uint8_t *out) RT_BLOCKS
{
    uint32_t len;
    uint64_t at = chunk_at(z, chunk, &len);
    if (len > ZSTD_compressBound(SEGZ_CHUNK))
        return ERR_CORRUPT;
    if (len == 0) {
        memset(out, 0, SEGZ_CHUNK);
        return ERR_OK;
    }
    enum err err = store_file_read_all(f, frame, len, at);
    return err == ERR_OK ? inflate(bytes_of(frame, len), out) : err;
}

enum err ledger_packed_pread(void *ledger, uint32_t segment_no, void *p, size_t n, uint64_t at)
{
    struct ledger *l = ledger;
    struct store_file *f;
    struct ledger_segz z;
    uint8_t *head = NULL, *out = p;
    char path[STORE_PATH_MAX];
    ledger_segz_path(l, segment_no, path);
    enum err err = store_file_open(l->deps.disk, path, STORE_READ, &f);
    if (err != ERR_OK)
        return err;
    uint8_t *room = malloc(SEGZ_CHUNK + ZSTD_compressBound(SEGZ_CHUNK));
    err = room == NULL ? ERR_NO_MEMORY : head_read(f, &head, &z);
    if (err == ERR_OK && (z.segment_no != segment_no || at + n > (uint64_t)z.n_chunks * SEGZ_CHUNK))
        err = ERR_RANGE;
    while (err == ERR_OK && n > 0) {
        uint32_t chunk = (uint32_t)(at / SEGZ_CHUNK), in = (uint32_t)(at % SEGZ_CHUNK);
        size_t part = SEGZ_CHUNK - in < n ? SEGZ_CHUNK - in : n;
        err = chunk_read(f, &z, chunk, room + SEGZ_CHUNK, room);
        if (err == ERR_OK)
            memcpy(out, room + in, part);
        out += part;
        at += part;
        n -= part;
    }
    free(head);
    free(room);
    store_file_close(f);
    return err;
}

/* Reads all of it and compares the hash of the image. */
static enum err verify(struct ledger *l, uint32_t segment_no, struct ledger_pace pace) RT_BLOCKS
{
    struct store_file *f;
    struct ledger_segz z = {0};
    uint8_t *head = NULL;
    char path[STORE_PATH_MAX];
    ledger_segz_path(l, segment_no, path);
    enum err err = store_file_open(l->deps.disk, path, STORE_READ, &f);
    if (err != ERR_OK)
        return err;
    uint8_t *room = malloc(SEGZ_CHUNK + ZSTD_compressBound(SEGZ_CHUNK));
    err = room == NULL ? ERR_NO_MEMORY : head_read(f, &head, &z);
    struct sha256_ctx c;
    struct sha256 hash;
    sha256_init(&c);
    for (uint32_t i = 0; err == ERR_OK && i < z.n_chunks; i++) {
        pace.fn(pace.ctx);
        err = chunk_read(f, &z, i, room + SEGZ_CHUNK, room);
        sha256_update(&c, room, SEGZ_CHUNK);
    }
    sha256_final(&c, &hash);
    if (err == ERR_OK && !sha256_eq(&hash, &z.image))
        err = ERR_CORRUPT;
    free(head);
    free(room);
    store_file_close(f);
    return err;
}

/* ---- packing ---- */

enum { STEP_BYTES = 1 << 20 };

/*
 * Chunk after chunk from the segment to the file, in flushed steps: neither of them is ever in memory as a whole, and the journal's next
 * flush never waits behind more than a step. The head is written last, when the lengths are known.
 */
struct packing {
    struct ledger *l;
    uint32_t segment_no, chunks;
    struct ledger_pace pace;
    char temp[STORE_PATH_MAX + 8];
    struct store_file *file; /* opened for the first step */
    ZSTD_CCtx *z;
    uint8_t *chunk, *head;
    size_t head_n;
    struct buf step;
    uint64_t at; /* where the step goes */
    struct sha256_ctx image;
};

static enum err step_write(struct packing *p) RT_BLOCKS
{
    p->pace.fn(p->pace.ctx);
    enum err err = p->step.err;
    if (err == ERR_OK && p->file == NULL)
        err = store_file_open(p->l->deps.disk, p->temp, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &p->file);
    if (err == ERR_OK && p->step.n > 0)
        err = store_file_pwrite(p->file, p->step.p, p->step.n, p->at);
    if (err == ERR_OK)
        err = store_file_sync(p->file);
    p->at += p->step.n;
    buf_reset(&p->step);
    return err;
}

static enum err chunk_pack(struct packing *p, uint32_t i) RT_BLOCKS
{
    size_t bound = ZSTD_compressBound(SEGZ_CHUNK);
    struct store_pos at = {p->segment_no, i * (uint32_t)SEGZ_CHUNK};
    p->pace.fn(p->pace.ctx);
    enum err err = store_journal_pread(p->l->sink->journal, at, p->chunk, SEGZ_CHUNK);
    if (err != ERR_OK)
        return err;
    p->pace.fn(p->pace.ctx);
    sha256_update(&p->image, p->chunk, SEGZ_CHUNK);
    if (store_is_zero(p->chunk, SEGZ_CHUNK))
        return ERR_OK;
    uint8_t *to = buf_reserve(&p->step, bound);
    if (to == NULL)
        return p->step.err;
    size_t len = ZSTD_compressCCtx(p->z, to, bound, p->chunk, SEGZ_CHUNK, ZSTD_LEVEL);
    if (ZSTD_isError(len))
        return ERR_NO_MEMORY;
    buf_commit(&p->step, len);
    le32_put(p->head + SEGZ_HEADER + (size_t)i * 4, (uint32_t)len);
    return p->step.n < STEP_BYTES ? ERR_OK : step_write(p);
}

static enum err head_write(struct packing *p) RT_BLOCKS
{
    struct sha256 hash;
    sha256_final(&p->image, &hash);
    memcpy(p->head, "RONLSGZ1", 8);
    le32_put(p->head + 8, p->segment_no);
    le32_put(p->head + 12, SEGZ_CHUNK);
    le32_put(p->head + 16, p->chunks);
    memcpy(p->head + 24, hash.b, 32);
    le32_put(p->head + p->head_n - 4, crc32c(0, p->head, p->head_n - 4));
    enum err err = store_file_pwrite(p->file, p->head, p->head_n, 0);
    return err == ERR_OK ? store_file_sync(p->file) : err;
}

static enum err pack_all(struct packing *p) RT_BLOCKS
{
    enum err err = p->z == NULL || p->chunk == NULL || p->head == NULL ? ERR_NO_MEMORY : ERR_OK;
    p->at = p->head_n;
    for (uint32_t i = 0; err == ERR_OK && i < p->chunks; i++)
        err = chunk_pack(p, i);
    if (err == ERR_OK)
        err = step_write(p);
    return err == ERR_OK ? head_write(p) : err;
}

/* Under a temporary name until it is whole. */
static enum err write_packed(struct ledger *l, uint32_t segment_no, const char *path,
                             struct ledger_pace pace) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    uint32_t chunks = l->set.segment_bytes / SEGZ_CHUNK;
    size_t head_n = SEGZ_HEADER + (size_t)chunks * 4 + 4;
    struct packing p = {.l = l,
                        .segment_no = segment_no,
                        .chunks = chunks,
                        .pace = pace,
                        .z = ZSTD_createCCtx(),
                        .chunk = malloc(SEGZ_CHUNK),
                        .head = calloc(1, head_n),
                        .head_n = head_n};
    CHECK(l->set.segment_bytes % SEGZ_CHUNK == 0);
    snprintf(p.temp, sizeof p.temp, "%s.tmp", path);
    CHECK(store_path_dir(path, dir));
    buf_init(&p.step, STEP_BYTES + ZSTD_compressBound(SEGZ_CHUNK));
    sha256_init(&p.image);
    enum err err = pack_all(&p);
    bool begun = p.file != NULL;
    store_file_close(p.file);
    ZSTD_freeCCtx(p.z);
    free(p.chunk);
    free(p.head);
    buf_fini(&p.step);
    if (err != ERR_OK) {
        enum err ignored =
            begun ? store_disk_unlink(l->deps.disk, p.temp) : ERR_OK; /* the first error counts */
        (void)ignored;
        return err;
    }
    err = store_disk_rename(l->deps.disk, p.temp, path);
    return err == ERR_OK ? store_disk_sync_dir(l->deps.disk, dir) : err;
}

enum err ledger_segz_pack(struct ledger *l, uint32_t segment_no, struct ledger_pace pace)
{
    char path[STORE_PATH_MAX];
    ledger_segz_path(l, segment_no, path);
    enum err err = write_packed(l, segment_no, path, pace);
    if (err == ERR_OK) /* reads back what the disk has, against the hash of the original */
        err = verify(l, segment_no, pace);
    if (err == ERR_OK)
        err = store_journal_drop(l->sink->journal, segment_no, true);
    return err;
}
