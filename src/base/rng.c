#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"

static inline uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

void rng_seed(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) { /* splitmix64, as the authors of xoshiro advise */
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        r->s[i] = z ^ z >> 31;
    }
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    CHECK(n > 0);
    /* Lemire: multiply and take the high half; retry in the biased sliver. */
    unsigned __int128 m = (unsigned __int128)rng_u64(r) * n;
    if ((uint64_t)m < n) {
        uint64_t least = (0 - n) % n;
        while ((uint64_t)m < least)
            m = (unsigned __int128)rng_u64(r) * n;
    }
    return (uint64_t)(m >> 64);
}

int64_t rng_between(struct rng *r, int64_t low, int64_t high)
{
    CHECK(low <= high);
    uint64_t span = (uint64_t)high - (uint64_t)low + 1;
    uint64_t pick = span ? rng_below(r, span) : rng_u64(r);
    return (int64_t)((uint64_t)low + pick);
}

double rng_unit(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

void rng_bytes(struct rng *r, void *p, size_t n)
{
    uint8_t *b = p;
    while (n) {
        uint64_t v = rng_u64(r);
        size_t take = n < sizeof v ? n : sizeof v;
        memcpy(b, &v, take);
        b += take;
        n -= take;
    }
}

static void kernel_random(uint8_t *b, size_t n)
{
    while (n) {
        ssize_t got = getrandom(b, n, 0);
        if (got < 0) {
            CHECK(errno == EINTR);
            continue;
        }
        b += got;
        n -= (size_t)got;
    }
}

/*
 * A system call per UUID is what shows in a profile, so small requests are served from a block per thread.
 * Bytes are wiped as they are handed out. A child of fork must not repeat its parent: each fork starts a
 * new generation.
 */
enum { SMALL_MAX = 64, BLOCK_BYTES = 1024 };

static unsigned fork_generation = 1;

static void next_generation(void)
{
    fork_generation++; /* runs in the child, which has one thread */
}

__attribute__((constructor)) static void rng_watch_forks(void)
{
    CHECK(pthread_atfork(NULL, NULL, next_generation) == 0);
}

void rng_secure(void *p, size_t n)
{
    static _Thread_local uint8_t block[BLOCK_BYTES];
    static _Thread_local size_t left;
    static _Thread_local unsigned generation;
    if (n > SMALL_MAX) {
        kernel_random(p, n);
        return;
    }
    if (n == 0)
        return;
    if (left < n || generation != fork_generation) {
        kernel_random(block, sizeof block);
        left = sizeof block;
        generation = fork_generation;
    }
    uint8_t *from = block + (sizeof block - left);
    memcpy(p, from, n);
    explicit_bzero(from, n);
    left -= n;
}

uint64_t rng_secure_u64(void)
{
    uint64_t v;
    rng_secure(&v, sizeof v);
    return v;
}
