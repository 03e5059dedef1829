/* One item of an index file, looked up while the service runs: the file's sum is not there to help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "services/mailbox/idx.h"
#include "store/file_replace.h"

enum { ITEMS = 5, BYTES = MAILBOX_IDX_HEADER + ITEMS * MAILBOX_IDX_ITEM + 4 };

static const uint8_t instance[16] = "an instance";
static const char *const path = "/d/00000007.idx";

static uint8_t *item(uint8_t *file, size_t k)
{
    return file + MAILBOX_IDX_HEADER + k * MAILBOX_IDX_ITEM;
}

/* docs/formats/mailbox.md */
static void make(uint8_t *file)
{
    memset(file, 0, BYTES);
    memcpy(file, "RONMIDX1", 8);
    le32_put(file + 8, 1);
    le32_put(file + 12, 3);
    le32_put(file + 16, 7);
    le32_put(file + 56, ITEMS);
    memcpy(file + 72, instance, 16);
    le32_put(file + MAILBOX_IDX_HEADER - 4, crc32c(0, file, MAILBOX_IDX_HEADER - 4));
    for (size_t k = 0; k < ITEMS; k++) {
        uint8_t *p = item(file, k);
        p[0] = MAILBOX_REC_ENQ;
        le32_put(p + 4, (uint32_t)(512 + 100 * k));
        le32_put(p + 8, 1);
        memset(p + 16, (int)(0x10 + k), 16);
        memset(p + 32, (int)(0x20 + k), 16);
        le64_put(p + 48, 1000 + k);
        memset(p + 64, (int)(0x30 + k), 16);
    }
    le32_put(file + BYTES - 4, crc32c(0, file + MAILBOX_IDX_HEADER, BYTES - MAILBOX_IDX_HEADER - 4));
}

static struct mailbox_entry entry_of(uint8_t *file, size_t k)
{
    const uint8_t *p = item(file, k);
    struct mailbox_entry e = {.segment = 7, .offset8 = le32_get(p + 4), .topic_seq = le32_get(p + 48)};
    memcpy(e.msg_id.b, p + 16, 16);
    memcpy(e.digest, p + 32, sizeof e.digest);
    return e;
}

static enum err find(struct store_disk *disk, const uint8_t *file, const struct mailbox_entry *e,
                     struct mailbox_rec *out) RT_BLOCKS
{
    struct mailbox_idx_place at = {disk, "/d", instance, 3};
    assert_int_equal(store_file_replace(disk, path, bytes_of(file, BYTES)), ERR_OK);
    return mailbox_idx_find(&at, e, out);
}

/* Whatever bit is wrong: a key is found as it was, or not at all; never another's, and never one that is taken for a new message. */
static void an_item_with_a_wrong_bit_is_not_used(void **state) RT_BLOCKS
{
    (void)state;
    struct store_disk *disk;
    uint8_t file[BYTES];
    struct mailbox_rec r;
    assert_int_equal(store_disk_memory(1 << 20, &disk), ERR_OK);
    assert_int_equal(store_disk_mkdirs(disk, "/d"), ERR_OK);
    make(file);
    for (size_t k = 0; k < ITEMS; k++) {
        struct mailbox_entry e = entry_of(file, k);
        assert_int_equal(find(disk, file, &e, &r), ERR_OK);
        assert_memory_equal(r.dedup.payload_hash.b, item(file, k) + 64, 16);
    }
    struct mailbox_entry e = entry_of(file, 2);
    unsigned refused = 0;
    for (size_t bit = 0; bit < BYTES * 8; bit++) {
        file[bit / 8] ^= (uint8_t)(1u << bit % 8);
        enum err err = find(disk, file, &e, &r);
        file[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (err == ERR_OK && memcmp(r.dedup.digest.b, e.digest, sizeof e.digest) != 0)
            fail_msg("bit %zu: another key", bit);
        if (err != ERR_OK && err != ERR_INTEGRITY && err != ERR_VERSION)
            fail_msg("bit %zu: error %d", bit, (int)err);
        refused += err != ERR_OK;
    }
    assert_true(refused >=
                MAILBOX_IDX_HEADER * 8 + (16 + 12 + 8 + 4) * 8); /* header, id, key, number, place */
    e.offset8++;
    assert_int_equal(find(disk, file, &e, &r), ERR_INTEGRITY); /* it said that it is there */
    e.segment = 8;
    assert_int_equal(find(disk, file, &e, &r), ERR_NOT_FOUND);
    store_disk_destroy(disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_item_with_a_wrong_bit_is_not_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
