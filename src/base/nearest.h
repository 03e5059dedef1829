/*
 * The word somebody meant: of all that exist, the one nearest to what was typed, if it is near at all.
 *
 * Near means one typing error (a letter wrong, missing, too many, two swapped) for every three letters, or the same first
 * three letters unless only typing errors count. What is further away is not offered: a wrong suggestion costs more than none.
 *
 * Ownership   Words are borrowed.
 * Threads     None of its own.
 */
#ifndef RON_BASE_NEAREST_H
#define RON_BASE_NEAREST_H

#include <stdbool.h>

struct nearest {
    const char *word, *best; /* best: NULL when nothing near was offered */
    int best_distance;
    bool typos_only; /* for words that share their beginning anyway, such as the keys of a section */
};

struct nearest nearest_to(const char *word);
void nearest_offer(struct nearest *n, const char *candidate); /* NULL is ignored */

#endif
