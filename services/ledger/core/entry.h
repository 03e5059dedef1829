/*
 * The words of the domain: an entry is one movement of value, a unit is entries that commit together or not at all.
 *
 * Ownership   Both are views: every text points into the request (or the journal record) they were read from.
 * Threads     Plain values.
 *
 * What an entry looks like by itself is decided here, once, for every way in (JSON, protobuf, journal). Whether it may
 * happen is decided by the state (state.h).
 */
#ifndef RON_LEDGER_CORE_ENTRY_H
#define RON_LEDGER_CORE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/money.h"

/* KIND(NAME, number on the wire, "name", needs: nonce, to, ref_id; may have: hold_until) */
#define CORE_KINDS                                                                                         \
    KIND(MINT, 1, "mint", 0, 0, 0, 0)                                                                      \
    KIND(BURN, 2, "burn", 1, 0, 0, 0)                                                                      \
    KIND(TRANSFER, 3, "transfer", 1, 1, 0, 0)                                                              \
    KIND(HOLD, 4, "hold", 1, 0, 0, 1)                                                                      \
    KIND(CAPTURE, 5, "capture", 0, 1, 1, 0)                                                                \
    KIND(RELEASE, 6, "release", 0, 0, 1, 0)                                                                \
    KIND(REVERSE, 7, "reverse", 0, 1, 1, 0)                                                                \
    KIND(EXPIRE, 8, "expire", 0, 0, 1, 0)

enum core_kind {
    CORE_KIND_NONE = 0,
#define KIND(name, number, text, nonce, to, ref, until) CORE_##name = number,
    CORE_KINDS
#undef KIND
        CORE_KIND_COUNT
};

enum {
    CORE_ID_MAX = 128,
    CORE_ACCOUNT_MAX = 128,
    CORE_ASSET_MAX = 32,
    CORE_META_MAX = 512,      /* bytes before base64 */
    CORE_META_TEXT_MAX = 684, /* base64 of that */
    CORE_KID_MAX = 64,
    CORE_UNIT_ENTRIES_MAX = 1024,
    CORE_LEAF_MAX = 1536,
    CORE_LANE_SHIFT = 48,
};
#define CORE_TS_MAX       UINT64_C(253402300799999) /* the last millisecond of year 9999 */
#define CORE_COUNTER_MASK ((UINT64_C(1) << CORE_LANE_SHIFT) - 1)

/* Empty text and 0 mean absent. */
struct core_entry {
    struct str id;
    uint64_t ts; /* the writer's clock, unix ms */
    enum core_kind kind;
    struct str account, to, asset;
    struct money amount;
    uint64_t nonce; /* lane in the high 16 bits, counter in the low 48 */
    struct str ref_id;
    uint64_t hold_until; /* ledger time, unix ms */
};

struct core_unit {
    struct str idem_id;
    struct str meta; /* base64 text */
    uint64_t not_after;
    const struct core_entry *entries;
    uint32_t n;
};

/* Why an entry cannot be one: the member and, in one word, what is wrong with it. Both are literals. */
struct core_fault {
    uint32_t entry;
    const char *member, *reason;
};

const char *ledger_kind_text(enum core_kind k);    /* "mint"; "none" for CORE_KIND_NONE */
enum core_kind ledger_kind_parse(struct str text); /* CORE_KIND_NONE when unknown */

bool ledger_id_ok(struct str s);      /* 1..128 of 0x21..0x7e */
bool ledger_account_ok(struct str s); /* 1..128 of [A-Za-z0-9:/._-] */
bool ledger_asset_ok(struct str s);   /* [A-Za-z0-9][A-Za-z0-9._-]{0,31} */

/*
 * ERR_BAD_REQUEST with the first fault, entry by entry. `own` admits what only the ledger makes: expire, ids with '_'.
 * A unit without idem_id is in order when every entry has a nonce; ledger_canon_tuple_id() then names it.
 */
NODISCARD enum err ledger_unit_check(const struct core_unit *u, bool own, struct core_fault *out_fault);

#endif
