#include "services/mailbox/core/record.h"

#include "base/check.h"
#include "base/crc32c.h"

static const char *const cause_names[] = {"", "nack", "lease_expired", "integrity", "dead", "retention"};

const char *mailbox_cause_name(enum mailbox_cause c)
{
    return c > 0 && c < MAILBOX_CAUSE_COUNT ? cause_names[c] : "unknown";
}

enum mailbox_cause mailbox_cause_parse(struct str s)
{
    for (int c = 1; c < MAILBOX_CAUSE_COUNT; c++)
        if (str_eq_c(s, cause_names[c]))
            return (enum mailbox_cause)c;
    return (enum mailbox_cause)0;
}

void mailbox_rec_w_init(struct mailbox_rec_w *w, void *mem, size_t cap)
{
    *w = (struct mailbox_rec_w){.p = mem, .cap = cap, .last = SIZE_MAX};
}

void mailbox_rec_w_reset(struct mailbox_rec_w *w)
{
    w->n = 0;
    w->records = 0;
    w->last = SIZE_MAX;
}

static size_t round8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Reserves a record, zeroes its padding and writes the header without CRC; NULL when it does not fit. */
static uint8_t *begin(struct mailbox_rec_w *w, enum mailbox_rec_type type, uint16_t n, uint32_t topic_id,
                      size_t body)
{
    size_t len = round8(MAILBOX_REC_HEAD + body);

    if (w->cap - w->n < len)
        return NULL;
    uint8_t *p = w->p + w->n;
    memset(p + len - 8, 0, 8);
    le32_put(p, (uint32_t)len);
    le32_put(p + 4, 0);
    p[8] = (uint8_t)type;
    p[9] = 1;
    le16_put(p + 10, n);
    le32_put(p + 12, topic_id);
    w->last = w->n;
    w->n += len;
    w->records++;
    return p + MAILBOX_REC_HEAD;
}

/* One more item for the last record when it is of the same kind and topic, else a new record. Items are 24 or 2 bytes. */
static uint8_t *item(struct mailbox_rec_w *w, enum mailbox_rec_type type, uint32_t topic_id, size_t size)
{
    if (w->last == SIZE_MAX)
        return begin(w, type, 1, topic_id, size);
    uint8_t *p = w->p + w->last;
    uint16_t n = le16_get(p + 10);
    if (p[8] != type || le32_get(p + 12) != topic_id || n == UINT16_MAX)
        return begin(w, type, 1, topic_id, size);
    size_t len = round8(MAILBOX_REC_HEAD + (size_t)(n + 1) * size);
    size_t old = le32_get(p);
    if (w->cap - w->last < len)
        return begin(w, type, 1, topic_id, size);
    if (len > old)
        memset(p + old, 0, len - old);
    le32_put(p, (uint32_t)len);
    le16_put(p + 10, (uint16_t)(n + 1));
    w->n = w->last + len;
    return p + MAILBOX_REC_HEAD + (size_t)n * size;
}

enum { TOPIC_WITH_TENANT = 2 }; /* in n */

enum err mailbox_rec_put_topic(struct mailbox_rec_w *w, uint32_t topic_id,
                               const struct mailbox_rec_topic *t)
{
    CHECK(t->name.n <= MAILBOX_TOPIC_MAX && t->tenant.n <= MAILBOX_TENANT_MAX);
    bool named = t->tenant.n > 0;
    uint8_t *b = begin(w, MAILBOX_REC_TOPIC, named ? TOPIC_WITH_TENANT : 1, topic_id,
                       66 + t->name.n + (named ? 1 + t->tenant.n : 0));
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, t->chain_id.b, 16);
    le64_put(b + 16, t->created_ms);
    le64_put(b + 24, t->last_seq);
    memcpy(b + 32, t->chain.b, 32);
    le16_put(b + 64, (uint16_t)t->name.n);
    memcpy(b + 66, t->name.p, t->name.n);
    if (named) {
        b[66 + t->name.n] = (uint8_t)t->tenant.n;
        memcpy(b + 67 + t->name.n, t->tenant.p, t->tenant.n);
    }
    return ERR_OK;
}

