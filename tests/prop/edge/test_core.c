/* Properties of the edge's pure rules over random inputs. A failure prints its seed; RON_SEED runs it again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "services/edge/core/address.h"
#include "services/edge/core/catalog.h"
#include "services/edge/core/name.h"
#include "services/edge/core/pmtiles.h"
#include "services/edge/core/tile.h"

static uint64_t seed;

static void tile_ids_round_trip_at_every_zoom(void **state)
{
    struct rng r;
    (void)state;
    rng_seed(&r, seed);
    for (int i = 0; i < 20000; i++) {
        uint32_t z = (uint32_t)rng_below(&r, 31), side = (uint32_t)1 << z;
        struct edge_tile t = {z, (uint32_t)rng_below(&r, side), (uint32_t)rng_below(&r, side)}, back;
        assert_int_equal(edge_tile_of_id(edge_tile_id(&t), &back), ERR_OK);
        assert_memory_equal(&t, &back, sizeof t);
    }
}

static enum err read_memory(void *ctx, uint64_t offset, size_t n, uint8_t *out)
{
    const struct bytes *b = ctx;
    if (offset > b->n || n > b->n - offset)
        return ERR_RANGE;
    memcpy(out, b->p + offset, n);
    return ERR_OK;
}

static enum err open_archive(struct bytes file, struct edge_pmtiles_header *h, struct edge_dir *dir)
{
    struct edge_fault f;
    struct edge_pmtiles_limits limits = {1 << 20, 1 << 22};
    enum err e = edge_pmtiles_header_decode(file, file.n, h, &f);
    return e == ERR_OK ? edge_pmtiles_walk(h, &limits, read_memory, &file, dir, &f) : e;
}

struct sample {
    struct edge_pmtiles_tile tiles[400];
    char texts[400][8];
    size_t n;
    struct buf file;
};

static void make_sample(struct rng *r, struct sample *s)
{
    uint64_t id = 0;
    s->n = 1 + rng_below(r, 400);
    for (size_t i = 0; i < s->n; i++) {
        id += i ? 1 + (rng_below(r, 3) == 0) * rng_below(r, 50) : rng_below(r, 5);
        size_t n = 1 + rng_below(r, 3);
        rng_bytes(r, s->texts[i], n);
        if (rng_below(r, 2))
            memset(s->texts[i], 'x', n); /* runs and repeated contents */
        s->tiles[i] = (struct edge_pmtiles_tile){id, bytes_of(s->texts[i], n)};
    }
    buf_init(&s->file, 1 << 22);
    assert_int_equal(
        edge_pmtiles_write(
            &(struct edge_pmtiles_spec){.internal = rng_below(r, 2) ? EDGE_CODING_GZIP : EDGE_CODING_NONE,
                                        .tiles = EDGE_CODING_NONE,
                                        .type = EDGE_TYPE_MVT,
                                        .zoom_max = 10,
                                        .metadata = STR("{}"),
                                        .leaf_entries = rng_below(r, 2) * 7},
            s->tiles, s->n, &s->file),
        ERR_OK);
}

static const struct edge_pmtiles_tile *scan(const struct sample *s, uint64_t id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->tiles[i].id == id)
            return &s->tiles[i];
    return NULL;
}

static void archives_read_back_as_written_and_lookup_equals_a_linear_scan(void **state)
{
    struct rng r;
    static struct sample s;
    (void)state;
    rng_seed(&r, seed + 1);
    for (int round = 0; round < 200; round++) {
        struct edge_pmtiles_header h;
        struct edge_dir dir;
        make_sample(&r, &s);
        assert_int_equal(open_archive(buf_bytes(&s.file), &h, &dir), ERR_OK);
        uint64_t last = s.tiles[s.n - 1].id;
        for (uint64_t id = 0; id <= last + 2; id++) {
            const struct edge_pmtiles_tile *want = scan(&s, id);
            const struct edge_entry *got = edge_dir_find(dir.list, dir.n, id);
            assert_int_equal(got != NULL, want != NULL);
            if (want && got)
                assert_true(
                    bytes_eq(want->data, bytes_of(s.file.p + h.data.offset + got->offset, got->length)));
        }
        free(dir.list);
        buf_fini(&s.file);
    }
}

