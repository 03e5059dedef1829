#include "services/edge/core/pmtiles.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/core/tile.h"

__attribute__((format(printf, 2, 3))) static enum err fault(struct edge_fault *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    return ERR_CORRUPT;
}

static const struct {
    const char *mime, *ext, *also;
} types[] = {
    {"application/octet-stream", "", ""},
    {"application/vnd.mapbox-vector-tile", "mvt", "pbf"},
    {"image/png", "png", ""},
    {"image/jpeg", "jpg", "jpeg"},
    {"image/webp", "webp", ""},
    {"image/avif", "avif", ""},
    {"application/vnd.maplibre-vector-tile", "mlt", ""},
};

const char *edge_tile_mime(enum edge_tile_type t)
{
    return types[t].mime;
}

const char *edge_tile_ext(enum edge_tile_type t)
{
    return types[t].ext;
}

bool edge_tile_ext_fits(enum edge_tile_type t, struct str ext)
{
    return ext.n && (str_eq_c(ext, types[t].ext) || str_eq_c(ext, types[t].also));
}

/* ---- header ---- */

static bool inside(const struct edge_section *s, uint64_t end)
{
    return s->offset <= end && s->length <= end - s->offset;
}

static struct edge_section section_at(const uint8_t *p)
{
    return (struct edge_section){le64_get(p), le64_get(p + 8)};
}

static enum err header_check(const struct edge_pmtiles_header *h, uint64_t file_bytes, struct edge_fault *f)
{
    if (!inside(&h->root, file_bytes) || !inside(&h->metadata, file_bytes) ||
        !inside(&h->leaves, file_bytes) || !inside(&h->data, file_bytes))
        return fault(f, "a section reaches beyond the end of the file");
    if (h->root.length == 0 || !inside(&h->root, EDGE_PMTILES_ROOT_END) ||
        h->root.offset < EDGE_PMTILES_HEADER)
        return fault(f, "the root directory is not within the first %d bytes", EDGE_PMTILES_ROOT_END);
    if (h->internal != EDGE_CODING_NONE && h->internal != EDGE_CODING_GZIP &&
        h->internal != EDGE_CODING_ZSTD)
        return fault(f, "internal compression %d is not none, gzip or zstd", (int)h->internal);
    if (h->zoom_min > h->zoom_max || h->zoom_max > EDGE_ZOOM_MAX)
        return fault(f, "zooms %u to %u are no range within 0 to 30", h->zoom_min, h->zoom_max);
    return ERR_OK;
}

enum err edge_pmtiles_header_decode(struct bytes head, uint64_t file_bytes, struct edge_pmtiles_header *out,
                                    struct edge_fault *out_fault)
{
    const uint8_t *p = head.p;
    if (head.n < EDGE_PMTILES_HEADER || file_bytes < head.n)
        return fault(out_fault, "shorter than a PMTiles header");
    if (memcmp(p, "PMTiles", 7) != 0)
        return fault(out_fault, "does not begin with PMTiles");
    if (p[7] != 3)
        return fault(out_fault, "PMTiles version %u, not 3", p[7]);
    if (p[97] > EDGE_CODING_ZSTD || p[98] > EDGE_CODING_ZSTD || p[99] > EDGE_TYPE_MLT)
        return fault(out_fault, "unknown compression or tile type");
    struct edge_pmtiles_header h = {
        .root = section_at(p + 8),
        .metadata = section_at(p + 24),
        .leaves = section_at(p + 40),
        .data = section_at(p + 56),
        .addressed = le64_get(p + 72),
        .entries = le64_get(p + 80),
        .contents = le64_get(p + 88),
        .clustered = p[96] == 1,
        .internal = (enum edge_coding)p[97],
        .tiles = (enum edge_coding)p[98],
        .type = (enum edge_tile_type)p[99],
        .zoom_min = p[100],
        .zoom_max = p[101],
        .west_e7 = (int32_t)le32_get(p + 102),
        .south_e7 = (int32_t)le32_get(p + 106),
        .east_e7 = (int32_t)le32_get(p + 110),
        .north_e7 = (int32_t)le32_get(p + 114),
        .zoom_center = p[118],
        .center_lon_e7 = (int32_t)le32_get(p + 119),
        .center_lat_e7 = (int32_t)le32_get(p + 123),
    };
    enum err e = header_check(&h, file_bytes, out_fault);
    if (e == ERR_OK)
        *out = h;
    return e;
}

