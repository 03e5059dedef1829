#include "mem_ledger.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "mem_ledger_internal.h"

struct mem_ledger *mem_ledger_create(void)
{
    struct mem_ledger *f = calloc(1, sizeof *f);
    pthread_condattr_t attr;
    f->client = (struct ledger_client){.ops = &mem_ledger__ops, .transport = "fake"};
    f->feed_on = true;
    pthread_mutex_init(&f->m, NULL);
    pthread_mutex_init(&f->feed_m, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->c, &attr);
    CHECK(map_init(&f->rows, 64) == ERR_OK && map_init(&f->lanes, 64) == ERR_OK &&
          map_init(&f->units, 64) == ERR_OK && map_init(&f->entries, 64) == ERR_OK &&
          map_init(&f->holds, 64) == ERR_OK);
    CHECK(pthread_create(&f->thread, NULL, mem_ledger__run_stalled, f) == 0);
    return f;
}

static void free_values(struct map *m)
{
    size_t at = 0;
    void *v;
    while (map_next(m, &at, NULL, &v))
        free(v);
    map_fini(m);
}

void mem_ledger_destroy(struct mem_ledger *f)
{
    pthread_mutex_lock(&f->m);
    f->stop = true;
    pthread_cond_signal(&f->c);
    pthread_mutex_unlock(&f->m);
    pthread_join(f->thread, NULL);
    size_t at = 0;
    void *v;
    while (map_next(&f->units, &at, NULL, &v))
        arena_fini(&((struct mem_unit *)v)->arena);
    map_fini(&f->entries);
    free_values(&f->holds);
    free_values(&f->units);
    free_values(&f->rows);
    free_values(&f->lanes);
    free(f->by_seq);
    free(f);
}

struct ledger_client *mem_ledger_client(struct mem_ledger *f)
{
    return &f->client;
}

#define LOCKED(f, ...)                                                                                     \
    do {                                                                                                   \
        pthread_mutex_lock(&(f)->m);                                                                       \
        __VA_ARGS__;                                                                                       \
        pthread_mutex_unlock(&(f)->m);                                                                     \
    } while (0)

void mem_ledger_ingest_fault(struct mem_ledger *f, enum mem_fault fault, int n)
{
    LOCKED(f, f->ingest_fault = fault, f->ingest_n = n);
}

void mem_ledger_drive(struct mem_ledger *f, const struct clock *clock)
{
    pthread_mutex_lock(&f->m);
    f->clock = clock;
    for (struct mem_stalled *s = f->stalled; s && !clock; s = s->next)
        s->by.at_ns = 0;
    pthread_cond_signal(&f->c);
    pthread_mutex_unlock(&f->m);
}

void mem_ledger_owe(struct mem_ledger *f, size_t connections)
{
    f->owing = connections;
}

void mem_ledger_unit_fault(struct mem_ledger *f, enum mem_fault fault, int n)
{
    LOCKED(f, f->unit_fault = fault, f->unit_n = n);
}

void mem_ledger_account_fault(struct mem_ledger *f, enum mem_fault fault, int n)
{
    LOCKED(f, f->account_fault = fault, f->account_n = n);
}

void mem_ledger_retry_after(struct mem_ledger *f, uint32_t s)
{
    LOCKED(f, f->retry_after_s = s);
}

void mem_ledger_read_fault(struct mem_ledger *f, enum mem_fault fault)
{
    LOCKED(f, f->read_fault = fault);
}

void mem_ledger_chaos(struct mem_ledger *f, uint64_t seed)
{
    LOCKED(f, f->chaos = seed != 0, rng_seed(&f->rng, seed));
}

void mem_ledger_service_time(struct mem_ledger *f, unsigned us)
{
    f->service_us = us;
}

void mem_ledger_feed(struct mem_ledger *f, bool on)
{
    LOCKED(f, f->feed_on = on);
    if (on)
        return;
    pthread_mutex_lock(&f->feed_m);
    for (struct ledger_feed *s = f->feeds; s; s = s->next)
        s->sink.on_end(s->ctx, ERR_DISCONNECTED);
    pthread_mutex_unlock(&f->feed_m);
}

void mem_ledger_fork(struct mem_ledger *f)
{
    LOCKED(f, f->forked = true);
}

