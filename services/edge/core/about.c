#include "services/edge/core/about.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json_read.h"

enum { CHUNK_BYTES = 64 << 10, WORK_BYTES_MAX = 64 << 20, MEMBERS = 5 };

static const struct json_field members[] = {
    JSON_DEF(struct edge_about, name, JSON_KIND_RAW),
    JSON_DEF(struct edge_about, description, JSON_KIND_RAW),
    JSON_DEF(struct edge_about, attribution, JSON_KIND_RAW),
    JSON_DEF(struct edge_about, version, JSON_KIND_RAW),
    JSON_DEF_AS(struct edge_about, layers, "vector_layers", JSON_KIND_RAW),
    JSON_END,
};

static struct str *nth(struct edge_about *a, size_t i)
{
    struct str *const all[MEMBERS] = {&a->name, &a->description, &a->attribution, &a->version, &a->layers};
    return all[i];
}

size_t edge_about_bytes(const struct edge_about *a)
{
    return a->name.n + a->description.n + a->attribution.n + a->version.n + a->layers.n;
}

/* Out of the arena into one piece; what has another type than TileJSON wants is as good as absent. */
static enum err keep(struct edge_about *a)
{
    size_t at = 0;
    for (size_t i = 0; i < MEMBERS; i++) {
        struct str *s = nth(a, i);
        if (s->n && s->p[0] != (s == &a->layers ? '[' : '"'))
            *s = STR("");
    }
    a->text = malloc(edge_about_bytes(a) + 1);
    for (size_t i = 0; a->text && i < MEMBERS; i++) {
        struct str *s = nth(a, i);
        if (s->n)
            memcpy(a->text + at, s->p, s->n);
        s->p = a->text + at;
        at += s->n;
    }
    return a->text ? ERR_OK : ERR_NO_MEMORY;
}

enum err edge_about_read(struct bytes json, struct edge_about *out, struct edge_fault *f)
{
    struct edge_about a = {STR(""), STR(""), STR(""), STR(""), STR(""), NULL};
    struct json_error why;
    struct arena arena;
    arena_init(&arena, CHUNK_BYTES, WORK_BYTES_MAX);
    enum err e = json_read_dto_lax(json, members, &a, &arena, &why);
    if (e == ERR_OK)
        e = keep(&a);
    else {
        snprintf(f->text, sizeof f->text,
                 "the metadata is not a JSON object that can be read (%s at byte %zu)",
                 json_reason_name(why.reason), why.offset);
        e = ERR_CORRUPT;
    }
    arena_fini(&arena);
    if (e == ERR_OK)
        *out = a;
    return e;
}

enum err edge_about_load(const struct edge_pmtiles_header *h, edge_pmtiles_read *read, void *ctx,
                         struct edge_about *out, struct edge_fault *f)
{
    const struct edge_section *s = &h->metadata;
    struct buf text;
    if (s->length == 0)
        return ERR_OK;
    if (s->length > EDGE_PMTILES_METADATA) {
        snprintf(f->text, sizeof f->text, "the metadata is larger than 10 MiB");
        return ERR_CORRUPT;
    }
    uint8_t *stored = malloc(s->length);
    if (!stored)
        return ERR_NO_MEMORY;
    buf_init(&text, EDGE_PMTILES_METADATA);
    enum err e = read(ctx, s->offset, s->length, stored);
    if (e == ERR_OK)
        e = edge_inflate(h->internal, bytes_of(stored, s->length), &text);
    free(stored);
    if (e == ERR_OK)
        e = edge_about_read(buf_bytes(&text), out, f);
    else
        snprintf(f->text, sizeof f->text, "the metadata does not inflate (%s)", err_title(e));
    buf_fini(&text);
    return e;
}

void edge_about_fini(struct edge_about *a)
{
    free(a->text);
    *a = (struct edge_about){.text = NULL};
}
