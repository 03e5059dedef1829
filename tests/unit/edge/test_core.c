/* The pure rules of the edge, with golden bytes: tile ids, archives, tag slots, refs.log records, names, addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hex.h"
#include "net/http_range.h"
#include "services/edge/core/accept.h"
#include "services/edge/core/address.h"
#include "services/edge/core/catalog.h"
#include "services/edge/core/fill_state.h"
#include "services/edge/core/name.h"
#include "services/edge/core/pack_id.h"
#include "services/edge/core/pmtiles.h"
#include "services/edge/core/pace.h"
#include "services/edge/core/retry.h"
#include "services/edge/core/tag_file.h"
#include "services/edge/core/tile.h"

#define G1_HEX "2386898e8c811ed73b80787aedb434b2ea70893603d91f0280980d1f94b711bb"
#define G3_HEX                                                                                             \
    "504d54696c6573037f0000000000000009000000000000008800000000000000110000000000000099000000000000000000" \
    "0000000000"                                                                                           \
    "0099000000000000000b00000000000000050000000000000002000000000000000200000000000000010101000001002eb6" \
    "94800756cd"                                                                                           \
    "00d2496b80f8a9320000000000000000000200010104060501007b226e616d65223a22676f6c64656e227d776f726c640a71" \
    "7561640a"

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    assert_int_equal(hex_decode(str_from_c(hex), out, n), ERR_OK);
    return n;
}

static void assert_hash_hex(const struct sha256 *h, const char *hex)
{
    char text[SHA256_HEX_CHARS];
    hex_encode(h->b, 32, text);
    assert_string_equal(text, hex);
}

static void assert_hash(const void *p, size_t n, const char *hex)
{
    struct sha256 h;
    sha256_of(p, n, &h);
    assert_hash_hex(&h, hex);
}

static struct sha256 hash_of_hex(const char *hex)
{
    struct sha256 h;
    unhex(hex, h.b);
    return h;
}

/* ---- tiles ---- */

static void g2_tile_ids_are_the_published_ones(void **state)
{
    static const struct {
        struct edge_tile t;
        uint64_t id;
    } rows[] = {{{0, 0, 0}, 0},
                {{1, 0, 0}, 1},
                {{1, 0, 1}, 2},
                {{1, 1, 1}, 3},
                {{1, 1, 0}, 4},
                {{2, 0, 0}, 5},
                {{12, 3423, 1763}, 19078479},
                {{18, 131072, 87381}, 81318047470},
                {{30, 0, 0}, 384307168202282325},
                {{30, 1073741823, 0}, 1537228672809129300}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct edge_tile back;
        assert_true(edge_tile_id(&rows[i].t) == rows[i].id);
        assert_int_equal(edge_tile_of_id(rows[i].id, &back), ERR_OK);
        assert_memory_equal(&back, &rows[i].t, sizeof back);
    }
    assert_int_equal(edge_tile_of_id(1537228672809129301, &(struct edge_tile){0}), ERR_RANGE);
    assert_int_equal(edge_tile_of_id(UINT64_MAX, &(struct edge_tile){0}), ERR_RANGE);
}

static void g2_mbtiles_keys_and_rows_count_from_the_south(void **state)
{
    struct edge_tile t = {12, 3423, 1763};
    (void)state;
    assert_true(edge_tile_mbtiles_key(&t) == 0x300001abe00006e3);
    assert_int_equal(edge_tile_tms_row(&t), 2332);
}

static void tile_addresses_have_one_spelling(void **state)
{
    static const struct {
        const char *z, *x, *y;
        enum err e;
    } rows[] = {{"0", "0", "0", ERR_OK},
                {"3", "7", "7.mvt", ERR_OK},
                {"3", "8", "0", ERR_RANGE},
                {"03", "0", "0", ERR_SYNTAX},
                {"3", "+1", "0", ERR_SYNTAX},
                {"3", "1", "0.", ERR_SYNTAX},
                {"31", "0", "0", ERR_RANGE},
                {"-1", "0", "0", ERR_SYNTAX},
                {"1", "", "0", ERR_SYNTAX},
                {"30", "1073741823", "0", ERR_OK},
                {"99999999999999999999999", "0", "0", ERR_RANGE}};
    struct edge_tile t;
    struct str ext;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(
            edge_tile_parse(str_from_c(rows[i].z), str_from_c(rows[i].x), str_from_c(rows[i].y), &t, &ext),
            rows[i].e);
    assert_int_equal(edge_tile_parse(STR("3"), STR("7"), STR("6.mvt"), &t, &ext), ERR_OK);
    assert_true(t.z == 3 && t.x == 7 && t.y == 6 && str_eq_c(ext, "mvt"));
}

/* ---- archives ---- */

static enum err read_memory(void *ctx, uint64_t offset, size_t n, uint8_t *out)
{
    const struct bytes *b = ctx;
    if (offset > b->n || n > b->n - offset)
        return ERR_RANGE;
    memcpy(out, b->p + offset, n);
    return ERR_OK;
}

static enum err open_archive(struct bytes file, struct edge_pmtiles_header *h, struct edge_dir *dir,
                             struct edge_fault *f)
{
    struct edge_pmtiles_limits limits = {1 << 20, 1 << 22};
    enum err e = edge_pmtiles_header_decode(file, file.n, h, f);
    return e == ERR_OK ? edge_pmtiles_walk(h, &limits, read_memory, &file, dir, f) : e;
}

