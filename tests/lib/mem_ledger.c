#include "mem_ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/map.h"
#include "base/rng.h"

struct row {
    struct money available, held;
    char name[200]; /* account|asset */
};

struct lane {
    uint64_t last;
    char name[200]; /* account#lane */
};

struct unit {
    struct arena arena;
    struct ledger_result result; /* COMMITTED, with entries and meta */
    struct ledger_entry *entries;
    struct str fp;
    uint64_t ledger_ms;
};

struct hold {
    const struct ledger_entry *entry;
    struct money remaining;
};

struct stalled {
    struct stalled *next;
    struct deadline by;
    int kind; /* 0 ingest 1 unit 2 account 3 entries 4 roots 5 proof 6 head */
    void *fn, *ctx;
};

struct ledger_feed {
    struct ledger_feed *next;
    struct mem_ledger *f;
    struct ledger_feed_sink sink;
    void *ctx;
};

struct mem_ledger {
    struct ledger_client client;
    pthread_mutex_t m;
    pthread_cond_t c;
    pthread_t thread;
    bool stop, feed_on;
    struct map rows, lanes, units, entries, holds;
    struct unit **by_seq;
    size_t n_seq, cap_seq;
    uint64_t head, ingests, n_units;
    struct sha256 root;
    struct money issued, burned;
    enum mem_fault ingest_fault, unit_fault, account_fault, read_fault;
    int ingest_n, unit_n, account_n;
    struct rng rng;
    bool chaos, forked;
    _Atomic unsigned service_us;
    struct stalled *stalled;
    struct ledger_feed *feeds;
    pthread_mutex_t feed_m; /* held while a feed's callback runs */
};

static uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- the rules ---- */

static struct row *row_of(struct mem_ledger *f, struct str account, struct str asset)
{
    char name[200];
    int n = snprintf(name, sizeof name, "%.*s|%.*s", STR_ARG(account), STR_ARG(asset));
    struct row *r = map_get(&f->rows, bytes_of(name, (size_t)n));
    if (!r) {
        r = calloc(1, sizeof *r);
        memcpy(r->name, name, (size_t)n + 1);
        CHECK(map_add(&f->rows, bytes_of(r->name, (size_t)n), r) == ERR_OK);
    }
    return r;
}

static struct lane *lane_of(struct mem_ledger *f, struct str account, unsigned lane)
{
    char name[200];
    int n = snprintf(name, sizeof name, "%.*s#%u", STR_ARG(account), lane);
    struct lane *l = map_get(&f->lanes, bytes_of(name, (size_t)n));
    if (!l) {
        l = calloc(1, sizeof *l);
        memcpy(l->name, name, (size_t)n + 1);
        CHECK(map_add(&f->lanes, bytes_of(l->name, (size_t)n), l) == ERR_OK);
    }
    return l;
}

static void reject(struct ledger_result *r, enum err e, char *details, const char *member,
                   const char *value)
{
    r->status = LEDGER_REJECTED;
    r->reason = e;
    r->retryable = err_retryable(e);
    int n = member ? snprintf(details, 128, "{\"%s\":\"%s\"}", member, value) : 0;
    r->details = str_of(details, (size_t)n);
}

