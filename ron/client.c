#include "ron/client.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/mint.h"
#include "auth/secret_file.h"
#include "base/check.h"
#include "net/http_client.h"
#include "ron/config_file.h"
#include "ron/services.h"
#include "ron/table.h"
#include "svc/config.h"

enum { BODY_MAX = 64 << 20, TOKEN_MAX = 8192, HEADERS_MAX = 12, REDIRECTS_MAX = 5 };

/* ---- where a service is ---- */

struct place {
    char url[256];
    char uds[PATH_MAX]; /* empty: by its address */
};

/* The address that reaches what is bound to any. */
static const char *reachable(struct str host)
{
    return str_eq_c(host, "0.0.0.0") ? "127.0.0.1" : str_eq_c(host, "[::]") ? "[::1]" : NULL;
}

/* As its section says. What speaks TLS is reached by its Unix socket: whose certificate it has is for those who come from elsewhere. */
static void place_configured(const struct cmd_global *g, const struct svc_def *def,
                             const struct svc_config *c, struct place *out)
{
    const char *scheme = *c->tls_cert ? "https" : "http", *colon = strrchr(c->bind, ':');
    if (colon) {
        struct str host = str_of(c->bind, (size_t)(colon - c->bind));
        const char *other = reachable(host);
        snprintf(out->url, sizeof out->url, "%s://%.*s%s", scheme, other ? (int)strlen(other) : (int)host.n,
                 other ? other : host.p, colon);
    } else
        snprintf(out->url, sizeof out->url, "%s://127.0.0.1:%d", scheme, g->base_port + def->port_offset);
    if (*c->tls_cert && strcmp(c->uds, "auto") == 0)
        snprintf(out->uds, sizeof out->uds, "%s/run/%s.sock", g->data, def->name);
    else if (*c->tls_cert)
        snprintf(out->uds, sizeof out->uds, "%s", c->uds);
}

static void find_place(const struct cmd_ctx *ctx, const char *service, struct place *out)
{
    const struct cmd_global *g = cmd_global(ctx);
    const struct svc_def *def = ron_service_find(service);
    struct conf *c;
    char name[64];
    size_t n = (size_t)snprintf(name, sizeof name, "RON_%s_URL", service);
    for (size_t i = 0; i < n; i++)
        name[i] = (char)toupper(name[i]);
    out->uds[0] = 0;
    snprintf(out->url, sizeof out->url, "http://127.0.0.1:%d", g->base_port + (def ? def->port_offset : 0));
    if (getenv(name))
        snprintf(out->url, sizeof out->url, "%s", getenv(name));
    else if (g->config && def) {
        int status = config_file_load(ctx, def, g->config, &c);
        if (status != CMD_OK)
            exit(status); /* said, and once is enough: status and top ask twelve times */
        place_configured(g, def, conf_values(c), out);
        conf_destroy(c);
    }
}

const char *client_base_url(const struct cmd_ctx *ctx, const char *service, char out[256])
{
    struct place at;
    find_place(ctx, service, &at);
    snprintf(out, 256, "%s", at.url);
    return out;
}

bool client_token_file(struct cmd_ctx *ctx, const char *path, struct buf *out)
{
    char advice[AUTH_SECRET_ADVICE_MAX];
    enum err e = auth_token_file_read(path, out);
    if (e == ERR_PERMISSION)
        cmd_fail(ctx, CMD_FAILED, "%s %s", path, auth_secret_file_advice(path, advice));
    else if (e == ERR_NOT_FOUND)
        cmd_fail(ctx, CMD_FAILED,
                 "no token: %s does not exist; start ron first, or give --data DIR, --token or RON_TOKEN",
                 path);
    else if (e != ERR_OK)
        cmd_fail(ctx, CMD_FAILED, "%s holds no token (%s); give another one with --token or RON_TOKEN",
                 path, err_title(e));
    return e == ERR_OK;
}

bool client_token(struct cmd_ctx *ctx, struct buf *out)
{
    const struct cmd_global *g = cmd_global(ctx);
    char path[PATH_MAX];
    if (g->token) {
        buf_puts(out, g->token);
        return true;
    }
    snprintf(path, sizeof path, "%s/operator.token", g->data);
    return client_token_file(ctx, path, out);
}

void client_encode(const char *text, struct buf *out)
{
    for (; *text; text++)
        if (isalnum((unsigned char)*text) || strchr("-._~", *text))
            buf_putc(out, *text);
        else
            buf_printf(out, "%%%02X", (unsigned char)*text);
}

static void copy_header(const struct net_http_response *r, const char *name, char *out, size_t n)
{
    struct str value = net_http_header(r, name);
    snprintf(out, n, "%.*s", value.p ? (int)value.n : 0, value.p ? value.p : "");
}