static void g3_the_golden_archive_is_read_and_written_byte_for_byte(void **state)
{
    uint8_t file[200];
    size_t n = unhex(G3_HEX, file);
    struct edge_pmtiles_header h;
    struct edge_dir dir;
    struct edge_fault f = {""};
    struct buf out;
    (void)state;
    assert_int_equal(n, 164);
    assert_hash(file, n, "400bd189f0a7a09c4a81810fa8cd86fb8fa55a3691f22cfa8f2a222bf5e113b5");
    assert_int_equal(open_archive(bytes_of(file, n), &h, &dir, &f), ERR_OK);
    assert_int_equal(dir.n, 2);
    assert_true(dir.list[1].id == 1 && dir.list[1].run == 4 && dir.list[1].offset == 6 &&
                dir.list[1].length == 5);
    assert_ptr_equal(edge_dir_find(dir.list, dir.n, 4), &dir.list[1]);
    assert_null(edge_dir_find(dir.list, dir.n, 5));
    assert_hash(file + h.data.offset, 6,
                "e258d248fda94c63753607f7c4494ee0fcbe92f1a76bfdac795c9d84101eb317");
    assert_hash(file + h.data.offset + 6, 5,
                "4be81b9dd468f99aa44d0d16af7c782686fa6eb6f5f36801d50374bbd643fb38");
    free(dir.list);

    struct edge_pmtiles_tile tiles[5] = {{0, bytes_of("world\n", 6)}};
    for (size_t i = 1; i < 5; i++)
        tiles[i] = (struct edge_pmtiles_tile){i, bytes_of("quad\n", 5)};
    buf_init(&out, 4096);
    assert_int_equal(
        edge_pmtiles_write(&(struct edge_pmtiles_spec){.internal = EDGE_CODING_NONE,
                                                       .tiles = EDGE_CODING_NONE,
                                                       .type = h.type,
                                                       .zoom_max = 1,
                                                       .metadata = STR("{\"name\":\"golden\"}"),
                                                       .west_e7 = h.west_e7,
                                                       .south_e7 = h.south_e7,
                                                       .east_e7 = h.east_e7,
                                                       .north_e7 = h.north_e7},
                           tiles, 5, &out),
        ERR_OK);
    assert_int_equal(out.n, n);
    assert_memory_equal(out.p, file, n);
    buf_fini(&out);
}

static void malformed_archives_are_refused_with_a_reason(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } rows[] = {{0, 'X'},   {7, 2},    {7, 4},      {8, 0},     {9, 0x40},   {15, 0x80},
                {16, 0},    {17, 1},   {24, 0xff},  {32, 0xff}, {47, 1},     {56, 0xff},
                {64, 0xff}, {97, 0},   {97, 3},     {97, 9},    {98, 9},     {99, 7},
                {100, 2},   {101, 31}, {127, 0},    {127, 3},   {128, 0x80}, {129, 0},
                {130, 9},   {132, 0},  {132, 0x7f}, {134, 0},   {135, 9},    {135, 0x80}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t file[200];
        size_t n = unhex(G3_HEX, file);
        struct edge_pmtiles_header h;
        struct edge_dir dir;
        struct edge_fault f = {""};
        file[rows[i].at] = rows[i].value;
        /* 129 is the second id's difference and 130 a run length: 0 there means "does not rise" and "leaf". */
        enum err e = open_archive(bytes_of(file, n), &h, &dir, &f);
        if (e == ERR_OK)
            print_error("row %zu (byte %zu = %u) was accepted\n", i, rows[i].at, rows[i].value);
        assert_int_not_equal(e, ERR_OK);
        assert_true(f.text[0] != 0);
    }
}

static void every_truncation_of_an_archive_is_refused(void **state)
{
    uint8_t file[200];
    size_t n = unhex(G3_HEX, file);
    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        struct edge_pmtiles_header h;
        struct edge_dir dir;
        struct edge_fault f = {""};
        assert_int_not_equal(open_archive(bytes_of(file, cut), &h, &dir, &f), ERR_OK);
    }
}

static void a_bomb_is_stopped_at_the_limit(void **state)
{
    struct buf zeros, packed, out;
    (void)state;
    buf_init(&zeros, 1 << 20);
    buf_init(&packed, 2 << 20);
    buf_init(&out, 4096);
    memset(buf_reserve(&zeros, 1 << 20), 0, 1 << 20);
    buf_commit(&zeros, 1 << 20);
    assert_int_equal(edge_gzip(buf_bytes(&zeros), &packed), ERR_OK);
    assert_int_equal(edge_inflate(EDGE_CODING_GZIP, buf_bytes(&packed), &out), ERR_TOO_LARGE);
    buf_fini(&out);
    buf_init(&out, 1 << 20);
    assert_int_equal(edge_inflate(EDGE_CODING_GZIP, buf_bytes(&packed), &out), ERR_OK);
    assert_int_equal(out.n, 1 << 20);
    buf_reset(&out);
    assert_int_equal(edge_inflate(EDGE_CODING_GZIP, bytes_of(packed.p, packed.n - 1), &out), ERR_CORRUPT);
    assert_int_equal(edge_inflate(EDGE_CODING_BROTLI, buf_bytes(&packed), &out),
                     ERR_UNSUPPORTED_MEDIA_TYPE);
    buf_fini(&out);
    buf_fini(&packed);
    buf_fini(&zeros);
}

