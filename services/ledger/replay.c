#include "services/ledger/replay.h"

#include "base/check.h"
#include "rt/task.h"
#include "services/ledger/checkpoint.h"

void ledger_replay_init(struct ledger_replay *r, struct ledger *l)
{
    *r = (struct ledger_replay){.l = l,
                                .limits = {.max_accounts = UINT32_MAX,
                                           .max_open_holds = UINT32_MAX,
                                           .max_reversals = UINT32_MAX,
                                           .max_assets = UINT32_MAX,
                                           .max_lanes = 65536,
                                           .max_hold_ms = UINT64_MAX,
                                           .replay = true}};
    arena_init(&r->arena, 1 << 20, 512 << 20);
}

void ledger_replay_fini(struct ledger_replay *r)
{
    arena_fini(&r->arena);
}

static void node_put(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    struct ledger_replay *r = ctx;
    if (r->l->levels[level].n != index || ledger_column_append(&r->l->levels[level], h) != ERR_OK)
        r->node_err = ERR_NO_MEMORY;
}

static enum err wrong(struct ledger_replay *r, const char *why)
{
    r->why = why;
    return ERR_CORRUPT;
}

static struct ledger_gen *open_gen(struct ledger *l)
{
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct ledger_gen *g = ledger_view_open_gen(v);
    ledger_view_unpin(v); /* the index itself keeps the open one */
    return g;
}

/*
 * While opening nobody writes generations down but we, and whoever waits for the service waits for that too. So those that memory may
 * hold stay there for the checkpointer; only a longer log has its oldest written here.
 */
static enum err write_oldest(struct ledger *l) RT_BLOCKS
{
    enum err err = ERR_OK;
    while (err == ERR_OK && l->n_gen_log_done == LEDGER_GENS_FROZEN_MAX) {
        err = ledger_checkpoint_write(l, l->gen_log_done[0]);
        if (err != ERR_OK)
            break;
        l->n_gen_log_done--;
        for (unsigned i = 0; i < l->n_gen_log_done; i++)
            l->gen_log_done[i] = l->gen_log_done[i + 1];
        err = ledger_checkpoint_merge_all(l);
    }
    return err;
}

/* At most three generations wait for the checkpointer, as when we sequence ourselves. */
static enum err wait_for_checkpointer(struct ledger *l) RT_BLOCKS
{
    struct rt_task *self = rt_task_current();
    while (atomic_load_explicit(&l->frozen_gens, memory_order_acquire) >= LEDGER_GENS_FROZEN_MAX) {
        CHECK(self != NULL);
        if (rt_task_sleep(self, deadline_in_ms(5)) != ERR_OK)
            return ERR_CANCELED;
    }
    return ERR_OK;
}

/* Another generation, with room for n entries. */
static enum err next_gen(struct ledger_replay *r, uint32_t n) RT_BLOCKS
{
    struct ledger *l = r->l;
    enum err err = l->gen_tx != NULL ? wait_for_checkpointer(l) : write_oldest(l);
    if (err != ERR_OK)
        return err;
    uint32_t capacity = l->set.checkpoint_entries + l->set.commit_max_entries;
    err = ledger_index_open_generation(&l->index, ++l->gen_number, l->frontier.n + 1,
                                       capacity < n ? n : capacity);
    if (err != ERR_OK)
        return err;
    if (r->gen != NULL)
        atomic_fetch_add_explicit(&l->frozen_gens, 1, memory_order_acq_rel);
    r->gen = open_gen(l);
    return ERR_OK;
}

enum err ledger_replay_room(struct ledger_replay *r, uint32_t n)
{
    r->gen = open_gen(r->l);
    return r->gen != NULL && ledger_gen_room(r->gen) >= n ? ERR_OK : next_gen(r, n);
}

