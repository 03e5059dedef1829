#include "services/rewarder/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "services/rewarder/view.h"

#define RUN_MAGIC 0x52554e31u

enum err rewarder_registry_init(struct rewarder_registry *r)
{
    *r = (struct rewarder_registry){.next_n = 1};
    rt_lock_init(&r->lock, "run_registry", 2);
    enum err e = map_init(&r->runs, 64);
    return e == ERR_OK ? map_init(&r->inputs, 64) : e;
}

static bool drop_run(struct bytes key, void *value, void *arg)
{
    (void)key;
    (void)arg;
    rewarder_run_unref(value);
    return true;
}

static bool drop_input(struct bytes key, void *value, void *arg)
{
    (void)key;
    (void)arg;
    free(value);
    return true;
}

void rewarder_registry_fini(struct rewarder_registry *r)
{
    map_sweep(&r->runs, drop_run, NULL);
    map_sweep(&r->inputs, drop_input, NULL);
    map_fini(&r->runs);
    map_fini(&r->inputs);
    free(r->order);
    rt_lock_fini(&r->lock);
}

static size_t make_key(struct str tenant, struct str epoch, bool dry, char *out)
{
    size_t n = 0;
    out[n++] = dry ? 'd' : 'r';
    memcpy(out + n, tenant.p, tenant.n);
    n += tenant.n;
    out[n++] = '\0';
    memcpy(out + n, epoch.p, epoch.n);
    return n + epoch.n;
}

struct rewarder_run *rewarder_run_create(struct str tenant, struct str epoch, bool dry)
{
    CHECK(tenant.n <= REWARDER_NAME_MAX && epoch.n <= REWARDER_NAME_MAX);
    struct rewarder_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->magic = RUN_MAGIC;
    atomic_init(&run->refs, 1);
    run->dry = dry;
    memcpy(run->tenant, tenant.p, tenant.n);
    memcpy(run->epoch, epoch.p, epoch.n);
    run->key_n = make_key(tenant, epoch, dry, run->key);
    rt_oneshot_init(&run->sealed);
    return run;
}

struct rewarder_run *rewarder_run_ref(struct rewarder_run *run)
{
    CHECK_MAGIC(run, RUN_MAGIC);
    atomic_fetch_add_explicit(&run->refs, 1, memory_order_relaxed);
    return run;
}

void rewarder_run_unref(struct rewarder_run *run)
{
    if (!run || atomic_fetch_sub_explicit(&run->refs, 1, memory_order_acq_rel) != 1)
        return;
    CHECK_MAGIC(run, RUN_MAGIC);
    rewarder_view_unref(run->view);
    rewarder_policy_unref(run->policy);
    free(run->refused);
    rt_oneshot_fini(&run->sealed);
    run->magic = 0;
    free(run);
}

struct rewarder_run *rewarder_registry_find(struct rewarder_registry *r, struct str tenant,
                                            struct str epoch, bool dry)
{
    char key[sizeof((struct rewarder_run *)0)->key];
    if (tenant.n > REWARDER_NAME_MAX || epoch.n > REWARDER_NAME_MAX)
        return NULL;
    size_t n = make_key(tenant, epoch, dry, key);
    rt_lock_take(&r->lock);
    struct rewarder_run *run = map_get(&r->runs, bytes_of(key, n));
    if (run)
        rewarder_run_ref(run);
    rt_lock_release(&r->lock);
    return run;
}

static bool order_room(struct rewarder_registry *r)
{
    if (r->order_n < r->order_cap)
        return true;
    size_t cap = r->order_cap ? 2 * r->order_cap : 64;
    struct rewarder_run **p = realloc(r->order, cap * sizeof *p);
    if (!p)
        return false;
    r->order = p;
    r->order_cap = cap;
    return true;
}

