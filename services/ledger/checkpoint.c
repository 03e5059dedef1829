#include "services/ledger/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "services/ledger/core/state_run.h"
#include "services/ledger/reads.h"
#include "store/file_replace.h"

enum { TIER_RUNS = 4, MANIFEST_MAX = 1 << 20, RUNS_MAX = STATE_RUNS_MAX };

/* Numbered files: prefix, digits, suffix. */
struct numbered {
    const char *prefix;
    int digits;
    const char *suffix;
};
static const struct numbered level_name = {"tree/", 2, ""}, index_name = {"index/", 8, ".run"},
                             state_name = {"state/", 8, ".run"},
                             manifest_name = {"ckpt/MANIFEST-", 20, ".json"};

static void name_of(char out[64], const struct numbered *k, uint64_t n)
{
    snprintf(out, 64, "%s%0*llu%s", k->prefix, k->digits, (unsigned long long)n, k->suffix);
}

static void path_in(const struct ledger *l, char out[STORE_PATH_MAX], const struct numbered *k, uint64_t n)
{
    char name[64];
    name_of(name, k, n);
    store_path_join(out, l->set.dir, name);
}

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
        path_in(l, path, &level_name, level);
        err = column_open(l, &l->levels[level], path, 32, level == 0 ? 1024 : 64, (span >> level) + 64,
                          entries >> level);
    }
    store_path_join(path, l->set.dir, "groups");
    if (err == ERR_OK)
        err = column_open(l, &l->groups, path, sizeof(struct ledger_group_row), 256, span, groups);
    return err;
}

/* ---- manifest ---- */

struct manifest_file {
    struct str name;
    uint64_t bytes;
    struct sha256 sha256;
    bool has_sha256;
};

struct manifest {
    uint64_t entries, group_no, ledger_ms, offset, segment, v;
    struct json_list files;
    struct str ledger_id;
    struct sha256 root;
};

static const struct json_field file_fields[] = {
    JSON_REQ(struct manifest_file, bytes, JSON_KIND_U64),
    JSON_REQ(struct manifest_file, name, JSON_KIND_STR, .min = 1, .max = 64),
    JSON_OPT(struct manifest_file, sha256, JSON_KIND_HASH),
    JSON_END,
};

static const struct json_field manifest_fields[] = {
    JSON_REQ(struct manifest, entries, JSON_KIND_U64, .min = 1),
    JSON_REQ(struct manifest, files, JSON_KIND_OBJ_LIST, .fields = file_fields,
             .item_bytes = sizeof(struct manifest_file), .max = 1024),
    JSON_REQ(struct manifest, group_no, JSON_KIND_U64, .min = 1),
    JSON_REQ(struct manifest, ledger_id, JSON_KIND_STR, .min = 32, .max = 32),
    JSON_REQ(struct manifest, ledger_ms, JSON_KIND_U64),
    JSON_REQ(struct manifest, offset, JSON_KIND_U64, .max = UINT32_MAX),
    JSON_REQ(struct manifest, root, JSON_KIND_HASH),
    JSON_REQ(struct manifest, segment, JSON_KIND_U64, .max = UINT32_MAX),
    JSON_REQ(struct manifest, v, JSON_KIND_U64, .min = 1, .max = 1),
    JSON_END,
};

static enum err manifest_parse(struct bytes text, struct arena *a, struct manifest *out)
{
    struct json_error why;
    uint8_t crc[4];
    if (text.n < 10 || text.p[text.n - 9] != '\n' ||
        hex_decode(str_of((const char *)text.p + text.n - 8, 8), crc, 4) != ERR_OK ||
        be32_get(crc) != crc32c(0, text.p, text.n - 9))
        return ERR_CORRUPT;
    return json_read_dto(bytes_of(text.p, text.n - 9), manifest_fields, out, a, &why) == ERR_OK
               ? ERR_OK
               : ERR_CORRUPT;
}

/* ---- what is on disk now: the runs in force, oldest first ---- */

struct run_file {
    uint32_t number, tier;
    uint64_t bytes;
    struct sha256 sha256; /* of header and footer */
};

struct ledger_runs {
    struct run_file index[RUNS_MAX], state[RUNS_MAX];
    uint32_t n_index, n_state, next_number;
};

