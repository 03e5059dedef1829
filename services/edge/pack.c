/*
 * Opening packs. An archive is never trusted: header, directories and metadata are read with bounds on everything, and a
 * pack that fails a single check is refused whole.
 */
#include "services/edge/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "services/edge/dirs.h"

static enum err fault(struct edge_fault *f, const char *text)
{
    snprintf(f->text, sizeof f->text, "%s", text);
    return ERR_CORRUPT;
}

struct edge_pack *edge_pack_ref(struct edge_pack *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void edge_pack_unref(struct edge_pack *p)
{
    if (!p)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before > 1)
        return;
    edge_mbtiles_close(p);
    for (size_t i = 0; i < p->list_n; i++)
        if (atomic_load(&p->list[i].open)) {
            edge_file_unref(atomic_load(&p->list[i].open));
            atomic_fetch_sub(&p->edge->open_files, 1);
        }
    for (size_t i = 0; i < p->documents_n; i++) {
        free(p->documents[i].base);
        free(p->documents[i].json);
    }
    for (size_t i = 0; i < p->list_n; i++)
        free((void *)(uintptr_t)p->list[i].path.p);
    map_fini(&p->members);
    free(p->list);
    edge_tags_close(&p->tags);
    edge_file_unref(p->file);
    if (p->dirfd >= 0)
        close(p->dirfd);
    free(p->dir.list);
    edge_about_fini(&p->about);
    free(p->path);
    free(p->mount);
    free(p);
}

bool edge_pack_ok(struct edge_pack *p)
{
    return !p->file || !atomic_load_explicit(&p->file->changed, memory_order_relaxed);
}

static struct edge_pack_terms terms_now(const struct edge *e)
{
    const struct edge_config *c = edge_config(e);
    return (struct edge_pack_terms){c->packs_max_tile, c->packs_dir_cache, c->packs_tags_max};
}

bool edge_pack_terms_hold(const struct edge *e, const struct edge_pack *p)
{
    struct edge_pack_terms now = terms_now(e);
    return p->terms.tile_bytes_max == now.tile_bytes_max && p->terms.dir_cache == now.dir_cache &&
           p->terms.tags_max == now.tags_max;
}

void edge_pack_tag_name(const struct edge_pack *p, char out[EDGE_TAG_NAME_MAX])
{
    char hex[17];
    for (int i = 0; i < 8; i++)
        snprintf(hex + 2 * i, 3, "%02x", p->id.b[i]);
    if (p->kind == EDGE_PACK_DIR) /* its files are known one by one: the index outlives their changes */
        snprintf(out, EDGE_TAG_NAME_MAX, "%s.dix", p->name);
    else
        snprintf(out, EDGE_TAG_NAME_MAX, "%s-%s.tag", p->name, hex);
}

enum err edge_pack_read(void *ctx, uint64_t offset, size_t n, uint8_t *out)
{
    return edge_file_read(ctx, offset, out, n);
}

struct edge_pmtiles_limits edge_pack_limits(const struct edge *e)
{
    return (struct edge_pmtiles_limits){.entries_max = SIZE_MAX,
                                        .tile_bytes_max = (uint32_t)edge_config(e)->packs_max_tile};
}

static enum err load_leaf(struct edge *e, struct edge_pack *p, const struct edge_entry *leaf, uint64_t high,
                          bool may_block, struct edge_leaf **out) RT_UNCHECKED
{
    struct edge_fault f;
    struct edge_dir dir;
    *out = edge_dirs_get(e->dirs, p->serial, leaf->offset);
    if (*out)
        return ERR_OK;
    if (!may_block)
        return ERR_BUSY;
    enum err err = edge_pmtiles_dir_read(&p->header, leaf, high, edge_pack_read, p->file, &dir, &f);
    if (err != ERR_OK)
        return err;
    *out = edge_dirs_put(e->dirs, p->serial, leaf->offset, dir, edge_config(e)->packs_dir_cache);
    return *out ? ERR_OK : ERR_NO_MEMORY;
}

