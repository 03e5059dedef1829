/*
 * body   0 "RRB1" | 4 CRC-32C of 8.. | 8 ms u64 | 16 count2 u32 | 20 flags u32 (1: zstd) | 24 payload length u64 | 32 payload
 *
 * Integers little-endian. The column is stored outside the row and not packed again by PostgreSQL (storage external): our text
 * shrinks four- to sixfold with zstd at a cost far below what moving and logging it unpacked costs the three servers.
 */
#include "store/pg_stream.h"

#include <string.h>
#include <zstd.h>

#include "base/check.h"
#include "base/crc32c.h"

enum { BODY_HEAD = 32, BODY_ZSTD = 1, PACK_MIN = 512, PAYLOAD_MAX = 64 << 20, FETCH_BYTES = 8 << 20 };

static const char schema[] =
    "set client_min_messages = warning; select pg_advisory_xact_lock(7400411);"
    "create table if not exists ron_lease (stream text primary key, epoch bigint not null, holder text not "
    "null,"
    " url text not null, expires timestamptz not null, identity text not null);"
    "create table if not exists ron_frame (stream text not null, group_no bigint not null, epoch bigint "
    "not null,"
    " first_seq bigint not null, n_entries bigint not null, prev_root bytea not null, new_root bytea not "
    "null,"
    " body bytea not null, primary key (stream, group_no));"
    "do $$ begin if (select attstorage from pg_attribute where attrelid = 'ron_frame'::regclass and "
    "attname = 'body')"
    " <> 'e' then alter table ron_frame alter column body set storage external; end if; end $$;";

enum {
    S_FOUND,
    S_LEASE,
    S_TAKE,
    S_RENEW,
    S_BARRIER,
    S_HEAD,
    S_ROOT,
    S_FRAMES,
    S_APPEND,
    S_LEASES,
    S_FIRST,
    S_TRIM,
};

static const struct store_pg_statement statements[] = {
    [S_FOUND] = {"ron_found", "insert into ron_lease values ($1::text, 0, '', '', '-infinity', $2::text) "
                              "on conflict do nothing"},
    [S_LEASE] = {"ron_lease_read",
                 "select epoch, holder, url, case when expires = '-infinity' then -1::bigint else"
                 " (extract(epoch from expires - clock_timestamp()) * 1000)::bigint end, identity"
                 " from ron_lease where stream = $1::text"},
    [S_TAKE] = {"ron_take",
                "update ron_lease set epoch = epoch + 1, holder = $2::text, url = $3::text,"
                " expires = clock_timestamp() + $4::bigint * interval '1 ms' where stream = $1::text and"
                " ($5::bigint = 1 or holder = $2::text or expires < clock_timestamp()) returning epoch"},
    [S_RENEW] = {"ron_renew",
                 "update ron_lease set expires = clock_timestamp() + $3::bigint * interval '1 ms'"
                 " where stream = $1::text and epoch = $2::bigint"},
    [S_BARRIER] = {"ron_barrier",
                   "update ron_lease set holder = holder where stream = $1::text and epoch = $2::bigint"},
    [S_HEAD] =
        {"ron_head",
         "select group_no, first_seq + n_entries, epoch, new_root from ron_frame where stream = $1::text"
         " order by group_no desc limit 1"},
    [S_ROOT] = {"ron_root",
                "select new_root, epoch from ron_frame where stream = $1::text and group_no = $2::bigint"},
    [S_FRAMES] =
        {"ron_frames",
         "select group_no, epoch, first_seq, n_entries, prev_root, new_root, body from (select *,"
         " sum(octet_length(body)) over (order by group_no rows between unbounded preceding and 1 "
         "preceding)"
         " as before from (select * from ron_frame where stream = $1::text and group_no >= $2::bigint"
         " order by group_no limit $3::bigint) few) sized where coalesce(before, 0) < $4::bigint"
         " order by group_no"},
    [S_APPEND] =
        {"ron_append",
         "insert into ron_frame select $1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint,"
         " $6::bytea, $7::bytea, $8::bytea from ron_lease l where l.stream = $1::text and"
         " l.epoch = $3::bigint and ($2::bigint = 1 or exists (select 1 from ron_frame where"
         " stream = $1::text and group_no = $2::bigint - 1 and new_root = $6::bytea)) for share of l"},
    [S_LEASES] = {"ron_leases",
                  "select epoch, holder, url, case when expires = '-infinity' then -1::bigint else"
                  " (extract(epoch from expires - clock_timestamp()) * 1000)::bigint end, identity, stream"
                  " from ron_lease where starts_with(stream, $1::text) order by stream collate \"C\""},
    [S_FIRST] = {"ron_first",
                 "select group_no, first_seq, epoch, prev_root from ron_frame where stream = $1::text"
                 " order by group_no limit 1"},
    [S_TRIM] =
        {"ron_trim",
         "with l as (select 1 from ron_lease where stream = $1::text and epoch = $2::bigint for share)"
         " delete from ron_frame where stream = $1::text and group_no <= $3::bigint and exists"
         " (select 1 from l)"},
};

