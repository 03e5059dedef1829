/* UUIDs, version 7 (RFC 9562): 48 bits of wall milliseconds, then random bits. Text is lower case.
 * Allocates nothing. */
#ifndef RON_BASE_UUID_H
#define RON_BASE_UUID_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"

struct uuid {
    uint8_t b[16];
};

enum { UUID_CHARS = 37 }; /* with terminator */

struct uuid uuid_v7(int64_t wall_ms, const uint8_t random[10]); /* pure */
struct uuid uuid_v7_now(const struct clock *clock);             /* with rng_secure */
void uuid_format(const struct uuid *u, char out[UUID_CHARS]);
NODISCARD enum err uuid_parse(struct str s,
                              struct uuid *out_uuid); /* any version, lower case; ERR_SYNTAX */
int64_t uuid_v7_wall_ms(const struct uuid *u);

#endif
