/*
 * Merging: four runs of a tier become one of the next, oldest first, so that there are few to look into.
 *
 * A merge of a high tier writes as much as hundreds of generations, so it is done in slices: between any two the checkpointer may
 * write a generation that is complete. Runs are only ever appended meanwhile, so the four keep their places. What is being
 * written is named by no manifest; retaining leaves it alone (ledger_checkpoint__merging), and a crash leaves a file to be swept.
 * The merged run takes its place in the index at once, in the files with the next manifest.
 */
#include "services/ledger/checkpoint_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "services/ledger/core/index_run.h"

enum {
    TIER_RUNS = 4,
    SLICE_BYTES = 1 << 20,
    SLICE_RECORDS = SLICE_BYTES / INDEX_RUN_RECORD,
    SLICE_ITEMS = 8192,
    STATE_ITEM_MAX = 5 + STATE_KEY_MAX + STATE_VALUE_MAX
};

/* Four index runs walked as one, smallest key first. */
struct index_merge {
    struct ledger_run *in[TIER_RUNS];
    uint64_t at[TIER_RUNS], total;
    struct ledger_index_build build;
    struct {
        uint8_t *p; /* NULL: still to be made */
        size_t n, zeroed;
        void *map; /* NULL: p is memory of its own */
        size_t map_n;
    } tail;                  /* samples and filter */
    uint32_t crc[TIER_RUNS]; /* of the records taken from each */
    uint8_t header[INDEX_RUN_HEADER], footer[INDEX_RUN_FOOTER];
};

/* Four state runs. A slice at a time is in memory: a merged run is as large as the state may be. */
struct state_merge {
    struct checkpoint_bytes bytes[TIER_RUNS];
    struct ledger_state_run in[TIER_RUNS];
    struct ledger_state_merge walk;
    struct buf slice;
    uint64_t n;
    uint32_t crc; /* of the records so far */
};

/* Records first; then parts that are in memory, one after the other; then the run is complete. */
struct checkpoint_merging {
    const struct checkpoint_name *kind; /* ledger_checkpoint__index or __state */
    uint32_t first;                     /* of the four, in the list of runs */
    struct checkpoint_run run;
    char path[STORE_PATH_MAX];
    struct checkpoint_out file;
    bool records_done;
    struct bytes parts[3];
    struct index_merge index;
    struct state_merge state;
};

/* The oldest four neighbours of one tier, if there are. */
static bool tier_full(const struct checkpoint_run *v, uint32_t n, uint32_t *out_first)
{
    for (uint32_t i = 0; i + TIER_RUNS <= n; i++) {
        uint32_t k = 1;
        while (k < TIER_RUNS && v[i + k].tier == v[i].tier)
            k++;
        if (k == TIER_RUNS) {
            *out_first = i;
            return true;
        }
    }
    return false;
}

static void runs_merged(struct checkpoint_run *v, uint32_t *n, uint32_t first, struct checkpoint_run merged)
{
    v[first] = merged;
    memmove(&v[first + 1], &v[first + TIER_RUNS], (*n - first - TIER_RUNS) * sizeof *v);
    *n -= TIER_RUNS - 1;
}

/* ---- index ---- */

/* Holds on to the four runs alone, not to a view: generations must not stay in memory for as long as a merge takes. */
static enum err index_begin(struct ledger *l, struct checkpoint_merging *m)
{
    const struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct index_merge *x = &m->index;
    struct ledger_view *v = ledger_index_pin(&l->index);
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        for (uint32_t k = 0; k < v->n_runs; k++)
            if (v->runs[k]->number == runs->index[m->first + i].number)
                x->in[i] = v->runs[k];
        CHECK(x->in[i] != NULL);
        ledger_run_ref(x->in[i]);
        x->total += x->in[i]->run.n;
    }
    ledger_view_unpin(v);
    m->run.bytes = ledger_index_run_bytes(x->total);
    x->tail.n = ledger_index_tail_bytes(x->total);
    x->build = (struct ledger_index_build){.n = x->total};
    ledger_index_build_header(&x->build, m->run.tier, x->in[0]->run.first_seq,
                              x->in[TIER_RUNS - 1]->run.last_seq, x->header);
    return ERR_OK;
}

