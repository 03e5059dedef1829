/*
 * Reclaiming old segments, the worker's part. Both steps go strictly from the oldest on.
 *
 *   strip  The bodies of the oldest segment may go when nothing in it waits. When little does, it is re-appended (MOVE) a bounded
 *          piece per turn; so it is when dead bytes outweigh the living by DEAD_BYTES, whatever the share.
 *   drop   The index of a stripped segment may go when no key in it is remembered and every topic it names is named by a later
 *          segment. When few keys are left they are re-appended (DEDUP).
 *
 * The rebalancer names the segment and takes the file away; the worker agrees only when everything it did for it, settlements that
 * are written lazily included, is durable: with nothing left in the group.
 */
#include <stdio.h>

#include "services/mailbox/tasks/worker_internal.h"

enum {
    LOOK_EVERY_US = 50000,
    MOVE_BYTES = 64 << 10,
    ENTRIES_PER_TURN = 4096,
    TOPICS_PER_TURN = 1024,
    KEY_BYTES = 144, /* a DEDUP record */
    DEAD_BYTES = 256 << 20,
};

/* Of the files that are there. What is gone already weighs nothing, or a mailbox that has been up for long would copy for ever. */
static bool dead_outweighs(const struct mailbox_lane *l)
{
    const struct mailbox_shard *s = &l->shard;
    uint64_t live = 0,
             all = (uint64_t)store_journal_segments(l->log.journal, NULL, 0) * l->mb->segment_bytes +
                   atomic_load(&l->idx_bytes);
    for (uint32_t k = 0; k < s->segment_n; k++)
        live += s->segment_use[k].waiting_bytes + (uint64_t)s->segment_use[k].keys * KEY_BYTES;
    return all > 2 * live + DEAD_BYTES;
}

static bool worth_moving(const struct mailbox_lane *l, uint64_t bytes)
{
    return bytes * 10 < (uint64_t)l->mb->segment_bytes * 3 || dead_outweighs(l);
}

static enum err reappend(struct mailbox_lane *l, struct mailbox_now now, uint32_t i,
                         size_t *moved) RT_BLOCKS
{
    struct mailbox_entry *e = mailbox_shard_entry(&l->shard, i);
    struct mailbox_rec r;
    enum err err = mailbox_log_read(&l->log, e->segment, e->offset8, e->length64, l->read_buffer, &r);
    if (err == ERR_NOT_FOUND && e->state == MAILBOX_DONE)
        /* Stripped: its index still knows half of the payload's hash, which is enough to tell payloads apart. */
        if ((err = mailbox_log_read_key(&l->log, e, &r)) == ERR_INTEGRITY) {
            struct store_journal_report report = {.bad_reason = "an item of its index is not its own"};
            snprintf(report.bad_file, sizeof report.bad_file, "%08u.idx", e->segment);
            mailbox_lane_found_damage(l, MAILBOX_INTEGRITY_IDX, &report);
        }
    if (err == ERR_OK)
        err = mailbox_shard_reappend(&l->shard, now, i, &r);
    if (err == ERR_OK)
        *moved += e->state == MAILBOX_DONE ? KEY_BYTES : r.whole.n;
    return err;
}

/* Re-appends what of the segment is still needed, a piece of it; keys only when the segment is stripped. */
static void move_entries(struct mailbox_lane *l, struct mailbox_now now, uint32_t segment,
                         bool keys) RT_BLOCKS
{
    struct mailbox_shard *s = &l->shard;
    struct mailbox_reclaim *c = &l->reclaim;
    size_t moved = 0;
    if (c->moving != segment) {
        c->moving = segment;
        c->entry = 0;
    }
    c->busy = true;
    for (uint32_t looked = 0;
         looked < ENTRIES_PER_TURN && moved < MOVE_BYTES && !mailbox_shard_group_full(s); looked++) {
        if (++c->entry >= s->slabs.used) {
            c->entry =
                0; /* once more, for places that were freed and taken again behind the walk; but not at once */
            c->busy = false;
            break;
        }
        const struct mailbox_entry *e = mailbox_shard_entry(s, c->entry);
        if (e->state == MAILBOX_FREE || e->segment != segment || (e->state == MAILBOX_DONE && !keys))
            continue;
        if (reappend(l, now, c->entry, &moved) != ERR_OK) {
            c->entry--; /* no memory, or unreadable: the segment stays and is tried again */
            c->busy = false;
            break;
        }
    }
    obs_counter_add(obs_counter(l->mb->m[MAILBOX_M_moved_bytes]), moved);
}

static void name_topics(struct mailbox_lane *l, uint32_t segment)
{
    struct mailbox_topics *ts = &l->shard.topics;
    struct mailbox_reclaim *c = &l->reclaim;
    if (c->topics_of == segment)
        return;
    c->busy = true;
    for (uint32_t looked = 0; looked < TOPICS_PER_TURN && !mailbox_shard_group_full(&l->shard); looked++) {
        if (++c->topic >= ts->slots) {
            c->topic = 0;
            c->topics_of = segment;
            c->busy = false;
            return;
        }
        if (ts->slot[c->topic])
            mailbox_shard_reappend_topic(&l->shard, ts->slot[c->topic], segment);
    }
}

static void empty_segment(struct mailbox_lane *l, struct mailbox_now now, uint32_t segment) RT_BLOCKS
{
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(&l->shard, segment);
    if (segment && segment != atomic_load(&l->strip_ok) && u->waiting &&
        (l->reclaim.moving == segment || worth_moving(l, u->waiting_bytes)))
        move_entries(l, now, segment, false);
}

static void empty_index(struct mailbox_lane *l, struct mailbox_now now, uint32_t segment) RT_BLOCKS
{
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(&l->shard, segment);
    if (!segment || segment == atomic_load(&l->drop_ok))
        return;
    if (u->waiting + u->keys == 0)
        name_topics(l, segment);
    else if (l->reclaim.moving == segment || worth_moving(l, (uint64_t)u->keys * KEY_BYTES))
        move_entries(l, now, segment, true);
}

void mailbox_worker__reclaim(struct mailbox_lane *l, struct mailbox_now now)
{
    struct mailbox_reclaim *c = &l->reclaim;
    if (mailbox_shard_group_full(&l->shard) || (!c->busy && now.mono_us - c->looked_at_us < LOOK_EVERY_US))
        return;
    c->looked_at_us = now.mono_us;
    c->busy = false;
    empty_index(l, now, atomic_load(&l->drop_wish));
    if (!c->busy && !mailbox_shard_group_full(&l->shard))
        empty_segment(l, now, atomic_load(&l->strip_wish));
}

void mailbox_worker__reclaimed(struct mailbox_lane *l)
{
    uint32_t strip = atomic_load(&l->strip_wish), drop = atomic_load(&l->drop_wish);
    if (l->shard.group.n || l->shard.readonly)
        return;
    if (strip && mailbox_shard_segment_use(&l->shard, strip)->waiting == 0)
        atomic_store(&l->strip_ok, strip);
    const struct mailbox_segment_use *u = mailbox_shard_segment_use(&l->shard, drop);
    if (drop && l->reclaim.topics_of == drop && u->waiting + u->keys == 0)
        atomic_store(&l->drop_ok, drop);
}