static void keep(void *arg, enum err e, const struct net_http_response *r)
{
    struct client_answer *a = arg;
    a->err = e;
    if (e != ERR_OK)
        return;
    a->status = r->status;
    buf_put_bytes(&a->body, r->body);
    copy_header(r, "etag", a->etag, sizeof a->etag);
    copy_header(r, "location", a->location, sizeof a->location);
    copy_header(r, "idempotency-replayed", a->replayed, sizeof a->replayed);
    if (str_starts(net_http_header(r, "content-type"), STR("application/")))
        a->json = json_loadb((const char *)a->body.p, a->body.n, JSON_DECODE_ANY, NULL);
}

static int exit_code(const struct client_answer *a)
{
    if (a->err != ERR_OK || a->status == 429 || a->status >= 500)
        return CMD_UNAVAILABLE;
    return a->status >= 300 ? CMD_REFUSED : CMD_OK;
}

static void show_upload(void *arg, uint64_t sent, uint64_t of)
{
    const struct client_answer *out = arg;
    progress_step(out->upload, sent, of);
}

int client_call(struct cmd_ctx *ctx, const char *service, const struct client_request *rq,
                struct client_answer *out)
{
    char bearer[TOKEN_MAX + 32], type[96];
    struct place at;
    const char *headers[HEADERS_MAX + 1];
    size_t n = 0, answer_max = rq->answer_max ? rq->answer_max : BODY_MAX;
    struct buf url, token;

    memset(out, 0, sizeof *out);
    buf_init(&out->body, answer_max);
    buf_init(&url, 65536);
    buf_init(&token, TOKEN_MAX);
    find_place(ctx, service, &at);
    snprintf(out->where, sizeof out->where, "%s", *at.uds ? at.uds : at.url);
    buf_printf(&url, "%s%s", *at.uds ? "http://localhost" : at.url, rq->path);
    if (!rq->no_token) {
        if (!client_token(ctx, &token)) {
            out->err = ERR_PERMISSION;
            buf_fini(&url);
            buf_fini(&token);
            return CMD_FAILED;
        }
        snprintf(bearer, sizeof bearer, "Authorization: Bearer %s", buf_cstr(&token));
        headers[n++] = bearer;
    }
    if (rq->body) {
        snprintf(type, sizeof type, "Content-Type: %s", rq->type ? rq->type : "application/json");
        headers[n++] = type;
    }
    for (size_t i = 0; i < sizeof rq->headers / sizeof rq->headers[0] && rq->headers[i]; i++)
        headers[n++] = rq->headers[i];
    headers[n] = NULL;
    struct net_http_request request = {
        .method = rq->method,
        .url = buf_cstr(&url),
        .uds = *at.uds ? at.uds : NULL,
        .headers = headers,
        .body = bytes_of(rq->body, rq->body ? (rq->body_n ? rq->body_n : strlen(rq->body)) : 0),
        .by = deadline_in_ms(rq->timeout_ms ? rq->timeout_ms : 10000),
        .response_max = answer_max,
        .http_allowed = true,
    };
    out->upload = rq->upload;
    if (rq->upload)
        request.on_upload = show_upload;
    struct progress waiting = {.on = false};
    if (rq->repeat) {
        request.retry = (struct net_http_retry){.tries = 1000, .on_later = true, .on_sent = true};
        progress_begin(&waiting, ctx, "asking, again and again until it is answered");
    }
    enum err e = net_http_once(&request, NULL, keep, out);
    if (e != ERR_OK)
        out->err = e;
    /* Another node has what was asked for. Two nodes that are about to swap may send us back and forth; not for long. */
    for (int hop = 0; e == ERR_OK && out->status == 307 && out->location[0] && hop < REDIRECTS_MAX; hop++) {
        buf_reset(&url);
        buf_puts(&url, out->location);
        client_free(out);
        *out = (struct client_answer){.upload = rq->upload};
        snprintf(out->where, sizeof out->where, "%s", buf_cstr(&url));
        buf_init(&out->body, answer_max);
        request.url = buf_cstr(&url);
        request.uds = NULL;
        e = net_http_once(&request, NULL, keep, out);
        if (e != ERR_OK)
            out->err = e;
    }
    progress_end(&waiting);
    buf_fini(&url);
    buf_fini(&token);
    return exit_code(out);
}

void client_free(struct client_answer *a)
{
    json_decref(a->json);
    a->json = NULL;
    buf_fini(&a->body);
}

const char *client_str(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));
    return s ? s : "";
}

long long client_int(const json_t *object, const char *name)
{
    return (long long)json_integer_value(json_object_get(object, name));
}

