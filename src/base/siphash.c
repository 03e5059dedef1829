/* SipHash with one compression and three finalisation rounds (Aumasson, Bernstein 2012). */
#include "base/siphash.h"

#include "base/bytes.h"
#include "base/rng.h"

static struct siphash_key process_key;

/* Before main, so that no map can exist without it and no thread can race it. */
__attribute__((constructor)) static void siphash_make_process_key(void)
{
    rng_secure(&process_key, sizeof process_key);
}

const struct siphash_key *siphash_process_key(void)
{
    return &process_key;
}

void siphash_set_process_key(struct siphash_key key)
{
    process_key = key;
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v2 = rotl(s->v2, 32);
}

static inline struct sip sip_start(const struct siphash_key *k)
{
    return (struct sip){k->k0 ^ 0x736f6d6570736575u, k->k1 ^ 0x646f72616e646f6du,
                        k->k0 ^ 0x6c7967656e657261u, k->k1 ^ 0x7465646279746573u};
}

static inline void sip_word(struct sip *s, uint64_t m)
{
    s->v3 ^= m;
    sip_round(s);
    s->v0 ^= m;
}

static inline uint64_t sip_finish(struct sip *s)
{
    s->v2 ^= 0xff;
    sip_round(s);
    sip_round(s);
    sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

uint64_t siphash13(const struct siphash_key *key, const void *p, size_t n)
{
    struct sip s = sip_start(key);
    const uint8_t *b = p;
    size_t left = n;
    for (; left >= 8; left -= 8, b += 8)
        sip_word(&s, le64_get(b));
    uint64_t last = (uint64_t)(n & 0xff) << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)b[i] << (8 * i);
    sip_word(&s, last);
    return sip_finish(&s);
}

uint64_t siphash13_u64(const struct siphash_key *key, uint64_t v)
{
    struct sip s = sip_start(key);
    sip_word(&s, v);
    sip_word(&s, (uint64_t)8 << 56);
    return sip_finish(&s);
}

uint64_t siphash13_u128(const struct siphash_key *key, uint64_t lo, uint64_t hi)
{
    struct sip s = sip_start(key);
    sip_word(&s, lo);
    sip_word(&s, hi);
    sip_word(&s, (uint64_t)16 << 56);
    return sip_finish(&s);
}