/*
 * Samples and filter are written here and there until the last record: two bytes per key, hundreds of megabytes of a long log. So they
 * are a part of the file itself, mapped, which the system may take out of memory; written full of zeros before, because a place that
 * the disk has no room for must be an error here and not a fault there. True: ready.
 */
static bool tail_ready(struct checkpoint_merging *m) RT_BLOCKS
{
    struct index_merge *x = &m->index;
    uint64_t at = INDEX_RUN_HEADER + x->total * INDEX_RUN_RECORD;
    int fd = store_file_fd(m->file.file);
    if (x->tail.p != NULL)
        return true;
    if (fd >= 0 && x->tail.zeroed < x->tail.n) {
        size_t n = x->tail.n - x->tail.zeroed < SLICE_BYTES ? x->tail.n - x->tail.zeroed : SLICE_BYTES;
        memset(m->file.piece, 0, n);
        m->file.err = store_file_pwrite(m->file.file, m->file.piece, n, at + x->tail.zeroed);
        if (m->file.err == ERR_OK)
            m->file.err = store_file_sync(m->file.file);
        x->tail.zeroed += n;
        return false;
    }
    if (fd >= 0) {
        uint64_t page = at & ~(uint64_t)4095;
        x->tail.map_n = (size_t)(at - page) + x->tail.n;
        x->tail.map = mmap(NULL, x->tail.map_n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
        if (x->tail.map == MAP_FAILED)
            x->tail.map = NULL;
        else
            x->tail.p = (uint8_t *)x->tail.map + (at - page);
    } else {
        x->tail.p = calloc(1, x->tail.n);
    }
    m->file.err = x->tail.p == NULL ? ERR_NO_MEMORY : ERR_OK;
    ledger_index_build_begin(&x->build, x->total, x->tail.p);
    return x->tail.p != NULL;
}

static void tail_free(struct index_merge *x)
{
    if (x->tail.map != NULL)
        CHECK(munmap(x->tail.map, x->tail.map_n) == 0);
    else
        free(x->tail.p);
}

static void index_next(struct index_merge *x, struct ledger_index_item *out)
{
    uint32_t least = TIER_RUNS;
    struct ledger_index_item it;
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        if (x->at[i] == x->in[i]->run.n)
            continue;
        ledger_index_run_item(&x->in[i]->run, x->at[i], &it);
        if (least == TIER_RUNS || ledger_index_item_order(&it, out) < 0) {
            *out = it;
            least = i;
        }
    }
    CHECK(least < TIER_RUNS);
    x->crc[least] = crc32c(x->crc[least], x->in[least]->run.records + x->at[least] * INDEX_RUN_RECORD,
                           INDEX_RUN_RECORD);
    x->at[least]++;
}

/* What rotted must not become part of a run that calls itself whole. */
static enum err inputs_whole(const struct index_merge *x)
{
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        const struct ledger_index_run *r = &x->in[i]->run;
        if (x->crc[i] != le32_get(r->p + r->bytes - INDEX_RUN_FOOTER))
            return ERR_CORRUPT;
    }
    return ERR_OK;
}