void client_print_raw(const struct client_answer *a)
{
    fwrite(a->body.p, 1, a->body.n, stdout);
    if (!a->body.n || a->body.p[a->body.n - 1] != '\n')
        putchar('\n');
}

static void print_value(const json_t *v)
{
    if (json_is_string(v)) {
        char *text = strdup(json_string_value(v));
        CHECK(text);
        table_tame(text, strlen(text), "");
        fputs(text, stdout);
        free(text);
    } else if (json_is_boolean(v))
        printf("%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
        printf("none");
    else
        json_dumpf(v, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
}

static void print_member(const char *name, int width, const json_t *v)
{
    size_t n = json_array_size(v); /* 0 when it is no array */
    printf("%-*s  ", width, name);
    if (n == 0)
        print_value(v);
    for (size_t i = 0; i < n; i++) {
        printf("%s", i ? ", " : "");
        print_value(json_array_get(v, i));
    }
    putchar('\n');
}

void client_print(struct cmd_ctx *ctx, const struct client_answer *a)
{
    json_t *o = a->json;
    int width = 0;
    if (cmd_global(ctx)->json || !json_is_object(o)) {
        client_print_raw(a);
        return;
    }
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        int n = (int)strlen(json_object_iter_key(it));
        width = n > width ? n : width;
    }
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        print_member(json_object_iter_key(it), width, json_object_iter_value(it));
}

/* What is wrong with a member of a request, in words; NULL for a reason that has none. */
static const char *in_words(const char *reason)
{
    static const char *const words[][2] = {
        {"unknown", "is not known here"},  {"missing", "is missing"},
        {"type", "is of the wrong type"},  {"range", "is out of range"},
        {"pattern", "is not well-formed"}, {"duplicate", "is there twice"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(reason, words[i][0]) == 0)
            return words[i][1];
    return NULL;
}

/* A problem as one sentence. What it says about one member is put into words, other details follow as they came. */
static void say_problem(struct cmd_ctx *ctx, const struct client_answer *a, int status)
{
    json_t *details = json_object_get(a->json, "details");
    const char *why =
        *client_str(a->json, "detail") ? client_str(a->json, "detail") : client_str(a->json, "title");
    const char *member = client_str(details, "member"), *words = in_words(client_str(details, "reason"));
    if (words && *member && json_object_size(details) == 2) {
        size_t n = strlen(member);
        bool named = strncmp(why, member, n) == 0 && why[n] == ':'; /* "topic: pattern" says it less well */
        cmd_fail(ctx, status, "%s%s%s %s (%d %s)", named ? "" : why, named ? "" : ": ", member, words,
                 a->status, client_str(a->json, "code"));
        return;
    }
    const char *reason = client_str(details, "reason");
    if (*reason && json_object_size(details) == 1) { /* "the capability does not cover this: op" */
        cmd_fail(ctx, status, "%s: %s (%d %s)", why, reason, a->status, client_str(a->json, "code"));
        return;
    }
    const char *colon = strstr(why, ": ");
    if (!details && colon && (words = in_words(colon + 2))) { /* "msg_id: pattern" */
        cmd_fail(ctx, status, "%.*s %s (%d %s)", (int)(colon - why), why, words, a->status,
                 client_str(a->json, "code"));
        return;
    }
    char *rest = json_dumps(details, JSON_COMPACT | JSON_ENCODE_ANY);
    cmd_fail(ctx, status, "%s (%d %s)%s%s", why, a->status, client_str(a->json, "code"), rest ? " " : "",
             rest ? rest : "");
    free(rest);
}

int client_finish(struct cmd_ctx *ctx, struct client_answer *a, int status)
{
    if (a->err == ERR_REFUSED)
        cmd_fail(ctx, status, "nobody answers at %s; is it running? start it with: ron up", a->where);
    else if (a->err == ERR_PERMISSION)
        status = CMD_FAILED; /* said already */
    else if (a->err != ERR_OK)
        cmd_fail(ctx, status, "no answer from %s (%s)%s", a->where, err_title(a->err),
                 a->err == ERR_DISCONNECTED || a->err == ERR_UNAUTHENTICATED
                     ? "; if it speaks TLS, name its configuration: --config FILE"
                     : "");
    else if (cmd_global(ctx)->json)
        client_print_raw(a);
    else if (*client_str(a->json, "code"))
        say_problem(ctx, a, status);
    else
        cmd_fail(ctx, status, "the service answered %d", a->status);
    client_free(a);
    return status;
}

int client_show(struct cmd_ctx *ctx, struct client_answer *a, int status)
{
    if (status != CMD_OK)
        return client_finish(ctx, a, status);
    client_print(ctx, a);
    client_free(a);
    return CMD_OK;
}
