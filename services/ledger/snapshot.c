#include "services/ledger/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/ledger/checkpoint_internal.h"
#include "services/ledger/core/note.h"
#include "services/ledger/files.h"
#include "services/ledger/reads.h"
#include "store/file_replace.h"
#include "store/frame.h"

enum { MANIFEST_TRIES = 5 };

/* What was never written stays a hole: a segment in use is zeros for the most part. Whoever opens the copy fills them. */
static enum err copy_bytes(struct ledger *l, const char *from, const char *to, uint64_t bytes) RT_BLOCKS
{
    enum { STEP = 64 << 10 };
    struct store_file *in = NULL, *out = NULL;
    char *piece = malloc(STEP);
    enum err err = piece == NULL ? ERR_NO_MEMORY : store_file_open(l->deps.disk, from, STORE_READ, &in);
    if (err == ERR_OK)
        err = store_file_open(l->deps.disk, to, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &out);
    for (uint64_t at = 0; err == ERR_OK && at < bytes; at += STEP) {
        size_t n = 0;
        err = store_file_pread(in, piece, bytes - at < STEP ? (size_t)(bytes - at) : STEP, at, &n);
        if (err == ERR_OK && !store_is_zero(piece, n))
            err = store_file_pwrite(out, piece, n, at);
    }
    if (err == ERR_OK)
        err = store_file_truncate(out, bytes);
    if (err == ERR_OK)
        err = store_file_sync(out);
    store_file_close(in);
    store_file_close(out);
    free(piece);
    return err;
}

static void both(const struct ledger *l, const char *dir, const char *name, char from[STORE_PATH_MAX],
                 char to[STORE_PATH_MAX])
{
    store_path_join(from, l->set.dir, name);
    store_path_join(to, dir, name);
}

static enum err copied(struct ledger *l, const char *dir, const char *name, uint64_t bytes) RT_BLOCKS
{
    char from[STORE_PATH_MAX], to[STORE_PATH_MAX];
    both(l, dir, name, from, to);
    return copy_bytes(l, from, to, bytes);
}

/* A file that nobody writes to any more. */
static enum err linked(struct ledger *l, const char *dir, const char *name) RT_BLOCKS
{
    char from[STORE_PATH_MAX], to[STORE_PATH_MAX];
    struct store_stat st;
    both(l, dir, name, from, to);
    enum err err = store_disk_link(l->deps.disk, from, to);
    if (err != ERR_REFUSED)
        return err;
    err = store_disk_stat(l->deps.disk, from, &st);
    return err == ERR_OK ? copy_bytes(l, from, to, st.bytes) : err;
}

static enum err head_of(struct ledger *l, const char *dir, const struct ledger_head *head) RT_BLOCKS
{
    char note[NOTE_MAX], path[STORE_PATH_MAX];
    size_t n = 0;
    enum err err = copied(l, dir, "SUPERBLOCK", 4096);
    if (err == ERR_OK)
        err = ledger_checkpoint_note(l, head->seq, note, &n);
    store_path_join(path, dir, "checkpoint");
    return err == ERR_OK ? store_file_replace(l->deps.disk, path, bytes_of(note, n)) : err;
}

/* ---- journal ---- */

static enum err segment_of(struct ledger *l, const char *dir, const struct store_segment *s) RT_BLOCKS
{
    char name[40], from[STORE_PATH_MAX], to[STORE_PATH_MAX];
    struct store_stat st;
    snprintf(name, sizeof name, "journal/%08u.seg", s->segment_no);
    if (!s->sealed) {
        both(l, dir, name, from, to);
        enum err err = store_disk_stat(l->deps.disk, from, &st);
        return err == ERR_OK ? copy_bytes(l, from, to, st.bytes) : err;
    }
    enum err err = linked(l, dir, name);
    if (err != ERR_NOT_FOUND)
        return err;
    snprintf(name, sizeof name, "journal/%08u.segz", s->segment_no); /* it was packed, perhaps just now */
    return linked(l, dir, name);
}

static enum err journal_of(struct ledger *l, const char *dir) RT_BLOCKS
{
    size_t n = 0;
    struct store_segment *v = ledger_segments(l, &n);
    enum err err = v == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < n; i++)
        err = segment_of(l, dir, &v[i]);
    free(v);
    return err;
}

/* ---- what is derived from it ---- */

static enum err named_by(struct ledger *l, const char *dir, const struct checkpoint_manifest *man) RT_BLOCKS
{
    const struct checkpoint_file *f = man->files.items;
    char name[80];
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < man->files.n; i++) {
        snprintf(name, sizeof name, "%.*s", STR_ARG(f[i].name));
        err = f[i].has_sha256 ? linked(l, dir, name) : copied(l, dir, name, f[i].bytes);
        if (err == ERR_EXISTS)
            err = ERR_OK; /* from a manifest that was tried before: runs never change */
    }
    ledger_checkpoint__name(name, &ledger_checkpoint__manifest, man->entries);
    return err == ERR_OK ? linked(l, dir, name) : err;
}

/* Files may go while we name them, when newer manifests come: then one of those is taken. None at all is fine, too. */
static enum err derived_of(struct ledger *l, const char *dir) RT_BLOCKS
{
    static const char *const folders[] = {"tree", "index", "state", "ckpt"};
    char path[STORE_PATH_MAX];
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < sizeof folders / sizeof folders[0]; i++) {
        store_path_join(path, dir, folders[i]);
        err = store_disk_mkdir(l->deps.disk, path);
    }
    for (unsigned i = 0; err == ERR_OK && i < MANIFEST_TRIES; i++) {
        struct checkpoint_list have = {.n = 0};
        struct checkpoint_manifest man;
        struct arena a;
        err = ledger_checkpoint__list(l, &have);
        if (err != ERR_OK || have.n == 0)
            return err;
        arena_init(&a, 65536, 8 << 20);
        err = ledger_checkpoint__read_manifest(l, have.v[0], &a, &man);
        if (err == ERR_OK)
            err = named_by(l, dir, &man);
        arena_fini(&a);
        if (err == ERR_OK)
            return ERR_OK;
        err = err == ERR_NOT_FOUND ? ERR_OK : err;
    }
    return err == ERR_OK ? ERR_BUSY : err;
}

enum err ledger_snapshot(struct ledger *l, const char *dir, const struct ledger_head *head, bool derived)
{
    char path[STORE_PATH_MAX];
    store_path_join(path, dir, "journal");
    enum err err = store_disk_mkdirs(l->deps.disk, path);
    if (err == ERR_OK)
        err = head_of(l, dir, head);
    if (err == ERR_OK && derived)
        err = derived_of(l, dir);
    return err == ERR_OK ? journal_of(l, dir) : err; /* last: it reaches beyond what stands above */
}
