/* An MBTiles pack: what is beside the file, and a handle for each thread that reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "services/edge/mbdb.h"
#include "services/edge/pack.h"

static enum err fault(struct edge_fault *f, const char *text)
{
    snprintf(f->text, sizeof f->text, "%s", text);
    return ERR_CORRUPT;
}

/* Looked at, not opened: it may be a pipe that nobody writes to, or another user's. */
static bool has_sidecar(const char *path)
{
    static const char *const suffixes[] = {"-wal", "-journal"};
    char name[1024];
    for (size_t i = 0; i < 2; i++) {
        struct stat st;
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
            return true;
    }
    return false;
}

enum err edge_mbtiles_open(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    char magic[16];
    struct edge_mbdb *db;
    if (p->file->size < 100 || edge_file_read(p->file, 0, magic, sizeof magic) != ERR_OK ||
        memcmp(magic, "SQLite format 3", sizeof magic) != 0)
        return fault(f, "is not an SQLite 3 file");
    if (has_sidecar(p->path))
        return fault(f, "has an unfinished -wal or -journal beside it");
    if (edge_mbdb_open(p->file->fd, edge_config(e)->packs_max_tile, EDGE_MBDB_WAITS, &db) != ERR_OK)
        return fault(f, "there is no table or view tiles(zoom_level, tile_column, tile_row, tile_data)");
    char *metadata = NULL;
    enum err err = edge_mbdb_check(db, &p->header, &p->tiles, &metadata, f);
    p->contents = p->tiles;
    edge_mbdb_close(db);
    if (err == ERR_OK)
        err = edge_about_read(bytes_of(metadata, strlen(metadata)), &p->about, f);
    free(metadata);
    return err;
}

enum err edge_mbtiles_reader(struct edge *e, struct edge_pack *p, unsigned reader, struct edge_mbdb **out)
{
    enum err err = ERR_OK;
    if (!p->db[reader])
        err = edge_mbdb_open(p->file->fd, edge_config(e)->packs_max_tile, EDGE_MBDB_WAITS, &p->db[reader]);
    if (err == ERR_OK)
        *out = p->db[reader];
    return err;
}

void edge_mbtiles_prepare(struct edge *e, struct edge_pack *p, unsigned loop)
{
    struct edge_mbdb *db, *none = NULL;
    if (loop >= EDGE_LOOPS_MAX || atomic_load_explicit(&p->loop_db[loop], memory_order_relaxed))
        return;
    if (edge_mbdb_open(p->file->fd, edge_config(e)->packs_max_tile, EDGE_MBDB_NEVER_WAITS, &db) != ERR_OK)
        return; /* readers go on doing it */
    /* Pairs with the acquire of the loop: it sees a complete handle. */
    if (!atomic_compare_exchange_strong_explicit(&p->loop_db[loop], &none, db, memory_order_release,
                                                 memory_order_relaxed))
        edge_mbdb_close(db);
}

void edge_mbtiles_close(struct edge_pack *p)
{
    for (size_t i = 0; i < EDGE_READERS_MAX; i++)
        edge_mbdb_close(p->db[i]);
    for (size_t i = 0; i < EDGE_LOOPS_MAX; i++)
        edge_mbdb_close(atomic_load(&p->loop_db[i]));
}
