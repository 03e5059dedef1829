/*
 * Load for the ledger: units of transfers between accounts of their own, and the proof that what was acknowledged is there.
 *
 *   1  every account is minted, of an asset of the caller's choice
 *   2  each slot sends units of one to many transfers from accounts that only it debits, under their next nonces; a unit that is
 *      refused for now, or not answered, is sent again with the same idem_id until somebody answers
 *   3  the log is read from where the load began; every unit of this run in it is compared with the record of acknowledgements
 *
 * Without `check` there is no record and no third step, and the generator costs less.
 *
 * Memory      24 bytes for every unit recorded, units_max of them at most: the load ends there.
 */
#ifndef RON_LOAD_LEDGER_H
#define RON_LOAD_LEDGER_H

#include "load/http.h"
#include "load/mill.h"

enum { LOAD_LEDGER_ENTRIES_MAX = 4096 }; /* of one request */

struct load_ledger_spec {
    const struct load_addr *addrs;
    size_t n_addrs;
    const char *token, *asset;
    unsigned conns, inflight;
    unsigned units, per_unit; /* of a request; transfers of a unit */
    unsigned accounts;
    bool hot; /* every debit from one account, a lane of nonces for each slot */
    bool check;
    double rate; /* requests a second; 0: closed loop */
    int64_t ms;
    uint64_t entries;                /* 0: as many as fit into the time */
    int64_t timeout_ms, patience_ms; /* as of the mill; the accounts must be made within patience_ms, too */
    atomic_bool *stop;
    void (*each_second)(void *app, double at_s, uint64_t done, const struct load_addr *where);
};

struct load_ledger_result {
    uint64_t minted;
    struct load_mill_result load;
    struct load_complaint complaint; /* of the first request that was refused for good */
    /* units; only with `check` */
    bool checked;
    uint64_t acknowledged, found, doubled;
    uint64_t moved;   /* found, but not where they were acknowledged */
    uint64_t unasked; /* in the log without having been acknowledged: their answers were lost */
    uint64_t entries_read;
};

/* ERR_REFUSED: nobody there, or the accounts were refused (complaint says why); ERR_TIMEOUT: no writer was found, or the log could
 * not be read to its end. */
NODISCARD enum err load_ledger_run(const struct load_ledger_spec *spec, struct load_ledger_result *out);

#endif
