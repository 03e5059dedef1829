#include "ron/verify/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

struct verify_item *verify_find(struct verify_table *t, const char *key, size_t n)
{
    struct verify_item *i = t->v[hash_of(key, n) % VERIFY_BUCKETS];
    while (i != NULL && (i->key_n != n || memcmp(i->key, key, n) != 0))
        i = i->next;
    return i;
}

struct verify_item *verify_need(struct verify_table *t, const char *key, size_t n)
{
    struct verify_item *i = verify_find(t, key, n);
    if (i != NULL)
        return i;
    i = calloc(1, sizeof *i + n + 1);
    if (i == NULL)
        abort();
    memcpy(i->key, key, n);
    i->key_n = n;
    struct verify_item **b = &t->v[hash_of(key, n) % VERIFY_BUCKETS];
    i->next = *b;
    *b = i;
    t->n++;
    return i;
}

void verify_table_free(struct verify_table *t)
{
    for (size_t b = 0; b < VERIFY_BUCKETS; b++)
        for (struct verify_item *i = t->v[b], *next; i != NULL; i = next) {
            next = i->next;
            free(i);
        }
}

bool verify_wrong(struct verify *c, const char *rule)
{
    if (!c->failed) {
        snprintf(c->r->file, sizeof c->r->file, "%s", c->at_file);
        c->r->byte = c->at_byte;
        snprintf(c->r->rule, sizeof c->r->rule, "%s", rule);
        c->failed = true;
    }
    return false;
}

void verify_node(const struct sha256 *l, const struct sha256 *r, struct sha256 *out)
{
    struct sha256_ctx c;
    sha256_init(&c);
    sha256_update(&c, "\1", 1);
    sha256_update(&c, l->b, 32);
    sha256_update(&c, r->b, 32);
    sha256_final(&c, out);
}

void verify_tree_add(struct verify_tree *t, struct sha256 h)
{
    unsigned level = 0;
    for (uint64_t n = t->n; n & 1; n >>= 1, level++)
        verify_node(&t->front[level], &h, &h);
    t->front[level] = h;
    t->n++;
}

void verify_tree_root(const struct verify_tree *t, struct sha256 *out)
{
    bool have = false;
    sha256_of("", 0, out);
    for (unsigned level = 0; level < 64; level++)
        if (t->n >> level & 1) {
            if (have)
                verify_node(&t->front[level], out, out);
            else
                *out = t->front[level];
            have = true;
        }
}
