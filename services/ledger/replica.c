#include "services/ledger/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "rt/task.h"
#include "services/ledger/core/note.h"
#include "store/file_replace.h"

enum { BATCH = 64, TELL_EVERY_MS = 5000, ROOM_WAIT_MS = 5000 };

static struct deadline in_time(const struct ledger *l)
{
    return deadline_in_ms(l->set.replica_timeout_ms);
}

static int64_t now_ns(const struct ledger *l)
{
    return l->deps.clock->mono_ns(l->deps.clock->ctx);
}

static void set_gauge(struct ledger *l, enum ledger_metric id, double v)
{
    if (l->m[id] != NULL)
        obs_gauge_set(obs_gauge(l->m[id]), v);
}

/* ---- opening ---- */

enum err ledger_replica_connect(struct ledger *l)
{
    struct ledger_replica *x = calloc(1, sizeof *x);
    if (x == NULL)
        return ERR_NO_MEMORY;
    l->replica = x;
    rt_lock_init(&x->lock, "replica_names", 34);
    enum err err =
        store_pg_stream_create(l->set.replica_dsn, l->set.replica_node, l->set.replica_quorum, &x->db);
    if (err != ERR_OK)
        return ledger_refuse(l, err, "replica.dsn cannot be read as a PostgreSQL connection string");
    err = store_pg_connect(x->db, in_time(l));
    if (err == ERR_OK)
        err = store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &x->lease);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return ledger_refuse(l, err, store_pg_why(x->db));
    atomic_store(&x->connected, true);
    return ERR_OK;
}

struct identity {
    struct str ledger_id, origin, vkey;
};
static const struct json_field identity_fields[] = {
    JSON_REQ(struct identity, ledger_id, JSON_KIND_STR, .max = 32),
    JSON_REQ(struct identity, origin, JSON_KIND_STR, .max = NOTE_ORIGIN_MAX),
    JSON_REQ(struct identity, vkey, JSON_KIND_STR, .max = NOTE_VKEY_MAX),
    JSON_END,
};

bool ledger_replica_identity(const struct ledger *l, uint8_t ledger_id[16], char *origin, size_t origin_max)
{
    const struct ledger_replica *x = l->replica;
    struct arena a;
    struct json_error why;
    struct identity in = {0};
    if (x == NULL || x->lease.identity[0] == 0)
        return false;
    arena_init(&a, 1024, 65536);
    bool ok = json_read_dto(bytes_of(x->lease.identity, strlen(x->lease.identity)), identity_fields, &in,
                            &a, &why) == ERR_OK &&
              in.ledger_id.n == 32 && hex_decode(in.ledger_id, ledger_id, 16) == ERR_OK &&
              in.origin.n < origin_max;
    if (ok)
        snprintf(origin, origin_max, "%.*s", STR_ARG(in.origin));
    arena_fini(&a);
    return ok;
}

static void identity_text(const struct ledger *l, char out[STORE_LEASE_IDENTITY_MAX + 1])
{
    char id[33], vkey[NOTE_VKEY_MAX];
    struct buf b;
    struct json_w w;
    hex_encode(l->ledger_id, 16, id);
    size_t n = ledger_signer_vkey(l->signer, vkey);
    buf_init_fixed(&b, out, STORE_LEASE_IDENTITY_MAX);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_cstr(&w, "ledger_id", id);
    json_put_cstr(&w, "origin", l->set.origin);
    json_put_str(&w, "vkey", str_of(vkey, n));
    json_obj_end(&w);
    CHECK(b.err == ERR_OK);
    out[b.n] = 0;
}

enum err ledger_replica_found(struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    identity_text(l, x->identity);
    enum err err = store_pg_lease_found(x->db, l->set.replica_stream, x->identity, in_time(l), &x->lease);
    if (err != ERR_OK)
        return ledger_refuse(l, err, store_pg_why(x->db));
    if (strcmp(x->identity, x->lease.identity) == 0)
        return ERR_OK;
    uint8_t id[16];
    char origin[NOTE_ORIGIN_MAX + 1];
    if (ledger_replica_identity(l, id, origin, sizeof origin) && memcmp(id, l->ledger_id, 16) == 0)
        return ledger_refuse(
            l, ERR_CONFLICT,
            "the signing key is not the one of this ledger: copy keys/ledger-ed25519 from the ledger "
            "that founded the stream");
    return ledger_refuse(l, ERR_CONFLICT,
                         "the stream in PostgreSQL belongs to another ledger (replica.stream)");
}

