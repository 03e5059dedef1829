/*
 * Accept-Encoding, Prefer and Want-Repr-Digest of a request (RFC 9110 §12.5.3, RFC 7240, RFC 9530).
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_ACCEPT_H
#define RON_EDGE_ACCEPT_H

#include "base/bytes.h"
#include "services/edge/core/inflate.h"

enum { EDGE_ACCEPT_MAX = 1024, EDGE_PREFER_WAIT_MAX = 5 };

/* Is this content coding accepted with q > 0? Absent (p NULL), too long or malformed: only identity is. */
bool edge_accepts(struct str accept_encoding, enum edge_coding coding);

struct edge_prefer {
    bool async;
    unsigned wait_s; /* 0 to 5 */
};
struct edge_prefer edge_prefer_parse(struct str prefer); /* what it does not understand it ignores */

bool edge_wants_digest(struct str want_repr_digest); /* names sha-256 with a weight other than 0 */

#endif
