/* Reading objects again and comparing them with their names; finding objects nobody refers to. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "services/edge/scrub.h"
#include "services/edge/store.h"
#include "store/file_replace.h"

enum { STEP = 256 << 10 };

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
enum err edge_scrub_object(struct edge *e, struct rt_task *self, const struct sha256 *digest, uint64_t rate)
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
        if (self && rate && n && rt_task_sleep(self, deadline_in_ms((int64_t)(n * 1000 / rate))) != ERR_OK)
            err = ERR_CANCELED;
        if (self && rt_task_stopping(self))
            err = ERR_CANCELED;
        if (self)
            rt_task_beat(self);
    }
    store_file_close(f);
    free(scratch);
    if (err != ERR_OK)
        return err;
    sha256_final(&c, &found);
    if (sha256_eq(&found, digest))
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

enum err edge_scrub_pass(struct edge *e, struct rt_task *self, uint64_t rate, struct edge_scrub_report *out,
                         bool (*after)(struct edge *e, const struct edge_scrub_report *so_far))
{
    enum err err = ERR_OK;
    for (unsigned shard = 0; err == ERR_OK && shard < 256; shard++) {
        char dir[STORE_PATH_MAX];
        struct names names = {0};
        snprintf(dir, sizeof dir, "%.480s/cas/%02x", e->store->dir, shard);
        err = store_disk_list(e->store->disk, dir, add_name, &names);
        for (size_t i = 0; err == ERR_OK && i < names.n; i++) {
            uint64_t size = 0;
            adopt(e, &names.list[i]);
            edge_store_has(e->store, &names.list[i], &size);
            err = edge_scrub_object(e, self, &names.list[i], rate);
            out->checked++;
            out->bytes += size;
            if (err == ERR_CORRUPT && out->corrupt_n < EDGE_SCRUB_LISTED)
                out->corrupt[out->corrupt_n++] = names.list[i];
            if (err == ERR_CORRUPT || err == ERR_NOT_FOUND)
                err = ERR_OK;
            if (err == ERR_OK && after && !after(e, out))
                err = ERR_EMPTY;
        }
        free(names.list);
    }
    return err;
}