/* ---- pack ids and tags ---- */

static void g3_pack_ids_and_tag_slots_are_the_golden_ones(void **state)
{
    uint8_t file[200], slot[EDGE_TAG_SLOT], want[EDGE_TAG_SLOT], page[EDGE_TAG_PAGE] = {0};
    size_t n = unhex(G3_HEX, file);
    struct sha256 id;
    struct sha256_ctx c;
    struct edge_tag back;
    (void)state;
    edge_pack_id(EDGE_PACK_PMTILES, &(struct edge_file_id){1, 2, n, 3, 4}, bytes_of(file, n), &id);
    assert_hash_hex(&id, "7363fadd0b19498622d067cb18edc0a9bae02de38aa20bd0d814690f7932aa18");
    struct sha256 hello = hash_of_hex(G1_HEX);
    edge_dir_id_begin(&c);
    edge_dir_id_add(&c, STR("hello.txt"), &hello);
    sha256_final(&c, &id);
    assert_hash_hex(&id, "e20c3df25188a5acbf951f3e4be68231b0e7ef27e62b32e9b43bd4466a2e25c3");

    struct edge_tag quad = {
        6, 5, hash_of_hex("4be81b9dd468f99aa44d0d16af7c782686fa6eb6f5f36801d50374bbd643fb38")};
    edge_tag_encode(&quad, slot);
    unhex(
        "070000000000000005000000cc5119414be81b9dd468f99aa44d0d16af7c782686fa6eb6f5f36801d50374bbd643fb38",
        want);
    assert_memory_equal(slot, want, sizeof slot);
    assert_int_equal(edge_tag_bucket(6, 16), 5);
    assert_int_equal(edge_tag_bucket(6, 1), 0);
    assert_int_equal(edge_tag_place(page, 6), 0);
    memcpy(page + EDGE_TAG_FIRST + 7 * EDGE_TAG_SLOT, slot, sizeof slot);
    assert_int_equal(edge_tag_find(page, 6, &back), 7);
    assert_int_equal(edge_tag_place(page, 6), 7);
    page[EDGE_TAG_FIRST + 7 * EDGE_TAG_SLOT + 20] ^= 1;
    assert_int_equal(edge_tag_find(page, 6, &back), -1);
}

static void tag_headers_come_back_and_any_flipped_bit_is_seen(void **state)
{
    uint8_t page[EDGE_TAG_PAGE];
    struct edge_tag_header h = {.kind = 1, .buckets = 16, .file = {1, 2, 164, 3, 4}, .sealed_ms = 9}, back;
    (void)state;
    edge_tag_header_encode(&h, page);
    assert_int_equal(edge_tag_header_decode(page, &back), ERR_OK);
    assert_memory_equal(&back, &h, sizeof h);
    for (size_t bit = 0; bit < 144 * 8; bit++) {
        page[bit / 8] = (uint8_t)(page[bit / 8] ^ (1u << bit % 8));
        assert_int_not_equal(edge_tag_header_decode(page, &back), ERR_OK);
        page[bit / 8] = (uint8_t)(page[bit / 8] ^ (1u << bit % 8));
    }
    assert_int_equal(edge_tag_buckets(0), 1);
    assert_int_equal(edge_tag_buckets(42), 1);
    assert_int_equal(edge_tag_buckets(43), 2);
    assert_int_equal(edge_tag_buckets(87000), 4096);
}

/* ---- refs.log ---- */

static void g4_log_header_and_record_are_the_golden_ones(void **state)
{
    uint8_t head[EDGE_LOG_HEADER], want[256];
    struct edge_record r = {.type = EDGE_PUT_REF,
                            .name = STR("fonts/a.woff2"),
                            .mime = STR("font/woff2"),
                            .etag = STR("\"v1\""),
                            .size = 11,
                            .fetched_ms = 1760710982000,
                            .valid_until_ms = 1760710982000 + 86400000,
                            .since_ms = 1760710983000,
                            .digest = hash_of_hex(G1_HEX)},
                       back;
    struct buf b;
    uint64_t created;
    size_t n;
    (void)state;
    edge_log_header_encode(EDGE_LOG_REFS, 1760710982000, head);
    unhex("524f4e4552454631010000000000000070798df299010000000000005623ec87", want);
    assert_memory_equal(head, want, sizeof head);
    assert_int_equal(edge_log_header_decode(EDGE_LOG_REFS, bytes_of(head, sizeof head), &created), ERR_OK);
    assert_true(created == 1760710982000);
    assert_int_equal(edge_log_header_decode(EDGE_LOG_DIX, bytes_of(head, sizeof head), &created),
                     ERR_CORRUPT);

    buf_init(&b, 4096);
    edge_record_encode(&r, &b);
    n = unhex("63000000810cd1c801000d000a0004000b0000000000000070798df29901000070d5b3f799010000587d8df29901"
              "00002386898e8c81"
              "1ed73b80787aedb434b2ea70893603d91f0280980d1f94b711bb666f6e74732f612e776f666632666f6e742f776f"
              "66663222763122",
              want);
    assert_int_equal(b.n, n);
    assert_memory_equal(b.p, want, n);
    assert_hash(b.p, b.n, "0015f5c7eca44011164580cf798414873e94ccb4f18df855c56d356dcb1ae51b");
    assert_int_equal(edge_record_decode(buf_bytes(&b), &back, &n), ERR_OK);
    assert_int_equal(n, b.n);
    assert_true(str_eq(back.name, r.name) && str_eq(back.etag, r.etag) &&
                back.valid_until_ms == r.valid_until_ms);
    buf_fini(&b);
}

