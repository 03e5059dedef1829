#include "services/edge/mbdb.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "services/edge/core/about.h"
#include "services/edge/core/name.h"
#include "services/edge/mbdb_vfs.h"

/*
 * A pack's views are programs of a stranger. What one may cost:
 *
 * steps   of SQLite's machine: 100,000 for a lookup, a thousand where nobody may wait
 * time    of the processor, looked at every hundred steps: one step may join strings of megabytes
 * size    of a program: views that name views twice each would double it with every one; the access check sees each table and
 *         column of a statement that is being prepared
 */
enum {
    STEPS_MAX = 100000,
    STEPS_NOW_MAX = 1000,
    STEPS_A_LOOK = 100,
    LOOKUP_MS = 1000,
    LOOKUP_NOW_MS = 10,
    SCHEMA_MS = 100,
    COUNT_MS = 20000,
    PROGRAM_MAX = 25000,
    NAMES_MAX = 1000,
    METADATA_STEPS = 1000000,
    METADATA_TEXT = 1 << 20
};

struct edge_mbdb {
    struct edge_mbdb_file file;
    sqlite3 *db;
    sqlite3_stmt *lookup, *all;
    int64_t patience_ms;
    /* of the statement under way */
    uint64_t steps_left;
    int64_t cpu_ms, cpu_end_ns; /* 0: from the first look on, which most lookups never see */
    unsigned names;             /* seen since the last statement was prepared */
    bool overrun;               /* it was stopped */
    bool slow;                  /* one that may not wait was: readers do it from now on */
};

static const char lookup_sql[] =
    "SELECT tile_data FROM tiles WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3";
static const char all_sql[] = "SELECT zoom_level, tile_column, tile_row FROM tiles";

static enum err fault(struct edge_fault *f, const char *text)
{
    snprintf(f->text, sizeof f->text, "%s", text);
    return ERR_CORRUPT;
}

static int only_reading(void *arg, int action, const char *a, const char *b, const char *c, const char *d)
{
    struct edge_mbdb *db = arg;
    (void)a;
    (void)c;
    (void)d;
    if (++db->names > NAMES_MAX)
        return SQLITE_DENY;
    if (action == SQLITE_SELECT || action == SQLITE_READ)
        return SQLITE_OK;
    if (action == SQLITE_FUNCTION && b &&
        (strcasecmp(b, "min") == 0 || strcasecmp(b, "max") == 0 || strcasecmp(b, "count") == 0))
        return SQLITE_OK;
    return SQLITE_DENY;
}

static int64_t cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int too_much(void *arg)
{
    struct edge_mbdb *db = arg;
    int64_t now = cpu_ns();
    if (!db->cpu_end_ns)
        db->cpu_end_ns = now + db->cpu_ms * 1000000;
    if (db->steps_left <= STEPS_A_LOOK || now > db->cpu_end_ns)
        db->overrun = true;
    else
        db->steps_left -= STEPS_A_LOOK;
    return db->overrun;
}

/* What the next statement may cost. */
static void allow(struct edge_mbdb *db, uint64_t steps, int64_t ms)
{
    db->steps_left = steps;
    db->cpu_ms = ms;
    db->cpu_end_ns = 0;
    db->overrun = false;
}

static int prepare(struct edge_mbdb *db, const char *sql, unsigned flags, sqlite3_stmt **out)
{
    db->names = 0;
    return sqlite3_prepare_v3(db->db, sql, -1, flags, out, NULL);
}

void edge_mbdb_set_patience(struct edge_mbdb *db, int64_t ms)
{
    db->patience_ms = ms;
}

