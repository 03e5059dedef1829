/*
 * What a computation starts from: canonical rows and a pool.
 *
 * Inputs that were uploaded lie in the store and are mapped (their hash is checked again). Others are fetched from the one
 * accounting server, hashed before they are parsed, and stored by the artifact writer like an upload; only then the run goes
 * on, from the store. Whoever calls out holds one of io_inflight permits meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/json_write.h"
#include "net/http_client.h"
#include "services/rewarder/core/snapshot.h"
#include "services/rewarder/tasks/worker.h"

static struct deadline run_deadline(const struct rewarder_item *it)
{
    return deadline_at_ns(it->run->deadline_ns);
}

/* ---- why not ---- */

void rewarder_worker_tell_snapshot(enum err e, const struct rewarder_snapshot_error *why, uint64_t rows_max,
                                   struct rewarder_trouble *out)
{
    struct buf b;
    struct json_w w;
    out->detail = why->reason;
    if (e != ERR_BAD_SNAPSHOT && e != ERR_DUPLICATE_ACCOUNT && e != ERR_TOO_MANY_ROWS)
        return;
    buf_init_fixed(&b, out->details, sizeof out->details - 1);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    if (e == ERR_TOO_MANY_ROWS) {
        json_put_u64(&w, "max", rows_max);
    } else {
        json_put_u64(&w, "line", why->line);
        if (e == ERR_DUPLICATE_ACCOUNT) {
            json_put_u64(&w, "other_line", why->other_line);
        } else {
            if (why->member[0])
                json_put_cstr(&w, "member", why->member);
            json_put_cstr(&w, "reason", why->reason);
        }
    }
    json_obj_end(&w);
    CHECK(b.err == ERR_OK); /* names and reasons of ours, all short */
    out->details[b.n] = '\0';
}

void rewarder_worker_tell_digest(const struct sha256 *expected, const struct sha256 *actual,
                                 struct rewarder_trouble *out)
{
    char want[SHA256_TEXT_CHARS], got[SHA256_TEXT_CHARS];
    sha256_format(expected, want);
    sha256_format(actual, got);
    out->detail = "the bytes are not what they were said to be";
    snprintf(out->details, sizeof out->details, "{\"expected\":\"%s\",\"actual\":\"%s\"}", want, got);
}

/* ---- fetching ---- */

struct fetched {
    struct buf body;
    int status;
};

static void read_token(const char *path, char *out, size_t cap) RT_BLOCKS
{
    struct store_file *f;
    char text[4096];
    size_t n = 0;
    *out = '\0';
    if (!*path || store_file_open(store_disk_real(), path, STORE_READ, &f) != ERR_OK)
        return;
    if (store_file_pread(f, text, sizeof text, 0, &n) == ERR_OK) {
        while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
            n--;
        snprintf(out, cap, "Authorization: Bearer %.*s", (int)n, text);
    }
    store_file_close(f);
    explicit_bzero(text, sizeof text);
}

static enum err ask(struct rewarder *r, const struct rewarder_item *it, struct fetched *out) RT_BLOCKS
{
    const struct rewarder_config *cfg = rewarder_config(r);
    char url[1024], cid[SHA256_TEXT_CHARS], auth[4200];
    sha256_format(&it->cid, cid);
    snprintf(url, sizeof url, "%s/v1/snapshots/%s", cfg->accounting_base_url, cid);
    read_token(cfg->accounting_token_file, auth, sizeof auth);
    const char *headers[] = {*auth ? auth : NULL, NULL};
    struct deadline by = deadline_min(deadline_in_ms(cfg->fetch_timeout), run_deadline(it));
    enum err e = rewarder_permits_take(&r->io_permits, by);
    if (e != ERR_OK)
        return e;
    struct rewarder_fetched got = {.status = 0};
    e = rewarder_worker_fetch(url, headers, by, cfg->max_input_bytes, &got, &out->body);
    out->status = got.status;
    obs_counter_add(OBS_COUNTER_OF(r->metrics[REWARDER_M_retries], "fetch"), got.again);
    rewarder_permits_give(&r->io_permits);
    explicit_bzero(auth, sizeof auth);
    if (e == ERR_OK && out->status < 500 && out->status != 408 && out->status != 429)
        rt_breaker_success(&r->accounting_breaker, os_now_ns());
    else
        rt_breaker_failure(&r->accounting_breaker, os_now_ns());
    if (e == ERR_TIMEOUT)
        REWARDER_COUNT(r, io_timeouts, "fetch", "accounting");
    return e;
}

static enum err judge(const struct rewarder_item *it, enum err asked, const struct fetched *f,
                      struct rewarder_trouble *why)
{
    struct sha256 got;
    if (asked == ERR_CANCELED)
        return asked;
    if (asked == ERR_TOO_LARGE) {
        why->detail = "the accounting server's snapshot is larger than limits.max_input_bytes";
        return ERR_TOO_LARGE;
    }
    why->detail = "the accounting server cannot be reached";
    if (asked != ERR_OK || f->status >= 500 || f->status == 429 || f->status == 408)
        return ERR_INPUTS_UNAVAILABLE;
    why->detail = "neither here nor at the accounting server";
    if (f->status != 200)
        return ERR_INPUTS_NOT_FOUND;
    sha256_of(f->body.p, f->body.n, &got); /* before anything is parsed */
    if (sha256_eq(&got, &it->cid))
        return ERR_OK;
    rewarder_worker_tell_digest(&it->cid, &got, why);
    why->detail = "the accounting server sent other bytes";
    return ERR_DIGEST_MISMATCH;
}

