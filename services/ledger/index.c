#include "services/ledger/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { RANK_INDEX = 30 };

enum err ledger_index_init(struct ledger_index *x)
{
    rt_lock_init(&x->lock, "snapshot_pointer", RANK_INDEX);
    x->current = calloc(1, sizeof *x->current);
    if (x->current == NULL)
        return ERR_NO_MEMORY;
    atomic_init(&x->current->refs, 1);
    return ERR_OK;
}

void ledger_index_fini(struct ledger_index *x)
{
    if (x->current != NULL)
        ledger_view_unpin(x->current);
    x->current = NULL;
    rt_lock_fini(&x->lock);
}

struct ledger_view *ledger_index_pin(struct ledger_index *x)
{
    rt_lock_take(&x->lock);
    struct ledger_view *v = x->current;
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    rt_lock_release(&x->lock);
    return v;
}

void ledger_view_unpin(struct ledger_view *v)
{
    if (atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < v->n_gens; i++)
        ledger_gen_unref(v->gens[i]);
    for (uint32_t i = 0; i < v->n_runs; i++)
        ledger_run_unref(v->runs[i]);
    free(v);
}

struct ledger_gen *ledger_view_open_gen(const struct ledger_view *v)
{
    return v->n_gens == 0 ? NULL : v->gens[v->n_gens - 1];
}

bool ledger_gen_found_unit(const struct ledger_gen *g, struct core_key key, struct ledger_found *out)
{
    const struct ledger_gen_unit *u = ledger_gen_find_unit(g, key);
    if (u == NULL)
        return false;
    *out = (struct ledger_found){u->seq, true, u->n, u->fp, CORE_KIND_NONE, ledger_gen_place(u)};
    return true;
}

bool ledger_gen_found_entry(const struct ledger_gen *g, struct core_key key, struct ledger_found *out)
{
    const struct ledger_gen_entry *e = ledger_gen_find_entry(g, key);
    if (e == NULL)
        return false;
    const struct ledger_gen_unit *u = &g->units[e->unit];
    *out = (struct ledger_found){e->seq, true, u->n, u->fp, (enum core_kind)e->kind, ledger_gen_place(u)};
    return true;
}

/* Only in those that reach beyond `after`. */
static bool find_in_runs(const struct ledger_view *v, uint64_t after, struct core_key key,
                         struct ledger_found *out)
{
    for (uint32_t i = v->n_runs; i-- > 0;) {
        struct ledger_index_item item;
        if (v->runs[i]->run.last_seq <= after || !ledger_index_run_find(&v->runs[i]->run, key, &item))
            continue;
        *out = (struct ledger_found){.seq = item.seq, .young = false, .place = item.place};
        return true;
    }
    return false;
}

bool ledger_view_find_unit(const struct ledger_view *v, struct core_key key, struct ledger_found *out)
{
    for (uint32_t i = v->n_gens; i-- > 0;)
        if (ledger_gen_found_unit(v->gens[i], key, out))
            return true;
    return find_in_runs(v, 0, key, out);
}

bool ledger_view_find_entry(const struct ledger_view *v, struct core_key key, struct ledger_found *out)
{
    for (uint32_t i = v->n_gens; i-- > 0;)
        if (ledger_gen_found_entry(v->gens[i], key, out))
            return true;
    return find_in_runs(v, 0, key, out);
}

static bool gen_knows(const struct ledger_gen *g, struct core_key key, bool unit, struct ledger_found *out)
{
    return unit ? ledger_gen_found_unit(g, key, out) : ledger_gen_found_entry(g, key, out);
}

bool ledger_view_grown(const struct ledger_view *then, const struct ledger_view *now, struct core_key key,
                       bool unit, struct ledger_found *out)
{
    const struct ledger_gen *open = ledger_view_open_gen(then);
    if (open != NULL && gen_knows(open, key, unit, out))
        return true;
    uint64_t seen = open == NULL ? 0 : open->number, next = seen + 1;
    for (uint32_t i = now->n_gens; i-- > 0 && now->gens[i]->number > seen;) {
        if (gen_knows(now->gens[i], key, unit, out))
            return true;
        next = now->gens[i]->number;
    }
    if (next == seen + 1)
        return false;
    /* Generations came and went in between: what they held is in runs. */
    return find_in_runs(now, open == NULL ? 0 : ledger_gen_last_seq(open), key, out);
}

void ledger_view_prefetch(const struct ledger_view *v, struct core_key idem, struct core_key id)
{
    for (uint32_t i = 0; i < v->n_gens && i < 4; i++)
        ledger_gen_prefetch(v->gens[i], idem, id);
    for (uint32_t i = 0; i < v->n_runs; i++) {
        ledger_index_run_prefetch(&v->runs[i]->run, idem);
        ledger_index_run_prefetch(&v->runs[i]->run, id);
    }
}