enum err ledger_replay_turn(struct ledger_replay *r)
{
    struct ledger *l = r->l;
    if (!atomic_exchange_explicit(&l->want_gen, false, memory_order_acq_rel))
        return ERR_OK;
    r->gen = open_gen(l);
    if (r->gen == NULL || ledger_gen_last_seq(r->gen) < r->gen->first_seq)
        return ERR_OK; /* nothing is to be written */
    enum err err = next_gen(r, 0);
    if (err == ERR_OK)
        ledger_log_turn(l, r->gen);
    return err;
}

/*
 * Units are read back a few at a time: what they say can be checked without the state, and while that is done for the next ones the
 * lines of memory that the first will need are on their way.
 */
enum { WINDOW = 16, FETCH_ACCOUNTS = 6, FETCH_ROWS = 3 };

struct replay_unit {
    struct core_unit u;
    struct core_prepared p;
    struct ledger_effect *fx;
    const struct ledger_fact **facts;
    struct core_place at;
};

static enum err read_unit(struct ledger_replay *r, struct bytes rest, struct replay_unit *out)
{
    struct core_record head;
    if (ledger_record_parse(rest, &head) != ERR_OK)
        return wrong(r, "unit record");
    uint32_t n = head.n;
    struct core_entry *entries = arena_array(&r->arena, n, sizeof *entries);
    char *scratch = arena_alloc(&r->arena, (size_t)n * CORE_LEAF_MAX);
    out->p = (struct core_prepared){.entries = arena_alloc(&r->arena, n * sizeof *out->p.entries)};
    out->fx = arena_alloc(&r->arena, n * EFFECTS_PER_ENTRY * sizeof *out->fx);
    out->facts = arena_array(&r->arena, n, sizeof *out->facts);
    if (entries == NULL || scratch == NULL || out->p.entries == NULL || out->fx == NULL ||
        out->facts == NULL)
        return ERR_NO_MEMORY;
    struct core_caller who;
    if (ledger_record_decode(rest, entries, scratch, &out->u, &who, &out->p) != ERR_OK)
        return wrong(r, "fingerprint or leaf");
    ledger_state_hash_names(r->l->state, &out->u, &out->p);
    return ERR_OK;
}

static enum err find_facts(struct ledger_replay *r, const struct ledger_view *v,
                           struct replay_unit *x) RT_BLOCKS
{
    struct ledger_found found;
    for (uint32_t i = 0; i < x->u.n; i++) {
        if (ledger_view_find_entry(v, x->p.entries[i].id_key, &found))
            return wrong(r, "unit or id twice");
        if (x->u.entries[i].ref_id.n == 0)
            continue;
        struct ledger_fact *fact = arena_zalloc(&r->arena, sizeof *fact);
        if (fact == NULL)
            return ERR_NO_MEMORY;
        enum err err = ledger_fact_find(r->l, v, x->p.entries[i].ref_key, &r->arena, fact);
        if (err != ERR_OK)
            return err;
        x->facts[i] = fact;
    }
    return ERR_OK;
}

static enum err apply_unit(struct ledger_replay *r, const struct ledger_view *v, struct replay_unit *x,
                           uint64_t ms) RT_BLOCKS
{
    struct ledger *l = r->l;
    struct ledger_found found;
    if (ledger_view_find_unit(v, x->p.idem_key, &found) || x->p.id_twice)
        return wrong(r, "unit or id twice");
    enum err err = find_facts(r, v, x);
    if (err != ERR_OK)
        return err;
    uint64_t seq = l->frontier.n + 1;
    uint32_t n = x->u.n, n_fx;
    struct ledger_reject reject;
    if (ledger_state_apply(l->state, &x->u, &x->p, x->facts, seq, ms, &r->limits, x->fx, &n_fx, &reject) !=
        ERR_OK)
        return wrong(r, err_code(reject.reason));
    if (ledger_state_conserves(l->state, x->fx, n_fx) != ERR_OK ||
        ledger_state_commit(l->state, x->fx, n_fx, seq + n - 1) != ERR_OK)
        return wrong(r, "conservation");
    uint32_t gen_unit = ledger_gen_add_unit(r->gen, x->p.idem_key, &x->p.fp, seq, n);
    struct ledger_node_sink sink = {node_put, r};
    for (uint32_t i = 0; i < n; i++) {
        ledger_gen_add_entry(r->gen, x->p.entries[i].id_key, seq + i, gen_unit, x->u.entries[i].kind);
        ledger_frontier_append(&l->frontier, &x->p.entries[i].leaf_hash, &sink);
    }
    ledger_gen_set_place(r->gen, gen_unit, x->at);
    if (!l->set.amnesia)
        ledger_log_changes(l, r->gen, x->fx, n_fx, seq + n - 1);
    return r->node_err;
}

