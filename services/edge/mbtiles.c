/*
 * MBTiles: tiles in an SQLite file, opened read-only, immutable and as suspicious as SQLite allows: no writes, no
 * functions, no extensions, a bounded number of steps. One connection per reader thread.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include <jansson.h>

#include "services/edge/pack.h"

enum { STEPS_MAX = 100000, CACHE_KIB = 2048 };

static const char lookup_sql[] =
    "SELECT tile_data FROM tiles WHERE zoom_level = ?1 AND tile_column = ?2 AND tile_row = ?3";

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

static sqlite3 *open_db(struct edge *e, const char *path)
{
    char uri[1024];
    sqlite3 *db = NULL;
    struct buf b;
    buf_init_fixed(&b, uri, sizeof uri - 1);
    edge_url_write(STR("file:"), str_from_c(path), STR("mode=ro&immutable=1"), &b);
    if (b.err != ERR_OK)
        return NULL;
    uri[b.n] = 0;
    if (sqlite3_open_v2(uri, &db,
                        SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_PRIVATECACHE,
                        NULL) != SQLITE_OK) {
        sqlite3_close(db);
        return NULL;
    }
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, (int)edge_config(e)->packs_max_tile);
    sqlite3_exec(db, "PRAGMA cache_size=-2048", NULL, NULL, NULL);
    sqlite3_set_authorizer(db, only_reading, NULL);
    return db;
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

/* The members TileJSON wants, as the JSON object a PMTiles archive would have. */
static enum err make_metadata(sqlite3 *db, struct edge_pack *p)
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
    p->metadata = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    free(text);
    return p->metadata ? ERR_OK : ERR_NO_MEMORY;
}

static enum err read_zooms(sqlite3 *db, struct edge_pack *p, struct edge_fault *f)
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
    p->header.zoom_min = (uint8_t)low;
    p->header.zoom_max = (uint8_t)high;
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
        if (b && b[0] == 0x1f && b[1] == 0x8b)
            coding = EDGE_CODING_GZIP;
    }
    sqlite3_finalize(st);
    return coding;
}

static bool has_sidecar(const char *path)
{
    static const char *const suffixes[] = {"-wal", "-journal"};
    char name[1024];
    for (size_t i = 0; i < 2; i++) {
        struct edge_file_id id;
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        FILE *f = fopen(name, "re");
        if (!f)
            continue;
        bool full = edge_file_id_of_fd(fileno(f), &id) == ERR_OK && id.size > 0;
        fclose(f);
        if (full)
            return true;
    }
    return false;
}

RT_BLOCKS
static enum err check_db(struct edge_pack *p, sqlite3 *db, struct edge_fault *f)
{
    char format[128] = "";
    int64_t n = 0;
    if (text_of(db, "format", format, sizeof format) == ERR_CORRUPT)
        return fault(f, "there is no table metadata(name, value)");
    if (plan_has_scan(db))
        return fault(
            f,
            "there is no table or view tiles(zoom_level, tile_column, tile_row, tile_data) with an index");
    p->header.type = type_of(format);
    if (p->header.type == EDGE_TYPE_UNKNOWN)
        return fault(f, "the metadata's format is none that is known");
    p->header.tiles = coding_of(db);
    if (number_of(db, "SELECT count(*) FROM tiles", &n))
        p->tiles = p->contents = (uint64_t)n;
    read_bounds(db, &p->header);
    enum err e = read_zooms(db, p, f);
    return e == ERR_OK ? make_metadata(db, p) : e;
}

enum err edge_mbtiles_open(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    char magic[16];
    if (p->file->size < 100 || edge_file_read(p->file, 0, magic, sizeof magic) != ERR_OK ||
        memcmp(magic, "SQLite format 3", sizeof magic) != 0)
        return fault(f, "is not an SQLite 3 file");
    if (has_sidecar(p->path))
        return fault(f, "has an unfinished -wal or -journal beside it");
    sqlite3 *db = open_db(e, p->path);
    if (!db)
        return fault(f, "SQLite cannot open it");
    enum err err = check_db(p, db, f);
    sqlite3_close(db);
    return err;
}

enum err edge_mbtiles_tile(struct edge *e, struct edge_pack *p, unsigned reader, const struct edge_tile *t,
                           struct buf *out)
{
    sqlite3_stmt *st;
    enum err err = ERR_CORRUPT;
    sqlite3 *db = p->db[reader];
    if (!db) {
        db = p->db[reader] = open_db(e, p->path);
        if (!db)
            return ERR_IO;
    }
    if (sqlite3_prepare_v3(db, lookup_sql, -1, 0, &st, NULL) != SQLITE_OK)
        return ERR_CORRUPT;
    sqlite3_progress_handler(db, STEPS_MAX, too_many_steps, NULL);
    sqlite3_bind_int64(st, 1, t->z);
    sqlite3_bind_int64(st, 2, t->x);
    sqlite3_bind_int64(st, 3, edge_tile_tms_row(t));
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE)
        err = ERR_NOT_FOUND;
    else if (rc == SQLITE_ROW) {
        buf_put(out, sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0));
        err = out->err;
    }
    sqlite3_finalize(st);
    return err;
}

void edge_mbtiles_close(struct edge_pack *p)
{
    for (size_t i = 0; i < EDGE_READERS_MAX; i++)
        sqlite3_close(p->db[i]);
}
