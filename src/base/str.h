/*
 * Reading text: numbers, durations, sizes, patterns, UTF-8. All strict: the whole view must match, no
 * blanks, no signs where none belong, no leading zeros (a number has one spelling).
 *
 * Threads     Pure.
 * Memory      Nothing allocates.
 */
#ifndef RON_BASE_STR_H
#define RON_BASE_STR_H

#include "base/bytes.h"
#include "base/err.h"

/* ^(0|[1-9][0-9]*)$ ; ERR_SYNTAX, or ERR_RANGE when it does not fit. */
NODISCARD enum err str_parse_u64(struct str s, uint64_t *out_value);
/* The same with an optional leading '-' (but not "-0"). */
NODISCARD enum err str_parse_i64(struct str s, int64_t *out_value);
/* "250ms" "5s" "1m" "24h" "7d" ("0" alone is allowed); ERR_SYNTAX or ERR_RANGE. */
NODISCARD enum err str_parse_duration_ms(struct str s, int64_t *out_ms);
/* "65536" "64KiB" "1MiB" "2GiB" "1TiB"; ERR_SYNTAX or ERR_RANGE. */
NODISCARD enum err str_parse_size(struct str s, uint64_t *out_bytes);
/* Shortest spelling that parses back to the same value: "90s", "1500ms", "64KiB". out holds
 * STR_NUMBER_CHARS. */
enum { STR_NUMBER_CHARS = 32 };
size_t str_format_u64(uint64_t value, char *out); /* decimal, terminated; returns the length */
size_t str_format_duration_ms(int64_t ms, char *out);
size_t str_format_size(uint64_t bytes, char *out);

/* Well-formed UTF-8 as in RFC 3629: no overlong forms, no surrogates, at most U+10FFFF. */
bool str_utf8_valid(struct str s);
/* '*' at the end of pattern matches any rest (the only wildcard); else equality. */
bool str_match_tail(struct str pattern, struct str s);
/* Splits at the first `sep`: *out_head gets what stands before it, the rest is returned; when there is
 * none, head is all and the rest has p NULL. */
struct str str_cut(struct str s, char sep, struct str *out_head);
struct str str_trim(struct str s); /* blanks and tabs on both ends */

/* Words of the system: account 1-128 of [A-Za-z0-9:/._-]; asset ^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$. */
bool str_is_account(struct str s);
bool str_is_asset(struct str s);

#endif