/* Records go from the old files to the new one, never through memory as a whole. */
static void index_slice(struct checkpoint_merging *m) RT_BLOCKS
{
    struct index_merge *x = &m->index;
    uint8_t record[INDEX_RUN_RECORD];
    if (!tail_ready(m))
        return;
    if (x->build.at == 0)
        ledger_checkpoint__out_put(&m->file, x->header, sizeof x->header);
    for (uint64_t i = 0; i < SLICE_RECORDS && m->file.err == ERR_OK && x->build.at < x->total; i++) {
        struct ledger_index_item it;
        index_next(x, &it);
        ledger_index_build_put(&x->build, &it, record);
        ledger_checkpoint__out_put(&m->file, record, sizeof record);
    }
    if (x->build.at < x->total)
        return;
    m->file.err = m->file.err == ERR_OK ? inputs_whole(x) : m->file.err;
    ledger_index_build_footer(&x->build, x->footer);
    struct bytes ends[] = {bytes_of(x->header, sizeof x->header), bytes_of(x->footer, sizeof x->footer)};
    sha256_of_parts(ends, 2, &m->run.sha256);
    m->parts[0] = bytes_of(x->build.samples, x->build.samples_bytes);
    m->parts[1] = bytes_of(x->build.filter, x->build.filter_bytes);
    m->parts[2] = ends[1];
    m->records_done = true;
}

static enum err index_end(struct ledger *l, struct checkpoint_merging *m) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct ledger_run *merged = NULL;
    enum err err = ledger_run_open(l->deps.disk, m->path, m->run.number, false, &merged);
    if (err == ERR_OK)
        err = ledger_index_replace(&l->index, NULL, m->index.in, TIER_RUNS, merged);
    if (err == ERR_OK)
        runs_merged(runs->index, &runs->n_index, m->first, m->run);
    return err;
}

/* ---- state ---- */

static enum err state_begin(struct ledger *l, struct checkpoint_merging *m) RT_BLOCKS
{
    const struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct state_merge *x = &m->state;
    char path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    buf_init(&x->slice, (size_t)SLICE_ITEMS * STATE_ITEM_MAX);
    for (uint32_t i = 0; err == ERR_OK && i < TIER_RUNS; i++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__state, runs->state[m->first + i].number);
        err = ledger_checkpoint__map(l, path, &x->bytes[i]);
        if (err == ERR_OK)
            err = ledger_state_run_open(x->bytes[i].p, x->bytes[i].n, &x->in[i]);
    }
    if (err == ERR_OK)
        ledger_state_merge_init(&x->walk, x->in, TIER_RUNS);
    return err;
}

/* The header counts the records: it is written last, over what was put there first. */
static void state_ends(struct checkpoint_merging *m) RT_BLOCKS
{
    struct state_merge *x = &m->state;
    uint8_t header[STATE_RUN_HEADER], footer[STATE_RUN_FOOTER];
    struct bytes ends[] = {bytes_of(header, sizeof header), bytes_of(footer, sizeof footer)};
    ledger_state_run_header(m->run.tier, x->n, x->in[TIER_RUNS - 1].as_of_seq, header);
    ledger_state_run_footer(x->crc, footer);
    sha256_of_parts(ends, 2, &m->run.sha256);
    m->run.bytes += sizeof header + sizeof footer;
    ledger_checkpoint__out_put(&m->file, footer, sizeof footer);
    ledger_checkpoint__out_front(&m->file, header, sizeof header);
    m->records_done = true;
}

static void state_slice(struct checkpoint_merging *m) RT_BLOCKS
{
    static const uint8_t room[STATE_RUN_HEADER];
    struct state_merge *x = &m->state;
    struct ledger_state_item it;
    bool more = true;
    if (m->file.at + m->file.held == 0)
        ledger_checkpoint__out_put(&m->file, room, sizeof room);
    buf_reset(&x->slice);
    for (unsigned i = 0; i < SLICE_ITEMS && (more = ledger_state_merge_next(&x->walk, &it)); i++) {
        if (m->first == 0 && it.value.n == 0)
            continue; /* nothing older is left that it could be hiding */
        ledger_state_run_put(&x->slice, &it);
        x->n++;
    }
    if (x->slice.err != ERR_OK) {
        m->file.err = x->slice.err;
        return;
    }
    x->crc = crc32c(x->crc, x->slice.p, x->slice.n);
    m->run.bytes += x->slice.n;
    ledger_checkpoint__out_put(&m->file, x->slice.p, x->slice.n);
    if (!more)
        state_ends(m);
}

