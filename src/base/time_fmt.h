/* Wall time as text: RFC 3339, UTC, milliseconds. Years 0000 to 9999. Pure. */
#ifndef RON_BASE_TIME_FMT_H
#define RON_BASE_TIME_FMT_H

#include "base/bytes.h"
#include "base/err.h"

enum { TIME_FMT_CHARS = 25 }; /* "2026-12-01T00:00:00.000Z" and a terminator */

void time_format_ms(int64_t wall_ms, char out[TIME_FMT_CHARS]); /* out-of-range times are clamped */
/* Date, 'T', time, optional fraction (1-9 digits, cut to ms), 'Z' or +hh:mm; second 60 is refused.
 * ERR_SYNTAX. */
NODISCARD enum err time_parse_ms(struct str s, int64_t *out_wall_ms);
/* Days since 1970-01-01 of a valid date of the Gregorian calendar, and back. */
int64_t time_days_from_date(int year, int month, int day);
void time_date_from_days(int64_t days, int *out_year, int *out_month, int *out_day);
/* HTTP dates: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 §5.6.7, the preferred form only). */
enum { TIME_HTTP_CHARS = 30 };
void time_format_http(int64_t wall_ms, char out[TIME_HTTP_CHARS]);
NODISCARD enum err time_parse_http(struct str s, int64_t *out_wall_ms);

#endif
