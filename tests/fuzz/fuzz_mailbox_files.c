/*
 * The small files of a mailbox from anywhere: META, routing and CLEAN. The first byte says which, and whether a right checksum is put behind
 * it, so that the fuzzer gets past that. What is taken for a routing routes to shards that there are, and is written again to the same
 * bytes; a META says what stands there, and no less; what is not taken changes nothing of the caller's. A CLEAN that forgets one shard
 * says the same of all others.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "services/mailbox/mailbox.h"
#include "store/file_replace.h"

enum { UNTOUCHED = 0x5a };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) RT_BLOCKS;

static void check_routing(struct store_disk *disk, struct bytes file) RT_BLOCKS
{
    struct mailbox_routing r, before;
    struct buf again;
    memset(&r, UNTOUCHED, sizeof r);
    before = r;
    if (mailbox_routing_load(disk, "/d", &r) != ERR_OK) {
        CHECK(memcmp(&r, &before, sizeof r) == 0);
        return;
    }
    CHECK(r.shards >= 1 && r.shards <= MAILBOX_SHARDS_MAX);
    for (size_t i = 0; i < MAILBOX_BUCKETS; i++)
        CHECK(r.of[i] < r.shards);
    CHECK(mailbox_routing_save(disk, "/d", &r) == ERR_OK);
    buf_init(&again, 1 << 20);
    CHECK(store_file_slurp(disk, "/d/routing", &again) == ERR_OK);
    CHECK(again.n == file.n && memcmp(again.p, file.p, file.n) == 0);
    buf_fini(&again);
}

static void check_clean(struct store_disk *disk, struct bytes file) RT_BLOCKS
{
    struct mailbox_last_groups g, before;
    memset(&g, UNTOUCHED, sizeof g);
    before = g;
    if (mailbox_files_last_groups(disk, "/d", &g) != ERR_OK) {
        CHECK(memcmp(&g, &before, sizeof g) == 0);
        return;
    }
    CHECK(g.shards == le32_get(file.p + 8) && g.group[0] == le64_get(file.p + 12));
    uint16_t one = file.p[12] % MAILBOX_SHARDS_MAX;
    CHECK(mailbox_files_forget_last_group(disk, "/d", one) == ERR_OK);
    before = g;
    enum err e = mailbox_files_last_groups(disk, "/d", &g);
    CHECK(e == ERR_OK || e == ERR_NOT_FOUND);
    for (uint16_t i = 0; i < MAILBOX_SHARDS_MAX; i++)
        CHECK(i == one ? e != ERR_OK || g.group[i] == 0
                       : (e == ERR_OK ? g.group[i] : 0) == before.group[i]);
}

static void check_meta(struct store_disk *disk, struct bytes file) RT_BLOCKS
{
    struct mailbox_meta m, before;
    memset(&m, UNTOUCHED, sizeof m);
    before = m;
    if (mailbox_files_meta(disk, "/d", &m) != ERR_OK) {
        CHECK(memcmp(&m, &before, sizeof m) == 0);
        return;
    }
    CHECK(file.n == 4096 && m.shards >= 1 && m.shards <= MAILBOX_SHARDS_MAX);
    CHECK(m.shards == le32_get(file.p + 12) && memcmp(m.instance, file.p + 16, 16) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct {
        const char *path, *magic;
        void (*check)(struct store_disk *disk, struct bytes file);
    } files[] = {{"/d/CLEAN", "RONCLEA1", check_clean},
                 {"/d/routing", "RONROUT1", check_routing},
                 {"/d/META", "RONMBOX1", check_meta}};
    struct store_disk *disk;
    if (n < 1 + 16 || n > 1 << 16)
        return 0;
    unsigned which = data[0] & 4 ? 2 : data[0] & 1;
    bool sealed = data[0] & 2;
    uint8_t *p = malloc(--n);
    CHECK(p && store_disk_memory(4 << 20, &disk) == ERR_OK);
    memcpy(p, data + 1, n);
    if (sealed) {
        memcpy(p, files[which].magic, 8);
        le32_put(p + n - 4, crc32c(0, p, n - 4));
    }
    CHECK(store_disk_mkdirs(disk, "/d") == ERR_OK);
    CHECK(store_file_replace(disk, files[which].path, bytes_of(p, n)) == ERR_OK);
    files[which].check(disk, bytes_of(p, n));
    store_disk_destroy(disk);
    free(p);
    return 0;
}
