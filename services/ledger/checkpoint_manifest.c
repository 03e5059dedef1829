/* Manifests: written, read, listed; and which files they keep alive. */
#include "services/ledger/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "base/json_write.h"
#include "store/file_replace.h"

enum { MANIFEST_MAX = 1 << 20 };

static const struct json_field file_fields[] = {
    JSON_REQ(struct checkpoint_file, bytes, JSON_KIND_U64),
    JSON_REQ(struct checkpoint_file, name, JSON_KIND_STR, .min = 1, .max = 64),
    JSON_OPT(struct checkpoint_file, sha256, JSON_KIND_HASH),
    JSON_END,
};

static const struct json_field manifest_fields[] = {
    JSON_REQ(struct checkpoint_manifest, entries, JSON_KIND_U64, .min = 1),
    JSON_REQ(struct checkpoint_manifest, files, JSON_KIND_OBJ_LIST, .fields = file_fields,
             .item_bytes = sizeof(struct checkpoint_file), .max = 1024),
    JSON_REQ(struct checkpoint_manifest, group_no, JSON_KIND_U64, .min = 1),
    JSON_REQ(struct checkpoint_manifest, ledger_id, JSON_KIND_STR, .min = 32, .max = 32),
    JSON_REQ(struct checkpoint_manifest, ledger_ms, JSON_KIND_U64),
    JSON_REQ(struct checkpoint_manifest, offset, JSON_KIND_U64, .max = UINT32_MAX),
    JSON_REQ(struct checkpoint_manifest, root, JSON_KIND_HASH),
    JSON_REQ(struct checkpoint_manifest, segment, JSON_KIND_U64, .max = UINT32_MAX),
    JSON_REQ(struct checkpoint_manifest, v, JSON_KIND_U64, .min = 1, .max = 1),
    JSON_END,
};

static enum err manifest_parse(struct bytes text, struct arena *a, struct checkpoint_manifest *out)
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

/* ---- writing ---- */

static void put_file(struct json_w *w, const char *name, uint64_t bytes, const struct sha256 *hash)
{
    json_obj_begin(w);
    json_put_u64(w, "bytes", bytes);
    json_put_cstr(w, "name", name);
    if (hash != NULL)
        json_put_hash(w, "sha256", hash);
    json_obj_end(w);
}

enum err ledger_checkpoint__write_manifest(struct ledger *l, uint64_t entries,
                                           const struct ledger_group_row *g,
                                           struct core_place end) RT_BLOCKS
{
    struct ledger_runs *runs = ledger_checkpoint__runs(l);
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
        ledger_checkpoint__name(name, &ledger_checkpoint__level, level);
        put_file(&w, name, (entries >> level) * 32, NULL);
    }
    put_file(&w, "groups", g->group_no * sizeof *g, NULL);
    for (uint32_t i = 0; i < runs->n_index; i++) {
        ledger_checkpoint__name(name, &ledger_checkpoint__index, runs->index[i].number);
        put_file(&w, name, runs->index[i].bytes, &runs->index[i].sha256);
    }
    for (uint32_t i = 0; i < runs->n_state; i++) {
        ledger_checkpoint__name(name, &ledger_checkpoint__state, runs->state[i].number);
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
    ledger_checkpoint__path(l, path, &ledger_checkpoint__manifest, entries);
    enum err err = b.err == ERR_OK ? store_file_replace(l->deps.disk, path, buf_bytes(&b)) : b.err;
    buf_fini(&b);
    return err;
}

/* ---- reading, and what is kept ---- */

static enum err manifest_seen(void *ctx, const char *name)
{
    struct checkpoint_list *m = ctx;
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

enum err ledger_checkpoint__list(struct ledger *l, struct checkpoint_list *out) RT_BLOCKS
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

enum err ledger_checkpoint__read_manifest(struct ledger *l, uint64_t entries, struct arena *a,
                                          struct checkpoint_manifest *out) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct buf b;
    ledger_checkpoint__path(l, path, &ledger_checkpoint__manifest, entries);
    buf_init(&b, MANIFEST_MAX);
    enum err err = store_file_slurp(l->deps.disk, path, &b);
    if (err == ERR_OK)
        err = manifest_parse(buf_bytes(&b), a, out);
    buf_fini(&b);
    return err;
}

void ledger_checkpoint__retain(struct ledger *l) RT_BLOCKS
{
    struct checkpoint_list m;
    struct keep *k = calloc(1, sizeof *k);
    char path[STORE_PATH_MAX];
    if (k == NULL || ledger_checkpoint__list(l, &m) != ERR_OK) {
        free(k);
        return;
    }
    arena_init(&k->arena, 65536, 64 << 20);
    bool complete = true;
    uint32_t retain = l->set.checkpoint_retain; /* of both: what is not removed is what was read */
    char merging[CHECKPOINT_MERGES_MAX][64];
    for (size_t n = ledger_checkpoint__merging(l, merging); k->n < n; k->n++)
        k->names[k->n] = str_from_c(merging[k->n]);
    for (size_t i = 0; i < m.n && i < retain; i++) {
        struct checkpoint_manifest man;
        enum err err = ledger_checkpoint__read_manifest(l, m.v[i], &k->arena, &man);
        if (err != ERR_OK) { /* a broken one protects nothing; one that cannot be read now may be whole */
            complete = complete && err == ERR_CORRUPT;
            continue;
        }
        const struct checkpoint_file *f = man.files.items;
        for (size_t j = 0; j < man.files.n; j++) {
            if (k->n == sizeof k->names / sizeof k->names[0])
                complete = false;
            else
                k->names[k->n++] = f[j].name;
        }
    }
    for (size_t i = retain; i < m.n; i++) {
        ledger_checkpoint__path(l, path, &ledger_checkpoint__manifest, m.v[i]);
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