/* Both roots, for people: safe mode is all that is left to do. */
static enum err differs(struct ledger *l, const char *what, uint64_t ours_group, const struct sha256 *ours,
                        uint64_t theirs_group, const struct sha256 *theirs)
{
    char a[SHA256_TEXT_CHARS], b[SHA256_TEXT_CHARS];
    sha256_format(ours, a);
    sha256_format(theirs, b);
    snprintf(l->bad_file, sizeof l->bad_file, "replica");
    l->bad_offset = ours_group;
    snprintf(l->bad_reason, sizeof l->bad_reason,
             "%s: this journal has root %s at group %llu, PostgreSQL has root %s at group %llu", what, a,
             (unsigned long long)ours_group, b, (unsigned long long)theirs_group);
    ledger_enter_safe_mode(l, CAUSE_CORRUPT, l->bad_reason);
    return ERR_OK;
}

static enum err set_aside(struct ledger *l, const struct ledger_replica_tail *tail) RT_BLOCKS
{
    char name[64], path[STORE_PATH_MAX];
    snprintf(name, sizeof name, "journal/%020llu.orphan", (unsigned long long)tail->group_no);
    store_path_join(path, l->set.dir, name);
    enum err err = store_journal_set_aside(l->sink->journal, tail->at, path);
    obs_log(l->deps.log, OBS_WARN, "orphan_set_aside", OBS_U64("group_no", tail->group_no),
            OBS_STR("file", name), OBS_ERR(err), OBS_END);
    return err == ERR_OK ? ERR_TORN : err;
}

/* What was committed before is on the quorum when this returns. */
static enum err barrier(struct ledger *l) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    for (int i = 0; i < 5; i++) {
        enum err err = store_pg_barrier(x->db, l->set.replica_stream, x->lease.epoch, in_time(l));
        if (err != ERR_FENCED)
            return err;
        err = store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &x->lease); /* it moved on */
        if (err != ERR_OK)
            return err;
    }
    return ERR_BUSY;
}

enum err ledger_replica_reconcile(struct ledger *l, const struct ledger_replica_tail *tail,
                                  bool closed_clean)
{
    struct ledger_replica *x = l->replica;
    struct store_head head;
    struct store_pg_head pg;
    store_journal_head(l->sink->journal, &head);
    enum err err = barrier(l);
    if (err == ERR_OK)
        err = store_pg_stream_head(x->db, l->set.replica_stream, in_time(l), &pg);
    if (err != ERR_OK)
        return ledger_refuse(l, err, store_pg_why(x->db));
    atomic_store(&x->seen_group, pg.group_no);
    x->founded = x->lease.epoch == 0;
    if (head.last_group == 0 || (x->founded && pg.group_no == 0))
        return ERR_OK;
    struct store_pg_ours ours = {.last_group = head.last_group,
                                 .root = head.root,
                                 .prev_root = tail->prev_root,
                                 .epoch = head.last_epoch,
                                 .acknowledged = tail->at.segment == 0 ||
                                                 tail->group_no != head.last_group || closed_clean};
    struct store_pg_compared c;
    err = store_pg_compare(x->db, l->set.replica_stream, &ours, in_time(l), &c);
    if (err != ERR_OK)
        return ledger_refuse(l, err, store_pg_why(x->db));
    if (c.verdict == STORE_PG_SAME || x->founded)
        return ERR_OK; /* founded: an upload that was cut short; it goes on where it ended */
    if (c.verdict == STORE_PG_ORPHAN)
        return set_aside(l, tail);
    return differs(l, c.missing ? "PostgreSQL lacks acknowledged groups" : "the histories differ",
                   head.last_group, &head.root, c.group_no, &c.root);
}

