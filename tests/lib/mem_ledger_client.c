/* The operations of ledger_client.h over the rules and the faults. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mem_ledger_internal.h"

static struct mem_ledger *mem_of(struct ledger_client *c)
{
    return (struct mem_ledger *)(void *)c;
}

void mem_ledger__tell_feeds(struct mem_ledger *f, struct mem_unit *const *fresh, size_t n)
{
    pthread_mutex_lock(&f->feed_m);
    for (struct ledger_feed *s = f->feeds; s; s = s->next)
        for (size_t i = 0; i < n; i++) {
            const struct ledger_result *r = &fresh[i]->result;
            struct str accounts[4];
            size_t k = 0;
            for (size_t e = 0; e < r->n_entries; e++) {
                accounts[k++] = r->entries[e].account;
                if (r->entries[e].to.n)
                    accounts[k++] = r->entries[e].to;
            }
            s->sink.on_commit(s->ctx, &(struct ledger_commit_event){.seq_start = r->seq_start,
                                                                    .seq_end = r->seq_end,
                                                                    .tree_size = r->tree_size,
                                                                    .root = r->root,
                                                                    .accounts = accounts,
                                                                    .n_accounts = k});
        }
    pthread_mutex_unlock(&f->feed_m);
}

static void do_ingest(struct ledger_client *c, const struct ledger_ingest *rq, struct deadline by,
                      ledger_ingest_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    unsigned took_us = f->service_us;
    if (took_us)
        nanosleep(&(struct timespec){.tv_nsec = (long)took_us * 1000}, NULL);
    pthread_mutex_lock(&f->m);
    f->ingests++;
    snprintf(f->corr_id, sizeof f->corr_id, "%.*s", STR_ARG(rq->corr_id));
    snprintf(f->traceparent, sizeof f->traceparent, "%.*s", STR_ARG(rq->traceparent));
    enum mem_fault fault = mem_ledger__draw(f, &f->ingest_fault, &f->ingest_n);
    bool happens = fault == MEM_OK || fault == MEM_GARBLE || fault == MEM_OTHERS ||
                   fault == MEM_LOSE_AFTER || fault == MEM_STALL_AFTER;
    struct ledger_result *results = calloc(rq->n_units, sizeof *results);
    char(*details)[128] = calloc(rq->n_units, sizeof *details);
    struct mem_unit **fresh = calloc(rq->n_units, sizeof *fresh);
    size_t n_fresh = 0;
    for (size_t i = 0; happens && i < rq->n_units; i++) {
        struct mem_unit *u = NULL;
        mem_ledger__judge(f, &rq->units[i], &results[i], details[i], &u);
        if (u)
            fresh[n_fresh++] = u;
    }
    for (size_t i = 0; i < n_fresh; i++) { /* one group: all see its end */
        fresh[i]->result.tree_size = f->head;
        fresh[i]->result.root = f->root;
    }
    for (size_t i = 0; happens && i < rq->n_units; i++)
        if (results[i].status == LEDGER_COMMITTED) {
            results[i].tree_size = f->head;
            results[i].root = f->root;
            results[i].entries = NULL;
        }
    for (size_t i = 0; fault == MEM_OTHERS && i < rq->n_units; i++)
        results[i] = f->by_seq[0]->result;
    bool feed = f->feed_on;
    bool over = mem_ledger__spoiled(f, fault, MEM_CALL_INGEST, (void *)fn, ctx, by);
    if (!over)
        pthread_mutex_unlock(&f->m);
    if (feed)
        mem_ledger__tell_feeds(f, fresh, n_fresh);
    if (!over)
        fn(ctx,
           &(struct ledger_ingest_reply){.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                         .results = results,
                                         .n_results = fault == MEM_GARBLE ? rq->n_units - 1 : rq->n_units});
    free(results);
    free(details);
    free(fresh);
}

