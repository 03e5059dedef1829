#include "services/edge/mbdb.h"

#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "services/edge/core/name.h"
#include "services/edge/mbdb_vfs.h"

enum { STEPS_MAX = 100000, MILLION = 1000000 };

struct edge_mbdb {
    struct edge_mbdb_file file;
    sqlite3 *db;
    sqlite3_stmt *lookup, *all;
    unsigned patience, left; /* millions of steps */
};

static const char lookup_sql[] =
    "SELECT tile_data FROM tiles WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3";
static const char all_sql[] = "SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles";

static enum err fault(struct edge_fault *f, const char *text)
{
    snprintf(f->text, sizeof f->text, "%s", text);
    return ERR_CORRUPT;
}

static int only_reading(void *arg, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)arg;
    (void)a;
    (void)c;
    (void)d;
    if (action == SQLITE_SELECT || action == SQLITE_READ)
        return SQLITE_OK;
    if (action == SQLITE_FUNCTION && b &&
        (strcasecmp(b, "min") == 0 || strcasecmp(b, "max") == 0 || strcasecmp(b, "count") == 0))
        return SQLITE_OK;
    return SQLITE_DENY;
}

static int too_many_steps(void *arg)
{
    (void)arg;
    return 1;
}

static enum err prepare(struct edge_mbdb *db)
{
    if (sqlite3_prepare_v3(db->db, lookup_sql, -1, SQLITE_PREPARE_PERSISTENT, &db->lookup, NULL) !=
        SQLITE_OK)
        return ERR_CORRUPT;
    return ERR_OK;
}

void edge_mbdb_set_patience(struct edge_mbdb *db, unsigned million_steps)
{
    db->patience = million_steps;
}

static int lose_patience(void *arg)
{
    struct edge_mbdb *db = arg;
    return db->left == 0 || --db->left == 0;
}

static void be_patient(struct edge_mbdb *db)
{
    db->left = db->patience;
    sqlite3_progress_handler(db->db, MILLION, lose_patience, db);
}

enum err edge_mbdb_open(int fd, size_t tile_max, enum edge_mbdb_waiting waiting, struct edge_mbdb **out)
{
    struct edge_mbdb *db = calloc(1, sizeof *db);
    if (!db)
        return ERR_NO_MEMORY;
    db->file = (struct edge_mbdb_file){.fd = dup(fd), .waits = true};
    db->patience = EDGE_MBDB_PATIENCE;
    enum err e = db->file.fd < 0                                       ? ERR_IO
                 : edge_mbdb_vfs_open(&db->file, &db->db) != SQLITE_OK ? ERR_CORRUPT
                                                                       : ERR_OK;
    if (e == ERR_OK) {
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        sqlite3_db_config(db->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
        sqlite3_limit(db->db, SQLITE_LIMIT_LENGTH, (int)tile_max);
        sqlite3_exec(db->db, "PRAGMA cache_size=-2048", NULL, NULL, NULL);
        sqlite3_set_authorizer(db->db, only_reading, NULL);
        e = prepare(db); /* reads the schema, so that later calls need only pages of the tree */
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

static enum err text_of(sqlite3 *db, const char *key, char *out, size_t n)
{
    sqlite3_stmt *st;
    enum err e = ERR_NOT_FOUND;
    if (sqlite3_prepare_v2(db, "SELECT value FROM metadata WHERE name = ?1", -1, &st, NULL) != SQLITE_OK)
        return ERR_CORRUPT;
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0)) {
        snprintf(out, n, "%s", (const char *)sqlite3_column_text(st, 0));
        e = ERR_OK;
    }
    sqlite3_finalize(st);
    return e;
}

static bool number_of(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *st;
    bool ok = false;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        return false;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER) {
        *out = sqlite3_column_int64(st, 0);
        ok = true;
    }
    sqlite3_finalize(st);
    return ok;
}

