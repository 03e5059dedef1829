#include "services/edge/core/tile.h"

#include "base/check.h"
#include "base/str.h"

bool edge_tile_ok(const struct edge_tile *t)
{
    return t->z <= EDGE_ZOOM_MAX && t->x < (uint32_t)1 << t->z && t->y < (uint32_t)1 << t->z;
}

/* Ids of all lower zooms: 1 + 4 + 16 + … = (4^z - 1) / 3. */
static uint64_t zoom_base(uint32_t z)
{
    return (((uint64_t)1 << (2 * z)) - 1) / 3;
}

static void rotate(uint32_t side, uint32_t *x, uint32_t *y, uint32_t rx, uint32_t ry)
{
    if (ry)
        return;
    if (rx) {
        *x = side - 1 - *x;
        *y = side - 1 - *y;
    }
    uint32_t swapped = *x;
    *x = *y;
    *y = swapped;
}

uint64_t edge_tile_id(const struct edge_tile *t)
{
    CHECK(edge_tile_ok(t));
    uint64_t d = 0;
    uint32_t x = t->x, y = t->y;
    for (uint32_t s = t->z ? (uint32_t)1 << (t->z - 1) : 0; s; s >>= 1) {
        uint32_t rx = (x & s) != 0, ry = (y & s) != 0;
        d += (uint64_t)s * s * ((3 * rx) ^ ry);
        x &= s - 1;
        y &= s - 1;
        rotate(s, &x, &y, rx, ry);
    }
    return zoom_base(t->z) + d;
}

enum err edge_tile_of_id(uint64_t id, struct edge_tile *out)
{
    uint32_t z = 0;
    while (z <= EDGE_ZOOM_MAX && id >= zoom_base(z + 1))
        z++;
    if (z > EDGE_ZOOM_MAX)
        return ERR_RANGE;
    uint64_t d = id - zoom_base(z);
    uint32_t x = 0, y = 0;
    for (uint32_t s = 1; s < (uint32_t)1 << z; s <<= 1) {
        uint32_t rx = 1 & (uint32_t)(d / 2), ry = 1 & (uint32_t)(d ^ rx);
        rotate(s, &x, &y, rx, ry);
        x += s * rx;
        y += s * ry;
        d /= 4;
    }
    *out = (struct edge_tile){z, x, y};
    return ERR_OK;
}

uint64_t edge_tile_mbtiles_key(const struct edge_tile *t)
{
    CHECK(edge_tile_ok(t) && t->z <= EDGE_MBTILES_ZOOM_MAX);
    return (uint64_t)t->z << 58 | (uint64_t)t->x << 29 | t->y;
}

uint32_t edge_tile_tms_row(const struct edge_tile *t)
{
    return ((uint32_t)1 << t->z) - 1 - t->y;
}

enum err edge_tile_parse(struct str z, struct str x, struct str y_ext, struct edge_tile *out,
                         struct str *out_ext)
{
    uint64_t v[3];
    struct str y;
    struct str ext = str_cut(y_ext, '.', &y);
    const struct str text[3] = {z, x, y};
    if (ext.p && ext.n == 0)
        return ERR_SYNTAX;
    for (int i = 0; i < 3; i++) {
        enum err e = str_parse_u64(text[i], &v[i]);
        if (e != ERR_OK)
            return e;
    }
    if (v[0] > EDGE_ZOOM_MAX || v[1] >= (uint64_t)1 << v[0] || v[2] >= (uint64_t)1 << v[0])
        return ERR_RANGE;
    *out = (struct edge_tile){(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2]};
    *out_ext = ext;
    return ERR_OK;
}
