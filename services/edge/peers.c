#include "services/edge/peers.h"

#include <stdio.h>

#include "base/hex.h"

enum { URL_MAX = 512 };

/* Order of the label values in metrics.def. */
enum verdict { PEER_HIT, PEER_MISS, PEER_LIE, PEER_SLOW, PEER_DOWN };

static enum verdict verdict_of(enum edge_got got, const struct edge_answer *a, const struct sha256 *want)
{
    if (got == EDGE_GOT_TIMEOUT)
        return PEER_SLOW;
    if (got == EDGE_GOT_TOO_LARGE)
        return PEER_LIE;
    if (got != EDGE_GOT_ANSWER)
        return PEER_DOWN;
    if (a->status == 404)
        return PEER_MISS;
    if (a->status != 200)
        return PEER_DOWN; /* busy, draining, redirecting: whatever it is, it does not have it for us */
    bool whole = a->declared < 0 || (uint64_t)a->declared == a->bytes;
    return whole && !a->coded && sha256_eq(&a->digest, want) ? PEER_HIT : PEER_LIE;
}

static void tell(struct edge *e, const struct edge_peer *p, struct rt_breaker *breaker, enum verdict v)
{
    int64_t now = edge_now_ns(e);
    static const char *const names[] = {"hit", "miss", "lie", "slow", "down"};
    obs_counter_inc(obs_counter_nth(e->m[EDGE_M_peer_fills], v));
    if (v == PEER_HIT || v == PEER_MISS)
        rt_breaker_success(breaker, now);
    else {
        rt_breaker_failure(breaker, now);
        obs_log(svc_log(e->svc), OBS_WARN, "peer_failed", OBS_STR("peer", (const char *)p->label),
                OBS_STR("how", names[v]), OBS_END);
    }
    if (v == PEER_LIE)
        obs_counter_inc(obs_counter_nth(e->m[EDGE_M_integrity], 0));
}

RT_BLOCKS
static enum edge_got ask(struct edge *e, struct edge_client *client, struct rt_task *self,
                         struct edge_fill *f, const struct edge_peer *p, struct store_file *to,
                         struct edge_answer *out)
{
    char url[URL_MAX], hex[SHA256_HEX_CHARS], corr[160];
    hex_encode(f->digest.b, sizeof f->digest.b, hex);
    snprintf(url, sizeof url, "%.*sedge/cas/%s", STR_ARG(p->url), hex);
    snprintf(corr, sizeof corr, "X-Corr-ID: %s", f->corr_id);
    const char *lines[] = {"Accept-Encoding: identity", EDGE_PEER_HEADER ": 1", corr, NULL};
    atomic_store(&f->bytes, 0);
    if (store_file_truncate(to, 0) != ERR_OK)
        return EDGE_GOT_DISK;
    return edge_fetch(client,
                      &(struct edge_get){.url = url,
                                         .headers = lines,
                                         .timeout_ms = edge_config(e)->peers_timeout,
                                         .max_bytes = f->route->max_bytes,
                                         .to = to,
                                         .progress = &f->bytes},
                      self, out);
}

enum err edge_peers_fetch(struct edge *e, struct edge_client *client, struct rt_task *self,
                          struct edge_fill *f, struct store_file *to, struct edge_answer *out)
{
    const struct edge_settings *s = edge_settings(e);
    size_t order[EDGE_PEERS_MAX], asked = 0;
    edge_rendezvous(s->peer_urls, s->peers_n, &f->digest, order);
    for (size_t i = 0; i < s->peers_n && asked < edge_config(e)->peers_tries; i++) {
        const struct edge_peer *p = &s->peers[order[i]];
        struct rt_breaker *breaker = edge_fill_breaker(e, p->label);
        if (p->self || !rt_breaker_allow(breaker, edge_now_ns(e)))
            continue;
        asked++;
        enum edge_got got = ask(e, client, self, f, p, to, out);
        if (got == EDGE_GOT_CANCELED || got == EDGE_GOT_DISK || got == EDGE_GOT_MEMORY) {
            rt_breaker_neither(breaker, edge_now_ns(e));
            return got == EDGE_GOT_DISK ? ERR_IO : got == EDGE_GOT_MEMORY ? ERR_NO_MEMORY : ERR_CANCELED;
        }
        enum verdict v = verdict_of(got, out, &f->digest);
        tell(e, p, breaker, v);
        if (v == PEER_HIT)
            return ERR_OK;
    }
    return ERR_NOT_FOUND;
}