enum err edge_mbdb_open(int fd, size_t tile_max, enum edge_mbdb_waiting waiting, struct edge_mbdb **out)
{
    struct edge_mbdb *db = calloc(1, sizeof *db);
    if (!db)
        return ERR_NO_MEMORY;
    db->file = (struct edge_mbdb_file){.fd = dup(fd), .waits = true};
    db->patience_ms = COUNT_MS;
    enum err e = db->file.fd < 0                                       ? ERR_IO
                 : edge_mbdb_vfs_open(&db->file, &db->db) != SQLITE_OK ? ERR_CORRUPT
                                                                       : ERR_OK;
    if (e == ERR_OK) {
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
        sqlite3_limit(db->db, SQLITE_LIMIT_LENGTH, (int)tile_max);
        sqlite3_exec(db->db, "PRAGMA cache_size=-2048", NULL, NULL, NULL);
        sqlite3_limit(db->db, SQLITE_LIMIT_VDBE_OP, PROGRAM_MAX);
        sqlite3_set_authorizer(db->db, only_reading, db);
        sqlite3_progress_handler(db->db, STEPS_A_LOOK, too_much, db);
        allow(db, UINT64_MAX, SCHEMA_MS);
        /* reads the schema, so that later calls need only pages of the tree */
        if (prepare(db, lookup_sql, SQLITE_PREPARE_PERSISTENT, &db->lookup) != SQLITE_OK)
            e = ERR_CORRUPT;
    }
    if (e != ERR_OK) {
        edge_mbdb_close(db);
        return e;
    }
    db->file.waits = waiting == EDGE_MBDB_WAITS;
    *out = db;
    return ERR_OK;
}

void edge_mbdb_close(struct edge_mbdb *db)
{
    if (!db)
        return;
    sqlite3_finalize(db->lookup);
    sqlite3_finalize(db->all);
    sqlite3_close(db->db);
    if (db->file.fd >= 0)
        close(db->file.fd);
    free(db);
}

static enum err text_of(struct edge_mbdb *db, const char *key, char *out, size_t n)
{
    sqlite3_stmt *st;
    enum err e = ERR_NOT_FOUND;
    if (prepare(db, "SELECT value FROM metadata WHERE name = ?1", 0, &st) != SQLITE_OK)
        return ERR_CORRUPT;
    allow(db, METADATA_STEPS, LOOKUP_MS);
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0)) {
        snprintf(out, n, "%s", (const char *)sqlite3_column_text(st, 0));
        e = ERR_OK;
    }
    sqlite3_finalize(st);
    return e;
}

static bool number_of(struct edge_mbdb *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *st;
    bool ok = false;
    if (prepare(db, sql, 0, &st) != SQLITE_OK)
        return false;
    allow(db, UINT64_MAX, db->patience_ms);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER) {
        *out = sqlite3_column_int64(st, 0);
        ok = true;
    }
    sqlite3_finalize(st);
    return ok;
}

/* A lookup must use an index: a SCAN of millions of rows per tile is a pack nobody can serve. */
static bool plan_has_scan(struct edge_mbdb *db)
{
    char sql[256];
    sqlite3_stmt *st;
    bool scan = false;
    snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", lookup_sql);
    if (prepare(db, sql, 0, &st) != SQLITE_OK)
        return true;
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *what = (const char *)sqlite3_column_text(st, 3);
        scan = scan || (what && strncmp(what, "SCAN", 4) == 0);
    }
    sqlite3_finalize(st);
    return scan;
}

static enum edge_tile_type type_of(const char *format)
{
    static const struct {
        const char *name;
        enum edge_tile_type type;
    } rows[] = {{"pbf", EDGE_TYPE_MVT},   {"mvt", EDGE_TYPE_MVT},  {"mlt", EDGE_TYPE_MLT},
                {"png", EDGE_TYPE_PNG},   {"jpg", EDGE_TYPE_JPEG}, {"jpeg", EDGE_TYPE_JPEG},
                {"webp", EDGE_TYPE_WEBP}, {"avif", EDGE_TYPE_AVIF}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcasecmp(format, rows[i].name) == 0)
            return rows[i].type;
    for (int t = EDGE_TYPE_MVT; t <= EDGE_TYPE_MLT; t++)
        if (strcasecmp(format, edge_tile_mime((enum edge_tile_type)t)) == 0)
            return (enum edge_tile_type)t;
    return EDGE_TYPE_UNKNOWN;
}

