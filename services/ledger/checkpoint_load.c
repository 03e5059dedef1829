/* Loading: the newest manifest whose files are all good, else an older one, else none: then the journal rebuilds everything. */
#include "services/ledger/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "services/ledger/reads.h"
#include "store/file_replace.h"

static enum err load_state(struct ledger *l, const struct ledger_runs *runs) RT_BLOCKS
{
    struct checkpoint_bytes bytes[CHECKPOINT_RUNS_MAX] = {{0}};
    struct ledger_state_run in[CHECKPOINT_RUNS_MAX];
    struct ledger_state_merge m;
    struct ledger_state_item it;
    enum err err = ERR_OK;
    char path[STORE_PATH_MAX];
    for (uint32_t i = 0; err == ERR_OK && i < runs->n_state; i++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__state, runs->state[i].number);
        err = ledger_checkpoint__map(l, path, &bytes[i]);
        if (err == ERR_OK)
            err = ledger_state_run_open(bytes[i].p, bytes[i].n, &in[i]);
    }
    uint64_t rows = 0; /* of the largest: the others mostly repeat its keys */
    for (uint32_t i = 0; err == ERR_OK && i < runs->n_state; i++)
        rows = in[i].n_rows > rows ? in[i].n_rows : rows;
    if (err == ERR_OK) {
        ledger_state_load_begin(l->state, rows);
        ledger_state_merge_init(&m, in, runs->n_state);
        while (err == ERR_OK && ledger_state_merge_next(&m, &it)) {
            struct ledger_state_record r; /* not cleared: a million of them come by */
            r.type = (char)it.type;
            r.key_len = (uint16_t)it.key.n;
            r.value_len = (uint16_t)it.value.n;
            memcpy(r.key, it.key.p, it.key.n);
            memcpy(r.value, it.value.p, it.value.n);
            if (it.value.n != 0)
                err = ledger_state_load(l->state, &r);
        }
        if (err == ERR_OK)
            err = ledger_state_load_done(l->state);
    }
    for (uint32_t i = 0; i < runs->n_state; i++)
        if (bytes[i].p != NULL)
            ledger_checkpoint__unmap(&bytes[i]);
    return err;
}

static enum err file_ok(struct ledger *l, const struct checkpoint_file *f) RT_BLOCKS
{
    char path[STORE_PATH_MAX], name[80];
    struct store_stat st;
    snprintf(name, sizeof name, "%.*s", STR_ARG(f->name));
    store_path_join(path, l->set.dir, name);
    enum err err = store_disk_stat(l->deps.disk, path, &st);
    if (err != ERR_OK)
        return err;
    return st.bytes < f->bytes || (f->has_sha256 && st.bytes != f->bytes) ? ERR_CORRUPT : ERR_OK;
}

static enum err run_named(struct ledger *l, const struct checkpoint_file *f,
                          const struct checkpoint_name *k, struct checkpoint_run *v, uint32_t *n,
                          size_t footer) RT_BLOCKS
{
    unsigned long long number;
    char name[80], path[STORE_PATH_MAX];
    struct checkpoint_bytes b;
    snprintf(name, sizeof name, "%.*s", STR_ARG(f->name));
    if (*n == CHECKPOINT_RUNS_MAX || f->name.n < strlen(k->prefix) ||
        sscanf(name + strlen(k->prefix), "%8llu", &number) != 1)
        return ERR_CORRUPT;
    store_path_join(path, l->set.dir, name);
    enum err err = ledger_checkpoint__map(l, path, &b);
    if (err != ERR_OK)
        return err;
    struct sha256 ends = {{0}};
    if (b.n < 64 + footer)
        err = ERR_CORRUPT;
    else
        ledger_checkpoint__ends(b.p, b.n, footer, &ends);
    if (err == ERR_OK &&
        (!sha256_eq(&ends, &f->sha256) || le32_get((uint8_t *)b.p + 12) >= CHECKPOINT_TIERS))
        err = ERR_CORRUPT;
    if (err == ERR_OK)
        v[(*n)++] = (struct checkpoint_run){(uint32_t)number, le32_get((uint8_t *)b.p + 12), b.n, ends};
    ledger_checkpoint__unmap(&b);
    return err;
}