/* A copy of the current view with its own references. Views are changed by few and seldom: copying under the lock is short. */
static void view_copy(const struct ledger_view *from, struct ledger_view *to)
{
    atomic_init(&to->refs, 1); /* never copied: others count at it meanwhile */
    to->n_gens = from->n_gens;
    to->n_runs = from->n_runs;
    for (uint32_t i = 0; i < to->n_gens; i++)
        ledger_gen_ref(to->gens[i] = from->gens[i]);
    for (uint32_t i = 0; i < to->n_runs; i++)
        ledger_run_ref(to->runs[i] = from->runs[i]);
}

enum err ledger_index_open_generation(struct ledger_index *x, uint64_t number, uint64_t first_seq,
                                      uint32_t capacity)
{
    struct ledger_view *fresh = malloc(sizeof *fresh);
    struct ledger_gen *g = ledger_gen_create(number, first_seq, capacity);
    if (fresh == NULL || g == NULL) {
        free(fresh);
        if (g != NULL)
            ledger_gen_unref(g);
        return ERR_NO_MEMORY;
    }
    rt_lock_take(&x->lock);
    struct ledger_view *old = x->current;
    if (old->n_gens == INDEX_GENS_MAX) {
        rt_lock_release(&x->lock);
        free(fresh);
        ledger_gen_unref(g);
        return ERR_BUSY;
    }
    view_copy(old, fresh);
    if (fresh->n_gens > 0)
        atomic_store_explicit(&fresh->gens[fresh->n_gens - 1]->frozen, true, memory_order_release);
    fresh->gens[fresh->n_gens++] = g;
    x->current = fresh;
    rt_lock_release(&x->lock);
    ledger_view_unpin(old);
    return ERR_OK;
}

static bool is_gone(const struct ledger_run *r, struct ledger_run *const *gone, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gone[i] == r)
            return true;
    return false;
}

enum err ledger_index_replace(struct ledger_index *x, struct ledger_gen *gen,
                              struct ledger_run *const *gone, size_t n_gone, struct ledger_run *run)
{
    struct ledger_view *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return ERR_NO_MEMORY;
    atomic_init(&fresh->refs, 1);
    rt_lock_take(&x->lock);
    struct ledger_view *old = x->current;
    for (uint32_t i = 0; i < old->n_gens; i++) {
        if (old->gens[i] == gen)
            continue;
        ledger_gen_ref(old->gens[i]);
        fresh->gens[fresh->n_gens++] = old->gens[i];
    }
    bool placed = run == NULL;
    for (uint32_t i = 0; i < old->n_runs; i++) {
        if (is_gone(old->runs[i], gone, n_gone)) {
            if (!placed) /* a merged run takes the place of the first it came from */
                fresh->runs[fresh->n_runs++] = run;
            placed = true;
            continue;
        }
        ledger_run_ref(old->runs[i]);
        fresh->runs[fresh->n_runs++] = old->runs[i];
    }
    CHECK(placed || fresh->n_runs < INDEX_RUNS_MAX);
    if (!placed)
        fresh->runs[fresh->n_runs++] = run;
    x->current = fresh;
    rt_lock_release(&x->lock);
    ledger_view_unpin(old);
    return ERR_OK;
}

enum err ledger_run_open(struct store_disk *disk, const char *path, uint32_t number, bool deep,
                         struct ledger_run **out)
{
    struct store_file *f;
    uint64_t bytes = 0;
    enum err err = store_file_open(disk, path, STORE_READ, &f);
    if (err != ERR_OK)
        return err;
    struct ledger_run *r = calloc(1, sizeof *r);
    if (r != NULL)
        atomic_init(&r->refs, 1);
    err = r == NULL ? ERR_NO_MEMORY : store_file_size(f, &bytes);
    if (err == ERR_OK) {
        r->number = number;
        r->n_bytes = bytes;
        if (store_file_fd(f) >= 0 && bytes > 0) {
            r->bytes = mmap(NULL, bytes, PROT_READ, MAP_SHARED, store_file_fd(f), 0);
            r->mapped = r->bytes != MAP_FAILED;
            if (!r->mapped)
                r->bytes = NULL;
        }
        if (r->bytes == NULL) {
            r->bytes = malloc(bytes + 1);
            err = r->bytes == NULL ? ERR_NO_MEMORY : store_file_read_all(f, r->bytes, bytes, 0);
        }
    }
    store_file_close(f);
    if (err == ERR_OK)
        err = ledger_index_run_open(r->bytes, r->n_bytes, deep, &r->run);
    if (err != ERR_OK) {
        if (r != NULL)
            ledger_run_unref(r);
        return err;
    }
    *out = r;
    return ERR_OK;
}

void ledger_run_ref(struct ledger_run *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

void ledger_run_unref(struct ledger_run *r)
{
    if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (r->mapped)
        CHECK(munmap(r->bytes, r->n_bytes) == 0);
    else
        free(r->bytes);
    free(r);
}
