#include "services/ledger/reads.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/checkpoint.h"

enum { FIRST_READ = 1024 };

static enum err journal_bytes(struct ledger *l, struct core_place at, void *p, size_t n) RT_BLOCKS
{
    return store_journal_pread(l->sink->journal, (struct store_pos){at.segment, at.offset}, p, n);
}

enum err ledger_read_unit(struct ledger *l, struct core_place at, struct arena *a,
                          struct ledger_unit_read *out)
{
    uint8_t head[RECORD_HEADER];
    enum err err = journal_bytes(l, at, head, sizeof head);
    if (err != ERR_OK)
        return err;
    size_t n = le32_get(head);
    if (n < RECORD_HEADER || n > l->set.commit_max_bytes)
        return ERR_CORRUPT;
    uint8_t *p = arena_alloc(a, n);
    if (p == NULL)
        return ERR_NO_MEMORY;
    err = journal_bytes(l, at, p, n);
    struct ledger_unit_read r = {.bytes = bytes_of(p, n)};
    if (err == ERR_OK)
        err = ledger_record_parse(r.bytes, &r.record);
    if (err == ERR_OK)
        *out = r;
    return err;
}

static enum err node_get(void *ctx, unsigned level, uint64_t index, struct sha256 *out) RT_BLOCKS
{
    struct ledger *l = ctx;
    return ledger_column_get(&l->levels[level], index, out);
}

struct ledger_node_source ledger_nodes(struct ledger *l)
{
    return (struct ledger_node_source){node_get, l};
}

static enum err damaged(struct ledger *l, const char *what)
{
    ledger_enter_safe_mode(l, CAUSE_CORRUPT, what);
    return ERR_CORRUPT;
}

static enum err root_of(struct ledger *l, uint64_t size, struct sha256 *out) RT_BLOCKS
{
    struct ledger_node_source nodes = ledger_nodes(l);
    return ledger_merkle_root(&nodes, size, out);
}

/* A row that is still in memory is what was committed; one from the file must be what the tree says. */
static enum err row_check(struct ledger *l, uint64_t index, const struct ledger_group_row *row) RT_BLOCKS
{
    struct sha256 root;
    if (atomic_load_explicit(&l->groups.flushed, memory_order_acquire) <= index)
        return ERR_OK;
    bool fits = row->group_no == index + 1 && row->last_seq != 0 && row->last_seq <= ledger_head_seq(l);
    enum err err = fits ? root_of(l, row->last_seq, &root) : ERR_OK;
    if (err != ERR_OK)
        return err;
    return fits && sha256_eq(&root, &row->root)
               ? ERR_OK
               : ledger_checkpoint_rotten(l, "groups", index * sizeof *row, "row differs from the tree");
}

enum err ledger_group_at(struct ledger *l, uint64_t index, struct ledger_group_row *out)
{
    struct ledger_group_row row;
    enum err err = ledger_column_get(&l->groups, index, &row);
    if (err == ERR_OK)
        err = row_check(l, index, &row);
    if (err == ERR_OK)
        *out = row;
    return err;
}

