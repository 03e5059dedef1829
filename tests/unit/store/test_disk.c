#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/disk_faulty.h"
#include "store/file_replace.h"

/* The same contract, whatever the disk: dir exists and is empty. */
static enum err count_name(void *ctx, const char *name)
{
    assert_true(strlen(name) > 0);
    ++*(int *)ctx;
    return ERR_OK;
}

RT_BLOCKS
static void disk_contract(struct store_disk *d, const char *dir)
{
    char a[STORE_PATH_MAX], b[STORE_PATH_MAX], sub[STORE_PATH_MAX];
    store_path_join(a, dir, "a");
    store_path_join(b, dir, "b");
    store_path_join(sub, dir, "x/y/z");
    struct store_file *f, *lock, *again;
    uint8_t p[64];
    size_t n;
    uint64_t size;
    assert_int_equal(store_file_open(d, a, STORE_READ, &f), ERR_NOT_FOUND);
    assert_int_equal(store_file_open(d, a, STORE_WRITE | STORE_CREATE | STORE_EXCL, &f), ERR_OK);
    assert_int_equal(store_file_open(d, a, STORE_WRITE | STORE_CREATE | STORE_EXCL, &again), ERR_EXISTS);
    assert_int_equal(store_file_pwrite(f, "hello", 5, 10), ERR_OK);
    assert_int_equal(store_file_append(f, "!", 1), ERR_OK);
    assert_int_equal(store_file_pread(f, p, sizeof p, 8, &n), ERR_OK);
    assert_int_equal(n, 8);
    assert_memory_equal(p, "\0\0hello!", 8);
    assert_int_equal(store_file_read_all(f, p, 20, 0), ERR_RANGE);
    assert_int_equal(store_file_allocate(f, 10000), ERR_OK);
    assert_int_equal(store_file_size(f, &size), ERR_OK);
    assert_int_equal(size, 10000);
    assert_int_equal(store_file_read_all(f, p, 8, 9000), ERR_OK);
    assert_memory_equal(p, "\0\0\0\0\0\0\0\0", 8);
    assert_int_equal(store_file_truncate(f, 12), ERR_OK);
    assert_int_equal(store_file_allocate(f, 20), ERR_OK);
    assert_int_equal(store_file_read_all(f, p, 10, 10), ERR_OK);
    assert_memory_equal(p, "he\0\0\0\0\0\0\0\0", 10);
    assert_int_equal(store_file_write_out(f, 10, 10), ERR_OK);
    assert_int_equal(store_file_sync(f), ERR_OK);
    store_file_close(f);
    assert_int_equal(store_disk_rename(d, a, b), ERR_OK);
    assert_int_equal(store_disk_sync_dir(d, dir), ERR_OK);
    struct store_stat st;
    assert_int_equal(store_disk_stat(d, a, &st), ERR_NOT_FOUND);
    assert_int_equal(store_disk_stat(d, b, &st), ERR_OK);
    assert_int_equal(st.bytes, 20);
    assert_false(st.is_dir);
    assert_int_equal(store_disk_mkdirs(d, sub), ERR_OK);
    assert_int_equal(store_disk_mkdirs(d, sub), ERR_OK);
    assert_int_equal(store_disk_mkdir(d, sub), ERR_EXISTS);
    assert_int_equal(store_disk_stat(d, sub, &st), ERR_OK);
    assert_true(st.is_dir);
    int names = 0;
    assert_int_equal(store_disk_list(d, dir, count_name, &names), ERR_OK);
    assert_int_equal(names, 2);
    store_path_join(a, dir, "LOCK");
    assert_int_equal(store_disk_lock(d, a, &lock), ERR_OK);
    assert_int_equal(store_disk_lock(d, a, &again), ERR_LOCKED);
    store_file_close(lock);
    assert_int_equal(store_disk_lock(d, a, &lock), ERR_OK);
    store_file_close(lock);
    assert_int_equal(store_disk_unlink(d, a), ERR_OK);
    assert_int_equal(store_disk_unlink(d, a), ERR_NOT_FOUND);
    struct buf buf;
    buf_init(&buf, 1000);
    assert_int_equal(store_file_replace(d, b, bytes_of("new", 3)), ERR_OK);
    assert_int_equal(store_file_slurp(d, b, &buf), ERR_OK);
    assert_string_equal(buf_cstr(&buf), "new");
    buf_fini(&buf);
    assert_int_equal(store_file_remove(d, b), ERR_OK);
    assert_int_equal(store_file_remove(d, b), ERR_OK);
    assert_int_equal(store_disk_free_bytes(d, dir, &size), ERR_OK);
    assert_true(size > 0);
}

