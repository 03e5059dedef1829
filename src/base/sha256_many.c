/*
 * Hashes that do not wait for each other, two at a time.
 *
 * The SHA instructions of a processor take several cycles each and every round needs the one before, so a single hash leaves the
 * unit idle most of the time. Two independent messages, their rounds interleaved, fill the gaps: two hashes in little more than
 * the time of one. Messages need not be of one length; what the longer one has left runs alone, through OpenSSL.
 *
 * The interleaved code runs only where the processor says that it has the instructions; elsewhere every message goes the ordinary
 * way (sha256_of). Results are the same bytes on both ways: tests/prop/base/test_sha256.c.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

void sha256_of_many_portable(const struct sha256_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sha256_of(jobs[i].message.p, jobs[i].message.n, jobs[i].out);
}

void sha256_of_pairs_portable(uint8_t prefix, const struct sha256 *nodes, size_t n, struct sha256 *out)
{
    for (size_t i = 0; i < n; i++)
        sha256_of_pair(prefix, &nodes[2 * i], &nodes[2 * i + 1], &out[i]);
}

#if defined(__x86_64__)

enum { BLOCK = 64, LENGTH_BYTES = 8 };
#define TWO_LANES __attribute__((target("sha,sse4.1,ssse3")))

static bool have_sha; /* written before main only */

__attribute__((constructor)) static void sha256_look_at_processor(void)
{
    unsigned a, b, c, d;
    bool shuffles = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSSE3) != 0 && (c & bit_SSE4_1) != 0;
    have_sha = shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

/* A message as blocks: those that lie whole in it, then one or two that hold the rest, the mark and the length. */
struct lane {
    const uint8_t *p;
    size_t whole, blocks;
    uint32_t h[8];
    uint8_t tail[2 * BLOCK];
};

static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static void lane_open(struct lane *l, struct bytes m)
{
    size_t rest = m.n % BLOCK, tail = rest < BLOCK - LENGTH_BYTES ? BLOCK : 2 * BLOCK;
    l->p = m.p;
    l->whole = m.n / BLOCK;
    l->blocks = l->whole + tail / BLOCK;
    memcpy(l->h, initial, sizeof initial);
    if (rest != 0)
        memcpy(l->tail, m.p + l->whole * BLOCK, rest);
    l->tail[rest] = 0x80;
    memset(l->tail + rest + 1, 0, tail - LENGTH_BYTES - (rest + 1));
    be64_put(l->tail + tail - LENGTH_BYTES, (uint64_t)m.n * 8);
}

static inline const uint8_t *lane_block(const struct lane *l, size_t i)
{
    return i < l->whole ? l->p + i * BLOCK : l->tail + (i - l->whole) * BLOCK;
}

static void lane_close(const struct lane *l, struct sha256 *out)
{
    for (size_t i = 0; i < 8; i++)
        be32_put(out->b + 4 * i, l->h[i]);
}

/* The instructions want the eight words as ABEF and CDGH, most significant first. */
struct words {
    __m128i abef, cdgh;
};

TWO_LANES static inline struct words words_load(const uint32_t h[8])
{
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(h + 4)), 0x1b);
    return (struct words){_mm_alignr_epi8(abcd, efgh, 8), _mm_blend_epi16(efgh, abcd, 0xf0)};
}

TWO_LANES static inline void words_store(struct words w, uint32_t h[8])
{
    __m128i feba = _mm_shuffle_epi32(w.abef, 0x1b), dchg = _mm_shuffle_epi32(w.cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

TWO_LANES static inline __m128i message_load(const uint8_t *p)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), swap);
}

TWO_LANES static inline __m128i message_next(__m128i m0, __m128i m1, __m128i m2, __m128i m3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(m0, m1), _mm_alignr_epi8(m3, m2, 4));
    return _mm_sha256msg2_epu32(sum, m3);
}

/* Four rounds of both lanes, and the four words of the schedule that come sixteen later. */
#define FOUR_ROUNDS(i, a0, a1, a2, a3, b0, b1, b2, b3)                                                     \
    do {                                                                                                   \
        const __m128i k = _mm_load_si128((const __m128i *)(const void *)(constants + 4 * (i)));            \
        __m128i wx = _mm_add_epi32(a0, k), wy = _mm_add_epi32(b0, k);                                      \
        x.cdgh = _mm_sha256rnds2_epu32(x.cdgh, x.abef, wx);                                                \
        y.cdgh = _mm_sha256rnds2_epu32(y.cdgh, y.abef, wy);                                                \
        if ((i) < 12) {                                                                                    \
            a0 = message_next(a0, a1, a2, a3);                                                             \
            b0 = message_next(b0, b1, b2, b3);                                                             \
        }                                                                                                  \
        x.abef = _mm_sha256rnds2_epu32(x.abef, x.cdgh, _mm_shuffle_epi32(wx, 0x0e));                       \
        y.abef = _mm_sha256rnds2_epu32(y.abef, y.cdgh, _mm_shuffle_epi32(wy, 0x0e));                       \
    } while (0)