enum err store_pg_stream_create(const char *dsn, const char *application, unsigned quorum,
                                struct store_pg **out)
{
    struct store_pg_config cfg = {.dsn = dsn,
                                  .application = application,
                                  .quorum = quorum,
                                  .schema = schema,
                                  .statements = statements,
                                  .n_statements = sizeof statements / sizeof statements[0]};
    return store_pg_create(&cfg, out);
}

static struct store_pg_param text(const char *s)
{
    return store_pg_text(s, strlen(s));
}

/* ---- the lease ---- */

static void copy_text(const PGresult *r, int row, int column, char *out, size_t max)
{
    struct bytes b = store_pg_get_bytes(r, row, column);
    size_t n = b.n < max ? b.n : max;
    memcpy(out, b.p, n);
    out[n] = 0;
}

static void lease_of(const PGresult *r, int row, struct store_lease *out)
{
    *out = (struct store_lease){.epoch = (uint64_t)store_pg_get_int8(r, row, 0),
                                .left_ms = store_pg_get_int8(r, row, 3)};
    copy_text(r, row, 1, out->holder, STORE_LEASE_NAME_MAX);
    copy_text(r, row, 2, out->url, STORE_LEASE_URL_MAX);
    copy_text(r, row, 4, out->identity, STORE_LEASE_IDENTITY_MAX);
}

enum err store_pg_lease_read(struct store_pg *p, const char *stream, struct deadline by,
                             struct store_lease *out)
{
    PGresult *r = NULL;
    struct store_pg_param v[] = {text(stream)};
    enum err e = store_pg_call(p, S_LEASE, v, 1, by, &r);
    if (e != ERR_OK)
        return e;
    if (PQntuples(r) == 0) {
        e = ERR_NOT_FOUND;
    } else {
        lease_of(r, 0, out);
    }
    PQclear(r);
    return e;
}

enum err store_pg_leases(struct store_pg *p, const char *prefix, struct deadline by, store_pg_lease_fn *fn,
                         void *ctx)
{
    PGresult *r = NULL;
    struct store_pg_param v[] = {text(prefix)};
    enum err e = store_pg_call(p, S_LEASES, v, 1, by, &r);
    for (int row = 0; e == ERR_OK && row < PQntuples(r); row++) {
        struct store_lease lease;
        char stream[STORE_LEASE_NAME_MAX * 2 + 1];
        lease_of(r, row, &lease);
        copy_text(r, row, 5, stream, sizeof stream - 1);
        fn(ctx, stream, &lease);
    }
    PQclear(r);
    return e;
}

enum err store_pg_lease_found(struct store_pg *p, const char *stream, const char *identity,
                              struct deadline by, struct store_lease *out)
{
    PGresult *r = NULL;
    struct store_pg_param v[] = {text(stream), text(identity)};
    enum err e = store_pg_call(p, S_FOUND, v, 2, by, &r);
    PQclear(r);
    return e == ERR_OK ? store_pg_lease_read(p, stream, by, out) : e;
}

enum err store_pg_lease_take(struct store_pg *p, const char *stream, const char *holder, const char *url,
                             int64_t lease_ms, bool anyway, struct deadline by, uint64_t *out_epoch)
{
    PGresult *r = NULL;
    struct store_pg_int a, b;
    struct store_pg_param v[] = {text(stream), text(holder), text(url), store_pg_int8(&a, lease_ms),
                                 store_pg_int8(&b, anyway ? 1 : 0)};
    enum err e = store_pg_call(p, S_TAKE, v, 5, by, &r);
    if (e != ERR_OK)
        return e;
    if (PQntuples(r) == 1)
        *out_epoch = (uint64_t)store_pg_get_int8(r, 0, 0);
    else
        e = ERR_LOCKED;
    PQclear(r);
    return e;
}