RT_BLOCKS
static void the_real_disk_keeps_the_contract(void **state)
{
    (void)state;
    char dir[] = "/tmp/ron-disk-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    disk_contract(store_disk_real(), dir);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

RT_BLOCKS
static void the_memory_disk_keeps_the_contract(void **state)
{
    (void)state;
    struct store_disk *d;
    assert_int_equal(store_disk_memory(0, &d), ERR_OK);
    assert_int_equal(store_disk_mkdir(d, "/dir"), ERR_OK);
    disk_contract(d, "/dir");
    store_disk_destroy(d);
}

RT_BLOCKS
static void the_faulty_disk_without_a_plan_keeps_the_contract(void **state)
{
    (void)state;
    struct store_disk *d;
    assert_int_equal(store_disk_faulty(1, NULL, &d), ERR_OK);
    assert_int_equal(store_disk_mkdir(d, "dir"), ERR_OK);
    disk_contract(d, "dir");
    store_disk_destroy(d);
}

RT_BLOCKS
static void direct_writes_are_aligned_and_read_back_through_the_page_cache(void **state)
{
    (void)state;
    char dir[] = "/var/tmp/ron-disk-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    struct store_disk *d = store_disk_real();
    struct store_file *f, *r;
    enum err e = store_file_open(d, path, STORE_WRITE | STORE_CREATE | STORE_DIRECT | STORE_DSYNC, &f);
    assert_true(e == ERR_OK || e == ERR_RANGE);
    if (e == ERR_OK) {
        uint8_t *p = aligned_alloc(4096, 4096), back[4096];
        memset(p, 'd', 4096);
        assert_int_equal(store_file_allocate(f, 1 << 16), ERR_OK);
        assert_int_equal(store_file_pwrite(f, p, 4096, 8192), ERR_OK);
        assert_int_equal(store_file_open(d, path, STORE_READ, &r), ERR_OK);
        assert_int_equal(store_file_read_all(r, back, 4096, 8192), ERR_OK);
        assert_memory_equal(back, p, 4096);
        assert_true(store_file_fd(r) >= 0);
        store_file_close(r);
        store_file_close(f);
        free(p);
    }
    unlink(path);
    rmdir(dir);
}

RT_BLOCKS
static void a_full_memory_disk_says_so(void **state)
{
    (void)state;
    struct store_disk *d;
    struct store_file *f;
    assert_int_equal(store_disk_memory(1000, &d), ERR_OK);
    assert_int_equal(store_file_open(d, "f", STORE_WRITE | STORE_CREATE, &f), ERR_OK);
    assert_int_equal(store_file_allocate(f, 1001), ERR_NO_SPACE);
    assert_int_equal(store_file_allocate(f, 1000), ERR_OK);
    assert_int_equal(store_file_append(f, "x", 1), ERR_NO_SPACE);
    assert_int_equal(store_file_truncate(f, 0), ERR_OK);
    assert_int_equal(store_file_append(f, "x", 1), ERR_OK);
    store_file_close(f);
    store_disk_destroy(d);
}

/* A file of two durable sectors 'a', then both overwritten with 'b' and not flushed. */
RT_BLOCKS
static struct store_disk *unflushed_pair(uint64_t seed, enum store_keep keep, struct store_file **out)
{
    struct store_disk *d;
    uint8_t a[1024], b[1024];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    assert_int_equal(store_disk_faulty(seed, &(struct store_fault_plan){.keep = keep}, &d), ERR_OK);
    assert_int_equal(store_file_open(d, "f", STORE_WRITE | STORE_CREATE, out), ERR_OK);
    assert_int_equal(store_file_pwrite(*out, a, 1024, 0), ERR_OK);
    assert_int_equal(store_file_sync(*out), ERR_OK);
    assert_int_equal(store_disk_sync_dir(d, "."), ERR_OK);
    assert_int_equal(store_file_pwrite(*out, b, 1024, 0), ERR_OK);
    return d;
}

RT_BLOCKS
static void a_power_cut_keeps_each_unflushed_sector_whole_or_not_at_all(void **state)
{
    (void)state;
    bool seen[2][2] = {{false}};
    for (uint64_t seed = 1; seed <= 64; seed++) {
        struct store_file *f, *g;
        uint8_t p[1024];
        struct store_disk *d = unflushed_pair(seed, STORE_KEEP_RANDOM, &f);
        store_disk_faulty_cut(d);
        size_t n;
        assert_int_equal(store_file_pread(f, p, 1, 0, &n), ERR_IO);
        store_disk_faulty_reboot(d);
        assert_int_equal(store_file_pread(f, p, 1, 0, &n), ERR_IO); /* an old handle stays dead */
        assert_int_equal(store_file_open(d, "f", STORE_READ, &g), ERR_OK);
        assert_int_equal(store_file_read_all(g, p, 1024, 0), ERR_OK);
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < 512; i++)
                assert_int_equal(p[s * 512 + i], p[s * 512]);
        seen[p[0] == 'b'][p[512] == 'b'] = true;
        store_file_close(g);
        store_file_close(f);
        store_disk_destroy(d);
    }
    assert_true(seen[0][0] && seen[0][1] && seen[1][0] && seen[1][1]);
}

