#include "services/ledger/checkpoint_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "services/ledger/core/index_run.h"
#include "services/ledger/reads.h"
#include "store/file_replace.h"

/* ---- columns ---- */

static uint32_t pow2(uint64_t n)
{
    uint32_t p = 4;
    while (p < n)
        p *= 2;
    return p;
}

static enum err column_open(struct ledger *l, struct ledger_column *c, const char *path, uint32_t record,
                            uint32_t chunk, uint64_t span, uint64_t flushed) RT_BLOCKS
{
    struct store_file *f = NULL;
    enum err err = ERR_OK;
    if (!l->set.amnesia) {
        err = store_file_open(l->deps.disk, path, STORE_WRITE | STORE_CREATE, &f);
        if (err == ERR_OK)
            err = store_file_truncate(f, flushed * record); /* cut to what the manifest names */
    }
    if (err == ERR_OK)
        err = ledger_column_init(c, record, chunk, pow2(span / chunk + 4), f, flushed);
    else
        store_file_close(f);
    return err;
}

enum err ledger_columns_open(struct ledger *l, uint64_t entries, uint64_t groups)
{
    char path[STORE_PATH_MAX];
    /* Four generations, one being filled, one group: what may be in memory at once. */
    uint64_t span = l->set.amnesia ? l->set.amnesia_max_entries + 65536
                                   : UINT64_C(6) * (l->set.checkpoint_entries + CORE_UNIT_ENTRIES_MAX) +
                                         l->set.commit_max_entries;
    enum err err = ERR_OK;
    for (unsigned level = 0; err == ERR_OK && level < MERKLE_LEVELS; level++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__level, level);
        err = column_open(l, &l->levels[level], path, 32, level == 0 ? 1024 : 64, (span >> level) + 64,
                          entries >> level);
    }
    store_path_join(path, l->set.dir, "groups");
    if (err == ERR_OK)
        err = column_open(l, &l->groups, path, sizeof(struct ledger_group_row), 256, span, groups);
    if (err != ERR_OK || l->set.amnesia)
        return err;
    /* Manifests name these files, so their names must last: their contents are flushed with each checkpoint. */
    store_path_join(path, l->set.dir, "tree");
    err = store_disk_sync_dir(l->deps.disk, path);
    return err == ERR_OK ? store_disk_sync_dir(l->deps.disk, l->set.dir) : err;
}

/* ---- writing a generation ---- */

static enum err write_index(struct ledger *l, const struct ledger_gen *g,
                            struct checkpoint_run *out) RT_BLOCKS
{
    uint64_t n_units = atomic_load_explicit(&g->n_units, memory_order_acquire);
    uint64_t n_entries = atomic_load_explicit(&g->n_entries, memory_order_acquire), n = n_units + n_entries;
    struct ledger_index_item *items = malloc(2 * n * sizeof *items), *sorted = items + n;
    uint8_t *bytes = malloc(ledger_index_run_bytes(n));
    enum err err = items == NULL || bytes == NULL ? ERR_NO_MEMORY : ERR_OK;
    if (err == ERR_OK) {
        for (uint64_t i = 0; i < n_units; i++)
            items[i] = (struct ledger_index_item){g->units[i].key, g->units[i].seq,
                                                  ledger_gen_place(&g->units[i])};
        for (uint64_t i = 0; i < n_entries; i++)
            items[n_units + i] = (struct ledger_index_item){
                g->entries[i].key, g->entries[i].seq, ledger_gen_place(&g->units[g->entries[i].unit])};
        err = ledger_index_sort(items, n, sorted);
    }
    if (err == ERR_OK) {
        ledger_index_run_build(sorted, n, 0, g->first_seq, ledger_gen_last_seq(g), bytes);
        struct checkpoint_run f = {
            ledger_checkpoint__runs(l)->next_number++, 0, ledger_index_run_bytes(n), {{0}}};
        ledger_checkpoint__ends(bytes, f.bytes, INDEX_RUN_FOOTER, &f.sha256);
        char path[STORE_PATH_MAX];
        ledger_checkpoint__path(l, path, &ledger_checkpoint__index, f.number);
        *out = f;
        err = ledger_checkpoint__write_run(l, path, bytes, f.bytes);
    }
    free(items);
    free(bytes);
    return err;
}