enum err ledger_replica_tee(struct ledger *l)
{
    struct store_sink_replica_config cfg = {
        .local = l->sink, .stream = l->set.replica_stream, .timeout_ms = l->set.replica_timeout_ms};
    enum err err =
        store_pg_stream_create(l->set.replica_dsn, l->set.replica_node, l->set.replica_quorum, &cfg.pg);
    if (err != ERR_OK)
        return err;
    if (l->m[0] != NULL) {
        cfg.append_seconds = obs_hist(l->m[LEDGER_M_replica_append]);
        cfg.rows_total = obs_counter(l->m[LEDGER_M_replica_rows]);
        cfg.bytes_total = obs_counter(l->m[LEDGER_M_replica_bytes]);
        cfg.resolved_total = obs_counter(l->m[LEDGER_M_replica_resolved]);
        cfg.fenced_total = obs_counter(l->m[LEDGER_M_replica_fenced]);
    }
    ledger_replay_init(&l->replica->replay, l);
    return store_sink_replica(&cfg, &l->sink);
}

void ledger_replica_free(struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    if (x == NULL)
        return;
    store_pg_destroy(x->db);
    if (x->replay.l != NULL)
        ledger_replay_fini(&x->replay);
    rt_lock_fini(&x->lock);
    free(x);
    l->replica = NULL;
}

/* ---- what others may ask ---- */

enum ledger_role ledger_replica_role(const struct ledger *l)
{
    if (l->replica == NULL)
        return ROLE_ALONE;
    if (ledger_safe_cause(l) == CAUSE_FENCED)
        return ROLE_FENCED;
    return atomic_load(&l->phase) == PHASE_FOLLOWING || atomic_load(&l->replica->epoch) == 0 ? ROLE_STANDBY
                                                                                             : ROLE_WRITER;
}

const char *ledger_role_name(enum ledger_role r)
{
    static const char *const names[] = {"alone", "standby", "writer", "fenced"};
    return names[r];
}

bool ledger_replica_ready(const struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    if (x == NULL)
        return true;
    int64_t age_ms = (now_ns(l) - atomic_load(&x->in_step_ns)) / 1000000;
    if (ledger_replica_role(l) == ROLE_WRITER)
        return age_ms <= l->set.replica_lease_ms && !store_sink_replica_stuck(l->sink);
    return ledger_replica_role(l) == ROLE_STANDBY && atomic_load(&x->in_step_ns) != 0 &&
           age_ms <= l->set.replica_lease_ms;
}

int64_t ledger_replica_lag_ms(const struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    if (x == NULL || ledger_replica_role(l) == ROLE_WRITER)
        return 0;
    int64_t at = atomic_load(&x->in_step_ns);
    return at == 0 ? -1 : (now_ns(l) - at) / 1000000;
}

void ledger_replica_writer(struct ledger *l, char out[STORE_LEASE_URL_MAX + 1])
{
    rt_lock_take(&l->replica->lock);
    memcpy(out, l->replica->writer, STORE_LEASE_URL_MAX + 1);
    rt_lock_release(&l->replica->lock);
}

void ledger_replica_why(struct ledger *l, char out[REPLICA_WHY_MAX])
{
    rt_lock_take(&l->replica->lock);
    memcpy(out, l->replica->why, REPLICA_WHY_MAX);
    rt_lock_release(&l->replica->lock);
}

static void note_lease(struct ledger *l, const struct store_lease *lease)
{
    struct ledger_replica *x = l->replica;
    x->lease = *lease;
    atomic_store(&x->seen_epoch, lease->epoch);
    rt_lock_take(&x->lock);
    memcpy(x->writer, lease->url, sizeof x->writer);
    rt_lock_release(&x->lock);
}

/* ---- following ---- */

/* Groups from before there was a stream were uploaded under epoch 0; journals begin with 1. */
static uint64_t row_epoch(const struct store_frame *f)
{
    return f->epoch == 0 ? 1 : f->epoch;
}

/* The keeper makes segments; wait for it rather than fail. */
static enum err append_local(struct ledger *l, const struct store_frame *f, struct store_pos *out) RT_BLOCKS
{
    struct store_sink *local = store_sink_replica_local(l->sink);
    struct bytes part = f->payload;
    store_journal_set_epoch(l->sink->journal, row_epoch(f));
    for (struct deadline by = deadline_in_ms(ROOM_WAIT_MS);;) {
        enum err err = store_sink_append(local, f, &part, 1, out);
        ledger_note_spare(l);
        if (err != ERR_NO_SPACE || deadline_passed(by))
            return err;
        if (rt_task_current() == NULL || rt_task_sleep(rt_task_current(), deadline_in_ms(5)) != ERR_OK)
            return ERR_CANCELED;
    }
}

