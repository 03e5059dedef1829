/*
 * Index files. A builder is given a segment's groups in order and keeps a pile of items, a buffer of events, and a table of the
 * segment's topics. The log feeds one as it commits, with the digests its entries know; what it has not seen from the first group on
 * (a start in the middle of a segment) is made by walking the segment's frames, which name their topics before their first message,
 * so that the digests can be computed again.
 *
 * The loader goes through items in order and looks sixteen ahead: the table slots an item will need are fetched while earlier
 * items are being applied, which is most of what makes a start with millions of messages short.
 */
#include "services/mailbox/idx.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "services/mailbox/pile.h"
#include "store/file_replace.h"

enum {
    VERSION = 1,
    EVENT_HEAD = 16, /* items before it u32, bytes u32, offset/8 u32, zero u32 */
    TOPIC_BYTES = 56,
    AHEAD = 16,
    FILE_MAX = 512 << 20,
};
#define EVENT_MOVE (UINT32_C(1) << 31) /* in bytes: not a record but the state of the item that follows */

static const char magic[8] = {'R', 'O', 'N', 'M', 'I', 'D', 'X', '1'};

void mailbox_idx_path(char out[STORE_PATH_MAX], const char *dir, uint32_t segment)
{
    char name[32];
    snprintf(name, sizeof name, "%08u.idx", segment);
    store_path_join(out, dir, name);
}

static uint32_t number_of(const char *name, const char *suffix)
{
    uint32_t no = 0;
    for (int i = 0; i < 8; i++) {
        if (name[i] < '0' || name[i] > '9')
            return 0;
        no = no * 10 + (uint32_t)(name[i] - '0');
    }
    return strcmp(name + 8, suffix) == 0 ? no : 0;
}

static void widen(uint32_t no, uint32_t *first, uint32_t *last)
{
    if (no && (!*first || no < *first))
        *first = no;
    if (no > *last)
        *last = no;
}

static enum err look_at_name(void *ctx, const char *name)
{
    struct mailbox_idx_files *f = ctx;
    widen(number_of(name, ".idx"), &f->first_idx, &f->last_idx);
    widen(number_of(name, ".seg"), &f->first_seg, &f->last_seg);
    return ERR_OK;
}

enum err mailbox_idx_list(struct store_disk *disk, const char *dir, struct mailbox_idx_files *out)
{
    *out = (struct mailbox_idx_files){0};
    return store_disk_list(disk, dir, look_at_name, out);
}

/* ---- the header ---- */

static void put_header(uint8_t *p, const struct mailbox_idx_place *at, const struct mailbox_idx_info *x)
{
    memset(p, 0, MAILBOX_IDX_HEADER);
    memcpy(p, magic, 8);
    le32_put(p + 8, VERSION);
    le32_put(p + 12, at->shard);
    le32_put(p + 16, x->segment);
    le32_put(p + 20, x->topics);
    le64_put(p + 24, x->first_group);
    le64_put(p + 32, x->last_group);
    le64_put(p + 40, x->first_seq);
    le64_put(p + 48, x->next_seq);
    le32_put(p + 56, x->items);
    le32_put(p + 60, x->settled);
    le64_put(p + 64, x->event_bytes);
    memcpy(p + 72, at->instance, 16);
    memcpy(p + 88, x->prev_root.b, 32);
    memcpy(p + 120, x->root.b, 32);
    le32_put(p + MAILBOX_IDX_HEADER - 4, crc32c(0, p, MAILBOX_IDX_HEADER - 4));
}