/* By n: who reads page by page goes on from one. Lines of registry.log come as runs were sealed, new ones at the end. */
static void order_add(struct rewarder_registry *r, struct rewarder_run *run)
{
    size_t at = r->order_n++;
    for (; at > 0 && r->order[at - 1]->info.n > run->info.n; at--)
        r->order[at] = r->order[at - 1];
    r->order[at] = run;
}

static void order_drop(struct rewarder_registry *r, const struct rewarder_run *run)
{
    for (size_t i = r->order_n; i-- > 0;) {
        if (r->order[i] == run) {
            memmove(&r->order[i], &r->order[i + 1], (r->order_n - i - 1) * sizeof *r->order);
            r->order_n--;
            return;
        }
    }
}

enum err rewarder_registry_claim(struct rewarder_registry *r, struct rewarder_run *run,
                                 struct rewarder_run **out_holder)
{
    struct rewarder_run *dropped = NULL;
    enum err e = ERR_OK;
    rt_lock_take(&r->lock);
    struct rewarder_run *old = map_get(&r->runs, bytes_of(run->key, run->key_n));
    bool busy = old && (old->dry ? old->info.state < REWARDER_SEALED
                                 : rewarder_state_claims_epoch(old->info.state));
    if (busy) {
        *out_holder = rewarder_run_ref(old);
        e = ERR_EXISTS;
    } else if (!order_room(r)) {
        e = ERR_NO_MEMORY;
    } else {
        if (old) {
            map_remove(&r->runs, bytes_of(old->key, old->key_n));
            order_drop(r, old);
            dropped = old;
        }
        e = map_add(&r->runs, bytes_of(run->key, run->key_n), run);
        if (e == ERR_OK) {
            if (run->info.n == 0)
                run->info.n = r->next_n;
            if (run->info.n >= r->next_n)
                r->next_n = run->info.n + 1;
            rewarder_run_ref(run); /* the map's; the order list borrows it */
            order_add(r, run);
        }
    }
    rt_lock_release(&r->lock);
    rewarder_run_unref(dropped);
    return e;
}

void rewarder_registry_forget(struct rewarder_registry *r, struct rewarder_run *run)
{
    bool known = false;
    rt_lock_take(&r->lock);
    if (map_get(&r->runs, bytes_of(run->key, run->key_n)) == run) {
        map_remove(&r->runs, bytes_of(run->key, run->key_n));
        order_drop(r, run);
        known = true;
    }
    rt_lock_release(&r->lock);
    if (known)
        rewarder_run_unref(run);
}

static bool is_listed(const struct rewarder_run *run, const struct rewarder_listing *which)
{
    return !run->dry && run->info.n < which->before && str_eq_c(which->tenant, run->tenant) &&
           (which->state == REWARDER_STATE_COUNT || run->info.state == which->state);
}

size_t rewarder_registry_list(struct rewarder_registry *r, const struct rewarder_listing *which,
                              struct rewarder_run **out, size_t max)
{
    size_t n = 0;
    rt_lock_take(&r->lock);
    for (size_t i = r->order_n; i-- > 0 && n < max;)
        if (is_listed(r->order[i], which))
            out[n++] = rewarder_run_ref(r->order[i]);
    rt_lock_release(&r->lock);
    return n;
}

static bool is_unsettled(const struct rewarder_run *run)
{
    enum rewarder_state s = run->info.state;
    return !run->dry && (s == REWARDER_SEALED || s == REWARDER_EMITTING || s == REWARDER_HELD);
}

size_t rewarder_registry_unsettled(struct rewarder_registry *r, bool held, uint64_t after,
                                   struct rewarder_run **out, size_t max)
{
    size_t n = 0;
    rt_lock_take(&r->lock);
    for (size_t i = 0; i < r->order_n && n < max; i++)
        if (r->order[i]->info.n > after && is_unsettled(r->order[i]) &&
            (r->order[i]->info.state == REWARDER_HELD) == held)
            out[n++] = rewarder_run_ref(r->order[i]);
    rt_lock_release(&r->lock);
    return n;
}

