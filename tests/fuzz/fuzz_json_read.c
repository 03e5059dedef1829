/*
 * Any bytes into the strict reader. What it accepts as one value, jansson must accept too (but for integers over 64 bits
 * and reals out of range), and what jansson accepts, it must accept unless it is nested deeper than we allow. The same
 * bytes also go through a table with one field of every kind.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_read.h"
#include "base/money.h"
#include "base/sha256.h"
#include "base/str.h"

struct leaf {
    struct str s;
    struct str key;
};

static const struct json_field leaf_fields[] = {JSON_REQ(struct leaf, s, JSON_KIND_STR, .max = 8),
                                                JSON_END};

struct all {
    struct str s, raw;
    struct money m;
    uint64_t u, t;
    int64_t i;
    bool b, has_s, has_raw, has_m, has_u, has_t, has_i, has_b, has_e, has_x, has_h, has_o;
    int e;
    struct bytes x;
    struct sha256 h;
    struct leaf o;
    struct json_list l, n, p, q;
};

static const char *const words[] = {"one", "two", NULL};
static const struct json_field all_fields[] = {
    JSON_OPT(struct all, s, JSON_KIND_STR, .min = 1, .max = 16, .check = str_is_account),
    JSON_OPT(struct all, raw, JSON_KIND_RAW),
    JSON_OPT(struct all, m, JSON_KIND_MONEY, .min = 1),
    JSON_OPT(struct all, u, JSON_KIND_U64, .max = 1000),
    JSON_OPT(struct all, t, JSON_KIND_U64_TEXT),
    JSON_OPT(struct all, i, JSON_KIND_I64),
    JSON_OPT(struct all, b, JSON_KIND_BOOL),
    JSON_OPT(struct all, e, JSON_KIND_ENUM, .names = words),
    JSON_OPT(struct all, x, JSON_KIND_BASE64, .max = 32),
    JSON_OPT(struct all, h, JSON_KIND_HASH),
    JSON_OPT(struct all, o, JSON_KIND_OBJ, .fields = leaf_fields),
    JSON_DEF(struct all, l, JSON_KIND_OBJ_LIST, .fields = leaf_fields, .item_bytes = sizeof(struct leaf),
             .max = 20),
    JSON_DEF(struct all, n, JSON_KIND_STR_LIST, .max = 20),
    JSON_DEF(struct all, p, JSON_KIND_OBJ_MAP, .fields = leaf_fields, .item_bytes = sizeof(struct leaf),
             .key_offset = offsetof(struct leaf, key), .max = 20),
    JSON_DEF(struct all, q, JSON_KIND_STR_MAP, .max = 20),
    JSON_END,
};

static bool jansson_accepts(struct bytes body, bool *out_over)
{
    json_error_t e;
    json_t *tree = json_loadb((const char *)body.p, body.n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    *out_over = !tree && json_error_code(&e) == json_error_numeric_overflow;
    json_decref(tree);
    return tree != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    arena_init(&arena, 4096, 8 << 20);
    struct json_error why;
    struct bytes body = bytes_of(data, size);
    bool over;
    enum err ours = json_check(body, &arena, &why);
    bool theirs = jansson_accepts(body, &over);
    if (ours == ERR_OK)
        CHECK(theirs || over);
    else if (!size || !memchr(data, 0, size)) /* jansson takes a zero byte behind a value for the end */
        CHECK(!theirs || why.reason == JSON_DEPTH || ours == ERR_TOO_LARGE);
    CHECK(ours == ERR_OK ||
          (why.reason != JSON_OK && why.offset <= size && strlen(why.path) < JSON_PATH_CHARS));

    struct all out = {.u = 0};
    enum err strict = json_read_dto(body, all_fields, &out, &arena, &why);
    CHECK(strict != ERR_OK || ours == ERR_OK);
    CHECK(strict != ERR_OK || !out.has_u || out.u <= 1000);
    CHECK(strict != ERR_OK || !out.has_s || str_is_account(out.s));
    struct all lax = {.u = 0};
    enum err loose = json_read_dto_lax(body, all_fields, &lax, &arena, &why);
    CHECK(strict != ERR_OK || loose == ERR_OK);
    arena_fini(&arena);
    return 0;
}
