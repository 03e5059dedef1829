/* Names and bytes of the files that checkpoints are made of. */
#include "services/ledger/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "store/file_replace.h"

enum { STEP = 1 << 20 };

const struct checkpoint_name ledger_checkpoint__level = {"tree/", 2, ""};
const struct checkpoint_name ledger_checkpoint__index = {"index/", 8, ".run"};
const struct checkpoint_name ledger_checkpoint__state = {"state/", 8, ".run"};
const struct checkpoint_name ledger_checkpoint__manifest = {"ckpt/MANIFEST-", 20, ".json"};

void ledger_checkpoint__name(char out[64], const struct checkpoint_name *k, uint64_t n)
{
    snprintf(out, 64, "%s%0*llu%s", k->prefix, k->digits, (unsigned long long)n, k->suffix);
}

void ledger_checkpoint__path(const struct ledger *l, char out[STORE_PATH_MAX],
                             const struct checkpoint_name *k, uint64_t n)
{
    char name[64];
    ledger_checkpoint__name(name, k, n);
    store_path_join(out, l->set.dir, name);
}

struct ledger_runs *ledger_checkpoint__runs(struct ledger *l)
{
    if (l->runs == NULL) {
        l->runs = calloc(1, sizeof(struct ledger_runs));
        CHECK(l->runs != NULL);
        l->runs->next_number = 1;
    }
    return l->runs;
}

void ledger_checkpoint__ends(const uint8_t *p, size_t n, size_t footer, struct sha256 *out)
{
    struct bytes parts[] = {bytes_of(p, 64), bytes_of(p + n - footer, footer)};
    sha256_of_parts(parts, 2, out);
}

enum err ledger_checkpoint__map(struct ledger *l, const char *path, struct checkpoint_bytes *out) RT_BLOCKS
{
    struct store_file *f;
    uint64_t n = 0;
    enum err err = store_file_open(l->deps.disk, path, STORE_READ, &f);
    if (err != ERR_OK)
        return err;
    struct checkpoint_bytes b = {NULL, 0, false};
    err = store_file_size(f, &n);
    b.n = n;
    if (err == ERR_OK && n > 0 && store_file_fd(f) >= 0) {
        b.p = mmap(NULL, n, PROT_READ, MAP_SHARED, store_file_fd(f), 0);
        b.mapped = b.p != MAP_FAILED;
        if (!b.mapped)
            b.p = NULL;
    }
    if (err == ERR_OK && b.p == NULL) {
        b.p = malloc(n + 1);
        err = b.p == NULL ? ERR_NO_MEMORY : store_file_read_all(f, b.p, n, 0);
    }
    store_file_close(f);
    if (err == ERR_OK)
        *out = b;
    else
        free(b.p);
    return err;
}

void ledger_checkpoint__unmap(struct checkpoint_bytes *b)
{
    if (b->mapped)
        CHECK(munmap(b->p, b->n) == 0);
    else
        free(b->p);
    b->p = NULL;
}

void ledger_checkpoint__out_open(struct ledger *l, const char *path, struct checkpoint_out *out)
{
    *out = (struct checkpoint_out){.l = l, .piece = malloc(STEP)};
    out->err = out->piece == NULL ? ERR_NO_MEMORY
                                  : store_file_open(l->deps.disk, path,
                                                    STORE_WRITE | STORE_CREATE | STORE_TRUNC, &out->file);
}

static void out_flush(struct checkpoint_out *out) RT_BLOCKS
{
    if (out->err != ERR_OK || out->held == 0)
        return;
    out->err = store_file_pwrite(out->file, out->piece, out->held, out->at);
    if (out->err == ERR_OK)
        out->err = store_file_write_out(out->file, out->at, out->held);
    out->at += out->held;
    out->held = 0;
}

void ledger_checkpoint__out_put(struct checkpoint_out *out, const void *p, size_t n)
{
    const uint8_t *from = p;
    while (n > 0 && out->err == ERR_OK) {
        size_t some = n < STEP - out->held ? n : STEP - out->held;
        memcpy(out->piece + out->held, from, some);
        out->held += some;
        from += some;
        n -= some;
        if (out->held == STEP)
            out_flush(out);
    }
}

void ledger_checkpoint__out_front(struct checkpoint_out *out, const void *p, size_t n)
{
    out_flush(out);
    CHECK(out->err != ERR_OK || n <= out->at);
    if (out->err == ERR_OK)
        out->err = store_file_pwrite(out->file, p, n, 0);
}

void ledger_checkpoint__out_drop(struct checkpoint_out *out)
{
    store_file_close(out->file);
    free(out->piece);
    out->file = NULL;
    out->piece = NULL;
}

enum err ledger_checkpoint__out_close(struct checkpoint_out *out, const char *path)
{
    char dir[STORE_PATH_MAX];
    out_flush(out);
    if (out->err == ERR_OK)
        out->err = store_file_sync(out->file);
    ledger_checkpoint__out_drop(out);
    CHECK(store_path_dir(path, dir));
    return out->err == ERR_OK ? store_disk_sync_dir(out->l->deps.disk, dir) : out->err;
}

void ledger_checkpoint__unwrite(struct ledger *l, const char *path)
{
    enum err err = store_disk_unlink(l->deps.disk, path);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        obs_log(l->deps.log, OBS_WARN, "checkpoint_leftover", OBS_STR("path", path), OBS_ERR(err), OBS_END);
}

enum err ledger_checkpoint__write_run(struct ledger *l, const char *path, const void *p, size_t n)
{
    struct checkpoint_out out;
    ledger_checkpoint__out_open(l, path, &out);
    ledger_checkpoint__out_put(&out, p, n);
    return ledger_checkpoint__out_close(&out, path);
}
