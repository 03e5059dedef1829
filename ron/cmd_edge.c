/*
 * ron edge: packs (list, add, verify, reload), assets (get, fill), the store (cas verify, cas purge), fills under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/str.h"
#include "ron/client.h"
#include "ron/progress.h"
#include "ron/services.h"
#include "ron/table.h"
#include "services/edge/core/about.h"
#include "services/edge/core/name.h"
#include "services/edge/core/pmtiles.h"
#include "services/edge/core/tile.h"
#include "services/edge/mbdb.h"

enum { TILE_BYTES_MAX = 64 << 20, ENTRIES_MAX = 1 << 26, COPY_BYTES = 1 << 20, PATH_CHARS = 1024 };

RT_BLOCKS
static int call(struct cmd_ctx *ctx, const char *method, const char *path, const char *body,
                int64_t timeout_ms, struct client_answer *out)
{
    return client_call(
        ctx, "edge",
        &(struct client_request){.method = method, .path = path, .body = body, .timeout_ms = timeout_ms},
        out);
}

/* ---- packs ---- */

RT_BLOCKS
static int list_packs(struct cmd_ctx *ctx)
{
    static const char *const headers[] = {"pack",   "kind",   "state",  ">tiles",
                                          ">files", ">bytes", "digest", "error"};
    struct client_answer a;
    struct table table;
    size_t i;
    json_t *p;
    int status = call(ctx, "GET", "/admin/packs", NULL, 0, &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return client_show(ctx, &a, status);
    table_init(&table, cmd_global(ctx)->color, headers, 8);
    json_array_foreach(json_object_get(a.json, "packs"), i, p)
    {
        const char *digest = client_str(p, "digest");
        table_cell(&table, "%s", client_str(p, "name"));
        table_cell(&table, "%s", client_str(p, "kind"));
        table_cell(&table, "%s", client_str(p, "state"));
        table_cell(&table, "%lld", client_int(p, "tiles"));
        table_cell(&table, "%lld", client_int(p, "files"));
        table_cell(&table, "%lld", client_int(p, "bytes"));
        bool sealing = !*digest && strcmp(client_str(p, "state"), "mounted") == 0 &&
                       strcmp(client_str(p, "kind"), "dir") != 0;
        table_cell(&table, "%.19s", sealing ? "sealing" : digest);
        table_cell(&table, "%s", client_str(p, "error"));
    }
    table_print_or(&table, "nothing is mounted");
    client_free(&a);
    return CMD_OK;
}

RT_BLOCKS
static int run_reload(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct client_answer a;
    json_t *names = json_array(), *body = json_object();
    for (int i = 0; i < argc; i++)
        json_array_append_new(names, json_string(argv[i]));
    if (argc)
        json_object_set(body, "packs", names);
    char *text = json_dumps(body, JSON_COMPACT);
    int status = call(ctx, "POST", "/admin/packs/reload", text, 65000, &a);
    free(text);
    json_decref(names);
    json_decref(body);
    return client_show(ctx, &a, status);
}

static int copy_file(struct cmd_ctx *ctx, const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char *room = malloc(COPY_BYTES);
    ssize_t n = in < 0 || out < 0 || !room ? -1 : 1;
    while (n > 0) {
        n = read(in, room, COPY_BYTES);
        for (ssize_t at = 0; n > 0 && at < n;) {
            ssize_t w = write(out, room + at, (size_t)(n - at));
            if (w <= 0) {
                n = -1;
                break;
            }
            at += w;
        }
    }
    bool ok = n == 0 && fsync(out) == 0;
    free(room);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return ok ? CMD_OK : cmd_fail(ctx, CMD_FAILED, "cannot copy %s to %s: %s", from, to, strerror(errno));
}

static const struct cmd_flag pack_flags[] = {
    {"name", CMD_VALUE, "NAME", "add: what the pack is called; default: the file's name"},
    {NULL, CMD_SWITCH, NULL, NULL}};

/* ---- one archive, offline ---- */

struct archive {
    int fd;
    struct edge_pmtiles_header h;
    struct edge_dir dir;
};

static enum err read_fd(void *ctx, uint64_t offset, size_t n, uint8_t *out)
{
    ssize_t got = pread(((struct archive *)ctx)->fd, out, n, (off_t)offset);
    return got == (ssize_t)n ? ERR_OK : ERR_IO;
}

static int open_archive(struct cmd_ctx *ctx, const char *path, struct archive *a)
{
    uint8_t head[EDGE_PMTILES_HEADER];
    struct edge_fault f = {""};
    struct edge_about about = {.text = NULL};
    struct stat st;
    *a = (struct archive){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (a->fd < 0 || fstat(a->fd, &st) != 0)
        return cmd_fail(ctx, CMD_FAILED, "cannot open %s: %s", path, strerror(errno));
    enum err e = read_fd(a, 0, sizeof head, head);
    if (e == ERR_OK)
        e = edge_pmtiles_header_decode(bytes_of(head, sizeof head), (uint64_t)st.st_size, &a->h, &f);
    if (e == ERR_OK)
        e = edge_pmtiles_walk(&a->h, &(struct edge_pmtiles_limits){ENTRIES_MAX, TILE_BYTES_MAX}, read_fd, a,
                              &a->dir, &f);
    if (e == ERR_OK)
        e = edge_about_load(&a->h, read_fd, a, &about, &f);
    edge_about_fini(&about);
    if (e == ERR_OK)
        return CMD_OK;
    free(a->dir.list);
    close(a->fd);
    return cmd_fail(ctx, CMD_FAILED, "%s: %s", path, f.text[0] ? f.text : "shorter than a PMTiles header");
}

static void close_archive(struct archive *a)
{
    free(a->dir.list);
    close(a->fd);
}

static int check_pmtiles(struct cmd_ctx *ctx, const char *path)
{
    struct archive a;
    struct progress shown;
    uint64_t tiles = 0, bad = 0;
    int status = open_archive(ctx, path, &a);
    if (status != CMD_OK)
        return status;
    progress_begin(&shown, ctx, "reading tiles");
    for (size_t i = 0; i < a.dir.n; i++) {
        const struct edge_entry *e = &a.dir.list[i];
        progress_step(&shown, i, a.dir.n);
        tiles += e->run;
        if (a.h.tiles != EDGE_CODING_GZIP && a.h.tiles != EDGE_CODING_ZSTD)
            continue;
        uint8_t *stored = malloc(e->length);
        struct buf plain;
        buf_init(&plain, TILE_BYTES_MAX);
        if (!stored || read_fd(&a, a.h.data.offset + e->offset, e->length, stored) != ERR_OK ||
            edge_inflate(a.h.tiles, bytes_of(stored, e->length), &plain) != ERR_OK)
            bad++;
        buf_fini(&plain);
        free(stored);
    }
    progress_end(&shown);
    printf(cmd_global(ctx)->json ? "{\"tiles\":%llu,\"entries\":%zu,\"minzoom\":%u,\"maxzoom\":%u,\"type\":"
                                   "\"%s\",\"bad\":%llu}\n"
                                 : "%llu tiles in %zu entries, zoom %u to %u, %s, %llu bad\n",
           (unsigned long long)tiles, a.dir.n, a.h.zoom_min, a.h.zoom_max, edge_tile_ext(a.h.type),
           (unsigned long long)bad);
    close_archive(&a);
    return bad ? CMD_FAILED : CMD_OK;
}

static bool inflates(struct bytes tile)
{
    struct buf plain;
    buf_init(&plain, TILE_BYTES_MAX);
    bool ok = edge_inflate(EDGE_CODING_GZIP, tile, &plain) == ERR_OK;
    buf_fini(&plain);
    return ok;
}

RT_BLOCKS
static int open_mbtiles(struct cmd_ctx *ctx, const char *path, struct edge_mbdb **out,
                        struct edge_pmtiles_header *h, uint64_t *out_tiles)
{
    struct edge_fault f = {""};
    struct edge_mbdb *db = NULL;
    char *metadata = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cmd_fail(ctx, CMD_FAILED, "cannot open %s: %s", path, strerror(errno));
    enum err e = edge_mbdb_open(fd, TILE_BYTES_MAX, EDGE_MBDB_WAITS, &db);
    close(fd);
    if (e == ERR_OK)
        e = edge_mbdb_check(db, h, out_tiles, &metadata, &f);
    free(metadata);
    if (e != ERR_OK) {
        edge_mbdb_close(db);
        return cmd_fail(ctx, CMD_FAILED, "%s: %s", path, f.text[0] ? f.text : "is no MBTiles file");
    }
    *out = db;
    return CMD_OK;
}

RT_BLOCKS
static int check_mbtiles(struct cmd_ctx *ctx, const char *path)
{
    struct edge_pmtiles_header h = {0};
    struct edge_mbdb *db;
    struct edge_tile t;
    struct bytes tile;
    struct progress shown;
    uint64_t tiles = 0, read = 0, bad = 0;
    enum err e;
    int status = open_mbtiles(ctx, path, &db, &h, &tiles);
    if (status != CMD_OK)
        return status;
    progress_begin(&shown, ctx, "reading tiles");
    while ((e = edge_mbdb_next(db, &t, &tile)) == ERR_OK || e == ERR_TILE_CORRUPT) {
        progress_step(&shown, read++, tiles);
        bad += e != ERR_OK || (edge_mbdb_is_gzip(tile) && !inflates(tile));
    }
    progress_end(&shown);
    edge_mbdb_close(db);
    if (e != ERR_EMPTY)
        return cmd_fail(ctx, CMD_FAILED, "%s: cannot be read beyond %llu tiles", path,
                        (unsigned long long)read);
    printf(cmd_global(ctx)->json
               ? "{\"tiles\":%llu,\"minzoom\":%u,\"maxzoom\":%u,\"type\":\"%s\",\"bad\":%llu}\n"
               : "%llu tiles, zoom %u to %u, %s, %llu bad\n",
           (unsigned long long)read, h.zoom_min, h.zoom_max, edge_tile_ext(h.type),
           (unsigned long long)bad);
    return bad ? CMD_FAILED : CMD_OK;
}

static bool is_mbtiles(const char *path)
{
    return str_ends(str_from_c(path), STR(".mbtiles"));
}

RT_BLOCKS
static int check_file(struct cmd_ctx *ctx, const char *path)
{
    return is_mbtiles(path) ? check_mbtiles(ctx, path) : check_pmtiles(ctx, path);
}

/* Would it be mounted? Asked before it takes the place of one that is. */
RT_BLOCKS
static int opens(struct cmd_ctx *ctx, const char *path)
{
    struct edge_pmtiles_header h = {0};
    struct edge_mbdb *db;
    struct archive a;
    uint64_t tiles;
    int status = is_mbtiles(path) ? open_mbtiles(ctx, path, &db, &h, &tiles) : open_archive(ctx, path, &a);
    if (status == CMD_OK && is_mbtiles(path))
        edge_mbdb_close(db);
    else if (status == CMD_OK)
        close_archive(&a);
    return status;
}

/* What a command that is interrupted takes away again; empty: nothing. Written before the signals are caught. */
static char half_done[PATH_CHARS];

static void take_away(int number)
{
    unlink(half_done);
    signal(number, SIG_DFL);
    raise(number);
}

static void on_interrupts(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], handler);
}