#define SIXTEEN_ROUNDS(i)                                                                                  \
    do {                                                                                                   \
        FOUR_ROUNDS((i), a0, a1, a2, a3, b0, b1, b2, b3);                                                  \
        FOUR_ROUNDS((i) + 1, a1, a2, a3, a0, b1, b2, b3, b0);                                              \
        FOUR_ROUNDS((i) + 2, a2, a3, a0, a1, b2, b3, b0, b1);                                              \
        FOUR_ROUNDS((i) + 3, a3, a0, a1, a2, b3, b0, b1, b2);                                              \
    } while (0)

/* The first n blocks of both. */
TWO_LANES static void lanes_run(struct lane *a, struct lane *b, size_t n)
{
    struct words x = words_load(a->h), y = words_load(b->h);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = lane_block(a, i), *q = lane_block(b, i);
        struct words x_was = x, y_was = y;
        __m128i a0 = message_load(p), a1 = message_load(p + 16), a2 = message_load(p + 32),
                a3 = message_load(p + 48);
        __m128i b0 = message_load(q), b1 = message_load(q + 16), b2 = message_load(q + 32),
                b3 = message_load(q + 48);
        SIXTEEN_ROUNDS(0);
        SIXTEEN_ROUNDS(4);
        SIXTEEN_ROUNDS(8);
        SIXTEEN_ROUNDS(12);
        x.abef = _mm_add_epi32(x.abef, x_was.abef);
        x.cdgh = _mm_add_epi32(x.cdgh, x_was.cdgh);
        y.abef = _mm_add_epi32(y.abef, y_was.abef);
        y.cdgh = _mm_add_epi32(y.cdgh, y_was.cdgh);
    }
    words_store(x, a->h);
    words_store(y, b->h);
}

/* What is left of the longer one. */
static void lane_finish(struct lane *l, size_t from)
{
    SHA256_CTX c;
    SHA256_Init(&c);
    _Static_assert(sizeof c.h == sizeof l->h, "OpenSSL keeps eight words too");
    memcpy(c.h, l->h, sizeof l->h);
    for (size_t i = from; i < l->blocks; i++)
        SHA256_Transform(&c, lane_block(l, i));
    memcpy(l->h, c.h, sizeof l->h);
}

static void two(struct bytes m, struct bytes k, struct sha256 *out_m, struct sha256 *out_k)
{
    struct lane a, b;
    lane_open(&a, m);
    lane_open(&b, k);
    size_t both = a.blocks < b.blocks ? a.blocks : b.blocks;
    lanes_run(&a, &b, both);
    if (both < a.blocks)
        lane_finish(&a, both);
    if (both < b.blocks)
        lane_finish(&b, both);
    lane_close(&a, out_m);
    lane_close(&b, out_k);
}

void sha256_of_many(const struct sha256_job *jobs, size_t n)
{
    size_t i = 0;
    for (; have_sha && i + 2 <= n; i += 2)
        two(jobs[i].message, jobs[i + 1].message, jobs[i].out, jobs[i + 1].out);
    sha256_of_many_portable(jobs + i, n - i);
}

void sha256_of_pairs(uint8_t prefix, const struct sha256 *nodes, size_t n, struct sha256 *out)
{
    enum { PAIR = 1 + 2 * sizeof nodes->b };
    uint8_t left[PAIR], right[PAIR];
    left[0] = right[0] = prefix;
    size_t i = 0;
    for (; have_sha && i + 2 <= n; i += 2) {
        memcpy(left + 1, &nodes[2 * i], PAIR - 1);
        memcpy(right + 1, &nodes[2 * i + 2], PAIR - 1);
        two(bytes_of(left, PAIR), bytes_of(right, PAIR), &out[i], &out[i + 1]);
    }
    sha256_of_pairs_portable(prefix, nodes + 2 * i, n - i, out + i);
}

#else

void sha256_of_many(const struct sha256_job *jobs, size_t n)
{
    sha256_of_many_portable(jobs, n);
}

void sha256_of_pairs(uint8_t prefix, const struct sha256 *nodes, size_t n, struct sha256 *out)
{
    sha256_of_pairs_portable(prefix, nodes, n, out);
}

#endif
