/*
 * Strict JSON into structs, driven by tables. One pass over the bytes, no tree.
 *
 *   struct transfer { struct str from; struct money amount; struct str memo; bool has_memo; };
 *   static const struct json_field transfer_fields[] = {
 *       JSON_REQ(struct transfer, from,   JSON_KIND_STR, .min = 1, .max = 128, .check = str_is_account),
 *       JSON_REQ(struct transfer, amount, JSON_KIND_MONEY, .min = 1),
 *       JSON_OPT(struct transfer, memo,   JSON_KIND_STR, .max = 256),
 *       JSON_END,
 *   };
 *   enum err e = json_read_dto(body, transfer_fields, &transfer, arena, &why);
 *
 * Refused: unknown, duplicate and missing members, wrong types, values out of range or pattern, bytes after
 * the value, invalid UTF-8, unpaired surrogates, U+0000, control characters in strings, nesting over
 * JSON_DEPTH_MAX, null.
 *
 * Ownership   Everything *out refers to lives in the arena; the body may go as soon as the call returns.
 * Threads     Pure but for the arena.
 * Memory      Only the arena. When it is full: ERR_TOO_LARGE.
 * Order       The first fault in reading order is reported, except that missing members are found at the
 * closing brace.
 */
#ifndef RON_BASE_JSON_READ_H
#define RON_BASE_JSON_READ_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

enum { JSON_DEPTH_MAX = 16, JSON_FIELDS_MAX = 64, JSON_PATH_CHARS = 192 };

enum json_kind {
    JSON_KIND_END = 0,
    JSON_KIND_STR,      /* struct str; min..max bytes, check() */
    JSON_KIND_MONEY,    /* struct money; a decimal string, at least min */
    JSON_KIND_U64,      /* uint64_t; an integer, min..max (max 0: no limit) */
    JSON_KIND_I64,      /* int64_t; an integer, least..most (both 0: no limit) */
    JSON_KIND_U64_TEXT, /* uint64_t; a decimal string, min..max */
    JSON_KIND_BOOL,     /* bool */
    JSON_KIND_ENUM,     /* int or an enum: index into names[] (NULL-terminated) */
    JSON_KIND_BASE64,   /* struct bytes; min..max bytes after decoding, standard alphabet, padded */
    JSON_KIND_HASH,     /* struct sha256; "sha256:<64 hex>" */
    JSON_KIND_OBJ,      /* the member's own struct; fields */
    JSON_KIND_OBJ_LIST, /* struct json_list of item_bytes each; fields; min..max items */
    JSON_KIND_STR_LIST, /* struct json_list of struct str; min..max items, check() on each */
    JSON_KIND_OBJ_MAP,  /* struct json_list of item_bytes each, the name as a struct str at key_offset;
                           fields; check() on names */
    JSON_KIND_STR_MAP,  /* struct json_list of struct json_pair; min..max members; check() on names */
    JSON_KIND_RAW,      /* struct str; any value, as written, well-formed */
};

struct json_list {
    void *items;
    size_t n;
};

struct json_pair {
    struct str key, value;
};

#define JSON_NO_FLAG SIZE_MAX

struct json_field {
    const char *name;
    size_t name_n;
    enum json_kind kind;
    size_t offset, bytes; /* of the member in the struct; its size is checked against the kind */
    size_t has;           /* offset of a bool that says it was there, or JSON_NO_FLAG */
    bool required;
    uint64_t min, max; /* max 0: no limit */
    int64_t least, most;
    bool (*check)(struct str s); /* false: reason "pattern" */
    const char *const *names;
    const struct json_field *fields;
    size_t item_bytes, key_offset;
};

#define JSON_FIELD_(T, member, text, k, ...)                                                               \
    .name = text, .name_n = sizeof(text) - 1, .kind = k, .offset = offsetof(T, member),                    \
    .bytes = sizeof(((T *)0)->member), ##__VA_ARGS__
/* A required member called like the struct's; JSON_REQ_AS when the JSON name differs. */
#define JSON_REQ(T, member, k, ...)                                                                        \
    {                                                                                                      \
        JSON_FIELD_(T, member, #member, k, ##__VA_ARGS__), .required = true, .has = JSON_NO_FLAG           \
    }
#define JSON_REQ_AS(T, member, text, k, ...)                                                               \
    {                                                                                                      \
        JSON_FIELD_(T, member, text, k, ##__VA_ARGS__), .required = true, .has = JSON_NO_FLAG              \
    }
/* An optional one: the struct has a bool has_<member>. Absent ones are left as the caller set them. */
#define JSON_OPT(T, member, k, ...)                                                                        \
    {                                                                                                      \
        JSON_FIELD_(T, member, #member, k, ##__VA_ARGS__), .has = offsetof(T, has_##member)                \
    }
#define JSON_OPT_AS(T, member, text, k, ...)                                                               \
    {                                                                                                      \
        JSON_FIELD_(T, member, text, k, ##__VA_ARGS__), .has = offsetof(T, has_##member)                   \
    }
/* Optional without a flag: the caller's default stays when it is absent. */
#define JSON_DEF(T, member, k, ...)                                                                        \
    {                                                                                                      \
        JSON_FIELD_(T, member, #member, k, ##__VA_ARGS__), .has = JSON_NO_FLAG                             \
    }
#define JSON_DEF_AS(T, member, text, k, ...)                                                               \
    {                                                                                                      \
        JSON_FIELD_(T, member, text, k, ##__VA_ARGS__), .has = JSON_NO_FLAG                                \
    }
#define JSON_END                                                                                           \
    {                                                                                                      \
        .kind = JSON_KIND_END                                                                              \
    }

enum json_reason {
    JSON_OK = 0,
    JSON_UNKNOWN,
    JSON_MISSING,
    JSON_TYPE,
    JSON_RANGE,
    JSON_PATTERN,
    JSON_DUPLICATE,
    JSON_DEPTH,
    JSON_SYNTAX,
    JSON_MEMORY, /* the arena is full */
};

struct json_error {
    enum json_reason reason;
    size_t offset;              /* in the body */
    char path[JSON_PATH_CHARS]; /* "units[0].entries[1].amount"; "" for the whole; foreign characters show
                                   as '?' */
};

const char *json_reason_name(enum json_reason r);         /* "unknown", "missing", ... */
const char *json_error_place(const struct json_error *e); /* for a person: its path, "body" for the whole */

/* ERR_BAD_REQUEST with *out_err filled, or ERR_TOO_LARGE. After an error *out may be partly filled: do not
 * use it. */
NODISCARD enum err json_read_dto(struct bytes body, const struct json_field *fields, void *out,
                                 struct arena *arena, struct json_error *out_err);
/* The same for answers of peers: members the tables don't know are skipped (but must be well-formed). */
NODISCARD enum err json_read_dto_lax(struct bytes body, const struct json_field *fields, void *out,
                                     struct arena *arena, struct json_error *out_err);
/* Is it exactly one well-formed value of any type? The arena serves the search for duplicate members. */
NODISCARD enum err json_check(struct bytes body, struct arena *arena, struct json_error *out_err);

#endif