static enum err load_manifest(struct ledger *l, const struct checkpoint_manifest *man) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
    const struct checkpoint_file *f = man->files.items;
    char id[33], path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    *runs = (struct ledger_runs){.next_number = runs->next_number};
    hex_encode(l->ledger_id, 16, id);
    if (!str_eq_c(man->ledger_id, id))
        return ERR_CORRUPT;
    for (size_t i = 0; err == ERR_OK && i < man->files.n; i++) {
        err = file_ok(l, &f[i]);
        if (err == ERR_OK && str_starts(f[i].name, STR("index/")))
            err = run_named(l, &f[i], &ledger_checkpoint__index, runs->index, &runs->n_index,
                            INDEX_RUN_FOOTER);
        else if (err == ERR_OK && str_starts(f[i].name, STR("state/")))
            err = run_named(l, &f[i], &ledger_checkpoint__state, runs->state, &runs->n_state,
                            STATE_RUN_FOOTER);
    }
    if (err == ERR_OK)
        err = load_state(l, runs);
    if (err == ERR_OK)
        err = ledger_columns_open(l, man->entries, man->group_no);
    struct ledger_group_row last;
    if (err == ERR_OK)
        err = ledger_column_get(&l->groups, man->group_no - 1, &last);
    if (err == ERR_OK && (last.group_no != man->group_no || last.last_seq != man->entries ||
                          last.ledger_ms != man->ledger_ms || !sha256_eq(&last.root, &man->root)))
        err = ERR_CORRUPT;
    struct ledger_node_source nodes = ledger_nodes(l);
    if (err == ERR_OK)
        err = ledger_merkle_frontier(&nodes, man->entries, &l->frontier);
    struct sha256 root;
    if (err == ERR_OK) {
        ledger_frontier_root(&l->frontier, &root);
        if (!sha256_eq(&root, &man->root))
            err = ERR_CORRUPT;
    }
    for (uint32_t i = 0; err == ERR_OK && i < runs->n_index; i++) {
        struct ledger_run *run;
        ledger_checkpoint__path(l, path, &ledger_checkpoint__index, runs->index[i].number);
        err = ledger_run_open(l->deps.disk, path, runs->index[i].number, false, &run);
        if (err == ERR_OK)
            err = ledger_index_replace(&l->index, NULL, NULL, 0, run);
    }
    return err;
}

/* After a manifest that turned out bad half way: everything it put in place goes again. */
static enum err unload(struct ledger *l) RT_BLOCKS
{
    ledger_state_destroy(l->state);
    l->state = ledger_state_create(l->seed0, l->seed1);
    for (unsigned level = 0; level < MERKLE_LEVELS; level++)
        ledger_column_fini(&l->levels[level]);
    ledger_column_fini(&l->groups);
    ledger_index_fini(&l->index);
    ledger_frontier_init(&l->frontier);
    return ledger_index_init(&l->index);
}

struct highest {
    unsigned long long n;
};

static enum err number_seen(void *ctx, const char *name)
{
    struct highest *h = ctx;
    unsigned long long n;
    if (sscanf(name, "%8llu.run", &n) == 1 && n > h->n)
        h->n = n;
    return ERR_OK;
}

static enum err find_next_number(struct ledger *l) RT_BLOCKS
{
    struct highest h = {0};
    char dir[STORE_PATH_MAX];
    store_path_join(dir, l->set.dir, "index");
    enum err err = store_disk_list(l->deps.disk, dir, number_seen, &h);
    store_path_join(dir, l->set.dir, "state");
    if (err == ERR_OK)
        err = store_disk_list(l->deps.disk, dir, number_seen, &h);
    ledger_checkpoint__runs(l)->next_number = (uint32_t)h.n + 1;
    return err;
}

enum err ledger_checkpoint_load(struct ledger *l, struct ledger_checkpoint *out)
{
    struct checkpoint_list m = {.n = 0};
    *out = (struct ledger_checkpoint){0};
    enum err err = l->set.amnesia ? ERR_OK : find_next_number(l);
    if (err == ERR_OK && !l->set.amnesia)
        err = ledger_checkpoint__list(l, &m);
    for (size_t i = 0; err == ERR_OK && i < m.n; i++) {
        struct arena a;
        struct checkpoint_manifest man;
        arena_init(&a, 65536, 8 << 20);
        enum err bad = ledger_checkpoint__read_manifest(l, m.v[i], &a, &man);
        if (bad == ERR_OK)
            bad = load_manifest(l, &man);
        arena_fini(&a);
        if (bad == ERR_OK) {
            *out = (struct ledger_checkpoint){true,
                                              man.entries,
                                              man.group_no,
                                              man.ledger_ms,
                                              {(uint32_t)man.segment, (uint32_t)man.offset},
                                              man.root};
            return ERR_OK;
        }
        obs_log(l->deps.log, OBS_WARN, "rebuild", OBS_STR("what", "manifest"), OBS_U64("entries", m.v[i]),
                OBS_ERR(bad), OBS_END);
        if (l->m[LEDGER_M_checkpoint_fail] != NULL)
            obs_counter_inc(obs_counter(l->m[LEDGER_M_checkpoint_fail]));
        err = unload(l);
        ledger_checkpoint__runs(l)->n_index = ledger_checkpoint__runs(l)->n_state = 0;
    }
    return err == ERR_OK ? ledger_columns_open(l, 0, 0) : err;
}
