#include "ron/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void table_tame(char *text, size_t n, const char *but)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if ((c < 0x20 || c == 0x7f) && (c == 0 || !strchr(but, c)))
            text[i] = '?';
        else if (c == 0xC2 && next >= 0x80 &&
                 next < 0xA0) /* U+0080 to U+009F: an escape in one character */
            text[i] = text[i + 1] = '?';
    }
}

void table_init(struct table *t, bool color, const char *const *headers, int columns)
{
    CHECK(columns > 0 && columns <= TABLE_COLUMNS_MAX);
    *t = (struct table){.headers = headers, .columns = columns, .color = color};
}

void table_cell(struct table *t, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    table_tame(text, (size_t)n, "");
    if (t->cell_count == t->cell_room) {
        t->cell_room = t->cell_room ? t->cell_room * 2 : 64;
        t->cells = realloc(t->cells, (size_t)t->cell_room * sizeof *t->cells);
        CHECK(t->cells);
    }
    t->cells[t->cell_count++] = text;
}

/* Columns are counted in characters, not bytes: continuation bytes of UTF-8 take no room. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void put_cell(const char *text, int room, bool right, bool last)
{
    int pad = room - width(text);
    if (right)
        printf("%*s%s", pad, "", text);
    else
        printf("%s%*s", text, last ? 0 : pad, "");
    if (!last)
        fputs("  ", stdout);
}

void table_print(struct table *t)
{
    int widths[TABLE_COLUMNS_MAX] = {0};
    for (int c = 0; c < t->columns; c++) {
        widths[c] = width(t->headers[c] + (t->headers[c][0] == '>'));
        for (int i = c; i < t->cell_count; i += t->columns)
            if (width(t->cells[i]) > widths[c])
                widths[c] = width(t->cells[i]);
    }
    if (t->color)
        fputs("\033[1m", stdout);
    for (int c = 0; c < t->columns; c++)
        put_cell(t->headers[c] + (t->headers[c][0] == '>'), widths[c], t->headers[c][0] == '>',
                 c + 1 == t->columns);
    puts(t->color ? "\033[0m" : "");
    for (int i = 0; i < t->cell_count; i++) {
        int c = i % t->columns;
        put_cell(t->cells[i], widths[c], t->headers[c][0] == '>', c + 1 == t->columns);
        if (c + 1 == t->columns)
            putchar('\n');
        free(t->cells[i]);
    }
    free(t->cells);
    t->cells = NULL;
    t->cell_count = t->cell_room = 0;
}

void table_print_or(struct table *t, const char *nothing, ...)
{
    if (t->cell_count > 0) {
        table_print(t);
        return;
    }
    va_list ap;
    va_start(ap, nothing);
    vprintf(nothing, ap);
    va_end(ap);
    putchar('\n');
}