/* Copied beside its place and renamed into it, so that a running service never sees half of it. */
RT_BLOCKS
static int add_pack(struct cmd_ctx *ctx, const char *file)
{
    char tmp[PATH_CHARS], to[PATH_CHARS], name[EDGE_PACK_NAME_MAX + 2], body[EDGE_PACK_NAME_MAX + 32];
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file, *dot = strrchr(base, '.');
    struct client_answer a;
    if (!dot || (strcmp(dot, ".pmtiles") != 0 && strcmp(dot, ".mbtiles") != 0))
        return cmd_fail(ctx, CMD_USAGE, "%s ends neither with .pmtiles nor with .mbtiles", file);
    snprintf(name, sizeof name, "%.*s", (int)(dot - base), base);
    if (cmd_flag(ctx, "name", NULL))
        snprintf(name, sizeof name, "%s", cmd_flag(ctx, "name", ""));
    if (!edge_pack_name_ok(str_from_c(name)))
        return cmd_fail(ctx, CMD_USAGE,
                        "a pack is called by 1 to %d letters, digits and ._-, a letter or digit first, not "
                        "'%s'; give one with --name",
                        EDGE_PACK_NAME_MAX, name);
    int status = opens(ctx, file);
    if (status != CMD_OK)
        return status;
    snprintf(to, sizeof to, "%s/edge/packs/%s%s", cmd_global(ctx)->data, name, dot);
    snprintf(tmp, sizeof tmp, "%s/edge/packs/.adding-%d", cmd_global(ctx)->data, (int)getpid());
    memcpy(half_done, tmp, sizeof half_done);
    on_interrupts(take_away);
    status = copy_file(ctx, file, tmp);
    if (status == CMD_OK && rename(tmp, to) != 0)
        status = cmd_fail(ctx, CMD_FAILED, "cannot rename to %s: %s", to, strerror(errno));
    if (status != CMD_OK)
        unlink(tmp);
    on_interrupts(SIG_DFL);
    if (status != CMD_OK)
        return status;
    snprintf(body, sizeof body, "{\"packs\":[\"%s\"]}", name);
    return client_show(ctx, &a, call(ctx, "POST", "/admin/packs/reload", body, 65000, &a));
}