/* ---- storing what was fetched ---- */

static enum err spool(struct rewarder *r, struct bytes body, char path[STORE_PATH_MAX]) RT_BLOCKS
{
    struct store_file *f;
    snprintf(path, STORE_PATH_MAX, "%s/spool/%llu", r->files.root,
             (unsigned long long)atomic_fetch_add_explicit(&r->spool_next, 1, memory_order_relaxed));
    enum err e = store_file_open(r->files.disk, path, STORE_WRITE | STORE_CREATE | STORE_TRUNC, &f);
    if (e != ERR_OK)
        return e;
    if (body.n)
        e = store_file_append(f, body.p, body.n);
    store_file_close(f);
    return e;
}

/* Waits until the writer has it; takes the snapshot over. */
static enum err store(struct rewarder *r, struct rt_task *self, const struct rewarder_item *it,
                      struct rewarder_snapshot *snap, struct bytes body, bool ndjson) RT_BLOCKS
{
    struct rewarder_outcome *o = rewarder_outcome_create(REWARDER_OUT_SNAPSHOT, NULL);
    struct rewarder_receipt *rc = o ? rewarder_receipt_create() : NULL;
    if (!rc) {
        rewarder_snapshot_fini(snap);
        if (o)
            rewarder_outcome_destroy(r, o);
        return ERR_NO_MEMORY;
    }
    o->receipt = rc;
    o->input.cid = it->cid;
    rewarder_worker_describe(snap, &o->input);
    o->input.bytes = body.n;
    o->input.ndjson = ndjson;
    o->rows = snap->canonical;
    o->rows_n = snap->canonical_bytes;
    enum err e = spool(r, body, o->spool);
    rewarder_met(r, e);
    if (e == ERR_OK)
        e = rt_chan_send(r->results, o, deadline_min(rewarder_send_deadline(r), run_deadline(it)));
    if (e != ERR_OK) {
        (void)!store_disk_unlink(r->files.disk, o->spool);
        rewarder_outcome_destroy(r, o);
    }
    while (e == ERR_OK || e == ERR_TIMEOUT) {
        rt_task_beat(self);
        e = rewarder_receipt_await(rc, deadline_in_ms(1000));
        if (e == ERR_OK || (e == ERR_TIMEOUT && deadline_passed(run_deadline(it))))
            break;
    }
    rewarder_receipt_leave(rc);
    return e;
}

static enum err fetch_and_store(struct rewarder *r, struct rt_task *self, struct rewarder_item *it,
                                struct rewarder_trouble *trouble) RT_BLOCKS
{
    const struct rewarder_config *cfg = rewarder_config(r);
    struct fetched f = {.status = 0};
    struct rewarder_snapshot snap;
    struct rewarder_snapshot_error why;
    trouble->detail = "the accounting server cannot be reached";
    if (!rt_breaker_allow(&r->accounting_breaker, os_now_ns()))
        return ERR_INPUTS_UNAVAILABLE;
    buf_init(&f.body, cfg->max_input_bytes);
    enum err e = judge(it, ask(r, it, &f), &f, trouble);
    const uint8_t *nl = e == ERR_OK && f.body.n ? memchr(f.body.p, '\n', f.body.n) : NULL;
    bool ndjson = nl && memmem(f.body.p, (size_t)(nl - f.body.p), "\"rows\"", 6) == NULL;
    if (e == ERR_OK) {
        e = rewarder_snapshot_parse_watched(
            buf_bytes(&f.body), ndjson ? REWARDER_NDJSON : REWARDER_JSON, cfg->max_rows,
            &(struct rewarder_watcher){rewarder_worker_still_reading, self}, &snap, &why);
        if (e != ERR_OK)
            rewarder_worker_tell_snapshot(e, &why, cfg->max_rows, trouble);
    }
    if (e == ERR_OK &&
        (!str_eq_c(snap.rows.tenant, it->run->tenant) || !str_eq_c(snap.rows.epoch, it->run->epoch))) {
        rewarder_snapshot_fini(&snap);
        trouble->detail = "the snapshot is of another tenant or epoch";
        e = ERR_EPOCH_MISMATCH;
    }
    if (e == ERR_OK) {
        trouble->detail = "the snapshot could not be stored";
        e = store(r, self, it, &snap, buf_bytes(&f.body), ndjson);
    }
    buf_fini(&f.body);
    return e;
}