static enum err must_touch_one(struct store_pg *p, size_t which, const struct store_pg_param *v, int n,
                               struct deadline by) RT_BLOCKS
{
    PGresult *r = NULL;
    enum err e = store_pg_call(p, which, v, n, by, &r);
    if (e == ERR_OK && store_pg_affected(r) != 1)
        e = ERR_FENCED;
    PQclear(r);
    return e;
}

enum err store_pg_lease_renew(struct store_pg *p, const char *stream, uint64_t epoch, int64_t lease_ms,
                              struct deadline by)
{
    struct store_pg_int a, b;
    struct store_pg_param v[] = {text(stream), store_pg_int8(&a, (int64_t)epoch),
                                 store_pg_int8(&b, lease_ms)};
    return must_touch_one(p, S_RENEW, v, 3, by);
}

enum err store_pg_barrier(struct store_pg *p, const char *stream, uint64_t epoch, struct deadline by)
{
    struct store_pg_int a;
    struct store_pg_param v[] = {text(stream), store_pg_int8(&a, (int64_t)epoch)};
    return must_touch_one(p, S_BARRIER, v, 2, by);
}

/* ---- reading rows ---- */

static bool get_root(const PGresult *r, int row, int column, struct sha256 *out)
{
    struct bytes b = store_pg_get_bytes(r, row, column);
    if (b.n != sizeof out->b)
        return false;
    memcpy(out->b, b.p, sizeof out->b);
    return true;
}

static enum err one_end(struct store_pg *p, size_t which, const char *stream, struct deadline by,
                        struct store_pg_head *out) RT_BLOCKS
{
    PGresult *r = NULL;
    struct store_pg_param v[] = {text(stream)};
    enum err e = store_pg_call(p, which, v, 1, by, &r);
    if (e != ERR_OK)
        return e;
    struct store_pg_head h = {.next_seq = 1};
    if (PQntuples(r) == 1) {
        h.group_no = (uint64_t)store_pg_get_int8(r, 0, 0);
        h.next_seq = (uint64_t)store_pg_get_int8(r, 0, 1);
        h.epoch = (uint64_t)store_pg_get_int8(r, 0, 2);
        if (!get_root(r, 0, 3, &h.root))
            e = ERR_CORRUPT;
    }
    PQclear(r);
    if (e == ERR_OK)
        *out = h;
    return e;
}

enum err store_pg_stream_head(struct store_pg *p, const char *stream, struct deadline by,
                              struct store_pg_head *out)
{
    return one_end(p, S_HEAD, stream, by, out);
}

enum err store_pg_stream_first(struct store_pg *p, const char *stream, struct deadline by,
                               struct store_pg_head *out)
{
    return one_end(p, S_FIRST, stream, by, out);
}

enum err store_pg_trim(struct store_pg *p, const char *stream, uint64_t epoch, uint64_t last_group,
                       struct deadline by)
{
    PGresult *r = NULL;
    struct store_pg_int a, b;
    struct store_pg_param v[] = {text(stream), store_pg_int8(&a, (int64_t)epoch),
                                 store_pg_int8(&b, (int64_t)last_group)};
    enum err e = store_pg_call(p, S_TRIM, v, 3, by, &r);
    PQclear(r);
    return e;
}

enum err store_pg_frame_root(struct store_pg *p, const char *stream, uint64_t group_no, struct deadline by,
                             struct sha256 *out_root, uint64_t *out_epoch)
{
    PGresult *r = NULL;
    struct store_pg_int a;
    struct store_pg_param v[] = {text(stream), store_pg_int8(&a, (int64_t)group_no)};
    struct sha256 root;
    enum err e = store_pg_call(p, S_ROOT, v, 2, by, &r);
    if (e != ERR_OK)
        return e;
    if (PQntuples(r) == 0)
        e = ERR_NOT_FOUND;
    else if (!get_root(r, 0, 0, &root))
        e = ERR_CORRUPT;
    if (e == ERR_OK) {
        *out_root = root;
        *out_epoch = (uint64_t)store_pg_get_int8(r, 0, 1);
    }
    PQclear(r);
    return e;
}