static size_t enq_body(const struct mailbox_rec_enq *e)
{
    return MAILBOX_ENQ_FIXED + e->idem_key.n + e->corr_id.n + e->attrs.n + e->payload.n;
}

size_t mailbox_rec_enq_bytes(const struct mailbox_rec_enq *e)
{
    return round8(MAILBOX_REC_HEAD + enq_body(e));
}

static uint8_t *append(uint8_t *p, const void *src, size_t n)
{
    if (n)
        memcpy(p, src, n);
    return p + n;
}

static void put_enq_body(uint8_t *b, const struct mailbox_rec_enq *e)
{
    memcpy(b, e->msg_id.b, 16);
    le64_put(b + 16, e->topic_seq);
    le64_put(b + 24, e->ts_ms);
    le64_put(b + 32, e->not_before_ms);
    memcpy(b + 40, e->payload_hash.b, 32);
    memcpy(b + 72, e->chain_prev.b, 32);
    memcpy(b + 104, e->chain.b, 32);
    le32_put(b + 136, (uint32_t)e->payload.n);
    le32_put(b + 140, (uint32_t)e->attrs.n);
    le16_put(b + 144, (uint16_t)e->idem_key.n);
    le16_put(b + 146, (uint16_t)e->corr_id.n);
    le32_put(b + 148, 0);
    uint8_t *p = append(b + MAILBOX_ENQ_FIXED, e->idem_key.p, e->idem_key.n);
    p = append(p, e->corr_id.p, e->corr_id.n);
    p = append(p, e->attrs.p, e->attrs.n);
    append(p, e->payload.p, e->payload.n);
}

enum err mailbox_rec_put_enq(struct mailbox_rec_w *w, uint32_t topic_id, const struct mailbox_rec_enq *e)
{
    uint8_t *b = begin(w, MAILBOX_REC_ENQ, 1, topic_id, enq_body(e));
    if (!b)
        return ERR_NO_SPACE;
    put_enq_body(b, e);
    return ERR_OK;
}

enum { MOVE_LATE = 1, MOVE_CUT = 2 };

struct mailbox_rec_move mailbox_rec_move_at(const uint8_t *b)
{
    return (struct mailbox_rec_move){le16_get(b),     b[2],           b[3], b[4] & MOVE_LATE,
                                     le64_get(b + 8), b[4] & MOVE_CUT};
}

enum err mailbox_rec_put_move(struct mailbox_rec_w *w, uint32_t topic_id, const struct mailbox_rec_move *m,
                              const struct mailbox_rec_enq *e)
{
    uint8_t *b = begin(w, MAILBOX_REC_MOVE, 1, topic_id, MAILBOX_MOVE_STATE + enq_body(e));
    if (!b)
        return ERR_NO_SPACE;
    le16_put(b, m->attempt);
    b[2] = m->tries;
    b[3] = m->state;
    le32_put(b + 4, (m->late ? MOVE_LATE : 0u) | (m->cut ? MOVE_CUT : 0u));
    le64_put(b + 8, m->due_ms);
    put_enq_body(b + MAILBOX_MOVE_STATE, e);
    return ERR_OK;
}

enum err mailbox_rec_put_lease(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                               uint16_t attempt, uint8_t tries)
{
    uint8_t *b = item(w, MAILBOX_REC_LEASE, topic_id, 24);
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, id->b, 16);
    le64_put(b + 16, 0);
    le16_put(b + 16, attempt);
    b[18] = tries;
    return ERR_OK;
}

enum err mailbox_rec_put_settle(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                                enum mailbox_settle_kind kind)
{
    uint8_t *b = item(w, MAILBOX_REC_SETTLE, topic_id, 24);
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, id->b, 16);
    le64_put(b + 16, (uint64_t)kind);
    return ERR_OK;
}

