#include "auth/rate.h"

#include <stdlib.h>

#include "auth/lock_ranks.h"
#include "base/check.h"
#include "rt/lock.h"

enum { SHARDS = 16, WAYS = 8, SETS_MAX = 1 << 16 };

#define SECOND_NS INT64_C(1000000000)

struct bucket {
    struct sha256 name;
    int64_t full_at_ns; /* in the past: full, and the way is free */
};

struct shard {
    _Alignas(64) struct rt_lock lock; /* guards the buckets; rank AUTH_RANK_RATE */
    struct bucket *buckets;
};

struct auth_rate {
    struct shard shards[SHARDS];
    size_t sets;
};

enum err auth_rate_create(unsigned buckets, struct auth_rate **out)
{
    size_t sets = 1;
    while (sets * SHARDS * WAYS < buckets && sets < SETS_MAX)
        sets *= 2;
    struct auth_rate *r = aligned_alloc(64, sizeof *r);
    if (r == NULL)
        return ERR_NO_MEMORY;
    *r = (struct auth_rate){.sets = sets};
    for (size_t i = 0; i < SHARDS; i++) {
        rt_lock_init(&r->shards[i].lock, "auth.rate", AUTH_RANK_RATE);
        r->shards[i].buckets = calloc(sets * WAYS, sizeof(struct bucket));
        if (r->shards[i].buckets == NULL) {
            auth_rate_destroy(r);
            return ERR_NO_MEMORY;
        }
    }
    *out = r;
    return ERR_OK;
}

void auth_rate_destroy(struct auth_rate *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        if (r->shards[i].buckets == NULL)
            continue;
        free(r->shards[i].buckets);
        rt_lock_fini(&r->shards[i].lock);
    }
    free(r);
}

static struct shard *shard_of(struct auth_rate *r, const struct sha256 *name)
{
    return &r->shards[name->b[0] % SHARDS];
}

static struct bucket *set_of(const struct auth_rate *r, const struct shard *s, const struct sha256 *name)
{
    return s->buckets + (le32_get(name->b + 1) & (r->sets - 1)) * WAYS;
}

/* The bucket of that name, else the one nearest to full, taken over. */
static struct bucket *bucket_for(struct bucket *set, const struct sha256 *name, int64_t now_ns)
{
    struct bucket *best = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (sha256_eq(&set[i].name, name))
            return &set[i];
        if (set[i].full_at_ns < best->full_at_ns)
            best = &set[i];
    }
    *best = (struct bucket){*name, now_ns};
    return best;
}

enum err auth_rate_charge(struct auth_rate *r, const struct sha256 *name, uint64_t per_s, int64_t now_ns,
                          int64_t *out_wait_ns)
{
    CHECK(per_s > 0 && per_s <= (uint64_t)SECOND_NS);
    int64_t each_ns = SECOND_NS / (int64_t)per_s;
    struct shard *s = shard_of(r, name);
    rt_lock_take(&s->lock);
    struct bucket *b = bucket_for(set_of(r, s, name), name, now_ns);
    int64_t full_at_ns = b->full_at_ns > now_ns ? b->full_at_ns : now_ns;
    int64_t wait_ns = full_at_ns + each_ns - SECOND_NS - now_ns;
    if (wait_ns <= 0)
        b->full_at_ns = full_at_ns + each_ns;
    rt_lock_release(&s->lock);
    if (wait_ns <= 0)
        return ERR_OK;
    *out_wait_ns = wait_ns;
    return ERR_RATE_LIMITED;
}

void auth_rate_refund(struct auth_rate *r, const struct sha256 *name, uint64_t per_s)
{
    int64_t each_ns = SECOND_NS / (int64_t)per_s;
    struct shard *s = shard_of(r, name);
    rt_lock_take(&s->lock);
    struct bucket *set = set_of(r, s, name);
    for (size_t i = 0; i < WAYS; i++)
        if (sha256_eq(&set[i].name, name))
            set[i].full_at_ns -= each_ns;
    rt_lock_release(&s->lock);
}
