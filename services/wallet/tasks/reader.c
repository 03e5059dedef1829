/*
 * The reader: puts questions to the ledger in the order they came. Answers come back on the ledger client's threads; a
 * question that got none comes back through the same queue and waits here until it is due.
 */
#include "base/rng.h"
#include "services/wallet/read.h"

enum { TAKE = 64, BEAT_MS = 500 };

/* Soonest first. The jitter is drawn here, where one thread has the dice. */
static void put_aside(struct wallet *w, struct wallet_read_item *it)
{
    int64_t jitter_ms = wallet_config(w)->retry_jitter;
    struct wallet_read_item **at = &w->reads_aside;
    if (jitter_ms)
        it->due.at_ns += rng_between(&w->reader_rng, 0, jitter_ms * 1000000);
    while (*at && (*at)->due.at_ns <= it->due.at_ns)
        at = &(*at)->next;
    it->next = *at;
    *at = it;
}

static void run_due(struct wallet *w, bool all)
{
    while (w->reads_aside && (all || deadline_passed(w->reads_aside->due))) {
        struct wallet_read_item *it = w->reads_aside;
        w->reads_aside = it->next;
        wallet_read_run(it);
    }
}

enum err wallet_reader_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    void *items[TAKE];
    size_t n;
    for (;;) {
        struct deadline until = deadline_in_ms(BEAT_MS);
        rt_task_beat(self);
        if (w->reads_aside)
            until = deadline_min(until, w->reads_aside->due);
        enum err e = rt_chan_recv_batch(w->read_tx, items, TAKE, until, &n);
        if (e == ERR_OK) {
            for (size_t i = 0; i < n; i++) {
                struct wallet_read_item *it = items[i];
                if (it->tries > 0)
                    put_aside(w, it);
                else
                    wallet_read_run(it);
            }
        } else if (e == ERR_CLOSED) { /* nobody waits for a better moment now */
            run_due(w, true);
            return ERR_OK;
        } else if (e != ERR_TIMEOUT)
            return e;
        run_due(w, false);
    }
}
