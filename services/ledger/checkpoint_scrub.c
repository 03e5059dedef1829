/*
 * Index runs read again in peace, and what happens to a derived file that turns out to be wrong.
 *
 * Opening compares their ends only, and a look-up believes what it finds: a record that rotted would hide a key, and with it that a unit
 * has been here before. So now and then every byte is compared with its checksum. A run that is wrong ends writing and is put aside: the
 * next start does without it, from an older checkpoint or from the journal, and makes it anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "services/ledger/checkpoint_internal.h"
#include "store/file_replace.h"

enum { PIECE_BYTES = 256 << 10 };

/* ERR_CORRUPT when the n bytes from `at` on do not give `crc`. */
static enum err part_check(struct store_file *f, uint64_t at, uint64_t n, uint32_t crc, uint8_t *piece,
                           struct ledger_reread pace) RT_BLOCKS
{
    uint32_t got = 0;
    for (uint64_t end = at + n; at < end;) {
        size_t some = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
        if (!pace.go_on(pace.ctx, some))
            return ERR_CANCELED;
        enum err err = store_file_read_all(f, piece, some, at);
        if (err != ERR_OK)
            return err;
        got = crc32c(got, piece, some);
        at += some;
    }
    return got == crc ? ERR_OK : ERR_CORRUPT;
}

static enum err file_check(struct store_file *f, uint8_t *piece, struct ledger_reread pace,
                           uint64_t *out_at) RT_BLOCKS
{
    struct ledger_index_layout of;
    uint8_t header[INDEX_RUN_HEADER], footer[INDEX_RUN_FOOTER];
    uint64_t bytes = 0;
    *out_at = 0;
    enum err err = store_file_size(f, &bytes);
    if (err == ERR_OK && bytes < sizeof header + sizeof footer)
        err = ERR_CORRUPT;
    if (err == ERR_OK)
        err = store_file_read_all(f, header, sizeof header, 0);
    if (err == ERR_OK)
        err = store_file_read_all(f, footer, sizeof footer, bytes - sizeof footer);
    if (err == ERR_OK)
        err = ledger_index_layout(header, footer, bytes, &of);
    for (unsigned i = 0; err == ERR_OK && i < INDEX_RUN_PARTS; i++) {
        *out_at = of.part[i].at;
        err = part_check(f, of.part[i].at, of.part[i].bytes, of.part[i].crc, piece, pace);
    }
    return err;
}

/* Whoever comes first: readers, keeper and checkpointer may all meet the same. */
enum err ledger_checkpoint_rotten(struct ledger *l, const char *file, uint64_t at, const char *why)
{
    char path[STORE_PATH_MAX], aside[STORE_PATH_MAX + 8], dir[STORE_PATH_MAX];
    if (atomic_exchange(&l->derived_damaged, true))
        return ERR_CORRUPT;
    snprintf(l->bad_file, sizeof l->bad_file, "%s", file);
    l->bad_offset = at;
    snprintf(l->bad_reason, sizeof l->bad_reason, "%s", why);
    ledger_enter_safe_mode(l, CAUSE_SCRUB, l->bad_file);
    if (l->set.amnesia)
        return ERR_CORRUPT;
    store_path_join(path, l->set.dir, file);
    snprintf(aside, sizeof aside, "%s.bad", path);
    enum err err = store_disk_rename(l->deps.disk, path, aside);
    if (err == ERR_OK && store_path_dir(path, dir))
        err = store_disk_sync_dir(l->deps.disk, dir);
    if (err != ERR_OK)
        obs_log(l->deps.log, OBS_WARN, "put_aside", OBS_STR("file", file), OBS_ERR(err), OBS_END);
    return ERR_CORRUPT;
}

/* The numbers alone: a view that is held keeps whole generations in memory. */
static uint32_t runs_now(struct ledger *l, uint32_t out[INDEX_RUNS_MAX])
{
    struct ledger_view *v = ledger_index_pin(&l->index);
    uint32_t n = v->n_runs;
    for (uint32_t i = 0; i < n; i++)
        out[i] = v->runs[i]->number;
    ledger_view_unpin(v);
    return n;
}

enum err ledger_checkpoint_reread(struct ledger *l, struct ledger_reread pace)
{
    uint32_t numbers[INDEX_RUNS_MAX], n = runs_now(l, numbers);
    uint8_t *piece = malloc(PIECE_BYTES);
    enum err err = piece == NULL ? ERR_NO_MEMORY : ERR_OK;
    for (uint32_t i = 0; err == ERR_OK && i < n; i++) {
        char path[STORE_PATH_MAX];
        struct store_file *f;
        uint64_t at;
        ledger_checkpoint__path(l, path, &ledger_checkpoint__index, numbers[i]);
        err = store_file_open(l->deps.disk, path, STORE_READ, &f);
        if (err == ERR_NOT_FOUND) { /* merged meanwhile */
            err = ERR_OK;
            continue;
        }
        if (err != ERR_OK)
            break;
        err = file_check(f, piece, pace, &at);
        store_file_close(f);
        if (err == ERR_CORRUPT) {
            char name[64];
            ledger_checkpoint__name(name, &ledger_checkpoint__index, numbers[i]);
            err = ledger_checkpoint_rotten(l, name, at, "does not match its checksum");
        }
    }
    free(piece);
    return err;
}
