/* The index of a shard's entries: found or not, through every way a bucket grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "services/mailbox/core/index.h"

#define FACTOR UINT64_C(0x9E3779B97F4A7C15)

struct table {
    struct mailbox_slabs slabs;
    struct mailbox_index x;
};

static struct table *table(void)
{
    struct table *t = malloc(sizeof *t);
    assert_non_null(t);
    mailbox_slabs_init(&t->slabs);
    mailbox_index_init(&t->x, &t->slabs, offsetof(struct mailbox_entry, msg_id), sizeof(struct uuid),
                       FACTOR);
    return t;
}

static void end(struct table *t)
{
    mailbox_index_fini(&t->x);
    mailbox_slabs_fini(&t->slabs);
    free(t);
}

static uint32_t entry(struct table *t, struct uuid id)
{
    uint32_t i;
    assert_int_equal(mailbox_slabs_alloc(&t->slabs, &i), ERR_OK);
    mailbox_entry_at(&t->slabs, i)->state = MAILBOX_READY;
    mailbox_entry_at(&t->slabs, i)->msg_id = id;
    return i;
}

static uint32_t find(const struct table *t, uint32_t i)
{
    return mailbox_index_find(&t->x, mailbox_entry_at(&t->slabs, i)->msg_id.b);
}

/* The id whose hash is h: the factor is odd, so it has an inverse modulo 2^64. */
static struct uuid id_hashed(uint64_t h)
{
    uint64_t inverse = FACTOR;
    for (int k = 0; k < 6; k++)
        inverse *= 2 - FACTOR * inverse;
    struct uuid id = {{0}};
    le64_put(id.b + 8, h * inverse);
    return id;
}

static void the_index_finds_what_is_there_and_nothing_else(void **state)
{
    (void)state;
    enum { N = 300000 };
    struct table *t = table();
    struct rng r;
    rng_seed(&r, 7);
    for (uint32_t k = 1; k <= N; k++)
        assert_int_equal(
            mailbox_index_add(&t->x, entry(t, mailbox_id_make(k, (uint16_t)(k & 4095), rng_u64(&r)))),
            ERR_OK);
    for (uint32_t i = 1; i <= N; i += 2)
        mailbox_index_remove(&t->x, i);
    for (uint32_t i = 1; i <= N; i++)
        assert_int_equal(find(t, i), i % 2 ? 0 : i);
    assert_int_equal(t->x.n, N / 2);
    for (uint32_t i = 1; i <= N; i += 2)
        assert_int_equal(mailbox_index_add(&t->x, i), ERR_OK);
    for (uint32_t i = 1; i <= N; i++)
        assert_int_equal(find(t, i), i);
    end(t);
}

static void two_of_them_and_an_entry_stay_under_95_bytes_a_message(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {100000, 150000, 220000, 300000, 400000};
    struct table *t = table();
    struct rng r;
    rng_seed(&r, 8);
    uint32_t n = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (; n < sizes[k]; n++)
            assert_int_equal(mailbox_index_add(&t->x, entry(t, mailbox_id_make(n, 0, rng_u64(&r)))),
                             ERR_OK);
        double each = (double)(mailbox_index_bytes(&t->x) - sizeof t->x) / n;
        print_message("%u keys: %.2f bytes each\n", n, each);
        assert_true(each < 7.4);
    }
    end(t);
}

/* However large it is, a key that makes it grow splits a bucket or two and doubles one short directory: nobody waits for more. */
static void no_key_waits_for_the_index_to_grow(void **state)
{
    (void)state;
    enum { N = 1000000 };
    struct table *t = table();
    struct rng r;
    uint32_t splits = 0, slots = 0;
    rng_seed(&r, 9);
    for (uint32_t k = 1; k <= N; k++) {
        uint32_t buckets = t->x.buckets, directories = t->x.directories;
        assert_int_equal(mailbox_index_add(&t->x, entry(t, mailbox_id_make(k, 0, rng_u64(&r)))), ERR_OK);
        splits = t->x.buckets - buckets > splits ? t->x.buckets - buckets : splits;
        slots = t->x.directories - directories > slots ? t->x.directories - directories : slots;
    }
    print_message("at most %u buckets and %u slots of a directory for one of %u keys\n", splits, slots, N);
    assert_true(splits <= 4 && slots <= 128);
    end(t);
}

static void keys_that_share_a_long_path_are_told_apart(void **state)
{
    (void)state;
    enum { BEFORE = 270000, N = 64 };
    struct table *t = table();
    for (uint32_t k = 0; k < BEFORE; k++) /* 19 bits for an entry leave 13 for its mark */
        (void)entry(t, (struct uuid){{0}});
    for (uint64_t k = 0; k < N;
         k++) /* the first 12 + 13 bits are the same: its bucket splits until the marks are used up */
        assert_int_equal(mailbox_index_add(&t->x, entry(t, id_hashed(UINT64_C(0xabcdef8) << 36 | k << 33))),
                         ERR_OK);
    for (uint32_t i = BEFORE + 1; i <= BEFORE + N; i++)
        assert_int_equal(find(t, i), i);
    assert_int_equal(mailbox_index_find(&t->x, id_hashed(UINT64_C(0xabcdef8) << 36 | UINT64_C(1) << 32).b),
                     0);
    for (uint32_t i = BEFORE + 1; i <= BEFORE + N; i++) {
        mailbox_index_remove(&t->x, i);
        assert_int_equal(find(t, i), 0);
    }
    end(t);
}

