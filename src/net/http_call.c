/*
 * One request from its copy to its answer: what curl is told, what comes back, and whether it is tried again.
 *
 *   inbox -> running (in the multi handle) -> over
 *              ^-- waiting (the timer of the back-off) <--'  while a try failed and another is allowed
 *
 * What goes out is bounded in every direction: only http and https, no proxies from the environment, no
 * cookies, no redirects unless asked for, the address vetted after resolving, the size of the answer
 * counted as it comes.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/str.h"
#include "net/http_client_internal.h"

enum { HEAD_MAX = 64 * 1024 };

#define NS_PER_MS INT64_C(1000000)

static const struct net_http_response *response_of(struct net_http_call *call, struct net_http_response *r);

/* ---- life ---- */

void net_http_call_free(struct net_http_call *call)
{
    if (call->easy != NULL)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers_out);
    free(call->method);
    free(call->url);
    free(call->uds);
    free(call->body);
    buf_fini(&call->head);
    buf_fini(&call->answer);
    call->magic = 0;
    free(call);
}

void net_http_call_unref(struct net_http_call *call)
{
    CHECK_MAGIC(call, NET_HTTP_CALL_MAGIC);
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) == 1)
        net_http_call_free(call);
}

void net_http_call_over(struct net_http_call *call, enum err e)
{
    struct net_http_client *c = call->client;
    if (call->state == CALL_OVER)
        return;
    if (call->state == CALL_RUNNING)
        curl_multi_remove_handle(c->multi, call->easy);
    net_timer_cancel(c->loop, &call->timer);
    if (call->state != CALL_INBOX) {
        if (call->prev != NULL)
            call->prev->next = call->next;
        else
            c->first = call->next;
        if (call->next != NULL)
            call->next->prev = call->prev;
    }
    call->state = CALL_OVER;
    atomic_fetch_sub_explicit(&c->calls, 1, memory_order_relaxed);
    struct net_http_response r;
    call->fn(call->arg, e, e == ERR_OK ? response_of(call, &r) : NULL);
    net_http_call_unref(call);
}

/* ---- the answer ---- */

static int status_of(const struct net_http_call *call)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

static bool worth_another_try(const struct net_http_call *call, int status)
{
    return call->rq.retry.on_later && call->tries < call->rq.retry.tries &&
           (status == 429 || status == 502 || status == 503 || status == 504);
}

static int64_t now_ns(const struct net_http_call *call)
{
    return clock_mono_ns(net_loop_clock(call->client->loop));
}

/* Header lines are kept as text; the views into it are made when it does not move any more. */
static size_t on_header_line(char *p, size_t size, size_t n, void *ctx)
{
    struct net_http_call *call = ctx;
    struct str line = {p, size * n};
    call->heard_ns = now_ns(call);
    if (str_starts(line, STR("HTTP/")))
        buf_reset(&call->head); /* the next response: a redirect or 100 Continue came before */
    buf_put(&call->head, line.p, line.n);
    if (call->head.err != ERR_OK) {
        call->why = ERR_TOO_LARGE;
        return 0;
    }
    return line.n;
}

static void split_head(struct net_http_call *call)
{
    struct str rest = buf_str(&call->head), line;
    call->headers_n = 0;
    while (rest.p != NULL && rest.n > 0 && call->headers_n < NET_HTTP_HEADERS_MAX) {
        rest = str_cut(rest, '\n', &line);
        struct str name, value = str_cut(line, ':', &name);
        if (value.p == NULL || name.n == 0)
            continue;
        while (value.n > 0 && (value.p[value.n - 1] == '\r' || value.p[value.n - 1] == ' ' ||
                               value.p[value.n - 1] == '\t'))
            value.n--;
        char *lower = (char *)call->head.p + (name.p - (const char *)call->head.p);
        for (size_t i = 0; i < name.n; i++)
            if (lower[i] >= 'A' && lower[i] <= 'Z')
                lower[i] = (char)(lower[i] + ('a' - 'A'));
        call->headers[call->headers_n++] = (struct net_http_header){name, str_trim(value)};
    }
}

static const struct net_http_response *response_of(struct net_http_call *call, struct net_http_response *r)
{
    curl_off_t connect_us = 0, total_us = 0;
    curl_easy_getinfo(call->easy, CURLINFO_CONNECT_TIME_T, &connect_us);
    curl_easy_getinfo(call->easy, CURLINFO_TOTAL_TIME_T, &total_us);
    split_head(call);
    *r = (struct net_http_response){.status = status_of(call),
                                    .body = buf_bytes(&call->answer),
                                    .headers_n = call->headers_n,
                                    .headers = call->headers,
                                    .tries = call->tries,
                                    .connect_ms = connect_us / 1000,
                                    .total_ms = total_us / 1000};
    return r;
}

