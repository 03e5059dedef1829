/*
 * Views of memory that somebody else owns, and integers at fixed byte order.
 *
 * Ownership   A view never owns: it is valid as long as what it looks at. Passing a view passes no duty to
 * free. Threads     Everything here is pure. Memory      Nothing allocates.
 */
#ifndef RON_BASE_BYTES_H
#define RON_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *p;
    size_t n;
};

/* Text: UTF-8 unless said otherwise, not terminated. */
struct str {
    const char *p;
    size_t n;
};

/* STR of a literal; STR_INIT where a constant initialiser is needed. */
#define STR(lit) ((struct str){"" lit, sizeof(lit) - 1})
#define STR_INIT(lit)                                                                                      \
    {                                                                                                      \
        "" lit, sizeof(lit) - 1                                                                            \
    }
/* For printf: "%.*s", STR_ARG(s) */
#define STR_ARG(s) (int)(s).n, (s).p

static inline struct bytes bytes_of(const void *p, size_t n)
{
    return (struct bytes){p, n};
}

static inline struct bytes bytes_of_str(struct str s)
{
    return (struct bytes){(const uint8_t *)s.p, s.n};
}

static inline struct str str_of(const char *p, size_t n)
{
    return (struct str){p, n};
}

static inline struct str str_of_bytes(struct bytes b)
{
    return (struct str){(const char *)b.p, b.n};
}

static inline struct str str_from_c(const char *c)
{
    return (struct str){c, c ? strlen(c) : 0};
}

static inline bool bytes_eq(struct bytes a, struct bytes b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Bytewise order, a shorter prefix first: <0, 0, >0. */
static inline int bytes_cmp(struct bytes a, struct bytes b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c != 0)
        return c;
    return a.n < b.n ? -1 : a.n > b.n;
}

/* Same time whatever the contents; the length is not secret. */
static inline bool bytes_eq_secret(struct bytes a, struct bytes b)
{
    if (a.n != b.n)
        return false;
    volatile uint8_t diff = 0;
    for (size_t i = 0; i < a.n; i++)
        diff = (uint8_t)(diff | (a.p[i] ^ b.p[i]));
    return diff == 0;
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_eq_c(struct str a, const char *c)
{
    return str_eq(a, str_from_c(c));
}

static inline int str_cmp(struct str a, struct str b)
{
    return bytes_cmp(bytes_of_str(a), bytes_of_str(b));
}

static inline bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

static inline bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + (s.n - suffix.n), suffix.p, suffix.n) == 0);
}

/* Integers in memory: be = big-endian (wire, hashed preimages), le = little-endian (our files). */
#define BYTES_SWAP16(v) __builtin_bswap16(v)
#define BYTES_SWAP32(v) __builtin_bswap32(v)
#define BYTES_SWAP64(v) __builtin_bswap64(v)
#define BYTES_SWAP128(v)                                                                                   \
    ((unsigned __int128)__builtin_bswap64((uint64_t)(v)) << 64 | __builtin_bswap64((uint64_t)((v) >> 64)))
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BYTES_TO_BE(bits, v) BYTES_SWAP##bits(v)
#define BYTES_TO_LE(bits, v) (v)
#else
#define BYTES_TO_BE(bits, v) (v)
#define BYTES_TO_LE(bits, v) BYTES_SWAP##bits(v)
#endif
/* One load or store and at most one swap: compilers do not find that in a loop over bytes at -O2. */
#define BYTES_DEFINE_ENDIAN(bits, type)                                                                    \
    static inline void be##bits##_put(void *p, type v)                                                     \
    {                                                                                                      \
        v = BYTES_TO_BE(bits, v);                                                                          \
        memcpy(p, &v, sizeof v);                                                                           \
    }                                                                                                      \
    static inline type be##bits##_get(const void *p)                                                       \
    {                                                                                                      \
        type v;                                                                                            \
        memcpy(&v, p, sizeof v);                                                                           \
        return BYTES_TO_BE(bits, v);                                                                       \
    }                                                                                                      \
    static inline void le##bits##_put(void *p, type v)                                                     \
    {                                                                                                      \
        v = BYTES_TO_LE(bits, v);                                                                          \
        memcpy(p, &v, sizeof v);                                                                           \
    }                                                                                                      \
    static inline type le##bits##_get(const void *p)                                                       \
    {                                                                                                      \
        type v;                                                                                            \
        memcpy(&v, p, sizeof v);                                                                           \
        return BYTES_TO_LE(bits, v);                                                                       \
    }

BYTES_DEFINE_ENDIAN(16, uint16_t)
BYTES_DEFINE_ENDIAN(32, uint32_t)
BYTES_DEFINE_ENDIAN(64, uint64_t)
BYTES_DEFINE_ENDIAN(128, unsigned __int128)
#undef BYTES_DEFINE_ENDIAN

#endif
