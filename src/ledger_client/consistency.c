#include <string.h>

#include "ledger_client/guard.h"

static void node(const struct sha256 *left, const struct sha256 *right, struct sha256 *out)
{
    uint8_t bytes[65];
    bytes[0] = 1;
    memcpy(bytes + 1, left->b, 32);
    memcpy(bytes + 33, right->b, 32);
    sha256_of(bytes, sizeof bytes, out);
}

/* The path climbs from the last complete subtree of the old tree: on the way its left neighbours belong to both trees, the right
 * ones only to the new. */
bool ledger_consistency_holds(uint64_t from, uint64_t to, const struct sha256 *from_root,
                              const struct sha256 *to_root, const struct sha256 *path, size_t n)
{
    if (from == 0 || from > to)
        return false;
    if (from == to)
        return n == 0 && sha256_eq(from_root, to_root);
    bool whole = (from & (from - 1)) ==
                 0; /* the old tree is one complete subtree: its root is left out of the path */
    if (!whole && n == 0)
        return false;
    struct sha256 old = whole ? *from_root : path[0], new = old;
    uint64_t fn = from - 1, sn = to - 1;
    for (; fn & 1; fn >>= 1)
        sn >>= 1;
    for (size_t i = whole ? 0 : 1; i < n; i++) {
        if (sn == 0)
            return false;
        if ((fn & 1) || fn == sn) {
            node(&path[i], &old, &old);
            node(&path[i], &new, &new);
            for (; !(fn & 1) && fn != 0; fn >>= 1)
                sn >>= 1;
        } else {
            node(&new, &path[i], &new);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && sha256_eq(&old, from_root) && sha256_eq(&new, to_root);
}
