#include "base/uuid.h"

#include "base/hex.h"
#include "base/rng.h"

struct uuid uuid_v7(int64_t wall_ms, const uint8_t random[10])
{
    struct uuid u;
    uint64_t ms = wall_ms > 0 ? (uint64_t)wall_ms : 0;
    for (unsigned i = 0; i < 6; i++)
        u.b[i] = (uint8_t)(ms >> (40 - 8 * i));
    memcpy(u.b + 6, random, 10);
    u.b[6] = (uint8_t)(0x70 | (u.b[6] & 0x0f)); /* version 7 */
    u.b[8] = (uint8_t)(0x80 | (u.b[8] & 0x3f)); /* variant 10 */
    return u;
}

struct uuid uuid_v7_now(const struct clock *clock)
{
    uint8_t random[10];
    rng_secure(random, sizeof random);
    return uuid_v7(clock_wall_ms(clock), random);
}

static const uint8_t group_bytes[] = {4, 2, 2, 2, 6};

void uuid_format(const struct uuid *u, char out[UUID_CHARS])
{
    char all[2 * sizeof u->b + 1];
    hex_encode(u->b, sizeof u->b, all);
    memcpy(out, all, 8);
    memcpy(out + 9, all + 8, 4);
    memcpy(out + 14, all + 12, 4);
    memcpy(out + 19, all + 16, 4);
    memcpy(out + 24, all + 20, 12);
    out[8] = out[13] = out[18] = out[23] = '-';
    out[36] = '\0';
}

enum err uuid_parse(struct str s, struct uuid *out_uuid)
{
    if (s.n != UUID_CHARS - 1)
        return ERR_SYNTAX;
    struct uuid u;
    uint8_t *to = u.b;
    for (unsigned g = 0; g < sizeof group_bytes; g++) {
        if (g && *s.p++ != '-')
            return ERR_SYNTAX;
        if (hex_decode(str_of(s.p, (size_t)2 * group_bytes[g]), to, group_bytes[g]) != ERR_OK)
            return ERR_SYNTAX;
        s.p += (size_t)2 * group_bytes[g];
        to += group_bytes[g];
    }
    *out_uuid = u;
    return ERR_OK;
}

int64_t uuid_v7_wall_ms(const struct uuid *u)
{
    return (int64_t)(be64_get(u->b) >> 16);
}