/* ---- both ---- */

static void merging_free(struct ledger *l) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct checkpoint_merging *m = runs->merging;
    if (m == NULL)
        return;
    runs->merging = NULL;
    ledger_checkpoint__out_drop(&m->file);
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        if (m->index.in[i] != NULL)
            ledger_run_unref(m->index.in[i]);
        if (m->state.bytes[i].p != NULL)
            ledger_checkpoint__unmap(&m->state.bytes[i]);
    }
    tail_free(&m->index);
    buf_fini(&m->state.slice);
    free(m);
}

void ledger_checkpoint_merge_drop(struct ledger *l)
{
    if (l->runs != NULL)
        merging_free(l);
}

bool ledger_checkpoint__merging(const struct ledger *l, char out_name[64])
{
    const struct checkpoint_merging *m = l->runs == NULL ? NULL : l->runs->merging;
    if (m != NULL)
        ledger_checkpoint__name(out_name, m->kind, m->run.number);
    return m != NULL;
}

/* *out_more is false when no tier is full. */
static enum err begin(struct ledger *l, bool *out_more) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    uint32_t first = 0;
    /* State first: it is short, and with a long merge of keys always next it would never have its turn while much is written. */
    bool index = !tier_full(runs->state, runs->n_state, &first);
    *out_more = !index || tier_full(runs->index, runs->n_index, &first);
    if (!*out_more)
        return ERR_OK;
    struct checkpoint_merging *m = calloc(1, sizeof *m);
    if (m == NULL)
        return ERR_NO_MEMORY;
    runs->merging = m;
    m->kind = index ? &ledger_checkpoint__index : &ledger_checkpoint__state;
    m->first = first;
    m->run = (struct checkpoint_run){
        runs->next_number++, (index ? runs->index : runs->state)[first].tier + 1, 0, {{0}}};
    ledger_checkpoint__path(l, m->path, m->kind, m->run.number);
    enum err err = index ? index_begin(l, m) : state_begin(l, m);
    if (err == ERR_OK) {
        ledger_checkpoint__out_open(l, m->path, &m->file);
        err = m->file.err;
    }
    return err;
}

static struct bytes *next_part(struct checkpoint_merging *m)
{
    for (size_t i = 0; i < sizeof m->parts / sizeof m->parts[0]; i++)
        if (m->parts[i].n > 0)
            return &m->parts[i];
    return NULL;
}

static enum err slice(struct ledger *l, struct checkpoint_merging *m) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    bool index = m->kind == &ledger_checkpoint__index;
    struct bytes *part = next_part(m);
    enum err err = ERR_OK;
    if (!m->records_done) {
        if (index)
            index_slice(m);
        else
            state_slice(m);
        return m->file.err;
    }
    if (part != NULL) {
        size_t n = part->n < SLICE_BYTES ? part->n : SLICE_BYTES;
        ledger_checkpoint__out_put(&m->file, part->p, n);
        *part = bytes_of(part->p + n, part->n - n);
        return m->file.err;
    }
    err = ledger_checkpoint__out_close(&m->file, m->path);
    if (err == ERR_OK && index)
        err = index_end(l, m);
    else if (err == ERR_OK)
        runs_merged(runs->state, &runs->n_state, m->first, m->run);
    if (err == ERR_OK)
        merging_free(l);
    return err;
}

enum err ledger_checkpoint_merge(struct ledger *l, bool *out_more)
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    bool more = true;
    enum err err = runs->merging == NULL ? begin(l, &more) : slice(l, runs->merging);
    if (err != ERR_OK)
        merging_free(l); /* what was written is swept with the next manifest */
    else
        *out_more = more;
    return err;
}

enum err ledger_checkpoint_merge_all(struct ledger *l)
{
    enum err err = ERR_OK;
    for (bool more = true; err == ERR_OK && more;)
        err = ledger_checkpoint_merge(l, &more);
    return err;
}
