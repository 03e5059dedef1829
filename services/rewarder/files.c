#include "services/rewarder/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "store/file_replace.h"

enum { LOG_LINE_MAX = 64 * 1024, COMPACT_ABOVE = 4 << 20, READ_MAX = 16 * 1024 };

static void join(const struct rewarder_files *f, const char *name, char out[STORE_PATH_MAX])
{
    int n = snprintf(out, STORE_PATH_MAX, "%s/%s", f->root, name);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

/* What a crash left in the spool belongs to uploads nobody waits for. */
static enum err remove_entry(void *ctx, const char *name) RT_BLOCKS
{
    struct rewarder_files *f = ctx;
    char path[STORE_PATH_MAX], dir[STORE_PATH_MAX];
    join(f, "spool", dir);
    store_path_join(path, dir, name);
    return store_disk_unlink(f->disk, path);
}

/* The name of the root in its directory, and that one's name, and so on: what lies above ours is synced as far as we may. */
static enum err sync_ancestors(struct store_disk *disk, const char *root) RT_BLOCKS
{
    char dir[STORE_PATH_MAX], up[STORE_PATH_MAX];
    snprintf(dir, sizeof dir, "%s", root);
    for (unsigned level = 0; store_path_dir(dir, up) && strcmp(dir, up) != 0; level++) {
        enum err e = store_disk_sync_dir(disk, up);
        if (e != ERR_OK && level == 0)
            return e;
        if (e != ERR_OK || !strcmp(up, "."))
            break;
        memcpy(dir, up, sizeof dir);
    }
    return ERR_OK;
}

enum err rewarder_files_mkdirs(struct rewarder_files *f, const char *path)
{
    char dir[STORE_PATH_MAX], up[STORE_PATH_MAX];
    enum err e = store_disk_mkdirs(f->disk, path);
    size_t root_n = strlen(f->root);
    snprintf(dir, sizeof dir, "%s", path);
    while (e == ERR_OK && strlen(dir) > root_n && store_path_dir(dir, up)) {
        e = store_disk_sync_dir(f->disk, up);
        memcpy(dir, up, sizeof dir);
    }
    return e;
}

struct seals {
    struct store_disk *disk;
    const char *dir;
    unsigned depth; /* 2: epochs of a tenant */
    bool found;
};

static enum err look_for_seal(void *ctx, const char *name) RT_BLOCKS
{
    struct seals *up = ctx;
    char path[STORE_PATH_MAX], seal[STORE_PATH_MAX];
    struct store_stat st;
    store_path_join(path, up->dir, name);
    if (up->depth == 2) {
        store_path_join(seal, path, "seal.json");
        up->found = up->found || store_disk_stat(up->disk, seal, &st) == ERR_OK;
        return ERR_OK;
    }
    struct seals down = {up->disk, path, up->depth + 1, false};
    (void)!store_disk_list(up->disk, path, look_for_seal, &down); /* what cannot be listed holds no runs */
    up->found = up->found || down.found;
    return ERR_OK;
}

bool rewarder_files_lost_log(struct store_disk *disk, const char *root)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    store_path_join(path, root, "registry.log");
    if (store_disk_stat(disk, path, &st) != ERR_NOT_FOUND)
        return false;
    store_path_join(path, root, "runs");
    struct seals all = {disk, path, 1, false};
    return store_disk_list(disk, path, look_for_seal, &all) == ERR_OK && all.found;
}

