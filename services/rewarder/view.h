/*
 * A sealed run, opened: its table, tree, policy and manifest, checked against each other once and then read-only.
 *
 * Ownership   Reference-counted; the last reference unmaps the files.
 * Threads     Immutable apart from the count.
 */
#ifndef RON_REWARDER_VIEW_H
#define RON_REWARDER_VIEW_H

#include <stdatomic.h>

#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/payouts.h"
#include "services/rewarder/files.h"
#include "services/rewarder/policies.h"

struct rewarder_view {
    atomic_uint refs;
    struct rewarder_file manifest_file, payouts_file;
    struct rewarder_payouts table;
    struct rewarder_tree tree;
    struct rewarder_policy_ref *policy;
    struct sha256 manifest_digest;
    /* of the manifest */
    struct sha256 run_key, inputs_digest;
    struct rewarder_pool pool;
    wide_u128 amount, payouts, dust;
    uint64_t paid;
    uint64_t cut;
    bool cut_negative;
    /* of seal.json */
    struct sha256 inputs_cid;
    int64_t sealed_at_ms;
    char kid[REWARDER_KID_LEN + 1];
    uint8_t signature[64];
    /* of settlement.json; NULL until settled */
    struct rewarder_chunk_place *places;
};

/* Which run, and what to do with its cache. */
struct rewarder_view_spec {
    const char *tenant, *epoch;
    bool dry, rebuild_tree;
};
/*
 * Every byte is hashed: payouts.bin against the manifest, the tree against the commitment (rebuilt when tree.bin is bad or
 * `rebuild_tree`). ERR_NOT_FOUND: not sealed; ERR_VERSION: run.json or payouts.bin say that another version of the format wrote them;
 * ERR_ARTIFACT_CORRUPT. *out_bad is the file that is missing or damaged: also
 * with ERR_OK when that was tree.bin, which is only a cache; else NULL.
 */
NODISCARD enum err rewarder_view_open(struct rewarder_files *f, const struct rewarder_view_spec *spec,
                                      struct rewarder_view **out, const char **out_bad) RT_BLOCKS;
/* What to tell people about a run that could not be opened. */
const char *rewarder_view_words(enum err e);
struct rewarder_view *rewarder_view_ref(struct rewarder_view *v);
void rewarder_view_unref(struct rewarder_view *v); /* NULL is fine */
/* After somebody went through the whole table: its pages are not ours any more until they are read again. */
void rewarder_view_rest(struct rewarder_view *v);

#endif
