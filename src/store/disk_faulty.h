/*
 * A disk that fails as told, for crash tests: a page cache over sectors, everything decided by a seed.
 *
 * Calls are numbered from 1. A write changes the cache; a flush makes sectors durable. A power cut keeps, of
 * every sector that was not flushed, either the old or the new contents (512 bytes each, chosen one by one),
 * and of the names that were not flushed a prefix in the order they were changed. What a failed flush left
 * unwritten is not written by a later one, as Linux does it.
 *
 * Ownership   store_disk_destroy frees it. Files opened before a power cut must still be closed; all they
 *             answer is ERR_IO.
 * Threads     As any disk; the numbering is only repeatable with one thread.
 */
#ifndef RON_STORE_DISK_FAULTY_H
#define RON_STORE_DISK_FAULTY_H

#include "store/disk.h"

enum store_keep { STORE_KEEP_RANDOM, STORE_KEEP_NONE, STORE_KEEP_ALL };

/* Call numbers count from the moment the plan is set; 0: never. */
struct store_fault_plan {
    uint64_t crash_at;    /* the call begins (a write may reach the device in part), then power fails */
    uint64_t eio_at;      /* this call fails with ERR_IO, once; a write may have happened in part */
    uint64_t enospc_at;   /* this call, or the next one that needs space, fails with ERR_NO_SPACE */
    uint64_t short_at;    /* this call, or the next write, stops half way */
    uint64_t capacity;    /* bytes that fit; 0: no bound */
    enum store_keep keep; /* what a power cut leaves of unflushed sectors */
    bool no_direct;       /* refuse STORE_DIRECT, as tmpfs does */
};

NODISCARD enum err store_disk_faulty(uint64_t seed, const struct store_fault_plan *plan,
                                     struct store_disk **out);
void store_disk_faulty_plan(struct store_disk *d,
                            const struct store_fault_plan *plan); /* restarts the numbering */
uint64_t store_disk_faulty_calls(const struct store_disk *d);
uint64_t store_disk_faulty_writes(const struct store_disk *d); /* calls that tried to change something */
bool store_disk_faulty_fired(const struct store_disk *d);      /* whether the plan's fault has happened */
bool store_disk_faulty_is_down(const struct store_disk *d);

void store_disk_faulty_cut(struct store_disk *d);    /* power fails now */
void store_disk_faulty_reboot(struct store_disk *d); /* power returns: what survived is all there is */

/* Bit rot, cache and device alike. */
NODISCARD enum err store_disk_faulty_flip(struct store_disk *d, const char *path, uint64_t byte,
                                          unsigned bit);

#endif
