/*
 * The faulty disk is the memory disk with tracking on and a gate that follows the plan. Faults fire once; after
 * a power cut nothing works until reboot, and then only what had reached the device is there.
 */
#include "store/disk_faulty.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/disk_memory.h"

struct faulty {
    struct memdisk mem; /* first: a struct faulty is a struct memdisk is a struct store_disk */
    struct store_fault_plan plan;
    uint64_t calls, writes;
    bool fired;
};

static struct faulty *faulty_of(const struct store_disk *d)
{
    union {
        const struct store_disk *in;
        struct faulty *out;
    } u = {d};
    return u.out;
}

static bool keep_sector(void *ctx)
{
    struct faulty *x = ctx;
    switch (x->plan.keep) {
    case STORE_KEEP_NONE:
        return false;
    case STORE_KEEP_ALL:
        return true;
    case STORE_KEEP_RANDOM:
        return rng_below(&x->mem.rng, 2);
    }
    UNREACHABLE();
}

static void cut_locked(struct memdisk *d)
{
    struct faulty *x = (struct faulty *)d;
    memfs_cut(&d->fs, keep_sector, x);
    d->down = true;
}

static enum memdisk_verdict fail(struct faulty *x, enum memdisk_verdict v, enum err e, enum err *out_err)
{
    x->fired = true;
    *out_err = e;
    return v;
}

/* "At call k, or the next one it can happen to": disarmed once it has fired. */
static bool due(uint64_t *at, uint64_t now, bool applies)
{
    if (*at == 0 || now < *at || !applies)
        return false;
    *at = 0;
    return true;
}

static enum memdisk_verdict gate(struct memdisk *d, enum memdisk_call call, enum err *out_err)
{
    struct faulty *x = (struct faulty *)d;
    bool writes = call == MEMDISK_WRITE || call == MEMDISK_GROW;
    x->calls++;
    x->writes += call != MEMDISK_READ;
    if (due(&x->plan.crash_at, x->calls, true))
        return fail(x, MEMDISK_CUT, ERR_IO, out_err);
    if (due(&x->plan.eio_at, x->calls, true))
        return fail(x, writes || call == MEMDISK_SYNC ? MEMDISK_HALF : MEMDISK_FAIL, ERR_IO, out_err);
    if (due(&x->plan.enospc_at, x->calls, call == MEMDISK_GROW))
        return fail(x, MEMDISK_FAIL, ERR_NO_SPACE, out_err);
    if (due(&x->plan.short_at, x->calls, writes))
        return fail(x, MEMDISK_HALF, ERR_IO, out_err);
    return MEMDISK_GO;
}

enum err store_disk_faulty(uint64_t seed, const struct store_fault_plan *plan, struct store_disk **out)
{
    struct faulty *x = calloc(1, sizeof *x);
    if (!x)
        return ERR_NO_MEMORY;
    enum err e = memdisk_init(&x->mem, true, 0);
    if (e) {
        free(x);
        return e;
    }
    rng_seed(&x->mem.rng, seed);
    x->mem.gate = gate;
    x->mem.cut = cut_locked;
    store_disk_faulty_plan(&x->mem.base, plan);
    *out = &x->mem.base;
    return ERR_OK;
}

void store_disk_faulty_plan(struct store_disk *d, const struct store_fault_plan *plan)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    x->plan = plan ? *plan : (struct store_fault_plan){0};
    x->mem.bytes_max = x->plan.capacity;
    x->mem.no_direct = x->plan.no_direct;
    x->calls = x->writes = 0;
    x->fired = false;
    rt_lock_release(&x->mem.lock);
}

uint64_t store_disk_faulty_calls(const struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    uint64_t calls = x->calls;
    rt_lock_release(&x->mem.lock);
    return calls;
}

uint64_t store_disk_faulty_writes(const struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    uint64_t writes = x->writes;
    rt_lock_release(&x->mem.lock);
    return writes;
}

bool store_disk_faulty_fired(const struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    bool fired = x->fired;
    rt_lock_release(&x->mem.lock);
    return fired;
}

bool store_disk_faulty_is_down(const struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    bool down = x->mem.down;
    rt_lock_release(&x->mem.lock);
    return down;
}

void store_disk_faulty_cut(struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    if (!x->mem.down)
        cut_locked(&x->mem);
    rt_lock_release(&x->mem.lock);
}

void store_disk_faulty_reboot(struct store_disk *d)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    if (!x->mem.down)
        cut_locked(&x->mem);
    x->mem.down = false;
    x->mem.generation++;
    rt_lock_release(&x->mem.lock);
}

enum err store_disk_faulty_flip(struct store_disk *d, const char *path, uint64_t byte, unsigned bit)
{
    struct faulty *x = faulty_of(d);
    rt_lock_take(&x->mem.lock);
    struct memfs_inode *inode = memfs_find(&x->mem.fs, path);
    enum err e = inode && byte < inode->size ? memfs_flip(&x->mem.fs, inode, byte, bit) : ERR_NOT_FOUND;
    rt_lock_release(&x->mem.lock);
    return e;
}
