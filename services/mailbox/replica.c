#include "services/mailbox/replica.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "rt/task.h"
#include "store/file_replace.h"

enum { BATCH = 64, LOADS = 4 };

static struct deadline in_time(const struct mailbox_replica *x)
{
    return deadline_in_ms(x->timeout_ms);
}

static enum err refuse(struct mailbox *mb, enum err e, const char *why)
{
    obs_log(svc_log(mb->svc), OBS_ERROR, "replica_refused", OBS_ERR(e), OBS_STR("why", why), OBS_END);
    return e;
}

void mailbox_replica_stream(const struct mailbox_replica *x, uint16_t shard, char out[MAILBOX_SHARD_STREAM])
{
    snprintf(out, MAILBOX_SHARD_STREAM, "%s/%02u", x->stream, shard);
}

/* ---- identity: what must be the same on all nodes ---- */

struct identity {
    struct str instance;
    uint64_t shards, segment_bytes;
};

static const struct json_field identity_fields[] = {
    JSON_REQ(struct identity, instance, JSON_KIND_STR, .min = 32, .max = 32),
    JSON_REQ(struct identity, shards, JSON_KIND_U64, .min = 1, .max = MAILBOX_SHARDS_MAX),
    JSON_REQ(struct identity, segment_bytes, JSON_KIND_U64),
    JSON_END,
};

static void identity_text(const struct mailbox *mb, char out[STORE_LEASE_IDENTITY_MAX + 1])
{
    char id[33];
    hex_encode(mb->instance, 16, id);
    snprintf(out, STORE_LEASE_IDENTITY_MAX + 1,
             "{\"instance\":\"%s\",\"shards\":%u,\"segment_bytes\":%llu}", id, mb->shards,
             (unsigned long long)mailbox_config(mb)->segment_bytes);
}

/* A node without a directory takes over the identity of the mailbox that is there. */
static enum err adopt(struct mailbox *mb, const char *text)
{
    struct arena a;
    struct json_error why;
    struct identity in = {0};
    arena_init(&a, 1024, 65536);
    enum err e = json_read_dto(bytes_of(text, strlen(text)), identity_fields, &in, &a, &why);
    if (e == ERR_OK)
        e = hex_decode(in.instance, mb->instance, 16);
    arena_fini(&a);
    if (e != ERR_OK)
        return refuse(mb, ERR_CONFLICT, "the stream in PostgreSQL is not a mailbox's (replica.stream)");
    if (in.segment_bytes != mailbox_config(mb)->segment_bytes)
        return refuse(mb, ERR_CONFLICT, "storage.segment_bytes must be the same on all nodes");
    mb->shards = (uint16_t)in.shards;
    return ERR_OK;
}

static void who_we_are(struct mailbox *mb, struct mailbox_replica *x)
{
    const struct mailbox_config *cfg = mailbox_config(mb);
    char url[257];
    const char *oap = cfg->replica_advertise_oap[0] ? cfg->replica_advertise_oap : svc_oap_bind(mb->svc);
    snprintf(x->stream, sizeof x->stream, "%.*s", MAILBOX_STREAM_MAX, cfg->replica_stream);
    svc_place(mb->svc, cfg->replica_node, cfg->replica_advertise, x->node, url);
    snprintf(x->place, sizeof x->place, "%.180s %.70s", url, oap);
    x->lease_ms = cfg->replica_lease;
    x->timeout_ms = cfg->replica_timeout;
}

enum err mailbox_replica_open(struct mailbox *mb)
{
    const struct mailbox_config *cfg = mailbox_config(mb);
    char first[MAILBOX_SHARD_STREAM];
    struct store_lease lease;
    if (!cfg->replica_dsn[0] || svc_amnesia(mb->svc))
        return ERR_OK;
    struct mailbox_replica *x = calloc(1, sizeof *x);
    if (!x)
        return ERR_NO_MEMORY;
    mb->replica = x;
    rt_lock_init(&x->lock, "shard_owners", 42);
    who_we_are(mb, x);
    enum err e = store_pg_stream_create(cfg->replica_dsn, x->node, (unsigned)cfg->replica_quorum, &x->db);
    if (e != ERR_OK)
        return refuse(mb, e, "replica.dsn cannot be read as a PostgreSQL connection string");
    mailbox_replica_stream(x, 0, first);
    e = store_pg_connect(x->db, in_time(x));
    if (e == ERR_OK)
        e = store_pg_lease_read(x->db, first, in_time(x), &lease);
    if (e == ERR_NOT_FOUND &&
        !mailbox_files_made(mb, svc_data_dir(mb->svc))) { /* whoever is first founds it */
        char ours[STORE_LEASE_IDENTITY_MAX + 1];
        rng_secure(mb->instance, sizeof mb->instance);
        mb->shards = mailbox_shards_at_first(cfg);
        identity_text(mb, ours);
        e = store_pg_lease_found(x->db, first, ours, in_time(x), &lease);
    }
    if (e == ERR_NOT_FOUND)
        return ERR_OK; /* by META */
    return e == ERR_OK ? adopt(mb, lease.identity) : refuse(mb, e, store_pg_why(x->db));
}

