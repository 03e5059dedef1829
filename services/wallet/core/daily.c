#include "services/wallet/core/daily.h"

#include "base/check.h"
#include "base/sha256.h"

struct wallet_counter {
    int64_t day;
    struct money used, reserved;
};

struct key128 wallet_daily_name(struct bytes name, struct str account, struct str asset)
{
    static const uint8_t zero[1] = {0};
    const struct bytes parts[] = {name, {zero, 1}, bytes_of_str(account), {zero, 1}, bytes_of_str(asset)};
    struct sha256 h;
    sha256_of_parts(parts, sizeof parts / sizeof parts[0], &h);
    return key128_of(h.b);
}

enum err wallet_daily_init(struct wallet_daily *d, size_t max)
{
    *d = (struct wallet_daily){0};
    enum err e = map128_init(&d->by_name, 16);
    return e == ERR_OK ? pool_init(&d->pool, sizeof(struct wallet_counter), max) : e;
}

void wallet_daily_fini(struct wallet_daily *d)
{
    map128_fini(&d->by_name);
    pool_fini(&d->pool);
}

struct sweep {
    struct wallet_daily *d;
    int64_t today;
};

static bool useless(struct key128 key, void *value, void *arg)
{
    struct sweep *s = arg;
    struct wallet_counter *c = value;
    (void)key;
    if (!money_is_zero(c->reserved) || (c->day >= s->today && !money_is_zero(c->used)))
        return false;
    pool_put(&s->d->pool, c);
    return true;
}

size_t wallet_daily_sweep(struct wallet_daily *d, int64_t today)
{
    return map128_sweep(&d->by_name, useless, &(struct sweep){d, today});
}

static bool restarted(struct key128 key, void *value, void *arg)
{
    struct sweep *s = arg;
    struct wallet_counter *c = value;
    c->day = s->today;
    c->used = MONEY_ZERO;
    return useless(key, value, arg);
}

void wallet_daily_restart(struct wallet_daily *d, int64_t day)
{
    map128_sweep(&d->by_name, restarted, &(struct sweep){d, day});
}

/* The counter for this day. An older day's is started anew unless something of it is still reserved. */
static struct wallet_counter *counter(struct wallet_daily *d, struct key128 name, int64_t day)
{
    struct wallet_counter *c = map128_get(&d->by_name, name);
    if (!c) {
        c = pool_get(&d->pool);
        if (!c && wallet_daily_sweep(d, day))
            c = pool_get(&d->pool);
        if (!c)
            return NULL;
        *c = (struct wallet_counter){.day = day};
        if (map128_add(&d->by_name, name, c) != ERR_OK) {
            pool_put(&d->pool, c);
            return NULL;
        }
    }
    /* At midnight what is still reserved counts for the new day: rather too much than too little. */
    if (day > c->day) {
        c->day = day;
        c->used = MONEY_ZERO;
    }
    return c;
}

enum err wallet_daily_reserve(struct wallet_daily *d, struct key128 name, int64_t day, struct money limit,
                              struct money before, struct money amount)
{
    struct money sum;
    struct wallet_counter *c = counter(d, name, day);
    if (!c)
        return ERR_BUSY;
    if (day < c->day)
        return ERR_BEHIND;
    if (money_add(c->used, c->reserved, &sum) != ERR_OK || money_add(sum, before, &sum) != ERR_OK ||
        money_add(sum, amount, &sum) != ERR_OK || money_cmp(sum, limit) > 0)
        return ERR_LIMIT_EXCEEDED;
    CHECK(money_add(c->reserved, amount, &c->reserved) == ERR_OK);
    return ERR_OK;
}

static struct wallet_counter *reserved(struct wallet_daily *d, struct key128 name, struct money amount)
{
    struct wallet_counter *c = map128_get(&d->by_name, name);
    CHECK(c);
    CHECK(money_sub(c->reserved, amount, &c->reserved) == ERR_OK);
    return c;
}

void wallet_daily_use(struct wallet_daily *d, struct key128 name, int64_t day, struct money amount)
{
    struct wallet_counter *c = reserved(d, name, amount);
    if (c->day == day)
        CHECK(money_add(c->used, amount, &c->used) == ERR_OK);
}

void wallet_daily_give_back(struct wallet_daily *d, struct key128 name, int64_t day, struct money amount)
{
    (void)day;
    reserved(d, name, amount);
}

struct money wallet_daily_used(const struct wallet_daily *d, struct key128 name, int64_t day)
{
    struct money sum = MONEY_ZERO;
    const struct wallet_counter *c = map128_get(&d->by_name, name);
    if (c && c->day == day)
        CHECK(money_add(c->used, c->reserved, &sum) == ERR_OK);
    return sum;
}
