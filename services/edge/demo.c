/*
 * The built-in pack: coarse continents and a grid, zoom 0 to 3, as gzipped vector tiles. Made at start from a few hundred
 * numbers, so that there is something to look at before the first pack is dropped in.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "services/edge/pack.h"

enum { ZOOM_MAX = 3, TILES = 85, EXTENT = 4096, MARGIN = 64, POINTS_MAX = 128, ARCHIVE_MAX = 64 << 10 };

struct point {
    double x, y;
};

struct shape {
    const char *name;
    int n;
    const signed char (*lonlat)[2]; /* longitude halved so that it fits: -90 to 90 */
};

#define SHAPE(name, list)                                                                                  \
    {                                                                                                      \
        name, (int)(sizeof(list) / sizeof((list)[0])), list                                                \
    }
static const signed char africa[][2] = {{-8, 5},  {-9, 15}, {-8, 21},  {-5, 30},  {-3, 35},  {5, 37},
                                        {6, 33},  {10, 31}, {16, 31},  {18, 27},  {19, 20},  {21, 12},
                                        {26, 12}, {20, -2}, {20, -15}, {17, -25}, {14, -34}, {9, -34},
                                        {7, -22}, {6, -12}, {5, 0},    {4, 5},    {0, 5}};
static const signed char eurasia[][2] = {
    {-5, 36}, {-5, 43}, {-1, 43}, {-2, 48}, {3, 52},  {4, 57},  {2, 59},  {3, 62},  {8, 69},  {15, 71},
    {20, 67}, {17, 64}, {22, 66}, {30, 68}, {36, 72}, {45, 73}, {52, 77}, {60, 73}, {75, 72}, {85, 70},
    {89, 66}, {82, 60}, {78, 52}, {78, 60}, {70, 59}, {68, 54}, {70, 48}, {65, 42}, {64, 36}, {62, 39},
    {60, 38}, {61, 31}, {57, 22}, {54, 20}, {54, 11}, {51, 9},  {50, 13}, {52, 2},  {49, 10}, {48, 17},
    {45, 22}, {42, 17}, {40, 8},  {38, 12}, {36, 21}, {33, 25}, {28, 25}, {26, 29}, {28, 24}, {30, 22},
    {27, 15}, {22, 13}, {17, 29}, {18, 36}, {14, 36}, {13, 40}, {11, 40}, {11, 36}, {9, 40},  {6, 45},
    {9, 40},  {8, 38},  {7, 42},  {4, 44},  {0, 41},  {0, 38}};
static const signed char north_america[][2] = {
    {-84, 66}, {-78, 71}, {-64, 69}, {-55, 68}, {-46, 69}, {-47, 60}, {-41, 55}, {-39, 62}, {-32, 59},
    {-28, 53}, {-33, 49}, {-30, 47}, {-35, 42}, {-38, 36}, {-40, 31}, {-40, 25}, {-42, 30}, {-48, 29},
    {-48, 22}, {-45, 19}, {-43, 21}, {-44, 16}, {-41, 15}, {-41, 9},  {-43, 11}, {-47, 15}, {-52, 19},
    {-55, 27}, {-57, 31}, {-60, 34}, {-62, 41}, {-62, 48}, {-67, 57}, {-76, 59}, {-82, 58}, {-80, 62}};
static const signed char south_america[][2] = {{-38, 8},   {-35, 11},  {-30, 9},   {-25, 4},   {-18, -5},
                                               {-19, -12}, {-20, -22}, {-24, -27}, {-29, -35}, {-32, -40},
                                               {-33, -47}, {-34, -54}, {-37, -52}, {-37, -42}, {-36, -30},
                                               {-35, -18}, {-40, -6},  {-39, 1}};
static const signed char australia[][2] = {{57, -22}, {61, -17}, {65, -12}, {68, -12}, {70, -17}, {71, -11},
                                           {73, -19}, {76, -26}, {76, -32}, {74, -38}, {70, -38}, {69, -34},
                                           {65, -32}, {62, -34}, {58, -34}, {57, -28}};
static const signed char greenland[][2] = {{-36, 77}, {-30, 82}, {-15, 83}, {-10, 77}, {-12, 70},
                                           {-20, 65}, {-22, 60}, {-26, 66}, {-27, 71}};
static const signed char antarctica[][2] = {{-90, -78}, {-60, -73}, {-32, -64}, {-28, -73}, {-15, -72},
                                            {0, -70},   {25, -67},  {45, -67},  {60, -66},  {75, -68},
                                            {85, -71},  {90, -78},  {90, -85},  {-90, -85}};