/* The file goes, and with it the pack; who still reads from it reads on. */
RT_BLOCKS
static int remove_pack(struct cmd_ctx *ctx, const char *name)
{
    static const char *const kinds[] = {".pmtiles", ".mbtiles"};
    char path[PATH_CHARS], body[EDGE_PACK_NAME_MAX + 32];
    struct client_answer a;
    unsigned removed = 0;
    if (!edge_pack_name_ok(str_from_c(name)))
        return cmd_fail(ctx, CMD_USAGE, "'%s' is not the name of a pack", name);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/edge/packs/%s%s", cmd_global(ctx)->data, name, kinds[i]);
        if (unlink(path) == 0)
            removed++;
        else if (errno != ENOENT)
            return cmd_fail(ctx, CMD_FAILED, "cannot remove %s: %s", path, strerror(errno));
    }
    if (!removed)
        return cmd_fail(
            ctx, CMD_REFUSED,
            "there is no archive %s in %s/edge/packs; what the configuration mounts is removed there", name,
            cmd_global(ctx)->data);
    snprintf(body, sizeof body, "{\"packs\":[\"%s\"]}", name);
    return client_show(ctx, &a, call(ctx, "POST", "/admin/packs/reload", body, 65000, &a));
}

static bool hash_file(const char *path, struct sha256 *out)
{
    struct sha256_ctx c;
    uint8_t *room = malloc(COPY_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = room && fd >= 0 ? 1 : -1;
    sha256_init(&c);
    while (n > 0) {
        n = read(fd, room, COPY_BYTES);
        if (n > 0)
            sha256_update(&c, room, (size_t)n);
    }
    sha256_final(&c, out);
    free(room);
    if (fd >= 0)
        close(fd);
    return n == 0;
}

static const char *verdict_on(json_t *pack)
{
    struct sha256 found;
    char text[SHA256_TEXT_CHARS];
    const char *path = client_str(pack, "path"), *digest = client_str(pack, "digest");
    if (strcmp(client_str(pack, "state"), "mounted") != 0)
        return client_str(pack, "state");
    if (!*path)
        return "built in";
    if (strcmp(client_str(pack, "kind"), "dir") == 0)
        return "checked file by file as it is served";
    if (!*digest)
        return "not hashed yet";
    if (!hash_file(path, &found))
        return "cannot be read";
    sha256_format(&found, text);
    return strcmp(text, digest) == 0 ? "ok" : "the file is not what is served";
}

/* Reads the files of what is mounted and compares them with what the service serves. */
RT_BLOCKS
static int verify_mounted(struct cmd_ctx *ctx)
{
    struct client_answer a;
    size_t i, wrong = 0;
    json_t *p;
    int status = call(ctx, "GET", "/admin/packs", NULL, 0, &a);
    if (status != CMD_OK)
        return client_show(ctx, &a, status);
    json_t *verdicts = json_object();
    json_array_foreach(json_object_get(a.json, "packs"), i, p)
    {
        const char *verdict = verdict_on(p);
        bool bad = strcmp(verdict, "rejected") == 0 || strcmp(verdict, "changed") == 0 ||
                   strcmp(verdict, "cannot be read") == 0 || strncmp(verdict, "the file", 8) == 0;
        wrong += bad;
        if (cmd_global(ctx)->json)
            json_object_set_new(verdicts, client_str(p, "name"), json_string(verdict));
        else
            printf("%s: %s%s%s\n", client_str(p, "name"), verdict, *client_str(p, "error") ? ": " : "",
                   client_str(p, "error"));
    }
    if (cmd_global(ctx)->json) {
        json_dumpf(verdicts, stdout, JSON_COMPACT);
        putchar('\n');
    }
    json_decref(verdicts);
    client_free(&a);
    return wrong ? CMD_FAILED : CMD_OK;
}

RT_BLOCKS
static int verify_packs(struct cmd_ctx *ctx, int argc, char **argv)
{
    int status = CMD_OK;
    if (argc == 0)
        return verify_mounted(ctx);
    for (int i = 0; i < argc; i++) {
        int one = check_file(ctx, argv[i]);
        status = one == CMD_OK ? status : one;
    }
    return status;
}

RT_BLOCKS
static int run_pack(struct cmd_ctx *ctx, int argc, char **argv)
{
    if (strcmp(argv[0], "list") == 0 && argc == 1)
        return list_packs(ctx);
    if (strcmp(argv[0], "add") == 0 && argc == 2)
        return add_pack(ctx, argv[1]);
    if (strcmp(argv[0], "remove") == 0 && argc == 2)
        return remove_pack(ctx, argv[1]);
    if (strcmp(argv[0], "verify") == 0)
        return verify_packs(ctx, argc - 1, argv + 1);
    return cmd_fail(ctx, CMD_USAGE,
                    "say pack list, pack add FILE, pack remove NAME, or pack verify [FILE...]");
}

static int no_tile(struct cmd_ctx *ctx, const struct edge_tile *t)
{
    return cmd_fail(ctx, CMD_REFUSED, "the archive has no tile %u/%u/%u", t->z, t->x, t->y);
}

RT_BLOCKS
static int print_mbtile(struct cmd_ctx *ctx, const char *path, const struct edge_tile *t)
{
    struct edge_pmtiles_header h = {0};
    struct edge_mbdb *db;
    struct bytes tile;
    uint64_t tiles;
    int status = open_mbtiles(ctx, path, &db, &h, &tiles);
    if (status != CMD_OK)
        return status;
    if (t->z <= EDGE_MBTILES_ZOOM_MAX && edge_mbdb_tile(db, t, &tile) == ERR_OK)
        fwrite(tile.p, 1, tile.n, stdout);
    else
        status = no_tile(ctx, t);
    edge_mbdb_close(db);
    return status;
}

RT_BLOCKS
static int run_tile(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct archive a;
    struct edge_tile t;
    struct str ext;
    (void)argc;
    if (edge_tile_parse(str_from_c(argv[1]), str_from_c(argv[2]), str_from_c(argv[3]), &t, &ext) !=
            ERR_OK ||
        ext.p)
        return cmd_fail(ctx, CMD_USAGE, "%s/%s/%s is no tile", argv[1], argv[2], argv[3]);
    if (is_mbtiles(argv[0]))
        return print_mbtile(ctx, argv[0], &t);
    int status = open_archive(ctx, argv[0], &a);
    if (status != CMD_OK)
        return status;
    const struct edge_entry *e = edge_dir_find(a.dir.list, a.dir.n, edge_tile_id(&t));
    uint8_t *bytes = e ? malloc(e->length) : NULL;
    if (bytes && read_fd(&a, a.h.data.offset + e->offset, e->length, bytes) == ERR_OK)
        fwrite(bytes, 1, e->length, stdout);
    else
        status = no_tile(ctx, &t);
    free(bytes);
    close_archive(&a);
    return status;
}

/* ---- assets ---- */

static void asset_path(const char *name, char out[PATH_CHARS])
{
    struct buf b;
    buf_init_fixed(&b, out, PATH_CHARS - 1);
    if (name[0] == '/')
        buf_puts(&b, name); /* a whole path, e.g. /edge/tiles/demo/0/0/0 */
    else {
        buf_puts(&b, "/edge/assets/");
        for (const char *at = name; *at; at++) {
            char one[2] = {*at, 0};
            if (*at == '/')
                buf_putc(&b, '/');
            else
                client_encode(one, &b);
        }
    }
    out[b.n] = 0;
}

/* However large it is: a whole pack, say. */
RT_BLOCKS
static int get_asset(struct cmd_ctx *ctx, const char *name, struct client_answer *out)
{
    char path[PATH_CHARS];
    asset_path(name, path);
    return client_call(
        ctx, "edge",
        &(struct client_request){
            .path = path, .no_token = true, .timeout_ms = 600000, .answer_max = (size_t)32 << 30},
        out);
}

RT_BLOCKS
static int run_get(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct client_answer a;
    (void)argc;
    int status = get_asset(ctx, argv[0], &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    fwrite(a.body.p, 1, a.body.n, stdout);
    client_free(&a);
    return CMD_OK;
}

/* Asks for it and says what it is, without printing the bytes. */
RT_BLOCKS
static int run_fill(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct client_answer a;
    (void)argc;
    int status = get_asset(ctx, argv[0], &a);
    if (status != CMD_OK)
        return client_finish(ctx, &a, status);
    printf(cmd_global(ctx)->json ? "{\"etag\":%s,\"bytes\":%zu}\n" : "%s %zu bytes\n", a.etag, a.body.n);
    client_free(&a);
    return CMD_OK;
}

RT_BLOCKS
static int run_fills(struct cmd_ctx *ctx, int argc, char **argv)
{
    static const char *const headers[] = {"name", "origin", "result", "reason", ">bytes", ">tries", ">ms"};
    struct client_answer a;
    struct table table;
    size_t i;
    json_t *f;
    (void)argc;
    (void)argv;
    int status = call(ctx, "GET", "/admin/fills", NULL, 0, &a);
    if (status != CMD_OK || cmd_global(ctx)->json)
        return client_show(ctx, &a, status);
    table_init(&table, cmd_global(ctx)->color, headers, 7);
    json_array_foreach(json_object_get(a.json, "recent"), i, f)
    {
        table_cell(&table, "%s", client_str(f, "name"));
        table_cell(&table, "%s", client_str(f, "origin"));
        table_cell(&table, "%s", client_str(f, "result"));
        table_cell(&table, "%s", client_str(f, "reason"));
        table_cell(&table, "%lld", client_int(f, "bytes"));
        table_cell(&table, "%lld", client_int(f, "tries"));
        table_cell(&table, "%lld", client_int(f, "ms"));
    }
    table_print_or(&table, "nothing was fetched yet");
    client_free(&a);
    return CMD_OK;
}

/* ---- the store ---- */

/* A digest as it is written here and there: with sha256: before it, or without. NULL: it is none, which was said. */
static const char *hex_of(struct cmd_ctx *ctx, const char *given)
{
    const char *hex = given + (strncmp(given, "sha256:", 7) == 0 ? 7 : 0);
    if (strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64)
        return hex;
    cmd_fail(ctx, CMD_USAGE, "a digest is 64 of 0-9 and a-f, with or without sha256: before them, not '%s'",
             given);
    return NULL;
}

/* Waits as long as the pass takes: each call waits half a minute and joins the pass under way. */
RT_BLOCKS
static int verify_store(struct cmd_ctx *ctx, const char *digest)
{
    char body[128] = "{\"wait_ms\":30000}";
    const char *hex = digest ? hex_of(ctx, digest) : NULL;
    struct client_answer a;
    int status;
    if (digest && !hex)
        return CMD_USAGE;
    if (hex)
        snprintf(body, sizeof body, "{\"digest\":\"sha256:%s\"}", hex);
    for (;;) {
        status = call(ctx, "POST", "/admin/cas/verify", body, 35000, &a);
        if ((status != CMD_OK && status != CMD_PENDING) ||
            strcmp(client_str(a.json, "state"), "running") != 0)
            break;
        client_free(&a);
    }
    bool corrupt = status == CMD_OK && json_array_size(json_object_get(a.json, "corrupt")) > 0;
    status = client_show(ctx, &a, status);
    return corrupt ? CMD_FAILED : status;
}

RT_BLOCKS
static int purge_object(struct cmd_ctx *ctx, const char *digest)
{
    char path[128];
    const char *hex = hex_of(ctx, digest);
    struct client_answer a;
    if (!hex)
        return CMD_USAGE;
    snprintf(path, sizeof path, "/admin/cas/%s", hex);
    return client_show(ctx, &a, call(ctx, "DELETE", path, NULL, 0, &a));
}

RT_BLOCKS
static int run_cas(struct cmd_ctx *ctx, int argc, char **argv)
{
    if (strcmp(argv[0], "verify") == 0)
        return verify_store(ctx, argc > 1 ? argv[1] : NULL);
    if (strcmp(argv[0], "purge") == 0 && argc == 2)
        return purge_object(ctx, argv[1]);
    return cmd_fail(ctx, CMD_USAGE, "say cas verify [HEX] or cas purge HEX");
}

RT_BLOCKS
static int run_packs(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return list_packs(ctx);
}

RT_BLOCKS
static int run_verify(struct cmd_ctx *ctx, int argc, char **argv)
{
    return verify_store(ctx, argc > 0 ? argv[0] : NULL);
}

RT_BLOCKS
static int run_purge(struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    return purge_object(ctx, argv[0]);
}

static const struct cmd commands[] = {
    {"packs", "", "the packs that are mounted", "  ron edge packs\n  ron edge packs --json", NULL, 0, 0,
     run_packs},
    {"pack", "list | add FILE | remove NAME | verify [FILE...]",
     "what is mounted; copy an archive in and mount it; take one out; read archives completely (without "
     "FILE: what is mounted)",
     "  ron edge pack list\n  ron edge pack add world.pmtiles\n  ron edge pack add tiles-v2.pmtiles --name "
     "world\n"
     "  ron edge pack remove world\n  ron edge pack verify world.pmtiles",
     pack_flags, 1, -1, run_pack},
    {"reload", "[PACK...]", "look at the packs again", "  ron edge reload\n  ron edge reload world", NULL,
     0, -1, run_reload},
    {"check", "FILE...", "read archives completely, without the service", "  ron edge check world.pmtiles",
     NULL, 1, -1, verify_packs},
    {"tile", "FILE Z X Y", "one tile of an archive as it is stored",
     "  ron edge tile world.pmtiles 0 0 0 | zcat | wc -c", NULL, 4, 4, run_tile},
    {"get", "NAME", "an asset's bytes on stdout",
     "  ron edge get site/hello.txt\n  ron edge get /edge/tiles/demo/0/0/0.mvt > tile.mvt", NULL, 1, 1,
     run_get},
    {"fill", "NAME", "fetch an asset into the store if it is not there yet",
     "  ron edge fill fonts/a.woff2", NULL, 1, 1, run_fill},
    {"fills", "", "the last fills and how they ended", "  ron edge fills --json", NULL, 0, 0, run_fills},
    {"cas", "verify [HEX] | purge HEX",
     "read the store's objects again and compare them with their digests; remove one with its names",
     "  ron edge cas verify\n  ron edge cas purge "
     "2386898e8c811ed73b80787aedb434b2ea70893603d91f0280980d1f94b711bb",
     NULL, 1, 2, run_cas},
    {"verify", "[HEX]", "the same as cas verify", "  ron edge verify", NULL, 0, 1, run_verify},
    {"purge", "HEX", "the same as cas purge",
     "  ron edge purge 2386898e8c811ed73b80787aedb434b2ea70893603d91f0280980d1f94b711bb", NULL, 1, 1,
     run_purge},
    {.run = NULL},
};

const struct cmd_group cmd_edge = {.noun = "edge",
                                   .summary = "map packs, assets and the store behind them",
                                   .commands = commands,
                                   .service = &edge_svc};