static struct ledger_runs *runs_of(struct ledger *l)
{
    if (l->runs == NULL) {
        l->runs = calloc(1, sizeof(struct ledger_runs));
        CHECK(l->runs != NULL);
        l->runs->next_number = 1;
    }
    return l->runs;
}

static void ends_hash(const uint8_t *p, size_t n, size_t footer, struct sha256 *out)
{
    struct bytes parts[] = {bytes_of(p, 64), bytes_of(p + n - footer, footer)};
    sha256_of_parts(parts, 2, out);
}

/* A run's bytes: mapped from the disk, or read. */
struct run_bytes {
    void *p;
    size_t n;
    bool mapped;
};

static enum err bytes_open(struct ledger *l, const char *path, struct run_bytes *out) RT_BLOCKS
{
    struct store_file *f;
    uint64_t n = 0;
    enum err err = store_file_open(l->deps.disk, path, STORE_READ, &f);
    if (err != ERR_OK)
        return err;
    struct run_bytes b = {NULL, 0, false};
    err = store_file_size(f, &n);
    b.n = n;
    if (err == ERR_OK && n > 0 && store_file_fd(f) >= 0) {
        b.p = mmap(NULL, n, PROT_READ, MAP_SHARED, store_file_fd(f), 0);
        b.mapped = b.p != MAP_FAILED;
        if (!b.mapped)
            b.p = NULL;
    }
    if (err == ERR_OK && b.p == NULL) {
        b.p = malloc(n + 1);
        err = b.p == NULL ? ERR_NO_MEMORY : store_file_read_all(f, b.p, n, 0);
    }
    store_file_close(f);
    if (err == ERR_OK)
        *out = b;
    else
        free(b.p);
    return err;
}

static void bytes_close(struct run_bytes *b)
{
    if (b->mapped)
        CHECK(munmap(b->p, b->n) == 0);
    else
        free(b->p);
    b->p = NULL;
}

static enum err write_run(struct ledger *l, const char *path, const void *p, size_t n) RT_BLOCKS
{
    enum { STEP = 1 << 20 };
    struct store_file *f;
    char dir[STORE_PATH_MAX];
    enum err err = store_file_open(l->deps.disk, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (err != ERR_OK)
        return err;
    for (size_t at = 0; err == ERR_OK && at < n;
         at += STEP) { /* in small flushed steps: the committer shares the device */
        err = store_file_pwrite(f, (const char *)p + at, n - at < STEP ? n - at : STEP, at);
        if (err == ERR_OK)
            err = store_file_sync(f);
    }
    store_file_close(f);
    CHECK(store_path_dir(path, dir));
    return err == ERR_OK ? store_disk_sync_dir(l->deps.disk, dir) : err;
}

/* ---- writing a generation ---- */

static enum err write_index(struct ledger *l, const struct ledger_gen *g, struct run_file *out) RT_BLOCKS
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
        struct run_file f = {runs_of(l)->next_number++, 0, ledger_index_run_bytes(n), {{0}}};
        ends_hash(bytes, f.bytes, INDEX_RUN_FOOTER, &f.sha256);
        char path[STORE_PATH_MAX];
        path_in(l, path, &index_name, f.number);
        err = write_run(l, path, bytes, f.bytes);
        *out = f;
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
                            struct run_file *out) RT_BLOCKS
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
        struct run_file f = {runs_of(l)->next_number++, 0, b.n, {{0}}};
        ends_hash(b.p, b.n, STATE_RUN_FOOTER, &f.sha256);
        char path[STORE_PATH_MAX];
        path_in(l, path, &state_name, f.number);
        err = write_run(l, path, b.p, b.n);
        *out = f;
    }
    buf_fini(&b);
    return err;
}

static void put_file(struct json_w *w, const char *name, uint64_t bytes, const struct sha256 *hash)
{
    json_obj_begin(w);
    json_put_u64(w, "bytes", bytes);
    json_put_cstr(w, "name", name);
    if (hash != NULL)
        json_put_hash(w, "sha256", hash);
    json_obj_end(w);
}

