#include "services/wallet/core/roots.h"

#include <stdlib.h>

enum err wallet_roots_init(struct wallet_roots *r)
{
    r->seen = calloc(WALLET_ROOTS, sizeof *r->seen);
    return r->seen ? ERR_OK : ERR_NO_MEMORY;
}

void wallet_roots_fini(struct wallet_roots *r)
{
    free(r->seen);
}

enum err wallet_roots_see(struct wallet_roots *r, uint64_t size, const struct sha256 *root)
{
    struct wallet_root_seen *s = &r->seen[size % WALLET_ROOTS];
    if (size == 0)
        return ERR_OK;
    if (s->size == size)
        return sha256_eq(&s->root, root) ? ERR_OK : ERR_CORRUPT;
    if (size > s->size)
        *s = (struct wallet_root_seen){size, *root};
    return ERR_OK;
}
