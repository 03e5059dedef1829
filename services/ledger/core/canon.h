/*
 * Canonical bytes: what is hashed, and so what a stranger can check.
 *
 *   fingerprint  {"entries":[{…}],"idem_id":…}   entries without id and ts: a retry that re-stamps its clock is the same unit
 *   envelope     {"cap","fp","idem_id","kid","meta","n"}   who brought it and what it is; its SHA-256 stands in every leaf
 *   leaf         the entry's members + "unit" + "v":1      no seq in it, so leaves are built and hashed in parallel
 *   index key    first 16 bytes of SHA-256(0x01 ‖ idem_id) or SHA-256(0x02 ‖ id)
 *
 * Canonical JSON: keys sorted bytewise, no white space, integers and strings only, absent members left out; of all
 * characters an id may hold only '"' and '\' need escaping.
 *
 * Ownership   Everything is written into the caller's buffer, whose size the caller bounds with the _MAX below.
 * Threads     Pure functions.
 */
#ifndef RON_LEDGER_CORE_CANON_H
#define RON_LEDGER_CORE_CANON_H

#include "base/sha256.h"
#include "services/ledger/core/entry.h"

enum {
    CANON_ENTRY_MAX = CORE_LEAF_MAX,
    CANON_ENVELOPE_MAX = 1536,
    CANON_FP_TEXT_MAX = 2 * CANON_ENTRY_MAX,
    CANON_KEY_TEXT = 1 + CORE_ID_MAX,
    CANON_TUPLE_ID = 3 + 64, /* "_t:" and hex */
    CANON_CAP = 8,           /* bytes of SHA-256 of the token that are kept */
};

struct core_key {
    uint64_t w[2];
};

static inline bool core_key_eq(struct core_key a, struct core_key b)
{
    return a.w[0] == b.w[0] && a.w[1] == b.w[1];
}

/* Bytewise order, which is the order of index runs. */
static inline int core_key_cmp(struct core_key a, struct core_key b)
{
    uint64_t x = __builtin_bswap64(a.w[0]), y = __builtin_bswap64(b.w[0]);
    if (x == y) {
        x = __builtin_bswap64(a.w[1]);
        y = __builtin_bswap64(b.w[1]);
    }
    return x < y ? -1 : x > y;
}

struct core_key ledger_canon_idem_key(struct str idem_id);
struct core_key ledger_canon_id_key(struct str id);
/* The same in two halves, for callers that hash many at once: what is hashed, and the key from its hash. */
size_t ledger_canon_idem_text(struct str idem_id, uint8_t out[CANON_KEY_TEXT]);
size_t ledger_canon_id_text(struct str id, uint8_t out[CANON_KEY_TEXT]);
struct core_key ledger_canon_key_of(const struct sha256 *h);

/* Who brought a unit; kid.n = 0 for what the ledger makes itself (then cap is absent too). */
struct core_caller {
    struct str kid;
    uint8_t cap[CANON_CAP];
};

/* The tuple (account, amount, nonce) of every entry, hashed: the idem_id of a unit that came without one. */
void ledger_canon_tuple_id(const struct core_unit *u, char out[CANON_TUPLE_ID]);

void ledger_canon_fp(const struct core_unit *u, struct sha256 *out_fp);
size_t ledger_canon_fp_text(const struct core_unit *u,
                            char out[CANON_FP_TEXT_MAX]); /* of a unit of one entry */
size_t ledger_canon_envelope(const struct core_unit *u, const struct core_caller *who,
                             const struct sha256 *fp, char out[CANON_ENVELOPE_MAX]);
size_t ledger_canon_leaf(const struct core_entry *e, const struct sha256 *unit, char out[CORE_LEAF_MAX]);

/* Reads a leaf back; ERR_CORRUPT unless it is exactly what ledger_canon_leaf() would write. Texts with escapes are copied
 * into `scratch` (CORE_LEAF_MAX bytes), all others point into the leaf. */
NODISCARD enum err ledger_canon_leaf_parse(struct str leaf, char *scratch, struct core_entry *out_entry,
                                           struct sha256 *out_unit);

#endif
