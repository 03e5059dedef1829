#include "services/ledger/reads.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

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

enum err ledger_group_at(struct ledger *l, uint64_t index, struct ledger_group_row *out)
{
    return ledger_column_get(&l->groups, index, out);
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
        enum err err = ledger_group_at(l, mid, &row);
        if (err != ERR_OK)
            return err;
        if (row.last_seq < seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    enum err err = ledger_group_at(l, lo, &row);
    if (err != ERR_OK)
        return err;
    *out = row;
    if (out_index != NULL)
        *out_index = lo;
    return ERR_OK;
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
            return damaged(l, "leaf differs from the tree");
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
    enum err err = ledger_group_of(l, size, &g, NULL);
    if (err != ERR_OK)
        return err;
    if (g.last_seq != size)
        return ERR_NOT_FOUND;
    return ledger_note_sign(l->signer, size, &g.root, out, out_n);
}
