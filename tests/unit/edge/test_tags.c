/* A tag file: what was put is found, also after it was opened again, and where nothing was put nobody looks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/check.h"
#include "services/edge/tags.h"
#include "store/disk_faulty.h"

enum { CONTENTS = 20000, PUT = 40 };

static struct edge_tag tag_of(uint64_t key)
{
    struct edge_tag t = {.key = key, .length = (uint32_t)key + 1};
    sha256_of(&key, sizeof key, &t.digest);
    return t;
}

static void is_there(const struct edge_tags *t, uint64_t key) RT_BLOCKS
{
    struct edge_tag want = tag_of(key), found;
    assert_int_equal(edge_tags_find(t, key, &found), ERR_OK);
    assert_int_equal(found.length, want.length);
    assert_true(sha256_eq(&found.digest, &want.digest));
    assert_int_equal(edge_tags_find_now(t, key, &found), ERR_OK);
}

static void open_at(struct edge_tags *t, struct store_disk *d) RT_BLOCKS
{
    const struct edge_tag_header want = {.file = {.size = 1}};
    assert_int_equal(edge_tags_open(t, d, "/tags", &want, CONTENTS, UINT64_MAX), ERR_OK);
}

static void where_nothing_was_put_nobody_looks(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *d;
    struct edge_tags t;
    struct edge_tag found;
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){0}, &d), ERR_OK);
    open_at(&t, d);
    uint64_t calls = store_disk_faulty_calls(d);
    for (uint64_t key = 0; key < CONTENTS; key++) {
        assert_int_equal(edge_tags_find(&t, key, &found), ERR_NOT_FOUND);
        assert_int_equal(edge_tags_find_now(&t, key, &found), ERR_NOT_FOUND);
    }
    assert_int_equal(store_disk_faulty_calls(d), calls);
    for (uint64_t key = 0; key < PUT; key++) {
        struct edge_tag tag = tag_of(key * 100);
        assert_int_equal(edge_tags_put(&t, &tag), ERR_OK);
    }
    for (uint64_t key = 0; key < PUT; key++)
        is_there(&t, key * 100);
    assert_int_equal(edge_tags_find(&t, 1, &found), ERR_NOT_FOUND);
    edge_tags_close(&t);
    store_disk_destroy(d);
}

/* Another process put it there: what this one knows of the file is nothing. */
static void what_is_found_again_is_looked_at(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *d;
    struct edge_tags t;
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){0}, &d), ERR_OK);
    open_at(&t, d);
    for (uint64_t key = 0; key < CONTENTS; key += 3) {
        struct edge_tag tag = tag_of(key);
        assert_int_equal(edge_tags_put(&t, &tag), ERR_OK);
    }
    edge_tags_close(&t);
    open_at(&t, d);
    for (uint64_t key = 0; key < CONTENTS; key += 3)
        is_there(&t, key);
    edge_tags_close(&t);
    store_disk_destroy(d);
}

static void a_write_that_failed_is_not_found(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *d;
    struct edge_tags t;
    struct edge_tag tag = tag_of(7), found;
    assert_int_equal(store_disk_faulty(1, &(struct store_fault_plan){0}, &d), ERR_OK);
    open_at(&t, d);
    store_disk_faulty_plan(d, &(struct store_fault_plan){.eio_at = 1});
    assert_int_equal(edge_tags_put(&t, &tag), ERR_IO);
    assert_int_equal(edge_tags_find(&t, 7, &found), ERR_NOT_FOUND);
    assert_int_equal(edge_tags_put(&t, &tag), ERR_OK);
    is_there(&t, 7);
    edge_tags_close(&t);
    store_disk_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_nothing_was_put_nobody_looks),
        cmocka_unit_test(what_is_found_again_is_looked_at),
        cmocka_unit_test(a_write_that_failed_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