void rewarder_worker_describe(const struct rewarder_snapshot *s, struct rewarder_input *in)
{
    struct buf b;
    snprintf(in->tenant, sizeof in->tenant, "%.*s", STR_ARG(s->rows.tenant));
    snprintf(in->epoch, sizeof in->epoch, "%.*s", STR_ARG(s->rows.epoch));
    in->digest = s->rows.digest;
    in->rows = s->rows.count;
    buf_init_fixed(&b, in->dims, sizeof in->dims - 1);
    buf_putc(&b, '[');
    for (unsigned d = 0; d < s->rows.dim_count; d++)
        buf_printf(&b, "%s\"%.*s\"", d ? "," : "", STR_ARG(s->rows.dims[d]));
    buf_putc(&b, ']');
    in->dims[b.n] = '\0';
}

/* ---- opening ---- */

struct key_change {
    struct sha256 digest, run_key;
};

static void set_key(struct rewarder_run_info *i, void *arg)
{
    const struct key_change *k = arg;
    i->digest = k->digest;
    i->run_key = k->run_key;
    i->has_key = true;
}

static enum err bring_in(struct rewarder *r, struct rt_task *self, struct rewarder_item *it,
                         const struct rewarder_run_info *info, struct rewarder_trouble *why) RT_BLOCKS
{
    struct rewarder_input in;
    enum err e = rewarder_registry_input(&r->registry, &it->cid, &in) ? ERR_OK /* uploaded meanwhile */
                                                                      : fetch_and_store(r, self, it, why);
    if (e == ERR_OK && !rewarder_registry_input(&r->registry, &it->cid, &in))
        e = ERR_INPUTS_NOT_FOUND;
    if (e == ERR_OK && (strcmp(in.tenant, it->run->tenant) || strcmp(in.epoch, it->run->epoch)))
        e = ERR_EPOCH_MISMATCH;
    if (e != ERR_OK)
        return e;
    struct key_change k = {.digest = in.digest};
    k.run_key =
        rewarder_run_key(str_from_c(in.tenant), str_from_c(in.epoch), &info->policy_hash, &k.digest);
    return rewarder_run_move(&r->registry, it->run, REWARDER_EV_INPUTS_STORED, set_key, &k);
}

enum err rewarder_worker_inputs(struct rewarder *r, struct rt_task *self, struct rewarder_item *it,
                                struct rewarder_inputs *in, struct rewarder_trouble *why)
{
    struct rewarder_run_info info = rewarder_run_read(&r->registry, it->run);
    char path[STORE_PATH_MAX];
    enum err e = info.state == REWARDER_SEALING ? bring_in(r, self, it, &info, why) : ERR_OK;
    if (e != ERR_OK)
        return e;
    info = rewarder_run_read(&r->registry, it->run);
    rewarder_path_input(&r->files, &info.inputs_cid, ".rows", path);
    e = rewarder_file_load(&r->files, path, &in->file);
    why->detail = "the stored rows are gone";
    if (e == ERR_NOT_FOUND)
        return ERR_INPUTS_NOT_FOUND; /* swept between the request and now */
    if (e == ERR_OK)
        e = rewarder_rows_open(in->file.bytes, &in->rows);
    if (e == ERR_OK && sha256_eq(&in->rows.digest, &info.digest))
        return ERR_OK;
    REWARDER_COUNT(r, corrupt, "rows");
    rewarder_log_run(r, OBS_ERROR, "artifact.corrupt", it->run, "rows");
    why->detail = "the stored rows are not the ones that were uploaded";
    snprintf(why->details, sizeof why->details, "{\"file\":\"rows\"}");
    return ERR_ARTIFACT_CORRUPT;
}

static enum err read_balance(struct rewarder *r, struct rt_task *self, const struct rewarder_item *it,
                             struct rewarder_pool *out) RT_BLOCKS
{
    const struct rewarder_policy *p = it->run->policy->policy;
    struct rewarder_funds funds;
    struct rewarder_settler *reader = rewarder_worker_reader(r, self);
    if (!reader || !r->ledger)
        return ERR_LEDGER_UNAVAILABLE;
    enum err e = rewarder_permits_take(&r->io_permits, run_deadline(it));
    if (e != ERR_OK)
        return e == ERR_CANCELED ? e : ERR_LEDGER_UNAVAILABLE;
    e = rewarder_settler_funds(reader, str_from_c(p->funding), str_from_c(p->asset), self, &funds);
    rewarder_permits_give(&r->io_permits);
    if (e != ERR_OK)
        return e == ERR_CANCELED ? e : ERR_LEDGER_UNAVAILABLE;
    *out = (struct rewarder_pool){
        .declared = funds.available.units, .from_balance = true, .ledger_seq = funds.as_of_seq};
    return ERR_OK;
}

/* An amount is taken as it is; "balance" is what the funding account has and nobody else was promised. */
enum err rewarder_worker_pool(struct rewarder *r, struct rt_task *self, const struct rewarder_item *it,
                              struct rewarder_pool *out)
{
    const struct rewarder_policy *p = it->run->policy->policy;
    wide_u128 owed = rewarder_registry_owed(&r->registry, it->run, str_from_c(p->funding));
    *out = (struct rewarder_pool){.declared = p->pool};
    enum err e = p->pool_is_balance ? read_balance(r, self, it, out) : ERR_OK;
    if (e == ERR_OK)
        rewarder_registry_fix_pool(&r->registry, it->run, owed, out);
    return e;
}