struct str net_http_header(const struct net_http_response *r, const char *lower_name)
{
    for (size_t i = 0; i < r->headers_n; i++)
        if (str_eq_c(r->headers[i].name, lower_name))
            return r->headers[i].value;
    return (struct str){NULL, 0};
}

static bool tell_head(struct net_http_call *call)
{
    struct net_http_response r;
    if (call->head_told)
        return true;
    call->head_told = true;
    return call->rq.on_head == NULL || call->rq.on_head(call->arg, response_of(call, &r));
}

static size_t on_body_piece(char *p, size_t size, size_t n, void *ctx)
{
    struct net_http_call *call = ctx;
    struct bytes piece = bytes_of(p, size * n);
    call->heard_ns = now_ns(call);
    call->body_n += piece.n;
    if (call->body_n > call->rq.response_max) {
        call->why = ERR_TOO_LARGE;
        return 0;
    }
    bool streaming =
        (call->rq.on_body != NULL || call->rq.on_head != NULL) && !worth_another_try(call, status_of(call));
    if (streaming && !tell_head(call)) {
        call->why = ERR_CANCELED;
        return 0;
    }
    if (streaming && call->rq.on_body != NULL) {
        if (!call->rq.on_body(call->arg, piece)) {
            call->why = ERR_CANCELED;
            return 0;
        }
    } else {
        buf_put_bytes(&call->answer, piece);
        if (call->answer.err != ERR_OK) {
            call->why = call->answer.err;
            return 0;
        }
    }
    return piece.n;
}

/* ---- tries ---- */

static enum err from_curl(const struct net_http_call *call, CURLcode rc)
{
    if (rc != CURLE_OK && call->why != ERR_OK)
        return call->why;
    switch ((int)rc) {
    case CURLE_OK:
        return ERR_OK;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_TIMEOUT;
    case CURLE_COULDNT_CONNECT:
        return ERR_REFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return ERR_UNAVAILABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return ERR_UNAUTHENTICATED;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
        return ERR_DISCONNECTED;
    case CURLE_FILESIZE_EXCEEDED:
        return ERR_TOO_LARGE;
    case CURLE_URL_MALFORMAT:
        return ERR_SYNTAX;
    case CURLE_UNSUPPORTED_PROTOCOL:
        return ERR_FORBIDDEN; /* the url was looked at before: a redirect wanted to leave */
    case CURLE_TOO_MANY_REDIRECTS:
        return ERR_UNPROCESSABLE;
    case CURLE_OUT_OF_MEMORY:
        return ERR_NO_MEMORY;
    default:
        return ERR_CORRUPT;
    }
}

static int64_t ms_left(const struct net_http_call *call)
{
    if (deadline_is_never(call->rq.by))
        return INT64_MAX;
    int64_t left_ns = call->rq.by.at_ns - now_ns(call);
    return left_ns <= 0 ? 0 : (left_ns + NS_PER_MS - 1) / NS_PER_MS;
}

void net_http_call_start(struct net_http_call *call)
{
    struct net_http_client *c = call->client;
    int64_t left_ms = ms_left(call);
    const struct net_http_gate *gate = &call->rq.gate;
    if (left_ms == 0) {
        net_http_call_over(call, ERR_TIMEOUT);
        return;
    }
    if (gate->allow != NULL && !gate->allow(gate->ctx)) {
        net_http_call_over(call, ERR_UNAVAILABLE);
        return;
    }
    call->tries++;
    call->why = ERR_OK;
    call->body_n = 0;
    buf_reset(&call->head);
    buf_reset(&call->answer);
    int64_t connect_ms = call->rq.connect_ms ? call->rq.connect_ms : c->cfg.connect_timeout_ms;
    if (connect_ms > left_ms)
        connect_ms = left_ms;
    curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, left_ms == INT64_MAX ? 0L : (long)left_ms);
    curl_easy_setopt(call->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    call->state = CALL_RUNNING;
    call->heard_ns = now_ns(call);
    if (call->rq.stall_ms)
        net_timer_set(c->loop, &call->timer, call->heard_ns + call->rq.stall_ms * NS_PER_MS);
    CHECK(curl_multi_add_handle(c->multi, call->easy) == CURLM_OK);
}