static void section_put(uint8_t *p, const struct edge_section *s)
{
    le64_put(p, s->offset);
    le64_put(p + 8, s->length);
}

void edge_pmtiles_header_encode(const struct edge_pmtiles_header *h, uint8_t out[EDGE_PMTILES_HEADER])
{
    memcpy(out, "PMTiles\3", 8);
    section_put(out + 8, &h->root);
    section_put(out + 24, &h->metadata);
    section_put(out + 40, &h->leaves);
    section_put(out + 56, &h->data);
    le64_put(out + 72, h->addressed);
    le64_put(out + 80, h->entries);
    le64_put(out + 88, h->contents);
    out[96] = h->clustered;
    out[97] = (uint8_t)h->internal;
    out[98] = (uint8_t)h->tiles;
    out[99] = (uint8_t)h->type;
    out[100] = h->zoom_min;
    out[101] = h->zoom_max;
    le32_put(out + 102, (uint32_t)h->west_e7);
    le32_put(out + 106, (uint32_t)h->south_e7);
    le32_put(out + 110, (uint32_t)h->east_e7);
    le32_put(out + 114, (uint32_t)h->north_e7);
    out[118] = h->zoom_center;
    le32_put(out + 119, (uint32_t)h->center_lon_e7);
    le32_put(out + 123, (uint32_t)h->center_lat_e7);
}

/* ---- directories ---- */

struct cursor {
    const uint8_t *p, *end;
};

static bool varint(struct cursor *c, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end)
            return false;
        uint8_t b = *c->p++;
        if (shift == 63 && b > 1)
            return false;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

static enum err read_ids(struct cursor *c, struct edge_entry *list, size_t n, struct edge_fault *f)
{
    uint64_t id = 0, v;
    for (size_t i = 0; i < n; i++) {
        if (!varint(c, &v) || __builtin_add_overflow(id, v, &id))
            return fault(f, "a directory's tile ids are cut off");
        if (i && v == 0)
            return fault(f, "a directory's tile ids do not rise");
        list[i].id = id;
    }
    for (size_t i = 0; i < n; i++) {
        if (!varint(c, &v) || v > UINT32_MAX)
            return fault(f, "a directory's run lengths are cut off or too large");
        list[i].run = (uint32_t)v;
    }
    return ERR_OK;
}

static enum err read_places(struct cursor *c, struct edge_entry *list, size_t n, struct edge_fault *f)
{
    uint64_t v;
    for (size_t i = 0; i < n; i++) {
        if (!varint(c, &v) || v == 0 || v > UINT32_MAX)
            return fault(f, "a directory's lengths are cut off, zero or too large");
        list[i].length = (uint32_t)v;
    }
    for (size_t i = 0; i < n; i++) {
        if (!varint(c, &v) || (v == 0 && i == 0))
            return fault(f, "a directory's offsets are cut off");
        if (v == 0) {
            if (__builtin_add_overflow(list[i - 1].offset, list[i - 1].length, &list[i].offset))
                return fault(f, "a directory's offsets overflow");
        } else
            list[i].offset = v - 1;
    }
    return c->p == c->end ? ERR_OK : fault(f, "a directory has bytes left over");
}

static enum err check_order(const struct edge_entry *list, size_t n, uint64_t low, uint64_t high,
                            struct edge_fault *f)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t next = i + 1 < n ? list[i + 1].id : high;
        if (list[i].id < low || list[i].id >= high || list[i].run > next - list[i].id)
            return fault(f, "a directory's entries overlap or lie outside its bounds");
    }
    return ERR_OK;
}

