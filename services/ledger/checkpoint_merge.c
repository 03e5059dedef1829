/*
 * Merging: four runs of a tier become one of the next, oldest first, so that there are few to look into.
 *
 * A merge of a high tier writes as much as hundreds of generations, so it is done in slices: between any two the checkpointer may
 * write a generation that is complete. And it must not keep shorter ones waiting, or runs of the low tiers pile up meanwhile, and
 * every key is looked for in all of them. So each tier may have a merge under way, and
 *
 *   1  a slice goes to the lowest tier that has four runs;
 *   2  nothing is put into a tier that holds CHECKPOINT_TIER_MAX: the slice goes to that tier instead, and a generation waits.
 *      This bounds the runs whatever happens;
 *   3  with every generation some slices are owed before the next is written, enough for each tier to be done with four runs
 *      before it holds seven. So under a stream that never pauses rule 2 does not come to bear, and nobody waits for a whole merge.
 *
 * Runs are only ever appended, and four neighbours replaced by one, so tiers lie in order, the highest first. What is being
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
    TIER_RUNS = CHECKPOINT_TIER_RUNS,
    STATE_ITEM_ABOUT = 128,
    STATE_ITEM_MAX = 5 + STATE_KEY_MAX + STATE_VALUE_MAX,
    FEW_SLICES = 4,  /* that a merge takes beside its bytes: begun, parts, done */
    TIERS_AHEAD = 6, /* see ledger_checkpoint__merge_owe */
    PREFETCH = 4     /* records ahead, of each run */
};

/* Four index runs walked as one, smallest key first. */
struct index_merge {
    struct ledger_run *in[TIER_RUNS];
    uint64_t at[TIER_RUNS], total;
    struct ledger_index_item head[TIER_RUNS]; /* what is next in each */
    struct ledger_index_build build;
    struct {
        uint8_t *p; /* NULL: still to be made */
        size_t n, zeroed;
        void *map; /* NULL: p is memory of its own */
        size_t map_n;
    } tail;                     /* samples and filter */
    uint64_t summed[TIER_RUNS]; /* records of each that are in */
    uint32_t crc[TIER_RUNS];
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
    bool index;     /* or state */
    bool oldest;    /* nothing is older than the four */
    uint32_t first; /* number of the oldest of the four */
    uint32_t slice_bytes;
    struct checkpoint_run run;
    char path[STORE_PATH_MAX];
    struct checkpoint_out file;
    bool records_done;
    struct bytes parts[3];
    struct index_merge keys;
    struct state_merge values;
};

static struct checkpoint_run *runs_of(struct ledger_runs *runs, bool index, uint32_t **out_n)
{
    *out_n = index ? &runs->n_index : &runs->n_state;
    return index ? runs->index : runs->state;
}

/* Where the four begin: whoever is older may have become fewer meanwhile. */
static struct checkpoint_run *four_of(struct ledger_runs *runs, const struct checkpoint_merging *m)
{
    uint32_t *n, i = 0;
    struct checkpoint_run *v = runs_of(runs, m->index, &n);
    while (i < *n && v[i].number != m->first)
        i++;
    CHECK(i + TIER_RUNS <= *n);
    return &v[i];
}

static void runs_merged(struct ledger_runs *runs, const struct checkpoint_merging *m)
{
    uint32_t *n;
    struct checkpoint_run *v = runs_of(runs, m->index, &n), *four = four_of(runs, m);
    *four = m->run;
    memmove(four + 1, four + TIER_RUNS, (size_t)(v + *n - four - TIER_RUNS) * sizeof *v);
    *n -= TIER_RUNS - 1;
}

/* ---- index ---- */

/* Keys are put into the filter here and there: what comes soon is fetched meanwhile. */
static void head_read(struct index_merge *x, uint32_t i)
{
    const struct ledger_index_run *r = &x->in[i]->run;
    if (x->at[i] < r->n)
        ledger_index_run_item(r, x->at[i], &x->head[i]);
    if (x->build.filter != NULL && x->at[i] + PREFETCH < r->n) {
        struct ledger_index_item soon;
        ledger_index_run_item(r, x->at[i] + PREFETCH, &soon);
        ledger_index_build_prefetch(&x->build, soon.key);
    }
}

