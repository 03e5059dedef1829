/* Leaf directories in memory: shared, bounded, the least recently used goes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "services/edge/dirs.h"

static struct edge_dir dir_of(size_t n, uint64_t first_id)
{
    struct edge_dir d = {calloc(n, sizeof *d.list), n};
    assert_non_null(d.list);
    for (size_t i = 0; i < n; i++)
        d.list[i] = (struct edge_entry){.id = first_id + i, .offset = i, .length = 1, .run = 1};
    return d;
}

static struct edge_leaf *put(struct edge_dirs *d, uint64_t serial, uint64_t offset, size_t n, size_t most)
{
    struct edge_leaf *l = edge_dirs_put(d, serial, offset, dir_of(n, offset), most);
    assert_non_null(l);
    return l;
}

static void a_leaf_is_found_under_its_pack_and_place_only(void **state)
{
    (void)state;
    struct edge_dirs *d;
    assert_int_equal(edge_dirs_create(&d), ERR_OK);
    edge_leaf_unref(put(d, 1, 100, 10, 1 << 20));
    assert_null(edge_dirs_get(d, 2, 100));
    assert_null(edge_dirs_get(d, 1, 101));
    struct edge_leaf *l = edge_dirs_get(d, 1, 100);
    assert_non_null(l);
    assert_int_equal(l->dir.list[0].id, 100);
    edge_leaf_unref(l);
    edge_dirs_destroy(d);
}

static void the_least_recently_used_goes_and_who_has_it_keeps_it(void **state)
{
    (void)state;
    struct edge_dirs *d;
    enum { ENTRIES = 1000, MOST = 3 * (ENTRIES * 24 + 200) };
    assert_int_equal(edge_dirs_create(&d), ERR_OK);
    struct edge_leaf *first = put(d, 1, 0, ENTRIES, MOST);
    edge_leaf_unref(put(d, 1, 1, ENTRIES, MOST));
    edge_leaf_unref(put(d, 1, 2, ENTRIES, MOST));
    edge_leaf_unref(edge_dirs_get(d, 1, 0)); /* now 1 is the oldest */
    edge_leaf_unref(put(d, 1, 3, ENTRIES, MOST));
    assert_true(edge_dirs_bytes(d) <= MOST);
    assert_null(edge_dirs_get(d, 1, 1));
    struct edge_leaf *l = edge_dirs_get(d, 1, 0);
    assert_ptr_equal(l, first);
    edge_leaf_unref(l);
    for (uint64_t i = 4; i < 20; i++)
        edge_leaf_unref(put(d, 1, i, ENTRIES, MOST));
    assert_null(edge_dirs_get(d, 1, 0));
    assert_int_equal(first->dir.list[ENTRIES - 1].id, ENTRIES - 1); /* out of the cache, still ours */
    edge_leaf_unref(first);
    edge_dirs_destroy(d);
}

static void two_who_decode_the_same_leaf_share_one(void **state)
{
    (void)state;
    struct edge_dirs *d;
    assert_int_equal(edge_dirs_create(&d), ERR_OK);
    struct edge_leaf *a = put(d, 7, 5, 10, 1 << 20), *b = put(d, 7, 5, 10, 1 << 20);
    assert_ptr_equal(a, b);
    edge_leaf_unref(a);
    edge_leaf_unref(b);
    edge_dirs_destroy(d);
}

static void a_leaf_larger_than_the_cache_is_still_usable(void **state)
{
    (void)state;
    struct edge_dirs *d;
    assert_int_equal(edge_dirs_create(&d), ERR_OK);
    edge_leaf_unref(put(d, 1, 1, 10, 100));
    struct edge_leaf *l = put(d, 1, 2, 5000, 100);
    assert_int_equal(l->dir.n, 5000);
    edge_leaf_unref(l);
    assert_null(edge_dirs_get(d, 1, 1));
    edge_dirs_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_is_found_under_its_pack_and_place_only),
        cmocka_unit_test(the_least_recently_used_goes_and_who_has_it_keeps_it),
        cmocka_unit_test(two_who_decode_the_same_leaf_share_one),
        cmocka_unit_test(a_leaf_larger_than_the_cache_is_still_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