/* A journal in a directory, and a stream nobody has ever written to: these messages are known nowhere else. */
static bool has_own_journal(struct mailbox *mb, uint16_t shard) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    struct mailbox_idx_files f;
    snprintf(dir, sizeof dir, "%.400s/s%02u", svc_data_dir(mb->svc), shard);
    return mailbox_idx_list(svc_disk(mb->svc), dir, &f) == ERR_OK && (f.first_seg || f.first_idx);
}

enum err mailbox_replica_found(struct mailbox *mb)
{
    struct mailbox_replica *x = mb->replica;
    char ours[STORE_LEASE_IDENTITY_MAX + 1], stream[MAILBOX_SHARD_STREAM];
    if (!x)
        return ERR_OK;
    identity_text(mb, ours);
    for (uint16_t i = 0; i < mb->shards; i++) {
        struct store_lease lease;
        mailbox_replica_stream(x, i, stream);
        enum err e = store_pg_lease_found(x->db, stream, ours, in_time(x), &lease);
        if (e != ERR_OK)
            return refuse(mb, e, store_pg_why(x->db));
        if (strcmp(lease.identity, ours) != 0)
            return refuse(mb, ERR_CONFLICT,
                          "the stream in PostgreSQL belongs to another mailbox (replica.stream)");
        if (lease.epoch == 0 && has_own_journal(mb, i))
            return refuse(mb, ERR_CONFLICT,
                          "this mailbox has messages of its own: nodes that share shards begin with an "
                          "empty directory");
    }
    atomic_store(&x->in_touch_ns, clock_mono_ns(mb->clock));
    return ERR_OK;
}

void mailbox_replica_close(struct mailbox *mb)
{
    struct mailbox_replica *x = mb->replica;
    if (!x)
        return;
    store_pg_destroy(x->db);
    rt_lock_fini(&x->lock);
    free(x);
    mb->replica = NULL;
}

/* ---- making a copy equal ---- */

struct catching {
    struct mailbox_lane *lane;
    struct store_pg *pg;
    const char *stream;
    uint64_t rows;
};

static enum err on_row(void *ctx, const struct store_frame *f) RT_BLOCKS
{
    struct catching *c = ctx;
    struct rt_task *self = rt_task_current();
    if (self) {
        rt_task_beat(self);
        if (rt_task_stopping(self))
            return ERR_CANCELED;
    }
    c->rows++;
    return mailbox_log_follow(&c->lane->log, f);
}

static enum err set_aside(struct mailbox_lane *l, const struct mailbox_log *g, uint64_t group_no) RT_BLOCKS
{
    char name[64], path[STORE_PATH_MAX];
    snprintf(name, sizeof name, "%020llu.orphan", (unsigned long long)group_no);
    store_path_join(path, l->dir, name);
    enum err e = store_journal_set_aside(g->journal, g->replaying->at, path);
    obs_log(svc_log(l->mb->svc), OBS_WARN, "orphan_set_aside", OBS_U64("shard", l->no),
            OBS_U64("group_no", group_no), OBS_STR("file", name), OBS_ERR(e), OBS_END);
    return e == ERR_OK ? ERR_TORN : e;
}

static enum err differs(struct mailbox_lane *l, const struct store_head *head,
                        const struct store_pg_compared *c)
{
    char ours[65], theirs[65];
    hex_encode(head->root.b, 32, ours);
    hex_encode(c->root.b, 32, theirs);
    obs_log(svc_log(l->mb->svc), OBS_ERROR, "shard.forked", OBS_U64("shard", l->no),
            OBS_STR("why", c->missing ? "PostgreSQL lacks acknowledged groups" : "the histories differ"),
            OBS_U64("our_group", head->last_group), OBS_STR("our_root", ours),
            OBS_U64("their_group", c->group_no), OBS_STR("their_root", theirs), OBS_END);
    return ERR_CONFLICT;
}