/* Waiting: the next try is due. Running: it may have stalled; what came meanwhile puts the look off. */
static void on_timer(struct net_timer *t)
{
    struct net_http_call *call =
        (struct net_http_call *)((char *)t - offsetof(struct net_http_call, timer));
    int64_t late_ns = call->heard_ns + call->rq.stall_ms * NS_PER_MS;
    if (call->state == CALL_WAITING)
        net_http_call_start(call);
    else if (now_ns(call) < late_ns)
        net_timer_set(call->client->loop, &call->timer, late_ns);
    else
        net_http_call_tried(call, CURLE_OPERATION_TIMEDOUT);
}

/* Retry-After in whole seconds; 0 when it says nothing. */
static int64_t retry_after_ms(struct net_http_call *call)
{
    struct net_http_response r;
    uint64_t seconds;
    struct str value = net_http_header(response_of(call, &r), "retry-after");
    return value.p != NULL && str_parse_u64(value, &seconds) == ERR_OK && seconds < 3600
               ? (int64_t)seconds * 1000
               : 0;
}

static bool may_retry(const struct net_http_call *call, CURLcode rc)
{
    long sent = 0;
    if (call->tries >= call->rq.retry.tries || call->head_told || call->why == ERR_CANCELED ||
        call->why == ERR_FORBIDDEN || call->why == ERR_TOO_LARGE)
        return false;
    if (rc == CURLE_OK)
        return worth_another_try(call, status_of(call));
    curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
    return sent == 0 || call->rq.retry.on_sent;
}

void net_http_call_tried(struct net_http_call *call, CURLcode rc)
{
    struct net_http_client *c = call->client;
    enum err e = from_curl(call, rc);
    const struct net_http_gate *gate = &call->rq.gate;
    curl_multi_remove_handle(c->multi, call->easy);
    net_timer_cancel(c->loop, &call->timer);
    call->state = CALL_WAITING;
    if (gate->result != NULL && e != ERR_CANCELED)
        gate->result(gate->ctx, e == ERR_OK && status_of(call) < 500);
    if (may_retry(call, rc)) {
        int64_t delay_ms = rt_backoff_next_ms(&call->backoff);
        int64_t asked_ms = e == ERR_OK ? retry_after_ms(call) : 0;
        if (asked_ms > delay_ms)
            delay_ms = asked_ms;
        if (delay_ms < ms_left(call)) {
            net_timer_set(c->loop, &call->timer, now_ns(call) + delay_ms * NS_PER_MS);
            return;
        }
    }
    if (e == ERR_OK && (call->rq.on_head != NULL || call->rq.on_body != NULL) && !tell_head(call))
        e = ERR_CANCELED;
    net_http_call_over(call, e);
}

/* ---- setting up ---- */

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct net_http_call *call = ctx;
    const struct net_http_client_config *cfg = &call->client->cfg;
    (void)purpose;
    if (cfg->may_connect != NULL && call->uds == NULL &&
        !cfg->may_connect(cfg->ctx, &a->addr, a->addrlen)) {
        call->why = ERR_FORBIDDEN;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* By the whole address: 127.example.com is somebody else's. */
static bool is_loopback(const char *host)
{
    struct in_addr v4;
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET);
}

/* http or https, and http only to where nobody listens in. */
static enum err url_check(const struct net_http_request *rq, bool *out_https)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL;
    if (u == NULL)
        return ERR_NO_MEMORY;
    enum err e = ERR_OK;
    if (curl_url_set(u, CURLUPART_URL, rq->url, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK)
        e = ERR_SYNTAX; /* NOLINT(bugprone-branch-clone): there is no scheme to look at yet */
    else if (strcmp(scheme, "https") == 0)
        *out_https = true;
    else if (strcmp(scheme, "http") != 0)
        e = ERR_SYNTAX;
    else if (rq->uds == NULL && !rq->http_allowed && !is_loopback(host))
        e = ERR_FORBIDDEN;
    else
        *out_https = false;
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(u);
    return e;
}

static bool header_ok(const char *line)
{
    return strpbrk(line, "\r\n") == NULL && strchr(line, ':') != NULL;
}

static enum err copy_headers(struct net_http_call *call)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:"); /* no waiting for 100 Continue */
    for (const char *const *h = call->rq.headers; list != NULL && h != NULL && *h != NULL; h++) {
        struct curl_slist *longer = header_ok(*h) ? curl_slist_append(list, *h) : NULL;
        if (longer == NULL) {
            curl_slist_free_all(list);
            return ERR_SYNTAX;
        }
        list = longer;
    }
    call->headers_out = list;
    call->rq.headers = NULL;
    return list != NULL ? ERR_OK : ERR_NO_MEMORY;
}

static bool copy_text(const char *text, char **out)
{
    *out = text != NULL ? strdup(text) : NULL;
    return text == NULL || *out != NULL;
}

