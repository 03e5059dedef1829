/*
 * Reading back what is durable: unit records from the journal, group rows, entries, proofs. Every leaf that is read for an
 * answer is checked against the tree; a mismatch is corruption and ends in safe mode.
 *
 * Ownership   What is read lives in the caller's arena.
 * Threads     Any; each call may wait for the disk.
 */
#ifndef RON_LEDGER_READS_H
#define RON_LEDGER_READS_H

#include "services/ledger/ledger.h"

/* A unit record as it stands in the journal. */
struct ledger_unit_read {
    struct core_record record;
    struct bytes bytes;
};
NODISCARD enum err ledger_read_unit(struct ledger *l, struct core_place at, struct arena *a,
                                    struct ledger_unit_read *out) RT_BLOCKS;

/* Everything about a durable unit that an answer may want. */
struct ledger_unit_facts {
    struct ledger_unit_read read;
    struct core_place at; /* where its record begins */
    uint64_t seq;
    uint32_t n;
    struct core_entry *entries;
    struct str *leaves;
    struct sha256 *leaf_hashes;
    struct core_unit unit;
    struct core_caller who;
    struct ledger_group_row group; /* the group that holds it */
};
/* group NULL: it is looked up. */
NODISCARD enum err ledger_read_facts(struct ledger *l, struct core_place at, uint64_t seq,
                                     const struct ledger_group_row *group, struct arena *a,
                                     struct ledger_unit_facts *out) RT_BLOCKS;

/* ERR_NOT_FOUND when it is not durable. */
NODISCARD enum err ledger_find_unit(struct ledger *l, struct str idem_id, struct arena *a,
                                    struct ledger_unit_facts *out) RT_BLOCKS;
/* Also which of the unit's entries it is. */
NODISCARD enum err ledger_find_entry(struct ledger *l, struct str id, struct arena *a,
                                     struct ledger_unit_facts *out, uint32_t *out_entry) RT_BLOCKS;
/* The unit that holds seq. */
NODISCARD enum err ledger_find_seq(struct ledger *l, uint64_t seq, struct arena *a,
                                   struct ledger_unit_facts *out, uint32_t *out_entry) RT_BLOCKS;

/* The unit behind *io, which ledger_find_seq or this found; its arena may have been reset since. Where the search would begin at the
 * group's first record again, this goes on from the last one: a reader of whole pages reads every record once. */
NODISCARD enum err ledger_find_behind(struct ledger *l, struct arena *a,
                                      struct ledger_unit_facts *io) RT_BLOCKS;

/* The group that holds seq; ERR_NOT_FOUND past the head. Rows come from a file and are compared with the tree: ERR_CORRUPT. */
NODISCARD enum err ledger_group_of(struct ledger *l, uint64_t seq, struct ledger_group_row *out,
                                   uint64_t *out_index) RT_BLOCKS;
NODISCARD enum err ledger_group_at(struct ledger *l, uint64_t index,
                                   struct ledger_group_row *out) RT_BLOCKS;

struct ledger_node_source ledger_nodes(struct ledger *l); /* complete nodes, for ledger_merkle_* */

/*
 * Proofs that hold: nodes come from files, so what was made of them is checked like a stranger would, up to the head's root, before it
 * leaves. ERR_NOT_FOUND: no such seq or size. ERR_CORRUPT: a file of the tree rotted; nothing is written any more.
 */
struct ledger_proven {
    struct sha256 leaf, root, from_root; /* of inclusion; of both, at the later size; of consistency */
    struct sha256 path[MERKLE_PATH_MAX];
    size_t n;
};
NODISCARD enum err ledger_prove_inclusion(struct ledger *l, uint64_t seq, uint64_t size,
                                          struct ledger_proven *out) RT_BLOCKS;
NODISCARD enum err ledger_prove_consistency(struct ledger *l, uint64_t from, uint64_t to,
                                            struct ledger_proven *out) RT_BLOCKS;
/* Hashes of a tile; a whole one is the node above it. */
NODISCARD enum err ledger_tile_nodes(struct ledger *l, unsigned level, uint64_t first, uint32_t n,
                                     struct sha256 *out) RT_BLOCKS;

/* A signed note of a size that ends a group; ERR_NOT_FOUND for others. */
NODISCARD enum err ledger_checkpoint_note(struct ledger *l, uint64_t size, char out[NOTE_MAX],
                                          size_t *out_n) RT_BLOCKS;

#endif
