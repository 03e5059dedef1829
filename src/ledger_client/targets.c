#include "ledger_client/targets.h"

uint32_t ledger_targets_now(const struct ledger_targets *t)
{
    return atomic_load_explicit(&t->current, memory_order_relaxed);
}

void ledger_targets_go(struct ledger_targets *t, uint32_t to)
{
    atomic_store_explicit(&t->current, to, memory_order_relaxed);
}

void ledger_targets_leave(struct ledger_targets *t, uint32_t from)
{
    atomic_compare_exchange_strong(&t->current, &from, (from + 1) % t->n);
}

bool ledger_targets_failed(struct ledger_targets *t, uint32_t from, bool write, enum err e)
{
    if (e == ERR_BUSY || e == ERR_CLOSED || e == ERR_CANCELED || e == ERR_SYNTAX)
        return false; /* our own doing */
    ledger_targets_leave(t, from);
    return e == ERR_REFUSED || !write;
}

bool ledger_targets_turned_away(enum err problem)
{
    return problem == ERR_NOT_WRITER || problem == ERR_SAFE_MODE || problem == ERR_DRAINING;
}