static enum err get_header(const uint8_t *p, const struct mailbox_idx_place *at, uint32_t segment,
                           struct mailbox_idx_info *x)
{
    if (memcmp(p, magic, 8) != 0 ||
        le32_get(p + MAILBOX_IDX_HEADER - 4) != crc32c(0, p, MAILBOX_IDX_HEADER - 4))
        return ERR_CORRUPT;
    if (le32_get(p + 8) != VERSION)
        return ERR_VERSION;
    *x = (struct mailbox_idx_info){.segment = le32_get(p + 16),
                                   .topics = le32_get(p + 20),
                                   .first_group = le64_get(p + 24),
                                   .last_group = le64_get(p + 32),
                                   .first_seq = le64_get(p + 40),
                                   .next_seq = le64_get(p + 48),
                                   .items = le32_get(p + 56),
                                   .settled = le32_get(p + 60),
                                   .event_bytes = le64_get(p + 64)};
    memcpy(x->prev_root.b, p + 88, 32);
    memcpy(x->root.b, p + 120, 32);
    bool ours = le32_get(p + 12) == at->shard && x->segment == segment &&
                memcmp(p + 72, at->instance, 16) == 0 && x->event_bytes < FILE_MAX;
    return ours ? ERR_OK : ERR_CORRUPT;
}

static uint64_t file_bytes(const struct mailbox_idx_info *x)
{
    return MAILBOX_IDX_HEADER + (uint64_t)x->items * MAILBOX_IDX_ITEM + x->event_bytes +
           (uint64_t)x->topics * TOPIC_BYTES + 4;
}

/* ---- writing ---- */

struct topic {
    uint32_t id, count, name_n;
    uint64_t min_seq, max_seq;
    struct sha256 chain;
    char name[];
};

struct mailbox_idx_builder {
    struct mailbox_idx_info info;
    struct mailbox_pile items;
    struct buf events;
    struct map64 topics;
    struct topic *last; /* the topic of the last message: the next one is often of the same */
};

static enum err note_topic(struct mailbox_idx_builder *w, const struct mailbox_rec *r)
{
    if (map64_get(&w->topics, r->topic_id))
        return ERR_OK; /* named again within the segment */
    struct topic *t = calloc(1, sizeof *t + r->topic.name.n);
    if (!t)
        return ERR_NO_MEMORY;
    t->id = r->topic_id;
    t->name_n = (uint32_t)r->topic.name.n;
    memcpy(t->name, r->topic.name.p, r->topic.name.n);
    enum err e = map64_add(&w->topics, t->id, t);
    if (e != ERR_OK)
        free(t);
    return e;
}

static void put_event(struct mailbox_idx_builder *w, uint32_t kind, uint64_t offset, const void *p,
                      size_t n)
{
    uint8_t head[EVENT_HEAD] = {0};
    le32_put(head, w->info.items);
    le32_put(head + 4, (uint32_t)n | kind);
    le32_put(head + 8, (uint32_t)(offset / 8));
    buf_put(&w->events, head, sizeof head);
    buf_put(&w->events, p, n);
}

static enum err put_item(struct mailbox_idx_builder *w, const struct mailbox_rec *r, uint64_t offset,
                         const struct mailbox_digest *digest, uint64_t topic_seq, uint64_t not_before_ms,
                         const struct uuid *id, const struct sha256 *payload_hash)
{
    uint8_t *p = mailbox_pile_add(&w->items);
    if (!p)
        return ERR_NO_MEMORY;
    p[0] = (uint8_t)r->type;
    le16_put(p + 2, (uint16_t)((r->whole.n + 63) / 64));
    le32_put(p + 4, (uint32_t)(offset / 8));
    le32_put(p + 8, r->topic_id);
    le32_put(p + 12, (uint32_t)(mailbox_id_ts_ms(id) / 1000));
    memcpy(p + 16, id->b, 16);
    memcpy(p + 32, digest->b, 16);
    le64_put(p + 48, topic_seq);
    le64_put(p + 56, not_before_ms);
    memcpy(p + 64, payload_hash->b, 16);
    w->info.items++;
    return ERR_OK;
}

