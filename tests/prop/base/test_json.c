#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "seed.h"

static struct str any_text(struct rng *r, char *room, size_t max)
{
    static const char *const pieces[] = {
        "a", "\"", "\\", "\n", "\x01", "\x7f", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "/", "0"};
    size_t n = 0, count = rng_below(r, 8);
    for (size_t i = 0; i < count; i++) {
        const char *piece = pieces[rng_below(r, sizeof pieces / sizeof pieces[0])];
        if (n + strlen(piece) < max) {
            memcpy(room + n, piece, strlen(piece));
            n += strlen(piece);
        }
    }
    return str_of(room, n);
}

static void any_value(struct rng *r, struct json_w *w, int depth)
{
    char room[64];
    switch (rng_below(r, depth > 0 ? 8 : 6)) {
    case 0:
        json_str(w, any_text(r, room, sizeof room));
        break;
    case 1:
        json_i64(w, (int64_t)rng_u64(r) >> rng_below(r, 64));
        break;
    case 2:
        json_f64(w, rng_unit(r) * 1e6 - 5e5);
        break;
    case 3:
        json_bool(w, rng_below(r, 2));
        break;
    case 4:
        json_nil(w);
        break;
    case 5:
        json_money(w, (struct money){(unsigned __int128)rng_u64(r) << 64 | rng_u64(r)});
        break;
    case 6:
        json_arr_begin(w);
        for (uint64_t n = rng_below(r, 5); n; n--)
            any_value(r, w, depth - 1);
        json_arr_end(w);
        break;
    default:
        json_obj_begin(w);
        for (uint64_t n = rng_below(r, 5); n; n--) {
            struct str key = any_text(r, room, sizeof room - 4);
            room[key.n] = (char)('a' + n); /* names of one object differ in their last letter */
            json_key_str(w, str_of(room, key.n + 1));
            any_value(r, w, depth - 1);
        }
        json_obj_end(w);
    }
}

static void what_we_write_both_readers_accept(void **state)
{
    (void)state;
    struct rng r = seed_rng("json");
    struct buf b;
    buf_init(&b, 1 << 20);
    struct arena arena;
    arena_init(&arena, 1 << 16, 1 << 20);
    for (int i = 0; i < 20000; i++) {
        buf_reset(&b);
        arena_reset(&arena);
        struct json_w w;
        json_w_init(&w, &b);
        any_value(&r, &w, 6);
        assert_true(json_w_done(&w));
        struct json_error why;
        if (json_check(buf_bytes(&b), &arena, &why) != ERR_OK)
            fail_msg("%s at %zu: %s", json_reason_name(why.reason), why.offset, buf_cstr(&b));
        json_error_t e;
        json_t *tree = json_loadb((const char *)b.p, b.n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
        if (!tree)
            fail_msg("jansson: %s: %s", e.text, buf_cstr(&b));
        json_decref(tree);
    }
    arena_fini(&arena);
    buf_fini(&b);
}

struct holder {
    struct str text;
};

static const struct json_field holder_fields[] = {JSON_REQ(struct holder, text, JSON_KIND_STR), JSON_END};

static void text_comes_back_as_it_was_written(void **state)
{
    (void)state;
    struct rng r = seed_rng("text");
    struct buf b;
    buf_init(&b, 1 << 16);
    struct arena arena;
    arena_init(&arena, 4096, 1 << 20);
    for (int i = 0; i < 100000; i++) {
        buf_reset(&b);
        arena_reset(&arena);
        char room[64];
        struct str text = any_text(&r, room, sizeof room);
        struct json_w w;
        json_w_init(&w, &b);
        json_obj_begin(&w);
        json_put_str(&w, "text", text);
        json_obj_end(&w);
        struct holder out;
        struct json_error why;
        assert_int_equal(json_read_dto(buf_bytes(&b), holder_fields, &out, &arena, &why), ERR_OK);
        assert_true(str_eq(out.text, text));
    }
    arena_fini(&arena);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_write_both_readers_accept),
        cmocka_unit_test(text_comes_back_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
