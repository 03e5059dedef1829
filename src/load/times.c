#include "load/times.h"

#include <math.h>

enum { PER_DOUBLING = 32 };

void load_times_note(struct load_times *t, int64_t ns)
{
    double us = (double)ns / 1000;
    int at = us <= 1 ? 0 : (int)(log2(us) * PER_DOUBLING);
    t->bucket[at < LOAD_TIMES_BUCKETS ? at : LOAD_TIMES_BUCKETS - 1]++;
    t->n++;
    if (ns > t->max_ns)
        t->max_ns = ns;
}

double load_times_ms(const struct load_times *t, double q)
{
    uint64_t left = (uint64_t)((double)t->n * q);
    double max_ms = (double)t->max_ns / 1e6;
    for (int i = 0; i < LOAD_TIMES_BUCKETS && left < t->n; i++) {
        if (t->bucket[i] > left)
            return fmin(exp2((double)(i + 1) / PER_DOUBLING) / 1000, max_ms);
        left -= t->bucket[i];
    }
    return max_ms;
}
