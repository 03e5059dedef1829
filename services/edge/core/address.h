/*
 * Where a fill may connect: public addresses only, judged after the name was resolved, so that neither DNS nor a redirect
 * can point it inside.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_ADDRESS_H
#define RON_EDGE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct edge_cidr {
    uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint8_t bits;     /* of 128 */
};

bool edge_cidr_has(const struct edge_cidr *c, const uint8_t addr[16]);

/* addr: IPv6, or IPv4 as ::ffff:a.b.c.d. Addresses that embed an IPv4 one (mapped, 64:ff9b::/96, 2002::/16) are judged by it.
 * `allow` lists what is fine although private. */
bool edge_address_ok(const uint8_t addr[16], const struct edge_cidr *allow, size_t n);

#endif