/* Checks one entry against the state; the caller applies when all pass (units of the wallet touch each row once). */
static enum err check(struct mem_ledger *f, const struct ledger_entry *e, struct ledger_result *r,
                      char *details)
{
    char number[24];
    if (map_get(&f->entries, bytes_of_str(e->id))) {
        reject(r, ERR_ID_EXISTS, details, NULL, NULL);
        return r->reason;
    }
    if (e->nonce) {
        struct lane *l = lane_of(f, e->account, (unsigned)(e->nonce >> 48));
        uint64_t last = l->last & ((UINT64_C(1) << 48) - 1), got = e->nonce & ((UINT64_C(1) << 48) - 1);
        if (got != last + 1) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)l->last);
            reject(r, got <= last ? ERR_NONCE_CONFLICT : ERR_NONCE_GAP, details, "last", number);
            return r->reason;
        }
    }
    if (e->kind == LEDGER_TRANSFER || e->kind == LEDGER_BURN || e->kind == LEDGER_HOLD) {
        if (money_cmp(row_of(f, e->account, e->asset)->available, e->amount) < 0) {
            reject(r, ERR_INSUFFICIENT_FUNDS, details, NULL, NULL);
            return r->reason;
        }
    }
    if (e->kind == LEDGER_HOLD && e->hold_until_ms && e->hold_until_ms <= now_ms()) {
        reject(r, ERR_BAD_HOLD_UNTIL, details, NULL, NULL);
        return r->reason;
    }
    if (e->kind == LEDGER_CAPTURE || e->kind == LEDGER_RELEASE) {
        struct hold *h = map_get(&f->holds, bytes_of_str(e->ref_id));
        if (!h)
            reject(r, ERR_REF_NOT_FOUND, details, NULL, NULL);
        else if (money_is_zero(h->remaining))
            reject(r, ERR_HOLD_CLOSED, details, "why", "spent");
        else if (h->entry->hold_until_ms <= now_ms())
            reject(r, ERR_HOLD_CLOSED, details, "why", "expired");
        else if (money_cmp(h->remaining, e->amount) < 0)
            reject(r, ERR_AMOUNT_EXCEEDS, details, NULL, NULL);
        else
            return ERR_OK;
        return r->reason;
    }
    return ERR_OK;
}

static void move(struct money *from, struct money *to, struct money amount)
{
    if (from)
        CHECK(money_sub(*from, amount, from) == ERR_OK);
    if (to)
        CHECK(money_add(*to, amount, to) == ERR_OK);
}

static void apply(struct mem_ledger *f, const struct ledger_entry *e)
{
    struct row *a = row_of(f, e->account, e->asset);
    switch (e->kind) {
    case LEDGER_MINT:
        move(NULL, &a->available, e->amount);
        move(NULL, &f->issued, e->amount);
        break;
    case LEDGER_BURN:
        move(&a->available, &f->burned, e->amount);
        break;
    case LEDGER_TRANSFER:
        move(&a->available, &row_of(f, e->to, e->asset)->available, e->amount);
        break;
    case LEDGER_HOLD: {
        struct hold *h = calloc(1, sizeof *h);
        h->entry = e;
        h->remaining = e->amount;
        CHECK(map_add(&f->holds, bytes_of_str(e->id), h) == ERR_OK);
        move(&a->available, &a->held, e->amount);
        break;
    }
    case LEDGER_CAPTURE:
    case LEDGER_RELEASE: {
        struct hold *h = map_get(&f->holds, bytes_of_str(e->ref_id));
        move(&h->remaining, NULL, e->amount);
        move(&a->held, e->kind == LEDGER_CAPTURE ? &row_of(f, e->to, e->asset)->available : &a->available,
             e->amount);
        break;
    }
    case LEDGER_KIND_NONE:
    case LEDGER_REVERSE:
    case LEDGER_EXPIRE:
    case LEDGER_KIND_COUNT:
        UNREACHABLE();
    }
    if (e->nonce)
        lane_of(f, e->account, (unsigned)(e->nonce >> 48))->last = e->nonce;
}

static struct str dup(struct unit *u, struct str s)
{
    struct str out = {NULL, 0};
    CHECK(arena_str(&u->arena, s, &out));
    return out;
}

/* Everything but ids, ts and meta, as the ledger's fingerprint. */
static struct str fingerprint(struct arena *a, const struct ledger_unit *in)
{
    struct buf b;
    struct str out;
    buf_init(&b, 1 << 16);
    for (size_t i = 0; i < in->n_entries; i++) {
        const struct ledger_entry *e = &in->entries[i];
        char amount[MONEY_CHARS];
        money_format(e->amount, amount);
        buf_printf(&b, "%d|%.*s|%.*s|%.*s|%s|%llu|%.*s|%llu;", (int)e->kind, STR_ARG(e->account),
                   STR_ARG(e->to), STR_ARG(e->asset), amount, (unsigned long long)e->nonce,
                   STR_ARG(e->ref_id), (unsigned long long)e->hold_until_ms);
    }
    CHECK(arena_str(a, buf_str(&b), &out));
    buf_fini(&b);
    return out;
}

