/* What a request leaves behind when nobody works on it any more: a spooled upload, a shadow run that waits, a run told to halt. */
#include "services/rewarder/rewarder.h"

void rewarder_item_abandon(struct rewarder *r, struct rewarder_item *it)
{
    if (it->kind == REWARDER_INGEST) {
        if (it->spool[0])
            (void)!store_disk_unlink(r->files.disk, it->spool);
        atomic_fetch_sub_explicit(&r->spool_used, it->bytes, memory_order_relaxed);
    } else if (it->kind == REWARDER_SHADOW) {
        struct rewarder_shadow *s = rewarder_shadow_find(r, &it->expected);
        if (s) {
            s->failure = ERR_UNAVAILABLE;
            atomic_store_explicit(&s->state, REWARDER_SHADOW_FAILED, memory_order_release);
        }
        rewarder_shadow_unref(s);
    } else if (it->kind == REWARDER_ADMIN && !it->release) {
        atomic_store(&it->run->halt, false);
    }
    rewarder_item_destroy(r, it);
}