enum err store_pg_compare(struct store_pg *p, const char *stream, const struct store_pg_ours *ours,
                          struct deadline by, struct store_pg_compared *out)
{
    struct store_pg_head first, last;
    struct sha256 row;
    uint64_t epoch;
    *out = (struct store_pg_compared){.verdict = STORE_PG_SAME};
    if (ours->last_group == 0)
        return ERR_OK;
    enum err e = store_pg_frame_root(p, stream, ours->last_group, by, &row, &epoch);
    bool theirs = e == ERR_OK && ours->epoch != 0 && epoch != 0 && epoch != ours->epoch; /* 0: uploaded */
    if (e == ERR_OK && sha256_eq(&row, &ours->root) && (!theirs || ours->acknowledged))
        return ERR_OK;
    if (e != ERR_OK && e != ERR_NOT_FOUND)
        return e;
    out->missing = e == ERR_NOT_FOUND;
    e = store_pg_stream_first(p, stream, by, &first);
    if (e == ERR_OK)
        e = store_pg_stream_head(p, stream, by, &last);
    if (e != ERR_OK)
        return e;
    if (first.group_no == ours->last_group + 1 && sha256_eq(&first.root, &ours->root))
        return ERR_OK; /* rows up to ours were taken away */
    out->group_no = out->missing ? last.group_no : ours->last_group;
    out->root = out->missing ? last.root : row;
    if (ours->last_group < first.group_no) {
        out->verdict = STORE_PG_STALE;
        return ERR_OK;
    }
    bool orphan = !ours->acknowledged;
    if (orphan && ours->last_group == first.group_no)
        orphan = sha256_eq(&first.root, &ours->prev_root);
    else if (orphan && ours->last_group > 1) {
        struct sha256 before;
        e = store_pg_frame_root(p, stream, ours->last_group - 1, by, &before, &epoch);
        if (e != ERR_OK && e != ERR_NOT_FOUND)
            return e;
        orphan = e == ERR_OK && sha256_eq(&before, &ours->prev_root);
    }
    out->verdict = orphan ? STORE_PG_ORPHAN : STORE_PG_DIFFERS;
    return ERR_OK;
}

static enum err frame_of(const PGresult *r, int row, struct buf *scratch, struct store_frame *out)
{
    struct store_frame f = {.group_no = (uint64_t)store_pg_get_int8(r, row, 0),
                            .epoch = (uint64_t)store_pg_get_int8(r, row, 1),
                            .first_seq = (uint64_t)store_pg_get_int8(r, row, 2),
                            .count = (uint32_t)store_pg_get_int8(r, row, 3)};
    if (!get_root(r, row, 4, &f.prev_root) || !get_root(r, row, 5, &f.new_root))
        return ERR_CORRUPT;
    enum err e = store_pg_body_decode(store_pg_get_bytes(r, row, 6), scratch, &f);
    if (e == ERR_OK)
        *out = f;
    return e;
}

enum err store_pg_frames(struct store_pg *p, const char *stream, uint64_t from_group, unsigned max,
                         struct deadline by, store_pg_frame_fn *fn, void *ctx, unsigned *out_n,
                         bool *out_rest)
{
    PGresult *r = NULL;
    struct store_pg_int a, b, c;
    struct store_pg_param v[] = {text(stream), store_pg_int8(&a, (int64_t)from_group),
                                 store_pg_int8(&b, max), store_pg_int8(&c, FETCH_BYTES)};
    enum err e = store_pg_call(p, S_FRAMES, v, 4, by, &r);
    if (e != ERR_OK)
        return e;
    struct buf scratch;
    unsigned n = 0;
    size_t bytes = 0;
    buf_init(&scratch, PAYLOAD_MAX);
    for (int row = 0; e == ERR_OK && row < PQntuples(r); row++) {
        struct store_frame f;
        e = frame_of(r, row, &scratch, &f);
        if (e == ERR_OK && f.group_no != from_group + n)
            e = ERR_CORRUPT;
        if (e == ERR_OK)
            e = fn(ctx, &f);
        n += e == ERR_OK;
        bytes += (size_t)PQgetlength(r, row, 6);
    }
    buf_fini(&scratch);
    PQclear(r);
    *out_n = n;
    *out_rest = n == max || bytes >= FETCH_BYTES;
    return e;
}

