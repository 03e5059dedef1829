/*
 * One group: the only code that writes the journal, grows the tree and moves the committed state.
 *
 * In order: every seq is the next one and every unit conserves its assets; leaves into the tree; one frame, one flush; then
 * places, group table, committed values; then the head. Readers look at the head first, so nothing is seen before it is
 * durable. Anything that goes wrong before the flush, in it or after it ends in safe mode, never in a retry.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "services/ledger/ledger.h"
#include "store/sink_replica.h"

bool ledger_group_takes(const struct ledger *l, struct ledger_group_size *g, const struct ledger_job *job)
{
    bool first = g->entries == 0;
    if (!first && (g->entries + job->new_entries > l->set.commit_max_entries ||
                   g->bytes + job->payload_bytes > l->set.commit_max_bytes))
        return false;
    if (job->gen != NULL && g->gen != NULL && job->gen != g->gen)
        return false; /* a group ends where a generation does, so that a checkpoint covers whole groups */
    if (job->gen != NULL)
        g->gen = job->gen;
    g->entries += job->new_entries;
    g->bytes += job->payload_bytes;
    return true;
}

struct group {
    struct ledger *l;
    struct ledger_job *const *jobs;
    uint32_t n_jobs;
    uint64_t first_seq, last_ms;
    uint32_t n_entries, n_units, n_rows, n_parts;
    struct bytes *parts; /* of the payload, n_units at most */
    enum err node_err;
};

static void node_put(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    struct group *g = ctx;
    CHECK(g->l->levels[level].n == index);
    enum err err = ledger_column_append(&g->l->levels[level], h);
    if (err != ERR_OK)
        g->node_err = err;
}

static enum err verify(struct group *g)
{
    struct ledger *l = g->l;
    uint64_t next = l->frontier.n + 1;
    g->first_seq = next;
    for (uint32_t i = 0; i < g->n_jobs; i++) {
        const struct ledger_job *job = g->jobs[i];
        CHECK_MAGIC(job, LEDGER_JOB_MAGIC);
        for (uint32_t k = 0; k < job->n_units; k++) {
            const struct ledger_job_unit *u = &job->units[k];
            if (u->verdict != VERDICT_COMMITTED)
                continue;
            if (u->seq != next || ledger_state_conserves(l->state, u->fx, u->n_fx) != ERR_OK)
                return ERR_CORRUPT;
            next += u->n;
            g->n_units++;
            g->n_entries += u->n;
        }
    }
    return ERR_OK;
}

/* Records of one job stand one behind the other: mostly a job is one part of the frame. */
static void add_record(struct group *g, struct bytes record)
{
    struct bytes *last = g->n_parts == 0 ? NULL : &g->parts[g->n_parts - 1];
    if (last != NULL && last->p + last->n == record.p)
        last->n += record.n;
    else
        g->parts[g->n_parts++] = record;
}

static enum err grow_tree(struct group *g)
{
    enum { SOME = 256 };
    struct ledger_node_sink sink = {node_put, g};
    struct sha256 leaves[SOME];
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_jobs; i++) {
        const struct ledger_job *job = g->jobs[i];
        for (uint32_t k = 0; k < job->n_units; k++) {
            const struct ledger_job_unit *u = &job->units[k];
            if (u->verdict != VERDICT_COMMITTED)
                continue;
            add_record(g, bytes_of(u->p.record, u->p.len));
            for (uint32_t e = 0; e < u->n; e++) {
                leaves[n++] = u->p.entries[e].leaf_hash;
                if (n < SOME)
                    continue;
                ledger_frontier_append_many(&g->l->frontier, leaves, n, &sink);
                n = 0;
            }
        }
    }
    ledger_frontier_append_many(&g->l->frontier, leaves, n, &sink);
    return g->node_err;
}

static enum err settle(struct group *g, struct store_pos pos)
{
    struct ledger *l = g->l;
    uint32_t offset = pos.offset + STORE_FRAME_HEADER;
    uint64_t kinds[CORE_KIND_COUNT] = {0};
    for (uint32_t i = 0; i < g->n_jobs; i++) {
        struct ledger_job *job = g->jobs[i];
        for (uint32_t k = 0; k < job->n_units; k++) {
            struct ledger_job_unit *u = &job->units[k];
            if (u->verdict != VERDICT_COMMITTED)
                continue;
            u->place = (struct core_place){pos.segment, offset};
            u->place_known = true;
            ledger_gen_set_place(u->gen, u->gen_unit, u->place);
            offset += u->p.len;
            if (!l->set.amnesia)
                ledger_log_changes(l, u->gen, u->fx, u->n_fx, u->seq + u->n - 1);
            if (ledger_state_commit(l->state, u->fx, u->n_fx, u->seq + u->n - 1) != ERR_OK)
                return ERR_CORRUPT;
            for (uint32_t e = 0; e < u->n; e++)
                kinds[u->u.entries[e].kind]++;
            for (uint32_t f = 0; f < u->n_fx; f++)
                g->n_rows += u->fx[f].type == FX_ROW;
        }
    }
    for (size_t k = 1; l->m[LEDGER_M_entries] != NULL && k < CORE_KIND_COUNT; k++)
        if (kinds[k] != 0)
            obs_counter_add(obs_counter_nth(l->m[LEDGER_M_entries], k - 1), kinds[k]);
    return ERR_OK;
}

