#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json_read.h"
#include "base/json_write.h"

static struct buf out;
static struct json_w w;

static int start(void **state)
{
    (void)state;
    buf_init(&out, 1 << 16);
    json_w_init(&w, &out);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    buf_fini(&out);
    return 0;
}

static void commas_and_nesting_come_out_right(void **state)
{
    (void)state;
    struct sha256 h;
    sha256_of("abc", 3, &h);
    json_obj_begin(&w);
    json_put_u64(&w, "a", UINT64_MAX);
    json_put_i64(&w, "b", INT64_MIN);
    json_key(&w, "c");
    json_arr_begin(&w);
    json_bool(&w, true);
    json_nil(&w);
    json_arr_begin(&w);
    json_arr_end(&w);
    json_obj_begin(&w);
    json_obj_end(&w);
    json_u64_text(&w, 12);
    json_arr_end(&w);
    json_put_money(&w, "m", MONEY_MAX);
    json_put_hash(&w, "h", &h);
    json_put_base64(&w, "p", bytes_of("foob", 4));
    json_key(&w, "x");
    json_hex(&w, "\xab\xcd", 2);
    json_put_time_ms(&w, "t", 0);
    json_put_raw(&w, "r", STR("{\"y\":1}"));
    json_key(&w, "f");
    json_f64(&w, 0.1);
    json_obj_end(&w);
    assert_true(json_w_done(&w));
    assert_string_equal(
        buf_cstr(&out),
        "{\"a\":18446744073709551615,\"b\":-9223372036854775808,\"c\":[true,null,[],{},\"12\"],"
        "\"m\":\"340282366920938463463374607431768211455\","
        "\"h\":\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\"p\":\"Zm9vYg=="
        "\","
        "\"x\":\"abcd\",\"t\":\"1970-01-01T00:00:00.000Z\",\"r\":{\"y\":1},\"f\":0.1}");
}

static void text_is_escaped_only_where_it_must_be(void **state)
{
    (void)state;
    json_str(&w, str_of("a\"b\\c\n\t\x01\x7f/\xc3\xa9\0z", 14));
    assert_string_equal(buf_cstr(&out), "\"a\\\"b\\\\c\\n\\t\\u0001\x7f/\xc3\xa9\\u0000z\"");
}

static void text_that_is_not_utf8_still_gives_a_valid_document(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1024, 65536);
    struct json_error why;
    json_arr_begin(&w);
    for (int first = 0; first < 256; first++) {
        char text[6] = {'a', (char)first, (char)(first * 7), '"', (char)0xe2, (char)0x82};
        json_str(&w, str_of(text, sizeof text));
    }
    json_obj_begin(&w);
    json_key_str(&w, STR("any \"name\" \xff"));
    json_nil(&w);
    json_obj_end(&w);
    json_arr_end(&w);
    /* U+0000 is the one escape that the reader refuses: put another in its place. */
    for (size_t i = 0; i + 6 <= out.n; i++)
        if (memcmp(out.p + i, "\\u0000", 6) == 0)
            memcpy(out.p + i, "\\u0001", 6);
    assert_int_equal(json_check(buf_bytes(&out), &arena, &why), ERR_OK);
    arena_fini(&arena);
}

static void a_full_buffer_is_an_error_and_not_a_crash(void **state)
{
    (void)state;
    char small[8];
    struct buf b;
    struct json_w x;
    buf_init_fixed(&b, small, sizeof small);
    json_w_init(&x, &b);
    json_obj_begin(&x);
    json_put_base64(&x, "key", bytes_of("0123456789", 10));
    json_obj_end(&x);
    assert_int_equal(b.err, ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commas_and_nesting_come_out_right, start, finish),
        cmocka_unit_test_setup_teardown(text_is_escaped_only_where_it_must_be, start, finish),
        cmocka_unit_test_setup_teardown(text_that_is_not_utf8_still_gives_a_valid_document, start, finish),
        cmocka_unit_test_setup_teardown(a_full_buffer_is_an_error_and_not_a_crash, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
