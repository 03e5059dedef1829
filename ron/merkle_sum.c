#include "ron/merkle_sum.h"

#include <string.h>

#include "base/sha256.h"

typedef unsigned __int128 u128;

enum { JOIN_BYTES = 97, AT_ONCE = MERKLE_SUM_AT_ONCE };

static bool join_text(const struct merkle_sum *l, const struct merkle_sum *r, uint8_t out[JOIN_BYTES],
                      u128 *out_sum)
{
    out[0] = 1;
    memcpy(out + 1, l->b, 48);
    memcpy(out + 49, r->b, 48);
    return !__builtin_add_overflow(be128_get(l->b + 32), be128_get(r->b + 32), out_sum);
}

bool merkle_sum_join(const struct merkle_sum *l, const struct merkle_sum *r, struct merkle_sum *out)
{
    uint8_t pre[JOIN_BYTES];
    struct sha256 h;
    u128 sum;
    if (!join_text(l, r, pre, &sum))
        return false;
    sha256_of(pre, sizeof pre, &h);
    memcpy(out->b, h.b, 32);
    be128_put(out->b + 32, sum);
    return true;
}

/* One level up in place, a few nodes at a time: hashes that do not wait for each other are cheaper together. */
static bool join_level(struct merkle_sum *nodes, uint64_t n)
{
    uint8_t pre[AT_ONCE][JOIN_BYTES];
    struct sha256 h[AT_ONCE] = {{{0}}};
    struct sha256_job job[AT_ONCE];
    u128 sum[AT_ONCE];
    for (uint64_t first = 0; first < n / 2; first += AT_ONCE) {
        size_t k = n / 2 - first < AT_ONCE ? (size_t)(n / 2 - first) : AT_ONCE;
        for (size_t i = 0; i < k; i++) {
            if (!join_text(&nodes[2 * (first + i)], &nodes[2 * (first + i) + 1], pre[i], &sum[i]))
                return false;
            job[i] = (struct sha256_job){{pre[i], JOIN_BYTES}, &h[i]};
        }
        sha256_of_many(job, k);
        for (size_t i = 0; i < k; i++) {
            memcpy(nodes[first + i].b, h[i].b, 32);
            be128_put(nodes[first + i].b + 32, sum[i]);
        }
    }
    if (n % 2)
        nodes[n / 2] = nodes[n - 1];
    return true;
}

bool merkle_sum_reduce(struct merkle_sum *nodes, uint64_t n)
{
    bool ok = true;
    for (; ok && n > 1; n = (n + 1) / 2)
        ok = join_level(nodes, n);
    return ok;
}

size_t merkle_sum_leaf_text(struct bytes salt, struct str account, u128 amount,
                            uint8_t out[MERKLE_SUM_LEAF_MAX])
{
    size_t n = 2;
    out[0] = 0;
    out[1] = (uint8_t)salt.n;
    if (salt.n)
        memcpy(out + n, salt.p, salt.n);
    n += salt.n;
    out[n++] = (uint8_t)account.n;
    memcpy(out + n, account.p, account.n);
    n += account.n;
    be128_put(out + n, amount);
    return n + 16;
}

struct merkle_sum merkle_sum_leaf(struct bytes salt, struct str account, u128 amount)
{
    struct merkle_sum n;
    struct sha256 h;
    uint8_t text[MERKLE_SUM_LEAF_MAX];
    sha256_of(text, merkle_sum_leaf_text(salt, account, amount, text), &h);
    memcpy(n.b, h.b, 32);
    be128_put(n.b + 32, amount);
    return n;
}