/* ---- the body ---- */

static enum err pack(const struct buf *plain, struct buf *out)
{
    size_t bound = ZSTD_compressBound(plain->n);
    uint8_t *at = buf_reserve(out, bound);
    if (at == NULL)
        return ERR_NO_MEMORY;
    size_t n = ZSTD_compress(at, bound, plain->p, plain->n, 1);
    if (ZSTD_isError(n) || n >= plain->n)
        return ERR_RANGE;
    buf_commit(out, n);
    return ERR_OK;
}

enum err store_pg_body_encode(const struct store_frame *f, const struct bytes *parts, size_t n_parts,
                              struct buf *scratch, struct buf *out)
{
    uint8_t head[BODY_HEAD] = {'R', 'R', 'B', '1'};
    buf_reset(scratch);
    buf_reset(out);
    for (size_t i = 0; i < n_parts; i++)
        buf_put_bytes(scratch, parts[i]);
    buf_put(out, head, sizeof head);
    if (scratch->err != ERR_OK || out->err != ERR_OK)
        return ERR_NO_MEMORY;
    enum err packed = scratch->n >= PACK_MIN ? pack(scratch, out) : ERR_RANGE;
    if (packed == ERR_RANGE)
        buf_put(out, scratch->p, scratch->n);
    if (out->err != ERR_OK || packed == ERR_NO_MEMORY)
        return ERR_NO_MEMORY;
    uint8_t *p = out->p;
    le64_put(p + 8, f->ms);
    le32_put(p + 16, f->count2);
    le32_put(p + 20, packed == ERR_OK ? BODY_ZSTD : 0);
    le64_put(p + 24, scratch->n);
    le32_put(p + 4, crc32c(0, p + 8, out->n - 8));
    return ERR_OK;
}

enum err store_pg_body_decode(struct bytes in, struct buf *scratch, struct store_frame *f)
{
    if (in.n < BODY_HEAD || memcmp(in.p, "RRB1", 4) != 0 ||
        le32_get(in.p + 4) != crc32c(0, in.p + 8, in.n - 8))
        return ERR_CORRUPT;
    uint32_t flags = le32_get(in.p + 20);
    uint64_t n = le64_get(in.p + 24);
    struct bytes rest = bytes_of(in.p + BODY_HEAD, in.n - BODY_HEAD);
    if (flags > BODY_ZSTD || n > PAYLOAD_MAX || (flags == 0 && n != rest.n))
        return ERR_CORRUPT;
    if (flags == BODY_ZSTD) {
        buf_reset(scratch);
        uint8_t *at = buf_reserve(scratch, (size_t)n);
        if (at == NULL)
            return ERR_NO_MEMORY;
        if (ZSTD_decompress(at, (size_t)n, rest.p, rest.n) != n)
            return ERR_CORRUPT;
        rest = bytes_of(at, (size_t)n);
    }
    f->ms = le64_get(in.p + 8);
    f->count2 = le32_get(in.p + 16);
    f->payload = rest;
    return ERR_OK;
}

/* ---- append ---- */

enum err store_pg_append_send(struct store_pg *p, const char *stream, const struct store_frame *f,
                              struct bytes body, struct deadline by)
{
    struct store_pg_int a, b, c, d;
    struct store_pg_param v[] = {text(stream),
                                 store_pg_int8(&a, (int64_t)f->group_no),
                                 store_pg_int8(&b, (int64_t)f->epoch),
                                 store_pg_int8(&c, (int64_t)f->first_seq),
                                 store_pg_int8(&d, f->count),
                                 store_pg_bytes(f->prev_root.b, 32),
                                 store_pg_bytes(f->new_root.b, 32),
                                 store_pg_bytes(body.p, body.n)};
    return store_pg_send(p, S_APPEND, v, 8, by);
}

enum err store_pg_append_finish(struct store_pg *p, struct deadline by)
{
    PGresult *r = NULL;
    enum err e = store_pg_finish(p, by, &r);
    if (e == ERR_OK && store_pg_affected(r) != 1)
        e = ERR_FENCED;
    PQclear(r);
    return e;
}
