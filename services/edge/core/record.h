/*
 * refs.log and the directory indexes (.dix): a 32-byte header, then records.
 *
 *   header   0 magic (RONEREF1, RONEDIX1) · 8 u32 version 1 · 12 u32 0 · 16 u64 created ms · 24 u32 0 · 28 u32 CRC32C of
 *            bytes 0-27
 *   record   u32 payload length (1 to 65,536) · u32 CRC32C of the payload · payload, its first byte the type
 *
 *   1 PUT_REF     u8 0 · u16 name_len, mime_len, etag_len · u64 size, fetched_ms, valid_until_ms (0: for ever), since_ms ·
 *                 digest · name · mime · etag
 *   2 DEL_REF     u8 0 · u16 name_len · name
 *   3 DEL_OBJ     3 x 0 · digest (the object and all its refs)
 *   4 TOUCH       u8 0 · u16 count (at most 1,024) · count x (digest, u32 last use in unix seconds)
 *   5 RENEW       u8 0 · u16 name_len · u64 fetched_ms, valid_until_ms · name
 *   6 PACK_SINCE  u8 0 · u16 name_len · u64 since_s · pack id · name
 *   7 QUARANTINE  3 x 0 · digest · u64 at_ms
 *   16 DIX_FILE   u8 0 · u16 path_len · u64 size, mtime_ns, ctime_ns, ino · digest · path
 *
 * Integers little-endian. Valid is what has the right length, the right CRC and the exact shape above; a good CRC around an
 * unknown type means that a newer version wrote it.
 *
 * Ownership   A decoded record points into the bytes it was decoded from.
 * Threads     Pure.
 */
#ifndef RON_EDGE_RECORD_H
#define RON_EDGE_RECORD_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"

enum {
    EDGE_LOG_HEADER = 32,
    EDGE_RECORD_HEAD = 8,
    EDGE_RECORD_MAX = 65536, /* payload */
    EDGE_TOUCH_MAX = 1024,
    EDGE_TOUCH_BYTES = 36,
    EDGE_NAME_MAX = 1024,
    EDGE_NAME_QUERY_MAX = EDGE_NAME_MAX + 1 + 1024, /* with the query of a route that keeps it */
    EDGE_MIME_MAX = 127,
    EDGE_ETAG_MAX = 256,
};

enum edge_log_kind { EDGE_LOG_REFS, EDGE_LOG_DIX };

void edge_log_header_encode(enum edge_log_kind kind, uint64_t created_ms, uint8_t out[EDGE_LOG_HEADER]);
NODISCARD enum err edge_log_header_decode(enum edge_log_kind kind, struct bytes head,
                                          uint64_t *out_created_ms);

enum edge_record_type {
    EDGE_PUT_REF = 1,
    EDGE_DEL_REF = 2,
    EDGE_DEL_OBJ = 3,
    EDGE_TOUCH = 4,
    EDGE_RENEW = 5,
    EDGE_PACK_SINCE = 6,
    EDGE_QUARANTINE = 7,
    EDGE_DIX_FILE = 16,
};

/* Which members count follows from the type, as above. */
struct edge_record {
    enum edge_record_type type;
    struct str name, mime, etag;
    uint64_t size, fetched_ms, valid_until_ms, since_ms, since_s, at_ms;
    uint64_t mtime_ns, ctime_ns, ino;
    struct sha256 digest; /* or pack id */
    struct bytes touches; /* TOUCH: count x EDGE_TOUCH_BYTES */
};

void edge_record_encode(const struct edge_record *r, struct buf *out); /* head and payload */
void edge_touch_at(struct bytes touches, size_t i, struct sha256 *out_digest, uint32_t *out_unix_s);
void edge_touch_put(struct buf *b, const struct sha256 *digest, uint32_t unix_s);

/*
 * The record at the front of `log`. ERR_EMPTY: nothing left. ERR_TORN: cut off, of impossible length or with a wrong CRC.
 * ERR_VERSION: good CRC, unknown type. ERR_CORRUPT: good CRC, wrong shape. *out_n: its bytes.
 */
NODISCARD enum err edge_record_decode(struct bytes log, struct edge_record *out, size_t *out_n);

/* After a bad record at `from`: does a valid one begin anywhere behind it? Then it is corruption, else a torn tail. */
bool edge_record_any_after(struct bytes log, size_t from);

#endif