static void record(struct mem_ledger *f, const struct ledger_unit *in, struct unit *u)
{
    u->entries = arena_array(&u->arena, in->n_entries, sizeof *u->entries);
    for (size_t i = 0; i < in->n_entries; i++) {
        struct ledger_entry e = in->entries[i];
        e.id = dup(u, e.id);
        e.account = dup(u, e.account);
        e.to = dup(u, e.to);
        e.asset = dup(u, e.asset);
        e.ref_id = dup(u, e.ref_id);
        u->entries[i] = e;
        f->head++;
        struct bytes parts[] = {bytes_of(f->root.b, 32), bytes_of_str(e.id)};
        sha256_of_parts(parts, 2, &f->root);
        if (f->n_seq == f->cap_seq) {
            f->cap_seq = f->cap_seq ? f->cap_seq * 2 : 1024;
            f->by_seq = realloc(f->by_seq, f->cap_seq * sizeof *f->by_seq);
        }
        f->by_seq[f->n_seq++] = u;
        CHECK(map_add(&f->entries, bytes_of_str(u->entries[i].id), u) == ERR_OK);
        apply(f, &u->entries[i]);
    }
    f->n_units++;
    struct str meta = dup(u, str_of_bytes(in->meta));
    u->ledger_ms = now_ms();
    u->result = (struct ledger_result){.idem_id = dup(u, in->idem_id),
                                       .status = LEDGER_COMMITTED,
                                       .seq_start = f->head - in->n_entries + 1,
                                       .seq_end = f->head,
                                       .tree_size = f->head,
                                       .root = f->root,
                                       .ledger_ms = u->ledger_ms,
                                       .entries = u->entries,
                                       .n_entries = in->n_entries,
                                       .meta = bytes_of_str(meta),
                                       .envelope = STR("{}")};
    CHECK(map_add(&f->units, bytes_of_str(u->result.idem_id), u) == ERR_OK);
}

static void judge(struct mem_ledger *f, const struct ledger_unit *in, struct ledger_result *r,
                  char *details, struct unit **out_new)
{
    struct unit *known = map_get(&f->units, bytes_of_str(in->idem_id));
    *r = (struct ledger_result){.idem_id = in->idem_id};
    struct unit *u = calloc(1, sizeof *u);
    arena_init(&u->arena, 1024, 1 << 20);
    struct str fp = fingerprint(&u->arena, in);
    enum err e = ERR_OK;
    if (known && str_eq(known->fp, fp)) {
        *r = known->result;
        r->status = LEDGER_DUPLICATE;
        r->entries = NULL;
        r->n_entries = 0;
    } else if (known)
        reject(r, ERR_CONFLICT, details, NULL, NULL);
    else if (in->not_after_ms && now_ms() > in->not_after_ms)
        reject(r, ERR_EXPIRED, details, NULL, NULL);
    else {
        for (size_t i = 0; i < in->n_entries && e == ERR_OK; i++)
            e = check(f, &in->entries[i], r, details);
        if (e == ERR_OK) {
            record(f, in, u);
            u->fp = fp;
            *r = u->result;
            *out_new = u;
            return;
        }
    }
    arena_fini(&u->arena);
    free(u);
}

/* ---- faults ---- */

static enum mem_fault draw(struct mem_ledger *f, enum mem_fault *fault, int *n)
{
    if (f->chaos) {
        static const enum mem_fault some[] = {MEM_REFUSE, MEM_LOSE_BEFORE, MEM_LOSE_AFTER, MEM_GARBLE};
        return rng_below(&f->rng, 100) < 30 ? some[rng_below(&f->rng, 4)] : MEM_OK;
    }
    if (*n == 0)
        return MEM_OK;
    if (*n > 0)
        --*n;
    return *fault;
}

static void stall(struct mem_ledger *f, int kind, void *fn, void *ctx, struct deadline by)
{
    struct stalled *s = malloc(sizeof *s);
    *s = (struct stalled){.next = f->stalled, .by = by, .kind = kind, .fn = fn, .ctx = ctx};
    f->stalled = s;
    pthread_cond_signal(&f->c);
}

