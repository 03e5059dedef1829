/*
 * The resolver: finds out what became of operations whose answer was lost, and fetches the unit of those the ledger
 * already knew. It only reads: it never moves money behind a client's back. What it finds goes back to the worker.
 *
 *     found, and it is the same request      the receipt is rebuilt from the unit
 *     found under another txid               the key was used for something else
 *     not found, ledger time past not_after  surely absent: no copy still in a socket can commit any more
 *     anything else                          look again: 50 ms, doubling to 1 s, without end
 */
#include <string.h>

#include "base/check.h"
#include "services/wallet/tasks/ledger_words.h"
#include "services/wallet/wallet.h"

enum { LOOKS_AT_ONCE = 64, TAKE = 64, BEAT_MS = 500, WAIT_MS = 1000 };

static struct wallet_job *job_of(struct heap_node *n)
{
    return heap_entry(n, struct wallet_job, doubt);
}

static void keep_receipt(struct wallet_job *j, const struct wallet_rebuilt *r)
{
    struct buf b;
    buf_init_fixed(&b, j->answer.body, sizeof j->answer.body);
    wallet_receipt_write(&r->receipt, &b);
    CHECK(b.err == ERR_OK);
    j->answer.no.err = ERR_OK;
    j->answer.body_n = b.n;
    /* The same bytes that this request froze: it brought the commit about itself. */
    j->answer.replayed = !sha256_eq(&r->receipt.receipt_hash, &j->receipt_hash);
    wallet_sides_of(&r->receipt, str_of(j->answer.body, b.n), &j->sides);
}

static void on_unit(void *ctx, const struct ledger_unit_reply *r)
{
    struct wallet_job *j = ctx;
    struct wallet *w = j->w;
    struct wallet_rebuilt rebuilt;
    struct wallet_said said = {.outcome = r->a.outcome, .ledger_ms = r->ledger_ms};
    if (r->a.outcome == LEDGER_ANSWERED && r->found && !str_eq_c(r->result.idem_id, j->idem_id)) {
        said.outcome = LEDGER_UNKNOWN; /* about another unit: it says nothing about ours */
    } else if (r->a.outcome == LEDGER_ANSWERED && r->found && r->result.status == LEDGER_COMMITTED) {
        said.found = true;
        said.seq_start = r->result.seq_start;
        said.seq_end = r->result.seq_end;
        wallet_saw_root(w, r->result.tree_size, &r->result.root);
        /* A unit under our idem_id that is not ours was not made from this key's request either. */
        said.ours = wallet_words_rebuild(&r->result, &rebuilt) == ERR_OK &&
                    strcmp(rebuilt.receipt.txid, j->txid) == 0;
        said.other = !said.ours;
        if (said.ours)
            keep_receipt(j, &rebuilt);
    }
    int64_t sent_ns = j->look_at_ns;
    j->said = said;
    CHECK(rt_chan_try_send(w->resolver.done, j) == ERR_OK); /* as many slots as jobs */
    wallet_call_end(w, WALLET_CALL_UNIT, &r->a, sent_ns);
}

static void look(struct wallet *w, struct wallet_job *j)
{
    int64_t rpc_ms = wallet_config(w)->ledger_rpc_timeout;
    uint32_t wait_ms = j->look_up ? 0 : WAIT_MS;
    w->resolver.outstanding++;
    j->look_at_ns = wallet_now_ns(w);
    wallet_call_begin(w);
    ledger_client_unit(w->ledger, str_of(j->idem_id, WALLET_IDEM_ID_CHARS - 1), wait_ms,
                       wallet_in_ms(w, rpc_ms + wait_ms), on_unit, j);
}

static void looked(struct wallet *w, struct wallet_job *j)
{
    struct wallet_resolver *r = &w->resolver;
    bool absent = j->said.outcome == LEDGER_ANSWERED && !j->said.found && !j->look_up &&
                  j->said.ledger_ms > j->not_after_ms;
    r->outstanding--;
    if (j->said.found || absent) {
        CHECK(rt_chan_try_send(w->workers[j->worker].resolved, j) == ERR_OK); /* as many slots as jobs */
        return;
    }
    int64_t pause_ms = INT64_C(50) << (j->looks < 5 ? j->looks : 5);
    j->looks++;
    j->look_at_ns = wallet_now_ns(w) + (pause_ms < 1000 ? pause_ms : 1000) * 1000000;
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_backoff_retries], WALLET_CALL_UNIT));
    CHECK(heap_push(&r->waiting, &j->doubt) == ERR_OK); /* reserved for all jobs */
}

bool wallet_resolver_step(struct wallet *w)
{
    struct wallet_resolver *r = &w->resolver;
    void *items[TAKE];
    size_t n;
    bool busy = false;
    while (rt_chan_try_recv_batch(r->done, items, TAKE, &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            looked(w, items[i]);
        busy = true;
    }
    while (rt_chan_try_recv_batch(r->doubt, items, TAKE, &n) == ERR_OK) {
        for (size_t i = 0; i < n; i++) {
            struct wallet_job *j = items[i];
            CHECK_MAGIC(j, WALLET_JOB_MAGIC);
            j->look_at_ns = 0;
            CHECK(heap_push(&r->waiting, &j->doubt) == ERR_OK);
        }
        busy = true;
    }
    for (struct heap_node *top; r->outstanding < LOOKS_AT_ONCE && (top = heap_top(&r->waiting));) {
        if (job_of(top)->look_at_ns > wallet_now_ns(w))
            break;
        heap_pop(&r->waiting);
        look(w, job_of(top));
        busy = true;
    }
    return busy;
}

enum err wallet_resolver_run(struct rt_task *self, void *arg)
{
    struct wallet *w = arg;
    struct wallet_resolver *r = &w->resolver;
    for (;;) {
        uint64_t noted = rt_bell_note(&r->bell);
        rt_task_beat(self);
        if (wallet_resolver_step(w))
            continue;
        /* Workers are gone before the queue is closed: nobody waits for what is left. */
        if (rt_chan_is_closed(r->doubt) && r->outstanding == 0)
            return ERR_OK;
        struct heap_node *top = r->outstanding < LOOKS_AT_ONCE ? heap_top(&r->waiting) : NULL;
        struct deadline by = wallet_wake_at(w, top ? job_of(top)->look_at_ns : OS_NEVER, BEAT_MS);
        if (rt_bell_wait(&r->bell, noted, by) == ERR_CANCELED)
            return ERR_CANCELED;
    }
}