static void wake_subscribers(struct ledger *l, const struct store_frame *f)
{
    struct ledger_group_event *ev = ledger_is_heard(l) ? calloc(1, sizeof *ev) : NULL;
    if (ev == NULL)
        return; /* they look at the group table anyway */
    atomic_init(&ev->refs, 1);
    ev->seq_start = f->first_seq;
    ev->seq_end = f->first_seq + f->count - 1;
    ev->group_no = f->group_no;
    ev->ledger_ms = f->ms;
    ev->root = f->new_root;
    rt_bcast_publish(l->root_pub, ev);
}

static enum err on_row(void *ctx, const struct store_frame *f) RT_BLOCKS
{
    struct ledger *l = ctx;
    struct store_pos at;
    if (f->group_no != l->next_group || f->first_seq != l->frontier.n + 1 ||
        !sha256_eq(&f->prev_root, &l->last_root)) {
        enum err ignored = differs(l, "the next group does not continue ours", l->next_group - 1,
                                   &l->last_root, f->group_no - 1, &f->prev_root);
        (void)ignored;
        return ERR_SAFE_MODE;
    }
    struct store_head head;
    store_journal_head(l->sink->journal, &head);
    if (row_epoch(f) < head.last_epoch) {
        ledger_enter_safe_mode(l, CAUSE_CORRUPT, "the epochs of PostgreSQL's groups go back");
        return ERR_SAFE_MODE;
    }
    enum err err = ledger_replay_room(&l->replica->replay, f->count); /* first: it may be told to stop */
    if (err == ERR_OK)
        err = append_local(l, f, &at);
    if (err == ERR_CANCELED)
        return err;
    if (err != ERR_OK) {
        ledger_enter_safe_mode(l, CAUSE_IO_ERROR, err_name(err));
        return ERR_SAFE_MODE;
    }
    err = ledger_replay_frame(&l->replica->replay, f, at);
    if (err == ERR_OK) {
        atomic_store(&l->ledger_ms, f->ms);
        wake_subscribers(l, f);
        return ERR_OK;
    }
    ledger_enter_safe_mode(l, err == ERR_CORRUPT ? CAUSE_CORRUPT : CAUSE_INVARIANT,
                           err == ERR_CORRUPT ? l->replica->replay.why : err_name(err));
    return ERR_SAFE_MODE;
}

/* How far PostgreSQL is, for those who look at the metrics: not worth an error. */
static void see_head(struct ledger *l) RT_BLOCKS
{
    struct store_pg_head pg;
    if (store_pg_stream_head(l->replica->db, l->set.replica_stream, in_time(l), &pg) == ERR_OK)
        atomic_store(&l->replica->seen_group, pg.group_no);
}

/* Rows behind our head. *out_all: there were none. We are as new as the moment of a question whose answer was complete. */
static enum err follow(struct ledger *l, bool *out_all) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    unsigned n = 0;
    bool rest = false;
    int64_t asked_ns = now_ns(l);
    enum err err = store_pg_frames(x->db, l->set.replica_stream, l->next_group, BATCH, in_time(l), on_row,
                                   l, &n, &rest);
    if (err == ERR_CORRUPT) {
        ledger_enter_safe_mode(l, CAUSE_CORRUPT, "a row in PostgreSQL is damaged");
        return ERR_SAFE_MODE;
    }
    if (err != ERR_OK)
        return err;
    *out_all = n == 0;
    x->more = rest;
    if (rest)
        see_head(l);
    else
        atomic_store(&x->in_step_ns, asked_ns);
    if (atomic_load(&x->seen_group) < l->next_group - 1)
        atomic_store(&x->seen_group, l->next_group - 1);
    return ERR_OK;
}

/* ---- taking over ---- */

