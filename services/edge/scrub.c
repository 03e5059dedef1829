/* Reading objects and sealed packs again and comparing them with their digests; finding objects nobody refers to. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "services/edge/pack.h"
#include "services/edge/scrub.h"
#include "services/edge/store.h"
#include "store/file_replace.h"

enum { STEP = 96 << 10 }; /* about one turn */

struct names {
    struct sha256 *list;
    size_t n, cap;
};

static enum err add_name(void *ctx, const char *name)
{
    struct names *x = ctx;
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        struct sha256 *bigger = reallocarray(x->list, cap, sizeof *bigger);
        if (!bigger)
            return ERR_NO_MEMORY;
        x->list = bigger;
        x->cap = cap;
    }
    if (hex_decode(str_from_c(name), x->list[x->n].b, 32) == ERR_OK)
        x->n++;
    return ERR_OK;
}

/* ERR_OK, ERR_CORRUPT, ERR_CANCELED, or what the disk said. */
enum err edge_scrub_object(struct edge *e, struct edge_turns *turns, const struct sha256 *digest,
                           uint64_t rate)
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    struct sha256_ctx c;
    struct sha256 found;
    uint8_t *scratch = malloc(STEP);
    if (!scratch)
        return ERR_NO_MEMORY;
    edge_store_object_path(e->store, digest, path);
    enum err err = store_file_open(e->store->disk, path, STORE_READ, &f);
    if (err != ERR_OK) {
        free(scratch);
        return err;
    }
    sha256_init(&c);
    size_t n = 1;
    for (uint64_t at = 0; err == ERR_OK && n; at += n) {
        err = store_file_pread(f, scratch, STEP, at, &n);
        if (err == ERR_OK)
            sha256_update(&c, scratch, n);
        obs_counter_add(obs_counter(e->m[EDGE_M_scrubbed]), n);
        if (err == ERR_OK)
            err = edge_turns_next(turns, n, rate);
    }
    store_file_close(f);
    free(scratch);
    if (err != ERR_OK && err != ERR_IO) /* what cannot be read is as good as wrong */
        return err;
    sha256_final(&c, &found);
    if (err == ERR_OK && sha256_eq(&found, digest))
        return ERR_OK;
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_integrity], 0));
    if (edge_store_send(e, &(struct edge_store_op){.kind = EDGE_OP_QUARANTINE, .digest = *digest}) !=
        ERR_OK)
        obs_log(svc_log(e->svc), OBS_WARN, "quarantine_delayed", OBS_END);
    return ERR_CORRUPT;
}

RT_BLOCKS
static void adopt(struct edge *e, const struct sha256 *digest)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    rt_lock_take(&e->store->refs);
    bool known = edge_catalog_object(&e->store->catalog, digest) != NULL;
    rt_lock_release(&e->store->refs);
    edge_store_object_path(e->store, digest, path);
    if (known || store_disk_stat(e->store->disk, path, &st) != ERR_OK)
        return;
    if (edge_store_send(e, &(struct edge_store_op){
                               .kind = EDGE_OP_ADOPT, .digest = *digest, .number = st.bytes}) != ERR_OK)
        return; /* next lap */
}

enum err edge_scrub_pass(struct edge *e, struct edge_turns *turns, uint64_t rate,
                         struct edge_scrub_report *out,
                         bool (*after)(struct edge *e, const struct edge_scrub_report *so_far))
{
    enum err err = ERR_OK;
    for (unsigned shard = 0; err == ERR_OK && shard < 256; shard++) {
        char dir[STORE_PATH_MAX];
        struct names names = {0};
        snprintf(dir, sizeof dir, "%.480s/cas/%02x", e->store->dir, shard);
        err = store_disk_list(e->store->disk, dir, add_name, &names);
        for (size_t i = 0; err == ERR_OK && i < names.n; i++) {
            adopt(e, &names.list[i]);
            err = edge_scrub_object(e, turns, &names.list[i], rate);
            out->checked++;
            if (err == ERR_CORRUPT && out->corrupt_n < EDGE_SCRUB_LISTED)
                out->corrupt[out->corrupt_n++] = names.list[i];
            if (err != ERR_CANCELED && err != ERR_NO_MEMORY)
                err = ERR_OK; /* the others are looked at all the same */
            if (err == ERR_OK && after && !after(e, out))
                err = ERR_EMPTY;
        }
        free(names.list);
    }
    return err;
}

/* ---- packs ---- */

/* ERR_OK: the bytes are those that were sealed. ERR_CONFLICT: they were changed in place, which is another's to tell. */
RT_BLOCKS
static enum err read_pack(struct edge *e, struct edge_turns *turns, struct edge_pack *p, uint64_t rate,
                          uint8_t *scratch)
{
    struct sha256_ctx c;
    struct sha256 found;
    sha256_init(&c);
    for (uint64_t at = 0; at < p->file->size;) {
        size_t n = p->file->size - at < STEP ? (size_t)(p->file->size - at) : STEP;
        enum err err = edge_file_read(p->file, at, scratch, n);
        if (err != ERR_OK)
            return edge_file_unchanged(p->file) ? err : ERR_CONFLICT;
        sha256_update(&c, scratch, n);
        obs_counter_add(obs_counter(e->m[EDGE_M_scrubbed]), n);
        at += n;
        err = edge_turns_next(turns, n, rate);
        if (err != ERR_OK)
            return err;
        if (edge_verify_wanted(e))
            return ERR_EMPTY;
    }
    sha256_final(&c, &found);
    if (!edge_file_unchanged(p->file))
        return ERR_CONFLICT;
    return sha256_eq(&found, &p->archive) ? ERR_OK : ERR_CORRUPT;
}

static bool readable(struct edge_pack *p)
{
    /* The acquire pairs with the release after the digest was written. */
    return p && p->file && !p->file->memory && atomic_load_explicit(&p->sealed, memory_order_acquire) &&
           edge_pack_ok(p);
}

/* It is not served any more. Who looks after the files sees it as changed, says so and asks for a reload; that one must not take
 * the same bytes for good again, only because the file looks as it did. */
static void give_up(struct edge *e, struct edge_pack *p, enum err why)
{
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_integrity], 1));
    obs_log(svc_log(e->svc), OBS_ERROR, "pack_damaged", OBS_STR("pack", (const char *)p->name),
            OBS_ERR(why), OBS_END);
    atomic_store(&p->damaged, true);
    edge_file_set_changed(p->file);
}

enum err edge_scrub_packs(struct edge *e, struct edge_turns *turns, uint64_t rate)
{
    struct edge_generation *g = edge_pin(e);
    uint8_t *scratch = malloc(STEP);
    enum err err = scratch ? ERR_OK : ERR_NO_MEMORY;
    for (size_t i = 0; err == ERR_OK && i < g->n; i++) {
        struct edge_pack *p = g->slots[i].pack;
        if (!readable(p))
            continue;
        err = read_pack(e, turns, p, rate, scratch);
        if (err == ERR_CORRUPT || err == ERR_IO)
            give_up(e, p, err);
        if (err == ERR_CORRUPT || err == ERR_IO || err == ERR_CONFLICT)
            err = ERR_OK;
    }
    free(scratch);
    edge_unpin(g);
    return err;
}
