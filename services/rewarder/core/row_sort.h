/*
 * Rows by account, ascending: radix sort on 8-byte windows of the account after what all have in common; rows with equal windows
 * are sorted by the next eight. Sorting instead of hashing: nobody can choose accounts that make it slow.
 *
 * Memory      While it sorts a second array of items is allocated; rows that are in order already cost nothing.
 */
#ifndef RON_REWARDER_CORE_ROW_SORT_H
#define RON_REWARDER_CORE_ROW_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct rewarder_row_item {
    uint64_t key; /* the sorter's */
    uint64_t at;  /* offset of the row (length byte, account, usage) in the body */
};

/* ERR_DUPLICATE_ACCOUNT with the offsets of two rows of one account; ERR_NO_MEMORY. */
NODISCARD enum err rewarder_row_sort(const uint8_t *body, struct rewarder_row_item *items, size_t n,
                                     uint64_t out_twice[2]);

#endif