enum err mailbox_rec_put_fail(struct mailbox_rec_w *w, uint32_t topic_id, const struct mailbox_rec_fail *f)
{
    uint8_t *b = begin(w, MAILBOX_REC_FAIL, 1, topic_id, 40 + f->reason.n);
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, f->msg_id.b, 16);
    le64_put(b + 16, f->at_ms);
    le64_put(b + 24, f->not_before_ms);
    le16_put(b + 32, f->attempt);
    b[34] = f->cause;
    b[35] = f->to;
    le16_put(b + 36, (uint16_t)f->reason.n);
    le16_put(b + 38, 0);
    append(b + 40, f->reason.p, f->reason.n);
    return ERR_OK;
}

enum err mailbox_rec_put_reproc(struct mailbox_rec_w *w, uint32_t topic_id, const struct uuid *id,
                                uint64_t not_before_ms)
{
    uint8_t *b = item(w, MAILBOX_REC_REPROC, topic_id, 24);
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, id->b, 16);
    le64_put(b + 16, not_before_ms);
    return ERR_OK;
}

enum err mailbox_rec_put_dedup(struct mailbox_rec_w *w, uint32_t topic_id,
                               const struct mailbox_rec_dedup *d)
{
    uint8_t *b = begin(w, MAILBOX_REC_DEDUP, 1, topic_id, 112);
    if (!b)
        return ERR_NO_SPACE;
    memcpy(b, d->digest.b, 16);
    memcpy(b + 16, d->msg_id.b, 16);
    le64_put(b + 32, d->topic_seq);
    le64_put(b + 40, d->ts_ms);
    memcpy(b + 48, d->payload_hash.b, 32);
    memcpy(b + 80, d->chain.b, 32);
    return ERR_OK;
}

enum err mailbox_rec_put_forget(struct mailbox_rec_w *w, uint32_t topic_id)
{
    return begin(w, MAILBOX_REC_FORGET, 0, topic_id, 0) ? ERR_OK : ERR_NO_SPACE;
}

enum err mailbox_rec_put_adopt(struct mailbox_rec_w *w, uint16_t bucket)
{
    uint8_t *b = item(w, MAILBOX_REC_ADOPT, 0, 2);
    if (!b)
        return ERR_NO_SPACE;
    le16_put(b, bucket);
    return ERR_OK;
}

void mailbox_rec_seal(struct mailbox_rec_w *w)
{
    for (size_t at = 0; at < w->n;) {
        uint8_t *p = w->p + at;
        size_t len = le32_get(p);
        CHECK(len >= MAILBOX_REC_HEAD && len <= w->n - at);
        le32_put(p + 4, crc32c(0, p + 8, len - 8));
        at += len;
    }
    w->last = SIZE_MAX; /* a sealed record takes no further items */
}

static struct sha256 hash_at(const uint8_t *p)
{
    struct sha256 h;
    memcpy(h.b, p, 32);
    return h;
}

static struct uuid uuid_at(const uint8_t *p)
{
    struct uuid u;
    memcpy(u.b, p, 16);
    return u;
}

/* kind: the record's n. Behind the name comes the tenant, in records that have one. */
static bool get_topic(const uint8_t *b, size_t n, uint16_t kind, struct mailbox_rec_topic *t)
{
    if (n < 66 || le16_get(b + 64) < 1 || le16_get(b + 64) > MAILBOX_TOPIC_MAX)
        return false;
    size_t end = 66u + le16_get(b + 64);
    t->tenant = str_of("", 0);
    if (kind == TOPIC_WITH_TENANT) {
        if (end >= n || b[end] < 1 || b[end] > MAILBOX_TENANT_MAX || b[end] > n - end - 1)
            return false;
        t->tenant = str_of((const char *)b + end + 1, b[end]);
        end += 1u + b[end];
    }
    if (n != round8(end))
        return false;
    t->chain_id = uuid_at(b);
    t->created_ms = le64_get(b + 16);
    t->last_seq = le64_get(b + 24);
    t->chain = hash_at(b + 32);
    t->name = str_of((const char *)b + 66, le16_get(b + 64));
    return mailbox_topic_valid(t->name);
}