/* The founder's own history goes to PostgreSQL while the stream is still nobody's (epoch 0). */
static enum err upload_frame(void *ctx, const struct store_frame *f, struct store_pos at) RT_BLOCKS
{
    (void)at;
    struct ledger *l = ctx;
    struct ledger_replica *x = l->replica;
    struct store_frame row = *f;
    struct buf plain, body;
    struct sha256 there;
    uint64_t epoch;
    row.epoch = 0;
    buf_init(&plain, 64 << 20);
    buf_init(&body, 64 << 20);
    enum err err = store_pg_body_encode(&row, &f->payload, 1, &plain, &body);
    if (err == ERR_OK)
        err = store_pg_append_send(x->db, l->set.replica_stream, &row, buf_bytes(&body), in_time(l));
    if (err == ERR_OK)
        err = store_pg_append_finish(x->db, in_time(l));
    if (err == ERR_EXISTS) {
        err = store_pg_frame_root(x->db, l->set.replica_stream, f->group_no, in_time(l), &there, &epoch);
        if (err == ERR_OK && !sha256_eq(&there, &f->new_root))
            err = ERR_CONFLICT;
    }
    buf_fini(&plain);
    buf_fini(&body);
    return err;
}

static enum err upload(struct ledger *l) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    struct store_pg_head pg;
    enum err err = store_pg_stream_head(x->db, l->set.replica_stream, in_time(l), &pg);
    if (err == ERR_OK && pg.group_no < l->next_group - 1) {
        obs_log(l->deps.log, OBS_INFO, "replica_upload", OBS_U64("from_group", pg.group_no + 1),
                OBS_U64("to_group", l->next_group - 1), OBS_END);
        err = store_sink_replay(l->sink, pg.group_no + 1, upload_frame, l);
    }
    if (err == ERR_OK)
        x->founded = false;
    return err;
}

static enum err compare_heads(struct ledger *l) RT_BLOCKS
{
    struct store_pg_head pg;
    enum err err = store_pg_stream_head(l->replica->db, l->set.replica_stream, in_time(l), &pg);
    if (err != ERR_OK)
        return err;
    if (pg.group_no == 0 && l->next_group == 1)
        return ERR_OK;
    if (pg.group_no == l->next_group - 1 && sha256_eq(&pg.root, &l->last_root))
        return ERR_OK;
    err = differs(l, "the histories differ at take-over", l->next_group - 1, &l->last_root, pg.group_no,
                  &pg.root);
    return err == ERR_OK ? ERR_SAFE_MODE : err;
}

/* Everything that sequencer and committer need to go on from here. The last store hands it to them. */
static void become_writer(struct ledger *l, uint64_t epoch)
{
    struct ledger_replica *x = l->replica;
    struct ledger_head head;
    const struct clock *c = l->deps.clock;
    ledger_head_read(l, &head);
    store_sink_replica_epoch(l->sink, epoch);
    l->next_seq = head.seq + 1;
    int64_t wall = c->wall_ms(c->ctx);
    ledger_time_start(&l->time, c->mono_ns(c->ctx), wall < 0 ? 0 : (uint64_t)wall, head.ledger_ms);
    atomic_store(&l->ledger_ms, l->time.last_ms);
    atomic_store(&x->epoch, epoch);
    atomic_store(&x->in_step_ns, x->renewed_ns);
    atomic_fetch_add(&x->take_overs, 1);
    int following = PHASE_FOLLOWING; /* unless a drain began meanwhile */
    atomic_compare_exchange_strong(&l->phase, &following, PHASE_RUNNING);
    if (l->m[LEDGER_M_replica_take_overs] != NULL)
        obs_counter_inc(obs_counter(l->m[LEDGER_M_replica_take_overs]));
    obs_log(l->deps.log, OBS_INFO, "take_over", OBS_U64("epoch", epoch), OBS_U64("head_seq", head.seq),
            OBS_U64("group_no", head.group_no), OBS_END);
}