enum err rewarder_files_open(struct rewarder_files *f, struct store_disk *disk, const char *root)
{
    static const char *const dirs[] = {"spool", "inputs", "runs", "dry", "shadow", "quarantine"};
    char path[STORE_PATH_MAX];
    *f = (struct rewarder_files){.disk = disk, .compact_above = COMPACT_ABOVE};
    int n = snprintf(f->root, sizeof f->root, "%s", root);
    if (n < 0 || (size_t)n >= sizeof f->root)
        return ERR_RANGE;
    enum err e = store_disk_mkdirs(disk, root);
    for (size_t i = 0; e == ERR_OK && i < sizeof dirs / sizeof *dirs; i++) {
        join(f, dirs[i], path);
        e = store_disk_mkdirs(disk, path);
    }
    join(f, "LOCK", path);
    if (e == ERR_OK)
        e = store_disk_lock(disk, path, &f->lock);
    join(f, "spool", path);
    if (e == ERR_OK)
        e = store_disk_list(disk, path, remove_entry, f);
    join(f, "registry.log.new", path); /* a rewrite that did not get as far as its rename */
    if (e == ERR_OK && (e = store_disk_unlink(disk, path)) == ERR_NOT_FOUND)
        e = ERR_OK;
    join(f, "registry.log", path);
    if (e == ERR_OK)
        e = store_file_open(disk, path, STORE_WRITE | STORE_CREATE, &f->log);
    if (e == ERR_OK)
        e = store_disk_sync_dir(disk, f->root);
    if (e == ERR_OK)
        e = sync_ancestors(disk, f->root);
    if (e != ERR_OK)
        rewarder_files_close(f);
    return e;
}

void rewarder_files_close(struct rewarder_files *f)
{
    store_file_close(f->log);
    store_file_close(f->lock);
    f->log = f->lock = NULL;
}

static enum err map_file(struct store_file *file, size_t n, struct rewarder_file *out)
{
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, store_file_fd(file), 0);
    if (p == MAP_FAILED)
        return err_from_errno(errno);
    *out = (struct rewarder_file){.bytes = {p, n}, .mapping = p};
    return ERR_OK;
}

static enum err read_file(struct store_file *file, size_t n, struct rewarder_file *out) RT_BLOCKS
{
    uint8_t *p = malloc(n ? n : 1);
    if (!p)
        return ERR_NO_MEMORY;
    enum err e = store_file_read_all(file, p, n, 0);
    if (e != ERR_OK) {
        free(p);
        return e;
    }
    *out = (struct rewarder_file){.bytes = {p, n}};
    return ERR_OK;
}

enum err rewarder_file_load(struct rewarder_files *f, const char *path, struct rewarder_file *out)
{
    struct store_file *file;
    uint64_t n;
    enum err e = store_file_open(f->disk, path, STORE_READ, &file);
    if (e != ERR_OK)
        return e;
    e = store_file_size(file, &n);
    if (e == ERR_OK)
        e = n > READ_MAX && store_file_fd(file) >= 0 ? map_file(file, n, out) : read_file(file, n, out);
    store_file_close(file);
    return e;
}

void rewarder_file_unload(struct rewarder_file *file)
{
    if (file->mapping)
        munmap(file->mapping, file->bytes.n);
    else
        free((void *)(uintptr_t)file->bytes.p);
    *file = (struct rewarder_file){.mapping = NULL};
}

void rewarder_file_rest(const struct rewarder_file *file)
{
    if (file->mapping)
        (void)madvise(file->mapping, file->bytes.n,
                      MADV_DONTNEED); /* a hint: without it all is well, and larger */
}