static const struct ledger_answer lost = {.outcome = LEDGER_UNKNOWN, .err = ERR_TIMEOUT};

static void answer_lost(int kind, void *fn, void *ctx, const struct ledger_answer *a)
{
    switch (kind) {
    case 0:
        ((ledger_ingest_fn *)fn)(ctx, &(struct ledger_ingest_reply){.a = *a});
        break;
    case 1:
        ((ledger_unit_fn *)fn)(ctx, &(struct ledger_unit_reply){.a = *a});
        break;
    case 2:
        ((ledger_account_fn *)fn)(ctx, &(struct ledger_account_reply){.a = *a});
        break;
    case 3:
        ((ledger_entries_fn *)fn)(ctx, &(struct ledger_entries_reply){.a = *a});
        break;
    case 4:
        ((ledger_roots_fn *)fn)(ctx, &(struct ledger_roots_reply){.a = *a});
        break;
    case 5:
        ((ledger_proof_fn *)fn)(ctx, &(struct ledger_proof_reply){.a = *a});
        break;
    default:
        ((ledger_head_fn *)fn)(ctx, &(struct ledger_head_reply){.a = *a});
    }
}

static void *run_stalled(void *arg)
{
    struct mem_ledger *f = arg;
    pthread_mutex_lock(&f->m);
    while (!f->stop || f->stalled) {
        int64_t next = INT64_MAX;
        struct stalled **at = &f->stalled, *due = NULL;
        for (; *at; at = &(*at)->next) {
            if ((*at)->by.at_ns <= os_now_ns() || f->stop) {
                due = *at;
                *at = due->next;
                break;
            }
            if ((*at)->by.at_ns < next)
                next = (*at)->by.at_ns;
        }
        if (due) {
            pthread_mutex_unlock(&f->m);
            answer_lost(due->kind, due->fn, due->ctx, &lost);
            free(due);
            pthread_mutex_lock(&f->m);
        } else if (next == INT64_MAX)
            pthread_cond_wait(&f->c, &f->m);
        else {
            struct timespec ts = {next / 1000000000, next % 1000000000};
            pthread_cond_timedwait(&f->c, &f->m, &ts);
        }
    }
    pthread_mutex_unlock(&f->m);
    return NULL;
}

/* Whether the call is over: refused, lost or stalled. f->m is released then. */
static bool spoiled(struct mem_ledger *f, enum mem_fault fault, int kind, void *fn, void *ctx,
                    struct deadline by)
{
    struct ledger_answer a = lost;
    if (fault == MEM_OK || fault == MEM_GARBLE)
        return false;
    if (fault == MEM_STALL || fault == MEM_STALL_AFTER) {
        stall(f, kind, fn, ctx, by);
        pthread_mutex_unlock(&f->m);
        return true;
    }
    if (fault == MEM_REFUSE)
        a = (struct ledger_answer){
            .outcome = LEDGER_REFUSED, .err = ERR_BUSY, .status = 429, .code = STR("busy")};
    if (fault == MEM_DOWN)
        a = (struct ledger_answer){.outcome = LEDGER_REFUSED, .err = ERR_REFUSED};
    if (fault == MEM_NOT_WRITER)
        a = (struct ledger_answer){
            .outcome = LEDGER_REFUSED, .err = ERR_NOT_WRITER, .status = 503, .code = STR("not_writer")};
    pthread_mutex_unlock(&f->m);
    answer_lost(kind, fn, ctx, &a);
    return true;
}

/* ---- the interface ---- */

static struct mem_ledger *mem_of(struct ledger_client *c)
{
    return (struct mem_ledger *)(void *)c;
}