static void unknown_records_with_a_good_crc_are_a_newer_version(void **state)
{
    struct buf b;
    struct edge_record r;
    size_t n;
    (void)state;
    buf_init(&b, 4096);
    edge_record_encode(&(struct edge_record){.type = EDGE_DEL_REF, .name = STR("a")}, &b);
    assert_int_equal(edge_record_decode(buf_bytes(&b), &r, &n), ERR_OK);
    assert_int_equal(edge_record_decode(bytes_of(b.p, b.n - 1), &r, &n), ERR_TORN);
    assert_int_equal(edge_record_decode(bytes_of(b.p, 0), &r, &n), ERR_EMPTY);
    uint8_t newer[] = {4, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0};
    le32_put(newer + 4, crc32c(0, newer + 8, 4));
    assert_int_equal(edge_record_decode(bytes_of(newer, sizeof newer), &r, &n), ERR_VERSION);
    buf_fini(&b);
}

static void since_never_goes_back_over_a_rollback(void **state)
{
    (void)state;
    assert_true(edge_since_next(1000500, 0) == 1001);
    assert_true(edge_since_next(1000500, 1001) == 1002);
    assert_true(edge_since_next(500, 5000) == 5001);
    assert_true(edge_since_next(-5, 0) == 1);
}

static void eviction_takes_the_least_recently_used_down_to_95_percent(void **state)
{
    struct edge_catalog c;
    struct sha256 *gone, d[20];
    size_t n;
    (void)state;
    assert_int_equal(edge_catalog_init(&c), ERR_OK);
    for (uint32_t i = 0; i < 20; i++) {
        sha256_of(&i, sizeof i, &d[i]);
        assert_int_equal(edge_catalog_adopt(&c, &d[i], 100, 1000 + (i * 7) % 20), ERR_OK);
    }
    assert_int_equal(
        edge_catalog_victims(&c, &(struct edge_limits){.bytes = 2000, .objects = 100}, &gone, &n), ERR_OK);
    assert_int_equal(n, 0);
    free(gone);
    assert_int_equal(
        edge_catalog_victims(&c, &(struct edge_limits){.bytes = 1999, .objects = 100}, &gone, &n), ERR_OK);
    assert_int_equal(n, 2); /* 2000 -> 1800 <= 1899 */
    assert_true(sha256_eq(&gone[0], &d[0]) && sha256_eq(&gone[1], &d[3]));
    free(gone);
    assert_int_equal(
        edge_catalog_victims(&c, &(struct edge_limits){.bytes = 1 << 20, .objects = 10}, &gone, &n),
        ERR_OK);
    assert_int_equal(n, 11); /* 95 % of 10 is 9 */
    free(gone);
    assert_int_equal(
        edge_catalog_victims(&c, &(struct edge_limits){.bytes = 1 << 20, .objects = 100, .force = true},
                             &gone, &n),
        ERR_OK);
    assert_int_equal(n, 1); /* 5 % of 2000 bytes */
    free(gone);
    edge_catalog_fini(&c);
}

/* The clock stands still: only the order of uses tells old from new, and what was just stored is spared altogether. */
static void an_object_is_not_evicted_in_the_second_it_was_stored(void **state)
{
    struct edge_catalog c;
    struct sha256 *gone, d[20];
    size_t n;
    (void)state;
    assert_int_equal(edge_catalog_init(&c), ERR_OK);
    for (uint32_t i = 0; i < 20; i++) {
        sha256_of(&i, sizeof i, &d[i]);
        assert_int_equal(edge_catalog_adopt(&c, &d[i], 100, 1000), ERR_OK);
        edge_catalog_use(&c, edge_catalog_object(&c, &d[i]), 1000000);
    }
    edge_catalog_use(&c, edge_catalog_object(&c, &d[0]), 1000999); /* asked for again */
    assert_int_equal(
        edge_catalog_victims(&c, &(struct edge_limits){.bytes = 1999, .objects = 100}, &gone, &n), ERR_OK);
    assert_int_equal(n, 2);
    assert_true(sha256_eq(&gone[0], &d[1]) && sha256_eq(&gone[1], &d[2]));
    free(gone);
    /* One object that alone is more than the store may hold, stored by the 21st use. */
    assert_int_equal(edge_catalog_adopt(&c, &(struct sha256){{1}}, 5000, 1000), ERR_OK);
    edge_catalog_use(&c, edge_catalog_object(&c, &(struct sha256){{1}}), 1000000);
    struct edge_limits tight = {.bytes = 2000, .objects = 100, .spare_from = c.uses};
    assert_int_equal(edge_catalog_victims(&c, &tight, &gone, &n), ERR_OK);
    assert_int_equal(n, 20); /* all others, and not it */
    for (size_t i = 0; i < n; i++)
        assert_false(sha256_eq(&gone[i], &(struct sha256){{1}}));
    free(gone);
    tight.spare_from = 0;
    assert_int_equal(edge_catalog_victims(&c, &tight, &gone, &n), ERR_OK);
    assert_int_equal(n, 21); /* the next time it goes too */
    free(gone);
    edge_catalog_fini(&c);
}

