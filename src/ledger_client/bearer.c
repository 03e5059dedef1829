#include "ledger_client/bearer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define SCHEME "Authorization: Bearer "

enum { SCHEME_CHARS = sizeof SCHEME - 1, TOKEN_MAX = 9192 };

struct ledger_bearer_text {
    struct ledger_bearer_text *before;
    char line[];
};

enum err ledger_bearer_set(struct ledger_bearer *b, struct str token)
{
    struct ledger_bearer_text *before = atomic_load_explicit(&b->now, memory_order_relaxed);
    if (token.n > TOKEN_MAX)
        return ERR_TOO_LARGE;
    if (before && str_eq_c(token, before->line + SCHEME_CHARS))
        return ERR_OK;
    struct ledger_bearer_text *fresh = malloc(sizeof *fresh + SCHEME_CHARS + token.n + 1);
    if (!fresh)
        return ERR_NO_MEMORY;
    fresh->before = before;
    memcpy(fresh->line, SCHEME, SCHEME_CHARS);
    if (token.n)
        memcpy(fresh->line + SCHEME_CHARS, token.p, token.n);
    fresh->line[SCHEME_CHARS + token.n] = 0;
    atomic_store_explicit(&b->now, fresh, memory_order_release);
    return ERR_OK;
}

const char *ledger_bearer_line(struct ledger_bearer *b)
{
    struct ledger_bearer_text *now = atomic_load_explicit(&b->now, memory_order_acquire);
    CHECK(now);
    return now->line;
}

const char *ledger_bearer_token(struct ledger_bearer *b)
{
    return ledger_bearer_line(b) + SCHEME_CHARS;
}

void ledger_bearer_fini(struct ledger_bearer *b)
{
    struct ledger_bearer_text *t = atomic_exchange_explicit(&b->now, NULL, memory_order_acquire);
    while (t) {
        struct ledger_bearer_text *before = t->before;
        explicit_bzero(t->line, strlen(t->line));
        free(t);
        t = before;
    }
}