static enum err index_body(struct mailbox_idx_builder *w, const struct mailbox_rec *r, uint64_t offset,
                           const struct mailbox_digest *known)
{
    const struct mailbox_rec_enq *q = &r->enq;
    struct topic *t = w->last && w->last->id == r->topic_id ? w->last : map64_get(&w->topics, r->topic_id);
    struct mailbox_digest digest;
    if (!t)
        return ERR_CORRUPT; /* a segment names its topics before their messages */
    w->last = t;
    if (known)
        digest = *known;
    else
        mailbox_dedup_digest(str_of(t->name, t->name_n), q->idem_key, &digest);
    if (r->type == MAILBOX_REC_MOVE)
        put_event(w, EVENT_MOVE, offset, r->whole.p + MAILBOX_REC_HEAD, MAILBOX_MOVE_STATE);
    enum err e =
        put_item(w, r, offset, &digest, q->topic_seq, q->not_before_ms, &q->msg_id, &q->payload_hash);
    if (e == ERR_OK && r->type == MAILBOX_REC_ENQ) {
        t->min_seq = t->count++ ? t->min_seq : q->topic_seq;
        t->max_seq = q->topic_seq;
        t->chain = q->chain;
    }
    return e;
}

static enum err index_record(struct mailbox_idx_builder *w, const struct mailbox_rec *r, uint64_t offset,
                             const struct mailbox_digest *known)
{
    enum err e = ERR_OK;
    switch (r->type) {
    case MAILBOX_REC_ENQ:
    case MAILBOX_REC_MOVE:
        return index_body(w, r, offset, known);
    case MAILBOX_REC_DEDUP:
        return put_item(w, r, offset, &r->dedup.digest, r->dedup.topic_seq, 0, &r->dedup.msg_id,
                        &r->dedup.payload_hash);
    case MAILBOX_REC_TOPIC:
        e = note_topic(w, r);
        break;
    case MAILBOX_REC_SETTLE:
        w->info.settled += r->n;
        break;
    case MAILBOX_REC_LEASE:
    case MAILBOX_REC_FAIL:
    case MAILBOX_REC_REPROC:
    case MAILBOX_REC_FORGET:
    case MAILBOX_REC_ADOPT:
        break;
    }
    put_event(w, 0, offset, r->whole.p, r->whole.n);
    return e;
}

enum err mailbox_idx_builder_add(struct mailbox_idx_builder *w, const struct store_frame *f,
                                 uint64_t payload_offset,
                                 const struct mailbox_digest *(*known)(void *ctx, uint32_t k), void *ctx)
{
    size_t pos = 0;
    uint32_t k = 0; /* messages of this group so far */
    if (w->info.first_group == 0) {
        w->info.first_group = f->group_no;
        w->info.first_seq = f->first_seq;
        w->info.prev_root = f->prev_root;
    }
    for (;;) {
        struct mailbox_rec r;
        uint64_t offset = payload_offset + pos;
        enum err e = mailbox_rec_next_trusted(f->payload, &pos, &r);
        if (e == ERR_EMPTY)
            break;
        bool message = e == ERR_OK && (r.type == MAILBOX_REC_ENQ || r.type == MAILBOX_REC_MOVE ||
                                       r.type == MAILBOX_REC_DEDUP);
        if (e == ERR_OK)
            e = index_record(w, &r, offset, message && known ? known(ctx, k) : NULL);
        k += message;
        if (e != ERR_OK)
            return e;
    }
    w->info.last_group = f->group_no;
    w->info.next_seq = f->first_seq + f->count;
    w->info.root = f->new_root;
    return w->events.err;
}

static enum err index_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    return mailbox_idx_builder_add(ctx, f, (uint64_t)at.offset + STORE_FRAME_HEADER, NULL, NULL);
}

struct mailbox_idx_builder *mailbox_idx_builder_create(uint32_t segment)
{
    struct mailbox_idx_builder *w = calloc(1, sizeof *w);
    if (w && map64_init(&w->topics, 0) != ERR_OK) {
        free(w);
        return NULL;
    }
    if (w) {
        w->info.segment = segment;
        mailbox_pile_init(&w->items, MAILBOX_IDX_ITEM);
        buf_init(&w->events, FILE_MAX);
    }
    return w;
}

