/* PUT /rewarder/inputs: spooled to disk piece by piece, then parsed by a worker. GET /rewarder/inputs/{cid}. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/str.h"
#include "services/rewarder/api/api.h"
#include "services/rewarder/api/routes.h"

struct upload {
    struct rewarder *r;
    struct rewarder_item *it;
    struct store_file *file;
};

/* `sha-256=:<base64>:` among the members of RFC 9530; other algorithms are not ours to check. */
static bool read_digest(struct str header, struct rewarder_item *it)
{
    size_t n;
    const char *end = header.p ? header.p + header.n : NULL;
    for (const char *at = header.p; at && at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct str one = str_trim(str_of(at, (size_t)((comma ? comma : end) - at)));
        at = comma ? comma + 1 : end;
        if (!str_starts(one, STR("sha-256=")))
            continue;
        if (one.n < 10 || one.p[8] != ':' || one.p[one.n - 1] != ':')
            return false;
        it->has_expected = true;
        return base64_decode(str_of(one.p + 9, one.n - 10), it->expected.b, 32, &n) == ERR_OK && n == 32;
    }
    return true;
}

static void give_up(struct upload *u, struct net_req *rq, enum err e, const char *detail) RT_BLOCKS
{
    struct rewarder *r = u->r;
    net_req_set_user(rq, NULL);
    store_file_close(u->file);
    net_reply_problem(rq, e, "%s", detail);
    u->it->rq = NULL;
    rewarder_item_abandon(r, u->it);
    free(u);
}

static void client_left(struct net_req *rq, void *arg) RT_BLOCKS
{
    (void)arg;
    struct upload *u = net_req_user(rq);
    if (u) /* otherwise the upload is complete and its answer is on the way */
        give_up(u, rq, ERR_REQUEST_TIMEOUT, "the upload was not completed");
}

static void complete(struct upload *u, struct net_req *rq) RT_BLOCKS
{
    struct rewarder *r = u->r;
    struct rewarder_item *it = u->it;
    net_req_set_user(rq, NULL);
    store_file_close(u->file);
    free(u);
    enum err e = rt_chan_try_send(r->work_req, it);
    if (e == ERR_OK)
        return;
    if (e == ERR_BUSY)
        REWARDER_COUNT(r, busy, "inputs");
    net_reply_problem(rq, e == ERR_BUSY ? ERR_BUSY : ERR_DRAINING,
                      e == ERR_BUSY ? "the request queue is full" : "the service is shutting down");
    it->rq = NULL;
    rewarder_item_abandon(r, it);
}

static void take_piece(struct net_req *rq, struct bytes piece, bool end, void *arg) RT_BLOCKS
{
    (void)arg;
    struct upload *u = net_req_user(rq);
    if (!u)
        return;
    const struct rewarder_config *cfg = rewarder_config(u->r);
    if (u->it->bytes + piece.n > cfg->max_input_bytes) {
        give_up(u, rq, ERR_TOO_LARGE, "the snapshot is larger than limits.max_input_bytes");
        return;
    }
    if (!rewarder_has_room(u->r, piece.n)) {
        give_up(u, rq, ERR_BUSY, "the memory for files is full");
        return;
    }
    enum err e = piece.n ? store_file_append(u->file, piece.p, piece.n) : ERR_OK;
    rewarder_met(u->r, e);
    if (e != ERR_OK) {
        give_up(u, rq, ERR_UNAVAILABLE, "the upload cannot be spooled");
        return;
    }
    u->it->bytes += piece.n;
    uint64_t used = atomic_fetch_add_explicit(&u->r->spool_used, piece.n, memory_order_relaxed) + piece.n;
    if (used > cfg->max_spool_bytes)
        give_up(u, rq, ERR_BUSY, "too many uploads at once");
    else if (end)
        complete(u, rq);
}

void rewarder_api_put_inputs(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct str type = net_req_header(rq, "content-type");
    if (!api_allow(r, rq, "inputs", NULL, &who))
        return;
    bool ndjson = type.p && str_starts(type, STR("application/x-ndjson"));
    if (!ndjson && !(type.p && str_starts(type, STR("application/json")))) {
        net_reply_problem(rq, ERR_UNSUPPORTED_MEDIA_TYPE, "send application/json or application/x-ndjson");
        return;
    }
    if (rewarder_refuses_more(r)) {
        REWARDER_COUNT(r, busy, "inputs");
        net_reply_problem(rq, ERR_BUSY, "the memory for files is full");
        return;
    }
    struct rewarder_item *it = api_item(r, rq, REWARDER_INGEST, &who);
    if (!it)
        return;
    it->ndjson = ndjson;
    struct upload *u = calloc(1, sizeof *u);
    snprintf(it->spool, sizeof it->spool, "%s/spool/%llu", r->files.root,
             (unsigned long long)atomic_fetch_add_explicit(&r->spool_next, 1, memory_order_relaxed));
    enum err e = !read_digest(net_req_header(rq, "content-digest"), it) ? ERR_BAD_REQUEST
                 : !u                                                   ? ERR_UNAVAILABLE
                      : store_file_open(r->files.disk, it->spool, STORE_WRITE | STORE_CREATE | STORE_TRUNC,
                                        &u->file);
    rewarder_met(r, e);
    if (e != ERR_OK) {
        net_reply_problem(rq, e == ERR_BAD_REQUEST ? e : ERR_UNAVAILABLE, "the upload cannot be taken");
        it->rq = NULL;
        rewarder_item_destroy(r, it);
        free(u);
        return;
    }
    u->r = r;
    u->it = it;
    net_req_set_user(rq, u);
    net_req_on_close(rq, client_left, NULL);
    net_req_on_body(rq, take_piece, NULL);
}

void rewarder_api_get_inputs(struct net_req *rq, void *ctx)
{
    struct rewarder *r = ctx;
    struct api_caller who;
    struct sha256 cid;
    struct rewarder_input in;
    struct rewarder_file file;
    struct str view;
    char path[STORE_PATH_MAX], storage[2048];
    if (!api_allow(r, rq, "read", &(struct auth_want){.account = API_EVERY_ACCOUNT}, &who))
        return;
    struct str text = net_req_param(rq, "cid");
    if (sha256_parse(text, &cid) != ERR_OK || !rewarder_registry_input(&r->registry, &cid, &in) ||
        strcmp(in.tenant, who.tenant)) {
        net_reply_problem(rq, ERR_NOT_FOUND, "no such inputs");
        return;
    }
    if (net_req_query(rq, "view", &view) == ERR_OK && str_eq(view, STR("meta"))) {
        struct buf b;
        buf_init_fixed(&b, storage, sizeof storage);
        rewarder_write_input(&in, &b);
        net_reply_json(rq, 200, buf_bytes(&b));
        return;
    }
    if (api_not_modified(rq, &cid))
        return;
    rewarder_path_input(&r->files, &cid, ".raw", path);
    if (rewarder_file_load(&r->files, path, &file) != ERR_OK)
        net_reply_problem_details(rq, ERR_ARTIFACT_CORRUPT, "the stored bytes are gone",
                                  bytes_of_str(STR("{\"file\":\"raw\"}")));
    else
        api_reply_file(rq, in.ndjson ? "application/x-ndjson" : "application/json", &cid, true, &file);
}
