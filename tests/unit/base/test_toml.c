#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "base/toml.h"

/*
 * tests/unit/base/toml/valid holds documents with their values as tagged JSON beside them (made with Python's tomllib),
 * invalid holds documents that must be refused.
 */
static const char folder[] = "tests/unit/base/toml";

static struct arena arena;
static struct toml_error why;

static int start(void **state)
{
    (void)state;
    arena_init(&arena, 65536, 8 << 20);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static void read_file(const char *path, struct buf *out)
{
    buf_init(out, 1 << 20);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n;
    do {
        uint8_t *room = buf_reserve(out, 4096);
        assert_non_null(room);
        n = fread(room, 1, 4096, f);
        buf_commit(out, n);
    } while (n);
    fclose(f);
}

static int by_key(const void *a, const void *b)
{
    return str_cmp((*(const struct toml_entry *const *)a)->key,
                   (*(const struct toml_entry *const *)b)->key);
}

static void scalar_text(const struct toml_value *v, struct buf *out)
{
    switch (v->type) {
    case TOML_INTEGER:
        buf_printf(out, "%lld", (long long)v->integer);
        break;
    case TOML_FLOAT:
        if (isnan(v->real))
            buf_puts(out, "nan");
        else
            buf_printf(out, "%.17g", v->real);
        break;
    case TOML_BOOL:
        buf_puts(out, v->boolean ? "true" : "false");
        break;
    case TOML_STRING:
    case TOML_OFFSET_DATETIME:
    case TOML_LOCAL_DATETIME:
    case TOML_LOCAL_DATE:
    case TOML_LOCAL_TIME:
        buf_put_str(out, v->string);
        break;
    case TOML_ARRAY:
    case TOML_TABLE:
        fail();
    }
}

static void render(struct json_w *w, const struct toml_value *v)
{
    if (v->type == TOML_ARRAY) {
        json_arr_begin(w);
        for (size_t i = 0; i < v->array.n; i++)
            render(w, &v->array.items[i]);
        json_arr_end(w);
        return;
    }
    json_obj_begin(w);
    if (v->type == TOML_TABLE) {
        const struct toml_entry *sorted[64];
        size_t n = 0;
        for (const struct toml_entry *e = v->table.first; e; e = e->next)
            sorted[n++] = e;
        assert_int_equal(n, v->table.n);
        if (n)
            qsort(sorted, n, sizeof sorted[0], by_key);
        for (size_t i = 0; i < n; i++) {
            json_key_str(w, sorted[i]->key);
            render(w, &sorted[i]->value);
        }
    } else {
        struct buf text;
        buf_init(&text, 65536);
        scalar_text(v, &text);
        json_put_cstr(w, "type", toml_type_name(v->type));
        json_put_str(w, "value", buf_str(&text));
        buf_fini(&text);
    }
    json_obj_end(w);
}

/* Calls fn for every .toml of the folder; returns how many. */
static size_t each_document(const char *kind, void (*fn)(const char *path, struct str text))
{
    char dir_path[200];
    snprintf(dir_path, sizeof dir_path, "%s/%s", folder, kind);
    DIR *dir = opendir(dir_path);
    assert_non_null(dir);
    size_t n = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if (!str_ends(str_from_c(d->d_name), STR(".toml")))
            continue;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir_path, d->d_name);
        struct buf text;
        read_file(path, &text);
        arena_reset(&arena);
        fn(path, buf_str(&text));
        buf_fini(&text);
        n++;
    }
    closedir(dir);
    return n;
}

static void expect_values(const char *path, struct str text)
{
    struct toml_value *root;
    if (toml_parse(text, &arena, &root, &why) != ERR_OK)
        fail_msg("%s:%u:%u: %s", path, why.line, why.column, why.text);
    struct buf got, expected;
    struct json_w w;
    buf_init(&got, 1 << 20);
    json_w_init(&w, &got);
    render(&w, root);
    buf_putc(&got, '\n');
    char json_path[600];
    snprintf(json_path, sizeof json_path, "%.*s.json", (int)(strlen(path) - 5), path);
    read_file(json_path, &expected);
    if (!str_eq(buf_str(&got), buf_str(&expected)))
        fail_msg("%s\n got      %s expected %s", path, buf_cstr(&got), buf_cstr(&expected));
    buf_fini(&got);
    buf_fini(&expected);
}

