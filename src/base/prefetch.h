/*
 * Asks for a cache line that will soon be needed, to read or to write.
 *
 * A function that only calls __builtin_prefetch is pure to gcc, and a call of a pure function whose value nobody uses is dropped:
 * the asm statement keeps it.
 */
#ifndef RON_BASE_PREFETCH_H
#define RON_BASE_PREFETCH_H

static inline void prefetch_line(const void *p)
{
    __builtin_prefetch(p, 1);
    __asm__ volatile("");
}

#endif