/* One window: reads as many units as it holds, or as are left, and applies them. */
static enum err replay_some(struct ledger_replay *r, const struct ledger_view *v, struct bytes *rest,
                            struct core_place *place, uint64_t ms, uint32_t *units,
                            uint32_t *entries) RT_BLOCKS
{
    struct ledger_state *state = r->l->state;
    struct replay_unit w[WINDOW];
    uint32_t n = 0;
    enum err err = ERR_OK;
    for (; n < WINDOW && rest->n > 0; n++) {
        err = read_unit(r, *rest, &w[n]);
        if (err != ERR_OK)
            return err;
        ledger_view_prefetch(v, w[n].p.idem_key, w[n].p.entries[0].id_key);
        w[n].at = *place;
        rest->p += w[n].p.len;
        rest->n -= w[n].p.len;
        place->offset += w[n].p.len;
    }
    for (uint32_t i = 0; i < n && i < FETCH_ACCOUNTS; i++)
        ledger_state_prefetch_accounts(state, &w[i].u, &w[i].p);
    for (uint32_t i = 0; err == ERR_OK && i < n; i++) {
        if (i + FETCH_ACCOUNTS < n)
            ledger_state_prefetch_accounts(state, &w[i + FETCH_ACCOUNTS].u, &w[i + FETCH_ACCOUNTS].p);
        if (i + FETCH_ROWS < n)
            ledger_state_prefetch_rows(state, &w[i + FETCH_ROWS].u, &w[i + FETCH_ROWS].p);
        err = apply_unit(r, v, &w[i], ms);
        *entries += w[i].u.n;
    }
    *units += n;
    arena_reset(&r->arena);
    return err;
}

enum err ledger_replay_frame(void *ctx, const struct store_frame *f, struct store_pos at)
{
    struct ledger_replay *r = ctx;
    struct ledger *l = r->l;
    if (f->first_seq != l->frontier.n + 1 || f->group_no != l->next_group ||
        !sha256_eq(&f->prev_root, &l->last_root))
        return wrong(r, "group, seq or root does not continue");
    enum err err = ledger_replay_room(r, f->count);
    if (err != ERR_OK)
        return err;
    struct ledger_view *v = ledger_index_pin(&l->index);
    struct bytes rest = f->payload;
    struct core_place place = {at.segment, at.offset + STORE_FRAME_HEADER};
    uint32_t units = 0, entries = 0;
    while (err == ERR_OK && rest.n > 0)
        err = replay_some(r, v, &rest, &place, f->ms, &units, &entries);
    ledger_view_unpin(v);
    arena_reset(&r->arena);
    if (err != ERR_OK)
        return err;
    struct sha256 root;
    ledger_frontier_root(&l->frontier, &root);
    if (units != f->count2 || entries != f->count || !sha256_eq(&root, &f->new_root))
        return wrong(r, "root or counts");
    struct ledger_group_row row = {l->frontier.n, f->group_no, f->ms, at.segment, at.offset, root};
    err = ledger_column_append(&l->groups, &row);
    if (err != ERR_OK)
        return err;
    l->next_group++;
    l->last_root = root;
    r->entries += entries;
    ledger_head_publish(l, &(struct ledger_head){l->frontier.n, f->group_no, f->ms, root});
    ledger_state_recycle(l->state, l->frontier.n);
    return ERR_OK;
}