/* Holds on to the four runs alone, not to a view: generations must not stay in memory for as long as a merge takes. */
static enum err index_begin(struct ledger *l, struct checkpoint_merging *m)
{
    const struct checkpoint_run *four = four_of(ledger_checkpoint__runs(l), m);
    struct index_merge *x = &m->keys;
    struct ledger_view *v = ledger_index_pin(&l->index);
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        for (uint32_t k = 0; k < v->n_runs; k++)
            if (v->runs[k]->number == four[i].number)
                x->in[i] = v->runs[k];
        CHECK(x->in[i] != NULL);
        ledger_run_ref(x->in[i]);
        x->total += x->in[i]->run.n;
        head_read(x, i);
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
    struct index_merge *x = &m->keys;
    uint64_t at = INDEX_RUN_HEADER + x->total * INDEX_RUN_RECORD;
    int fd = store_file_fd(m->file.file);
    if (x->tail.p != NULL)
        return true;
    if (fd >= 0 && x->tail.zeroed < x->tail.n) {
        size_t n =
            x->tail.n - x->tail.zeroed < m->slice_bytes ? x->tail.n - x->tail.zeroed : m->slice_bytes;
        memset(m->file.piece, 0, n);
        m->file.err = store_file_pwrite(m->file.file, m->file.piece, n, at + x->tail.zeroed);
        if (m->file.err == ERR_OK)
            m->file.err = store_file_write_out(m->file.file, at + x->tail.zeroed, n);
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

/* A part of a mapped file: it stays in the file and may be read again. */
static void unneeded(const uint8_t *p, size_t n)
{
    uintptr_t from = (uintptr_t)p & ~(uintptr_t)4095, to = ((uintptr_t)p + n) & ~(uintptr_t)4095;
    if (from < to)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
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
    for (uint32_t i = 0; i < TIER_RUNS; i++)
        if (x->at[i] < x->in[i]->run.n &&
            (least == TIER_RUNS || ledger_index_item_order(&x->head[i], &x->head[least]) < 0))
            least = i;
    CHECK(least < TIER_RUNS);
    *out = x->head[least];
    x->at[least]++;
    head_read(x, least);
}

/* What was taken is summed, and need not be mapped any more: or the end of a long run has millions of pages to unmap at once. */
static void inputs_taken(struct index_merge *x)
{
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        const uint8_t *from = x->in[i]->run.records + x->summed[i] * INDEX_RUN_RECORD;
        size_t n = (x->at[i] - x->summed[i]) * INDEX_RUN_RECORD;
        x->crc[i] = crc32c(x->crc[i], from, n);
        x->summed[i] = x->at[i];
        if (x->in[i]->mapped)
            unneeded(from, n);
    }
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
    struct index_merge *x = &m->keys;
    uint8_t record[INDEX_RUN_RECORD];
    if (!tail_ready(m))
        return;
    if (x->build.at == 0)
        ledger_checkpoint__out_put(&m->file, x->header, sizeof x->header);
    for (uint64_t i = 0;
         i < m->slice_bytes / INDEX_RUN_RECORD && m->file.err == ERR_OK && x->build.at < x->total; i++) {
        struct ledger_index_item it;
        index_next(x, &it);
        ledger_index_build_put(&x->build, &it, record);
        ledger_checkpoint__out_put(&m->file, record, sizeof record);
    }
    inputs_taken(x);
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
    struct ledger_run *merged = NULL;
    enum err err = ledger_run_open(l->deps.disk, m->path, m->run.number, false, &merged);
    if (err == ERR_OK)
        err = ledger_index_replace(&l->index, NULL, m->keys.in, TIER_RUNS, merged);
    return err;
}

/* ---- state ---- */

static size_t state_items(const struct checkpoint_merging *m)
{
    return m->slice_bytes / STATE_ITEM_ABOUT + 1;
}

static enum err state_begin(struct ledger *l, struct checkpoint_merging *m) RT_BLOCKS
{
    const struct checkpoint_run *four = four_of(ledger_checkpoint__runs(l), m);
    struct state_merge *x = &m->values;
    char path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    buf_init(&x->slice, state_items(m) * STATE_ITEM_MAX);
    for (uint32_t i = 0; err == ERR_OK && i < TIER_RUNS; i++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__state, four[i].number);
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
    struct state_merge *x = &m->values;
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
    struct state_merge *x = &m->values;
    struct ledger_state_item it;
    bool more = true;
    if (m->file.at + m->file.held == 0)
        ledger_checkpoint__out_put(&m->file, room, sizeof room);
    buf_reset(&x->slice);
    for (unsigned i = 0; i < state_items(m) && (more = ledger_state_merge_next(&x->walk, &it)); i++) {
        if (m->oldest && it.value.n == 0)
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

static struct checkpoint_merging **place_of(struct ledger_runs *runs, bool index, uint32_t tier)
{
    return &runs->merging[index ? 0 : 1][tier];
}

static void merging_free(struct checkpoint_merging **place) RT_BLOCKS
{
    struct checkpoint_merging *m = *place;
    if (m == NULL)
        return;
    *place = NULL;
    ledger_checkpoint__out_drop(&m->file);
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        if (m->keys.in[i] != NULL)
            ledger_run_unref(m->keys.in[i]);
        if (m->values.bytes[i].p != NULL)
            ledger_checkpoint__unmap(&m->values.bytes[i]);
    }
    tail_free(&m->keys);
    buf_fini(&m->values.slice);
    free(m);
}

void ledger_checkpoint_merge_drop(struct ledger *l)
{
    for (uint32_t tier = 0; l->runs != NULL && tier < CHECKPOINT_TIERS; tier++) {
        merging_free(place_of(l->runs, true, tier));
        merging_free(place_of(l->runs, false, tier));
    }
}

size_t ledger_checkpoint__merging(const struct ledger *l, char out_names[CHECKPOINT_MERGES_MAX][64])
{
    size_t n = 0;
    for (uint32_t i = 0; l->runs != NULL && i < CHECKPOINT_MERGES_MAX; i++) {
        const struct checkpoint_merging *m = *place_of(l->runs, i % 2, i / 2);
        if (m != NULL)
            ledger_checkpoint__name(out_names[n++],
                                    m->index ? &ledger_checkpoint__index : &ledger_checkpoint__state,
                                    m->run.number);
    }
    return n;
}

/* Rules 1 and 2: the tier that a slice goes to; CHECKPOINT_TIERS when none has four. */
static uint32_t tier_due(const struct checkpoint_run *v, uint32_t n)
{
    uint32_t holds[CHECKPOINT_TIERS] = {0}, tier = 0;
    for (uint32_t i = 0; i < n; i++)
        holds[v[i].tier]++;
    while (tier < CHECKPOINT_TIERS && holds[tier] < TIER_RUNS)
        tier++;
    while (tier + 1 < CHECKPOINT_TIERS && holds[tier + 1] >= CHECKPOINT_TIER_MAX)
        tier++;
    return tier;
}

static uint32_t holds_youngest(const struct checkpoint_run *v, uint32_t n)
{
    uint32_t k = 0;
    while (k < n && v[n - 1 - k].tier == 0)
        k++;
    return k;
}

/* The oldest four of the tier. */
static enum err begin(struct ledger *l, bool index, uint32_t tier) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    uint32_t *n, first = 0, up = tier + 1 < CHECKPOINT_TIERS ? tier + 1 : tier;
    struct checkpoint_run *v = runs_of(runs, index, &n);
    struct checkpoint_merging *m = calloc(1, sizeof *m);
    if (m == NULL)
        return ERR_NO_MEMORY;
    *place_of(runs, index, tier) = m;
    while (v[first].tier != tier)
        first++;
    m->index = index;
    m->oldest = first == 0;
    m->first = v[first].number;
    m->slice_bytes = l->set.merge_slice_bytes;
    m->run = (struct checkpoint_run){runs->next_number++, up, 0, {{0}}};
    ledger_checkpoint__path(l, m->path, index ? &ledger_checkpoint__index : &ledger_checkpoint__state,
                            m->run.number);
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

static enum err slice(struct ledger *l, struct checkpoint_merging **place) RT_BLOCKS
{
    struct checkpoint_merging *m = *place;
    struct bytes *part = next_part(m);
    enum err err = ERR_OK;
    if (!m->records_done) {
        if (m->index)
            index_slice(m);
        else
            state_slice(m);
        return m->file.err;
    }
    if (part != NULL) {
        size_t n = part->n < m->slice_bytes ? part->n : m->slice_bytes;
        ledger_checkpoint__out_put(&m->file, part->p, n);
        if (m->keys.tail.map != NULL && part != &m->parts[2])
            unneeded(part->p, n);
        *part = bytes_of(part->p + n, part->n - n);
        return m->file.err;
    }
    err = ledger_checkpoint__out_close(&m->file, m->path);
    if (err == ERR_OK && m->index)
        err = index_end(l, m);
    if (err == ERR_OK) {
        runs_merged(ledger_checkpoint__runs(l), m);
        merging_free(place);
    }
    return err;
}

enum err ledger_checkpoint_merge(struct ledger *l, bool *out_more)
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    uint32_t keys = tier_due(runs->index, runs->n_index), values = tier_due(runs->state, runs->n_state);
    bool index = keys < values; /* state is shorter */
    uint32_t tier = index ? keys : values;
    if (tier == CHECKPOINT_TIERS) {
        runs->owed = 0;
        *out_more = false;
        return ERR_OK;
    }
    struct checkpoint_merging **place = place_of(runs, index, tier);
    enum err err = *place == NULL ? begin(l, index, tier) : slice(l, place);
    if (err != ERR_OK) {
        char path[STORE_PATH_MAX] = "";
        if (*place != NULL)
            memcpy(path, (*place)->path, sizeof path);
        merging_free(place);
        if (path[0] != 0) /* the next manifest would sweep it, but may not come while it takes the room */
            ledger_checkpoint__unwrite(l, path);
        return err;
    }
    runs->owed -= runs->owed > 0;
    *out_more = true;
    return ERR_OK;
}

enum err ledger_checkpoint_merge_all(struct ledger *l)
{
    enum err err = ERR_OK;
    for (bool more = true; err == ERR_OK && more;)
        err = ledger_checkpoint_merge(l, &more);
    return err;
}

enum err ledger_checkpoint__merge_room(struct ledger *l)
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    enum err err = ERR_OK;
    for (bool more = true; err == ERR_OK && more &&
                           (holds_youngest(runs->index, runs->n_index) >= CHECKPOINT_TIER_MAX ||
                            holds_youngest(runs->state, runs->n_state) >= CHECKPOINT_TIER_MAX);)
        err = ledger_checkpoint_merge(l, &more);
    return err;
}

/*
 * Rule 3. In the long run every byte is merged once per tier, so as many slices as there are tiers times those of the generation would
 * just do. With six more, those of tier t are through with their 4^(t+1) generations' worth, and with what comes before them below,
 * in 4^(t+1) * 4/3 / 6 generations: before one more run comes up, which takes 4^t.
 */
void ledger_checkpoint__merge_owe(struct ledger *l, uint64_t index_bytes, uint64_t state_bytes)
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    uint64_t tiers = 1 + runs->index[0].tier; /* the oldest is of the highest */
    runs->owed =
        (tiers + TIERS_AHEAD) * ((index_bytes + state_bytes) / l->set.merge_slice_bytes + 2 * FEW_SLICES);
}

bool ledger_checkpoint_merge_owed(const struct ledger *l)
{
    return l->runs != NULL && l->runs->owed > 0;
}