static enum err take_over(struct ledger *l, bool anyway) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    const char *stream = l->set.replica_stream;
    uint64_t epoch = 0;
    bool all = false;
    enum err err = x->founded && l->next_group > 1 ? upload(l) : ERR_OK;
    if (err == ERR_OK)
        err = store_pg_lease_take(x->db, stream, l->set.replica_node, l->set.replica_url,
                                  l->set.replica_lease_ms, anyway, in_time(l), &epoch);
    x->renewed_ns = now_ns(l);
    while (err == ERR_OK && !all) {
        err = follow(l, &all);
        if (err == ERR_OK && now_ns(l) - x->renewed_ns > l->set.replica_lease_ms * 1000000 / 3) {
            err = store_pg_lease_renew(x->db, stream, epoch, l->set.replica_lease_ms, in_time(l));
            x->renewed_ns = now_ns(l);
        }
        if (rt_task_current() != NULL && rt_task_stopping(rt_task_current()))
            return ERR_CANCELED;
    }
    if (err == ERR_OK)
        err = compare_heads(l);
    if (err != ERR_OK)
        return err;
    struct store_lease lease;
    if (store_pg_lease_read(x->db, stream, in_time(l), &lease) == ERR_OK)
        note_lease(l, &lease);
    become_writer(l, epoch);
    return ERR_OK;
}

/* ---- one turn ---- */

static void lost_touch(struct ledger *l, enum err err)
{
    struct ledger_replica *x = l->replica;
    const char *why = store_pg_why(x->db);
    rt_lock_take(&x->lock);
    snprintf(x->why, sizeof x->why, "%s", why[0] != 0 ? why : err_name(err));
    rt_lock_release(&x->lock);
    bool was = atomic_exchange(&x->connected, store_pg_connected(x->db));
    if (was || now_ns(l) - x->told_ns > INT64_C(1000000) * TELL_EVERY_MS) {
        x->told_ns = now_ns(l);
        obs_log(l->deps.log, OBS_WARN, "replica_lost", OBS_ERR(err), OBS_STR("why", why), OBS_END);
    }
}

static enum err reconnect(struct ledger *l) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    struct store_lease lease;
    if (store_pg_connected(x->db) && x->barrier_done)
        return ERR_OK;
    x->barrier_done = false;
    enum err err = store_pg_connect(x->db, in_time(l));
    if (err == ERR_OK)
        err = store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &lease);
    if (err != ERR_OK)
        return err;
    note_lease(l, &lease);
    /* What this server shows must be on a quorum before we build on it: it may have come back from a crash. */
    if (atomic_load(&x->epoch) == 0)
        err = barrier(l);
    if (err != ERR_OK)
        return err;
    x->barrier_done = true;
    if (!atomic_exchange(&x->connected, true))
        obs_log(l->deps.log, OBS_INFO, "replica_connected", OBS_END);
    rt_lock_take(&x->lock);
    x->why[0] = 0;
    rt_lock_release(&x->lock);
    return ERR_OK;
}

static enum err renew(struct ledger *l) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    uint64_t epoch = atomic_load(&x->epoch);
    bool asked = atomic_load(&x->want_take_over); /* told to write: is it still ours? */
    if (!asked && now_ns(l) - x->renewed_ns < l->set.replica_lease_ms * 1000000 / 3)
        return ERR_OK;
    enum err err =
        store_pg_lease_renew(x->db, l->set.replica_stream, epoch, l->set.replica_lease_ms, in_time(l));
    if (err == ERR_OK) {
        x->renewed_ns = now_ns(l);
        atomic_store(&x->in_step_ns, x->renewed_ns);
        if (asked)
            atomic_store(&x->want_take_over, false);
        return ERR_OK;
    }
    if (err == ERR_FENCED) {
        struct store_lease lease;
        char text[160] = "another ledger has taken over";
        if (store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &lease) == ERR_OK) {
            note_lease(l, &lease);
            snprintf(text, sizeof text, "epoch %llu is over, %.60s writes in epoch %llu",
                     (unsigned long long)epoch, lease.holder, (unsigned long long)lease.epoch);
        }
        if (l->m[LEDGER_M_replica_fenced] != NULL)
            obs_counter_inc(obs_counter(l->m[LEDGER_M_replica_fenced]));
        ledger_enter_safe_mode(l, CAUSE_FENCED, text);
        return ERR_OK;
    }
    return err;
}