static void read_bounds(struct edge_mbdb *db, struct edge_pmtiles_header *h)
{
    char text[256];
    double v[4];
    h->west_e7 = -1800000000;
    h->east_e7 = 1800000000;
    h->south_e7 = -850511000;
    h->north_e7 = 850511000;
    if (text_of(db, "bounds", text, sizeof text) != ERR_OK ||
        sscanf(text, "%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3]) != 4)
        return;
    for (int i = 0; i < 4; i++)
        if (!(v[i] >= -180 && v[i] <= 180))
            return;
    h->west_e7 = (int32_t)(v[0] * 1e7);
    h->south_e7 = (int32_t)(v[1] * 1e7);
    h->east_e7 = (int32_t)(v[2] * 1e7);
    h->north_e7 = (int32_t)(v[3] * 1e7);
}

static void read_center(struct edge_mbdb *db, struct edge_pmtiles_header *h)
{
    char text[256];
    double lon, lat, zoom;
    if (text_of(db, "center", text, sizeof text) != ERR_OK ||
        sscanf(text, "%lf,%lf,%lf", &lon, &lat, &zoom) != 3)
        return;
    if (!(lon >= -180 && lon <= 180 && lat >= -90 && lat <= 90 && zoom >= 0 &&
          zoom <= EDGE_MBTILES_ZOOM_MAX))
        return;
    h->center_lon_e7 = (int32_t)(lon * 1e7);
    h->center_lat_e7 = (int32_t)(lat * 1e7);
    h->zoom_center = (uint8_t)zoom;
}

/* The members TileJSON wants, as the JSON object a PMTiles archive would have. What is no JSON in `json` is passed over. */
static enum err make_metadata(struct edge_mbdb *db, char **out)
{
    static const char *const plain[] = {"name", "description", "attribution", "version"};
    char *text = malloc(METADATA_TEXT);
    struct edge_about more = {.text = NULL};
    struct edge_fault ignored;
    struct json_w w;
    struct buf doc;
    if (!text)
        return ERR_NO_MEMORY;
    buf_init(&doc, EDGE_PMTILES_METADATA);
    json_w_init(&w, &doc);
    json_obj_begin(&w);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (text_of(db, plain[i], text, METADATA_TEXT) == ERR_OK)
            json_put_cstr(&w, plain[i], text);
    if (text_of(db, "json", text, METADATA_TEXT) == ERR_OK &&
        edge_about_read(bytes_of(text, strlen(text)), &more, &ignored) == ERR_OK && more.layers.n)
        json_put_raw(&w, "vector_layers", more.layers);
    json_obj_end(&w);
    *out = doc.err == ERR_OK ? strdup(buf_cstr(&doc)) : NULL;
    edge_about_fini(&more);
    buf_fini(&doc);
    free(text);
    return *out ? ERR_OK : ERR_NO_MEMORY;
}

static enum err read_zooms(struct edge_mbdb *db, struct edge_pmtiles_header *h, struct edge_fault *f)
{
    char text[64];
    int64_t low, high;
    if (text_of(db, "minzoom", text, sizeof text) != ERR_OK || sscanf(text, "%ld", &low) != 1)
        if (!number_of(db, "SELECT min(zoom_level) FROM tiles", &low))
            return fault(f, "there are no tiles");
    if (text_of(db, "maxzoom", text, sizeof text) != ERR_OK || sscanf(text, "%ld", &high) != 1)
        if (!number_of(db, "SELECT max(zoom_level) FROM tiles", &high))
            return fault(f, "there are no tiles");
    if (low < 0 || low > high || high > EDGE_MBTILES_ZOOM_MAX)
        return fault(f, "the zooms are no range within 0 to 29");
    h->zoom_min = (uint8_t)low;
    h->zoom_max = (uint8_t)high;
    return ERR_OK;
}

/* gzip shows in the first bytes of any tile. False: not even one can be read. */
static bool coding_of(struct edge_mbdb *db, enum edge_coding *out)
{
    sqlite3_stmt *st;
    *out = EDGE_CODING_NONE;
    if (prepare(db, "SELECT tile_data FROM tiles LIMIT 1", 0, &st) != SQLITE_OK)
        return false;
    allow(db, STEPS_MAX, LOOKUP_MS);
    int rc = sqlite3_step(st);
    const uint8_t *b = rc == SQLITE_ROW ? sqlite3_column_blob(st, 0) : NULL;
    if (b && edge_mbdb_is_gzip(bytes_of(b, (size_t)sqlite3_column_bytes(st, 0))))
        *out = EDGE_CODING_GZIP;
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE || rc == SQLITE_TOOBIG;
}

enum err edge_mbdb_check(struct edge_mbdb *db, struct edge_pmtiles_header *h, uint64_t *out_tiles,
                         char **out_metadata, struct edge_fault *f)
{
    char format[128] = "";
    int64_t n = 0;
    if (text_of(db, "format", format, sizeof format) == ERR_CORRUPT)
        return fault(f, "there is no table metadata(name, value)");
    if (plan_has_scan(db))
        return fault(f, "a tile cannot be looked up without reading the whole table: there is no index");
    h->type = type_of(format);
    if (h->type == EDGE_TYPE_UNKNOWN) {
        if (!edge_mime_ok(str_from_c(format)))
            return fault(f, "the metadata's format is none that is known");
        snprintf(h->mime, sizeof h->mime, "%s", format);
    }
    if (!coding_of(db, &h->tiles))
        return fault(f, db->overrun ? "looking for a tile does not end" : "the tiles cannot be read");
    if (!number_of(db, "SELECT count(*) FROM tiles", &n) || n < 0)
        return fault(f, db->overrun ? "counting the tiles does not end" : "the tiles cannot be counted");
    *out_tiles = (uint64_t)n;
    read_bounds(db, h);
    read_center(db, h);
    enum err e = read_zooms(db, h, f);
    return e == ERR_OK ? make_metadata(db, out_metadata) : e;
}

static enum err failed(struct edge_mbdb *db)
{
    bool wait = db->file.would_wait;
    db->file.would_wait = false;
    return wait ? ERR_BUSY : ERR_CORRUPT;
}

static enum err blob(sqlite3_stmt *st, int column, struct bytes *out)
{
    const void *p = sqlite3_column_blob(st, column);
    size_t n = (size_t)sqlite3_column_bytes(st, column);
    if (!p && n)
        return ERR_NO_MEMORY;
    *out = bytes_of(p ? p : "", n);
    return ERR_OK;
}

enum err edge_mbdb_tile(struct edge_mbdb *db, const struct edge_tile *t, struct bytes *out)
{
    sqlite3_stmt *st = db->lookup;
    bool waits = db->file.waits;
    if (db->slow)
        return ERR_BUSY;
    sqlite3_reset(st);
    allow(db, waits ? STEPS_MAX : STEPS_NOW_MAX, waits ? LOOKUP_MS : LOOKUP_NOW_MS);
    sqlite3_bind_int64(st, 1, t->z);
    sqlite3_bind_int64(st, 2, t->x);
    sqlite3_bind_int64(st, 3, edge_tile_tms_row(t));
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE)
        return ERR_NOT_FOUND;
    enum err e = rc == SQLITE_ROW ? blob(st, 0, out) : failed(db);
    if (e == ERR_NO_MEMORY) /* the pages of a long value are read when it is asked for */
        e = failed(db);
    db->slow = db->overrun && !waits;
    if (e != ERR_OK)
        sqlite3_reset(st);
    return e;
}

/* Only whole numbers are coordinates: NULL, '0' and 0.5 would be read as 0, and no lookup finds them there. */
static bool tile_of(sqlite3_stmt *st, struct edge_tile *out)
{
    int64_t v[3];
    for (int i = 0; i < 3; i++) {
        if (sqlite3_column_type(st, i) != SQLITE_INTEGER)
            return false;
        v[i] = sqlite3_column_int64(st, i);
    }
    if (v[0] < 0 || v[0] > EDGE_MBTILES_ZOOM_MAX || v[1] < 0 || v[1] >= (int64_t)1 << v[0] || v[2] < 0 ||
        v[2] >= (int64_t)1 << v[0])
        return false;
    *out = (struct edge_tile){(uint8_t)v[0], (uint32_t)v[1], (uint32_t)(((int64_t)1 << v[0]) - 1 - v[2])};
    return true;
}

enum err edge_mbdb_next(struct edge_mbdb *db, struct edge_tile *out_tile, struct bytes *out)
{
    allow(db, UINT64_MAX, db->patience_ms);
    if (!db->all && prepare(db, all_sql, 0, &db->all) != SQLITE_OK)
        return ERR_CORRUPT;
    for (;;) {
        int rc = sqlite3_step(db->all);
        if (rc == SQLITE_DONE)
            return ERR_EMPTY;
        if (rc != SQLITE_ROW)
            return failed(db);
        if (tile_of(db->all, out_tile))
            break; /* no request can name the others */
    }
    /* As a request would find it: of two rows for one tile that may be the other. */
    enum err e = edge_mbdb_tile(db, out_tile, out);
    return e == ERR_OK ? e : ERR_TILE_CORRUPT;
}
