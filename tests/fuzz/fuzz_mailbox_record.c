/*
 * Journal records from anywhere: the reader never reads past them, and a shard that replays whatever passes the reader keeps its
 * counts right (mailbox_shard_check) and answers events afterwards.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "services/mailbox/core/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* With a first byte of 1 the CRCs are put right, so that the fuzzer gets behind them. */
static void fix_crcs(uint8_t *p, size_t n)
{
    for (size_t at = 0; at + 16 <= n;) {
        size_t len = le32_get(p + at);
        if (len < 16 || len > n - at)
            return;
        le32_put(p + at + 4, crc32c(0, p + at + 8, len - 8));
        at += len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct mailbox_rules rules = {
        .index_max = 1000, .max_topics = 100, .retention_ready_ms = 1000, .retention_dlq_ms = 1000};
    static uint8_t group[MAILBOX_GROUP_MEMORY];
    struct mailbox_now now = {1000000, 2000};
    if (n < 1 || n > 1 << 16)
        return 0;
    rules.policies.n = 1;
    rules.policies.p[0] = (struct mailbox_policy){
        .class_name = "d", .t_replay_ms = 100, .max_attempts = 3, .default_visibility_ms = 100};
    uint8_t *copy = malloc(n);
    struct mailbox_shard *s = calloc(1, sizeof *s);
    CHECK(copy && s);
    memcpy(copy, data + 1, n - 1);
    if (data[0] & 1)
        fix_crcs(copy, n - 1);
    CHECK(mailbox_shard_init(s, 0, &rules, 1, now, group) == ERR_OK);
    mailbox_replay_begin(s);
    struct mailbox_rec r;
    size_t at = 0;
    for (;;) {
        struct mailbox_replay_at where = {1, at, (data[0] & 2) != 0, now.wall_ms};
        if (mailbox_rec_next(bytes_of(copy, n - 1), &at, &r) != ERR_OK ||
            mailbox_replay_record(s, &r, &where, NULL) != ERR_OK)
            break;
    }
    CHECK(mailbox_replay_end(s, now) == ERR_OK);
    mailbox_shard_check(s);
    now.mono_us += 50000;
    while (mailbox_shard_tick(s, now))
        ;
    for (uint32_t k = 1; k < s->topics.slots; k++) {
        uint32_t got[8];
        if (s->topics.slot[k]) {
            struct mailbox_want w = {s->topics.slot[k], 1000, 8, INT64_MAX, 0, false};
            mailbox_shard_lease(s, now, &w, got);
        }
    }
    mailbox_shard_check(s);
    mailbox_shard_fini(s);
    free(s);
    free(copy);
    return 0;
}