static enum err dir_read(struct bytes plain, uint64_t low, uint64_t high, struct edge_dir *out,
                         struct edge_fault *f)
{
    struct cursor c = {plain.p, plain.p + plain.n};
    uint64_t n;
    /* An entry takes four bytes at least, so n is bounded by what is there before anything is allocated. */
    if (!varint(&c, &n) || n == 0 || n > EDGE_PMTILES_DIR_ENTRIES || n > plain.n / 4)
        return fault(f, "a directory's number of entries is wrong");
    struct edge_entry *list = calloc(n, sizeof *list);
    if (!list)
        return ERR_NO_MEMORY;
    enum err e = read_ids(&c, list, n, f);
    if (e == ERR_OK)
        e = read_places(&c, list, n, f);
    if (e == ERR_OK)
        e = check_order(list, n, low, high, f);
    if (e != ERR_OK) {
        free(list);
        return e;
    }
    *out = (struct edge_dir){list, n};
    return ERR_OK;
}

enum err edge_pmtiles_dir_decode(enum edge_coding coding, struct bytes stored, uint64_t low, uint64_t high,
                                 struct edge_dir *out, struct edge_fault *out_fault)
{
    struct buf plain;
    if (coding == EDGE_CODING_NONE)
        return dir_read(stored, low, high, out, out_fault);
    buf_init(&plain, EDGE_PMTILES_DIR_INFLATED);
    enum err e = edge_inflate(coding, stored, &plain);
    if (e == ERR_OK)
        e = dir_read(buf_bytes(&plain), low, high, out, out_fault);
    else
        fault(out_fault, "a directory does not inflate (%s)", err_title(e));
    buf_fini(&plain);
    return e;
}

static void put_varint(struct buf *b, uint64_t v)
{
    while (v >= 0x80) {
        buf_putc(b, (char)(uint8_t)(v | 0x80));
        v >>= 7;
    }
    buf_putc(b, (char)(uint8_t)v);
}

void edge_pmtiles_dir_encode(const struct edge_entry *list, size_t n, struct buf *out)
{
    put_varint(out, n);
    for (size_t i = 0; i < n; i++)
        put_varint(out, list[i].id - (i ? list[i - 1].id : 0));
    for (size_t i = 0; i < n; i++)
        put_varint(out, list[i].run);
    for (size_t i = 0; i < n; i++)
        put_varint(out, list[i].length);
    for (size_t i = 0; i < n; i++) {
        bool follows = i && list[i].offset == list[i - 1].offset + list[i - 1].length;
        put_varint(out, follows ? 0 : list[i].offset + 1);
    }
}

const struct edge_entry *edge_dir_find(const struct edge_entry *list, size_t n, uint64_t id)
{
    size_t low = 0, high = n; /* list[low - 1].id <= id < list[high].id */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (list[mid].id <= id)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0)
        return NULL;
    const struct edge_entry *e = &list[low - 1];
    return e->run == 0 || id - e->id < e->run ? e : NULL;
}

/* ---- the whole tree ---- */

struct walk {
    const struct edge_pmtiles_header *h;
    const struct edge_pmtiles_limits *limits;
    edge_pmtiles_read *read;
    void *ctx;
    struct edge_fault *fault;
    bool keep; /* into list; else only counted */
    struct edge_entry *list;
    size_t n, cap, leaves;
    uint64_t tiles;
};

static enum err walk_keep(struct walk *w, const struct edge_entry *e)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 256;
        struct edge_entry *bigger = reallocarray(w->list, cap, sizeof *bigger);
        if (!bigger)
            return ERR_NO_MEMORY;
        w->list = bigger;
        w->cap = cap;
    }
    w->list[w->n++] = *e;
    return ERR_OK;
}

