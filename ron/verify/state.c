/* The end of the log: everything adds up to the supply, and the state has a digest of its records by type and key. */
#include "ron/verify/check.h"

#include <stdlib.h>
#include <string.h>

struct digest_row {
    uint8_t *p;
    size_t n, key;
};

struct digest {
    struct digest_row *v;
    size_t n;
};

static int by_key(const void *a, const void *b)
{
    const struct digest_row *x = a, *y = b;
    if (x->p[0] != y->p[0])
        return x->p[0] < y->p[0] ? -1 : 1;
    size_t n = x->key < y->key ? x->key : y->key;
    int k = memcmp(x->p + 3, y->p + 3, n);
    return k != 0 ? k : (x->key > y->key) - (x->key < y->key);
}

static void put_row(struct digest *d, char type, const struct verify_item *i, const uint8_t *value,
                    size_t value_n)
{
    if ((d->n & (d->n - 1)) == 0) {
        d->v = realloc(d->v, (d->n == 0 ? 1 : d->n * 2) * sizeof *d->v);
        if (d->v == NULL)
            abort();
    }
    struct digest_row r = {malloc(5 + i->key_n + value_n), 5 + i->key_n + value_n, i->key_n};
    if (r.p == NULL)
        abort();
    r.p[0] = (uint8_t)type;
    le16_put(r.p + 1, (uint16_t)i->key_n);
    memcpy(r.p + 3, i->key, i->key_n);
    le16_put(r.p + 3 + i->key_n, (uint16_t)value_n);
    memcpy(r.p + 5 + i->key_n, value, value_n);
    d->v[d->n++] = r;
}

static void put128(uint8_t *p, verify_u128 v)
{
    le64_put(p, (uint64_t)v);
    le64_put(p + 8, (uint64_t)(v >> 64));
}

static void put_account(struct digest *d, const struct verify_item *i)
{
    uint8_t value[40];
    put128(value, i->a);
    put128(value + 16, i->b);
    le64_put(value + 32, i->seq);
    put_row(d, 'A', i, value, sizeof value);
}

static void put_lane(struct digest *d, const struct verify_item *i)
{
    uint8_t value[8];
    le64_put(value, (uint64_t)i->a);
    if (i->a != 0)
        put_row(d, 'N', i, value, sizeof value);
}

static void put_supply(struct digest *d, const struct verify_item *i)
{
    uint8_t value[32];
    put128(value, i->a);
    put128(value + 16, i->b);
    put_row(d, 'S', i, value, sizeof value);
}

static void put_hold(struct digest *d, const struct verify_item *i)
{
    uint8_t value[33 + sizeof i->account + sizeof i->asset];
    size_t account_n = strlen(i->account), asset_n = strlen(i->asset);
    if (i->a == 0)
        return; /* closed */
    le64_put(value, i->seq);
    put128(value + 8, i->a);
    le64_put(value + 24, (uint64_t)i->b);
    value[32] = (uint8_t)account_n;
    memcpy(value + 33, i->account, account_n);
    memcpy(value + 33 + account_n, i->asset, asset_n);
    put_row(d, 'H', i, value, 33 + account_n + asset_n);
}

static void put_reversal(struct digest *d, const struct verify_item *i)
{
    uint8_t value[16];
    put128(value, i->a);
    put_row(d, 'R', i, value, sizeof value);
}

static void put_all(struct digest *d, const struct verify_table *t,
                    void (*put)(struct digest *, const struct verify_item *))
{
    for (size_t b = 0; b < VERIFY_BUCKETS; b++)
        for (const struct verify_item *i = t->v[b]; i != NULL; i = i->next)
            put(d, i);
}

static void digest_close(struct digest *d, struct sha256 *out)
{
    struct sha256_ctx h;
    sha256_init(&h);
    if (d->n > 1)
        qsort(d->v, d->n, sizeof *d->v, by_key);
    for (size_t i = 0; i < d->n; i++) {
        sha256_update(&h, d->v[i].p, d->v[i].n);
        free(d->v[i].p);
    }
    sha256_final(&h, out);
    free(d->v);
}

/* Per asset: what all accounts have, free or held, is what was minted less what was burned. */
static bool conserved(struct verify *c)
{
    struct verify_table *sums = calloc(1, sizeof *sums);
    bool ok = true;
    if (sums == NULL)
        abort();
    for (size_t b = 0; b < VERIFY_BUCKETS; b++)
        for (struct verify_item *i = c->rows.v[b]; i != NULL; i = i->next)
            verify_need(sums, i->asset, strlen(i->asset))->a += i->a + i->b;
    for (size_t b = 0; b < VERIFY_BUCKETS; b++)
        for (struct verify_item *i = c->supply.v[b]; i != NULL; i = i->next) {
            struct verify_item *s = verify_find(sums, i->key, i->key_n);
            ok = ok && (s == NULL ? 0 : s->a) == i->a - i->b;
        }
    verify_table_free(sums);
    free(sums);
    return ok;
}

bool verify_state(struct verify *c)
{
    struct digest d = {NULL, 0};
    put_all(&d, &c->rows, put_account);
    put_all(&d, &c->lanes, put_lane);
    put_all(&d, &c->supply, put_supply);
    size_t before = d.n;
    put_all(&d, &c->holds, put_hold);
    c->r->open_holds = d.n - before;
    put_all(&d, &c->reversals, put_reversal);
    digest_close(&d, &c->r->state_digest);
    c->r->accounts = c->rows.n;
    c->r->seq = c->tree.n;
    c->r->groups = c->group;
    c->r->root = c->root;
    return conserved(c) || verify_wrong(c, "balances do not sum up to the supply");
}