void mailbox_idx_builder_destroy(struct mailbox_idx_builder *w)
{
    size_t pos = 0;
    void *v;
    if (!w)
        return;
    while (map64_next(&w->topics, &pos, NULL, &v))
        free(v);
    map64_fini(&w->topics);
    mailbox_pile_fini(&w->items);
    buf_fini(&w->events);
    free(w);
}

uint32_t mailbox_idx_builder_segment(const struct mailbox_idx_builder *w)
{
    return w->info.segment;
}

static void put_topics(struct mailbox_idx_builder *w, struct buf *out)
{
    size_t at = 0;
    void *v;
    while (map64_next(&w->topics, &at, NULL, &v)) {
        const struct topic *t = v;
        uint8_t p[TOPIC_BYTES];
        if (!t->count)
            continue;
        le32_put(p, t->id);
        le32_put(p + 4, t->count);
        le64_put(p + 8, t->min_seq);
        le64_put(p + 16, t->max_seq);
        memcpy(p + 24, t->chain.b, 32);
        buf_put(out, p, sizeof p);
        w->info.topics++;
    }
}

static enum err write_part(struct store_file *f, struct bytes part, uint64_t *to, uint32_t *sum) RT_BLOCKS
{
    enum err e = part.n ? store_file_pwrite(f, part.p, part.n, *to) : ERR_OK;
    *to += part.n;
    *sum = crc32c(*sum, part.p, part.n);
    return e;
}

static enum err write_parts(struct mailbox_idx_builder *w, const struct mailbox_idx_place *at,
                            struct bytes topics, struct store_file *f, uint64_t *out_bytes) RT_BLOCKS
{
    uint8_t header[MAILBOX_IDX_HEADER], crc[4];
    uint64_t to = 0;
    uint32_t sum = 0;
    put_header(header, at, &w->info);
    enum err e = write_part(f, bytes_of(header, sizeof header), &to, &sum);
    sum = 0; /* the header has a sum of its own */
    for (size_t i = 0; e == ERR_OK && i < w->items.pieces; i++)
        e = write_part(f, mailbox_pile_piece(&w->items, i), &to, &sum);
    if (e == ERR_OK)
        e = write_part(f, buf_bytes(&w->events), &to, &sum);
    if (e == ERR_OK)
        e = write_part(f, topics, &to, &sum);
    le32_put(crc, sum);
    if (e == ERR_OK)
        e = write_part(f, bytes_of(crc, 4), &to, &sum);
    *out_bytes = to;
    return e;
}

