/* What the simulations of a shard begin with: a seed, virtual time, a disk that can fail, and rules small enough to meet. */
#ifndef RON_TESTS_SIM_MAILBOX_WORLD_H
#define RON_TESTS_SIM_MAILBOX_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "services/mailbox/core/shard.h"
#include "store/disk_faulty.h"

/* In virtual time, a second after its beginning; `dir` is there, and durable. */
static inline struct store_disk *world_begin(uint64_t seed, const char *dir, struct rng *rng,
                                             struct clock_manual *clock) RT_BLOCKS
{
    static const struct store_fault_plan none;
    struct store_disk *disk;
    rng_seed(rng, seed);
    clock_manual_init(clock, INT64_C(1760292161000));
    clock_manual_advance_ms(clock, 1000);
    assert_int_equal(store_disk_faulty(seed, &none, &disk), ERR_OK);
    assert_int_equal(store_disk_mkdirs(disk, dir), ERR_OK);
    assert_int_equal(store_disk_sync_dir(disk, "/"), ERR_OK);
    return disk;
}

static inline struct mailbox_rules world_rules(uint64_t t_replay_ms, uint8_t max_attempts)
{
    struct mailbox_rules r = {.index_max = 4000,
                              .max_topics = 100,
                              .backoff_base_ms = 10,
                              .backoff_max_ms = 40,
                              .retention_ready_ms = 1000000,
                              .retention_dlq_ms = 1000000};
    r.policies.n = 1;
    r.policies.p[0] = (struct mailbox_policy){.class_name = "default",
                                              .t_replay_ms = t_replay_ms,
                                              .default_visibility_ms = 200,
                                              .max_attempts = max_attempts};
    return r;
}

#endif