RT_BLOCKS
static void names_survive_only_when_their_directory_was_flushed(void **state)
{
    (void)state;
    struct store_disk *d;
    struct store_file *f;
    struct store_stat st;
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){.keep = STORE_KEEP_NONE}, &d), ERR_OK);
    assert_int_equal(store_file_open(d, "a", STORE_WRITE | STORE_CREATE, &f), ERR_OK);
    assert_int_equal(store_file_sync(f), ERR_OK);
    store_file_close(f);
    assert_int_equal(store_disk_sync_dir(d, "."), ERR_OK);
    assert_int_equal(store_disk_rename(d, "a", "b"), ERR_OK);
    store_disk_faulty_reboot(d);
    assert_int_equal(store_disk_stat(d, "b", &st), ERR_NOT_FOUND);
    assert_int_equal(store_disk_stat(d, "a", &st), ERR_OK);
    assert_int_equal(store_disk_rename(d, "a", "b"), ERR_OK);
    assert_int_equal(store_disk_sync_dir(d, "."), ERR_OK);
    store_disk_faulty_reboot(d);
    assert_int_equal(store_disk_stat(d, "b", &st), ERR_OK);
    assert_int_equal(store_disk_stat(d, "a", &st), ERR_NOT_FOUND);
    store_disk_destroy(d);
}

RT_BLOCKS
static void what_a_failed_flush_lost_a_later_one_does_not_bring_back(void **state)
{
    (void)state;
    bool lost = false;
    for (uint64_t seed = 1; seed <= 32; seed++) {
        struct store_file *f, *g;
        uint8_t p[1024];
        struct store_disk *d = unflushed_pair(seed, STORE_KEEP_NONE, &f);
        store_disk_faulty_plan(d, &(struct store_fault_plan){.eio_at = 1, .keep = STORE_KEEP_NONE});
        assert_int_equal(store_file_sync(f), ERR_IO);
        assert_int_equal(store_file_sync(f), ERR_OK); /* the trap that fail-closed exists for */
        store_disk_faulty_reboot(d);
        assert_int_equal(store_file_open(d, "f", STORE_READ, &g), ERR_OK);
        assert_int_equal(store_file_read_all(g, p, 1024, 0), ERR_OK);
        lost |= p[0] == 'a' || p[512] == 'a';
        store_file_close(g);
        store_file_close(f);
        store_disk_destroy(d);
    }
    assert_true(lost);
}

RT_BLOCKS
static void a_replacement_cut_at_any_call_leaves_the_old_or_the_new_file(void **state)
{
    (void)state;
    bool old_seen = false, new_seen = false;
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (uint64_t at = 1;; at++) {
            struct store_disk *d;
            struct buf b;
            buf_init(&b, 10000);
            char old[3000], new[3000];
            memset(old, 'o', sizeof old);
            memset(new, 'n', sizeof new);
            assert_int_equal(store_disk_faulty(seed * 1000 + at, NULL, &d), ERR_OK);
            assert_int_equal(store_file_replace(d, "f", bytes_of(old, sizeof old)), ERR_OK);
            store_disk_faulty_plan(d, &(struct store_fault_plan){.crash_at = at});
            enum err e = store_file_replace(d, "f", bytes_of(new, sizeof new));
            bool crashed = store_disk_faulty_fired(d);
            store_disk_faulty_plan(d, NULL);
            store_disk_faulty_reboot(d);
            assert_int_equal(store_file_slurp(d, "f", &b), ERR_OK);
            assert_int_equal(b.n, 3000);
            bool is_new = b.p[0] == 'n';
            assert_memory_equal(b.p, is_new ? new : old, 3000);
            assert_true(is_new || e != ERR_OK);
            old_seen |= !is_new;
            new_seen |= is_new && crashed;
            buf_fini(&b);
            store_disk_destroy(d);
            if (!crashed)
                break;
        }
    assert_true(old_seen && new_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_disk_keeps_the_contract),
        cmocka_unit_test(the_memory_disk_keeps_the_contract),
        cmocka_unit_test(the_faulty_disk_without_a_plan_keeps_the_contract),
        cmocka_unit_test(direct_writes_are_aligned_and_read_back_through_the_page_cache),
        cmocka_unit_test(a_full_memory_disk_says_so),
        cmocka_unit_test(a_power_cut_keeps_each_unflushed_sector_whole_or_not_at_all),
        cmocka_unit_test(names_survive_only_when_their_directory_was_flushed),
        cmocka_unit_test(what_a_failed_flush_lost_a_later_one_does_not_bring_back),
        cmocka_unit_test(a_replacement_cut_at_any_call_leaves_the_old_or_the_new_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
