/*
 * The words of a capability: first-party caveats as text, one grammar for all services.
 *
 *     aud = NAME | aud in LIST       exp < RFC3339      nbf > RFC3339      tenant = NAME
 *     op in LIST   account in LIST   to in LIST         asset in LIST      topic in LIST
 *     ip in CIDR,CIDR                max_amount <= N    daily <= N         bytes <= N      rate <= N/s
 *
 * Exactly one space on each side of the operator. A LIST is comma separated, without blanks or empty items;
 * a `*` may stand at the end of an item and matches any rest. Whatever does not fit is unknown, and an
 * unknown caveat denies.
 *
 * Ownership   A parsed caveat holds views into the text it was parsed from.
 * Threads     Pure.
 * Memory      Nothing allocates.
 */
#ifndef RON_AUTH_CAVEAT_H
#define RON_AUTH_CAVEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"

enum auth_cv {
    AUTH_CV_UNKNOWN = 0,
    AUTH_CV_AUD,
    AUTH_CV_EXP,
    AUTH_CV_NBF,
    AUTH_CV_OP,
    AUTH_CV_ACCOUNT,
    AUTH_CV_TO,
    AUTH_CV_ASSET,
    AUTH_CV_MAX_AMOUNT,
    AUTH_CV_DAILY,
    AUTH_CV_TOPIC,
    AUTH_CV_IP,
    AUTH_CV_BYTES,
    AUTH_CV_RATE,
    AUTH_CV_TENANT,
    AUTH_CV_COUNT
};

#define AUTH_BIT(cv) (1u << (cv))
/* What no service can do without; always understood. */
#define AUTH_BASIC                                                                                         \
    (AUTH_BIT(AUTH_CV_AUD) | AUTH_BIT(AUTH_CV_EXP) | AUTH_BIT(AUTH_CV_NBF) | AUTH_BIT(AUTH_CV_OP))
/* Without them a token is none. */
#define AUTH_NEEDED (AUTH_BIT(AUTH_CV_AUD) | AUTH_BIT(AUTH_CV_EXP))

struct auth_caveat {
    enum auth_cv kind;
    struct str text;
    union {
        struct str list;     /* aud op account to asset topic ip; tenant: the one name */
        int64_t at_ms;       /* exp nbf */
        struct money amount; /* max_amount daily */
        uint64_t n;          /* bytes; rate: per second */
    };
};

NODISCARD enum err auth_caveat_parse(struct str text, struct auth_caveat *out); /* ERR_SYNTAX */
const char *auth_cv_name(enum auth_cv kind); /* "max_amount"; "unknown" */

/* Empty values are covered by nothing, not even by `*`. */
bool auth_list_covers(struct str list, struct str value);
/* The least value not below from, which is not empty, that the list covers: from itself, or one out of the list. False: none. */
bool auth_list_next(struct str list, struct str from, struct str *out);
bool auth_list_spells(struct str list, struct str value); /* without any wildcard */
/* peer_ip: 16 bytes, IPv4 as ::ffff:a.b.c.d. NULL (a Unix socket) is covered by nothing. */
bool auth_ip_list_covers(struct str list, const uint8_t *peer_ip);

#endif