/* More than are looked up ahead, strangers among them. */
static void many_objects_are_found_and_touched_each_by_its_digest(void **state)
{
    struct edge_catalog c;
    struct sha256 d[100];
    struct buf touches;
    (void)state;
    assert_int_equal(edge_catalog_init(&c), ERR_OK);
    assert_int_equal(edge_catalog_expect(&c, 81 * 50), ERR_OK);
    size_t room = c.objects.mask;
    buf_init(&touches, sizeof d * 2);
    for (uint32_t i = 0; i < 100; i++) {
        sha256_of(&i, sizeof i, &d[i]);
        edge_touch_put(&touches, &d[i], 2000 + i);
        if (i % 2)
            assert_int_equal(edge_catalog_adopt(&c, &d[i], 1, 1000), ERR_OK);
    }
    assert_int_equal(c.objects.mask, room);
    edge_catalog_found(&c, d, 50);
    assert_int_equal(
        edge_catalog_apply(&c, &(struct edge_record){.type = EDGE_TOUCH, .touches = buf_bytes(&touches)}),
        ERR_OK);
    for (uint32_t i = 0; i < 100; i++) {
        const struct edge_object *o = edge_catalog_object(&c, &d[i]);
        assert_true(i % 2 ? o->found == (i < 50) && o->last_use_s == 2000 + i : o == NULL);
    }
    buf_fini(&touches);
    edge_catalog_fini(&c);
}

static void removing_an_object_removes_every_name_of_it(void **state)
{
    struct edge_catalog c;
    struct edge_record r = {.type = EDGE_PUT_REF, .name = STR("a"), .mime = STR("x/y"), .size = 5};
    (void)state;
    assert_int_equal(edge_catalog_init(&c), ERR_OK);
    assert_int_equal(edge_catalog_apply(&c, &r), ERR_OK);
    r.name = STR("b");
    assert_int_equal(edge_catalog_apply(&c, &r), ERR_OK);
    r.name = STR("c");
    r.digest.b[0] = 1;
    assert_int_equal(edge_catalog_apply(&c, &r), ERR_OK);
    assert_int_equal(c.bytes, 10);
    r = (struct edge_record){.type = EDGE_DEL_OBJ};
    assert_int_equal(edge_catalog_apply(&c, &r), ERR_OK);
    assert_null(edge_catalog_ref(&c, STR("a")));
    assert_null(edge_catalog_ref(&c, STR("b")));
    assert_non_null(edge_catalog_ref(&c, STR("c")));
    assert_int_equal(c.bytes, 5);
    edge_catalog_fini(&c);
}

/* ---- names, URLs, headers ---- */

static void paths_are_decoded_once_and_strictly(void **state)
{
    static const struct {
        const char *raw, *name;
    } rows[] = {{"hello.txt", "hello.txt"},
                {"a/b%20c.txt", "a/b c.txt"},
                {"%C3%A4", "\xc3\xa4"},
                {"..a/b..", "..a/b.."},
                {"", NULL},
                {"/a", NULL},
                {"a//b", NULL},
                {"a/", NULL},
                {"a/../b", NULL},
                {"./a", NULL},
                {"a/%2e%2e/b", NULL},
                {"a%2Fb", NULL},
                {"a%00b", NULL},
                {"a%0ab", NULL},
                {"a%7f", NULL},
                {"a%5cb", NULL},
                {"a%", NULL},
                {"a%2", NULL},
                {"a%zz", NULL},
                {"%ff", NULL},
                {"%C3", NULL},
                {"%252e%252e/x", "%2e%2e/x"}};
    char out[64];
    struct str name;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum err e = edge_name_decode(str_from_c(rows[i].raw), out, &name);
        assert_int_equal(e, rows[i].name ? ERR_OK : ERR_SYNTAX);
        if (rows[i].name)
            assert_true(str_eq_c(name, rows[i].name));
    }
    char longest[1025];
    memset(longest, 'a', sizeof longest);
    assert_true(edge_name_ok(str_of(longest, 1024)));
    assert_false(edge_name_ok(str_of(longest, 1025)));
}

static void routes_are_chosen_by_the_longest_prefix(void **state)
{
    const struct str p[] = {STR_INIT("fonts/"), STR_INIT("fonts/noto/"), STR_INIT("img/")};
    struct buf b;
    (void)state;
    assert_int_equal(edge_route_find(p, 3, STR("fonts/a")), 0);
    assert_int_equal(edge_route_find(p, 3, STR("fonts/noto/b")), 1);
    assert_int_equal(edge_route_find(p, 3, STR("fonts/")), -1);
    assert_int_equal(edge_route_find(p, 3, STR("font")), -1);
    buf_init(&b, 1024);
    edge_url_write(STR("https://h/x/"), STR("a b/\xc3\xa4?#%.txt"), STR("v=1"), &b);
    assert_string_equal(buf_cstr(&b), "https://h/x/a%20b/%C3%A4%3F%23%25.txt?v=1");
    buf_fini(&b);
}

