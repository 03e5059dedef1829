#include <stdlib.h>

#include "services/rewarder/rewarder.h"

struct rewarder_shadow *rewarder_shadow_find(struct rewarder *r, const struct sha256 *id)
{
    struct rewarder_shadow *found = NULL;
    rt_lock_take(&r->registry.lock);
    for (size_t i = 0; i < r->shadow_n && !found; i++)
        if (sha256_eq(&r->shadows[i]->id, id))
            found = r->shadows[i];
    if (found)
        atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    rt_lock_release(&r->registry.lock);
    return found;
}

void rewarder_shadow_add(struct rewarder *r, struct rewarder_shadow *s)
{
    struct rewarder_shadow *gone = NULL;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    rt_lock_take(&r->registry.lock);
    if (r->shadow_n == REWARDER_SHADOWS_MAX) {
        gone = r->shadows[0];
        memmove(r->shadows, r->shadows + 1, (REWARDER_SHADOWS_MAX - 1) * sizeof *r->shadows);
        r->shadow_n--;
    }
    r->shadows[r->shadow_n++] = s;
    rt_lock_release(&r->registry.lock);
    rewarder_shadow_unref(gone);
}

void rewarder_shadow_unref(struct rewarder_shadow *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    rewarder_policy_unref(s->base);
    rewarder_policy_unref(s->candidate);
    buf_fini(&s->top);
    buf_fini(&s->csv);
    free(s);
}
