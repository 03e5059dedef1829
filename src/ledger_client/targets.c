#include "ledger_client/targets.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ledger_client/json.h"

static bool parse_one(struct str url, struct ledger_target *t)
{
    *t = (struct ledger_target){{0}, {0}};
    while (url.n > 0 && url.p[0] == ' ')
        url = str_of(url.p + 1, url.n - 1);
    while (url.n > 0 && (url.p[url.n - 1] == '/' || url.p[url.n - 1] == ' '))
        url.n--;
    if (url.n == 0 || url.n >= sizeof t->base_url)
        return false;
    if (str_starts(url, STR("unix:"))) {
        snprintf(t->uds, sizeof t->uds, "%.*s", (int)(url.n - 5), url.p + 5);
        snprintf(t->base_url, sizeof t->base_url, "http://localhost");
    } else {
        snprintf(t->base_url, sizeof t->base_url, "%.*s", STR_ARG(url));
    }
    return true;
}

enum err ledger_targets_parse(struct ledger_http *h, const char *urls)
{
    struct str rest = str_from_c(urls), one;
    h->n_targets = 0;
    do {
        rest = str_cut(rest, ',', &one);
        if (h->n_targets == LEDGER_TARGETS_MAX || !parse_one(one, &h->targets[h->n_targets]))
            return ERR_SYNTAX;
        h->n_targets++;
    } while (rest.p != NULL);
    atomic_store(&h->current, 0);
    return ERR_OK;
}

uint32_t ledger_target_now(const struct ledger_http *h)
{
    return atomic_load_explicit(&h->current, memory_order_relaxed);
}

void ledger_target_leave(struct ledger_http *h, uint32_t from)
{
    atomic_compare_exchange_strong(&h->current, &from, (from + 1) % h->n_targets);
}

/* The writer that a refusal names, if it is one of ours. */
static bool go_to_named(struct ledger_http *h, uint32_t from, struct str details)
{
    for (uint32_t i = 0; i < h->n_targets; i++) {
        const char *url = h->targets[i].base_url;
        char quoted[sizeof h->targets[i].base_url + 2];
        int n = snprintf(quoted, sizeof quoted, "\"%s\"", url);
        if (i != from && h->targets[i].uds[0] == 0 && details.p != NULL && n > 0 &&
            memmem(details.p, details.n, quoted, (size_t)n) != NULL) {
            atomic_store_explicit(&h->current, i, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

bool ledger_target_answered(struct ledger_http *h, uint32_t from, bool write, enum err e,
                            const struct net_http_response *r)
{
    if (e == ERR_BUSY || e == ERR_CLOSED || e == ERR_CANCELED || e == ERR_SYNTAX)
        return false; /* our own doing */
    if (e != ERR_OK) {
        ledger_target_leave(h, from);
        return e == ERR_REFUSED || !write;
    }
    if (r->status != 503)
        return false;
    struct arena a;
    struct ledger_answer answer = {0};
    arena_init(&a, 4096, 1 << 20);
    ledger_json_problem(r->body, r->status, &a, &answer);
    bool definite =
        answer.err == ERR_NOT_WRITER || answer.err == ERR_SAFE_MODE || answer.err == ERR_DRAINING;
    if (answer.err != ERR_NOT_WRITER || !go_to_named(h, from, answer.details))
        ledger_target_leave(h, from);
    arena_fini(&a);
    return definite;
}