struct change_ref {
    struct ledger_state_item item;
    uint64_t order;
    struct ledger_state_record *record;
};

static int change_order(const void *a, const void *b)
{
    const struct change_ref *x = a, *y = b;
    int c = ledger_state_item_cmp(&x->item, &y->item);
    return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

static struct change_ref change_of(const struct ledger_state_record *r, struct ledger_state_record *owned,
                                   uint64_t order)
{
    return (struct change_ref){
        {(uint8_t)r->type, bytes_of(r->key, r->key_len), bytes_of(r->value, r->value_len)}, order, owned};
}

/* The last value per (type, index), walking backwards; holds carry their record, because their place may be taken again. */
static struct change_ref *last_values(struct ledger *l, const struct ledger_gen_log *log, uint64_t *out_n)
{
    uint64_t total = atomic_load_explicit(&log->n, memory_order_acquire), n = 0, slots = 64;
    while (slots < total * 2)
        slots *= 2;
    uint64_t *seen = calloc(slots, sizeof *seen);
    struct change_ref *v = malloc((total + 1) * sizeof *v);
    CHECK(seen != NULL && v != NULL);
    for (uint64_t i = total; i-- > 0;) {
        const struct ledger_change *c = &log->v[i];
        if (c->fx.type == FX_HOLD) {
            v[n++] = change_of(c->hold, NULL, i);
            continue;
        }
        uint64_t id = ((uint64_t)c->fx.type << 32 | c->fx.index) + 1,
                 at = id * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (slots - 1);
        while (seen[at] != 0 && seen[at] != id)
            at = (at + 1) & (slots - 1);
        if (seen[at] == id)
            continue;
        seen[at] = id;
        struct ledger_state_record *r = malloc(sizeof *r);
        CHECK(r != NULL);
        ledger_state_record_of(l->state, &c->fx, c->seq_end, r);
        v[n++] = change_of(r, r, i);
    }
    free(seen);
    qsort(v, n, sizeof *v, change_order);
    *out_n = n;
    return v;
}

static enum err write_state(struct ledger *l, const struct ledger_gen_log *log, uint64_t as_of,
                            struct checkpoint_run *out) RT_BLOCKS
{
    uint64_t n, kept = 0;
    struct change_ref *v = last_values(l, log, &n);
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    ledger_state_run_begin(&b);
    for (uint64_t i = 0; i < n; i++) {
        if (i + 1 < n && ledger_state_item_cmp(&v[i].item, &v[i + 1].item) == 0)
            continue; /* a newer one of the same key follows */
        ledger_state_run_put(&b, &v[i].item);
        kept++;
    }
    ledger_state_run_end(&b, 0, kept, as_of);
    for (uint64_t i = 0; i < n; i++)
        free(v[i].record);
    free(v);
    enum err err = b.err;
    if (err == ERR_OK) {
        struct checkpoint_run f = {ledger_checkpoint__runs(l)->next_number++, 0, b.n, {{0}}};
        ledger_checkpoint__ends(b.p, b.n, STATE_RUN_FOOTER, &f.sha256);
        char path[STORE_PATH_MAX];
        ledger_checkpoint__path(l, path, &ledger_checkpoint__state, f.number);
        *out = f;
        err = ledger_checkpoint__write_run(l, path, b.p, b.n);
    }
    buf_fini(&b);
    return err;
}

/* ---- the checkpoint itself ---- */

void ledger_gen_log_free(struct ledger_gen_log *log)
{
    uint64_t n = atomic_load_explicit(&log->n, memory_order_acquire);
    for (uint64_t i = 0; i < n; i++)
        free(log->v[i].hold);
    CHECK(munmap(log->v, log->cap * sizeof *log->v) == 0);
    ledger_gen_unref(log->gen);
    free(log);
}

static enum err flush_columns(struct ledger *l, uint64_t entries, uint64_t groups) RT_BLOCKS
{
    enum err err = ERR_OK;
    for (unsigned level = 0; err == ERR_OK && level < MERKLE_LEVELS && entries >> level != 0; level++)
        err = ledger_column_flush(&l->levels[level], entries >> level);
    return err == ERR_OK ? ledger_column_flush(&l->groups, groups) : err;
}

/* Where the next frame would start: behind this group's, as the journal pads it. */
static enum err end_of_group(struct ledger *l, const struct ledger_group_row *g,
                             struct core_place *out) RT_BLOCKS
{
    uint8_t header[STORE_FRAME_HEADER];
    struct store_layout layout = {.align = l->set.align, .segment_bytes = l->set.segment_bytes};
    uint32_t len;
    uint64_t group;
    enum err err = store_journal_pread(l->sink->journal, (struct store_pos){g->segment, g->offset}, header,
                                       sizeof header);
    if (err == ERR_OK)
        err = store_frame_peek(&layout, header, &len, &group);
    if (err == ERR_OK)
        *out = (struct core_place){g->segment, g->offset + len};
    return err;
}

/* Every attempt has numbers of its own: what one left on a full disk would be the room that the next one needs. */
static void unwrite(struct ledger *l, const struct checkpoint_name *kind, uint32_t number) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    ledger_checkpoint__path(l, path, kind, number);
    if (number != 0)
        ledger_checkpoint__unwrite(l, path);
}

