/*
 * The small files of a mailbox from anywhere: routing and CLEAN. The first byte says which, and whether a right checksum is put behind it,
 * so that the fuzzer gets past that. What is taken for a routing routes to shards that there are, and is written again to the same bytes;
 * what is not changes nothing of the caller's.
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
    if (mailbox_files_last_groups(disk, "/d", &g) != ERR_OK)
        CHECK(memcmp(&g, &before, sizeof g) == 0);
    else
        CHECK(g.shards == le32_get(file.p + 8) && g.group[0] == le64_get(file.p + 12));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct store_disk *disk;
    if (n < 1 + 16 || n > 1 << 16)
        return 0;
    bool routing = data[0] & 1, sealed = data[0] & 2;
    uint8_t *p = malloc(--n);
    CHECK(p && store_disk_memory(4 << 20, &disk) == ERR_OK);
    memcpy(p, data + 1, n);
    if (sealed) {
        memcpy(p, routing ? "RONROUT1" : "RONCLEA1", 8);
        le32_put(p + n - 4, crc32c(0, p, n - 4));
    }
    CHECK(store_disk_mkdirs(disk, "/d") == ERR_OK);
    CHECK(store_file_replace(disk, routing ? "/d/routing" : "/d/CLEAN", bytes_of(p, n)) == ERR_OK);
    if (routing)
        check_routing(disk, bytes_of(p, n));
    else
        check_clean(disk, bytes_of(p, n));
    store_disk_destroy(disk);
    free(p);
    return 0;
}