static void mutated_archives_are_refused_or_harmless(void **state)
{
    struct rng r;
    static struct sample s;
    (void)state;
    rng_seed(&r, seed + 2);
    for (int round = 0; round < 100; round++) {
        make_sample(&r, &s);
        for (int i = 0; i < 50; i++) {
            struct edge_pmtiles_header h;
            struct edge_dir dir;
            size_t at = rng_below(&r, s.file.n);
            uint8_t old = s.file.p[at];
            s.file.p[at] = (uint8_t)rng_u64(&r);
            if (open_archive(buf_bytes(&s.file), &h, &dir) == ERR_OK) {
                for (size_t k = 0; k < dir.n; k++) {
                    assert_true(dir.list[k].offset + dir.list[k].length <= h.data.length);
                    assert_true(h.data.offset + h.data.length <= s.file.n);
                    assert_true(k == 0 || dir.list[k].id >= dir.list[k - 1].id + dir.list[k - 1].run);
                }
                free(dir.list);
            }
            s.file.p[at] = old;
        }
        buf_fini(&s.file);
    }
}

/* ---- refs.log ---- */

static void random_record(struct rng *r, struct edge_record *rec, char name[8], struct buf *touches)
{
    static const enum edge_record_type types[] = {EDGE_PUT_REF, EDGE_PUT_REF,    EDGE_PUT_REF,
                                                  EDGE_DEL_REF, EDGE_DEL_OBJ,    EDGE_TOUCH,
                                                  EDGE_RENEW,   EDGE_PACK_SINCE, EDGE_QUARANTINE};
    *rec = (struct edge_record){.type = types[rng_below(r, sizeof types / sizeof *types)],
                                .mime = STR("a/b"),
                                .etag = STR("\"e\""),
                                .fetched_ms = rng_below(r, 1000000),
                                .valid_until_ms = rng_below(r, 1000000),
                                .since_ms = rng_below(r, 1000) * 1000,
                                .since_s = rng_below(r, 1000)};
    name[0] = 'n';
    name[1] = (char)('a' + rng_below(r, 8));
    rec->name = str_of(name, 2);
    rec->digest.b[0] = (uint8_t)rng_below(r, 6);
    rec->size = 100 + rec->digest.b[0];
    buf_reset(touches);
    for (uint64_t i = rng_below(r, 4); i; i--)
        edge_touch_put(touches, &(struct sha256){{(uint8_t)rng_below(r, 6)}}, (uint32_t)rng_below(r, 5000));
    rec->touches = buf_bytes(touches);
}

static bool same(const struct edge_catalog *a, const struct edge_catalog *b)
{
    size_t at = 0;
    void *value;
    if (map_count(&a->refs) != map_count(&b->refs) || map_count(&a->packs) != map_count(&b->packs))
        return false;
    while (map_next(&a->refs, &at, NULL, &value)) {
        const struct edge_ref *x = value, *y = edge_catalog_ref(b, x->name);
        if (!y || !sha256_eq(&x->object->digest, &y->object->digest) || x->fetched_ms != y->fetched_ms ||
            x->valid_until_ms != y->valid_until_ms || x->since_ms != y->since_ms ||
            !str_eq(x->mime, y->mime) || x->object->last_use_s != y->object->last_use_s)
            return false;
    }
    at = 0;
    while (map_next(&a->packs, &at, NULL, &value)) {
        const struct edge_pack_since *x = value, *y = edge_catalog_pack(b, x->name);
        if (!y || x->since_s != y->since_s)
            return false;
    }
    return true;
}

