#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ledger_client/http_internal.h"
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

enum err ledger_http_targets_parse(struct ledger_http *h, const char *urls)
{
    struct str rest = str_from_c(urls), one;
    h->to.n = 0;
    do {
        rest = str_cut(rest, ',', &one);
        if (h->to.n == LEDGER_TARGETS_MAX || !parse_one(one, &h->targets[h->to.n]))
            return ERR_SYNTAX;
        h->to.n++;
    } while (rest.p != NULL);
    ledger_targets_go(&h->to, 0);
    return ERR_OK;
}

/* The writer that a refusal names, if it is one of ours. */
static bool go_to_named(struct ledger_http *h, uint32_t from, struct str details)
{
    for (uint32_t i = 0; i < h->to.n; i++) {
        const char *url = h->targets[i].base_url;
        char quoted[sizeof h->targets[i].base_url + 2];
        int n = snprintf(quoted, sizeof quoted, "\"%s\"", url);
        if (i != from && h->targets[i].uds[0] == 0 && details.p != NULL && n > 0 &&
            memmem(details.p, details.n, quoted, (size_t)n) != NULL) {
            ledger_targets_go(&h->to, i);
            return true;
        }
    }
    return false;
}

bool ledger_http_target_answered(struct ledger_http *h, uint32_t from, bool write, enum err e,
                                 const struct net_http_response *r)
{
    if (e != ERR_OK)
        return ledger_targets_failed(&h->to, from, write, e);
    if (r->status != 503)
        return false;
    struct arena a;
    struct ledger_answer answer = {0};
    arena_init(&a, 4096, 1 << 20);
    ledger_json_problem(r->body, r->status, &a, &answer);
    if (answer.err != ERR_NOT_WRITER || !go_to_named(h, from, answer.details))
        ledger_targets_leave(&h->to, from);
    arena_fini(&a);
    return ledger_targets_turned_away(answer.err);
}
