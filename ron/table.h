/*
 * Tables for people: columns as wide as their widest cell, a header in bold on a terminal, numbers to the right.
 *
 * Ownership   Cells are copied. Printing frees everything.
 */
#ifndef RON_TABLE_H
#define RON_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#define TABLE_COLUMNS_MAX 12

struct table {
    const char *const *headers; /* a leading '>' aligns the column right and is not printed */
    int columns;
    char **cells;
    int cell_count, cell_room;
    bool color;
};

/* What somebody else wrote, before a terminal gets it: control characters, but those in `but`, become question marks. */
void table_tame(char *text, size_t n, const char *but);

void table_init(struct table *t, bool color, const char *const *headers, int columns);
/* Adds one cell after the other, row by row. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_print(struct table *t);
/* The same; a table without rows is one sentence instead of a lonely header. */
void table_print_or(struct table *t, const char *nothing, ...) __attribute__((format(printf, 2, 3)));

#endif
