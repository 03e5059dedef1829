/*
 * A ledger in memory behind the ledger client's interface: the same rules (idempotency, nonces per lane, funds, holds,
 * not_after), no disk and no tree, and faults on demand. Roots are a hash chain, so equal sizes have equal roots.
 *
 * Threads     Every function from any thread. Callbacks run on the caller's thread, or on the fake's own when stalled;
 *             while it is driven, on that of mem_ledger_due().
 */
#ifndef RON_TESTS_MEM_LEDGER_H
#define RON_TESTS_MEM_LEDGER_H

#include "base/clock.h"
#include "ledger_client/ledger_client.h"

struct mem_ledger;

enum mem_fault {
    MEM_OK,
    MEM_REFUSE,      /* REFUSED busy: nothing happened */
    MEM_LOSE_BEFORE, /* UNKNOWN: nothing happened */
    MEM_LOSE_AFTER,  /* UNKNOWN: it was carried out */
    MEM_STALL,       /* no answer until the deadline: UNKNOWN; nothing happened */
    MEM_STALL_AFTER, /* the same, and it was carried out */
    MEM_GARBLE,      /* ANSWERED with too few results; it was carried out */
    MEM_OTHERS,      /* ANSWERED, about another unit or account; it was carried out */
    MEM_DOWN,        /* REFUSED: connection refused */
    MEM_NOT_WRITER,  /* REFUSED: a copy that does not write, and nobody else does */
    MEM_SAFE_MODE,   /* REFUSED: it takes no writes until somebody has looked at it */
    MEM_BAD_REQUEST, /* REFUSED: as if the caller did not know what to say */
};

struct mem_ledger *mem_ledger_create(void);
void mem_ledger_destroy(struct mem_ledger *f);
struct ledger_client *mem_ledger_client(struct mem_ledger *f);

/* Its time is this clock's, and stalled calls whose deadline that clock has passed are answered by mem_ledger_due(). NULL: the
 * system's again; whatever is stalled is answered at once. */
void mem_ledger_drive(struct mem_ledger *f, const struct clock *clock);
void mem_ledger_due(struct mem_ledger *f);
/* What ledger_client_owing() says. */
void mem_ledger_owe(struct mem_ledger *f, size_t connections);

/* The next `n` ingest (unit, account) calls have this fault; n < 0: until changed. */
void mem_ledger_ingest_fault(struct mem_ledger *f, enum mem_fault fault, int n);
void mem_ledger_unit_fault(struct mem_ledger *f, enum mem_fault fault, int n);
void mem_ledger_account_fault(struct mem_ledger *f, enum mem_fault fault, int n);
/* What it refuses as busy says when to come back. */
void mem_ledger_retry_after(struct mem_ledger *f, uint32_t s);
/* Everything else (head, account, entries): a ledger that hangs or is gone. */
void mem_ledger_read_fault(struct mem_ledger *f, enum mem_fault fault);
/* From the i-th ingest on, faults drawn at random from this seed; 0: none. */
void mem_ledger_chaos(struct mem_ledger *f, uint64_t seed);
/* Every ingest takes this long, whatever it carries: what the ledger can do in a second is then known. */
void mem_ledger_service_time(struct mem_ledger *f, unsigned us);
void mem_ledger_feed(struct mem_ledger *f, bool on);
/* The ledger tells another root from now on. */
void mem_ledger_fork(struct mem_ledger *f);
/* The ledger's head is told as it was before the last entry, with the root it had then. */
void mem_ledger_forget_last(struct mem_ledger *f);

/* What it holds. */
uint64_t mem_ledger_head(struct mem_ledger *f);
struct money mem_ledger_available(struct mem_ledger *f, const char *account, const char *asset);
struct money mem_ledger_held(struct mem_ledger *f, const char *account, const char *asset);
uint64_t mem_ledger_last(struct mem_ledger *f, const char *account, unsigned lane);
uint64_t mem_ledger_units(struct mem_ledger *f);
uint64_t mem_ledger_ingests(struct mem_ledger *f); /* requests that reached it */
/* On whose behalf the last ingest came. */
void mem_ledger_origin(struct mem_ledger *f, char corr_id[129], char traceparent[64]);
uint64_t mem_ledger_heads(struct mem_ledger *f); /* probes */
/* issued - burned == sum of available + held, for every asset. */
bool mem_ledger_conserves(struct mem_ledger *f);
/* A unit that no wallet made; the untold ones are never told of on the feed: a hole in it. */
void mem_ledger_mint(struct mem_ledger *f, const char *idem_id, const char *account, const char *asset,
                     uint64_t amount);
void mem_ledger_mint_untold(struct mem_ledger *f, const char *idem_id, const char *account,
                            const char *asset, uint64_t amount);
void mem_ledger_burn_untold(struct mem_ledger *f, const char *idem_id, const char *account,
                            const char *asset, uint64_t amount, uint64_t nonce);

#endif
