/*
 * Archives we make ourselves: the demonstration pack, packs of tests and benches. Clustered: tile data in the order of
 * ids, each content once, so that sealing is one sequential pass.
 */
#include <stdlib.h>

#include "base/map.h"
#include "base/sha256.h"
#include "services/edge/core/pmtiles.h"

struct seen {
    struct sha256 hash;
    uint64_t offset;
};

struct writer {
    const struct edge_pmtiles_spec *spec;
    struct edge_entry *list;
    size_t n;
    struct seen *seen;
    struct map by_hash;
    size_t contents;
    struct buf data;
};

static enum err add_content(struct writer *w, const struct edge_pmtiles_tile *t, uint64_t *out_offset)
{
    struct seen *s = &w->seen[w->contents];
    sha256_of(t->data.p, t->data.n, &s->hash);
    struct seen *old = map_get(&w->by_hash, bytes_of(s->hash.b, sizeof s->hash.b));
    if (old) {
        *out_offset = old->offset;
        return ERR_OK;
    }
    s->offset = w->data.n;
    buf_put_bytes(&w->data, t->data);
    w->contents++;
    *out_offset = s->offset;
    return map_add(&w->by_hash, bytes_of(s->hash.b, sizeof s->hash.b), s);
}

static enum err add_tiles(struct writer *w, const struct edge_pmtiles_tile *tiles, size_t n)
{
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < n; i++) {
        uint64_t offset;
        struct edge_entry *last = w->n ? &w->list[w->n - 1] : NULL;
        e = add_content(w, &tiles[i], &offset);
        if (e != ERR_OK)
            break;
        if (last && last->offset == offset && last->id + last->run == tiles[i].id)
            last->run++;
        else
            w->list[w->n++] = (struct edge_entry){tiles[i].id, offset, (uint32_t)tiles[i].data.n, 1};
    }
    return e;
}

static enum err put_dir(struct writer *w, const struct edge_entry *list, size_t n, struct buf *out)
{
    struct buf plain;
    buf_init(&plain, EDGE_PMTILES_DIR_INFLATED);
    edge_pmtiles_dir_encode(list, n, &plain);
    enum err e = plain.err;
    if (e == ERR_OK && w->spec->internal == EDGE_CODING_GZIP)
        e = edge_gzip(buf_bytes(&plain), out);
    else if (e == ERR_OK)
        buf_put_bytes(out, buf_bytes(&plain));
    buf_fini(&plain);
    return e == ERR_OK ? out->err : e;
}

static enum err put_dirs(struct writer *w, struct buf *root, struct buf *leaves)
{
    size_t per_leaf = w->spec->leaf_entries;
    if (!per_leaf)
        return put_dir(w, w->list, w->n, root);
    size_t count = (w->n + per_leaf - 1) / per_leaf;
    struct edge_entry *top = calloc(count, sizeof *top);
    enum err e = top ? ERR_OK : ERR_NO_MEMORY;
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        size_t from = i * per_leaf, here = w->n - from < per_leaf ? w->n - from : per_leaf;
        top[i] = (struct edge_entry){.id = w->list[from].id, .offset = leaves->n};
        e = put_dir(w, w->list + from, here, leaves);
        top[i].length = (uint32_t)(leaves->n - top[i].offset);
    }
    if (e == ERR_OK)
        e = put_dir(w, top, count, root);
    free(top);
    return e;
}

static enum err assemble(struct writer *w, uint64_t addressed, struct buf *out)
{
    const struct edge_pmtiles_spec *spec = w->spec;
    uint8_t head[EDGE_PMTILES_HEADER];
    struct buf root, leaves, meta;
    buf_init(&root, EDGE_PMTILES_ROOT_END);
    buf_init(&leaves, EDGE_PMTILES_DIR_STORED);
    buf_init(&meta, EDGE_PMTILES_METADATA);
    enum err e = put_dirs(w, &root, &leaves);
    if (e == ERR_OK && spec->internal == EDGE_CODING_GZIP)
        e = edge_gzip(bytes_of_str(spec->metadata), &meta);
    else
        buf_put_str(&meta, spec->metadata);
    if (e == ERR_OK && EDGE_PMTILES_HEADER + root.n > EDGE_PMTILES_ROOT_END)
        e = ERR_TOO_LARGE;
    struct edge_pmtiles_header h = {
        .root = {EDGE_PMTILES_HEADER, root.n},
        .addressed = addressed,
        .entries = w->n,
        .contents = w->contents,
        .clustered = true,
        .internal = spec->internal,
        .tiles = spec->tiles,
        .type = spec->type,
        .zoom_min = spec->zoom_min,
        .zoom_max = spec->zoom_max,
        .west_e7 = spec->west_e7,
        .south_e7 = spec->south_e7,
        .east_e7 = spec->east_e7,
        .north_e7 = spec->north_e7,
    };
    h.metadata = (struct edge_section){h.root.offset + h.root.length, meta.n};
    h.leaves = (struct edge_section){h.metadata.offset + h.metadata.length, leaves.n};
    h.data = (struct edge_section){h.leaves.offset + h.leaves.length, w->data.n};
    edge_pmtiles_header_encode(&h, head);
    buf_put(out, head, sizeof head);
    buf_put_bytes(out, buf_bytes(&root));
    buf_put_bytes(out, buf_bytes(&meta));
    buf_put_bytes(out, buf_bytes(&leaves));
    buf_put_bytes(out, buf_bytes(&w->data));
    buf_fini(&root);
    buf_fini(&leaves);
    buf_fini(&meta);
    return e == ERR_OK ? out->err : e;
}

enum err edge_pmtiles_write(const struct edge_pmtiles_spec *spec, const struct edge_pmtiles_tile *tiles,
                            size_t n, struct buf *out)
{
    struct writer w = {
        .spec = spec, .list = calloc(n ? n : 1, sizeof *w.list), .seen = calloc(n ? n : 1, sizeof *w.seen)};
    buf_init(&w.data, SIZE_MAX / 2);
    enum err e = map_init(&w.by_hash, n);
    if (e == ERR_OK && (!w.list || !w.seen))
        e = ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = add_tiles(&w, tiles, n);
    if (e == ERR_OK)
        e = w.data.err;
    if (e == ERR_OK)
        e = assemble(&w, n, out);
    map_fini(&w.by_hash);
    buf_fini(&w.data);
    free(w.list);
    free(w.seen);
    return e;
}