static size_t replay(struct bytes log, struct edge_catalog *c)
{
    struct edge_record rec;
    size_t at = 0, n, count = 0;
    assert_int_equal(edge_catalog_init(c), ERR_OK);
    while (at < log.n && edge_record_decode(bytes_of(log.p + at, log.n - at), &rec, &n) == ERR_OK) {
        assert_int_equal(edge_catalog_apply(c, &rec), ERR_OK);
        at += n;
        count++;
    }
    return count;
}

static void any_prefix_of_the_log_replays_to_a_state_that_was(void **state)
{
    struct rng r;
    (void)state;
    rng_seed(&r, seed + 3);
    for (int round = 0; round < 100; round++) {
        struct buf log, touches;
        struct edge_catalog live, back;
        struct edge_record rec;
        size_t ends[41] = {0};
        char name[8];
        buf_init(&log, 1 << 20);
        buf_init(&touches, 1 << 16);
        for (int i = 0; i < 40; i++) {
            random_record(&r, &rec, name, &touches);
            edge_record_encode(&rec, &log);
            ends[i + 1] = log.n;
        }
        size_t cut = rng_below(&r, log.n + 1), whole = 0;
        while (whole < 40 && ends[whole + 1] <= cut)
            whole++;
        assert_int_equal(replay(bytes_of(log.p, cut), &back), whole);
        assert_int_equal(replay(bytes_of(log.p, ends[whole]), &live), whole);
        assert_true(same(&live, &back));
        edge_catalog_fini(&back);

        struct buf dump;
        buf_init(&dump, 1 << 20);
        edge_catalog_dump(&live, &dump);
        replay(buf_bytes(&dump), &back);
        assert_true(same(&live, &back));
        assert_true(live.ref_bytes == back.ref_bytes);
        buf_fini(&dump);
        edge_catalog_fini(&back);
        edge_catalog_fini(&live);
        buf_fini(&touches);
        buf_fini(&log);
    }
}

static void a_torn_tail_is_told_from_corruption(void **state)
{
    struct rng r;
    (void)state;
    rng_seed(&r, seed + 4);
    for (int round = 0; round < 300; round++) {
        struct buf log, touches;
        struct edge_record rec;
        char name[8];
        size_t last = 0;
        buf_init(&log, 1 << 20);
        buf_init(&touches, 1 << 16);
        for (int i = 0; i < 5; i++) {
            random_record(&r, &rec, name, &touches);
            last = log.n;
            edge_record_encode(&rec, &log);
        }
        size_t cut = last + 1 + rng_below(&r, log.n - last - 1);
        assert_false(edge_record_any_after(bytes_of(log.p, cut), last));
        log.p[4] ^= 1; /* the first record's CRC */
        assert_true(edge_record_any_after(buf_bytes(&log), 0));
        buf_fini(&touches);
        buf_fini(&log);
    }
}

/* The same rules a second time, as numbers: first and last address of what is not public. */
static const uint32_t private_v4[][2] = {
    {0x00000000, 0x00ffffff}, {0x0a000000, 0x0affffff}, {0x64400000, 0x647fffff}, {0x7f000000, 0x7fffffff},
    {0xa9fe0000, 0xa9feffff}, {0xac100000, 0xac1fffff}, {0xc0000000, 0xc00000ff}, {0xc0000200, 0xc00002ff},
    {0xc0586300, 0xc05863ff}, {0xc0a80000, 0xc0a8ffff}, {0xc6120000, 0xc613ffff}, {0xc6336400, 0xc63364ff},
    {0xcb007100, 0xcb0071ff}, {0xe0000000, 0xffffffff}};
enum { PRIVATE_V4 = sizeof private_v4 / sizeof *private_v4 };

static const struct {
    uint64_t first, last; /* upper halves */
} private_v6[] = {{0x0064ff9b00010000, 0x0064ff9b0001ffff}, {0x0100000000000000, 0x0100000000000000},
                  {0x2001000000000000, 0x200101ffffffffff}, {0x20010db800000000, 0x20010db8ffffffff},
                  {0xfc00000000000000, 0xfdffffffffffffff}, {0xfe80000000000000, 0xfebfffffffffffff},
                  {0xff00000000000000, 0xffffffffffffffff}};
