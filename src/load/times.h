/*
 * How long things took: a histogram of fixed size, 32 buckets for each doubling, so that a quantile is right to 2.2 %.
 *
 * Threads     One at a time.
 */
#ifndef RON_LOAD_TIMES_H
#define RON_LOAD_TIMES_H

#include <stdint.h>

enum { LOAD_TIMES_BUCKETS = 1024 }; /* up to an hour */

struct load_times {
    uint64_t n, bucket[LOAD_TIMES_BUCKETS];
    int64_t max_ns;
};

void load_times_note(struct load_times *t, int64_t ns);
double load_times_ms(const struct load_times *t, double q); /* quantile; the largest is exact */

#endif
