#include "services/mailbox/reshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "store/file_replace.h"

/* A shard of which only some buckets are read, or none: then only its end is known, to go on from there. */
struct side {
    struct mailbox_shard *shard;
    struct mailbox_log log;
    void *group;
    uint16_t mine[MAILBOX_BUCKETS];
    char dir[STORE_PATH_MAX];
};

/* What is known of a giver's topic: its id in the journal it goes to, and the last group there that names it. */
struct copied {
    uint32_t id;
    uint64_t named;
};

/* ---- sides ---- */

static void close_side(struct side *x) RT_BLOCKS
{
    if (!x)
        return;
    if (x->shard) {
        mailbox_log_close(&x->log);
        mailbox_shard_fini(x->shard);
    }
    free(x->shard);
    free(x->group);
    free(x);
}

static enum err open_side(struct mailbox_reshard *r, uint16_t no, bool read_only, struct side *x) RT_BLOCKS
{
    struct store_journal_report report = {0};
    mailbox_log_shard_dir(x->dir, r->dir, no);
    x->group = malloc(MAILBOX_GROUP_MEMORY);
    struct mailbox_shard *s = calloc(1, sizeof *s);
    enum err e = s && x->group ? mailbox_shard_init(s, no, r->rules, rng_secure_u64(), r->now, x->group)
                               : ERR_NO_MEMORY;
    if (e != ERR_OK) {
        free(s);
        return e;
    }
    x->shard = s;
    if (!read_only)
        e = store_disk_mkdirs(r->disk, x->dir);
    if (e == ERR_OK || e == ERR_EXISTS)
        e = mailbox_log_open(&x->log, s,
                             &(struct mailbox_log_config){.disk = r->disk,
                                                          .dir = x->dir,
                                                          .instance = r->instance,
                                                          .routing = x->mine,
                                                          .segment_bytes = r->segment_bytes,
                                                          .direct = r->direct,
                                                          .read_only = read_only,
                                                          .trust_idx = true,
                                                          .clock = r->clock,
                                                          .now = r->now},
                             &report);
    if (e == ERR_OK && report.damaged)
        e = ERR_CORRUPT;
    return e;
}

/* ---- writing ---- */

static enum err make_room(struct mailbox_reshard *r, struct side *to) RT_BLOCKS
{
    uint64_t free_bytes = 0;
    if (mailbox_log_has_room(&to->log))
        return ERR_OK;
    enum err e = store_journal_adopt_spares(to->log.journal);
    if (e != ERR_OK || !store_journal_wants_spare(to->log.journal))
        return e;
    if (r->min_free && store_disk_free_bytes(r->disk, to->dir, &free_bytes) == ERR_OK &&
        free_bytes < r->min_free + r->segment_bytes)
        return ERR_NO_SPACE;
    return store_journal_prepare_spare(to->log.journal);
}

static enum err commit(struct mailbox_reshard *r, struct side *to) RT_BLOCKS
{
    if (r->go_on && !r->go_on(r->ctx))
        return ERR_CANCELED;
    if (to->shard->group.n == 0)
        return ERR_OK;
    enum err e = make_room(r, to);
    return e == ERR_OK ? mailbox_log_commit(&to->log, r->now) : e;
}

/* Named in this group, so that whatever segment it lands in names what it holds. */
static void name_topic(struct side *to, const struct mailbox_topic *t, struct copied *c)
{
    if (c->named == to->log.next_group)
        return;
    mailbox_shard_adopt_topic(to->shard, t, &c->id);
    c->named = to->log.next_group;
}

static enum err copy_topics(struct mailbox_reshard *r, struct side *from, struct side *to,
                            const uint16_t *owner, struct copied *known) RT_BLOCKS
{
    const struct mailbox_topics *ts = &from->shard->topics;
    enum err e = ERR_OK;
    for (uint32_t k = 1; e == ERR_OK && k < ts->slots; k++) {
        const struct mailbox_topic *t = ts->slot[k];
        if (!t || owner[t->bucket] != to->shard->no)
            continue;
        if (mailbox_shard_group_full(to->shard))
            e = commit(r, to);
        if (e == ERR_OK)
            name_topic(to, t, &known[k]);
        r->topics++;
    }
    return e;
}

/* The body, or of a key whose segment was stripped the half of the payload's hash that its index knows. */
static enum err read_body(struct side *from, const struct mailbox_entry *e, uint8_t *buffer,
                          struct mailbox_rec *out) RT_BLOCKS
{
    enum err err = mailbox_log_read(&from->log, e->segment, e->offset8, e->length64, buffer, out);
    if (err != ERR_NOT_FOUND || e->state != MAILBOX_DONE)
        return err;
    return mailbox_log_read_key(&from->log, e, out);
}

static enum err copy_entries(struct mailbox_reshard *r, struct side *from, struct side *to,
                             const uint16_t *owner, struct copied *known) RT_BLOCKS
{
    struct mailbox_shard *s = from->shard;
    uint8_t *buffer = malloc(MAILBOX_REC_BYTES_MAX + 64);
    enum err e = buffer ? ERR_OK : ERR_NO_MEMORY;
    for (uint32_t i = 1; e == ERR_OK && i < s->slabs.used; i++) {
        const struct mailbox_entry *en = mailbox_shard_entry(s, i);
        struct mailbox_rec body;
        if (en->state == MAILBOX_FREE || owner[mailbox_id_bucket(&en->msg_id)] != to->shard->no)
            continue;
        if (mailbox_shard_group_full(to->shard))
            e = commit(r, to);
        if (e == ERR_OK)
            e = read_body(from, en, buffer, &body);
        if (e != ERR_OK)
            break;
        const struct mailbox_topic *t = mailbox_shard_topic_of(s, i);
        name_topic(to, t, &known[t->slot]);
        mailbox_shard_adopt(to->shard, known[t->slot].id, s, i, &body);
        r->keys += en->state == MAILBOX_DONE;
        r->messages += en->state != MAILBOX_DONE;
    }
    free(buffer);
    return e;
}

