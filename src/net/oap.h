/*
 * OAP/1 frames as bytes: no sockets, no memory of its own.
 *
 *     offset  0  len      u32  of the whole frame, 38 .. 1,048,576
 *             4  ver      u16  1
 *             6  flags    u16
 *             8  code     u16  request: the operation; response: the HTTP status
 *            10  app      u16  0 is HELLO, else the service
 *            12  tenant   16 bytes, zero or the first half of SHA-256 of the tenant's name
 *            28  cap_len  u16
 *            30  corr     u64  matches answers to requests
 *            38  capability (cap_len bytes, only with START), then the payload
 *
 * Integers are big-endian. A frame is valid when len and ver are as above, exactly one of REQ, RESP and
 * EVENT is set, no flag is set that has no meaning, and the capability fits and comes with START.
 *
 * Ownership   Frames are views into the bytes they were read from.
 * Threads     Pure.
 * Memory      Only net_oap_inflate and net_oap_deflate allocate, and only what was checked before.
 */
#ifndef RON_NET_OAP_H
#define RON_NET_OAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

enum {
    NET_OAP_VERSION = 1,
    NET_OAP_HEADER = 38,
    NET_OAP_FRAME_MAX = 1 << 20,
    NET_OAP_INFLATED_MAX = 8 << 20,
    NET_OAP_TENANT = 16,
    NET_OAP_CAP_MAX = 8192, /* what the server keeps per connection; as long as the longest token */
};

enum net_oap_flag {
    NET_OAP_REQ = 1,
    NET_OAP_RESP = 2,
    NET_OAP_EVENT = 4,
    NET_OAP_START = 8,
    NET_OAP_END = 16,
    NET_OAP_ACK_REQ = 32,
    NET_OAP_COMP = 64, /* the payload is one zstd frame */
};

enum net_oap_app { NET_OAP_HELLO = 0, NET_OAP_MAILBOX = 0x0201, NET_OAP_LEDGER = 0x0401 };

struct net_oap_head {
    uint32_t len;
    uint16_t ver, flags, code, app;
    uint8_t tenant[NET_OAP_TENANT];
    uint16_t cap_len;
    uint64_t corr;
};

struct net_oap_frame {
    struct net_oap_head head;
    struct bytes cap, payload;
};

/*
 * The first frame of `in`. ERR_OK: *out_frame, and *out_used bytes of `in` are its. ERR_EMPTY: nothing
 * wrong so far, more bytes are needed, *out_used in all (38 until the header is complete). ERR_SYNTAX:
 * broken framing, *out_why says how, and the header's corr is in *out_frame if it was there. Whatever the
 * split of the stream, the result is the same.
 */
NODISCARD enum err net_oap_next(struct bytes in, size_t frame_max, struct net_oap_frame *out_frame,
                                size_t *out_used, const char **out_why);

/* Writes the header; len and cap_len are computed from the sizes. CHECKs that the frame is valid. */
void net_oap_head_put(const struct net_oap_head *head, size_t cap_n, size_t payload_n,
                      uint8_t out[NET_OAP_HEADER]);
/* Appends a whole frame. */
void net_oap_put(struct buf *b, const struct net_oap_head *head, struct bytes cap, struct bytes payload);

/* zstd, with the size checked before a byte is allocated for it: ERR_TOO_LARGE over max, ERR_SYNTAX. */
NODISCARD enum err net_oap_inflate(struct bytes in, size_t max, struct buf *out);
NODISCARD enum err net_oap_deflate(struct bytes in, struct buf *out);

/* ---- ron.Problem (proto/ron/common.proto), written without the generated code ---- */

struct net_oap_problem {
    enum err err;
    int status;        /* 0: the error's */
    struct str detail; /* may be empty, like the rest */
    struct str corr_id;
    struct str details_json;
    unsigned retry_after_s; /* 0: 1 for 429 and 503, else none */
    struct bytes extra;
};
void net_oap_problem_put(struct buf *b, const struct net_oap_problem *p);
int net_oap_problem_status(const struct net_oap_problem *p);

/* Reads one back, for callers below the generated code. Views into `in`; ERR_SYNTAX. Unknown members are
 * skipped. */
struct net_oap_problem_view {
    struct str code, detail, corr_id, details_json;
    uint32_t status, retry_after_s;
    bool retryable;
    struct bytes extra;
};
NODISCARD enum err net_oap_problem_get(struct bytes in, struct net_oap_problem_view *out);

#endif