static bool get_enq(const uint8_t *b, size_t n, struct mailbox_rec_enq *e)
{
    if (n < MAILBOX_ENQ_FIXED)
        return false;
    size_t payload = le32_get(b + 136), attrs = le32_get(b + 140), idem = le16_get(b + 144),
           corr = le16_get(b + 146);
    if (payload > MAILBOX_PAYLOAD_MAX || attrs > MAILBOX_ATTRS_BYTES_MAX || idem < 1 ||
        idem > MAILBOX_IDEM_MAX || corr > MAILBOX_CORR_MAX || le32_get(b + 148) != 0 ||
        n != round8(MAILBOX_ENQ_FIXED + payload + attrs + idem + corr))
        return false;
    const uint8_t *p = b + MAILBOX_ENQ_FIXED;
    e->msg_id = uuid_at(b);
    e->topic_seq = le64_get(b + 16);
    e->ts_ms = le64_get(b + 24);
    e->not_before_ms = le64_get(b + 32);
    e->payload_hash = hash_at(b + 40);
    e->chain_prev = hash_at(b + 72);
    e->chain = hash_at(b + 104);
    e->idem_key = str_of((const char *)p, idem);
    e->corr_id = str_of((const char *)p + idem, corr);
    e->attrs = bytes_of(p + idem + corr, attrs);
    e->payload = bytes_of(p + idem + corr + attrs, payload);
    return e->topic_seq > 0 && mailbox_attrs_wellformed(e->attrs);
}

static bool get_fail(const uint8_t *b, size_t n, struct mailbox_rec_fail *f)
{
    if (n < 40 || le16_get(b + 36) > MAILBOX_REASON_MAX || n != round8(40u + le16_get(b + 36)))
        return false;
    f->msg_id = uuid_at(b);
    f->at_ms = le64_get(b + 16);
    f->not_before_ms = le64_get(b + 24);
    f->attempt = le16_get(b + 32);
    f->cause = b[34];
    f->to = b[35];
    f->reason = str_of((const char *)b + 40, le16_get(b + 36));
    return f->cause >= 1 && f->cause < MAILBOX_CAUSE_COUNT && f->to <= MAILBOX_TO_DLQ &&
           le16_get(b + 38) == 0;
}

static bool get_dedup(const uint8_t *b, size_t n, struct mailbox_rec_dedup *d)
{
    if (n != 112)
        return false;
    memcpy(d->digest.b, b, 16);
    d->msg_id = uuid_at(b + 16);
    d->topic_seq = le64_get(b + 32);
    d->ts_ms = le64_get(b + 40);
    d->payload_hash = hash_at(b + 48);
    d->chain = hash_at(b + 80);
    return true;
}

static bool get_body(struct mailbox_rec *r, const uint8_t *b, size_t n)
{
    switch (r->type) {
    case MAILBOX_REC_TOPIC:
        return get_topic(b, n, r->n, &r->topic);
    case MAILBOX_REC_ENQ:
        return get_enq(b, n, &r->enq);
    case MAILBOX_REC_MOVE:
        if (n < MAILBOX_MOVE_STATE)
            return false;
        r->move = mailbox_rec_move_at(b);
        return get_enq(b + MAILBOX_MOVE_STATE, n - MAILBOX_MOVE_STATE, &r->enq);
    case MAILBOX_REC_LEASE:
    case MAILBOX_REC_SETTLE:
    case MAILBOX_REC_REPROC:
        r->items = b;
        if (r->n == 0 || n != (size_t)r->n * 24)
            return false;
        for (size_t i = 0; r->type == MAILBOX_REC_SETTLE && i < r->n; i++)
            if (b[i * 24 + 16] < MAILBOX_SETTLE_ACK || b[i * 24 + 16] > MAILBOX_SETTLE_RETENTION)
                return false;
        return true;
    case MAILBOX_REC_FAIL:
        return get_fail(b, n, &r->fail);
    case MAILBOX_REC_DEDUP:
        return get_dedup(b, n, &r->dedup);
    case MAILBOX_REC_FORGET:
        return n == 0;
    case MAILBOX_REC_ADOPT:
        r->items = b;
        if (r->n == 0 || n != round8((size_t)r->n * 2))
            return false;
        for (size_t i = 0; i < r->n; i++)
            if (le16_get(b + i * 2) >= MAILBOX_BUCKETS)
                return false;
        return true;
    default:
        return false;
    }
}