static void a_path_without_end_is_refused_and_loses_nothing(void **state)
{
    (void)state;
    struct table *t = table();
    for (uint64_t k = 0; k < MAILBOX_BUCKET_SLOTS; k++)
        assert_int_equal(mailbox_index_add(&t->x, entry(t, id_hashed(UINT64_C(0x1234567) << 36 | k))),
                         ERR_OK);
    assert_int_equal(mailbox_index_add(&t->x, entry(t, id_hashed(UINT64_C(0x1234567) << 36 | 99))),
                     ERR_NO_MEMORY);
    assert_int_equal(mailbox_index_add(&t->x, entry(t, id_hashed(UINT64_C(0x1230000) << 36))), ERR_OK);
    for (uint32_t i = 1; i <= MAILBOX_BUCKET_SLOTS; i++)
        assert_int_equal(find(t, i), i);
    assert_int_equal(find(t, MAILBOX_BUCKET_SLOTS + 1), 0);
    assert_int_equal(find(t, MAILBOX_BUCKET_SLOTS + 2), MAILBOX_BUCKET_SLOTS + 2);
    end(t);
}

static void room_made_beforehand_changes_nothing_that_can_be_found(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct table *t = table();
    struct rng r;
    rng_seed(&r, 9);
    for (uint32_t k = 0; k < N; k++) {
        if (k == 100 || k == N / 2)
            assert_int_equal(mailbox_index_reserve(&t->x, k * 40), ERR_OK);
        uint32_t i = entry(t, mailbox_id_make(k, 1, rng_u64(&r)));
        mailbox_index_prefetch(&t->x, mailbox_entry_at(&t->slabs, i)->msg_id.b);
        assert_int_equal(mailbox_index_add(&t->x, i), ERR_OK);
    }
    for (uint32_t i = 1; i <= N; i++)
        assert_int_equal(find(t, i), i);
    end(t);
}

static void keys_that_differ_in_any_kept_byte_are_two(void **state)
{
    (void)state;
    struct table *t = table();
    mailbox_index_init(&t->x, &t->slabs, offsetof(struct mailbox_entry, digest), MAILBOX_DIGEST_KEPT,
                       FACTOR);
    uint8_t key[MAILBOX_DIGEST_KEPT] = {0};
    uint32_t first = entry(t, mailbox_id_make(1, 1, 1));
    assert_int_equal(mailbox_index_add(&t->x, first), ERR_OK);
    for (size_t k = 0; k < sizeof key; k++) {
        key[k] = 1;
        assert_int_equal(mailbox_index_find(&t->x, key), 0);
        uint32_t i = entry(t, mailbox_id_make(1, 1, k));
        memcpy(mailbox_entry_at(&t->slabs, i)->digest, key, sizeof key);
        assert_int_equal(mailbox_index_add(&t->x, i), ERR_OK);
        assert_int_equal(mailbox_index_find(&t->x, key), i);
        key[k] = 0;
    }
    assert_int_equal(mailbox_index_find(&t->x, key), first);
    end(t);
}

/* Mappings of this process for which large pages were asked. */
static size_t asked_large(void)
{
    char line[512];
    size_t n = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL;
    fclose(f);
    return n;
}

static void large_pages_are_for_who_replays_not_for_who_is_waited_for(void **state)
{
    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        skip(); /* a kernel without them notes no wish */
    struct table *t = table();
    while (t->slabs.slabs <= MAILBOX_SMALL_PIECES + 1)
        entry(t, (struct uuid){{0}});
    assert_int_equal(asked_large(), 0);
    t->slabs.hold_free = true;
    for (uint32_t before = t->slabs.slabs; t->slabs.slabs <= before;)
        entry(t, (struct uuid){{0}});
    assert_true(asked_large() > 0);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_differ_in_any_kept_byte_are_two),
        cmocka_unit_test(the_index_finds_what_is_there_and_nothing_else),
        cmocka_unit_test(two_of_them_and_an_entry_stay_under_95_bytes_a_message),
        cmocka_unit_test(no_key_waits_for_the_index_to_grow),
        cmocka_unit_test(keys_that_share_a_long_path_are_told_apart),
        cmocka_unit_test(a_path_without_end_is_refused_and_loses_nothing),
        cmocka_unit_test(room_made_beforehand_changes_nothing_that_can_be_found),
        cmocka_unit_test(large_pages_are_for_who_replays_not_for_who_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
