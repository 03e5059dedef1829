/*
 * Room for files in amnesia mode, where they are memory: amnesia_max_bytes in all. A sixteenth is kept for lines of registry.log,
 * so that whatever was promised can still be written down; below a quarter the artifact task lets the oldest settled runs go
 * (sweep.c). On a real disk the file system says when it is full.
 */
#include "services/rewarder/rewarder.h"

static const uint64_t free_on_disk_min = 64u << 20;

static uint64_t free_bytes(struct rewarder *r) RT_BLOCKS
{
    uint64_t n;
    return store_disk_free_bytes(r->files.disk, r->files.root, &n) == ERR_OK ? n : 0;
}

bool rewarder_has_room(struct rewarder *r, uint64_t bytes)
{
    return !r->memory || free_bytes(r) >= bytes + rewarder_config(r)->amnesia_max / 16;
}

bool rewarder_is_roomy(struct rewarder *r)
{
    return free_bytes(r) >= (r->memory ? rewarder_config(r)->amnesia_max / 4 : free_on_disk_min);
}

void rewarder_met(struct rewarder *r, enum err e)
{
    if (e == ERR_NO_SPACE)
        atomic_store(&r->disk_full, true);
}

bool rewarder_refuses_more(const struct rewarder *r)
{
    return r->memory && atomic_load(&r->disk_full);
}
