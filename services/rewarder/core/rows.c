#include "services/rewarder/core/rows.h"

#include "base/check.h"
#include "base/str.h"

static const char rows_magic[8] = "RONROWS1";

struct cursor {
    struct bytes all;
    size_t at;
};

static bool take(struct cursor *c, size_t n, const uint8_t **out)
{
    if (c->all.n - c->at < n)
        return false;
    *out = c->all.p + c->at;
    c->at += n;
    return true;
}

static bool take_lp(struct cursor *c, struct str *out)
{
    const uint8_t *len, *p;
    if (!take(c, 1, &len) || !take(c, *len, &p))
        return false;
    *out = (struct str){(const char *)p, *len};
    return true;
}

static bool read_header(struct cursor *c, struct rewarder_rows *r)
{
    const uint8_t *p;
    struct str salt;
    if (!take(c, 8, &p) || memcmp(p, rows_magic, 8) != 0)
        return false;
    if (!take_lp(c, &r->tenant) || !rewarder_is_tenant(r->tenant))
        return false;
    if (!take_lp(c, &r->epoch) || !rewarder_is_epoch(r->epoch))
        return false;
    if (!take_lp(c, &salt) || salt.n > REWARDER_SALT_MAX || (salt.n && salt.n < 16))
        return false;
    r->salt = bytes_of_str(salt);
    if (!take(c, 1, &p) || *p == 0 || *p > REWARDER_DIMS_MAX)
        return false;
    r->dim_count = *p;
    for (unsigned d = 0; d < r->dim_count; d++) {
        if (!take_lp(c, &r->dims[d]) || !rewarder_is_dim(r->dims[d]))
            return false;
        if (d && str_cmp(r->dims[d - 1], r->dims[d]) >= 0)
            return false;
    }
    if (!take(c, 8, &p))
        return false;
    r->count = be64_get(p);
    r->first = c->at;
    return true;
}

static bool check_rows(struct cursor *c, const struct rewarder_rows *r)
{
    struct str before = {NULL, 0};
    for (uint64_t i = 0; i < r->count; i++) {
        struct str account;
        const uint8_t *usage;
        if (!take_lp(c, &account) || !str_is_account(account) || !take(c, 8u * r->dim_count, &usage))
            return false;
        if (i && str_cmp(before, account) >= 0)
            return false;
        for (unsigned d = 0; d < r->dim_count; d++)
            if (usage[8 * d] & 0x80)
                return false;
        before = account;
    }
    return c->at == c->all.n;
}

enum err rewarder_rows_open(struct bytes all, struct rewarder_rows *out)
{
    struct rewarder_rows r = {.all = all};
    struct cursor c = {.all = all};
    if (!read_header(&c, &r) || !check_rows(&c, &r))
        return ERR_CORRUPT;
    sha256_of(all.p, all.n, &r.digest);
    *out = r;
    return ERR_OK;
}

static size_t put_lp(uint8_t *out, struct bytes b)
{
    CHECK(b.n <= 255);
    out[0] = (uint8_t)b.n;
    if (b.n)
        memcpy(out + 1, b.p, b.n);
    return 1 + b.n;
}

size_t rewarder_rows_header(const struct rewarder_rows *head, uint8_t *out)
{
    size_t n = 8;
    memcpy(out, rows_magic, 8);
    n += put_lp(out + n, bytes_of_str(head->tenant));
    n += put_lp(out + n, bytes_of_str(head->epoch));
    n += put_lp(out + n, head->salt);
    out[n++] = (uint8_t)head->dim_count;
    for (unsigned d = 0; d < head->dim_count; d++)
        n += put_lp(out + n, bytes_of_str(head->dims[d]));
    be64_put(out + n, head->count);
    return n + 8;
}