enum err mailbox_idx_builder_save(struct mailbox_idx_builder *w, const struct mailbox_idx_place *at,
                                  uint64_t *out_bytes)
{
    struct buf topics;
    char path[STORE_PATH_MAX], temp[STORE_PATH_MAX];
    struct store_file *f;
    buf_init(&topics, FILE_MAX);
    put_topics(w, &topics);
    w->info.event_bytes = w->events.n;
    mailbox_idx_path(path, at->dir, w->info.segment);
    store_path_join(temp, at->dir, "idx.tmp");
    enum err e = topics.err != ERR_OK
                     ? topics.err
                     : store_file_open(at->disk, temp, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (e == ERR_OK) {
        e = write_parts(w, at, buf_bytes(&topics), f, out_bytes);
        if (e == ERR_OK)
            e = store_file_sync(f);
        store_file_close(f);
    }
    if (e == ERR_OK)
        e = store_disk_rename(at->disk, temp, path);
    if (e == ERR_OK)
        e = store_disk_sync_dir(at->disk, at->dir);
    buf_fini(&topics);
    return e;
}

enum err mailbox_idx_write(const struct mailbox_idx_place *at, struct store_journal *j, uint32_t segment,
                           struct store_journal_report *out_report, uint64_t *out_bytes)
{
    struct mailbox_idx_builder *w = mailbox_idx_builder_create(segment);
    if (!w)
        return ERR_NO_MEMORY;
    enum err e = store_journal_scan(j, segment, index_frame, w, out_report);
    if (e == ERR_OK)
        e = mailbox_idx_builder_save(w, at, out_bytes);
    mailbox_idx_builder_destroy(w);
    return e;
}

/* ---- loading ---- */

enum err mailbox_idx_peek(const struct mailbox_idx_place *at, uint32_t segment,
                          struct mailbox_idx_info *out)
{
    char path[STORE_PATH_MAX];
    uint8_t header[MAILBOX_IDX_HEADER];
    struct store_file *f;
    uint64_t size = 0;
    mailbox_idx_path(path, at->dir, segment);
    enum err e = store_file_open(at->disk, path, STORE_READ, &f);
    if (e != ERR_OK)
        return e;
    e = store_file_size(f, &size);
    if (e == ERR_OK)
        e = size < sizeof header ? ERR_CORRUPT : store_file_read_all(f, header, sizeof header, 0);
    store_file_close(f);
    if (e == ERR_OK)
        e = get_header(header, at, segment, out);
    return e == ERR_OK && file_bytes(out) != size ? ERR_CORRUPT : e;
}

struct loader {
    struct mailbox_shard *s;
    const uint16_t *routing;
    struct mailbox_replay_at at;
    const uint8_t *items;
    uint32_t n, done;
};

static enum err load_item(struct loader *l, const uint8_t *move)
{
    const uint8_t *p = l->items + (size_t)l->done * MAILBOX_IDX_ITEM;
    if (l->done + 2 * AHEAD < l->n) {
        const uint8_t *soon = p + (size_t)AHEAD * MAILBOX_IDX_ITEM,
                      *later = soon + (size_t)AHEAD * MAILBOX_IDX_ITEM;
        mailbox_index_prefetch_place(&l->s->by_id, later + 16);
        mailbox_index_prefetch_place(&l->s->by_key, later + 32);
        mailbox_index_prefetch(&l->s->by_id, soon + 16);
        mailbox_index_prefetch(&l->s->by_key, soon + 32);
    }
    l->done++;
    struct mailbox_replay_enq q = {.topic_seq = le64_get(p + 48),
                                   .not_before_ms = le64_get(p + 56),
                                   .topic_id = le32_get(p + 8),
                                   .length = (uint32_t)le16_get(p + 2) * 64};
    memcpy(q.msg_id.b, p + 16, 16);
    memcpy(q.digest.b, p + 32, 16);
    l->at.offset = (uint64_t)le32_get(p + 4) * 8;
    if (p[0] == MAILBOX_REC_ENQ)
        return mailbox_replay_enq(l->s, &q, &l->at);
    if (p[0] == MAILBOX_REC_DEDUP)
        return mailbox_replay_dedup(l->s, &q, &l->at);
    if (p[0] != MAILBOX_REC_MOVE || !move)
        return ERR_CORRUPT;
    struct mailbox_rec_move m = mailbox_rec_move_at(move);
    return mailbox_replay_move(l->s, &q, &m, &l->at);
}

static enum err load_events(struct loader *l, struct bytes events)
{
    enum err e = ERR_OK;
    for (size_t at = 0; e == ERR_OK && at < events.n;) {
        if (events.n - at < EVENT_HEAD)
            return ERR_CORRUPT;
        const uint8_t *h = events.p + at;
        uint32_t before = le32_get(h), n = le32_get(h + 4) & ~EVENT_MOVE;
        bool move = (le32_get(h + 4) & EVENT_MOVE) != 0;
        at += EVENT_HEAD;
        if (before < l->done || before > l->n || n > events.n - at || (move && n != MAILBOX_MOVE_STATE))
            return ERR_CORRUPT;
        while (e == ERR_OK && l->done < before)
            e = load_item(l, NULL);
        if (e == ERR_OK && move) {
            e = l->done < l->n ? load_item(l, events.p + at) : ERR_CORRUPT;
        } else if (e == ERR_OK) {
            struct mailbox_rec r;
            size_t pos = 0;
            l->at.offset = (uint64_t)le32_get(h + 8) * 8;
            e = mailbox_rec_next_trusted(bytes_of(events.p + at, n), &pos, &r);
            if (e == ERR_OK)
                e = mailbox_replay_record(l->s, &r, &l->at, l->routing);
            else
                e = ERR_CORRUPT;
        }
        at += n;
    }
    while (e == ERR_OK && l->done < l->n)
        e = load_item(l, NULL);
    return e;
}

static enum err apply(const uint8_t *file, const struct mailbox_idx_info *x, struct loader *l)
{
    const uint8_t *events = file + MAILBOX_IDX_HEADER + (size_t)x->items * MAILBOX_IDX_ITEM;
    const uint8_t *topic = events + x->event_bytes;
    l->items = file + MAILBOX_IDX_HEADER;
    l->n = x->items;
    enum err e = load_events(l, bytes_of(events, x->event_bytes));
    for (uint32_t k = 0; e == ERR_OK && k < x->topics; k++, topic += TOPIC_BYTES) {
        struct sha256 chain;
        memcpy(chain.b, topic + 24, 32);
        e = mailbox_replay_chain(l->s, le32_get(topic), le64_get(topic + 16), &chain);
    }
    return e;
}

/* The whole file, both CRCs checked; ERR_INTEGRITY when it cannot be used. */
static enum err slurp(const struct mailbox_idx_place *at, uint32_t segment, struct buf *b,
                      struct mailbox_idx_info *out) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    buf_init(b, FILE_MAX);
    mailbox_idx_path(path, at->dir, segment);
    enum err e = store_file_slurp(at->disk, path, b);
    if (e == ERR_OK)
        e = b->n < MAILBOX_IDX_HEADER ? ERR_CORRUPT : get_header(b->p, at, segment, out);
    if (e == ERR_OK &&
        (b->n != file_bytes(out) ||
         le32_get(b->p + b->n - 4) != crc32c(0, b->p + MAILBOX_IDX_HEADER, b->n - MAILBOX_IDX_HEADER - 4)))
        e = ERR_CORRUPT;
    return e == ERR_CORRUPT || e == ERR_TOO_LARGE ? ERR_INTEGRITY : e;
}

