/*
 * Names: what may stand behind /edge/assets/, what a pack may be called, which type an extension means, which route
 * serves a name and where it leads.
 *
 * Threads     Pure.
 */
#ifndef RON_EDGE_NAME_H
#define RON_EDGE_NAME_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

enum { EDGE_QUERY_MAX = 1024, EDGE_PACK_NAME_MAX = 64, EDGE_URL_MAX = 8192 };

/*
 * A path as it stands in the target, decoded once into out (which must have room for raw.n bytes): UTF-8, 1 to 1024 bytes,
 * no control bytes, no backslash, no empty, "." or ".." segment, no %2F, no %00. ERR_SYNTAX.
 */
NODISCARD enum err edge_name_decode(struct str raw, char *out, struct str *out_name);
bool edge_name_ok(struct str name); /* the same rules on decoded text */

bool edge_pack_name_ok(struct str s); /* ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$ */

const char *edge_mime_of(struct str name); /* by extension, else application/octet-stream */
bool edge_mime_ok(struct str mime);        /* type/subtype with optional parameters, at most 127 bytes */

/* An origin of a route: https://host[:port]/…/ without user, query or fragment; ERR_SYNTAX. http only to a loopback
 * literal and only when allowed. host_port is what labels and breakers are called. */
struct edge_origin {
    struct str scheme, host, port; /* port may be empty */
    struct str path;               /* begins and ends with a slash */
    struct str host_port;
};
NODISCARD enum err edge_origin_parse(struct str url, bool allow_loopback_http, struct edge_origin *out);

/* Any absolute URL of an upstream (a redirect's target): ERR_SYNTAX. */
NODISCARD enum err edge_url_parse(struct str url, struct edge_origin *out);
/* Does the URL lie below the origin: same scheme, host and port, path below the origin's, no dot segments? */
bool edge_url_below(struct str url, const struct edge_origin *origin);
/* Absolute URL of a Location header seen at `base`. ERR_SYNTAX. */
NODISCARD enum err edge_url_resolve(struct str base, struct str location, struct buf *out);

/* origin + rest of the name, percent-encoded, + "?query" (p NULL: none). */
void edge_url_write(struct str origin, struct str rest, struct str query, struct buf *out);

/* Index of the longest prefix that begins the name, or -1. */
int edge_route_find(const struct str *prefixes, size_t n, struct str name);

/* Host header fit for a URL in TileJSON: host[:port] of plain characters. */
bool edge_host_ok(struct str host);

#endif
