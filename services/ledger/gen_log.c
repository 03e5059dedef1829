/*
 * The new state values of a generation, logged by the committer as they become durable; its state run is made of them.
 *
 * A run needs the last value of a key only, so a value that changes again overwrites its place in the log, if `recent` still
 * knows it: a table from the hash of the key to the place of its last value. A key that another pushed out of the table is
 * appended again, behind its older value; whoever reads backwards meets the newest first. So the log grows with the keys that
 * changed rather than with the changes, and a hot account costs one place.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "services/ledger/ledger.h"

static struct ledger_gen_log *log_create(struct ledger_gen *gen)
{
    struct ledger_gen_log *log = calloc(1, sizeof *log);
    CHECK(log != NULL);
    log->cap = (uint64_t)gen->capacity * EFFECTS_PER_ENTRY;
    log->v = mmap(NULL, log->cap * sizeof *log->v, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(log->v != MAP_FAILED);
    log->gen = gen;
    ledger_gen_ref(gen);
    return log;
}

static struct ledger_gen_log *log_for(struct ledger *l, struct ledger_gen *gen)
{
    struct ledger_gen_log *done = l->gen_log_last;
    if (done != NULL && done->gen == gen)
        return done;
    l->gen_log_last = log_create(gen);
    if (done != NULL) { /* the one before is complete: hand it over (at most 3 are frozen at once) */
        if (l->gen_tx != NULL)
            CHECK(rt_chan_try_send(l->gen_tx, done) == ERR_OK);
        else {
            CHECK(l->n_gen_log_done < LEDGER_GENS_FROZEN_MAX);
            l->gen_log_done[l->n_gen_log_done++] = done;
        }
    }
    return l->gen_log_last;
}

void ledger_log_turn(struct ledger *l, struct ledger_gen *open)
{
    (void)log_for(l, open);
}

void ledger_gen_logs_hand_over(struct ledger *l)
{
    for (unsigned i = 0; i < l->n_gen_log_done; i++)
        CHECK(rt_chan_try_send(l->gen_tx, l->gen_log_done[i]) == ERR_OK);
    l->n_gen_log_done = 0;
}

/* Where this key's value goes: its old place, or a new one at the end. */
static struct ledger_change *place_for(struct ledger_gen_log *log, const struct ledger_effect *fx)
{
    uint64_t n = atomic_load_explicit(&log->n, memory_order_relaxed);
    uint64_t key = (uint64_t)fx->type << 32 | fx->index;
    uint32_t *slot = &log->recent[key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - GEN_LOG_RECENT_BITS)];
    if (fx->type != FX_HOLD && *slot != 0) {
        struct ledger_change *c = &log->v[*slot - 1];
        if (c->fx.type == fx->type && c->fx.index == fx->index)
            return c;
    }
    CHECK(n < log->cap);
    *slot = (uint32_t)n + 1;
    atomic_store_explicit(&log->n, n + 1, memory_order_release);
    return &log->v[n];
}

void ledger_log_changes(struct ledger *l, struct ledger_gen *gen, const struct ledger_effect *fx,
                        uint32_t n_fx, uint64_t seq_end)
{
    struct ledger_gen_log *log = log_for(l, gen);
    for (uint32_t i = 0; i < n_fx; i++) {
        struct ledger_state_record *hold = NULL;
        if (fx[i].type == FX_HOLD) {
            hold = malloc(sizeof *hold);
            CHECK(hold != NULL);
            ledger_state_record_of(l->state, &fx[i], seq_end, hold);
        }
        *place_for(log, &fx[i]) = (struct ledger_change){fx[i], seq_end, hold};
    }
}
