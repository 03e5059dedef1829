/*
 * Opens ledgers whose derived files were changed: manifests, index runs, state runs, tree, group table. A good folder with two
 * checkpoints is made once; an input is a list of changes of six bytes: which file, what to do (xor a byte, cut it, copy a part of it,
 * remove it), where. A first byte that is odd gives changed manifests a fitting CRC again, so that what is behind it is read.
 *
 * Whatever comes in: no crash. The journal is whole, so unless a manifest lies under a CRC that fits, the ledger opens, and head, root
 * and state are what they were: derived damage costs time, nothing else. Units are known again; of an index run only the ends are
 * compared when opening, so that is not asked when its inside was changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/ledger/rig.h"
#include "base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { FILES_MAX = 64, UNITS = 40 };

struct kept {
    char path[96];
    struct buf bytes;
};
static struct {
    struct kept v[FILES_MAX];
    size_t n, n_derived; /* derived ones first */
    struct ledger_head head;
    struct sha256 digest;
} good;

/* ---- the good folder ---- */

static struct store_disk *listing;
static const char *folder;

RT_BLOCKS
static enum err keep(void *ctx, const char *name)
{
    struct kept *k = &good.v[good.n];
    (void)ctx;
    CHECK(good.n < FILES_MAX);
    snprintf(k->path, sizeof k->path, "%s%s%s", folder[0] == '.' ? "" : folder, folder[0] == '.' ? "" : "/",
             name);
    buf_init(&k->bytes, 1 << 20);
    if (store_file_slurp(listing, k->path, &k->bytes) == ERR_OK) /* a folder is none */
        good.n++;
    else
        buf_fini(&k->bytes);
    return ERR_OK;
}

RT_BLOCKS
static void keep_all(struct store_disk *d)
{
    static const char *const folders[] = {"led/ckpt", "led/index",   "led/state",
                                          "led/tree", "led/journal", "led"};
    listing = d;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        folder = folders[i];
        if (i == 4)
            good.n_derived = good.n;
        CHECK(store_disk_list(d, folder, keep, NULL) == ERR_OK);
    }
    folder = ".";
    CHECK(keep(NULL, "key") == ERR_OK);
}

static struct rig_outcome send(struct rig *r, unsigned i) RT_BLOCKS
{
    char id[16], to[16];
    struct rig_outcome out = {0};
    snprintf(id, sizeof id, "e%u", i);
    snprintf(to, sizeof to, "acct:%u", i % 7);
    struct core_entry e = {.id = str_from_c(id),
                           .ts = 1 + i,
                           .kind = i == 0 ? CORE_MINT : CORE_TRANSFER,
                           .account = STR("acct:a"),
                           .to = i == 0 ? (struct str){NULL, 0} : str_from_c(to),
                           .asset = STR("ron"),
                           .amount = {i == 0 ? 1000000 : 3},
                           .nonce = i};
    struct core_unit u = {str_from_c(id), {NULL, 0}, 0, &e, 1};
    rig_one(r, &u, &out);
    return out;
}

RT_BLOCKS
static void make_good(void)
{
    struct rig r;
    struct store_disk *d;
    CHECK(store_disk_memory(0, &d) == ERR_OK);
    rig_init(&r, d);
    CHECK(rig_open(&r) == ERR_OK);
    for (unsigned i = 0; i < UNITS; i++) {
        if (i == 12 || i == 25) {
            atomic_store(&r.l->want_gen, true);
            CHECK(send(&r, i).verdict == VERDICT_COMMITTED && rig_checkpoint(&r) == ERR_OK);
            continue;
        }
        CHECK(send(&r, i).verdict == VERDICT_COMMITTED);
    }
    ledger_head_read(r.l, &good.head);
    ledger_state_digest(r.l->state, &good.digest);
    ledger_close(r.l, false);
    keep_all(d);
    store_disk_destroy(d);
    CHECK(good.n_derived >= 10 && good.head.seq == UNITS);
}

/* ---- a changed copy ---- */

static void change(struct buf *b, const uint8_t *p, bool *out_gone)
{
    size_t at = b->n == 0 ? 0 : be16_get(p + 2) % b->n, n = p[4] % 32;
    switch (p[1] % 4) {
    case 0:
        if (b->n > 0)
            b->p[at] ^= p[5];
        break;
    case 1:
        buf_truncate(b, at);
        break;
    case 2:
        if (b->n >= 2 * n && n > 0)
            memmove(b->p + at % (b->n - n + 1), b->p + p[5] % (b->n - n + 1), n);
        break;
    default:
        *out_gone = true;
    }
}

static void seal(struct buf *b)
{
    if (b->n < 10)
        return;
    char crc[9];
    snprintf(crc, sizeof crc, "%08x", crc32c(0, b->p, b->n - 9));
    memcpy(b->p + b->n - 8, crc, 8);
}

/* True: what is inside an index run is as it was. */
RT_BLOCKS
static bool put_back(struct store_disk *d, const uint8_t *p, size_t n, bool sealed)
{
    bool index_whole = true;
    static const char *const folders[] = {"led",       "led/journal", "led/tree",
                                          "led/index", "led/state",   "led/ckpt"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        CHECK(store_disk_mkdir(d, folders[i]) == ERR_OK);
    for (size_t i = 0; i < good.n; i++) {
        struct buf b;
        bool gone = false, touched = false;
        buf_init(&b, 1 << 20);
        buf_put_bytes(&b, buf_bytes(&good.v[i].bytes));
        for (size_t at = 0; i < good.n_derived && at + 6 <= n; at += 6)
            if (p[at] % good.n_derived == i) {
                change(&b, p + at, &gone);
                touched = true;
            }
        index_whole = index_whole && !(touched && strstr(good.v[i].path, "/index/") != NULL);
        if (sealed && touched && strstr(good.v[i].path, "MANIFEST") != NULL)
            seal(&b);
        if (!gone)
            CHECK(store_file_replace(d, good.v[i].path, buf_bytes(&b)) == ERR_OK);
        buf_fini(&b);
    }
    return index_whole;
}

RT_BLOCKS
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct rig r;
    struct store_disk *d;
    if (good.n == 0)
        make_good();
    if (n < 1)
        return 0;
    bool sealed = p[0] & 1;
    CHECK(store_disk_memory(0, &d) == ERR_OK);
    rig_init(&r, d);
    bool index_whole = put_back(d, p + 1, n - 1, sealed);
    enum err err = rig_open(&r);
    CHECK(sealed || err == ERR_OK);
    if (err == ERR_OK && !sealed) {
        struct ledger_head head;
        struct sha256 digest;
        CHECK(ledger_safe_cause(r.l) == CAUSE_NONE);
        ledger_head_read(r.l, &head);
        ledger_state_digest(r.l->state, &digest);
        CHECK(head.seq == UNITS && sha256_eq(&head.root, &good.head.root) &&
              sha256_eq(&digest, &good.digest));
        for (unsigned i = 0; index_whole && i < UNITS; i++)
            CHECK(send(&r, i).verdict == VERDICT_DUPLICATE);
        CHECK(store_sink_prepare(r.l->sink) == ERR_OK && send(&r, UNITS).verdict == VERDICT_COMMITTED);
    }
    if (err == ERR_OK)
        ledger_close(r.l, false);
    store_disk_destroy(d);
    return 0;
}
