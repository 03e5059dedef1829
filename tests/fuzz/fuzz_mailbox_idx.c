/*
 * Index files from anywhere: with right checksums put behind them, so that the fuzzer gets past those, a shard that loads one keeps
 * its counts right, and nothing is read past the file.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "services/mailbox/idx.h"
#include "store/file_replace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) RT_BLOCKS;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct mailbox_rules rules = {
        .index_max = 1000, .max_topics = 100, .retention_ready_ms = 1000, .retention_dlq_ms = 1000};
    static uint8_t group[MAILBOX_GROUP_MEMORY];
    static const uint8_t instance[16] = "0123456789abcde";
    struct mailbox_now now = {1000000, 1760292161000};
    struct mailbox_idx_info x;
    struct store_disk *disk;
    if (n < MAILBOX_IDX_HEADER + 4 || n > 1 << 20)
        return 0;
    rules.policies.n = 1;
    rules.policies.p[0].max_attempts = 5;
    uint8_t *p = malloc(n);
    struct mailbox_shard *s = calloc(1, sizeof *s);
    CHECK(p && s && store_disk_memory(4 << 20, &disk) == ERR_OK);
    memcpy(p, data, n);
    memcpy(p, "RONMIDX1", 8);
    le32_put(p + 8, 1);
    le32_put(p + 12, 3);
    le32_put(p + 16, 7);
    memcpy(p + 72, instance, 16);
    le32_put(p + MAILBOX_IDX_HEADER - 4, crc32c(0, p, MAILBOX_IDX_HEADER - 4));
    le32_put(p + n - 4, crc32c(0, p + MAILBOX_IDX_HEADER, n - MAILBOX_IDX_HEADER - 4));
    CHECK(store_disk_mkdirs(disk, "/d") == ERR_OK);
    CHECK(store_file_replace(disk, "/d/00000007.idx", bytes_of(p, n)) == ERR_OK);
    CHECK(mailbox_shard_init(s, 3, &rules, 1, now, group) == ERR_OK);
    struct mailbox_idx_place at = {disk, "/d", instance, 3};
    struct mailbox_rec found;
    mailbox_replay_begin(s);
    enum err e = mailbox_idx_load(&at, 7, s, NULL, now.wall_ms, &x);
    struct mailbox_entry first = {.segment = 7, .offset8 = n > 300 ? le32_get(p + 260) : 0};
    if (mailbox_idx_find(&at, &first, &found) == ERR_NO_MEMORY)
        abort();
    if (e == ERR_OK && mailbox_replay_end(s, now) == ERR_OK)
        mailbox_shard_check(s);
    mailbox_shard_fini(s);
    store_disk_destroy(disk);
    free(s);
    free(p);
    return 0;
}