static enum err next(struct bytes payload, size_t *at, bool check_crc, struct mailbox_rec *out)
{
    if (*at >= payload.n)
        return ERR_EMPTY;
    size_t left = payload.n - *at;
    const uint8_t *p = payload.p + *at;
    if (left < MAILBOX_REC_HEAD)
        return ERR_CORRUPT;
    size_t len = le32_get(p);
    if (len < MAILBOX_REC_HEAD || len > left || len % 8 != 0 || p[9] != 1)
        return ERR_CORRUPT;
    if (check_crc && crc32c(0, p + 8, len - 8) != le32_get(p + 4))
        return ERR_CORRUPT;
    out->type = (enum mailbox_rec_type)p[8];
    out->n = le16_get(p + 10);
    out->topic_id = le32_get(p + 12);
    out->whole = bytes_of(p, len);
    out->items = NULL;
    if (!get_body(out, p + MAILBOX_REC_HEAD, len - MAILBOX_REC_HEAD))
        return ERR_CORRUPT;
    *at += len;
    return ERR_OK;
}

enum err mailbox_rec_next(struct bytes payload, size_t *at, struct mailbox_rec *out_rec)
{
    return next(payload, at, true, out_rec);
}

enum err mailbox_rec_next_trusted(struct bytes payload, size_t *at, struct mailbox_rec *out_rec)
{
    return next(payload, at, false, out_rec);
}

struct mailbox_rec_lease_item mailbox_rec_lease_at(const struct mailbox_rec *r, uint16_t i)
{
    const uint8_t *b = r->items + (size_t)i * 24;
    return (struct mailbox_rec_lease_item){uuid_at(b), le16_get(b + 16), b[18]};
}

struct uuid mailbox_rec_settle_at(const struct mailbox_rec *r, uint16_t i,
                                  enum mailbox_settle_kind *out_kind)
{
    const uint8_t *b = r->items + (size_t)i * 24;
    *out_kind = (enum mailbox_settle_kind)b[16];
    return uuid_at(b);
}

struct uuid mailbox_rec_reproc_at(const struct mailbox_rec *r, uint16_t i, uint64_t *out_not_before_ms)
{
    const uint8_t *b = r->items + (size_t)i * 24;
    *out_not_before_ms = le64_get(b + 16);
    return uuid_at(b);
}

uint16_t mailbox_rec_adopt_at(const struct mailbox_rec *r, uint16_t i)
{
    return le16_get(r->items + (size_t)i * 2);
}

void mailbox_group_root(const struct sha256 *prev_root, uint64_t group_no, struct bytes payload,
                        struct sha256 *out_root, uint32_t *out_enqs)
{
    static const char tag[] = "ron/mailbox/group/v1";
    uint8_t head[12];
    struct sha256_ctx c;
    uint32_t enqs = 0;

    sha256_init(&c);
    sha256_update(&c, tag, sizeof tag);
    sha256_update(&c, prev_root->b, 32);
    be64_put(head, group_no);
    be32_put(head + 8, crc32c(0, payload.p, payload.n));
    sha256_update(&c, head, sizeof head);
    for (size_t at = 0; at + MAILBOX_REC_HEAD <= payload.n;) {
        const uint8_t *p = payload.p + at;
        size_t len = le32_get(p);
        CHECK(len >= MAILBOX_REC_HEAD && len <= payload.n - at);
        if (p[8] == MAILBOX_REC_ENQ) {
            CHECK(len >= MAILBOX_REC_HEAD + MAILBOX_ENQ_FIXED);
            sha256_update(&c, p + MAILBOX_REC_HEAD + 104, 32);
            enqs++;
        }
        at += len;
    }
    sha256_final(&c, out_root);
    *out_enqs = enqs;
}