enum err mailbox_idx_load(const struct mailbox_idx_place *at, uint32_t segment, struct mailbox_shard *s,
                          const uint16_t *routing, uint64_t wall_ms, struct mailbox_idx_info *out)
{
    struct buf b;
    enum err e = slurp(at, segment, &b, out);
    if (e == ERR_OK) {
        struct loader l = {.s = s, .routing = routing, .at = {.segment = segment, .wall_ms = wall_ms}};
        e = apply(b.p, out, &l);
    }
    buf_fini(&b);
    return e;
}

enum err mailbox_idx_check(const struct mailbox_idx_place *at, uint32_t segment, uint64_t *out_bytes)
{
    struct mailbox_idx_info x;
    struct buf b;
    enum err e = slurp(at, segment, &b, &x);
    *out_bytes = b.n;
    buf_fini(&b);
    return e;
}

enum err mailbox_idx_topics(const struct mailbox_idx_place *at, uint32_t segment,
                            void (*fn)(void *ctx, uint32_t topic_id, uint64_t topic_seq,
                                       const struct sha256 *chain),
                            void *ctx)
{
    struct mailbox_idx_info x;
    struct buf b;
    enum err e = slurp(at, segment, &b, &x);
    const uint8_t *topic = e == ERR_OK ? b.p + b.n - 4 - (size_t)x.topics * TOPIC_BYTES : NULL;
    for (uint32_t k = 0; e == ERR_OK && k < x.topics; k++, topic += TOPIC_BYTES) {
        struct sha256 chain;
        memcpy(chain.b, topic + 24, 32);
        fn(ctx, le32_get(topic), le64_get(topic + 16), &chain);
    }
    buf_fini(&b);
    return e;
}

