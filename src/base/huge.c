#include "base/huge.h"

#include <stdint.h>
#include <sys/mman.h>

/* Twice as much is mapped and the ends given back: mmap promises no alignment beyond a page. */
void *huge_alloc(bool whole)
{
    uint8_t *p =
        mmap(NULL, 2 * (size_t)HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
    if (before)
        (void)munmap(p, before);
    (void)munmap(p + before + HUGE_BYTES, HUGE_BYTES - before);
    if (whole)
        (void)madvise(p + before, HUGE_BYTES,
                      MADV_HUGEPAGE); /* a hint: without it everything works, slower */
    return p + before;
}

void huge_free(void *piece)
{
    if (piece)
        (void)munmap(piece, HUGE_BYTES);
}