static const struct shape shapes[] = {SHAPE("Africa", africa),
                                      SHAPE("Eurasia", eurasia),
                                      SHAPE("North America", north_america),
                                      SHAPE("South America", south_america),
                                      SHAPE("Australia", australia),
                                      SHAPE("Greenland", greenland),
                                      SHAPE("Antarctica", antarctica)};

/* ---- geometry ---- */

static struct point project(double lon, double lat, const struct edge_tile *t)
{
    double side = (double)((uint32_t)1 << t->z), rad = lat * M_PI / 180;
    double x = (lon + 180) / 360 * side, y = (1 - asinh(tan(rad)) / M_PI) / 2 * side;
    return (struct point){(x - t->x) * EXTENT, (y - t->y) * EXTENT};
}

static double along(struct point p, int axis)
{
    return axis ? p.y : p.x;
}

/* Sutherland-Hodgman: what is left of a ring on one side of a line. */
static int clip_side(const struct point *in, int n, struct point *out, int axis, double limit, bool below)
{
    int made = 0;
    for (int i = 0; i < n; i++) {
        struct point a = in[i], b = in[(i + 1) % n];
        double da = below ? limit - along(a, axis) : along(a, axis) - limit;
        double db = below ? limit - along(b, axis) : along(b, axis) - limit;
        if (da >= 0 && made < POINTS_MAX)
            out[made++] = a;
        if ((da >= 0) != (db >= 0) && made < POINTS_MAX) {
            double s = da / (da - db);
            out[made++] = (struct point){a.x + (b.x - a.x) * s, a.y + (b.y - a.y) * s};
        }
    }
    return made;
}

static int clip(struct point *ring, int n)
{
    struct point other[POINTS_MAX];
    for (int axis = 0; axis < 2; axis++) {
        n = clip_side(ring, n, other, axis, -MARGIN, false);
        n = clip_side(other, n, ring, axis, EXTENT + MARGIN, true);
    }
    return n;
}

/* ---- protobuf, as far as vector tiles need it ---- */

static void put_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(b, (char)(uint8_t)(v | 0x80));
    buf_putc(b, (char)(uint8_t)v);
}

static void put_field(struct buf *b, unsigned field, unsigned wire)
{
    put_varint(b, field << 3 | wire);
}

static void put_message(struct buf *b, unsigned field, struct bytes m)
{
    put_field(b, field, 2);
    put_varint(b, m.n);
    buf_put_bytes(b, m);
}

static void put_number(struct buf *b, unsigned field, uint64_t v)
{
    put_field(b, field, 0);
    put_varint(b, v);
}

static void put_zigzag(struct buf *b, int v)
{
    put_varint(b, (uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX : 0));
}

/* Commands for one ring or line: MoveTo, LineTo × (n-1), ClosePath. */
static void put_path(struct buf *b, const struct point *p, int n, bool close)
{
    int x = 0, y = 0;
    for (int i = 0; i < n; i++) {
        int nx = (int)lround(p[i].x), ny = (int)lround(p[i].y);
        if (i == 0)
            put_varint(b, 1 << 3 | 1);
        else if (i == 1)
            put_varint(b, (uint64_t)(n - 1) << 3 | 2);
        put_zigzag(b, nx - x);
        put_zigzag(b, ny - y);
        x = nx;
        y = ny;
    }
    if (close)
        put_varint(b, 1 << 3 | 7);
}

static void put_feature(struct buf *layer, unsigned type, int value, const struct point *p, int n)
{
    uint8_t room[2][4096];
    struct buf feature, geometry;
    buf_init_fixed(&feature, room[0], sizeof room[0]);
    buf_init_fixed(&geometry, room[1], sizeof room[1]);
    uint8_t tags[2] = {0, (uint8_t)value};
    put_message(&feature, 2, bytes_of(tags, value >= 0 ? 2 : 0));
    put_number(&feature, 3, type);
    put_path(&geometry, p, n, type == 3);
    put_message(&feature, 4, buf_bytes(&geometry));
    put_message(layer, 2, buf_bytes(&feature));
}

static void begin_layer(struct buf *layer, const char *name)
{
    buf_reset(layer);
    put_message(layer, 1, bytes_of_str(str_from_c(name)));
}

static void end_layer(struct buf *layer, struct buf *tile)
{
    put_number(layer, 5, EXTENT);
    put_number(layer, 15, 2); /* version */
    put_message(tile, 3, buf_bytes(layer));
}

