#include "auth/cap_cache.h"

#include <stdlib.h>

#include "auth/cap_internal.h"
#include "auth/lock_ranks.h"
#include "base/check.h"
#include "base/siphash.h"
#include "rt/lock.h"

enum {
    SHARDS = 16,
    WAYS = 8,
    SETS_MAX = 1 << 16,
    TAIL = 48, /* more than the 43 characters a signature takes in base64 */
};

struct way {
    uint64_t key;         /* of the token's end */
    struct auth_cap *cap; /* NULL: free */
    uint64_t generation;
    int64_t until_ns;
};

struct shard {
    _Alignas(64) struct rt_lock lock; /* guards everything below; rank AUTH_RANK_CACHE */
    struct way *ways;
    struct auth_cap_cache_stats stats;
};

struct auth_cap_cache {
    struct shard shards[SHARDS];
    size_t sets; /* per shard, a power of two */
};

/* Capabilities to be freed once the lock is gone. */
struct dropped {
    struct auth_cap *caps[WAYS + 1];
    size_t n;
};

static void drop(struct shard *s, struct way *w, struct dropped *d) RT_REQUIRES(&s->lock)
{
    CHECK(d->n < WAYS + 1);
    d->caps[d->n++] = w->cap;
    w->cap = NULL;
    s->stats.entries--;
}

static void release_all(struct dropped *d)
{
    for (size_t i = 0; i < d->n; i++)
        auth_cap_release(d->caps[i]);
    d->n = 0;
}

static bool stale(const struct way *w, uint64_t generation, int64_t now_ns)
{
    return w->generation < generation || w->until_ns <= now_ns;
}

static uint64_t key_of(struct str token)
{
    size_t n = token.n < TAIL ? token.n : TAIL;
    return siphash13(siphash_process_key(), token.p + token.n - n, n);
}

static bool is_of(const struct way *w, uint64_t key, struct str token)
{
    return w->cap != NULL && w->key == key && str_eq(w->cap->token, token);
}

static struct shard *shard_of(struct auth_cap_cache *c, uint64_t key)
{
    return &c->shards[key % SHARDS];
}

static struct way *set_of(const struct auth_cap_cache *c, const struct shard *s, uint64_t key)
{
    return s->ways + (key / SHARDS & (c->sets - 1)) * WAYS;
}

enum err auth_cap_cache_create(unsigned entries, struct auth_cap_cache **out)
{
    size_t sets = 1;
    while (sets * SHARDS * WAYS < entries && sets < SETS_MAX)
        sets *= 2;
    struct auth_cap_cache *c = aligned_alloc(64, sizeof *c);
    if (c == NULL)
        return ERR_NO_MEMORY;
    *c = (struct auth_cap_cache){.sets = sets};
    for (size_t i = 0; i < SHARDS; i++) {
        rt_lock_init(&c->shards[i].lock, "auth.cache", AUTH_RANK_CACHE);
        c->shards[i].ways = calloc(sets * WAYS, sizeof(struct way));
        if (c->shards[i].ways == NULL) {
            auth_cap_cache_destroy(c);
            return ERR_NO_MEMORY;
        }
    }
    *out = c;
    return ERR_OK;
}

void auth_cap_cache_destroy(struct auth_cap_cache *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        if (c->shards[i].ways == NULL)
            continue;
        for (size_t k = 0; k < c->sets * WAYS; k++)
            auth_cap_release(c->shards[i].ways[k].cap);
        free(c->shards[i].ways);
        rt_lock_fini(&c->shards[i].lock);
    }
    free(c);
}

struct auth_cap *auth_cap_cache_find(struct auth_cap_cache *c, struct str token, uint64_t generation,
                                     int64_t now_ns)
{
    uint64_t key = key_of(token);
    struct shard *s = shard_of(c, key);
    struct way *set = set_of(c, s, key);
    struct dropped d = {.n = 0};
    struct auth_cap *found = NULL;
    rt_lock_take(&s->lock);
    for (size_t i = 0; i < WAYS; i++) {
        if (!is_of(&set[i], key, token))
            continue;
        if (stale(&set[i], generation, now_ns)) {
            s->stats.expired++;
            drop(s, &set[i], &d);
        } else {
            found = auth_cap_hold(set[i].cap);
        }
        break;
    }
    if (found != NULL)
        s->stats.hits++;
    else
        s->stats.misses++;
    rt_lock_release(&s->lock);
    release_all(&d);
    return found;
}

/* The same token again, else a free way, else a stale one, else the one that would go first. */
static struct way *way_for(struct way *set, uint64_t key, struct str token, uint64_t generation,
                           int64_t now_ns)
{
    struct way *best = NULL;
    for (size_t i = 0; i < WAYS; i++)
        if (is_of(&set[i], key, token))
            return &set[i];
    for (size_t i = 0; i < WAYS; i++)
        if (set[i].cap == NULL || stale(&set[i], generation, now_ns))
            return &set[i];
    for (size_t i = 0; i < WAYS; i++)
        if (best == NULL || set[i].until_ns < best->until_ns)
            best = &set[i];
    return best;
}

void auth_cap_cache_store(struct auth_cap_cache *c, uint64_t generation, int64_t until_ns, int64_t now_ns,
                          struct auth_cap *cap)
{
    uint64_t key = key_of(cap->token);
    struct shard *s = shard_of(c, key);
    struct dropped d = {.n = 0};
    rt_lock_take(&s->lock);
    struct way *w = way_for(set_of(c, s, key), key, cap->token, generation, now_ns);
    if (w->cap != NULL) {
        if (!is_of(w, key, cap->token) && !stale(w, generation, now_ns))
            s->stats.evicted++;
        drop(s, w, &d);
    }
    *w = (struct way){key, auth_cap_hold(cap), generation, until_ns};
    s->stats.entries++;
    rt_lock_release(&s->lock);
    release_all(&d);
}

static void trim_set(struct shard *s, struct way *set, uint64_t generation, int64_t now_ns)
{
    struct dropped d = {.n = 0};
    rt_lock_take(&s->lock);
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].cap != NULL && stale(&set[i], generation, now_ns)) {
            s->stats.expired++;
            drop(s, &set[i], &d);
        }
    }
    rt_lock_release(&s->lock);
    release_all(&d);
}

void auth_cap_cache_trim(struct auth_cap_cache *c, uint64_t generation, int64_t now_ns)
{
    for (size_t i = 0; i < SHARDS; i++)
        for (size_t set = 0; set < c->sets; set++)
            trim_set(&c->shards[i], c->shards[i].ways + set * WAYS, generation, now_ns);
}

void auth_cap_cache_stats(struct auth_cap_cache *c, struct auth_cap_cache_stats *out)
{
    struct auth_cap_cache_stats sum = {0};
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *s = &c->shards[i];
        rt_lock_take(&s->lock);
        sum.hits += s->stats.hits;
        sum.misses += s->stats.misses;
        sum.evicted += s->stats.evicted;
        sum.expired += s->stats.expired;
        sum.entries += s->stats.entries;
        rt_lock_release(&s->lock);
    }
    *out = sum;
}
