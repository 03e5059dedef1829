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

/* At most three generations wait for the checkpointer, as when we sequence ourselves. */
static enum err wait_for_checkpointer(struct ledger *l) RT_BLOCKS
{
    struct rt_task *self = rt_task_current();
    while (atomic_load_explicit(&l->frozen_gens, memory_order_acquire) >= 3) {
        CHECK(self != NULL);
        if (rt_task_sleep(self, deadline_in_ms(5)) != ERR_OK)
            return ERR_CANCELED;
    }
    return ERR_OK;
}

enum err ledger_replay_room(struct ledger_replay *r, uint32_t n)
{
    struct ledger *l = r->l;
    bool live = l->gen_tx != NULL;
    r->gen = open_gen(l);
    bool asked = live && r->gen != NULL && ledger_gen_last_seq(r->gen) >= r->gen->first_seq &&
                 atomic_exchange_explicit(&l->want_gen, false, memory_order_acq_rel);
    if (r->gen != NULL && ledger_gen_room(r->gen) >= n && !asked)
        return ERR_OK;
    enum err err = live ? wait_for_checkpointer(l) : ERR_OK;
    if (err != ERR_OK)
        return err;
    uint32_t capacity = l->set.checkpoint_entries + l->set.commit_max_entries;
    err = ledger_index_open_generation(&l->index, ++l->gen_number, l->frontier.n + 1,
                                       capacity < n ? n : capacity);
    if (err != ERR_OK)
        return err;
    if (live && r->gen != NULL)
        atomic_fetch_add_explicit(&l->frozen_gens, 1, memory_order_acq_rel);
    r->gen = open_gen(l);
    return ERR_OK;
}

static enum err replay_unit(struct ledger_replay *r, const struct ledger_view *v, struct bytes rest,
                            uint64_t ms, struct core_place at, uint32_t *out_len, uint32_t *out_n) RT_BLOCKS
{
    struct ledger *l = r->l;
    struct core_record head;
    if (ledger_record_parse(rest, &head) != ERR_OK)
        return wrong(r, "unit record");
    uint32_t n = head.n;
    struct core_entry *entries = arena_array(&r->arena, n, sizeof *entries);
    char *scratch = arena_alloc(&r->arena, (size_t)n * CORE_LEAF_MAX);
    struct core_prepared p = {.entries = arena_array(&r->arena, n, sizeof *p.entries)};
    struct ledger_effect *fx = arena_alloc(&r->arena, n * EFFECTS_PER_ENTRY * sizeof *fx);
    const struct ledger_fact **facts = arena_array(&r->arena, n, sizeof *facts);
    if (entries == NULL || scratch == NULL || p.entries == NULL || fx == NULL || facts == NULL)
        return ERR_NO_MEMORY;
    struct core_unit u;
    struct core_caller who;
    if (ledger_record_decode(rest, entries, scratch, &u, &who, &p) != ERR_OK)
        return wrong(r, "fingerprint or leaf");
    struct ledger_found found;
    if (ledger_view_find_unit(v, p.idem_key, &found) || p.id_twice)
        return wrong(r, "unit or id twice");
    for (uint32_t i = 0; i < n; i++) {
        if (ledger_view_find_entry(v, p.entries[i].id_key, &found))
            return wrong(r, "unit or id twice");
        if (entries[i].ref_id.n == 0)
            continue;
        struct ledger_fact *fact = arena_zalloc(&r->arena, sizeof *fact);
        if (fact == NULL)
            return ERR_NO_MEMORY;
        enum err err = ledger_fact_find(l, v, p.entries[i].ref_key, &r->arena, fact);
        if (err != ERR_OK)
            return err;
        facts[i] = fact;
    }
    uint64_t seq = l->frontier.n + 1;
    uint32_t n_fx;
    struct ledger_reject reject;
    if (ledger_state_apply(l->state, &u, &p, facts, seq, ms, &r->limits, fx, &n_fx, &reject) != ERR_OK)
        return wrong(r, err_code(reject.reason));
    if (ledger_state_conserves(l->state, fx, n_fx) != ERR_OK ||
        ledger_state_commit(l->state, fx, n_fx, seq + n - 1) != ERR_OK)
        return wrong(r, "conservation");
    uint32_t gen_unit = ledger_gen_add_unit(r->gen, p.idem_key, &p.fp, seq, n);
    struct ledger_node_sink sink = {node_put, r};
    for (uint32_t i = 0; i < n; i++) {
        ledger_gen_add_entry(r->gen, p.entries[i].id_key, seq + i, gen_unit, entries[i].kind);
        ledger_frontier_append(&l->frontier, &p.entries[i].leaf_hash, &sink);
    }
    ledger_gen_set_place(r->gen, gen_unit, at);
    if (!l->set.amnesia)
        ledger_log_changes(l, r->gen, fx, n_fx, seq + n - 1);
    *out_len = p.len;
    *out_n = n;
    return r->node_err;
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
    while (err == ERR_OK && rest.n > 0) {
        uint32_t len = 0, n = 0;
        err = replay_unit(r, v, rest, f->ms, place, &len, &n);
        rest.p += len;
        rest.n -= len;
        place.offset += len;
        units++;
        entries += n;
    }
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
    if (l->gen_log_done !=
        NULL) { /* a generation is full: write it down, or a long log would not fit into memory */
        struct ledger_gen_log *done = l->gen_log_done;
        l->gen_log_done = NULL;
        err = ledger_checkpoint_write(l, done);
    }
    return err;
}
