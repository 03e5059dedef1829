#include "services/ledger/direct.h"

#include <stdlib.h>
#include <string.h>

#include "services/ledger/direct_internal.h"

struct direct *ledger_direct__of(struct ledger_client *c)
{
    return (struct direct *)c;
}

struct ledger_answer ledger_direct__refused(enum err err)
{
    const char *code = err_code(err);
    return (struct ledger_answer){LEDGER_REFUSED, err,       err_http_status(err),        str_from_c(code),
                                  {NULL, 0},      {NULL, 0}, err_retryable(err) ? 1u : 0u};
}

const struct ledger_answer ledger_direct__answered = {LEDGER_ANSWERED, ERR_OK,    200, {NULL, 0},
                                                      {NULL, 0},       {NULL, 0}, 0};

enum err ledger_direct__cap(struct direct *d, struct auth_cap **out_cap)
{
    return auth_verify(svc_auth(d->s->svc), str_from_c(ledger_bearer_token(&d->bearer)), out_cap);
}

struct ledger_entry ledger_direct__entry_out(const struct core_entry *e)
{
    return (struct ledger_entry){e->id,        e->ts,    (enum ledger_kind)e->kind,
                                 e->account,   e->to,    e->asset,
                                 e->amount,    e->nonce, e->ref_id,
                                 e->hold_until};
}

static void direct_close(struct ledger_client *c)
{
    struct direct *d = ledger_direct__of(c);
    atomic_store(&d->closed, true);
    while (atomic_load(&d->open_calls) != 0) /* every job ends */
        ledger_nap();
    rt_lock_take(&d->s->direct_lock);
    struct direct **at = &d->s->directs;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    rt_lock_release(&d->s->direct_lock);
    ledger_bearer_fini(&d->bearer);
    free(d);
}

/* There is one connection, so to speak. */
static size_t direct_owing(struct ledger_client *c)
{
    return atomic_load_explicit(&ledger_direct__of(c)->owed, memory_order_relaxed) > 0;
}

static enum err direct_set_token(struct ledger_client *c, struct str token)
{
    return ledger_bearer_set(&ledger_direct__of(c)->bearer, token);
}

static const struct ledger_client_ops client_ops = {
    .ingest = ledger_direct__ingest,
    .unit = ledger_direct__unit,
    .account = ledger_direct__account,
    .entry = ledger_direct__entry,
    .entries = ledger_direct__entries,
    .roots = ledger_direct__roots,
    .proof = ledger_direct__proof,
    .consistency = ledger_direct__consistency,
    .head = ledger_direct__head,
    .feed = ledger_direct__feed,
    .feed_stop = ledger_direct__feed_stop,
    .close = direct_close,
    .owing = direct_owing,
    .set_token = direct_set_token,
};

enum err ledger_direct_open(struct svc *ledger, struct str token, struct ledger_client **out_client)
{
    struct direct *d = calloc(1, sizeof *d);
    if (d == NULL)
        return ERR_NO_MEMORY;
    d->base = (struct ledger_client){.ops = &client_ops, .transport = "direct"};
    d->s = svc_state(ledger);
    struct auth_cap *cap;
    enum err err = ledger_bearer_set(&d->bearer, token);
    if (err == ERR_OK)
        err = ledger_direct__cap(d, &cap);
    if (err != ERR_OK) {
        ledger_bearer_fini(&d->bearer);
        free(d);
        return err;
    }
    auth_cap_release(cap);
    rt_lock_take(&d->s->direct_lock);
    d->next = d->s->directs;
    d->s->directs = d;
    rt_lock_release(&d->s->direct_lock);
    *out_client = &d->base;
    return ERR_OK;
}