enum { PRIVATE_V6 = sizeof private_v6 / sizeof *private_v6 };

static bool public_v4(uint32_t a)
{
    for (size_t i = 0; i < PRIVATE_V4; i++)
        if (a >= private_v4[i][0] && a <= private_v4[i][1])
            return false;
    return true;
}

static bool public_address(uint64_t high, uint64_t low)
{
    if ((high == 0 && low >> 32 == 0xffff) || (high == 0x0064ff9b00000000 && low >> 32 == 0))
        return public_v4((uint32_t)low);
    if (high >> 48 == 0x2002)
        return public_v4((uint32_t)(high >> 16));
    for (size_t i = 0; i < PRIVATE_V6; i++)
        if (high >= private_v6[i].first && high <= private_v6[i].last)
            return false;
    return high != 0 || low > 1;
}

/* Random, or at and around the ends of what is private. */
static uint32_t some_v4(struct rng *r)
{
    uint32_t end = private_v4[rng_below(r, PRIVATE_V4)][rng_below(r, 2)];
    return rng_below(r, 4) == 0 ? (uint32_t)rng_u64(r) : end - 1 + (uint32_t)rng_below(r, 3);
}

static void some_address(struct rng *r, uint64_t *out_high, uint64_t *out_low)
{
    size_t range = rng_below(r, PRIVATE_V6);
    uint64_t end = rng_below(r, 2) ? private_v6[range].first : private_v6[range].last;
    *out_low = rng_u64(r);
    switch (rng_below(r, 6)) {
    case 0:
        *out_high = 0;
        *out_low = 0xffff00000000 | some_v4(r);
        break;
    case 1:
        *out_high = 0x0064ff9b00000000;
        *out_low = some_v4(r);
        break;
    case 2:
        *out_high = 0x2002000000000000 | (uint64_t)some_v4(r) << 16 | rng_below(r, 65536);
        break;
    case 3:
        *out_high = 0;
        *out_low = rng_below(r, 4);
        break;
    case 4:
        *out_high = end - 1 + rng_below(r, 3);
        break;
    default:
        *out_high = rng_u64(r);
    }
}

static void an_address_is_allowed_or_refused_as_a_second_reading_of_the_rules_says(void **state)
{
    struct rng r;
    size_t allowed = 0;
    (void)state;
    rng_seed(&r, seed);
    for (int i = 0; i < 200000; i++) {
        uint64_t high, low;
        uint8_t addr[16];
        some_address(&r, &high, &low);
        be64_put(addr, high);
        be64_put(addr + 8, low);
        bool want = public_address(high, low);
        if (edge_address_ok(addr, NULL, 0) != want)
            fail_msg("%016llx%016llx should be %s", (unsigned long long)high, (unsigned long long)low,
                     want ? "allowed" : "refused");
        allowed += want;
    }
    assert_in_range(allowed, 20000, 180000); /* both happen a lot */
}

/* ---- where a redirect may lead ---- */

struct piece {
    const char *text;
    bool ok; /* on its own it keeps the URL below https://cdn.example/fonts/ */
};

static struct piece pick(struct rng *r, const struct piece *list, size_t n)
{
    return rng_below(r, 2)
               ? list[0]
               : list[rng_below(r, n)]; /* the first one is good: else hardly any URL would be */
}
#define PICK(r, list) pick(r, list, sizeof list / sizeof *list)