enum err mailbox_idx_range(const struct mailbox_idx_place *at, uint32_t segment, uint32_t topic_id,
                           uint64_t *out_first, uint64_t *out_last)
{
    enum { ROOM = 64 };
    struct mailbox_idx_info x;
    char path[STORE_PATH_MAX];
    uint8_t some[ROOM * TOPIC_BYTES];
    struct store_file *f;
    *out_first = *out_last = 0;
    enum err e = mailbox_idx_peek(at, segment, &x);
    if (e != ERR_OK)
        return e;
    mailbox_idx_path(path, at->dir, segment);
    if ((e = store_file_open(at->disk, path, STORE_READ, &f)) != ERR_OK)
        return e;
    uint64_t from = file_bytes(&x) - 4 - (uint64_t)x.topics * TOPIC_BYTES;
    for (uint32_t n, left = x.topics; e == ERR_OK && left && !*out_last; left -= n) {
        n = left < ROOM ? left : ROOM;
        e = store_file_read_all(f, some, n * TOPIC_BYTES, from);
        from += n * TOPIC_BYTES;
        for (const uint8_t *p = some; e == ERR_OK && p < some + n * TOPIC_BYTES; p += TOPIC_BYTES)
            if (le32_get(p) == topic_id) {
                *out_first = le64_get(p + 8);
                *out_last = le64_get(p + 16);
            }
    }
    store_file_close(f);
    return e;
}

/* ---- looking one record up ---- */

/* Its payload's hash is not among what an entry knows: a wrong bit there refuses a repetition, it never lets one be another message. */
static bool is_of(const uint8_t *p, const struct mailbox_entry *e)
{
    return memcmp(p + 16, e->msg_id.b, 16) == 0 && memcmp(p + 32, e->digest, sizeof e->digest) == 0 &&
           le64_get(p + 48) == e->topic_seq;
}

enum err mailbox_idx_find(const struct mailbox_idx_place *at, const struct mailbox_entry *en,
                          struct mailbox_rec *out)
{
    struct mailbox_idx_info x;
    char path[STORE_PATH_MAX];
    uint8_t p[MAILBOX_IDX_ITEM];
    struct store_file *f;
    enum err e = mailbox_idx_peek(at, en->segment, &x);
    if (e != ERR_OK)
        return e == ERR_CORRUPT ? ERR_INTEGRITY : e;
    mailbox_idx_path(path, at->dir, en->segment);
    e = store_file_open(at->disk, path, STORE_READ, &f);
    if (e != ERR_OK)
        return e;
    uint32_t low = 0, high = x.items;
    bool found = false;
    while (e == ERR_OK && !found && low < high) {
        uint32_t mid = low + (high - low) / 2;
        e = store_file_read_all(f, p, sizeof p, MAILBOX_IDX_HEADER + (uint64_t)mid * MAILBOX_IDX_ITEM);
        if (e == ERR_OK && le32_get(p + 4) == en->offset8)
            found = true;
        else if (le32_get(p + 4) < en->offset8)
            low = mid + 1;
        else
            high = mid;
    }
    store_file_close(f);
    if (e == ERR_OK && (!found || !is_of(p, en)))
        return ERR_INTEGRITY;
    if (e != ERR_OK)
        return e;
    *out = (struct mailbox_rec){.type = MAILBOX_REC_DEDUP};
    memcpy(out->dedup.digest.b, p + 32, 16);
    memcpy(out->dedup.payload_hash.b, p + 64, 16);
    return ERR_OK;
}