static void publish(struct group *g, const struct ledger_head *head)
{
    struct ledger *l = g->l;
    ledger_head_publish(l, head);
    if (!ledger_is_heard(l))
        return;
    bool rows = atomic_load_explicit(&l->event_subscribers, memory_order_acquire) > 0;
    struct ledger_group_event *ev = malloc(sizeof *ev + (rows ? g->n_rows : 0) * sizeof ev->rows[0]);
    if (ev == NULL)
        return; /* subscribers read the history instead */
    atomic_init(&ev->refs, 1);
    ev->seq_start = g->first_seq;
    ev->seq_end = head->seq;
    ev->group_no = head->group_no;
    ev->ledger_ms = head->ledger_ms;
    ev->root = head->root;
    ev->n_rows = 0;
    for (uint32_t i = 0; rows && i < g->n_jobs; i++)
        for (uint32_t k = 0; k < g->jobs[i]->n_units; k++) {
            const struct ledger_job_unit *u = &g->jobs[i]->units[k];
            for (uint32_t f = 0; u->verdict == VERDICT_COMMITTED && f < u->n_fx; f++)
                if (u->fx[f].type == FX_ROW)
                    ev->rows[ev->n_rows++] = u->fx[f].index;
        }
    rt_bcast_publish(l->root_pub, ev);
}

static enum err write_group(struct group *g) RT_BLOCKS
{
    struct ledger *l = g->l;
    enum err err = verify(g);
    if (err != ERR_OK)
        return ledger_enter_safe_mode(l, CAUSE_INVARIANT, "sequence or conservation"), err;
    for (uint32_t i = 0; i < g->n_jobs; i++)
        if (g->jobs[i]->own && g->jobs[i]->n_units == 0) /* nothing of an older one is in this group */
            ledger_log_turn(l, g->jobs[i]->gen);
    if (g->n_entries == 0)
        return ERR_OK;
    g->parts = malloc(g->n_units * sizeof *g->parts);
    err = g->parts == NULL ? ERR_NO_MEMORY : grow_tree(g);
    if (err != ERR_OK)
        return ledger_enter_safe_mode(l, CAUSE_INVARIANT, "tree memory"), err;
    struct ledger_head head = {l->frontier.n, l->next_group, g->last_ms, {{0}}};
    ledger_frontier_root(&l->frontier, &head.root);
    struct store_frame frame = {.group_no = l->next_group,
                                .first_seq = g->first_seq,
                                .count = g->n_entries,
                                .count2 = g->n_units,
                                .ms = g->last_ms,
                                .prev_root = l->last_root,
                                .new_root = head.root};
    struct store_pos pos;
    err = store_sink_append(l->sink, &frame, g->parts, g->n_parts, &pos);
    if (err != ERR_OK)
        return ledger_enter_safe_mode(l, err == ERR_FENCED ? CAUSE_FENCED : CAUSE_IO_ERROR,
                                      l->replica != NULL ? store_sink_replica_why(l->sink) : err_name(err)),
               err;
    ledger_note_spare(l);
    struct ledger_group_row row = {head.seq,    head.group_no, head.ledger_ms,
                                   pos.segment, pos.offset,    head.root};
    err = settle(g, pos);
    if (err == ERR_OK)
        err = ledger_column_append(&l->groups, &row);
    if (err != ERR_OK)
        return ledger_enter_safe_mode(l, CAUSE_INVARIANT, "committed state"), err;
    l->next_group++;
    l->last_root = head.root;
    publish(g, &head);
    return ERR_OK;
}

enum err ledger_commit(struct ledger *l, struct ledger_job *const *jobs, uint32_t n)
{
    struct group g = {.l = l, .jobs = jobs, .n_jobs = n};
    const struct clock *c = l->deps.clock;
    int64_t began = c->mono_ns(c->ctx);
    atomic_store_explicit(&l->commit_began_ns, began, memory_order_release);
    g.last_ms = atomic_load_explicit(&l->ledger_ms, memory_order_acquire);
    enum err err = ledger_safe_cause(l) == CAUSE_NONE || ledger_safe_cause(l) == CAUSE_OPERATOR ||
                           ledger_safe_cause(l) == CAUSE_SCRUB ||
                           ledger_safe_cause(l) == CAUSE_DRAIN_TIMEOUT
                       ? write_group(&g)
                       : ERR_SAFE_MODE;
    free(g.parts);
    struct ledger_head head;
    ledger_head_read(l, &head);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        jobs[i]->tree_size = head.seq;
        jobs[i]->root = head.root;
        bytes += jobs[i]->payload_bytes + (jobs[i]->new_entries ? GROUP_PADDING : 0);
    }
    atomic_fetch_sub_explicit(&l->inflight_bytes, bytes, memory_order_release);
    atomic_store_explicit(&l->commit_began_ns, 0, memory_order_release);
    if (err == ERR_OK && g.n_entries > 0 && l->m[0] != NULL) {
        obs_hist_observe(obs_hist(l->m[LEDGER_M_committer_seconds]),
                         (double)(c->mono_ns(c->ctx) - began) / 1e9);
        obs_hist_observe(obs_hist(l->m[LEDGER_M_group_entries]), (double)g.n_entries);
    }
    return err;
}
