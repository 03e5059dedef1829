/*
 * A unit as it stands in the journal, and everything about it that can be computed without the state.
 *
 *   0 unit_len u32 (whole record) | 4 n_entries u16 | 6 idem_len u8 | 7 kid_len u8 | 8 meta_len u16 (base64 text)
 *   10 flags u16 (1 = made by the ledger) | 12 cap[8] | 20 fp[32]
 *   52 idem_id | kid | meta | n × ( leaf_len u16 big-endian | leaf )          the bytes of a tlog entry bundle
 *
 * Valid: lengths add up exactly, flags have no other bit, the fingerprint and every leaf are what the members say.
 *
 * Ownership   ledger_record_build() writes into the caller's buffer; the prepared unit points into it.
 * Threads     Pure functions; prevalidators run them in parallel.
 */
#ifndef RON_LEDGER_CORE_RECORD_H
#define RON_LEDGER_CORE_RECORD_H

#include "services/ledger/core/canon.h"

enum { RECORD_HEADER = 52, RECORD_OWN = 1 };

/* What is known about one entry before the state is asked. */
struct core_prepared_entry {
    struct core_key id_key, ref_key; /* ref_key only with ref_id */
    struct sha256 leaf_hash;
    uint64_t account_hash, to_hash; /* where the state looks for them; with `hashed` */
    uint32_t leaf_at;               /* offset of the leaf in the record */
    uint16_t leaf_len;
};

struct core_prepared {
    struct core_key idem_key;
    struct sha256 fp, unit;
    bool id_twice;   /* two entries share an id */
    bool hashed;     /* ledger_state_hash_names() was here */
    uint8_t *record; /* bytes for the journal */
    uint32_t len;
    struct core_prepared_entry *entries; /* n of the unit; the caller's array */
};

/* Upper bound of the record of `u` brought by `who`. */
size_t ledger_record_bound(const struct core_unit *u, const struct core_caller *who);

/* Builds fingerprint, envelope, leaves, hashes and keys. out->record (bound bytes) and out->entries (n) are set by the caller. */
void ledger_record_build(const struct core_unit *u, const struct core_caller *who, bool own,
                         struct core_prepared *out);

/* The same for units of one caller, faster than one by one. Their records go one behind the other to `record`, which has the sum of
 * the bounds; out->record is set, out->entries (n of its unit each) is the caller's. */
struct core_build {
    const struct core_unit *u;
    struct core_prepared *out;
};
void ledger_record_build_many(const struct core_build *v, uint32_t n, const struct core_caller *who,
                              bool own, uint8_t *record);

/* One record, read back. */
struct core_record {
    struct str idem_id, kid, meta;
    uint16_t n, flags;
    uint8_t cap[CANON_CAP];
    struct sha256 fp;
    struct bytes bundle; /* n × (len, leaf) */
    uint32_t len;
};

/* ERR_CORRUPT unless a whole, well-formed record stands at the start of `b`. Leaves are split, not yet parsed. */
NODISCARD enum err ledger_record_parse(struct bytes b, struct core_record *out_record);

/* The next leaf of a bundle; false at its end. */
bool ledger_record_next_leaf(struct bytes *bundle, struct str *out_leaf);

/*
 * Reads a record back into unit and entries (`entries`: n of the record; `scratch`: CORE_LEAF_MAX bytes per entry) and
 * recomputes fingerprint, envelope and leaves: ERR_CORRUPT unless they are equal. out->record points into `b`.
 */
NODISCARD enum err ledger_record_decode(struct bytes b, struct core_entry *entries, char *scratch,
                                        struct core_unit *out_unit, struct core_caller *out_who,
                                        struct core_prepared *out);

#endif