static void do_unit(struct ledger_client *c, struct str idem_id, uint32_t wait_ms, struct deadline by,
                    ledger_unit_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    (void)wait_ms;
    pthread_mutex_lock(&f->m);
    enum mem_fault fault = mem_ledger__draw(f, &f->unit_fault, &f->unit_n);
    if (mem_ledger__spoiled(f, fault == MEM_GARBLE ? MEM_LOSE_BEFORE : fault, MEM_CALL_UNIT, (void *)fn,
                            ctx, by))
        return;
    struct mem_unit *u = map_get(&f->units, bytes_of_str(idem_id));
    struct ledger_unit_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = u ? 200 : 404},
                                  .found = u != NULL,
                                  .ledger_ms = mem_ledger__now_ms(f)};
    if (fault == MEM_OTHERS) {
        r.found = true;
        u = f->by_seq[0];
    }
    if (u)
        r.result = u->result;
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

enum { BALANCES_MAX = 512 };

static void do_account(struct ledger_client *c, struct str account, uint64_t min_seq, struct deadline by,
                       ledger_account_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    struct ledger_balance balances[BALANCES_MAX];
    struct ledger_lane lanes[256];
    size_t n = 0, k = 0, at = 0;
    void *value;
    (void)min_seq;
    pthread_mutex_lock(&f->m);
    enum mem_fault fault =
        f->account_n ? mem_ledger__draw(f, &f->account_fault, &f->account_n) : f->read_fault;
    if (mem_ledger__spoiled(f, fault, MEM_CALL_ACCOUNT, (void *)fn, ctx, by))
        return;
    while (n < BALANCES_MAX && map_next(&f->rows, &at, NULL, &value)) {
        struct mem_row *r = value;
        if (strncmp(r->name, account.p, account.n) == 0 && r->name[account.n] == '|')
            balances[n++] = (struct ledger_balance){account, str_from_c(r->name + account.n + 1),
                                                    r->available, r->held};
    }
    at = 0;
    while (k < 256 && map_next(&f->lanes, &at, NULL, &value)) {
        struct mem_lane *l = value;
        if (strncmp(l->name, account.p, account.n) == 0 && l->name[account.n] == '#' && l->last)
            lanes[k++] = (struct ledger_lane){(uint16_t)(l->last >> 48), l->last};
    }
    struct ledger_account_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                     .account = account,
                                     .balances = balances,
                                     .n_balances = n,
                                     .lanes = lanes,
                                     .n_lanes = k,
                                     .as_of_seq = f->head,
                                     .root = f->root};
    if (fault == MEM_OTHERS) {
        r.account = STR("acct:another");
        r.n_balances = r.n_lanes = 0;
    }
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static struct ledger_entry_info info_of(struct mem_unit *u, size_t i)
{
    return (struct ledger_entry_info){.seq = u->result.seq_start + i,
                                      .ledger_ms = u->ledger_ms,
                                      .unit_seq_start = u->result.seq_start,
                                      .unit_seq_end = u->result.seq_end,
                                      .leaf = STR("{}"),
                                      .idem_id = u->result.idem_id,
                                      .entry = u->entries[i]};
}

static void do_entry(struct ledger_client *c, struct str id, struct deadline by, ledger_entries_fn *fn,
                     void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    pthread_mutex_lock(&f->m);
    if (mem_ledger__spoiled(f, f->read_fault, MEM_CALL_ENTRIES, (void *)fn, ctx, by))
        return;
    struct mem_unit *u = map_get(&f->entries, bytes_of_str(id));
    struct ledger_entry_info info = {0};
    struct ledger_entries_reply r = {.a = {.outcome = u ? LEDGER_ANSWERED : LEDGER_REFUSED,
                                           .err = u ? ERR_OK : ERR_NOT_FOUND,
                                           .status = u ? 200 : 404}};
    if (u) {
        info = info_of(u, 0);
        struct mem_hold *h = map_get(&f->holds, bytes_of_str(id));
        if (h) {
            info.remaining = h->remaining;
            info.open = !money_is_zero(h->remaining) && h->entry->hold_until_ms > mem_ledger__now_ms(f);
        }
        r.entries = &info;
        r.n_entries = 1;
    }
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static void do_entries(struct ledger_client *c, uint64_t from, uint32_t limit, struct deadline by,
                       ledger_entries_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    pthread_mutex_lock(&f->m);
    if (mem_ledger__spoiled(f, f->read_fault, MEM_CALL_ENTRIES, (void *)fn, ctx, by))
        return;
    struct ledger_entry_info *infos = calloc(limit, sizeof *infos);
    size_t n = 0;
    uint64_t seq = from ? from : 1;
    for (; seq <= f->head && n < limit; seq++, n++)
        infos[n] = info_of(f->by_seq[seq - 1], seq - f->by_seq[seq - 1]->result.seq_start);
    struct ledger_entries_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                     .entries = infos,
                                     .n_entries = n,
                                     .next = seq <= f->head ? seq : 0,
                                     .as_of_seq = f->head};
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
    free(infos);
}