static enum err write_manifest(struct ledger *l, uint64_t entries, const struct ledger_group_row *g,
                               struct core_place end) RT_BLOCKS
{
    struct ledger_runs *runs = runs_of(l);
    struct buf b;
    struct json_w w;
    char name[64], id[33], path[STORE_PATH_MAX];
    buf_init(&b, MANIFEST_MAX);
    json_w_init(&w, &b);
    hex_encode(l->ledger_id, 16, id);
    json_obj_begin(&w);
    json_put_u64(&w, "entries", entries);
    json_key(&w, "files");
    json_arr_begin(&w);
    for (unsigned level = 0; level < MERKLE_LEVELS && entries >> level != 0; level++) {
        name_of(name, &level_name, level);
        put_file(&w, name, (entries >> level) * 32, NULL);
    }
    put_file(&w, "groups", g->group_no * sizeof *g, NULL);
    for (uint32_t i = 0; i < runs->n_index; i++) {
        name_of(name, &index_name, runs->index[i].number);
        put_file(&w, name, runs->index[i].bytes, &runs->index[i].sha256);
    }
    for (uint32_t i = 0; i < runs->n_state; i++) {
        name_of(name, &state_name, runs->state[i].number);
        put_file(&w, name, runs->state[i].bytes, &runs->state[i].sha256);
    }
    json_arr_end(&w);
    json_put_u64(&w, "group_no", g->group_no);
    json_put_cstr(&w, "ledger_id", id);
    json_put_u64(&w, "ledger_ms", g->ledger_ms);
    json_put_u64(&w, "offset", end.offset);
    json_put_hash(&w, "root", &g->root);
    json_put_u64(&w, "segment", end.segment);
    json_put_u64(&w, "v", 1);
    json_obj_end(&w);
    buf_printf(&b, "\n%08x", crc32c(0, b.p, b.n));
    path_in(l, path, &manifest_name, entries);
    enum err err = b.err == ERR_OK ? store_file_replace(l->deps.disk, path, buf_bytes(&b)) : b.err;
    buf_fini(&b);
    return err;
}

/* ---- merging ---- */

/* The oldest four neighbours of one tier, if there are. */
static bool tier_full(const struct run_file *v, uint32_t n, uint32_t *out_first)
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

static void runs_merged(struct run_file *v, uint32_t *n, uint32_t first, struct run_file merged)
{
    v[first] = merged;
    memmove(&v[first + 1], &v[first + TIER_RUNS], (*n - first - TIER_RUNS) * sizeof *v);
    *n -= TIER_RUNS - 1;
}

static enum err merge_state(struct ledger *l, uint32_t first) RT_BLOCKS
{
    struct ledger_runs *runs = runs_of(l);
    struct run_bytes bytes[TIER_RUNS] = {{0}};
    struct ledger_state_run in[TIER_RUNS];
    struct ledger_state_merge m;
    struct ledger_state_item it;
    struct buf b;
    char path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    buf_init(&b, SIZE_MAX / 2);
    for (uint32_t i = 0; err == ERR_OK && i < TIER_RUNS; i++) {
        path_in(l, path, &state_name, runs->state[first + i].number);
        err = bytes_open(l, path, &bytes[i]);
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
        struct run_file f = {runs->next_number++, runs->state[first].tier + 1, 0, {{0}}};
        ledger_state_run_end(&b, f.tier, n, in[TIER_RUNS - 1].as_of_seq);
        err = b.err;
        if (err == ERR_OK) {
            f.bytes = b.n;
            ends_hash(b.p, b.n, STATE_RUN_FOOTER, &f.sha256);
            path_in(l, path, &state_name, f.number);
            err = write_run(l, path, b.p, b.n);
        }
        if (err == ERR_OK)
            runs_merged(runs->state, &runs->n_state, first, f);
    }
    for (uint32_t i = 0; i < TIER_RUNS; i++)
        if (bytes[i].p != NULL)
            bytes_close(&bytes[i]);
    buf_fini(&b);
    return err;
}

