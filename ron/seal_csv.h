/*
 * The CSV of `ron rewarder seal`: a line that names the columns (account, then dimensions), then a line per account. Usage files are
 * plain: no quotes, no blanks; a carriage return before the newline and empty lines are passed over.
 *
 * Ownership   Fields point into the text.
 * Threads     Pure.
 */
#ifndef RON_SEAL_CSV_H
#define RON_SEAL_CSV_H

#include "base/buf.h"
#include "base/bytes.h"

enum { SEAL_DIMS_MAX = 16, SEAL_COLUMNS_MAX = SEAL_DIMS_MAX + 1 };

struct seal_csv {
    struct str text;                     /* what is left of it */
    struct str column[SEAL_COLUMNS_MAX]; /* of the first line */
    int columns, fields;                 /* of the first line, of the last one read */
    uint64_t line, rows;                 /* lines read, rows among them */
};

/* NULL, or why it was refused. */
const char *seal_csv_open(struct seal_csv *c, struct str text);
/*
 * One more row, as a line of a snapshot, at the end of `out`. *out_more is false when there is none. NULL, or why it was refused:
 * c->line and *out_column (from 1; 0: it has another number of fields than the first line) say where.
 */
const char *seal_csv_next(struct seal_csv *c, struct buf *out, bool *out_more, int *out_column);

#endif
