/* Merging: four runs of a tier become one of the next, oldest first, so that there are few to look into. */
#include "services/ledger/checkpoint_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/core/index_run.h"

enum { TIER_RUNS = 4 };

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

static enum err merge_state(struct ledger *l, uint32_t first) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct checkpoint_bytes bytes[TIER_RUNS] = {{0}};
    struct ledger_state_run in[TIER_RUNS];
    struct ledger_state_merge m;
    struct ledger_state_item it;
    struct buf b;
    char path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    buf_init(&b, SIZE_MAX / 2);
    for (uint32_t i = 0; err == ERR_OK && i < TIER_RUNS; i++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__state, runs->state[first + i].number);
        err = ledger_checkpoint__map(l, path, &bytes[i]);
        if (err == ERR_OK)
            err = ledger_state_run_open(bytes[i].p, bytes[i].n, &in[i]);
    }
    if (err == ERR_OK) {
        uint64_t n = 0;
        ledger_state_merge_init(&m, in, TIER_RUNS);
        ledger_state_run_begin(&b);
        while (ledger_state_merge_next(&m, &it)) {
            if (first == 0 && it.value.n == 0)
                continue; /* nothing older is left that it could be hiding */
            ledger_state_run_put(&b, &it);
            n++;
        }
        struct checkpoint_run f = {runs->next_number++, runs->state[first].tier + 1, 0, {{0}}};
        ledger_state_run_end(&b, f.tier, n, in[TIER_RUNS - 1].as_of_seq);
        err = b.err;
        if (err == ERR_OK) {
            f.bytes = b.n;
            ledger_checkpoint__ends(b.p, b.n, STATE_RUN_FOOTER, &f.sha256);
            ledger_checkpoint__path(l, path, &ledger_checkpoint__state, f.number);
            err = ledger_checkpoint__write_run(l, path, b.p, b.n);
        }
        if (err == ERR_OK)
            runs_merged(runs->state, &runs->n_state, first, f);
    }
    for (uint32_t i = 0; i < TIER_RUNS; i++)
        if (bytes[i].p != NULL)
            ledger_checkpoint__unmap(&bytes[i]);
    buf_fini(&b);
    return err;
}

/* Four runs walked as one, smallest key first. */
struct index_merge {
    struct ledger_run *in[TIER_RUNS];
    uint64_t at[TIER_RUNS], total;
};

static void index_merge_next(struct index_merge *m, struct ledger_index_item *out)
{
    uint32_t least = TIER_RUNS;
    struct ledger_index_item it;
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        if (m->at[i] == m->in[i]->run.n)
            continue;
        ledger_index_run_item(&m->in[i]->run, m->at[i], &it);
        if (least == TIER_RUNS || ledger_index_item_order(&it, out) < 0) {
            *out = it;
            least = i;
        }
    }
    CHECK(least < TIER_RUNS);
    m->at[least]++;
}

/*
 * Records go from the old files to the new one; in memory is only what stands behind them there, samples and filter: two bytes
 * per key. A run of all keys of a long log would not fit.
 */
static enum err write_merged(struct ledger *l, const char *path, struct index_merge *m,
                             struct checkpoint_run *f) RT_BLOCKS
{
    struct ledger_index_build b;
    struct checkpoint_out out;
    uint8_t header[INDEX_RUN_HEADER], record[INDEX_RUN_RECORD], footer[INDEX_RUN_FOOTER];
    enum err err = ledger_index_build_begin(&b, m->total);
    if (err != ERR_OK)
        return err;
    ledger_checkpoint__out_open(l, path, &out);
    ledger_index_build_header(&b, f->tier, m->in[0]->run.first_seq, m->in[TIER_RUNS - 1]->run.last_seq,
                              header);
    ledger_checkpoint__out_put(&out, header, sizeof header);
    for (uint64_t n = 0; out.err == ERR_OK && n < m->total; n++) {
        struct ledger_index_item it;
        index_merge_next(m, &it);
        ledger_index_build_put(&b, &it, record);
        ledger_checkpoint__out_put(&out, record, sizeof record);
    }
    ledger_checkpoint__out_put(&out, b.samples, b.samples_bytes);
    ledger_checkpoint__out_put(&out, b.filter, b.filter_bytes);
    ledger_index_build_footer(&b, footer);
    ledger_checkpoint__out_put(&out, footer, sizeof footer);
    struct bytes ends[] = {bytes_of(header, sizeof header), bytes_of(footer, sizeof footer)};
    sha256_of_parts(ends, 2, &f->sha256);
    ledger_index_build_end(&b);
    return ledger_checkpoint__out_close(&out, path);
}

static enum err merge_index(struct ledger *l, uint32_t first) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct index_merge m = {.total = 0};
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        for (uint32_t k = 0; k < v->n_runs; k++)
            if (v->runs[k]->number == runs->index[first + i].number)
                m.in[i] = v->runs[k];
        CHECK(m.in[i] != NULL);
        m.total += m.in[i]->run.n;
    }
    struct checkpoint_run f = {
        runs->next_number++, runs->index[first].tier + 1, ledger_index_run_bytes(m.total), {{0}}};
    char path[STORE_PATH_MAX];
    ledger_checkpoint__path(l, path, &ledger_checkpoint__index, f.number);
    enum err err = write_merged(l, path, &m, &f);
    struct ledger_run *merged = NULL;
    if (err == ERR_OK)
        err = ledger_run_open(l->deps.disk, path, f.number, false, &merged);
    if (err == ERR_OK)
        err = ledger_index_replace(&l->index, NULL, m.in, TIER_RUNS, merged);
    if (err == ERR_OK)
        runs_merged(runs->index, &runs->n_index, first, f);
    ledger_view_unpin(v);
    return err;
}

enum err ledger_checkpoint__merge(struct ledger *l) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    uint32_t first;
    enum err err = ERR_OK;
    while (err == ERR_OK && tier_full(runs->index, runs->n_index, &first))
        err = merge_index(l, first);
    while (err == ERR_OK && tier_full(runs->state, runs->n_state, &first))
        err = merge_state(l, first);
    return err;
}