static enum err walk_add(struct walk *w, const struct edge_entry *e)
{
    if (e->offset > w->h->data.length || e->length > w->h->data.length - e->offset)
        return fault(w->fault, "a tile lies outside the tile section");
    if (e->length > w->limits->tile_bytes_max)
        return fault(w->fault, "a tile of %u bytes is larger than packs.max_tile_bytes", e->length);
    if (w->n == w->limits->entries_max || w->n == EDGE_PMTILES_ENTRIES) {
        fault(w->fault, "more than %zu directory entries", w->n);
        return ERR_TOO_LARGE;
    }
    w->tiles += e->run;
    if (w->keep)
        return walk_keep(w, e);
    w->n++;
    return ERR_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct edge_entry *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void edge_dir_sort_by_offset(struct edge_entry *list, size_t n)
{
    size_t i = 1;
    while (i < n && list[i - 1].offset <= list[i].offset)
        i++;
    if (i < n)
        qsort(list, n, sizeof *list, by_offset);
}

enum err edge_pmtiles_dir_read(const struct edge_pmtiles_header *h, const struct edge_entry *leaf,
                               uint64_t high, edge_pmtiles_read *read, void *ctx, struct edge_dir *out,
                               struct edge_fault *f)
{
    uint64_t at = leaf ? h->leaves.offset + leaf->offset : h->root.offset;
    uint64_t n = leaf ? leaf->length : h->root.length;
    if (leaf && (leaf->offset > h->leaves.length || leaf->length > h->leaves.length - leaf->offset))
        return fault(f, "a leaf directory lies outside the leaf section");
    if (n > EDGE_PMTILES_DIR_STORED)
        return fault(f, "a directory is larger than 4 MiB");
    uint8_t *stored = malloc(n);
    if (!stored)
        return ERR_NO_MEMORY;
    enum err e = read(ctx, at, n, stored);
    if (e == ERR_OK)
        e = edge_pmtiles_dir_decode(h->internal, bytes_of(stored, n), leaf ? leaf->id : 0, high, out, f);
    else
        fault(f, "a directory cannot be read (%s)", err_title(e));
    free(stored);
    return e;
}

/* leaf NULL: the root. */
static enum err walk_dir(struct walk *w, const struct edge_entry *leaf, uint64_t high, int depth)
{
    struct edge_dir dir = {NULL, 0};
    if (leaf && depth > EDGE_PMTILES_DEPTH)
        return fault(w->fault, "leaf directories are nested too deep");
    if (leaf && ++w->leaves > EDGE_PMTILES_LEAVES)
        return fault(w->fault, "too many leaf directories");
    enum err e = edge_pmtiles_dir_read(w->h, leaf, high, w->read, w->ctx, &dir, w->fault);
    for (size_t i = 0; e == ERR_OK && i < dir.n; i++) {
        if (dir.list[i].run)
            e = walk_add(w, &dir.list[i]);
        else
            e = walk_dir(w, &dir.list[i], i + 1 < dir.n ? dir.list[i + 1].id : high, depth + 1);
    }
    free(dir.list);
    return e;
}

static enum err walk_end(struct walk *w, enum err e, struct edge_dir *out)
{
    if (e != ERR_OK) {
        free(w->list);
        return e;
    }
    struct edge_entry *fitted = reallocarray(w->list, w->n ? w->n : 1, sizeof *fitted);
    *out = (struct edge_dir){fitted ? fitted : w->list, w->n};
    /* cppcheck-suppress memleak ; out has it */
    return ERR_OK;
}

enum err edge_pmtiles_walk(const struct edge_pmtiles_header *h, const struct edge_pmtiles_limits *limits,
                           edge_pmtiles_read *read, void *ctx, struct edge_dir *out,
                           struct edge_fault *out_fault)
{
    struct walk w = {.h = h, .limits = limits, .read = read, .ctx = ctx, .fault = out_fault, .keep = true};
    return walk_end(&w, walk_dir(&w, NULL, UINT64_MAX, 1), out);
}

enum err edge_pmtiles_walk_leaf(const struct edge_pmtiles_header *h,
                                const struct edge_pmtiles_limits *limits, const struct edge_entry *leaf,
                                uint64_t high, edge_pmtiles_read *read, void *ctx, struct edge_dir *out,
                                struct edge_fault *out_fault)
{
    struct walk w = {.h = h, .limits = limits, .read = read, .ctx = ctx, .fault = out_fault, .keep = true};
    return walk_end(&w, walk_dir(&w, leaf, high, 2), out);
}

enum err edge_pmtiles_count(const struct edge_pmtiles_header *h, const struct edge_pmtiles_limits *limits,
                            edge_pmtiles_read *read, void *ctx, struct edge_pmtiles_count *out,
                            struct edge_fault *out_fault)
{
    struct walk w = {.h = h, .limits = limits, .read = read, .ctx = ctx, .fault = out_fault};
    enum err e = walk_dir(&w, NULL, UINT64_MAX, 1);
    if (e == ERR_OK)
        *out = (struct edge_pmtiles_count){w.n, w.tiles};
    return e;
}