/* The mount has walked the whole tree; what is read again is bounded again, for the file may have changed since. */
enum err edge_pack_find(struct edge *e, struct edge_pack *p, uint64_t id, bool may_block,
                        struct edge_entry *out)
{
    struct edge_leaf *leaf = NULL;
    struct edge_dir dir = p->dir;
    uint64_t high = UINT64_MAX;
    enum err err = ERR_NOT_FOUND;
    for (int depth = 1; depth <= EDGE_PMTILES_DEPTH; depth++) {
        const struct edge_entry *entry = edge_dir_find(dir.list, dir.n, id);
        err = entry ? ERR_OK : ERR_NOT_FOUND;
        if (!entry || entry->run) {
            if (entry)
                *out = *entry;
            break;
        }
        if (entry + 1 < dir.list + dir.n)
            high = entry[1].id;
        struct edge_leaf *next = NULL;
        err = load_leaf(e, p, entry, high, may_block, &next);
        edge_leaf_unref(leaf);
        leaf = next;
        if (err != ERR_OK)
            break;
        dir = leaf->dir;
        err = ERR_CORRUPT; /* unless the next level has it */
    }
    edge_leaf_unref(leaf);
    if (err == ERR_OK && p->large &&
        (out->offset > p->header.data.length || out->length > p->header.data.length - out->offset ||
         out->length > edge_config(e)->packs_max_tile))
        err = ERR_CORRUPT;
    return err;
}

/* How many different contents: what the tag file must hold. The header's word is not trusted. */
static enum err count_contents(struct edge_pack *p)
{
    uint64_t n = 0, tiles = 0;
    struct edge_entry *sorted = malloc(p->dir.n * sizeof *sorted + 1);
    if (!sorted)
        return ERR_NO_MEMORY;
    memcpy(sorted, p->dir.list, p->dir.n * sizeof *sorted);
    edge_dir_sort_by_offset(sorted, p->dir.n);
    for (size_t i = 0; i < p->dir.n; i++) {
        n += i == 0 || sorted[i].offset != sorted[i - 1].offset;
        tiles += sorted[i].run;
    }
    free(sorted);
    p->contents = n;
    p->tiles = tiles;
    return ERR_OK;
}

/* Of a pack that is being mounted: between two directories others get their turn. */
static enum err read_in_turns(void *ctx, uint64_t offset, size_t n, uint8_t *out) RT_UNCHECKED
{
    struct edge_pack *p = ctx;
    edge_turns_rest(&p->edge->turns, n, 0);
    return edge_file_read(p->file, offset, out, n);
}

/* Kept whole when they take no more than half of what directories may take; else only the root. */
RT_BLOCKS
static enum err read_directories(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    struct edge_pmtiles_limits limits = edge_pack_limits(e);
    struct edge_pmtiles_count count;
    limits.entries_max = edge_config(e)->packs_dir_cache / 2 / sizeof(struct edge_entry);
    enum err err = edge_pmtiles_walk(&p->header, &limits, read_in_turns, p, &p->dir, f);
    if (err == ERR_OK)
        return count_contents(p);
    if (err != ERR_TOO_LARGE)
        return err;
    limits = edge_pack_limits(e);
    f->text[0] = 0;
    p->large = true;
    err = edge_pmtiles_count(&p->header, &limits, read_in_turns, p, &count, f);
    if (err == ERR_OK)
        err = edge_pmtiles_dir_read(&p->header, NULL, UINT64_MAX, edge_pack_read, p->file, &p->dir, f);
    if (err == ERR_OK) {
        p->tiles = count.tiles;
        p->contents = count.entries; /* at most */
    }
    return err;
}

RT_BLOCKS
static enum err open_pmtiles(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    uint8_t head[EDGE_PMTILES_HEADER];
    if (p->file->size < sizeof head)
        return fault(f, "shorter than a PMTiles header");
    enum err err = edge_file_read(p->file, 0, head, sizeof head);
    if (err == ERR_OK)
        err = edge_pmtiles_header_decode(bytes_of(head, sizeof head), p->file->size, &p->header, f);
    if (err == ERR_OK)
        err = read_directories(e, p, f);
    return err == ERR_OK ? edge_about_load(&p->header, edge_pack_read, p->file, &p->about, f) : err;
}

RT_BLOCKS
static enum err head_id(struct edge_file *file, enum edge_pack_kind kind, struct sha256 *out_head,
                        struct sha256 *out)
{
    size_t n = file->size < EDGE_PACK_HEAD ? (size_t)file->size : EDGE_PACK_HEAD;
    uint8_t *head = malloc(n + 1);
    if (!head)
        return ERR_NO_MEMORY;
    enum err e = edge_file_read(file, 0, head, n);
    if (e == ERR_OK) {
        edge_pack_id(kind, &file->id, bytes_of(head, n), out);
        if (out_head)
            sha256_of(head, n, out_head);
    }
    free(head);
    return e;
}

