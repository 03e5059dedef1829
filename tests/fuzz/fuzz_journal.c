/*
 * Opens mutated journals. The first byte chooses the layout and the mode:
 *   raw      the rest are the bytes of segment 1;
 *   mutated  a good journal of three segments, then changes of five bytes each: which file and what to do (xor a byte,
 *            zero a sector, copy a sector, cut the file), and where.
 * Whatever comes in: no crash, nothing is replayed that was not written, in order and without gap, a second opening
 * agrees with the first, and an opened journal takes another group.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "store/disk.h"
#include "store/journal.h"

enum { SEGMENT = 16384, GROUPS = 12 };

struct replay {
    uint64_t n;
    bool known; /* frames must be the ones we wrote */
};

static uint8_t payload_byte(uint64_t group)
{
    return (uint8_t)('A' + group % 50);
}

static void root_of(uint64_t group, struct sha256 *out)
{
    uint8_t text[9] = "fuzz";
    text[8] = (uint8_t)group;
    sha256_of(text, sizeof text, out);
}

static enum err on_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct replay *r = ctx;
    struct sha256 want;
    CHECK(at.segment >= 1 && at.offset >= STORE_SEGMENT_HEADER && at.offset < SEGMENT);
    CHECK(f->group_no == ++r->n);
    root_of(f->group_no, &want);
    if (!sha256_eq(&want, &f->new_root))
        return ERR_CORRUPT; /* as a service that recomputes its root */
    for (size_t i = 0; r->known && i < f->payload.n; i++)
        CHECK(f->payload.p[i] == payload_byte(f->group_no));
    return ERR_OK;
}

RT_BLOCKS
static enum err append(struct store_journal *j)
{
    struct store_head h;
    struct store_pos pos;
    uint8_t payload[3000];
    store_journal_head(j, &h);
    struct store_frame f = {
        .group_no = h.last_group + 1, .first_seq = h.next_seq, .count = 1, .prev_root = h.root};
    root_of(f.group_no, &f.new_root);
    size_t n = f.group_no * 977 % sizeof payload;
    memset(payload, payload_byte(f.group_no), n);
    struct bytes part = {payload, n};
    enum err e = store_journal_prepare_spare(j);
    CHECK(e == ERR_OK);
    return store_journal_append(j, &f, &part, 1, &pos);
}

RT_BLOCKS
static void write_good(const struct store_journal_config *cfg)
{
    struct store_journal *j;
    struct store_journal_report report;
    struct replay r = {0};
    CHECK(store_journal_open(cfg, on_frame, &r, &report, &j) == ERR_OK);
    for (int i = 0; i < GROUPS; i++)
        CHECK(append(j) == ERR_OK);
    store_journal_close(j);
}

RT_BLOCKS
static void mutate(struct store_disk *d, const uint8_t *p)
{
    static const char *const names[] = {"j/00000001.seg", "j/00000002.seg", "j/00000003.seg",
                                        "j/spare.seg"};
    struct store_file *f;
    uint8_t sector[STORE_SECTOR];
    size_t n;
    uint32_t at = (uint32_t)le16_get(p + 1) % SEGMENT;
    if (store_file_open(d, names[p[0] & 3], STORE_WRITE, &f))
        return;
    enum err e = ERR_OK;
    switch (p[0] >> 6) {
    case 0:
        e = store_file_pread(f, sector, 1, at, &n);
        sector[0] ^= p[3];
        e = e ? e : store_file_pwrite(f, sector, 1, at);
        break;
    case 1:
        memset(sector, 0, sizeof sector);
        e = store_file_pwrite(f, sector, sizeof sector, at / STORE_SECTOR * STORE_SECTOR);
        break;
    case 2:
        e = store_file_pread(f, sector, sizeof sector, at / STORE_SECTOR * STORE_SECTOR, &n);
        e = e ? e
              : store_file_pwrite(f, sector, n,
                                  (uint32_t)le16_get(p + 3) % SEGMENT / STORE_SECTOR * STORE_SECTOR);
        break;
    case 3:
        e = store_file_truncate(f, at);
        break;
    }
    CHECK(e == ERR_OK);
    store_file_close(f);
}

RT_BLOCKS
static void write_raw(struct store_disk *d, const uint8_t *p, size_t n)
{
    struct store_file *f;
    CHECK(store_file_open(d, "j/00000001.seg", STORE_WRITE | STORE_CREATE, &f) == ERR_OK);
    CHECK(store_file_allocate(f, SEGMENT) == ERR_OK);
    CHECK(store_file_pwrite(f, p, n < SEGMENT ? n : SEGMENT, 0) == ERR_OK);
    store_file_close(f);
}

RT_BLOCKS
static void open_and_use(const struct store_journal_config *cfg, bool known)
{
    struct store_journal *j;
    struct store_journal_report report, again;
    struct replay r = {.known = known}, r2 = {.known = known};
    enum err e = store_journal_open(cfg, on_frame, &r, &report, &j);
    CHECK(e == ERR_OK || e == ERR_CORRUPT || e == ERR_VERSION);
    CHECK((e == ERR_CORRUPT) == report.damaged);
    CHECK(!known || r.n <= GROUPS);
    if (e == ERR_OK)
        store_journal_close(j);
    enum err e2 = store_journal_open(cfg, on_frame, &r2, &again, &j);
    CHECK(e2 == e && r2.n == r.n);
    if (e2)
        return;
    CHECK(again.torn_bytes == 0); /* the first opening wiped it */
    CHECK(append(j) == ERR_OK);
    store_journal_close(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

RT_BLOCKS
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_disk *d;
    if (size < 2)
        return 0;
    CHECK(store_disk_memory(0, &d) == ERR_OK);
    CHECK(store_disk_mkdir(d, "j") == ERR_OK);
    struct store_journal_config cfg = {
        .disk = d,
        .dir = "j",
        .layout = {.align = data[0] & 1 ? 512 : 4096,
                   .segment_bytes = SEGMENT,
                   .count_zero_sectors = data[0] & 2,
                   .crc_at_end = data[0] & 2},
        .epoch = 1,
        .frame_bytes_max = 4096,
        .clock = clock_real(),
    };
    bool raw = data[0] & 4;
    if (raw) {
        write_raw(d, data + 1, size - 1);
    } else {
        write_good(&cfg);
        for (size_t at = 1; at + 5 <= size; at += 5)
            mutate(d, data + at);
    }
    open_and_use(&cfg, !raw);
    store_disk_destroy(d);
    return 0;
}