static enum err merge_index(struct ledger *l, uint32_t first) RT_BLOCKS
{
    struct ledger_runs *runs = runs_of(l);
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct ledger_run *in[TIER_RUNS];
    uint64_t total = 0, at[TIER_RUNS] = {0};
    for (uint32_t i = 0; i < TIER_RUNS; i++) {
        in[i] = NULL;
        for (uint32_t k = 0; k < v->n_runs; k++)
            if (v->runs[k]->number == runs->index[first + i].number)
                in[i] = v->runs[k];
        CHECK(in[i] != NULL);
        total += in[i]->run.n;
    }
    struct ledger_index_item *items = malloc((total + 1) * sizeof *items);
    uint8_t *bytes = malloc(ledger_index_run_bytes(total));
    enum err err = items == NULL || bytes == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (uint64_t n = 0; err == ERR_OK && n < total; n++) {
        uint32_t least = TIER_RUNS;
        struct ledger_index_item it;
        for (uint32_t i = 0; i < TIER_RUNS; i++) {
            if (at[i] == in[i]->run.n)
                continue;
            ledger_index_run_item(&in[i]->run, at[i], &it);
            if (least == TIER_RUNS || ledger_index_item_order(&it, &items[n]) < 0) {
                items[n] = it;
                least = i;
            }
        }
        at[least]++;
    }
    struct run_file f = {
        runs->next_number++, runs->index[first].tier + 1, ledger_index_run_bytes(total), {{0}}};
    char path[STORE_PATH_MAX];
    path_in(l, path, &index_name, f.number);
    if (err == ERR_OK) {
        ledger_index_run_build(items, total, f.tier, in[0]->run.first_seq, in[TIER_RUNS - 1]->run.last_seq,
                               bytes);
        ends_hash(bytes, f.bytes, INDEX_RUN_FOOTER, &f.sha256);
        err = write_run(l, path, bytes, f.bytes);
    }
    struct ledger_run *merged = NULL;
    if (err == ERR_OK)
        err = ledger_run_open(l->deps.disk, path, f.number, false, &merged);
    if (err == ERR_OK)
        err = ledger_index_replace(&l->index, NULL, in, TIER_RUNS, merged);
    if (err == ERR_OK)
        runs_merged(runs->index, &runs->n_index, first, f);
    free(items);
    free(bytes);
    ledger_view_unpin(v);
    return err;
}

static enum err merge_all(struct ledger *l) RT_BLOCKS
{
    struct ledger_runs *runs = runs_of(l);
    uint32_t first;
    enum err err = ERR_OK;
    while (err == ERR_OK && tier_full(runs->index, runs->n_index, &first))
        err = merge_index(l, first);
    while (err == ERR_OK && tier_full(runs->state, runs->n_state, &first))
        err = merge_state(l, first);
    return err;
}

/* ---- retention ---- */

struct manifests {
    uint64_t v[1024];
    size_t n;
};

static enum err manifest_seen(void *ctx, const char *name)
{
    struct manifests *m = ctx;
    unsigned long long entries;
    int end = 0;
    if (sscanf(name, "MANIFEST-%20llu.json%n", &entries, &end) == 1 && end > 0 && name[end] == 0 &&
        m->n < sizeof m->v / sizeof m->v[0])
        m->v[m->n++] = entries;
    return ERR_OK;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static enum err manifests_list(struct ledger *l, struct manifests *out) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    out->n = 0;
    store_path_join(dir, l->set.dir, "ckpt");
    enum err err = store_disk_list(l->deps.disk, dir, manifest_seen, out);
    if (out->n > 1)
        qsort(out->v, out->n, sizeof out->v[0], newest_first);
    return err;
}

/* The names that the retained manifests speak of. */
struct keep {
    struct arena arena;
    struct str names[4096];
    size_t n;
};

static bool kept(const struct keep *k, const char *folder, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    for (size_t i = 0; i < k->n; i++)
        if (str_eq_c(k->names[i], full))
            return true;
    return false;
}

struct sweep {
    struct ledger *l;
    const struct keep *keep;
    const char *folder;
    char gone[256][32];
    size_t n;
};

static enum err sweep_seen(void *ctx, const char *name)
{
    struct sweep *s = ctx;
    if (strlen(name) < sizeof s->gone[0] && s->n < 256 && !kept(s->keep, s->folder, name))
        snprintf(s->gone[s->n++], sizeof s->gone[0], "%s", name);
    return ERR_OK;
}

static void sweep_folder(struct ledger *l, const struct keep *keep, const char *folder) RT_BLOCKS
{
    struct sweep *s = calloc(1, sizeof *s);
    char dir[STORE_PATH_MAX], path[STORE_PATH_MAX];
    if (s == NULL)
        return;
    *s = (struct sweep){.l = l, .keep = keep, .folder = folder};
    store_path_join(dir, l->set.dir, folder);
    if (store_disk_list(l->deps.disk, dir, sweep_seen, s) == ERR_OK)
        for (size_t i = 0; i < s->n; i++) {
            store_path_join(path, dir, s->gone[i]);
            /* A file that stays costs space, nothing else; it is tried again next time. */
            if (store_disk_unlink(l->deps.disk, path) != ERR_OK)
                break;
        }
    free(s);
}

