#include "services/wallet/core/meta.h"

#include "base/check.h"

static size_t put(uint8_t *out, size_t at, struct str s, size_t max)
{
    CHECK(s.n <= max);
    out[at++] = (uint8_t)s.n;
    if (s.n)
        memcpy(out + at, s.p, s.n);
    return at + s.n;
}

size_t wallet_meta_encode(const struct wallet_meta *m, uint8_t out[WALLET_META_MAX])
{
    size_t at = 2;
    CHECK(m->tenant.n >= 1 && m->key.n >= 1);
    out[0] = 1;
    out[1] = m->flags;
    at = put(out, at, m->tenant, 64);
    at = put(out, at, m->key, 128);
    at = put(out, at, m->memo, 160);
    return put(out, at, m->payee, 128);
}

static bool take(struct bytes b, size_t *at, size_t min, size_t max, struct str *out)
{
    if (*at >= b.n)
        return false;
    size_t n = b.p[(*at)++];
    if (n < min || n > max || n > b.n - *at)
        return false;
    *out = str_of((const char *)b.p + *at, n);
    *at += n;
    return true;
}

enum err wallet_meta_decode(struct bytes b, struct wallet_meta *out)
{
    struct wallet_meta m = {0};
    size_t at = 2;
    if (b.n < 2 || b.p[0] != 1 || b.p[1] > (WALLET_META_EXPIRES_IN | WALLET_META_AMOUNT))
        return ERR_CORRUPT;
    m.flags = b.p[1];
    if (!take(b, &at, 1, 64, &m.tenant) || !take(b, &at, 1, 128, &m.key) ||
        !take(b, &at, 0, 160, &m.memo) || !take(b, &at, 0, 128, &m.payee) || at != b.n)
        return ERR_CORRUPT;
    *out = m;
    return ERR_OK;
}