static enum err copy_request(struct net_http_call *call)
{
    struct net_http_request *rq = &call->rq;
    const char *method = rq->method != NULL ? rq->method : rq->body.n > 0 ? "POST" : "GET";
    if (!copy_text(method, &call->method) || !copy_text(rq->url, &call->url) ||
        !copy_text(rq->uds, &call->uds))
        return ERR_NO_MEMORY;
    if (rq->body.n > 0 && !rq->body_stays) {
        call->body = malloc(rq->body.n);
        if (call->body == NULL)
            return ERR_NO_MEMORY;
        memcpy(call->body, rq->body.p, rq->body.n);
        rq->body.p = call->body;
    }
    rq->method = call->method;
    rq->url = call->url;
    rq->uds = call->uds;
    if (rq->response_max == 0)
        rq->response_max = NET_HTTP_RESPONSE_MAX;
    return copy_headers(call);
}

static void set_method(struct net_http_call *call)
{
    CURL *h = call->easy;
    if (strcmp(call->method, "HEAD") == 0) {
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
        return;
    }
    bool posts = strcmp(call->method, "POST") == 0 || strcmp(call->method, "PUT") == 0 ||
                 strcmp(call->method, "PATCH") == 0;
    if (call->rq.body.n > 0 || posts) {
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, call->rq.body.n > 0 ? (const char *)call->rq.body.p : "");
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->rq.body.n);
    }
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, call->method);
}

static int on_progress(void *ctx, curl_off_t down_of, curl_off_t down, curl_off_t up_of, curl_off_t up)
{
    struct net_http_call *call = ctx;
    (void)down_of;
    (void)down;
    if (up_of > 0 && up >= 0)
        call->rq.on_upload(call->arg, (uint64_t)up, (uint64_t)up_of);
    return 0; /* go on */
}

static enum err easy_setup(struct net_http_call *call, bool https)
{
    const struct net_http_client *c = call->client;
    CURL *h = call->easy = curl_easy_init();
    if (h == NULL)
        return ERR_NO_MEMORY;
    curl_easy_setopt(h, CURLOPT_PRIVATE, (void *)call);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_URL, call->url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, call->rq.redirects > 0 ? 1L : 0L);
    curl_easy_setopt(h, CURLOPT_MAXREDIRS, (long)call->rq.redirects);
    curl_easy_setopt(h, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)call->rq.response_max);
    curl_easy_setopt(h, CURLOPT_USERAGENT, c->user_agent);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, call->headers_out);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header_line);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, (void *)call);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body_piece);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, (void *)call);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, (void *)call);
    curl_easy_setopt(h, CURLOPT_CLOSESOCKETFUNCTION, net_http_client_close_socket);
    curl_easy_setopt(h, CURLOPT_CLOSESOCKETDATA, (void *)call->client);
    if (call->rq.on_upload != NULL) {
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, (void *)call);
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    }
    if (c->ca_file != NULL)
        curl_easy_setopt(h, CURLOPT_CAINFO, c->ca_file);
    if (call->uds != NULL)
        curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, call->uds);
    set_method(call);
    return ERR_OK;
}

static void backoff_setup(struct net_http_call *call)
{
    struct net_http_retry *r = &call->rq.retry;
    if (r->backoff_min_ms == 0)
        r->backoff_min_ms = 50;
    if (r->backoff_max_ms == 0)
        r->backoff_max_ms = 1000;
    if (r->backoff_max_ms < r->backoff_min_ms)
        r->backoff_max_ms = r->backoff_min_ms;
    struct rt_backoff_spec spec = {.first_min_ms = r->backoff_min_ms / 2,
                                   .first_max_ms = r->backoff_min_ms,
                                   .cap_ms = r->backoff_max_ms};
    rt_backoff_init(&call->backoff, &spec, rng_secure_u64());
}

enum err net_http_call_new(struct net_http_client *c, const struct net_http_request *rq,
                           struct net_http_call **out)
{
    bool https = false;
    enum err e = url_check(rq, &https);
    if (e != ERR_OK)
        return e;
    struct net_http_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return ERR_NO_MEMORY;
    call->magic = NET_HTTP_CALL_MAGIC;
    call->client = c;
    call->rq = *rq;
    call->timer.fn = on_timer;
    buf_init(&call->head, HEAD_MAX);
    e = copy_request(call);
    buf_init(&call->answer, call->rq.response_max);
    if (e == ERR_OK)
        e = easy_setup(call, https);
    if (e != ERR_OK) {
        net_http_call_free(call);
        return e;
    }
    backoff_setup(call);
    *out = call;
    return ERR_OK;
}
