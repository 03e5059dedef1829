/* Any text into the TOML reader: it ends, stays inside its arena, and errors carry a place inside the document. */
#include <stdint.h>

#include "base/check.h"
#include "base/str.h"
#include "base/toml.h"

static void walk(const struct toml_value *v, unsigned lines)
{
    CHECK(v->line >= 1 && v->line <= lines);
    switch (v->type) {
    case TOML_ARRAY:
        for (size_t i = 0; i < v->array.n; i++)
            walk(&v->array.items[i], lines);
        break;
    case TOML_TABLE: {
        size_t n = 0;
        for (const struct toml_entry *e = v->table.first; e; e = e->next, n++) {
            CHECK(toml_find(&v->table, e->key) == e); /* no second entry of the same name */
            walk(&e->value, lines);
        }
        CHECK(n == v->table.n);
        break;
    }
    case TOML_STRING:
        CHECK(str_utf8_valid(v->string));
        break;
    case TOML_OFFSET_DATETIME:
    case TOML_LOCAL_DATETIME:
    case TOML_LOCAL_DATE:
    case TOML_LOCAL_TIME:
        CHECK(v->string.n >= 8);
        break;
    case TOML_INTEGER:
    case TOML_FLOAT:
    case TOML_BOOL:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    arena_init(&arena, 4096, 16 << 20);
    unsigned lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    struct toml_value *root;
    struct toml_error why;
    enum err e = toml_parse(str_of((const char *)data, size), &arena, &root, &why);
    if (e == ERR_OK)
        walk(root, lines);
    else
        CHECK(why.line >= 1 && why.line <= lines && why.column >= 1 && why.text[0]);
    arena_fini(&arena);
    return 0;
}