static void put_value(struct buf *layer, struct str text)
{
    uint8_t room[64];
    struct buf value;
    buf_init_fixed(&value, room, sizeof room);
    put_message(&value, 1, bytes_of_str(text));
    put_message(layer, 4, buf_bytes(&value));
}

static void put_land(const struct edge_tile *t, struct buf *layer, struct buf *tile)
{
    begin_layer(layer, "land");
    bool any = false;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct point ring[POINTS_MAX];
        int n = shapes[i].n;
        for (int k = 0; k < n; k++) /* vector tiles want outer rings clockwise on the screen; these are */
            ring[k] = project(shapes[i].lonlat[k][0] * 2.0, shapes[i].lonlat[k][1], t);
        n = clip(ring, n);
        if (n >= 3) {
            put_feature(layer, 3, (int)i, ring, n);
            any = true;
        }
    }
    put_message(layer, 3, bytes_of("name", 4));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        put_value(layer, str_from_c(shapes[i].name));
    if (any)
        end_layer(layer, tile);
}

static void put_grid(const struct edge_tile *t, struct buf *layer, struct buf *tile)
{
    char name[32];
    const struct point border[] = {{0, 0}, {EXTENT, 0}, {EXTENT, EXTENT}, {0, EXTENT}, {0, 0}},
                       middle = {EXTENT / 2.0, EXTENT / 2.0};
    int n = snprintf(name, sizeof name, "%u/%u/%u", t->z, t->x, t->y);
    begin_layer(layer, "grid");
    put_feature(layer, 2, 0, border, 5);
    put_feature(layer, 1, 0, &middle, 1);
    put_message(layer, 3, bytes_of("tile", 4));
    put_value(layer, str_of(name, (size_t)n));
    end_layer(layer, tile);
}

static enum err make_tile(uint64_t id, struct buf *scratch, struct buf *layer, struct buf *out)
{
    struct edge_tile t;
    enum err e = edge_tile_of_id(id, &t);
    if (e != ERR_OK)
        return e;
    buf_reset(scratch);
    put_land(&t, layer, scratch);
    put_grid(&t, layer, scratch);
    return scratch->err == ERR_OK ? edge_gzip(buf_bytes(scratch), out) : scratch->err;
}

enum err edge_demo_file(struct edge_file **out)
{
    static const char metadata[] =
        "{\"name\":\"demo\",\"description\":\"Coarse continents and the tile "
        "grid\",\"version\":\"1\",\"vector_layers\":["
        "{\"id\":\"land\",\"fields\":{\"name\":\"String\"},\"minzoom\":0,\"maxzoom\":3},"
        "{\"id\":\"grid\",\"fields\":{\"tile\":\"String\"},\"minzoom\":0,\"maxzoom\":3}]}";
    struct edge_pmtiles_tile tiles[TILES];
    struct buf data[TILES], scratch, layer, archive;
    enum err e = ERR_OK;
    size_t made = 0, n = 0;
    buf_init(&scratch, 1 << 16);
    buf_init(&layer, 1 << 16);
    buf_init(&archive, ARCHIVE_MAX);
    for (; e == ERR_OK && made < TILES; made++) {
        buf_init(&data[made], 1 << 17);
        e = make_tile(made, &scratch, &layer, &data[made]);
        tiles[made] = (struct edge_pmtiles_tile){made, buf_bytes(&data[made])};
    }
    if (e == ERR_OK)
        e = edge_pmtiles_write(&(struct edge_pmtiles_spec){.internal = EDGE_CODING_GZIP,
                                                           .tiles = EDGE_CODING_GZIP,
                                                           .type = EDGE_TYPE_MVT,
                                                           .zoom_max = ZOOM_MAX,
                                                           .metadata = str_from_c(metadata),
                                                           .west_e7 = -1800000000,
                                                           .south_e7 = -850511000,
                                                           .east_e7 = 1800000000,
                                                           .north_e7 = 850511000},
                               tiles, TILES, &archive);
    while (made)
        buf_fini(&data[--made]);
    buf_fini(&scratch);
    buf_fini(&layer);
    uint8_t *p = e == ERR_OK ? buf_take(&archive, &n) : NULL;
    buf_fini(&archive);
    if (e != ERR_OK)
        return e;
    e = edge_file_of_memory(p, n, true, out);
    if (e != ERR_OK)
        free(p);
    return e;
}
