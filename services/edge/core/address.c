#include "services/edge/core/address.h"

#include <string.h>

#define V4(a, b, c, d, n)                                                                                  \
    {                                                                                                      \
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}, 96 + (n)                                   \
    }
#define V6(a, b, c, d, e, f, n)                                                                            \
    {                                                                                                      \
        {a, b, c, d, e, f}, n                                                                              \
    }

/* Not for the public Internet (IANA special-purpose registries). */
static const struct edge_cidr closed[] = {
    V4(0, 0, 0, 0, 8),
    V4(10, 0, 0, 0, 8),
    V4(100, 64, 0, 0, 10),
    V4(127, 0, 0, 0, 8),
    V4(169, 254, 0, 0, 16),
    V4(172, 16, 0, 0, 12),
    V4(192, 0, 0, 0, 24),
    V4(192, 0, 2, 0, 24),
    V4(192, 88, 99, 0, 24),
    V4(192, 168, 0, 0, 16),
    V4(198, 18, 0, 0, 15),
    V4(198, 51, 100, 0, 24),
    V4(203, 0, 113, 0, 24),
    V4(224, 0, 0, 0, 3),
    V6(0, 0, 0, 0, 0, 0, 127),
    V6(0, 0x64, 0xff, 0x9b, 0, 1, 48),
    V6(1, 0, 0, 0, 0, 0, 64),
    V6(0x20, 1, 0, 0, 0, 0, 23),
    V6(0x20, 1, 0x0d, 0xb8, 0, 0, 32),
    V6(0xfc, 0, 0, 0, 0, 0, 7),
    V6(0xfe, 0x80, 0, 0, 0, 0, 10),
    V6(0xff, 0, 0, 0, 0, 0, 8),
};

static const struct edge_cidr nat64 = V6(0, 0x64, 0xff, 0x9b, 0, 0, 96),
                              six_to_four = V6(0x20, 2, 0, 0, 0, 0, 16);

bool edge_cidr_has(const struct edge_cidr *c, const uint8_t addr[16])
{
    size_t whole = c->bits / 8;
    if (memcmp(c->addr, addr, whole) != 0)
        return false;
    unsigned rest = c->bits % 8;
    return rest == 0 || ((c->addr[whole] ^ addr[whole]) >> (8 - rest)) == 0;
}

static void embedded(const uint8_t v4[4], uint8_t out[16])
{
    memset(out, 0, 10);
    out[10] = out[11] = 0xff;
    memcpy(out + 12, v4, 4);
}

bool edge_address_ok(const uint8_t addr[16], const struct edge_cidr *allow, size_t n)
{
    uint8_t judged[16];
    if (edge_cidr_has(&nat64, addr))
        embedded(addr + 12, judged);
    else if (edge_cidr_has(&six_to_four, addr))
        embedded(addr + 2, judged);
    else
        memcpy(judged, addr, 16);
    for (size_t i = 0; i < n; i++)
        if (edge_cidr_has(&allow[i], judged))
            return true;
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        if (edge_cidr_has(&closed[i], judged))
            return false;
    return true;
}
