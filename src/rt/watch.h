/*
 * Watch: one value, last write wins. Readers get the newest, may wait for a newer one, and may miss some.
 *
 * Ownership   Values are immutable and shared. rt_watch_publish() takes over the caller's reference; a reader
 *             gets one of its own (spec.ref) and drops it (spec.unref). Without these hooks values are plain
 *             words: small integers cast to pointers, or objects that outlive the watch.
 * Threads     Every function from any thread, none while a lock is held. `ref` runs under the watch's mutex and
 *             must not wait; `unref` runs outside.
 * Versions    1 for the initial value, then one more per publication.
 */
#ifndef RON_RT_WATCH_H
#define RON_RT_WATCH_H

#include <stdint.h>

#include "base/err.h"
#include "rt/deadline.h"
#include "rt/lock.h"

struct rt_watch_spec {
    const char *name; /* as in topology.def */
    void *initial;
    void (*ref)(void *value);
    void (*unref)(void *value);
};

struct rt_watch;

struct rt_watch *rt_watch_create(const struct rt_watch_spec *spec); /* NULL: no memory */
void rt_watch_destroy(struct rt_watch *w); /* drops the value; nobody uses it any more */

void rt_watch_publish(struct rt_watch *w, void *value);
void *rt_watch_get(struct rt_watch *w, uint64_t *out_version); /* out_version may be NULL */
uint64_t rt_watch_version(const struct rt_watch *w);           /* lock-free: has anything changed? */

/*
 * Waits until the version is not `seen`, then answers as rt_watch_get(). ERR_TIMEOUT; ERR_CLOSED when closed and
 * nothing newer is there; ERR_CANCELED as soon as the calling task is to stop, even softly.
 */
NODISCARD enum err rt_watch_wait(struct rt_watch *w, uint64_t seen, struct deadline by, void **out_value,
                                 uint64_t *out_version) RT_BLOCKS;

void rt_watch_close(struct rt_watch *w); /* the last value stays readable */

#endif
