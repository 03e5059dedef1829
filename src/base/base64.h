/*
 * Base64, standard with padding and URL-safe without (RFC 4648). Strict: canonical input only (right
 * padding, zero trailing bits, no blanks), so that one value has one spelling. Pure, allocates nothing.
 */
#ifndef RON_BASE_BASE64_H
#define RON_BASE_BASE64_H

#include "base/bytes.h"
#include "base/err.h"

static inline size_t base64_encoded_chars(size_t n) /* without terminator; also enough for the URL form */
{
    return (n + 2) / 3 * 4;
}

static inline size_t base64_decoded_bytes_max(size_t chars)
{
    return chars / 4 * 3 + 3;
}

size_t base64_encode(const void *p, size_t n, char *out); /* terminated; returns the length */
size_t base64url_encode(const void *p, size_t n, char *out);
/*
 * ERR_SYNTAX, or ERR_TOO_LARGE when more than max bytes would come out. out_bytes may be s.p: it decodes in place. What lies
 * there after a failure is not said.
 */
NODISCARD enum err base64_decode(struct str s, void *out_bytes, size_t max, size_t *out_n);
NODISCARD enum err base64url_decode(struct str s, void *out_bytes, size_t max, size_t *out_n);

#endif