static void origins_are_https_and_redirects_stay_below_them(void **state)
{
    static const char *const bad[] = {
        "http://a/",       "https://u@a/",        "https://a",     "https://a/x",  "https://a/?q=1/",
        "https://a:0/",    "https://a:99999/",    "ftp://a/",      "https:///",    "https://a b/",
        "https://a/../b/", "https://a/%2e%2e/b/", "https://[::1/", "https://a/#/", ""};
    static const struct {
        const char *url;
        bool below;
    } rows[] = {
        {"https://cdn.example/fonts/a", true},       {"https://CDN.example:443/fonts/a?x", true},
        {"https://cdn.example/other/a", false},      {"http://cdn.example/fonts/a", false},
        {"https://cdn.example:444/fonts/a", false},  {"https://cdn.example.evil/fonts/a", false},
        {"https://cdn.example/fonts/../x", false},   {"https://cdn.example/fonts/%2E%2e/x", false},
        {"https://cdn.example@evil/fonts/a", false}, {"https://evil/https://cdn.example/fonts/", false}};
    struct edge_origin o;
    struct buf b;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(edge_origin_parse(str_from_c(bad[i]), false, &o), ERR_SYNTAX);
    assert_int_equal(edge_origin_parse(STR("http://127.0.0.1:80/"), false, &o), ERR_SYNTAX);
    assert_int_equal(edge_origin_parse(STR("http://127.0.0.1:80/"), true, &o), ERR_OK);
    assert_int_equal(edge_origin_parse(STR("http://[::1]:80/"), true, &o), ERR_OK);
    static const char *const names[] = {"localhost",  "127.example", "127.0.0.1.example", "127.0.0.example",
                                        "127.0.0.1.", "127.1",       "127.0.0.256",       "127.0.0.01",
                                        "128.0.0.1",  "2130706433",  "0x7f.0.0.1",        "[::2]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char url[64];
        snprintf(url, sizeof url, "http://%s/", names[i]);
        assert_int_equal(edge_origin_parse(str_from_c(url), true, &o), ERR_SYNTAX);
    }
    assert_int_equal(edge_origin_parse(STR("https://cdn.example/fonts/"), false, &o), ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(edge_url_below(str_from_c(rows[i].url), &o), rows[i].below);
    buf_init(&b, 1024);
    assert_int_equal(edge_url_resolve(STR("https://h/a/b?c"), STR("d"), &b), ERR_OK);
    assert_string_equal(buf_cstr(&b), "https://h/a/d");
    buf_reset(&b);
    assert_int_equal(edge_url_resolve(STR("https://h/a/b"), STR("//evil/x"), &b), ERR_OK);
    assert_string_equal(buf_cstr(&b), "https://evil/x");
    buf_reset(&b);
    assert_int_equal(edge_url_resolve(STR("https://h/a/b"), STR("/x#frag"), &b), ERR_OK);
    assert_string_equal(buf_cstr(&b), "https://h/x");
    buf_reset(&b);
    assert_int_equal(edge_url_resolve(STR("https://h/a/b"), STR("a b"), &b), ERR_SYNTAX);
    buf_reset(&b);
    assert_int_equal(edge_url_resolve(STR("https://h/a/b?c"), STR("?d"), &b), ERR_OK);
    assert_string_equal(buf_cstr(&b), "https://h/a/b?d");
    /* what is absolute and not to be followed is no path below the origin either */
    static const char *const absolute[] = {"https://me@h/a/c", "https://h:99999/a/c", "https:/a/c",
                                           "ftp://h/a/c",      "file:///a/c",         "data:,x",
                                           "x-y+z.1:c"};
    for (size_t i = 0; i < sizeof absolute / sizeof *absolute; i++) {
        buf_reset(&b);
        assert_int_equal(edge_url_resolve(STR("https://h/a/b"), str_from_c(absolute[i]), &b), ERR_SYNTAX);
    }
    buf_fini(&b);
}

static void private_addresses_are_refused_in_every_disguise(void **state)
{
    static const struct {
        const char *hex;
        bool ok;
    } rows[] = {{"00000000000000000000ffff08080808", true},  {"00000000000000000000ffff7f000001", false},
                {"00000000000000000000ffff0a000001", false}, {"00000000000000000000ffffac100001", false},
                {"00000000000000000000ffffac200001", true},  {"00000000000000000000ffffc0a80001", false},
                {"00000000000000000000ffffa9fea9fe", false}, {"00000000000000000000ffff64400001", false},
                {"00000000000000000000ffff00000000", false}, {"00000000000000000000ffffe0000001", false},
                {"00000000000000000000fffff0000001", false}, {"00000000000000000000000000000001", false},
                {"00000000000000000000000000000000", false}, {"fe800000000000000000000000000001", false},
                {"fc000000000000000000000000000001", false}, {"fd000000000000000000000000000001", false},
                {"ff020000000000000000000000000001", false}, {"20010db8000000000000000000000001", false},
                {"2606470000000000000000000000aaaa", true},  {"0064ff9b00000000000000007f000001", false},
                {"0064ff9b000000000000000008080808", true},  {"20027f00000100000000000000000001", false},
                {"20020808080800000000000000000001", true},  {"0064ff9b000100000000000008080808", false},
                {"20010000000000000000000000000001", false}, {"01000000000000000000000000000001", false}};
    struct edge_cidr loopback = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127}, 104};
    uint8_t addr[16];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unhex(rows[i].hex, addr);
        assert_int_equal(edge_address_ok(addr, NULL, 0), rows[i].ok);
    }
    unhex(rows[1].hex, addr);
    assert_true(edge_address_ok(addr, &loopback, 1));
    unhex(rows[2].hex, addr);
    assert_false(edge_address_ok(addr, &loopback, 1));
}

