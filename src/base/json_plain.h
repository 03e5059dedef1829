/*
 * Where JSON text stops being plain: printable ASCII without quote and backslash, which stands in a string as it is. Sixteen or
 * eight bytes at a time. Pure: any thread, nothing to own; reads p[0..end) only.
 */
#ifndef RON_BASE_JSON_PLAIN_H
#define RON_BASE_JSON_PLAIN_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/bytes.h"

#define JSON_EACH_BYTE(x) (0x0101010101010101u * (x))

/* High bit set in the lowest byte of w that is a quote, a backslash, a control character or not ASCII; 0 when none is. */
static inline uint64_t json_special_bytes(uint64_t w)
{
    uint64_t quote = w ^ JSON_EACH_BYTE('"'), back = w ^ JSON_EACH_BYTE('\\');
    uint64_t control = (w - JSON_EACH_BYTE(0x20)) & ~w;
    return (((quote - JSON_EACH_BYTE(1)) & ~quote) | ((back - JSON_EACH_BYTE(1)) & ~back) | control | w) &
           JSON_EACH_BYTE(0x80);
}

static inline bool json_is_special(uint8_t c)
{
    return c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
}

/* The first byte that is not plain, or end. */
static inline const uint8_t *json_plain_end(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    while (end - p >= 16) {
        __m128i w = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i special =
            _mm_or_si128(_mm_cmpeq_epi8(w, _mm_set1_epi8('"')), _mm_cmpeq_epi8(w, _mm_set1_epi8('\\')));
        special = _mm_or_si128(special, _mm_cmplt_epi8(w, _mm_set1_epi8(0x20))); /* signed: non-ASCII too */
        unsigned at = (unsigned)_mm_movemask_epi8(special);
        if (at)
            return p + __builtin_ctz(at);
        p += 16;
    }
#endif
    while (end - p >= 8) {
        uint64_t special = json_special_bytes(le64_get(p));
        if (special) /* borrows can only mark bytes above a real hit, so the lowest one is real */
            return p + __builtin_ctzll(special) / 8;
        p += 8;
    }
    while (p < end && !json_is_special(*p))
        p++;
    return p;
}

#endif