/* Groups are numbered from 1 without gap: group g is row g-1, and last_seq rises. */
enum err ledger_group_of(struct ledger *l, uint64_t seq, struct ledger_group_row *out, uint64_t *out_index)
{
    struct ledger_head head;
    ledger_head_read(l, &head);
    if (seq == 0 || seq > head.seq)
        return ERR_NOT_FOUND;
    uint64_t lo = 0, hi = head.group_no;
    struct ledger_group_row row;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        enum err err = ledger_column_get(&l->groups, mid, &row);
        if (err != ERR_OK)
            return err;
        if (row.last_seq < seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    enum err err = lo == head.group_no ? ERR_CORRUPT : ledger_group_at(l, lo, &row);
    struct ledger_group_row before = {0};
    if (err == ERR_OK && lo > 0)
        err = ledger_column_get(&l->groups, lo - 1, &before);
    if (err == ERR_OK && (row.last_seq < seq || before.last_seq >= seq))
        err = ERR_CORRUPT; /* a row that the search went by led it astray */
    if (err == ERR_CORRUPT)
        return ledger_checkpoint_rotten(l, "groups", lo * sizeof row, "rows are not in order");
    if (err != ERR_OK)
        return err;
    *out = row;
    if (out_index != NULL)
        *out_index = lo;
    return ERR_OK;
}

/* ---- proofs ---- */

static enum err tree_rotten(struct ledger *l, uint64_t seq) RT_BLOCKS
{
    return ledger_checkpoint_rotten(l, "tree/00", (seq - 1) * 32, "a proof from the tree does not hold");
}

/* The root of a size, which leads to the head's root, which is not from a file. */
static enum err root_proven(struct ledger *l, uint64_t size, struct sha256 *out) RT_BLOCKS
{
    struct ledger_node_source nodes = ledger_nodes(l);
    struct sha256 path[MERKLE_PATH_MAX];
    struct ledger_head head;
    size_t n = 0;
    ledger_head_read(l, &head);
    enum err err = root_of(l, size, out);
    if (err == ERR_OK && size == head.seq)
        return sha256_eq(out, &head.root) ? ERR_OK : tree_rotten(l, size);
    if (err == ERR_OK)
        err = ledger_merkle_consistency(&nodes, size, head.seq, path, &n);
    if (err == ERR_OK)
        err = ledger_merkle_verify_consistency(size, head.seq, out, &head.root, path, n);
    return err == ERR_CORRUPT ? tree_rotten(l, size) : err;
}

enum err ledger_prove_inclusion(struct ledger *l, uint64_t seq, uint64_t size, struct ledger_proven *out)
{
    struct ledger_node_source nodes = ledger_nodes(l);
    if (seq == 0 || seq > size || size > ledger_head_seq(l))
        return ERR_NOT_FOUND;
    enum err err = ledger_column_get(&l->levels[0], seq - 1, &out->leaf);
    if (err == ERR_OK)
        err = ledger_merkle_inclusion(&nodes, seq - 1, size, out->path, &out->n);
    if (err == ERR_OK)
        err = root_proven(l, size, &out->root);
    if (err != ERR_OK)
        return err;
    err = ledger_merkle_verify_inclusion(&out->leaf, seq - 1, size, out->path, out->n, &out->root);
    return err == ERR_CORRUPT ? tree_rotten(l, seq) : err;
}

enum err ledger_prove_consistency(struct ledger *l, uint64_t from, uint64_t to, struct ledger_proven *out)
{
    struct ledger_node_source nodes = ledger_nodes(l);
    if (from == 0 || from > to || to > ledger_head_seq(l))
        return ERR_NOT_FOUND;
    enum err err = ledger_merkle_consistency(&nodes, from, to, out->path, &out->n);
    if (err == ERR_OK)
        err = root_of(l, from, &out->from_root);
    if (err == ERR_OK)
        err = root_proven(l, to, &out->root);
    if (err != ERR_OK)
        return err;
    err = ledger_merkle_verify_consistency(from, to, &out->from_root, &out->root, out->path, out->n);
    return err == ERR_CORRUPT ? tree_rotten(l, from) : err;
}

enum err ledger_tile_nodes(struct ledger *l, unsigned level, uint64_t first, uint32_t n, struct sha256 *out)
{
    enum { WHOLE = 256, HEIGHT = 8 };
    struct ledger_frontier f;
    struct sha256 root, above;
    enum err err = ledger_column_get_many(&l->levels[level], first, n, out);
    if (err != ERR_OK || n < WHOLE || level + HEIGHT >= MERKLE_LEVELS)
        return err;
    ledger_frontier_init(&f);
    ledger_frontier_append_many(&f, out, n, NULL);
    ledger_frontier_root(&f, &root);
    err = ledger_column_get(&l->levels[level + HEIGHT], first / WHOLE, &above);
    return err != ERR_OK || sha256_eq(&root, &above) ? err : tree_rotten(l, (first << level) + 1);
}

/* Which of the two it is, the frame's checksum tells. */
static enum err leaf_differs(struct ledger *l, uint64_t seq) RT_BLOCKS
{
    struct ledger_group_row g;
    struct store_frame f;
    struct buf b;
    buf_init(&b, l->set.segment_bytes);
    enum err err = ledger_group_of(l, seq, &g, NULL);
    if (err == ERR_OK)
        err = store_journal_read(l->sink->journal, (struct store_pos){g.segment, g.offset}, &b, &f);
    buf_fini(&b);
    return err == ERR_OK ? ledger_checkpoint_rotten(l, "tree/00", (seq - 1) * 32, "differs from the leaf")
                         : damaged(l, "leaf differs from the tree");
}

enum err ledger_read_facts(struct ledger *l, struct core_place at, uint64_t seq,
                           const struct ledger_group_row *group, struct arena *a,
                           struct ledger_unit_facts *out)
{
    struct ledger_unit_facts f = {.at = at, .seq = seq};
    enum err err = ledger_read_unit(l, at, a, &f.read);
    if (err != ERR_OK)
        return err == ERR_CORRUPT ? damaged(l, "unit record") : err;
    f.n = f.read.record.n;
    f.entries = arena_array(a, f.n, sizeof *f.entries);
    f.leaves = arena_array(a, f.n, sizeof *f.leaves);
    f.leaf_hashes = arena_array(a, f.n, sizeof *f.leaf_hashes);
    char *scratch = arena_alloc(a, (size_t)f.n * CORE_LEAF_MAX);
    struct core_prepared p = {.entries = arena_array(a, f.n, sizeof(struct core_prepared_entry))};
    if (f.entries == NULL || f.leaves == NULL || f.leaf_hashes == NULL || scratch == NULL ||
        p.entries == NULL)
        return ERR_NO_MEMORY;
    err = ledger_record_decode(f.read.bytes, f.entries, scratch, &f.unit, &f.who, &p);
    if (err != ERR_OK)
        return damaged(l, "unit record");
    for (uint32_t i = 0; i < f.n; i++) {
        struct sha256 stored;
        err = ledger_column_get(&l->levels[0], seq - 1 + i, &stored);
        if (err != ERR_OK)
            return err;
        if (!sha256_eq(&stored, &p.entries[i].leaf_hash))
            return leaf_differs(l, seq + i);
        f.leaf_hashes[i] = stored;
        f.leaves[i] = str_of((const char *)f.read.bytes.p + p.entries[i].leaf_at, p.entries[i].leaf_len);
    }
    if (group != NULL)
        f.group = *group;
    else
        err = ledger_group_of(l, seq, &f.group, NULL);
    if (err == ERR_OK)
        *out = f;
    return err;
}

enum err ledger_find_unit(struct ledger *l, struct str idem_id, struct arena *a,
                          struct ledger_unit_facts *out)
{
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct ledger_found f;
    bool found = ledger_view_find_unit(v, ledger_canon_idem_key(idem_id), &f) &&
                 f.seq + (f.young ? f.n : 1) - 1 <= ledger_head_seq(l);
    /* The head was read after the key was found: its place is in place. */
    if (found && f.young)
        found = ledger_view_find_unit(v, ledger_canon_idem_key(idem_id), &f);
    ledger_view_unpin(v);
    return found ? ledger_read_facts(l, f.place, f.seq, NULL, a, out) : ERR_NOT_FOUND;
}

enum err ledger_find_entry(struct ledger *l, struct str id, struct arena *a, struct ledger_unit_facts *out,
                           uint32_t *out_entry)
{
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct ledger_found f;
    struct core_key key = ledger_canon_id_key(id);
    bool found = ledger_view_find_entry(v, key, &f) && f.seq <= ledger_head_seq(l);
    if (found && f.young)
        found = ledger_view_find_entry(v, key, &f);
    ledger_view_unpin(v);
    if (!found)
        return ERR_NOT_FOUND;
    /* The index knows the entry's seq and its unit's place; the unit starts where this entry is the i-th. */
    struct ledger_unit_read read;
    enum err err = ledger_read_unit(l, f.place, a, &read);
    if (err != ERR_OK)
        return err;
    struct bytes rest = read.record.bundle;
    struct str leaf;
    char *scratch = arena_alloc(a, CORE_LEAF_MAX);
    if (scratch == NULL)
        return ERR_NO_MEMORY;
    for (uint32_t i = 0; ledger_record_next_leaf(&rest, &leaf); i++) {
        struct core_entry e;
        struct sha256 unit;
        if (ledger_canon_leaf_parse(leaf, scratch, &e, &unit) == ERR_OK && str_eq(e.id, id)) {
            *out_entry = i;
            return ledger_read_facts(l, f.place, f.seq - i, NULL, a, out);
        }
    }
    return damaged(l, "index names a unit without the entry");
}

enum err ledger_find_seq(struct ledger *l, uint64_t seq, struct arena *a, struct ledger_unit_facts *out,
                         uint32_t *out_entry)
{
    struct ledger_group_row g, before = {0};
    uint64_t index;
    enum err err = ledger_group_of(l, seq, &g, &index);
    if (err == ERR_OK && index > 0)
        err = ledger_group_at(l, index - 1, &before);
    if (err != ERR_OK)
        return err;
    uint64_t first = before.last_seq + 1;
    struct core_place at = {g.segment, g.offset + STORE_FRAME_HEADER};
    while (first <= g.last_seq) {
        uint8_t head[RECORD_HEADER];
        err = journal_bytes(l, at, head, sizeof head);
        if (err != ERR_OK)
            return err;
        uint32_t len = le32_get(head), n = le16_get(head + 4);
        if (n == 0 || len < RECORD_HEADER)
            return damaged(l, "unit record");
        if (seq < first + n) {
            *out_entry = (uint32_t)(seq - first);
            return ledger_read_facts(l, at, first, &g, a, out);
        }
        first += n;
        at.offset += len;
    }
    return damaged(l, "group without its entry");
}

enum err ledger_find_behind(struct ledger *l, struct arena *a, struct ledger_unit_facts *io)
{
    uint64_t seq = io->seq + io->n;
    uint32_t first;
    if (seq > io->group.last_seq)
        return ledger_find_seq(l, seq, a, io, &first);
    struct core_place at = {io->at.segment, io->at.offset + (uint32_t)io->read.bytes.n};
    struct ledger_group_row group = io->group;
    return ledger_read_facts(l, at, seq, &group, a, io);
}

static bool expired_by_ledger(const struct ledger_view *v, uint64_t seq)
{
    char id[40];
    int n = snprintf(id, sizeof id, "_expire:%llu", (unsigned long long)seq);
    struct ledger_found f;
    return ledger_view_find_entry(v, ledger_canon_id_key(str_of(id, (size_t)n)), &f);
}

enum err ledger_fact_find(struct ledger *l, const struct ledger_view *v, struct core_key ref,
                          struct arena *a, struct ledger_fact *out)
{
    struct ledger_found f;
    *out = (struct ledger_fact){0};
    if (!ledger_view_find_entry(v, ref, &f) || f.seq > ledger_head_seq(l))
        return ERR_OK;
    if (f.young &&
        !ledger_view_find_entry(v, ref, &f)) /* again, now that it is durable: its place is known */
        return ERR_OK;
    struct ledger_unit_read read;
    enum err err = ledger_read_unit(l, f.place, a, &read);
    if (err != ERR_OK)
        return err;
    struct bytes rest = read.record.bundle;
    struct str leaf;
    while (ledger_record_next_leaf(&rest, &leaf)) {
        struct core_entry e;
        struct sha256 unit;
        char *scratch = arena_alloc(a, CORE_LEAF_MAX);
        if (scratch == NULL)
            return ERR_NO_MEMORY;
        err = ledger_canon_leaf_parse(leaf, scratch, &e, &unit);
        if (err != ERR_OK)
            return damaged(l, "leaf");
        if (!core_key_eq(ledger_canon_id_key(e.id), ref))
            continue;
        *out = (struct ledger_fact){true,      e.kind == CORE_HOLD && expired_by_ledger(v, f.seq),
                                    e.kind,    f.seq,
                                    e.account, e.to,
                                    e.asset,   e.amount};
        return ERR_OK;
    }
    return damaged(l, "index names a unit without the entry");
}

enum err ledger_checkpoint_note(struct ledger *l, uint64_t size, char out[NOTE_MAX], size_t *out_n)
{
    struct ledger_head head;
    ledger_head_read(l, &head);
    if (size == head.seq) /* also an empty ledger has a signed head */
        return ledger_note_sign(l->signer, size, &head.root, out, out_n);
    struct ledger_group_row g;
    struct sha256 root;
    enum err err = ledger_group_of(l, size, &g, NULL);
    if (err != ERR_OK)
        return err;
    if (g.last_seq != size)
        return ERR_NOT_FOUND;
    err = root_proven(l, size, &root); /* what is signed cannot be taken back */
    if (err == ERR_OK && !sha256_eq(&root, &g.root))
        err = tree_rotten(l, size);
    return err == ERR_OK ? ledger_note_sign(l->signer, size, &root, out, out_n) : err;
}