size_t rewarder_registry_count_unsettled(struct rewarder_registry *r, size_t held_by[4])
{
    static const char *const causes[4] = {"ledger", "funds", "lane", "switch"};
    size_t n = 0;
    memset(held_by, 0, 4 * sizeof *held_by);
    rt_lock_take(&r->lock);
    for (size_t i = 0; i < r->order_n; i++) {
        n += is_unsettled(r->order[i]);
        for (unsigned k = 0; k < 4; k++)
            held_by[k] +=
                r->order[i]->info.state == REWARDER_HELD && !strcmp(r->order[i]->info.cause, causes[k]);
    }
    rt_lock_release(&r->lock);
    return n;
}

/* What a run may still take: a quarantined one too, for it may be resumed. */
static wide_u128 promised_to(const struct rewarder_run *run)
{
    const struct rewarder_run_info *i = &run->info;
    if (run->dry)
        return 0;
    if (is_unsettled(run) || (i->state == REWARDER_QUARANTINED && i->sealed_at_ms))
        return i->amount > i->placed ? i->amount - i->placed : 0;
    return i->state == REWARDER_COMPUTING && i->pool_fixed ? i->pool.declared : 0;
}

static wide_u128 sum_owed(const struct rewarder_registry *r, const struct rewarder_run *except,
                          struct str funding)
{
    wide_u128 owed = 0;
    for (size_t i = 0; i < r->order_n; i++)
        if (r->order[i] != except && str_eq_c(funding, r->order[i]->info.funding) &&
            wide_add_overflows(owed, promised_to(r->order[i]), &owed))
            return ~(wide_u128)0;
    return owed;
}

wide_u128 rewarder_registry_owed(struct rewarder_registry *r, const struct rewarder_run *except,
                                 struct str funding)
{
    rt_lock_take(&r->lock);
    wide_u128 owed = sum_owed(r, except, funding);
    rt_lock_release(&r->lock);
    return owed;
}

void rewarder_registry_fix_pool(struct rewarder_registry *r, struct rewarder_run *run,
                                wide_u128 owed_before, struct rewarder_pool *pool)
{
    rt_lock_take(&r->lock);
    if (pool->from_balance) {
        wide_u128 owed = sum_owed(r, run, str_from_c(run->info.funding));
        owed = owed > owed_before ? owed : owed_before;
        pool->declared = pool->declared > owed ? pool->declared - owed : 0;
    }
    run->info.pool = *pool;
    run->info.pool_fixed = true;
    rt_lock_release(&r->lock);
}

struct rewarder_run_info rewarder_run_read(struct rewarder_registry *r, const struct rewarder_run *run)
{
    rt_lock_take(&r->lock);
    struct rewarder_run_info info = run->info;
    rt_lock_release(&r->lock);
    return info;
}

enum err rewarder_run_move(struct rewarder_registry *r, struct rewarder_run *run, enum rewarder_event ev,
                           void (*change)(struct rewarder_run_info *info, void *arg), void *arg)
{
    rt_lock_take(&r->lock);
    enum err e = rewarder_state_step(run->info.state, ev, &run->info.state);
    if (e == ERR_OK && change)
        change(&run->info, arg);
    rt_lock_release(&r->lock);
    return e;
}

void rewarder_run_edit(struct rewarder_registry *r, struct rewarder_run *run,
                       void (*change)(struct rewarder_run_info *info, void *arg), void *arg)
{
    rt_lock_take(&r->lock);
    change(&run->info, arg);
    rt_lock_release(&r->lock);
}

bool rewarder_registry_input(struct rewarder_registry *r, const struct sha256 *cid,
                             struct rewarder_input *out)
{
    rt_lock_take(&r->lock);
    const struct rewarder_input *in = map_get(&r->inputs, bytes_of(cid->b, 32));
    if (in)
        *out = *in;
    rt_lock_release(&r->lock);
    return in != NULL;
}

