/* Lower-case hexadecimal. Strict: decoding refuses upper case and any length but 2n. Pure, allocates
 * nothing. */
#ifndef RON_BASE_HEX_H
#define RON_BASE_HEX_H

#include "base/bytes.h"
#include "base/err.h"

void hex_encode(const void *p, size_t n, char *out); /* writes 2n characters and a terminator */
NODISCARD enum err hex_decode(struct str s, void *out_bytes, size_t n); /* exactly n bytes; ERR_SYNTAX */
NODISCARD enum err hex_decode_any_case(struct str s, void *out_bytes, size_t n);

#endif
