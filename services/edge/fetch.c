#include "services/edge/fetch.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 2000, POLL_MS = 100 };

struct edge_client {
    struct edge *e;
    CURLM *multi;
    CURL *easy;
    /* of the GET under way */
    const struct edge_get *get;
    struct edge_answer *answer;
    struct sha256_ctx hash;
    bool refused, too_large, disk, memory;
    uint64_t held; /* of edge.fetching */
};

struct edge_client *edge_client_create(struct edge *e)
{
    struct edge_client *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->e = e;
    c->multi = curl_multi_init();
    c->easy = curl_easy_init();
    if (!c->multi || !c->easy) {
        edge_client_destroy(c);
        return NULL;
    }
    return c;
}

void edge_client_let_go(struct edge_client *c)
{
    atomic_fetch_sub_explicit(&c->e->fetching, c->held, memory_order_relaxed);
    c->held = 0;
}

/* With amnesia a temporary file is memory, and there is one for each worker: they have as much in all as the store may have. */
static bool memory_left(struct edge_client *c, uint64_t size)
{
    uint64_t cap = edge_config(c->e)->cas_amnesia;
    if (!svc_amnesia(c->e->svc))
        return true;
    if (c->answer->bytes + size > cap / 4 || c->answer->declared > (int64_t)(cap / 4))
        return false;
    c->held += size;
    return atomic_fetch_add_explicit(&c->e->fetching, size, memory_order_relaxed) + size <= cap;
}

void edge_client_destroy(struct edge_client *c)
{
    if (!c)
        return;
    edge_client_let_go(c);
    if (c->easy)
        curl_easy_cleanup(c->easy);
    if (c->multi)
        curl_multi_cleanup(c->multi);
    free(c);
}

/*
 * Sees the address that is really connected to, after the name was resolved: rebinding gains nothing. Of a name with several
 * addresses those that are allowed are tried, in whatever order they came.
 */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct edge_client *c = arg;
    const struct edge_settings *s = edge_settings(c->e);
    uint8_t addr[16] = {0};
    if (a->family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &a->addr, sizeof in);
        addr[10] = addr[11] = 0xff;
        memcpy(addr + 12, &in.sin_addr, 4);
    } else if (a->family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &a->addr, sizeof in6 < a->addrlen ? sizeof in6 : a->addrlen);
        memcpy(addr, &in6.sin6_addr, 16);
    }
    bool loopback = (addr[10] == 0xff && addr[12] == 127) ||
                    (a->family == AF_INET6 && IN6_IS_ADDR_LOOPBACK((struct in6_addr *)(void *)addr));
    bool plain_allowed =
        loopback && edge_config(c->e)->fill_loopback_http && strncasecmp(c->get->url, "http://", 7) == 0;
    if (purpose != CURLSOCKTYPE_IPCXN || (a->family != AF_INET && a->family != AF_INET6) ||
        !(plain_allowed || edge_address_ok(addr, s->allow_private, s->allow_private_n))) {
        char text[INET6_ADDRSTRLEN] = "?";
        inet_ntop(AF_INET6, addr, text, sizeof text);
        obs_log(svc_log(c->e->svc), OBS_WARN, "address_refused", OBS_STR("address", (const char *)text),
                OBS_END);
        c->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct edge_client *c = arg;
    edge_upstream_line(c->answer, str_of(p, size * n));
    return size * n;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg) RT_UNCHECKED
{
    struct edge_client *c = arg;
    long status = 0;
    size *= n;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return size; /* read and forgotten, so that the connection can be used again */
    if (c->answer->bytes + size > c->get->max_bytes || c->answer->declared > (int64_t)c->get->max_bytes) {
        c->too_large = true;
        return 0;
    }
    if (!memory_left(c, size)) {
        c->memory = true;
        return 0;
    }
    sha256_update(&c->hash, p, size);
    enum err e = store_file_append(c->get->to, p, size);
    if (e != ERR_OK) {
        if (e == ERR_NO_SPACE)
            edge_store_want_room(c->e->store);
        c->disk = true;
        return 0;
    }
    c->answer->bytes += size;
    atomic_fetch_add_explicit(c->get->progress, size, memory_order_relaxed);
    return size;
}

static void configure(struct edge_client *c, struct curl_slist *headers)
{
    const struct edge_config *cfg = edge_config(c->e);
    CURL *h = c->easy;
    curl_easy_reset(h);
    curl_easy_setopt(h, CURLOPT_URL, c->get->url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, cfg->fill_loopback_http ? "https,http" : "https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L);
    if (*cfg->fill_ca_file)
        curl_easy_setopt(h, CURLOPT_CAINFO, cfg->fill_ca_file);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)c->get->timeout_ms);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "svc-edge/1");
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(h, CURLOPT_OPENSOCKETDATA, c);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
}

/* Until it is done or the task is cancelled. */
RT_BLOCKS
static CURLcode drive(struct edge_client *c, struct rt_task *self, bool *out_canceled)
{
    CURLcode rc = CURLE_FAILED_INIT;
    int running = 1;
    *out_canceled = false;
    if (curl_multi_add_handle(c->multi, c->easy) != CURLM_OK)
        return rc;
    while (running) {
        int left;
        curl_multi_perform(c->multi, &running);
        for (CURLMsg *m = curl_multi_info_read(c->multi, &left); m;
             m = curl_multi_info_read(c->multi, &left))
            if (m->msg == CURLMSG_DONE)
                rc = m->data.result;
        if (!running)
            break;
        if (rt_task_canceled(self)) {
            *out_canceled = true;
            break;
        }
        curl_multi_poll(c->multi, NULL, 0, POLL_MS, NULL);
        rt_task_beat(self);
    }
    curl_multi_remove_handle(c->multi, c->easy);
    return rc;
}

enum edge_got edge_fetch(struct edge_client *c, const struct edge_get *get, struct rt_task *self,
                         struct edge_answer *out)
{
    struct curl_slist *headers = NULL;
    bool canceled;
    *out = (struct edge_answer){.declared = -1};
    c->get = get;
    c->answer = out;
    c->refused = c->too_large = c->disk = c->memory = false;
    edge_client_let_go(c);
    sha256_init(&c->hash);
    for (const char *const *h = get->headers; *h; h++)
        headers = curl_slist_append(headers, *h);
    configure(c, headers);
    CURLcode rc = drive(c, self, &canceled);
    long status = 0;
    double connect_s = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(c->easy, CURLINFO_CONNECT_TIME, &connect_s);
    curl_slist_free_all(headers);
    out->status = (int)status;
    bool connected = connect_s > 0;
    out->connect_timeout = rc == CURLE_OPERATION_TIMEDOUT && !connected;
    sha256_final(&c->hash, &out->digest);
    if (canceled)
        return EDGE_GOT_CANCELED;
    if (c->refused && !connected)
        return EDGE_GOT_FORBIDDEN;
    if (c->too_large)
        return EDGE_GOT_TOO_LARGE;
    if (c->disk)
        return EDGE_GOT_DISK;
    if (c->memory)
        return EDGE_GOT_MEMORY;
    return rc == CURLE_OK                   ? EDGE_GOT_ANSWER
           : rc == CURLE_OPERATION_TIMEDOUT ? EDGE_GOT_TIMEOUT
           : rc == CURLE_PARTIAL_FILE       ? EDGE_GOT_SHORT
                                            : EDGE_GOT_FAILED;
}