/* Fenced, or in safe mode for another reason: nothing to do but to know who writes and how far, for those who ask. */
static enum err look_on(struct ledger *l) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    struct store_lease lease;
    if (now_ns(l) - x->looked_ns < l->set.replica_lease_ms * 1000000 / 20)
        return ERR_OK;
    enum err err = store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &lease);
    if (err != ERR_OK)
        return err;
    x->looked_ns = now_ns(l);
    note_lease(l, &lease);
    see_head(l);
    return ERR_OK;
}

/* A standby looks at the lease every tenth of it, and at the rows every time. */
static enum err stand_by(struct ledger *l, bool *out_all) RT_BLOCKS
{
    struct ledger_replica *x = l->replica;
    enum err err = ledger_replay_turn(&x->replay);
    if (err == ERR_OK)
        err = follow(l, out_all);
    if (err != ERR_OK)
        return err;
    bool asked = atomic_exchange(&x->want_take_over, false);
    if (!asked && now_ns(l) - x->looked_ns < l->set.replica_lease_ms * 1000000 / 20)
        return ERR_OK;
    struct store_lease lease;
    err = store_pg_lease_read(x->db, l->set.replica_stream, in_time(l), &lease);
    if (err != ERR_OK)
        return err;
    note_lease(l, &lease);
    x->looked_ns = now_ns(l);
    bool ours = strcmp(lease.holder, l->set.replica_node) == 0 && lease.epoch > 0;
    bool may = l->set.replica_auto && (lease.left_ms <= 0 || ours);
    if (!asked && (!may || !*out_all))
        return ERR_OK;
    err = take_over(l, asked);
    if (err == ERR_LOCKED)
        return ERR_OK; /* somebody was faster */
    if (asked && err != ERR_OK && err != ERR_SAFE_MODE)
        atomic_store(&x->want_take_over, true); /* the command stands until it is carried out */
    return err;
}

static void tell_metrics(struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    enum ledger_role role = ledger_replica_role(l);
    set_gauge(l, LEDGER_M_replica_writer, role == ROLE_WRITER ? 1 : 0);
    set_gauge(l, LEDGER_M_replica_epoch, (double)atomic_load(&x->seen_epoch));
    set_gauge(l, LEDGER_M_replica_connected, atomic_load(&x->connected) ? 1 : 0);
    if (role != ROLE_WRITER) { /* next_group is the committer's otherwise */
        uint64_t seen = atomic_load(&x->seen_group), ours = l->next_group - 1;
        set_gauge(l, LEDGER_M_replica_lag_groups, seen > ours ? (double)(seen - ours) : 0);
        set_gauge(l, LEDGER_M_replica_lag, (double)ledger_replica_lag_ms(l) / 1000);
    }
}

int64_t ledger_replica_step(struct ledger *l)
{
    enum ledger_role role = ledger_replica_role(l);
    bool all = true;
    enum err err = reconnect(l);
    if (err == ERR_OK && role == ROLE_STANDBY && ledger_safe_cause(l) == CAUSE_NONE)
        err = stand_by(l, &all);
    else if (err == ERR_OK && role == ROLE_WRITER && ledger_safe_cause(l) == CAUSE_NONE)
        err = renew(l);
    else if (err == ERR_OK)
        err = look_on(l);
    if (err != ERR_OK && err != ERR_SAFE_MODE && err != ERR_CANCELED)
        lost_touch(l, err);
    tell_metrics(l);
    if (err != ERR_OK)
        return 100;
    if (ledger_replica_role(l) == ROLE_WRITER)
        return l->set.replica_lease_ms / 10 < 200 ? l->set.replica_lease_ms / 10 : 200;
    return l->replica->more ? 0 : l->set.replica_poll_ms;
}

void ledger_replica_release(struct ledger *l)
{
    struct ledger_replica *x = l->replica;
    uint64_t epoch = atomic_load(&x->epoch);
    if (epoch == 0 || ledger_safe_cause(l) != CAUSE_NONE || !store_pg_connected(x->db))
        return;
    enum err err = store_pg_lease_renew(x->db, l->set.replica_stream, epoch, 0, in_time(l));
    obs_log(l->deps.log, OBS_INFO, "lease_released", OBS_U64("epoch", epoch), OBS_ERR(err), OBS_END);
}
