/*
 * Conditional and range requests (RFC 9110 §8.8, §13, §14) as pure functions of header values.
 *
 * Threads     Pure.
 * Memory      Nothing allocates, except net_req_conditions (the request's arena, only for repeated fields).
 */
#ifndef RON_NET_HTTP_RANGE_H
#define RON_NET_HTTP_RANGE_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

struct net_req;

enum {
    NET_ETAG_LIST_BYTES = 4096,
    NET_ETAG_LIST_TAGS = 64,
    NET_RANGE_SPECS_MAX = 1024, /* most that limits may allow */
    NET_RANGE_PARTS_MAX = 64,
};

/* ---- dates ---- */

/* Seconds since 1970. IMF-fixdate and the two obsolete forms; now_s places two-digit years. ERR_SYNTAX. */
NODISCARD enum err net_http_date_parse(struct str s, int64_t now_s, int64_t *out_s);

/* ---- entity tags ---- */

struct net_etag {
    struct str tag; /* with its quotes, without W/; p NULL: there is none */
    bool weak;
};

NODISCARD enum err net_etag_parse(struct str s, struct net_etag *out_tag); /* exactly one; ERR_SYNTAX */
bool net_etag_strong_eq(const struct net_etag *a, const struct net_etag *b);
bool net_etag_weak_eq(const struct net_etag *a, const struct net_etag *b);
/* "*" or a list against `ours` (tag.p NULL: nothing is there, "*" does not match). ERR_SYNTAX: the list is broken, longer than
 * NET_ETAG_LIST_BYTES or has more than NET_ETAG_LIST_TAGS. */
NODISCARD enum err net_etag_list_has(struct str list, const struct net_etag *ours, bool strong,
                                     bool *out_match);

/* ---- preconditions ---- */

/* Header values; p NULL: absent. */
struct net_conditions {
    struct str if_match, if_none_match, if_modified_since, if_unmodified_since, if_range, range;
    bool range_repeated;
    bool is_get, is_head;
};

/* What the server has. modified_s: when it last changed, INT64_MIN when unknown. */
struct net_validator {
    struct net_etag etag;
    int64_t modified_s;
};

enum net_condition {
    NET_CONDITION_TRUE,         /* go on */
    NET_CONDITION_NOT_MODIFIED, /* 304 */
    NET_CONDITION_FAILED,       /* 412 */
    NET_CONDITION_BAD,          /* 400: a list of tags is no list of tags */
};

void net_req_conditions(struct net_req *rq,
                        struct net_conditions *out); /* repeated list fields are joined */
enum net_condition net_conditions_check(const struct net_conditions *c, const struct net_validator *v,
                                        int64_t now_s);

/* ---- ranges ---- */

struct net_range {
    uint64_t first, last; /* both inclusive */
};

struct net_range_limits {
    size_t specs, parts; /* 0: 64 and 16 */
};

enum net_range_verdict {
    NET_RANGE_WHOLE,         /* 200: no range, or one to be ignored */
    NET_RANGE_PARTS,         /* 206 */
    NET_RANGE_UNSATISFIABLE, /* 416, Content-Range: bytes * / length */
    NET_RANGE_BAD,           /* 400: If-Range is neither tag nor date */
};

/*
 * The ranges of an object of `length` bytes to send, overlapping and adjacent ones joined, in the order of each group's first
 * spec; out_ranges holds limits->parts (or NET_RANGE_PARTS_MAX). Call it when net_conditions_check said TRUE.
 */
enum net_range_verdict net_range_read(const struct net_conditions *c, const struct net_validator *v,
                                      int64_t now_s, uint64_t length, const struct net_range_limits *limits,
                                      struct net_range *out_ranges, size_t *out_count);

enum { NET_CONTENT_RANGE_CHARS = 80 };
/* "bytes a-b/N"; NULL: "bytes * / N" without the blanks. */
void net_content_range_format(const struct net_range *r, uint64_t length,
                              char out[NET_CONTENT_RANGE_CHARS]);

/* multipart/byteranges: what stands before a part's bytes, and after the last part's. Bytes of a part are followed by the next
 * head or the tail. */
void net_multipart_head(struct buf *b, bool first, struct str boundary, struct str type,
                        const struct net_range *r, uint64_t length);
void net_multipart_tail(struct buf *b, struct str boundary);

#endif