void mem_ledger_forget_last(struct mem_ledger *f)
{
    LOCKED(f, f->forgets_last = true);
}

uint64_t mem_ledger_head(struct mem_ledger *f)
{
    uint64_t v;
    LOCKED(f, v = f->head);
    return v;
}

uint64_t mem_ledger_units(struct mem_ledger *f)
{
    uint64_t v;
    LOCKED(f, v = f->n_units);
    return v;
}

void mem_ledger_origin(struct mem_ledger *f, char corr_id[129], char traceparent[64])
{
    LOCKED(f, memcpy(corr_id, f->corr_id, sizeof f->corr_id),
           memcpy(traceparent, f->traceparent, sizeof f->traceparent));
}

uint64_t mem_ledger_heads(struct mem_ledger *f)
{
    uint64_t v;
    LOCKED(f, v = f->heads);
    return v;
}

uint64_t mem_ledger_ingests(struct mem_ledger *f)
{
    uint64_t v;
    LOCKED(f, v = f->ingests);
    return v;
}

struct money mem_ledger_available(struct mem_ledger *f, const char *account, const char *asset)
{
    struct money v;
    LOCKED(f, v = mem_ledger__row(f, str_from_c(account), str_from_c(asset))->available);
    return v;
}

struct money mem_ledger_held(struct mem_ledger *f, const char *account, const char *asset)
{
    struct money v;
    LOCKED(f, v = mem_ledger__row(f, str_from_c(account), str_from_c(asset))->held);
    return v;
}

uint64_t mem_ledger_last(struct mem_ledger *f, const char *account, unsigned lane)
{
    uint64_t v;
    LOCKED(f, v = mem_ledger__lane(f, str_from_c(account), lane)->last & ((UINT64_C(1) << 48) - 1));
    return v;
}

bool mem_ledger_conserves(struct mem_ledger *f)
{
    struct money sum = MONEY_ZERO, out;
    size_t at = 0;
    void *v;
    pthread_mutex_lock(&f->m);
    while (map_next(&f->rows, &at, NULL, &v)) {
        mem_ledger__move(NULL, &sum, ((struct mem_row *)v)->available);
        mem_ledger__move(NULL, &sum, ((struct mem_row *)v)->held);
    }
    CHECK(money_sub(f->issued, f->burned, &out) == ERR_OK);
    pthread_mutex_unlock(&f->m);
    return money_cmp(sum, out) == 0;
}

static void foreign(struct mem_ledger *f, const char *idem_id, enum ledger_kind kind, const char *account,
                    const char *asset, uint64_t amount, uint64_t nonce, bool told)
{
    char details[128], id[64];
    struct ledger_result r;
    struct mem_unit *u = NULL;
    snprintf(id, sizeof id, "id-%s", idem_id);
    struct ledger_entry e = {.id = str_from_c(id),
                             .ts_ms = mem_ledger__now_ms(f),
                             .kind = kind,
                             .account = str_from_c(account),
                             .asset = str_from_c(asset),
                             .amount = money_from_u64(amount),
                             .nonce = nonce};
    struct ledger_unit in = {.idem_id = str_from_c(idem_id), .entries = &e, .n_entries = 1};
    LOCKED(f, mem_ledger__judge(f, &in, &r, details, &u), told = told && f->feed_on);
    CHECK(r.status == LEDGER_COMMITTED);
    if (u && told)
        mem_ledger__tell_feeds(f, &u, 1);
}

void mem_ledger_mint(struct mem_ledger *f, const char *idem_id, const char *account, const char *asset,
                     uint64_t amount)
{
    foreign(f, idem_id, LEDGER_MINT, account, asset, amount, 0, true);
}

void mem_ledger_mint_untold(struct mem_ledger *f, const char *idem_id, const char *account,
                            const char *asset, uint64_t amount)
{
    foreign(f, idem_id, LEDGER_MINT, account, asset, amount, 0, false);
}

void mem_ledger_burn_untold(struct mem_ledger *f, const char *idem_id, const char *account,
                            const char *asset, uint64_t amount, uint64_t nonce)
{
    foreign(f, idem_id, LEDGER_BURN, account, asset, amount, nonce, false);
}