static void expect_refusal(const char *path, struct str text)
{
    struct toml_value *root = NULL;
    if (toml_parse(text, &arena, &root, &why) != ERR_SYNTAX)
        fail_msg("%s was accepted", path);
    assert_null(root);
    assert_true(why.line >= 1 && why.column >= 1 && why.text[0]);
}

static void valid_documents_give_their_values(void **state)
{
    (void)state;
    assert_true(each_document("valid", expect_values) >= 60);
}

static void invalid_documents_are_refused_with_a_place(void **state)
{
    (void)state;
    assert_true(each_document("invalid", expect_refusal) >= 100);
}

static void errors_carry_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, column;
    } cases[] = {
        {"a = 1\nb = x\n", 2, 5},
        {"a = 1\n\n[t]\na = 1\na = 2\n", 5, 1},
        {"a = \"\"\"\nx\n\"\"\"\nb = 01", 4, 5},
        {"a = [\n1,\n2\n3]", 4, 1},
        {"# c\n  [a\n", 2, 5},
        {"ok = 1\nbad = \"\"\"\nnever\nclosed\n", 2, 7},
        {"a = 1\r\nb = 2 x\r\n", 2, 7},
        {"a = 1\nb = \"\xff\"\n", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct toml_value *root;
        assert_int_equal(toml_parse(str_from_c(cases[i].text), &arena, &root, &why), ERR_SYNTAX);
        assert_int_equal(why.line, cases[i].line);
        assert_int_equal(why.column, cases[i].column);
    }
}

static void values_know_their_line(void **state)
{
    (void)state;
    struct toml_value *root;
    assert_int_equal(toml_parse(STR("a = 1\n[t]\n# c\nb = [\n1,\n2]\n"), &arena, &root, &why), ERR_OK);
    const struct toml_entry *t = toml_find(&root->table, STR("t"));
    const struct toml_entry *b = toml_find(&t->value.table, STR("b"));
    assert_int_equal(b->line, 4);
    assert_int_equal(b->value.array.items[1].line, 6);
    assert_null(toml_find(&root->table, STR("b")));
}

static void dates_keep_their_spelling(void **state)
{
    (void)state;
    struct toml_value *root;
    assert_int_equal(
        toml_parse(STR("a = 1979-05-27 07:32:00.5z # c\nb = 1979-05-27 # d\n"), &arena, &root, &why),
        ERR_OK);
    const struct toml_value *a = &toml_find(&root->table, STR("a"))->value;
    assert_int_equal(a->type, TOML_OFFSET_DATETIME);
    assert_true(str_eq(a->string, STR("1979-05-27 07:32:00.5z")));
    assert_int_equal(toml_find(&root->table, STR("b"))->value.type, TOML_LOCAL_DATE);
}

static void nesting_and_size_are_bounded(void **state)
{
    (void)state;
    char text[1000] = "a = ";
    memset(text + 4, '[', 900);
    struct toml_value *root;
    assert_int_equal(toml_parse(str_from_c(text), &arena, &root, &why), ERR_SYNTAX);
    struct arena small;
    arena_init(&small, 256, 512);
    memset(text, 0, sizeof text);
    for (int i = 0; i < 100; i++)
        sprintf(text + strlen(text), "k%d = 1\n", i);
    assert_int_equal(toml_parse(str_from_c(text), &small, &root, &why), ERR_TOO_LARGE);
    arena_fini(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(valid_documents_give_their_values, start, finish),
        cmocka_unit_test_setup_teardown(invalid_documents_are_refused_with_a_place, start, finish),
        cmocka_unit_test_setup_teardown(errors_carry_line_and_column, start, finish),
        cmocka_unit_test_setup_teardown(values_know_their_line, start, finish),
        cmocka_unit_test_setup_teardown(dates_keep_their_spelling, start, finish),
        cmocka_unit_test_setup_teardown(nesting_and_size_are_bounded, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
