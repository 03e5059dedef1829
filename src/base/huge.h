/*
 * Memory in pieces of 2 MiB for tables that are hit at random: backed by one large page each where the system grants it, so that
 * a table of a gigabyte costs neither a page fault nor an address translation miss per access.
 *
 * Ownership   Given back with huge_free.
 * Memory      Zeroed. A piece that is not `whole` is filled page by page as it is touched: for the first piece of a table that may
 *             stay small.
 */
#ifndef RON_BASE_HUGE_H
#define RON_BASE_HUGE_H

#include <stdbool.h>
#include <stddef.h>

enum { HUGE_BYTES = 2 << 20 };

void *huge_alloc(bool whole); /* NULL: no memory */
void huge_free(void *piece);  /* NULL is fine */

#endif
