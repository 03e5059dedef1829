#include "services/edge/file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"

enum { READ_STEP = 64 << 10, UNMAP_STEP = 16 << 20 };
static const int64_t ERA_NS = 10000000000;

enum err edge_file_id_of_fd(int fd, struct edge_file_id *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_from_errno(errno);
    *out = (struct edge_file_id){
        .dev = (uint64_t)st.st_dev,
        .ino = (uint64_t)st.st_ino,
        .size = (uint64_t)st.st_size,
        .mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec,
        .ctime_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec,
    };
    return S_ISREG(st.st_mode) ? ERR_OK : ERR_PERMISSION;
}

static enum err map_file(struct edge_file *f)
{
    size_t pages = (size_t)((f->size + EDGE_PAGE - 1) / EDGE_PAGE);
    f->words = (pages + 63) / 64;
    if (f->size == 0)
        return ERR_OK;
    void *at = mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (at == MAP_FAILED)
        return err_from_errno(errno);
    f->bytes = at;
    for (int i = 0; i < 2; i++) {
        f->warm[i] = calloc(f->words, sizeof *f->warm[i]);
        if (!f->warm[i])
            return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

enum err edge_file_of_fd(int fd, struct edge_file **out)
{
    struct edge_file *f = calloc(1, sizeof *f);
    if (!f) {
        close(fd);
        return ERR_NO_MEMORY;
    }
    f->fd = fd;
    atomic_init(&f->refs, 1);
    enum err e = edge_file_id_of_fd(fd, &f->id);
    f->size = f->id.size;
    if (e == ERR_OK)
        e = map_file(f);
    if (e != ERR_OK) {
        edge_file_unref(f);
        return e;
    }
    *out = f;
    return ERR_OK;
}

enum err edge_file_of_memory(const uint8_t *p, size_t n, bool owned, struct edge_file **out)
{
    struct edge_file *f = calloc(1, sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    atomic_init(&f->refs, 1);
    f->fd = -1;
    f->size = f->id.size = n;
    f->bytes = p;
    f->memory = true;
    f->owned = owned;
    *out = f;
    return ERR_OK;
}

struct edge_file *edge_file_ref(struct edge_file *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

/* In slices: while a gigabyte's page tables go, nobody else in the process could map or fault in anything. */
static void unmap_file(const struct edge_file *f)
{
    uint8_t *at = (uint8_t *)(uintptr_t)f->bytes;
    for (size_t left = (size_t)f->size; left;) {
        size_t n = left % UNMAP_STEP ? left % UNMAP_STEP : UNMAP_STEP;
        left -= n;
        CHECK(munmap(at + left, n) == 0);
    }
}

void edge_file_unref(struct edge_file *f)
{
    if (!f)
        return;
    /* Pairs with itself: the last one to leave sees everything the others did. */
    uint32_t before = atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel);
    CHECK(before > 0);
    if (before > 1)
        return;
    if (f->owned)
        free((void *)(uintptr_t)f->bytes);
    else if (!f->memory && f->bytes)
        unmap_file(f);
    if (f->fd >= 0)
        close(f->fd);
    free(f->warm[0]);
    free(f->warm[1]);
    free(f);
}

/* Begins a new era: the older half of what is known is forgotten. A bit lost or kept in a race costs one read or nothing. */
static void turn(struct edge_file *f, int64_t now_ns)
{
    int64_t era = now_ns / ERA_NS, old = atomic_load_explicit(&f->era, memory_order_relaxed);
    if (era == old || !atomic_compare_exchange_strong(&f->era, &old, era))
        return;
    for (int i = 0; i < 2; i++)
        if (i == (era & 1) || era - old > 1)
            for (size_t w = 0; w < f->words; w++)
                atomic_store_explicit(&f->warm[i][w], 0, memory_order_relaxed);
}

static bool page_warm(struct edge_file *f, size_t page)
{
    uint64_t bit = (uint64_t)1 << (page & 63);
    return (atomic_load_explicit(&f->warm[0][page / 64], memory_order_relaxed) |
            atomic_load_explicit(&f->warm[1][page / 64], memory_order_relaxed)) &
           bit;
}

uint64_t edge_file_warm_ahead(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns)
{
    if (f->memory || n == 0)
        return n;
    turn(f, now_ns);
    uint64_t page = at / EDGE_PAGE, last = (at + n - 1) / EDGE_PAGE;
    while (page <= last && page_warm(f, (size_t)page))
        page++;
    return page > last ? n : page * EDGE_PAGE > at ? page * EDGE_PAGE - at : 0;
}

bool edge_file_warm(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns)
{
    return edge_file_warm_ahead(f, at, n, now_ns) == n;
}

static void set_warm(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns)
{
    turn(f, now_ns);
    int current = (int)(atomic_load_explicit(&f->era, memory_order_relaxed) & 1);
    for (size_t page = (size_t)(at / EDGE_PAGE), last = (size_t)((at + n - 1) / EDGE_PAGE); page <= last;
         page++)
        atomic_fetch_or_explicit(&f->warm[current][page / 64], (uint64_t)1 << (page & 63),
                                 memory_order_relaxed);
}

enum err edge_file_read_now(struct edge_file *f, uint64_t at, void *out, size_t n)
{
    if (f->memory) {
        memcpy(out, f->bytes + at, n);
        return ERR_OK;
    }
    struct iovec v = {out, n};
    ssize_t got = preadv2(f->fd, &v, 1, (off_t)at, RWF_NOWAIT);
    if (got < 0 && errno == EOPNOTSUPP) /* tmpfs: always in memory */
        got = pread(f->fd, out, n, (off_t)at);
    return got == (ssize_t)n ? ERR_OK : ERR_BUSY;
}

bool edge_file_warm_now(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns)
{
    uint8_t scratch[READ_STEP];
    if (n > sizeof scratch || edge_file_read_now(f, at, scratch, (size_t)n) != ERR_OK)
        return false;
    set_warm(f, at, n, now_ns);
    return true;
}

enum err edge_file_read(struct edge_file *f, uint64_t at, void *out, size_t n)
{
    uint8_t *to = out;
    if (f->memory) {
        memcpy(out, f->bytes + at, n);
        return ERR_OK;
    }
    while (n) {
        ssize_t got = pread(f->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ERR_IO;
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return ERR_OK;
}

enum err edge_file_warm_up(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns)
{
    uint8_t scratch[READ_STEP];
    if (f->memory)
        return ERR_OK;
    for (uint64_t done = 0; done < n;) {
        size_t step = n - done < sizeof scratch ? (size_t)(n - done) : sizeof scratch;
        enum err e = edge_file_read(f, at + done, scratch, step);
        if (e != ERR_OK)
            return e;
        done += step;
    }
    if (n)
        set_warm(f, at, n, now_ns);
    return ERR_OK;
}

enum err edge_file_hash(struct edge_file *f, uint64_t at, uint64_t n, struct sha256 *out)
{
    uint8_t scratch[READ_STEP];
    struct sha256_ctx c;
    sha256_init(&c);
    for (uint64_t done = 0; done < n;) {
        size_t step = n - done < sizeof scratch ? (size_t)(n - done) : sizeof scratch;
        enum err e = edge_file_read(f, at + done, scratch, step);
        if (e != ERR_OK)
            return e;
        sha256_update(&c, scratch, step);
        done += step;
    }
    sha256_final(&c, out);
    return ERR_OK;
}

static _Atomic uint64_t changes;

void edge_file_set_changed(struct edge_file *f)
{
    atomic_store(&f->changed, true);
    atomic_fetch_add_explicit(&changes, 1, memory_order_release);
}

uint64_t edge_file_changes(void)
{
    return atomic_load_explicit(&changes, memory_order_acquire);
}

bool edge_file_unchanged(struct edge_file *f)
{
    struct edge_file_id now;
    if (f->memory)
        return true;
    if (atomic_load(&f->changed))
        return false;
    /* A rename over the name, or an unlink, changes ctime of what is open but not its bytes. */
    if (edge_file_id_of_fd(f->fd, &now) == ERR_OK && now.size == f->id.size &&
        now.mtime_ns == f->id.mtime_ns)
        return true;
    edge_file_set_changed(f);
    return false;
}

bool edge_file_unchanged_at(struct edge_file *f, int64_t now_ns, int64_t every_ns)
{
    if (now_ns - atomic_load_explicit(&f->looked_ns, memory_order_relaxed) < every_ns)
        return !atomic_load_explicit(&f->changed, memory_order_relaxed);
    atomic_store_explicit(&f->looked_ns, now_ns, memory_order_relaxed);
    return edge_file_unchanged(f);
}
