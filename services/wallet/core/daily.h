/*
 * Daily allowances: how much was spent under one name (a caveat, a policy row) on one account and asset in one UTC day.
 *
 *     reserve before it is sent -> use when it is committed, give_back when it is surely not
 *
 * So nobody can spend more than the limit by racing, and a refusal leaves nothing behind. Counters live in RAM; what an
 * account had spent before this process began comes in as `before`.
 *
 * Threads     None: the caller locks.
 * Memory      At most `max` counters, one allocation at start. Counters of earlier days and empty ones make room.
 */
#ifndef RON_WALLET_CORE_DAILY_H
#define RON_WALLET_CORE_DAILY_H

#include "base/map.h"
#include "base/money.h"
#include "base/pool.h"

struct wallet_counter;

struct wallet_daily {
    struct map128 by_name;
    struct pool pool;
};

/* name: what is limited; the account and asset it is limited for. */
struct key128 wallet_daily_name(struct bytes name, struct str account, struct str asset);

NODISCARD enum err wallet_daily_init(struct wallet_daily *d, size_t max);
void wallet_daily_fini(struct wallet_daily *d);

/*
 * ERR_LIMIT_EXCEEDED when used + reserved + before + amount > limit (or overflows); ERR_BUSY: no counter left; ERR_BEHIND: the
 * counter is of a later day, so there is nothing to hold it against.
 */
NODISCARD enum err wallet_daily_reserve(struct wallet_daily *d, struct key128 name, int64_t day,
                                        struct money limit, struct money before, struct money amount);
void wallet_daily_use(struct wallet_daily *d, struct key128 name, int64_t day, struct money amount);
void wallet_daily_give_back(struct wallet_daily *d, struct key128 name, int64_t day, struct money amount);
/* Drops what is of an earlier day and not reserved; returns how many. */
size_t wallet_daily_sweep(struct wallet_daily *d, int64_t today);
/* Forgets what was used, for what is about to be added up again; what is reserved stays, and counts for this day. */
void wallet_daily_restart(struct wallet_daily *d, int64_t day);
struct money wallet_daily_used(const struct wallet_daily *d, struct key128 name,
                               int64_t day); /* used and reserved */

#endif