static void tell_feeds(struct mem_ledger *f, struct unit *const *fresh, size_t n)
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
    enum mem_fault fault = draw(f, &f->ingest_fault, &f->ingest_n);
    bool happens =
        fault == MEM_OK || fault == MEM_GARBLE || fault == MEM_LOSE_AFTER || fault == MEM_STALL_AFTER;
    struct ledger_result *results = calloc(rq->n_units, sizeof *results);
    char(*details)[128] = calloc(rq->n_units, sizeof *details);
    struct unit **fresh = calloc(rq->n_units, sizeof *fresh);
    size_t n_fresh = 0;
    for (size_t i = 0; happens && i < rq->n_units; i++) {
        struct unit *u = NULL;
        judge(f, &rq->units[i], &results[i], details[i], &u);
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
    bool feed = f->feed_on;
    bool over = spoiled(f, fault, 0, (void *)fn, ctx, by);
    if (!over)
        pthread_mutex_unlock(&f->m);
    if (feed)
        tell_feeds(f, fresh, n_fresh);
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
    enum mem_fault fault = draw(f, &f->unit_fault, &f->unit_n);
    if (spoiled(f, fault == MEM_GARBLE ? MEM_LOSE_BEFORE : fault, 1, (void *)fn, ctx, by))
        return;
    struct unit *u = map_get(&f->units, bytes_of_str(idem_id));
    struct ledger_unit_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = u ? 200 : 404},
                                  .found = u != NULL,
                                  .ledger_ms = now_ms()};
    if (u)
        r.result = u->result;
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static void do_account(struct ledger_client *c, struct str account, uint64_t min_seq, struct deadline by,
                       ledger_account_fn *fn, void *ctx)
{
    struct mem_ledger *f = mem_of(c);
    struct ledger_balance balances[64];
    struct ledger_lane lanes[256];
    size_t n = 0, k = 0, at = 0;
    void *value;
    (void)min_seq;
    pthread_mutex_lock(&f->m);
    enum mem_fault fault = f->account_n ? draw(f, &f->account_fault, &f->account_n) : f->read_fault;
    if (spoiled(f, fault, 2, (void *)fn, ctx, by))
        return;
    while (n < 64 && map_next(&f->rows, &at, NULL, &value)) {
        struct row *r = value;
        if (strncmp(r->name, account.p, account.n) == 0 && r->name[account.n] == '|')
            balances[n++] = (struct ledger_balance){account, str_from_c(r->name + account.n + 1),
                                                    r->available, r->held};
    }
    at = 0;
    while (k < 256 && map_next(&f->lanes, &at, NULL, &value)) {
        struct lane *l = value;
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
    pthread_mutex_unlock(&f->m);
    fn(ctx, &r);
}

static struct ledger_entry_info info_of(struct unit *u, size_t i)
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
    if (spoiled(f, f->read_fault, 3, (void *)fn, ctx, by))
        return;
    struct unit *u = map_get(&f->entries, bytes_of_str(id));
    struct ledger_entry_info info = {0};
    struct ledger_entries_reply r = {.a = {.outcome = u ? LEDGER_ANSWERED : LEDGER_REFUSED,
                                           .err = u ? ERR_OK : ERR_NOT_FOUND,
                                           .status = u ? 200 : 404}};
    if (u) {
        info = info_of(u, 0);
        struct hold *h = map_get(&f->holds, bytes_of_str(id));
        if (h) {
            info.remaining = h->remaining;
            info.open = !money_is_zero(h->remaining) && h->entry->hold_until_ms > now_ms();
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
    if (spoiled(f, f->read_fault, 3, (void *)fn, ctx, by))
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
    if (spoiled(f, f->read_fault, 4, (void *)fn, ctx, by))
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
    if (spoiled(f, f->read_fault, 5, (void *)fn, ctx, by))
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
    if (spoiled(f, f->read_fault, 6, (void *)fn, ctx, by))
        return;
    struct ledger_head_reply r = {.a = {.outcome = LEDGER_ANSWERED, .status = 200},
                                  .ready = true,
                                  .head_seq = f->head,
                                  .ledger_ms = now_ms(),
                                  .root = f->root};
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
    struct unit **missed = calloc(f->n_seq + 1, sizeof *missed);
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
    tell_feeds(f, missed, n);
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

static const struct ledger_client_ops ops = {
    do_ingest,      do_unit, do_account, do_entry,     do_entries, do_roots, do_proof,
    do_consistency, do_head, do_feed,    do_feed_stop, do_close,   NULL};

/* ---- outside ---- */

struct mem_ledger *mem_ledger_create(void)
{
    struct mem_ledger *f = calloc(1, sizeof *f);
    pthread_condattr_t attr;
    f->client = (struct ledger_client){.ops = &ops, .transport = "fake"};
    f->feed_on = true;
    pthread_mutex_init(&f->m, NULL);
    pthread_mutex_init(&f->feed_m, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->c, &attr);
    CHECK(map_init(&f->rows, 64) == ERR_OK && map_init(&f->lanes, 64) == ERR_OK &&
          map_init(&f->units, 64) == ERR_OK && map_init(&f->entries, 64) == ERR_OK &&
          map_init(&f->holds, 64) == ERR_OK);
    CHECK(pthread_create(&f->thread, NULL, run_stalled, f) == 0);
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
        arena_fini(&((struct unit *)v)->arena);
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

void mem_ledger_unit_fault(struct mem_ledger *f, enum mem_fault fault, int n)
{
    LOCKED(f, f->unit_fault = fault, f->unit_n = n);
}

void mem_ledger_account_fault(struct mem_ledger *f, enum mem_fault fault, int n)
{
    LOCKED(f, f->account_fault = fault, f->account_n = n);
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

uint64_t mem_ledger_ingests(struct mem_ledger *f)
{
    uint64_t v;
    LOCKED(f, v = f->ingests);
    return v;
}

struct money mem_ledger_available(struct mem_ledger *f, const char *account, const char *asset)
{
    struct money v;
    LOCKED(f, v = row_of(f, str_from_c(account), str_from_c(asset))->available);
    return v;
}

struct money mem_ledger_held(struct mem_ledger *f, const char *account, const char *asset)
{
    struct money v;
    LOCKED(f, v = row_of(f, str_from_c(account), str_from_c(asset))->held);
    return v;
}

uint64_t mem_ledger_last(struct mem_ledger *f, const char *account, unsigned lane)
{
    uint64_t v;
    LOCKED(f, v = lane_of(f, str_from_c(account), lane)->last & ((UINT64_C(1) << 48) - 1));
    return v;
}

bool mem_ledger_conserves(struct mem_ledger *f)
{
    struct money sum = MONEY_ZERO, out;
    size_t at = 0;
    void *v;
    pthread_mutex_lock(&f->m);
    while (map_next(&f->rows, &at, NULL, &v)) {
        move(NULL, &sum, ((struct row *)v)->available);
        move(NULL, &sum, ((struct row *)v)->held);
    }
    CHECK(money_sub(f->issued, f->burned, &out) == ERR_OK);
    pthread_mutex_unlock(&f->m);
    return money_cmp(sum, out) == 0;
}

static void mint(struct mem_ledger *f, const char *idem_id, const char *account, const char *asset,
                 uint64_t amount, bool told)
{
    char details[128], id[64];
    struct ledger_result r;
    struct unit *u = NULL;
    snprintf(id, sizeof id, "id-%s", idem_id);
    struct ledger_entry e = {.id = str_from_c(id),
                             .ts_ms = now_ms(),
                             .kind = LEDGER_MINT,
                             .account = str_from_c(account),
                             .asset = str_from_c(asset),
                             .amount = money_from_u64(amount)};
    struct ledger_unit in = {.idem_id = str_from_c(idem_id), .entries = &e, .n_entries = 1};
    LOCKED(f, judge(f, &in, &r, details, &u), told = told && f->feed_on);
    CHECK(r.status == LEDGER_COMMITTED);
    if (u && told)
        tell_feeds(f, &u, 1);
}

void mem_ledger_mint(struct mem_ledger *f, const char *idem_id, const char *account, const char *asset,
                     uint64_t amount)
{
    mint(f, idem_id, account, asset, amount, true);
}

void mem_ledger_mint_untold(struct mem_ledger *f, const char *idem_id, const char *account,
                            const char *asset, uint64_t amount)
{
    mint(f, idem_id, account, asset, amount, false);
}