/* A lookup must use an index: a SCAN of millions of rows per tile is a pack nobody can serve. */
static bool plan_has_scan(sqlite3 *db)
{
    char sql[256];
    sqlite3_stmt *st;
    bool scan = false;
    snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", lookup_sql);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
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

static void read_bounds(sqlite3 *db, struct edge_pmtiles_header *h)
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

static void read_center(sqlite3 *db, struct edge_pmtiles_header *h)
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

/* The members TileJSON wants, as the JSON object a PMTiles archive would have. */
static enum err make_metadata(sqlite3 *db, char **out)
{
    static const char *const plain[] = {"name", "description", "attribution", "version"};
    char *text = malloc(1 << 20);
    json_t *doc = json_object();
    for (size_t i = 0; text && i < sizeof plain / sizeof *plain; i++)
        if (text_of(db, plain[i], text, 1 << 20) == ERR_OK)
            json_object_set_new(doc, plain[i], json_string(text));
    if (text && text_of(db, "json", text, 1 << 20) == ERR_OK) {
        json_t *more = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        json_t *layers = json_object_get(more, "vector_layers");
        if (json_is_array(layers))
            json_object_set(doc, "vector_layers", layers);
        json_decref(more);
    }
    *out = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    free(text);
    return *out ? ERR_OK : ERR_NO_MEMORY;
}

static enum err read_zooms(sqlite3 *db, struct edge_pmtiles_header *h, struct edge_fault *f)
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

/* gzip shows in the first bytes of any tile. */
static enum edge_coding coding_of(sqlite3 *db)
{
    sqlite3_stmt *st;
    enum edge_coding coding = EDGE_CODING_NONE;
    if (sqlite3_prepare_v2(db, "SELECT tile_data FROM tiles LIMIT 1", -1, &st, NULL) != SQLITE_OK)
        return coding;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_bytes(st, 0) > 2) {
        const uint8_t *b = sqlite3_column_blob(st, 0);
        if (b && edge_mbdb_is_gzip(bytes_of(b, (size_t)sqlite3_column_bytes(st, 0))))
            coding = EDGE_CODING_GZIP;
    }
    sqlite3_finalize(st);
    return coding;
}

enum err edge_mbdb_check(struct edge_mbdb *m, struct edge_pmtiles_header *h, uint64_t *out_tiles,
                         char **out_metadata, struct edge_fault *f)
{
    char format[128] = "";
    int64_t n = 0;
    sqlite3 *db = m->db;
    be_patient(m);
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
    h->tiles = coding_of(db);
    if (!number_of(db, "SELECT count(*) FROM tiles", &n) || n < 0)
        return fault(f, m->left ? "the tiles cannot be counted" : "counting the tiles does not end");
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
    sqlite3_reset(st);
    sqlite3_progress_handler(db->db, STEPS_MAX, too_many_steps, NULL);
    sqlite3_bind_int64(st, 1, t->z);
    sqlite3_bind_int64(st, 2, t->x);
    sqlite3_bind_int64(st, 3, edge_tile_tms_row(t));
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE)
        return ERR_NOT_FOUND;
    enum err e = rc == SQLITE_ROW ? blob(st, 0, out) : failed(db);
    if (e == ERR_NO_MEMORY) /* the pages of a long value are read when it is asked for */
        e = failed(db);
    if (e != ERR_OK)
        sqlite3_reset(st);
    return e;
}

enum err edge_mbdb_next(struct edge_mbdb *db, struct edge_tile *out_tile, struct bytes *out)
{
    if (!db->all && sqlite3_prepare_v2(db->db, all_sql, -1, &db->all, NULL) != SQLITE_OK)
        return ERR_CORRUPT;
    be_patient(db);
    for (;;) {
        int rc = sqlite3_step(db->all);
        if (rc == SQLITE_DONE)
            return ERR_EMPTY;
        if (rc != SQLITE_ROW)
            return failed(db);
        int64_t z = sqlite3_column_int64(db->all, 0), x = sqlite3_column_int64(db->all, 1),
                row = sqlite3_column_int64(db->all, 2);
        if (z < 0 || z > EDGE_MBTILES_ZOOM_MAX || x < 0 || x >= (int64_t)1 << z || row < 0 ||
            row >= (int64_t)1 << z)
            continue; /* no request can name it */
        *out_tile = (struct edge_tile){(uint8_t)z, (uint32_t)x, (uint32_t)(((int64_t)1 << z) - 1 - row)};
        return blob(db->all, 3, out);
    }
}