void rewarder_path_input(const struct rewarder_files *f, const struct sha256 *cid, const char *ext,
                         char out[STORE_PATH_MAX])
{
    char hex[SHA256_HEX_CHARS];
    hex_encode(cid->b, 32, hex);
    int n = snprintf(out, STORE_PATH_MAX, "%s/inputs/%.2s%s%s%s", f->root, hex, *ext ? "/" : "",
                     *ext ? hex : "", ext);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

void rewarder_path_run(const struct rewarder_files *f, bool dry, const char *tenant, const char *epoch,
                       const char *name, char out[STORE_PATH_MAX])
{
    int n = snprintf(out, STORE_PATH_MAX, "%s/%s/%s/%s%s%s", f->root, dry ? "dry" : "runs", tenant, epoch,
                     *name ? "/" : "", name);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

struct run_place {
    struct rewarder_files *files;
    bool dry;
    const char *tenant, *epoch;
};

static enum err remove_sig(void *ctx, const char *name) RT_BLOCKS
{
    const struct run_place *at = ctx;
    char path[STORE_PATH_MAX], relative[128];
    int n = snprintf(relative, sizeof relative, "sigs/%s", name);
    if (n < 0 || (size_t)n >= sizeof relative)
        return ERR_OK; /* not one of ours */
    rewarder_path_run(at->files, at->dry, at->tenant, at->epoch, relative, path);
    enum err e = store_disk_unlink(at->files->disk, path);
    return e == ERR_NOT_FOUND ? ERR_OK : e;
}

enum err rewarder_files_remove_sigs(struct rewarder_files *f, bool dry, const char *tenant,
                                    const char *epoch)
{
    char dir[STORE_PATH_MAX];
    rewarder_path_run(f, dry, tenant, epoch, "sigs", dir);
    enum err e = store_disk_list(f->disk, dir, remove_sig, &(struct run_place){f, dry, tenant, epoch});
    return e == ERR_NOT_FOUND ? ERR_OK : e;
}

enum err rewarder_files_remove_run(struct rewarder_files *f, bool dry, const char *tenant,
                                   const char *epoch)
{
    static const char *const names[] = {"payouts.bin", "tree.bin",        "commitment", "run.json",
                                        "settle.log",  "settlement.json", NULL};
    char path[STORE_PATH_MAX];
    enum err e = ERR_OK;
    for (size_t i = 0; names[i] && (e == ERR_OK || e == ERR_NOT_FOUND); i++) {
        rewarder_path_run(f, dry, tenant, epoch, names[i], path);
        e = store_disk_unlink(f->disk, path);
    }
    if (e != ERR_OK && e != ERR_NOT_FOUND)
        return e;
    e = rewarder_files_remove_sigs(f, dry, tenant, epoch);
    if (e != ERR_OK)
        return e;
    rewarder_path_run(f, dry, tenant, epoch, "seal.json", path);
    return store_file_remove(f->disk, path);
}

void rewarder_path_shadow(const struct rewarder_files *f, const struct sha256 *id, const char *name,
                          char out[STORE_PATH_MAX])
{
    char hex[SHA256_HEX_CHARS];
    hex_encode(id->b, 32, hex);
    int n = snprintf(out, STORE_PATH_MAX, "%s/shadow/%s%s%s", f->root, hex, *name ? "/" : "", name);
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

enum err rewarder_files_write(struct rewarder_files *f, const char *path, struct bytes contents)
{
    struct store_file *file;
    enum err e = store_file_open(f->disk, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &file);
    if (e != ERR_OK)
        return e;
    if (contents.n)
        e = store_file_pwrite(file, contents.p, contents.n, 0);
    if (e == ERR_OK)
        e = store_file_sync(file);
    store_file_close(file);
    return e;
}

/* ---- registry.log ---- */

/* The frame at `at`; false when it is cut off or damaged. */
static bool frame_at(struct bytes all, size_t at, struct bytes *out_line)
{
    if (all.n - at < 8)
        return false;
    uint32_t n = be32_get(all.p + at);
    if (n < 2 || n > LOG_LINE_MAX || n > all.n - at - 8)
        return false; /* also eight zeros, which a lost sector leaves and whose checksum is right */
    *out_line = bytes_of(all.p + at + 8, n);
    return crc32c(0, out_line->p, n) == be32_get(all.p + at + 4);
}

static bool good_frame_after(struct bytes all, size_t at)
{
    struct bytes line;
    for (size_t i = at + 1; i + 8 <= all.n; i++)
        if (frame_at(all, i, &line) && line.p[0] == '{')
            return true;
    return false;
}

enum err rewarder_log_replay(struct rewarder_files *f, rewarder_log_fn *fn, void *ctx)
{
    uint64_t bytes;
    struct rewarder_file file;
    enum err e = store_file_size(f->log, &bytes);
    if (e == ERR_OK)
        e = read_file(f->log, bytes, &file);
    if (e != ERR_OK)
        return e;
    size_t at = 0;
    while (at < file.bytes.n && e == ERR_OK) {
        struct bytes line;
        if (!frame_at(file.bytes, at, &line)) {
            e = good_frame_after(file.bytes, at) ? ERR_CORRUPT : store_file_truncate(f->log, at);
            if (e == ERR_OK)
                e = store_file_sync(f->log);
            break;
        }
        e = fn(ctx, line);
        at += 8 + line.n;
    }
    f->log_end = at;
    rewarder_file_unload(&file);
    return e;
}

enum err rewarder_log_scan(struct rewarder_files *f, rewarder_log_fn *fn, void *ctx,
                           struct rewarder_log_state *out)
{
    uint64_t bytes;
    struct rewarder_file file;
    struct rewarder_log_state st = {.frames = 0};
    enum err e = store_file_size(f->log, &bytes);
    if (e == ERR_OK)
        e = read_file(f->log, bytes, &file);
    if (e != ERR_OK)
        return e;
    for (size_t at = 0; at < file.bytes.n && e == ERR_OK;) {
        struct bytes line;
        if (frame_at(file.bytes, at, &line) && line.p[0] == '{') {
            st.damaged = st.damaged || st.torn;
            st.frames++;
            e = fn(ctx, line);
            at += 8 + line.n;
            continue;
        }
        if (!st.torn)
            st.bad_at = at;
        st.torn = true;
        at++;
    }
    st.torn = st.torn && !st.damaged;
    rewarder_file_unload(&file);
    *out = st;
    return e;
}

void rewarder_log_frame(struct bytes line, struct buf *out)
{
    uint8_t head[8];
    be32_put(head, (uint32_t)line.n);
    be32_put(head + 4, crc32c(0, line.p, line.n));
    buf_put(out, head, sizeof head);
    buf_put_bytes(out, line);
}

enum err rewarder_log_read(struct rewarder_files *f, struct bytes *out)
{
    struct rewarder_file file;
    if (!f->log)
        return ERR_UNAVAILABLE;
    enum err e = read_file(f->log, f->log_end, &file);
    if (e == ERR_OK)
        *out = file.bytes;
    return e;
}

bool rewarder_log_next(struct bytes frames, size_t *at, struct bytes *out_line)
{
    if (*at >= frames.n || !frame_at(frames, *at, out_line))
        return false;
    *at += 8 + out_line->n;
    return true;
}

enum err rewarder_log_rewrite(struct rewarder_files *f, struct bytes frames)
{
    char path[STORE_PATH_MAX], fresh[STORE_PATH_MAX];
    join(f, "registry.log", path);
    join(f, "registry.log.new", fresh);
    enum err e = rewarder_files_write(f, fresh, frames);
    if (e != ERR_OK) {
        (void)!store_disk_unlink(f->disk, fresh);
        return e;
    }
    store_file_close(f->log); /* from here on the name may mean either file */
    f->log = NULL;
    e = store_disk_rename(f->disk, fresh, path);
    if (e == ERR_OK)
        e = store_disk_sync_dir(f->disk, f->root);
    if (e == ERR_OK)
        e = store_file_open(f->disk, path, STORE_WRITE | STORE_CREATE, &f->log);
    if (e == ERR_OK)
        f->log_end = frames.n;
    return e;
}

enum err rewarder_log_append(struct rewarder_files *f, struct bytes line)
{
    uint8_t frame[8 + 4096];
    CHECK(line.n <= sizeof frame - 8);
    if (!f->log)
        return ERR_UNAVAILABLE;
    be32_put(frame, (uint32_t)line.n);
    be32_put(frame + 4, crc32c(0, line.p, line.n));
    memcpy(frame + 8, line.p, line.n);
    enum err e = store_file_pwrite(f->log, frame, 8 + line.n, f->log_end);
    if (e == ERR_OK)
        e = store_file_sync(f->log);
    if (e == ERR_OK)
        f->log_end += 8 + line.n;
    return e;
}

/* ---- settle.log ---- */

void rewarder_settle_encode(const struct rewarder_settle_record *r, uint8_t out[REWARDER_SETTLE_RECORD])
{
    be32_put(out, r->chunk);
    be32_put(out + 4, r->entries);
    be64_put(out + 8, r->seq_start);
    be64_put(out + 16, r->nonce);
    be32_put(out + 24, 0);
    be32_put(out + 28, crc32c(0, out, 28));
}

bool rewarder_settle_decode(const uint8_t in[REWARDER_SETTLE_RECORD], struct rewarder_settle_record *out)
{
    if (crc32c(0, in, 28) != be32_get(in + 28))
        return false;
    *out = (struct rewarder_settle_record){be32_get(in), be32_get(in + 4), be64_get(in + 8),
                                           be64_get(in + 16)};
    return true;
}