/* ---- the change ---- */

/* Opened with the first giver and kept for the others. */
static enum err receiver(struct mailbox_reshard *r, uint16_t no, struct side **slot) RT_BLOCKS
{
    if (*slot)
        return ERR_OK;
    *slot = calloc(1, sizeof **slot);
    if (!*slot)
        return ERR_NO_MEMORY;
    for (int b = 0; b < MAILBOX_BUCKETS; b++)
        (*slot)->mine[b] = MAILBOX_NOBODY; /* only its end is wanted */
    return open_side(r, no, false, *slot);
}

/* Everything of the giver's that goes to this shard. */
static enum err hand_over(struct mailbox_reshard *r, struct side *from, struct side *to,
                          const uint16_t *owner, struct copied *known) RT_BLOCKS
{
    for (int b = 0; b < MAILBOX_BUCKETS; b++)
        if (from->mine[b] == from->shard->no && owner[b] == to->shard->no)
            mailbox_shard_adopt_bucket(to->shard, (uint16_t)b);
    enum err e = copy_topics(r, from, to, owner, known);
    if (e == ERR_OK)
        e = copy_entries(r, from, to, owner, known);
    return e == ERR_OK ? commit(r, to) : e;
}

/* Which shards get something from this one; false: none does. */
static bool receivers(const struct mailbox_routing *from, const struct mailbox_routing *to, uint16_t giver,
                      uint16_t mine[MAILBOX_BUCKETS], bool gets[MAILBOX_SHARDS_MAX])
{
    bool any = false;
    memset(gets, 0, MAILBOX_SHARDS_MAX * sizeof *gets);
    for (int b = 0; b < MAILBOX_BUCKETS; b++) {
        bool moves = from->of[b] == giver && to->of[b] != giver;
        mine[b] = moves ? giver : MAILBOX_NOBODY;
        if (moves)
            gets[to->of[b]] = any = true;
    }
    return any;
}

static enum err give(struct mailbox_reshard *r, const struct mailbox_routing *from,
                     const struct mailbox_routing *to, uint16_t giver, struct side **open) RT_BLOCKS
{
    struct side *x = calloc(1, sizeof *x);
    struct copied *known = NULL;
    bool gets[MAILBOX_SHARDS_MAX];
    enum err e = ERR_OK;
    if (!x)
        return ERR_NO_MEMORY;
    if (receivers(from, to, giver, x->mine, gets)) {
        e = open_side(r, giver, true, x);
        if (e == ERR_OK && !(known = calloc(x->shard->topics.slots + 1, sizeof *known)))
            e = ERR_NO_MEMORY;
        for (uint16_t no = 0; e == ERR_OK && no < to->shards; no++) {
            if (!gets[no])
                continue;
            e = receiver(r, no, &open[no]);
            if (e == ERR_OK)
                e = hand_over(r, x, open[no], to->of, known);
        }
    }
    free(known);
    close_side(x);
    return e;
}

struct sweep {
    struct store_disk *disk;
    char dir[STORE_PATH_MAX];
};

static enum err drop_name(void *ctx, const char *name) RT_BLOCKS
{
    const struct sweep *w = ctx;
    char path[STORE_PATH_MAX];
    if (name[0] == '.')
        return ERR_OK;
    store_path_join(path, w->dir, name);
    return store_disk_unlink(w->disk, path);
}

enum err mailbox_reshard_sweep(struct store_disk *disk, const char *dir, uint16_t from)
{
    enum err e = ERR_OK;
    for (uint16_t no = from; e == ERR_OK && no < MAILBOX_SHARDS_MAX; no++) {
        struct sweep w = {.disk = disk};
        struct store_stat st;
        mailbox_log_shard_dir(w.dir, dir, no);
        if (store_disk_stat(disk, w.dir, &st) != ERR_OK)
            continue;
        e = store_disk_list(disk, w.dir, drop_name, &w);
        if (e == ERR_OK)
            e = store_disk_sync_dir(disk, w.dir);
    }
    return e;
}

enum err mailbox_reshard(struct mailbox_reshard *r, const struct mailbox_routing *from,
                         const struct mailbox_routing *to)
{
    struct side *open[MAILBOX_SHARDS_MAX] = {NULL};
    r->topics = r->messages = r->keys = 0;
    enum err e = mailbox_reshard_sweep(r->disk, r->dir, from->shards);
    for (uint16_t giver = 0; e == ERR_OK && giver < from->shards; giver++)
        e = give(r, from, to, giver, open);
    for (int no = 0; no < MAILBOX_SHARDS_MAX; no++)
        close_side(open[no]);
    if (e == ERR_OK)
        e = mailbox_routing_save(r->disk, r->dir, to);
    if (e == ERR_OK)
        e = mailbox_reshard_sweep(r->disk, r->dir, to->shards);
    return e;
}