/*
 * The journal was replayed. Whose end is further? ERR_TORN: our last frame was never acknowledged and is out of the way now, open
 * again. ERR_RANGE: the copy is of no use, make it anew. ERR_CONFLICT: it knows what PostgreSQL does not.
 */
static enum err catch_up(void *ctx, struct mailbox_log *g) RT_BLOCKS
{
    struct catching *c = ctx;
    struct mailbox_lane *l = c->lane;
    const struct mailbox_replica *x = l->mb->replica;
    struct store_head head;
    struct store_pg_compared cmp;
    store_journal_head(g->journal, &head);
    /*
     * Segments are cut at the same groups on all nodes, since each is filled until the next group does not fit. A write that was
     * torn, or an orphan, right behind a cut leaves an empty segment that another group may not begin.
     */
    if (store_journal_segments(g->journal, NULL, 0) > 0 && head.end.offset == STORE_SEGMENT_HEADER)
        return ERR_RANGE;
    struct store_pg_ours ours = {.last_group = head.last_group,
                                 .root = head.root,
                                 .prev_root = g->replaying->prev_root,
                                 .acknowledged = g->replaying->at.segment == 0};
    enum err e = store_pg_compare(c->pg, c->stream, &ours, in_time(x), &cmp);
    if (e != ERR_OK)
        return e;
    if (cmp.verdict == STORE_PG_STALE)
        return ERR_RANGE;
    if (cmp.verdict == STORE_PG_ORPHAN)
        return set_aside(l, g, head.last_group);
    if (cmp.verdict == STORE_PG_DIFFERS)
        return differs(l, &head, &cmp);
    for (bool rest = true; rest && e == ERR_OK;) {
        unsigned n = 0;
        store_journal_head(g->journal, &head);
        e = store_pg_frames(c->pg, c->stream, head.last_group + 1, BATCH, in_time(x), on_row, c, &n, &rest);
    }
    return e;
}

/* ---- a copy that cannot be used ---- */

struct names {
    struct store_disk *disk;
    const char *dir;
    enum err err;
};

static enum err remove_one(void *ctx, const char *name) RT_BLOCKS
{
    struct names *n = ctx;
    char path[STORE_PATH_MAX];
    store_path_join(path, n->dir, name);
    return store_disk_unlink(n->disk, path);
}

/* It ends before the oldest row: there is nothing in it that anybody needs. */
static enum err empty_dir(struct mailbox_lane *l) RT_BLOCKS
{
    struct names n = {svc_disk(l->mb->svc), l->dir, ERR_OK};
    enum err e = store_disk_list(n.disk, l->dir, remove_one, &n);
    return e == ERR_OK ? store_disk_sync_dir(n.disk, l->dir) : e;
}

/* Damaged: kept for whoever wants to look, out of the way. */
static enum err put_away(struct mailbox_lane *l) RT_BLOCKS
{
    char away[STORE_PATH_MAX];
    snprintf(away, sizeof away, "%.400s.damaged-%llu", l->dir, (unsigned long long)atomic_load(&l->epoch));
    return store_disk_rename(svc_disk(l->mb->svc), l->dir, away);
}

/* ---- loading a shard ---- */

static enum err reach(struct mailbox_replica *x, struct store_pg *pg, const char *stream, uint64_t epoch,
                      struct store_pg_head *first) RT_BLOCKS
{
    enum err e = store_pg_connect(pg, in_time(x));
    if (e == ERR_OK) /* what this server shows must be on the quorum before we build on it */
        e = store_pg_barrier(pg, stream, epoch, in_time(x));
    return e == ERR_OK ? store_pg_stream_first(pg, stream, in_time(x), first) : e;
}