/* Put together from pieces of which each is known to be good or bad: nothing is parsed a second time. */
static bool make_url(struct rng *r, struct buf *out)
{
    static const struct piece schemes[] = {
        {"https://", true},    {"HTTPS://", true},   {"http://", false}, {"ftp://", false},
        {"https:/", false},    {"//", false},        {"", false},        {" https://", false},
        {"https:\\\\", false}, {"httpsx://", false}, {"file://", false}};
    static const struct piece users[] = {
        {"", true}, {"u@", false}, {"u:p@", false}, {"cdn.example@", false}, {"@", false}, {"%40@", false}};
    static const struct piece hosts[] = {{"cdn.example", true},
                                         {"CDN.Example", true},
                                         {"cdn.example.evil", false},
                                         {"evil", false},
                                         {"cdn.example.", false},
                                         {"xcdn.example", false},
                                         {"cdn.exampl", false},
                                         {"127.0.0.1", false},
                                         {"[::1]", false},
                                         {"cdn.example%2eevil", false},
                                         {"", false},
                                         {"cdn.example\\evil", false},
                                         {"[::ffff:127.0.0.1]", false},
                                         {"2130706433", false},
                                         {"0x7f.1", false},
                                         {"cdn example", false}};
    static const struct piece ports[] = {{"", true},    {":443", true},    {":444", false}, {":80", false},
                                         {":0", false}, {":99999", false}, {":x", false}};
    static const struct piece roots[] = {{"/fonts/", true},    {"/font", false},    {"/", false},
                                         {"/Fonts/", false},   {"/other/", false},  {"/fontsx/", false},
                                         {"/%66onts/", false}, {"//fonts/", false}, {"/../fonts/", false},
                                         {"", false}};
    static const struct piece segments[] = {
        {"a", true},  {"b.woff2", true}, {"", true},      {"...", true},   {"%2e%2ea", true}, {"..", false},
        {".", false}, {"%2e%2e", false}, {"%2E.", false}, {".%2e", false}, {"%2e", false}};
    static const struct piece tails[] = {{"", true},    {"?q=1", true}, {"?../..", true}, {"#f", false},
                                         {" x", false}, {"\\x", false}, {"\x7f", false}};
    bool ok = true;
    const struct piece head[] = {PICK(r, schemes), PICK(r, users), PICK(r, hosts), PICK(r, ports),
                                 PICK(r, roots)};
    buf_reset(out);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        buf_puts(out, head[i].text);
        ok = ok && head[i].ok;
    }
    for (uint64_t n = rng_below(r, 4), i = 0; i < n; i++) {
        struct piece p = PICK(r, segments);
        buf_printf(out, "%s%s", i ? "/" : "", p.text);
        ok = ok && p.ok;
    }
    struct piece tail = PICK(r, tails);
    buf_puts(out, tail.text);
    return ok && tail.ok;
}

static void a_url_is_allowed_or_refused_as_its_pieces_say(void **state)
{
    struct rng r;
    struct edge_origin o;
    struct buf url;
    size_t allowed = 0;
    (void)state;
    rng_seed(&r, seed + 5);
    buf_init(&url, 1024);
    assert_int_equal(edge_origin_parse(STR("https://cdn.example/fonts/"), false, &o), ERR_OK);
    for (int i = 0; i < 200000; i++) {
        bool want = make_url(&r, &url);
        if (edge_url_below(buf_str(&url), &o) != want)
            fail_msg("%s should be %s", buf_cstr(&url), want ? "allowed" : "refused");
        allowed += want;
    }
    assert_in_range(allowed, 2000, 100000); /* both happen a lot */
    buf_fini(&url);
}

int main(void)
{
    const char *given = getenv("RON_SEED");
    seed = given ? strtoull(given, NULL, 10) : rng_secure_u64() >> 16;
    print_message("RON_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_ids_round_trip_at_every_zoom),
        cmocka_unit_test(archives_read_back_as_written_and_lookup_equals_a_linear_scan),
        cmocka_unit_test(mutated_archives_are_refused_or_harmless),
        cmocka_unit_test(any_prefix_of_the_log_replays_to_a_state_that_was),
        cmocka_unit_test(a_torn_tail_is_told_from_corruption),
        cmocka_unit_test(a_url_is_allowed_or_refused_as_its_pieces_say),
        cmocka_unit_test(an_address_is_allowed_or_refused_as_a_second_reading_of_the_rules_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