static enum err open_path(const char *path, struct edge_file **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? err_from_errno(errno) : edge_file_of_fd(fd, out);
}

enum err edge_pack_peek(const char *path, enum edge_pack_kind kind, struct sha256 *out_id)
{
    struct edge_file *file;
    enum err e = open_path(path, &file);
    if (e != ERR_OK)
        return e;
    e = head_id(file, kind, NULL, out_id);
    edge_file_unref(file);
    return e;
}

/* Where the digests of this pack are kept; the built-in one needs none, it is hashed at once. */
RT_BLOCKS
static void open_tags(struct edge *e, struct edge_pack *p, const struct sha256 *head)
{
    char path[STORE_PATH_MAX], name[EDGE_TAG_NAME_MAX];
    struct edge_tag_header want = {.kind = (uint32_t)p->kind, .file = p->file->id, .head = *head};
    edge_pack_tag_name(p, name);
    int n = snprintf(path, sizeof path, "%s/tags/%s", svc_data_dir(e->svc), name);
    if (n < 0 || (size_t)n >= sizeof path || p->file->memory)
        return;
    enum err err = edge_tags_open(&p->tags, svc_disk(e->svc), path, &want, p->contents,
                                  edge_config(e)->packs_tags_max);
    if (err != ERR_OK)
        obs_log(svc_log(e->svc), OBS_WARN, "tags_unavailable", OBS_STR("pack", (const char *)p->name),
                OBS_ERR(err), OBS_END);
    else if (p->tags.header.sealed_ms) {
        p->archive = p->tags.header.archive;
        atomic_store_explicit(&p->sealed_bytes, p->file->size, memory_order_relaxed);
        atomic_store_explicit(&p->sealed, true, memory_order_release);
    }
}

RT_BLOCKS
static enum err open_archive(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    struct sha256 head;
    enum err err = p->path ? open_path(p->path, &p->file) : edge_demo_file(&p->file);
    if (err != ERR_OK) {
        snprintf(f->text, sizeof f->text, "cannot be opened (%s)", err_title(err));
        return err;
    }
    err = head_id(p->file, p->kind, &head, &p->id);
    if (err == ERR_OK)
        err = p->kind == EDGE_PACK_PMTILES ? open_pmtiles(e, p, f) : edge_mbtiles_open(e, p, f);
    if (err != ERR_OK)
        return err;
    if (p->file->memory) {
        sha256_of(p->file->bytes, (size_t)p->file->size, &p->archive);
        atomic_store_explicit(&p->sealed_bytes, p->file->size, memory_order_relaxed);
        atomic_store_explicit(&p->sealed, true, memory_order_release);
    }
    open_tags(e, p, &head);
    return ERR_OK;
}

enum err edge_pack_open(struct edge *e, const struct edge_pack_spec *spec, struct edge_pack **out,
                        struct edge_fault *f)
{
    struct edge_pack *p = calloc(1, sizeof *p);
    f->text[0] = 0;
    if (!p)
        return ERR_NO_MEMORY;
    atomic_init(&p->refs, 1);
    p->edge = e;
    p->dirfd = -1;
    p->serial = atomic_fetch_add(&e->pack_serial, 1) + 1;
    p->kind = spec->kind;
    p->terms = terms_now(e);
    p->mounted_ms = edge_now_ms(e);
    snprintf(p->name, sizeof p->name, "%.*s", STR_ARG(spec->name));
    p->path = spec->path ? strdup(spec->path) : NULL;
    p->mount = strndup(spec->mount.n ? spec->mount.p : "", spec->mount.n);
    enum err err = (spec->path && !p->path) || !p->mount ? ERR_NO_MEMORY : map_init(&p->members, 0);
    if (err == ERR_OK)
        err = p->kind == EDGE_PACK_DIR ? edge_dir_open(e, p, f) : open_archive(e, p, f);
    if (err != ERR_OK) {
        if (!f->text[0])
            snprintf(f->text, sizeof f->text, "%s", err_title(err));
        edge_pack_unref(p);
        return err;
    }
    *out = p;
    return ERR_OK;
}