static void do_roots(struct ledger_client *c, uint64_t since, uint32_t limit, struct deadline by,
                     ledger_roots_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    struct ledger_root root = {0};
    (void)limit;
    pthread_mutex_lock(&f->m);
    if (mem_ledger__spoiled(f, f->read_fault, MEM_CALL_ROOTS, (void *)fn, ctx, by))
        return;
    size_t n = since < f->head;
    if (n)
        root = (struct ledger_root){.seq = f->by_seq[since]->result.seq_end,
                                    .ledger_ms = f->by_seq[since]->ledger_ms};
    pthread_mutex_unlock(&f->m);
    fn(ctx, &(struct ledger_roots_reply){
                .a = {.outcome = LEDGER_ANSWERED, .status = 200}, .roots = &root, .n_roots = n});
}

static void do_proof(struct ledger_client *c, uint64_t seq, uint64_t size, struct deadline by,
                     ledger_proof_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    pthread_mutex_lock(&f->m);
    if (mem_ledger__spoiled(f, f->read_fault, MEM_CALL_PROOF, (void *)fn, ctx, by))
        return;
    struct ledger_proof_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                   .seq = seq,
                                   .tree_size = size,
                                   .root = f->by_seq[seq - 1]->result.root,
                                   .checkpoint = STR("fake\n")};
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static void do_head(struct ledger_client *c, struct deadline by, ledger_head_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    pthread_mutex_lock(&f->m);
    f->heads++;
    if (mem_ledger__spoiled(f, f->read_fault, MEM_CALL_HEAD, (void *)fn, ctx, by))
        return;
    struct ledger_head_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                  .ready = true,
                                  .head_seq = f->head,
                                  .ledger_ms = mem_ledger__now_ms(f),
                                  .root = f->root};
    if (f->forgets_last) {
        r.head_seq = f->head - 1;
        r.root = f->by_seq[r.head_seq - 1]->result.root;
    }
    if (f->forked)
        r.root.b[0] ^= 1;
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static struct ledger_feed *do_feed(struct ledger_client *c, uint64_t since,
                                   const struct ledger_feed_sink *sink, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    struct ledger_feed *s = calloc(1, sizeof *s);
    pthread_mutex_lock(&f->m);
    bool on = f->feed_on;
    struct mem_unit **missed = calloc(f->n_seq + 1, sizeof *missed);
    size_t n = 0;
    for (uint64_t seq = since + 1; seq <= f->head; seq = f->by_seq[seq - 1]->result.seq_end + 1)
        missed[n++] = f->by_seq[seq - 1];
    pthread_mutex_unlock(&f->m);
    if (!on) {
        free(s);
        free(missed);
        return NULL;
    }
    *s = (struct ledger_feed){NULL, f, *sink, ctx};
    s->sink.on_open(ctx);
    pthread_mutex_lock(&f->feed_m);
    s->next = f->feeds;
    f->feeds = s;
    pthread_mutex_unlock(&f->feed_m);
    mem_ledger__tell_feeds(f, missed, n);
    free(missed);
    return s;
}

static void do_feed_stop(struct ledger_feed *s)
{
    struct mem_ledger *f = s->f;
    pthread_mutex_lock(&f->feed_m);
    struct ledger_feed **at = &f->feeds;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&f->feed_m);
    free(s);
}

static void do_close(struct ledger_client *c)
{
    (void)c;
}

static void do_consistency(struct ledger_client *c, uint64_t from, uint64_t to, struct deadline by,
                           ledger_proof_fn *fn, void *ctx)
{
    do_proof(c, from, to, by, fn, ctx);
}

static size_t do_owing(struct ledger_client *c)
{
    return mem_of(c)->owing;
}

const struct ledger_client_ops mem_ledger__ops = {
    do_ingest,      do_unit, do_account, do_entry,     do_entries, do_roots, do_proof,
    do_consistency, do_head, do_feed,    do_feed_stop, do_close,   do_owing, NULL};