static void codings_are_accepted_as_rfc_9110_says(void **state)
{
    static const struct {
        const char *header;
        bool gzip, zstd;
    } rows[] = {{NULL, false, false},
                {"", false, false},
                {"gzip", true, false},
                {"gzip, zstd", true, true},
                {"GZIP;q=0.5", true, false},
                {"gzip;q=0", false, false},
                {"*", true, true},
                {"*;q=0", false, false},
                {"gzip;q=0, *", false, true},
                {"x-gzip", true, false},
                {"gzip;q=1.001", false, false},
                {"gzip;q=", false, false},
                {"gzip;x=1", false, false},
                {"gz ip", false, false},
                {"br, gzip;q=0.001", true, false},
                {"identity", false, false},
                {",gzip,,", true, false},
                {"gzip ; q=0.8", true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str h = rows[i].header ? str_from_c(rows[i].header) : (struct str){NULL, 0};
        assert_int_equal(edge_accepts(h, EDGE_CODING_GZIP), rows[i].gzip);
        assert_int_equal(edge_accepts(h, EDGE_CODING_ZSTD), rows[i].zstd);
        assert_true(edge_accepts(h, EDGE_CODING_NONE));
    }
}

static void preferences_that_make_no_sense_are_ignored(void **state)
{
    (void)state;
    struct edge_prefer p = edge_prefer_parse(STR("respond-async, wait=2"));
    assert_true(p.async && p.wait_s == 2);
    p = edge_prefer_parse(STR("wait=100 , Respond-Async"));
    assert_true(p.async && p.wait_s == 5);
    p = edge_prefer_parse(STR("respond-async=1, wait=x, foo"));
    assert_true(!p.async && p.wait_s == 0);
    p = edge_prefer_parse((struct str){NULL, 0});
    assert_true(!p.async);
    assert_true(edge_wants_digest(STR("sha-512=3, sha-256=10")));
    assert_false(edge_wants_digest(STR("sha-256=0")));
    assert_false(edge_wants_digest(STR("sha-512=1")));
}

static void back_off_follows_its_formula_and_saturates(void **state)
{
    struct edge_retry r = {50, 800, 2, true};
    (void)state;
    for (unsigned n = 0; n <= 40; n++) {
        uint64_t step = n < 5 ? 50u << n : 800;
        if (step > 800)
            step = 800;
        assert_true(edge_retry_sleep_ms(&r, n, 0) == step);
        assert_true(edge_retry_sleep_ms(&r, n, 50) == step + 50);
        assert_true(edge_retry_sleep_ms(&r, n, 51) == step);
        assert_true(edge_retry_sleep_ms(&r, n, UINT64_MAX) <= step + 50);
    }
    assert_true(edge_retry_job_ms(&r, 5000) == 3 * 5000 + 50 + 50 + 100 + 50);
    assert_true(edge_retry_job_ms(&r, UINT64_MAX / 2) == UINT64_MAX);
    r.jitter = false;
    assert_true(edge_retry_sleep_ms(&r, 1, 77) == 100);
    assert_true(edge_retry_status(503) && edge_retry_status(504) && !edge_retry_status(502) &&
                !edge_retry_status(500));
}

static void a_fill_only_moves_along_its_table(void **state)
{
    (void)state;
    enum edge_fill_state s = EDGE_FILL_RESERVED;
    edge_fill_move(&s, EDGE_FILL_QUEUED);
    edge_fill_move(&s, EDGE_FILL_FETCHING);
    edge_fill_move(&s, EDGE_FILL_BACKOFF);
    edge_fill_move(&s, EDGE_FILL_FETCHING);
    edge_fill_move(&s, EDGE_FILL_COMMITTING);
    assert_false(edge_fill_may(s, EDGE_FILL_FETCHING));
    assert_false(edge_fill_may(s, EDGE_FILL_CANCELED));
    edge_fill_move(&s, EDGE_FILL_DONE);
    for (int to = 0; to < EDGE_FILL_STATES; to++)
        assert_false(edge_fill_may(s, (enum edge_fill_state)to));
    assert_true(edge_fill_ended(s) && !edge_fill_ended(EDGE_FILL_QUEUED));
}

static void g1_two_parts_are_208_bytes_with_the_golden_digest(void **state)
{
    static const char body[] = "hello-edge\n";
    struct net_range r[] = {{0, 1}, {4, 5}};
    struct str boundary = STR("RONBOUNDARY0123456789abc");
    struct buf b;
    (void)state;
    assert_hash(body, 11, G1_HEX);
    buf_init(&b, 1024);
    for (size_t i = 0; i < 2; i++) {
        net_multipart_head(&b, i == 0, boundary, STR("text/plain"), &r[i], 11);
        buf_put(&b, body + r[i].first, (size_t)(r[i].last - r[i].first + 1));
    }
    net_multipart_tail(&b, boundary);
    assert_int_equal(b.n, 208);
    assert_hash(b.p, b.n, "3aa2a2b79bf9b11670c1b0665b514229697cb69cd15eb57e164334a126f27621");
    buf_fini(&b);
}

static void background_work_takes_short_turns_and_rests_longer_while_others_stand_in_line(void **state)
{
    (void)state;
    struct edge_pace p;
    struct edge_pace_now now = {.cpu_ns = 7, .wall_ns = 1000};
    edge_pace_begin(&p, now);
    now.cpu_ns += EDGE_PACE_TURN_NS - 1;
    now.wall_ns += EDGE_PACE_TURN_NS - 1;
    assert_true(edge_pace_turn(&p, now, 4096, 0) == 0); /* a turn is not over before its time */
    now.cpu_ns++;
    now.wall_ns++;
    assert_true(edge_pace_turn(&p, now, 4096, 0) == now.wall_ns + EDGE_PACE_REST_NS);
    now.wall_ns += EDGE_PACE_REST_NS + EDGE_PACE_STOOD_NS + EDGE_PACE_TURN_NS; /* woken late, and */
    now.cpu_ns += EDGE_PACE_TURN_NS;                                           /* nobody was served */
    assert_true(edge_pace_turn(&p, now, 4096, 0) == now.wall_ns + EDGE_PACE_REST_NS);
    now.wall_ns += EDGE_PACE_REST_NS + EDGE_PACE_STOOD_NS + EDGE_PACE_TURN_NS;
    now.cpu_ns += EDGE_PACE_TURN_NS;
    now.served++;
    assert_true(edge_pace_turn(&p, now, 4096, 0) == now.wall_ns + EDGE_PACE_CROWDED_REST_NS);
    int64_t stood_ns = now.wall_ns;
    now.wall_ns += EDGE_PACE_CROWDED_REST_NS + EDGE_PACE_TURN_NS; /* for a while */
    now.cpu_ns += EDGE_PACE_TURN_NS;
    assert_true(edge_pace_turn(&p, now, 4096, 0) == now.wall_ns + EDGE_PACE_CROWDED_REST_NS);
    now.wall_ns = stood_ns + EDGE_PACE_REMEMBER_NS;
    edge_pace_fresh(&p, now);
    now.wall_ns += EDGE_PACE_TURN_NS;
    now.cpu_ns += EDGE_PACE_TURN_NS;
    assert_true(edge_pace_turn(&p, now, 4096, 0) == now.wall_ns + EDGE_PACE_REST_NS);
}

static void background_work_keeps_to_its_rate(void **state)
{
    (void)state;
    struct edge_pace p;
    struct edge_pace_now now = {.wall_ns = 5};
    edge_pace_begin(&p, now);
    assert_true(edge_pace_turn(&p, now, 1 << 20, 1 << 20) == 5 + 1000000000);
    now.wall_ns = 5 + 1000000000;
    assert_true(edge_pace_turn(&p, now, 1 << 19, 1 << 20) == now.wall_ns + 500000000);
    edge_pace_begin(&p, now);
    assert_true(edge_pace_turn(&p, now, UINT64_MAX, 1) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g1_two_parts_are_208_bytes_with_the_golden_digest),
        cmocka_unit_test(g2_tile_ids_are_the_published_ones),
        cmocka_unit_test(g2_mbtiles_keys_and_rows_count_from_the_south),
        cmocka_unit_test(tile_addresses_have_one_spelling),
        cmocka_unit_test(g3_the_golden_archive_is_read_and_written_byte_for_byte),
        cmocka_unit_test(malformed_archives_are_refused_with_a_reason),
        cmocka_unit_test(every_truncation_of_an_archive_is_refused),
        cmocka_unit_test(a_bomb_is_stopped_at_the_limit),
        cmocka_unit_test(g3_pack_ids_and_tag_slots_are_the_golden_ones),
        cmocka_unit_test(tag_headers_come_back_and_any_flipped_bit_is_seen),
        cmocka_unit_test(g4_log_header_and_record_are_the_golden_ones),
        cmocka_unit_test(unknown_records_with_a_good_crc_are_a_newer_version),
        cmocka_unit_test(since_never_goes_back_over_a_rollback),
        cmocka_unit_test(eviction_takes_the_least_recently_used_down_to_95_percent),
        cmocka_unit_test(an_object_is_not_evicted_in_the_second_it_was_stored),
        cmocka_unit_test(many_objects_are_found_and_touched_each_by_its_digest),
        cmocka_unit_test(removing_an_object_removes_every_name_of_it),
        cmocka_unit_test(paths_are_decoded_once_and_strictly),
        cmocka_unit_test(routes_are_chosen_by_the_longest_prefix),
        cmocka_unit_test(origins_are_https_and_redirects_stay_below_them),
        cmocka_unit_test(private_addresses_are_refused_in_every_disguise),
        cmocka_unit_test(codings_are_accepted_as_rfc_9110_says),
        cmocka_unit_test(preferences_that_make_no_sense_are_ignored),
        cmocka_unit_test(back_off_follows_its_formula_and_saturates),
        cmocka_unit_test(a_fill_only_moves_along_its_table),
        cmocka_unit_test(background_work_takes_short_turns_and_rests_longer_while_others_stand_in_line),
        cmocka_unit_test(background_work_keeps_to_its_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