static enum err manifest_read(struct ledger *l, uint64_t entries, struct arena *a,
                              struct manifest *out) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct buf b;
    path_in(l, path, &manifest_name, entries);
    buf_init(&b, MANIFEST_MAX);
    enum err err = store_file_slurp(l->deps.disk, path, &b);
    if (err == ERR_OK)
        err = manifest_parse(buf_bytes(&b), a, out);
    buf_fini(&b);
    return err;
}

static void retain(struct ledger *l) RT_BLOCKS
{
    struct manifests m;
    struct keep *k = calloc(1, sizeof *k);
    char path[STORE_PATH_MAX];
    if (k == NULL || manifests_list(l, &m) != ERR_OK) {
        free(k);
        return;
    }
    arena_init(&k->arena, 65536, 64 << 20);
    bool complete = true;
    for (size_t i = 0; i < m.n && i < l->set.checkpoint_retain; i++) {
        struct manifest man;
        if (manifest_read(l, m.v[i], &k->arena, &man) != ERR_OK)
            continue; /* a broken one protects nothing */
        const struct manifest_file *f = man.files.items;
        for (size_t j = 0; j < man.files.n; j++) {
            if (k->n == sizeof k->names / sizeof k->names[0])
                complete = false;
            else
                k->names[k->n++] = f[j].name;
        }
    }
    for (size_t i = l->set.checkpoint_retain; i < m.n; i++) {
        path_in(l, path, &manifest_name, m.v[i]);
        if (store_disk_unlink(l->deps.disk, path) != ERR_OK)
            complete = false;
    }
    if (complete) {
        sweep_folder(l, k, "index");
        sweep_folder(l, k, "state");
    }
    arena_fini(&k->arena);
    free(k);
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

enum err ledger_checkpoint_write(struct ledger *l, struct ledger_gen_log *log)
{
    struct ledger_runs *runs = runs_of(l);
    uint64_t entries = ledger_gen_last_seq(log->gen), group_index = 0;
    struct ledger_group_row g;
    struct run_file index = {0}, state = {0};
    struct ledger_run *run = NULL;
    struct core_place end = {0};
    char path[STORE_PATH_MAX];
    CHECK(entries <= ledger_head_seq(l));
    enum err err = ledger_group_of(l, entries, &g, &group_index);
    if (err == ERR_OK && g.last_seq != entries)
        err = ERR_INTERNAL; /* groups end where generations do */
    if (err == ERR_OK)
        err = end_of_group(l, &g, &end);
    if (err == ERR_OK)
        err = flush_columns(l, entries, group_index + 1);
    if (err == ERR_OK)
        err = write_index(l, log->gen, &index);
    if (err == ERR_OK)
        err = write_state(l, log, entries, &state);
    if (err == ERR_OK) {
        path_in(l, path, &index_name, index.number);
        err = ledger_run_open(l->deps.disk, path, index.number, false, &run);
    }
    if (err != ERR_OK)
        return err;
    CHECK(runs->n_index < RUNS_MAX && runs->n_state < RUNS_MAX);
    runs->index[runs->n_index++] = index;
    runs->state[runs->n_state++] = state;
    err = ledger_index_replace(&l->index, log->gen, NULL, 0, run);
    if (err == ERR_OK)
        err = merge_all(l);
    if (err == ERR_OK)
        err = write_manifest(l, entries, &g, end);
    if (err != ERR_OK)
        return err;
    for (unsigned level = 0; level < MERKLE_LEVELS && entries >> level != 0; level++)
        ledger_column_forget(&l->levels[level], entries >> level);
    ledger_column_forget(&l->groups, group_index + 1);
    atomic_store_explicit(&l->checkpoint_seq, entries, memory_order_release);
    atomic_store_explicit(&l->checkpoint_segment, end.segment, memory_order_release);
    if (atomic_load_explicit(&log->gen->frozen, memory_order_acquire) &&
        atomic_load_explicit(&l->frozen_gens, memory_order_acquire) > 0)
        atomic_fetch_sub_explicit(&l->frozen_gens, 1, memory_order_acq_rel);
    retain(l);
    ledger_gen_log_free(log);
    return ERR_OK;
}

/* ---- loading ---- */

static enum err load_state(struct ledger *l, const struct ledger_runs *runs) RT_BLOCKS
{
    struct run_bytes bytes[RUNS_MAX] = {{0}};
    struct ledger_state_run in[RUNS_MAX];
    struct ledger_state_merge m;
    struct ledger_state_item it;
    enum err err = ERR_OK;
    char path[STORE_PATH_MAX];
    for (uint32_t i = 0; err == ERR_OK && i < runs->n_state; i++) {
        path_in(l, path, &state_name, runs->state[i].number);
        err = bytes_open(l, path, &bytes[i]);
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
            bytes_close(&bytes[i]);
    return err;
}

static enum err file_ok(struct ledger *l, const struct manifest_file *f) RT_BLOCKS
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

static enum err run_named(struct ledger *l, const struct manifest_file *f, const struct numbered *k,
                          struct run_file *v, uint32_t *n, size_t footer) RT_BLOCKS
{
    unsigned long long number;
    char name[80], path[STORE_PATH_MAX];
    struct run_bytes b;
    snprintf(name, sizeof name, "%.*s", STR_ARG(f->name));
    if (*n == RUNS_MAX || f->name.n < strlen(k->prefix) ||
        sscanf(name + strlen(k->prefix), "%8llu", &number) != 1)
        return ERR_CORRUPT;
    store_path_join(path, l->set.dir, name);
    enum err err = bytes_open(l, path, &b);
    if (err != ERR_OK)
        return err;
    struct sha256 ends = {{0}};
    if (b.n < 64 + footer)
        err = ERR_CORRUPT;
    else
        ends_hash(b.p, b.n, footer, &ends);
    if (err == ERR_OK && !sha256_eq(&ends, &f->sha256))
        err = ERR_CORRUPT;
    if (err == ERR_OK)
        v[(*n)++] = (struct run_file){(uint32_t)number, le32_get((uint8_t *)b.p + 12), b.n, ends};
    bytes_close(&b);
    return err;
}

static enum err load_manifest(struct ledger *l, const struct manifest *man) RT_BLOCKS
{
    struct ledger_runs *runs = runs_of(l);
    const struct manifest_file *f = man->files.items;
    char id[33], path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    *runs = (struct ledger_runs){.next_number = runs->next_number};
    hex_encode(l->ledger_id, 16, id);
    if (!str_eq_c(man->ledger_id, id))
        return ERR_CORRUPT;
    for (size_t i = 0; err == ERR_OK && i < man->files.n; i++) {
        err = file_ok(l, &f[i]);
        if (err == ERR_OK && str_starts(f[i].name, STR("index/")))
            err = run_named(l, &f[i], &index_name, runs->index, &runs->n_index, INDEX_RUN_FOOTER);
        else if (err == ERR_OK && str_starts(f[i].name, STR("state/")))
            err = run_named(l, &f[i], &state_name, runs->state, &runs->n_state, STATE_RUN_FOOTER);
    }
    if (err == ERR_OK)
        err = load_state(l, runs);
    if (err == ERR_OK)
        err = ledger_columns_open(l, man->entries, man->group_no);
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
        path_in(l, path, &index_name, runs->index[i].number);
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
    runs_of(l)->next_number = (uint32_t)h.n + 1;
    return err;
}

enum err ledger_checkpoint_load(struct ledger *l, struct ledger_checkpoint *out)
{
    struct manifests m = {.n = 0};
    *out = (struct ledger_checkpoint){0};
    enum err err = l->set.amnesia ? ERR_OK : find_next_number(l);
    if (err == ERR_OK && !l->set.amnesia)
        err = manifests_list(l, &m);
    for (size_t i = 0; err == ERR_OK && i < m.n; i++) {
        struct arena a;
        struct manifest man;
        arena_init(&a, 65536, 8 << 20);
        enum err bad = manifest_read(l, m.v[i], &a, &man);
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
        runs_of(l)->n_index = runs_of(l)->n_state = 0;
    }
    return err == ERR_OK ? ledger_columns_open(l, 0, 0) : err;
}