enum err rewarder_registry_add_input(struct rewarder_registry *r, const struct rewarder_input *in)
{
    struct rewarder_input *copy = malloc(sizeof *copy);
    if (!copy)
        return ERR_NO_MEMORY;
    *copy = *in;
    rt_lock_take(&r->lock);
    enum err e = map_add(&r->inputs, bytes_of(copy->cid.b, 32), copy);
    rt_lock_release(&r->lock);
    if (e != ERR_OK)
        free(copy);
    return e == ERR_EXISTS ? ERR_OK : e;
}

struct old_input {
    const struct rewarder_registry *r;
    int64_t before_ms;
    struct rewarder_input *found;
};

static bool is_live(const struct rewarder_run *run)
{
    if (run->dry)
        return run->info.state < REWARDER_SEALED;
    return run->info.state < REWARDER_SETTLED || run->info.state == REWARDER_QUARANTINED;
}

static bool find_old(struct bytes key, void *value, void *arg)
{
    struct old_input *o = arg;
    struct rewarder_input *in = value;
    (void)key;
    if (o->found || in->stored_at_ms >= o->before_ms)
        return false;
    for (size_t i = 0; i < o->r->order_n; i++) {
        const struct rewarder_run *run = o->r->order[i];
        if (is_live(run) && (sha256_eq(&run->info.inputs_cid, &in->cid) ||
                             (run->info.has_key && sha256_eq(&run->info.digest, &in->digest))))
            return false;
    }
    o->found = in;
    return true;
}

bool rewarder_registry_take_old_input(struct rewarder_registry *r, int64_t stored_before_ms,
                                      struct rewarder_input *out)
{
    struct old_input o = {r, stored_before_ms, NULL};
    rt_lock_take(&r->lock);
    map_sweep(&r->inputs, find_old, &o);
    rt_lock_release(&r->lock);
    if (!o.found)
        return false;
    *out = *o.found;
    free(o.found);
    return true;
}

size_t rewarder_registry_pick(struct rewarder_registry *r,
                              bool (*wanted)(const struct rewarder_run *run, const void *arg),
                              const void *arg, struct rewarder_run **out, size_t max)
{
    size_t n = 0;
    rt_lock_take(&r->lock);
    for (size_t i = 0; i < r->order_n && n < max; i++)
        if (wanted(r->order[i], arg))
            out[n++] = rewarder_run_ref(r->order[i]);
    rt_lock_release(&r->lock);
    return n;
}

void rewarder_run_set_refused(struct rewarder_registry *r, struct rewarder_run *run, struct str list)
{
    char *copy = list.n && list.n < REWARDER_REFUSED_CHARS ? strndup(list.p, list.n) : NULL;
    if (list.n && !copy)
        return;
    rt_lock_take(&r->lock);
    char *old = run->refused;
    run->refused = copy;
    rt_lock_release(&r->lock);
    free(old);
}

struct str rewarder_run_refused(struct rewarder_registry *r, const struct rewarder_run *run,
                                char out[REWARDER_REFUSED_CHARS])
{
    rt_lock_take(&r->lock);
    snprintf(out, REWARDER_REFUSED_CHARS, "%s", run->refused ? run->refused : "");
    rt_lock_release(&r->lock);
    return str_from_c(out);
}

struct rewarder_view *rewarder_run_view(struct rewarder_registry *r, struct rewarder_run *run)
{
    rt_lock_take(&r->lock);
    struct rewarder_view *v = run->view ? rewarder_view_ref(run->view) : NULL;
    rt_lock_release(&r->lock);
    return v;
}

void rewarder_run_set_view(struct rewarder_registry *r, struct rewarder_run *run,
                           struct rewarder_view *view)
{
    rt_lock_take(&r->lock);
    struct rewarder_view *old = run->view;
    run->view = view ? rewarder_view_ref(view) : NULL;
    rt_lock_release(&r->lock);
    rewarder_view_unref(old);
}