static enum err load_once(struct mailbox_lane *l, struct store_pg *pg, const char *stream,
                          uint64_t *out_rows) RT_BLOCKS
{
    struct mailbox *mb = l->mb;
    struct mailbox_replica *x = mb->replica;
    struct store_pg_head first = {0};
    uint64_t epoch = atomic_load(&l->epoch);
    struct catching c = {.lane = l, .pg = pg, .stream = stream};
    enum err e = reach(x, pg, stream, epoch, &first);
    if (e != ERR_OK)
        return e;
    struct mailbox_log_config share = {
        .epoch = epoch,
        .unflushed = !mailbox_config(mb)->replica_local,
        .begins = {.next_group = first.group_no, .next_seq = first.next_seq, .root = first.root},
        .catch_up = catch_up,
        .catch_up_ctx = &c};
    e = mailbox_lane_load(l, &share);
    *out_rows = c.rows;
    if (e == ERR_OK && l->shard.readonly)
        e = ERR_CORRUPT;
    return e;
}

static enum err tee(struct mailbox_lane *l, struct store_pg *pg, const char *stream)
{
    struct mailbox *mb = l->mb;
    struct store_sink_replica_config cfg = {
        .pg = pg,
        .stream = stream,
        .timeout_ms = mb->replica->timeout_ms,
        .append_seconds = obs_hist(mb->m[MAILBOX_M_replica_append]),
        .rows_total = obs_counter(mb->m[MAILBOX_M_replica_rows]),
        .bytes_total = obs_counter(mb->m[MAILBOX_M_replica_bytes]),
        .resolved_total = obs_counter(mb->m[MAILBOX_M_replica_resolved]),
        .fenced_total = obs_counter(mb->m[MAILBOX_M_replica_fenced]),
    };
    return mailbox_log_tee(&l->log, &cfg, atomic_load(&l->epoch));
}

enum err mailbox_replica_load(struct mailbox_lane *l)
{
    struct mailbox *mb = l->mb;
    const struct mailbox_config *cfg = mailbox_config(mb);
    char stream[MAILBOX_SHARD_STREAM], why[MAILBOX_REPLICA_WHY];
    struct store_pg *pg = NULL;
    uint64_t rows = 0;
    mailbox_replica_stream(mb->replica, l->no, stream);
    enum err e =
        store_pg_stream_create(cfg->replica_dsn, mb->replica->node, (unsigned)cfg->replica_quorum, &pg);
    for (int i = 0; e == ERR_OK && i < LOADS; i++) {
        e = load_once(l, pg, stream, &rows);
        if (e == ERR_OK)
            break;
        mailbox_lane_unload(l);
        if (e == ERR_TORN)
            e = ERR_OK;
        else if (e == ERR_RANGE)
            e = empty_dir(l);
        else if (e == ERR_CORRUPT)
            e = put_away(l);
        else
            break;
        if (e == ERR_OK && i + 1 == LOADS)
            e = ERR_CORRUPT;
    }
    snprintf(why, sizeof why, "%s", pg ? store_pg_why(pg) : "");
    if (e == ERR_OK)
        e = tee(l, pg, stream); /* takes the connection */
    else if (pg)
        store_pg_destroy(pg);
    obs_log(svc_log(mb->svc), e == ERR_OK ? OBS_INFO : OBS_WARN,
            e == ERR_OK ? "shard.here" : "shard.not_loaded", OBS_U64("shard", l->no),
            OBS_U64("epoch", atomic_load(&l->epoch)), OBS_U64("rows", rows), OBS_ERR(e),
            OBS_STR("why", e == ERR_OK ? "" : why), OBS_END);
    return e;
}

/* ---- who has what ---- */

bool mailbox_replica_owner(struct mailbox *mb, uint16_t shard, struct mailbox_owner *out)
{
    struct mailbox_replica *x = mb->replica;
    *out = (struct mailbox_owner){0};
    if (!x)
        return false;
    rt_lock_take(&x->lock);
    *out = x->owner[shard];
    rt_lock_release(&x->lock);
    return out->url[0] != 0;
}

void mailbox_replica_why(struct mailbox *mb, char out[MAILBOX_REPLICA_WHY])
{
    struct mailbox_replica *x = mb->replica;
    rt_lock_take(&x->lock);
    memcpy(out, x->why, MAILBOX_REPLICA_WHY);
    rt_lock_release(&x->lock);
}

bool mailbox_replica_in_touch(const struct mailbox *mb)
{
    const struct mailbox_replica *x = mb->replica;
    return !x || clock_mono_ns(mb->clock) - atomic_load(&x->in_touch_ns) < x->lease_ms * 1000000;
}