/* The generation's columns and runs, and the step that puts a run in its place. */
static enum err write_runs(struct ledger *l, struct ledger_gen_log *log, uint64_t entries,
                           uint64_t groups) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct checkpoint_run index = {0}, state = {0};
    struct ledger_run *run = NULL;
    char path[STORE_PATH_MAX];
    enum err err = ledger_checkpoint__merge_room(l);
    if (err == ERR_OK)
        err = flush_columns(l, entries, groups);
    if (err == ERR_OK)
        err = write_index(l, log->gen, &index);
    if (err == ERR_OK)
        err = write_state(l, log, entries, &state);
    if (err == ERR_OK) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__index, index.number);
        err = ledger_run_open(l->deps.disk, path, index.number, false, &run);
    }
    if (err == ERR_OK)
        err = ledger_index_replace(&l->index, log->gen, NULL, 0, run);
    if (err != ERR_OK) {
        unwrite(l, &ledger_checkpoint__index, index.number);
        unwrite(l, &ledger_checkpoint__state, state.number);
        return err;
    }
    CHECK(runs->n_index < CHECKPOINT_RUNS_MAX && runs->n_state < CHECKPOINT_RUNS_MAX);
    runs->index[runs->n_index++] = index;
    runs->state[runs->n_state++] = state;
    ledger_checkpoint__merge_owe(l, index.bytes, state.bytes);
    log->in_force = true;
    return ERR_OK;
}

/* What the manifest covers need not be in memory any more. */
static void let_go(struct ledger *l, struct ledger_gen_log *log, uint64_t entries,
                   uint64_t groups) RT_BLOCKS
{
    for (unsigned level = 0; level < MERKLE_LEVELS && entries >> level != 0; level++)
        ledger_column_forget(&l->levels[level], entries >> level);
    ledger_column_forget(&l->groups, groups);
    if (atomic_load_explicit(&log->gen->frozen, memory_order_acquire) &&
        atomic_load_explicit(&l->frozen_gens, memory_order_acquire) > 0)
        atomic_fetch_sub_explicit(&l->frozen_gens, 1, memory_order_acq_rel);
    ledger_checkpoint__retain(l);
    ledger_gen_log_free(log);
}

enum err ledger_checkpoint_write(struct ledger *l, struct ledger_gen_log *log)
{
    uint64_t entries = ledger_gen_last_seq(log->gen), group_index = 0;
    struct ledger_group_row g;
    struct core_place end = {0};
    CHECK(entries <= ledger_head_seq(l));
    CHECK(log->gen->first_seq == atomic_load(&l->checkpoint_seq) + 1); /* a manifest covers all before it */
    enum err err = ledger_group_of(l, entries, &g, &group_index);
    if (err == ERR_OK && g.last_seq != entries)
        err = ERR_INTERNAL; /* groups end where generations do */
    if (err == ERR_OK)
        err = end_of_group(l, &g, &end);
    if (err == ERR_OK && !log->in_force)
        err = write_runs(l, log, entries, group_index + 1);
    if (err == ERR_OK)
        err = ledger_checkpoint__write_manifest(l, entries, &g, end);
    if (err != ERR_OK)
        return err;
    atomic_store_explicit(&l->checkpoint_seq, entries, memory_order_release);
    atomic_store_explicit(&l->checkpoint_segment, end.segment, memory_order_release);
    let_go(l, log, entries, group_index + 1);
    return ERR_OK;
}
