/*
 * From token text to capability.
 *
 *   1. a hit in the cache ends it here (the hot path: a hash of the signature, one comparison, one short lock)
 *   2. decode strictly, find the key by identifier, check the chain of HMACs
 *   3. walk identifier and caveats once: token id, daily counters, rate buckets, and whether any prefix is
 * revoked
 *   4. aud and exp must be among the caveats
 *   5. store under the generation that was current before the keys were taken
 *
 * Time is judged on every call, cached or not; whether the request is covered is judge.c's business.
 */
#include "auth/cap.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "auth/cap_internal.h"
#include "auth/lock_ranks.h"
#include "auth/macaroon.h"
#include "auth/mint.h"
#include "base/check.h"
#include "base/hex.h"

enum { CACHE_ENTRIES = 4096, RATE_BUCKETS = 4096, ENTRIES_MAX = 1 << 20 };

#define TTL_DEFAULT_MS 30000
#define TTL_MIN_MS     5000
#define TTL_MAX_MS     120000
#define NS_PER_MS      INT64_C(1000000)

/* ---- open, reload, close ---- */

/* Both files, or nothing. */
static enum err load_keys(const struct auth *a, struct auth_keyring **out_keys,
                          struct auth_revoked **out_revoked, struct auth_file_error *out_where)
{
    struct auth_keyring *keys = NULL;
    enum err e = ERR_OK;
    if (a->key_file != NULL)
        e = auth_keyring_load(a->key_file, &keys, out_where);
    else
        keys = auth_keyring_ref(a->cfg.keyring);
    if (e == ERR_OK && a->revocation_file != NULL) {
        e = auth_revoked_load(a->revocation_file, out_revoked, out_where);
        if (e == ERR_NOT_FOUND)
            e = ERR_OK; /* nobody is */
        if (e != ERR_OK)
            auth_keyring_unref(keys);
    }
    if (e == ERR_OK)
        *out_keys = keys;
    return e;
}

static bool copy_path(const char *path, char **out)
{
    *out = path != NULL ? strdup(path) : NULL;
    return path == NULL || *out != NULL;
}

static bool ttl_in_range(int64_t ttl_ms)
{
    return ttl_ms >= TTL_MIN_MS && ttl_ms <= TTL_MAX_MS;
}

enum err auth_open(const struct auth_config *config, struct auth **out, struct auth_file_error *out_where)
{
    struct auth_config cfg = *config;
    CHECK(cfg.aud != NULL && (cfg.key_file != NULL || cfg.keyring != NULL));
    if (cfg.cache_entries == 0)
        cfg.cache_entries = CACHE_ENTRIES;
    if (cfg.rate_buckets == 0)
        cfg.rate_buckets = RATE_BUCKETS;
    if (cfg.cache_ttl_ms == 0)
        cfg.cache_ttl_ms = TTL_DEFAULT_MS;
    if (cfg.clock == NULL)
        cfg.clock = clock_real();
    if (!ttl_in_range(cfg.cache_ttl_ms) || cfg.cache_entries > ENTRIES_MAX ||
        cfg.rate_buckets > ENTRIES_MAX)
        return ERR_RANGE;
    cfg.understands |= AUTH_BASIC;

    struct auth *a = calloc(1, sizeof *a);
    if (a == NULL)
        return ERR_NO_MEMORY;
    a->magic = AUTH_MAGIC;
    a->cfg = cfg;
    if (cfg.keyring != NULL)
        auth_keyring_ref(cfg.keyring);
    atomic_init(&a->ttl_ns, cfg.cache_ttl_ms * NS_PER_MS);
    atomic_init(&a->generation, 1);
    rt_lock_init(&a->keys_lock, "auth.keys", AUTH_RANK_KEYS);
    rt_lock_init(&a->upkeep_lock, "auth.upkeep", AUTH_RANK_UPKEEP);
    enum err e = ERR_NO_MEMORY;
    if (copy_path(cfg.key_file, &a->key_file) && copy_path(cfg.revocation_file, &a->revocation_file))
        e = auth_cap_cache_create(cfg.cache_entries, &a->cache);
    if (e == ERR_OK)
        e = auth_rate_create(cfg.rate_buckets, &a->rates);
    if (e == ERR_OK)
        e = load_keys(a, &a->keys, &a->revoked, out_where);
    if (e != ERR_OK) {
        auth_close(a);
        return e;
    }
    *out = a;
    return ERR_OK;
}

void auth_close(struct auth *a)
{
    if (a == NULL)
        return;
    CHECK_MAGIC(a, AUTH_MAGIC);
    auth_cap_cache_destroy(a->cache);
    auth_rate_destroy(a->rates);
    auth_keyring_unref(a->keys);
    auth_revoked_unref(a->revoked);
    auth_keyring_unref(a->cfg.keyring);
    rt_lock_fini(&a->keys_lock);
    rt_lock_fini(&a->upkeep_lock);
    free(a->key_file);
    free(a->revocation_file);
    a->magic = 0;
    free(a);
}

enum err auth_reload(struct auth *a, struct auth_file_error *out_where)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    struct auth_keyring *keys = NULL;
    struct auth_revoked *revoked = NULL;
    enum err e = load_keys(a, &keys, &revoked, out_where);
    if (e != ERR_OK)
        return e;
    rt_lock_take(&a->keys_lock);
    /* Gone, not emptied: whoever was revoked would be good again, and nobody said so. */
    bool lost = !revoked && a->revoked && auth_revoked_count(a->revoked) > 0;
    struct auth_keyring *old_keys = lost ? keys : a->keys;
    struct auth_revoked *old_revoked = lost ? NULL : a->revoked;
    if (!lost) {
        a->keys = keys;
        a->revoked = revoked;
    }
    rt_lock_release(&a->keys_lock);
    auth_keyring_unref(old_keys);
    auth_revoked_unref(old_revoked);
    if (lost) {
        if (out_where)
            *out_where =
                (struct auth_file_error){0, "keys/revoked is gone; an empty one says that nobody is"};
        return ERR_NOT_FOUND;
    }
    auth_empty_cache(a);
    return ERR_OK;
}

enum err auth_set_cache_ttl(struct auth *a, int64_t ttl_ms)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    if (!ttl_in_range(ttl_ms))
        return ERR_RANGE;
    atomic_store_explicit(&a->ttl_ns, ttl_ms * NS_PER_MS, memory_order_relaxed);
    return ERR_OK;
}

enum err auth_bearer(struct str authorization, struct str *out_token)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (authorization.n <= n || strncasecmp(authorization.p, scheme, n) != 0)
        return ERR_UNAUTHENTICATED;
    struct str token = {authorization.p + n, authorization.n - n};
    while (token.n > 0 && token.p[0] == ' ') {
        token.p++;
        token.n--;
    }
    if (token.n == 0 || token.n > AUTH_TOKEN_MAX || memchr(token.p, ' ', token.n) != NULL)
        return ERR_UNAUTHENTICATED;
    *out_token = token;
    return ERR_OK;
}

/* ---- one capability ---- */

static size_t text_bytes(const struct auth_macaroon *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->ncaveats; i++)
        n += m->caveats[i].n;
    return n;
}

static void cap_break(struct auth_cap *cap, const char *reason)
{
    if (cap->broken == NULL)
        cap->broken = reason;
}

/* cap->id is the name of everything up to and with this caveat. */
static void cap_note(struct auth_cap *cap, const struct auth_caveat *c)
{
    bool could_be_added = (cap->kinds & AUTH_NEEDED) == AUTH_NEEDED;
    if (c->kind == AUTH_CV_OP) {
        cap->ops_granted = cap->ops_granted || !could_be_added;
        cap->not_admin = cap->not_admin || !auth_list_spells(c->list, STR("admin"));
    }
    cap->kinds |= AUTH_BIT(c->kind);
    if ((cap->auth->cfg.understands & AUTH_BIT(c->kind)) == 0) {
        cap_break(cap, "caveat");
    } else if (c->kind == AUTH_CV_EXP) {
        if (c->at_ms < cap->exp_ms)
            cap->exp_ms = c->at_ms;
    } else if (c->kind == AUTH_CV_NBF) {
        if (c->at_ms > cap->nbf_ms)
            cap->nbf_ms = c->at_ms;
    } else if (c->kind == AUTH_CV_AUD) {
        if (!auth_list_covers(c->list, str_from_c(cap->auth->cfg.aud)))
            cap->not_ours = true;
    } else if (c->kind == AUTH_CV_TENANT) {
        /* Without one it is the default's. Who may administer may speak for any. */
        bool other = cap->tenant.p != NULL ? !str_eq(cap->tenant, c->list)
                                           : could_be_added && (!cap->ops_granted || cap->not_admin) &&
                                                 !str_eq_c(c->list, AUTH_TENANT_DEFAULT);
        if (other)
            cap_break(cap, "tenant");
        cap->tenant = c->list;
    } else if (c->kind == AUTH_CV_DAILY) {
        if (cap->ndaily == AUTH_DAILY_MAX)
            cap_break(cap, "daily");
        else
            cap->daily[cap->ndaily++] = (struct auth_daily){c->amount, cap->id};
    } else if (c->kind == AUTH_CV_RATE) {
        if (cap->nrate == AUTH_RATES_MAX)
            cap_break(cap, "caveat");
        else
            cap->rate[cap->nrate++] = (struct auth_cap_rate){cap->id, c->n};
    }
}

static struct auth_cap *cap_alloc(struct auth *a, struct str token, const struct auth_macaroon *m,
                                  const struct auth_key *key)
{
    size_t head = sizeof(struct auth_cap) + m->ncaveats * sizeof(struct auth_caveat);
    struct auth_cap *cap = calloc(1, head + text_bytes(m) + token.n);
    if (cap == NULL)
        return NULL;
    cap->magic = AUTH_CAP_MAGIC;
    atomic_init(&cap->refs, 1);
    cap->auth = a;
    cap->exp_ms = key->not_after_ms;
    cap->nbf_ms = INT64_MIN;
    cap->n = m->ncaveats;
    memcpy(cap->kid, m->kid.p, m->kid.n);
    char *text = (char *)cap + head;
    for (size_t i = 0; i < m->ncaveats; i++) {
        memcpy(text, m->caveats[i].p, m->caveats[i].n);
        cap->caveats[i].text = (struct str){text, m->caveats[i].n};
        text += m->caveats[i].n;
    }
    memcpy(text, token.p, token.n);
    cap->token = (struct str){text, token.n};
    return cap;
}

/* Parses caveat by caveat; ERR_UNAUTHENTICATED when one of the names on the way is revoked, or aud or exp
 * is missing. */
static enum err cap_fill(struct auth_cap *cap, const struct auth_revoked *revoked)
{
    auth_token_id_start(str_from_c(cap->kid), &cap->id);
    bool gone = revoked != NULL && auth_revoked_has(revoked, &cap->id);
    for (size_t i = 0; i < cap->n; i++) {
        struct str text = cap->caveats[i].text;
        auth_token_id_add(&cap->id, text);
        gone = gone || (revoked != NULL && auth_revoked_has(revoked, &cap->id));
        if (auth_caveat_parse(text, &cap->caveats[i]) != ERR_OK)
            cap->caveats[i].kind = AUTH_CV_UNKNOWN;
        cap_note(cap, &cap->caveats[i]);
    }
    return gone || (cap->kinds & AUTH_NEEDED) != AUTH_NEEDED ? ERR_UNAUTHENTICATED : ERR_OK;
}

struct auth_cap *auth_cap_hold(struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    atomic_fetch_add_explicit(&cap->refs, 1, memory_order_relaxed);
    return cap;
}

void auth_cap_release(struct auth_cap *cap)
{
    if (cap == NULL)
        return;
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    if (atomic_fetch_sub_explicit(&cap->refs, 1, memory_order_acq_rel) > 1)
        return;
    cap->magic = 0;
    explicit_bzero((char *)cap + (cap->token.p - (char *)cap), cap->token.n);
    free(cap);
}

/* ---- verify ---- */

static void take_keys(struct auth *a, struct auth_keyring **out_keys, struct auth_revoked **out_revoked)
{
    rt_lock_take(&a->keys_lock);
    *out_keys = auth_keyring_ref(a->keys);
    *out_revoked = a->revoked != NULL ? auth_revoked_ref(a->revoked) : NULL;
    rt_lock_release(&a->keys_lock);
}

static enum err make_cap(struct auth *a, struct str token, const struct auth_macaroon *m,
                         const struct auth_keyring *keys, const struct auth_revoked *revoked,
                         struct auth_cap **out)
{
    const struct auth_key *key = auth_keyring_find(keys, m->kid);
    if (key == NULL)
        return ERR_UNAUTHENTICATED;
    enum err e = auth_macaroon_verify(m, (struct bytes){key->key, key->key_n});
    if (e != ERR_OK)
        return e;
    struct auth_cap *cap = cap_alloc(a, token, m, key);
    if (cap == NULL)
        return ERR_NO_MEMORY;
    e = cap_fill(cap, revoked);
    if (e != ERR_OK) {
        auth_cap_release(cap);
        return e;
    }
    *out = cap;
    return ERR_OK;
}

static enum err verify_fresh(struct auth *a, struct str token, int64_t now_ns, struct auth_cap **out)
{
    /* Pairs with the release in auth_empty_cache: the keys below are at least as new as this number. */
    uint64_t generation = atomic_load_explicit(&a->generation, memory_order_acquire);
    struct auth_macaroon m;
    enum err e = auth_macaroon_decode(token, &m);
    if (e != ERR_OK) {
        auth_macaroon_wipe(&m);
        return ERR_UNAUTHENTICATED;
    }
    struct auth_keyring *keys;
    struct auth_revoked *revoked;
    take_keys(a, &keys, &revoked);
    e = make_cap(a, token, &m, keys, revoked, out);
    auth_keyring_unref(keys);
    auth_revoked_unref(revoked);
    auth_macaroon_wipe(&m);
    if (e != ERR_OK)
        return e;
    struct sha256 hash;
    sha256_of(token.p, token.n, &hash);
    hex_encode(hash.b, AUTH_REF_CHARS / 2, (*out)->ref);
    int64_t ttl_ns = atomic_load_explicit(&a->ttl_ns, memory_order_relaxed);
    auth_cap_cache_store(a->cache, generation, now_ns + ttl_ns, now_ns, *out);
    return ERR_OK;
}

enum err auth_verify(struct auth *a, struct str token, struct auth_cap **out_cap)
{
    struct auth_deny ignored;
    return auth_verify_why(a, token, out_cap, &ignored);
}

enum err auth_verify_why(struct auth *a, struct str token, struct auth_cap **out_cap,
                         struct auth_deny *out_why)
{
    CHECK_MAGIC(a, AUTH_MAGIC);
    struct auth_cap *cap = NULL;
    enum err e = ERR_UNAUTHENTICATED;
    if (token.n > 0 && token.n <= AUTH_TOKEN_MAX) {
        int64_t now_ns = clock_mono_ns(a->cfg.clock);
        uint64_t generation = atomic_load_explicit(&a->generation, memory_order_acquire);
        cap = auth_cap_cache_find(a->cache, token, generation, now_ns);
        e = cap != NULL ? ERR_OK : verify_fresh(a, token, now_ns, &cap);
    }
    if (e == ERR_OK) {
        int64_t now_ms = clock_wall_ms(a->cfg.clock);
        if (now_ms < cap->exp_ms && now_ms > cap->nbf_ms) {
            *out_cap = cap;
            return ERR_OK;
        }
        *out_why = now_ms >= cap->exp_ms ? (struct auth_deny){AUTH_CV_EXP, "expired", {0}}
                                         : (struct auth_deny){AUTH_CV_NBF, "not_yet", {0}};
        auth_cap_release(cap);
        e = ERR_UNAUTHENTICATED;
    }
    atomic_fetch_add_explicit(&a->failures, 1, memory_order_relaxed);
    return e;
}

/* ---- accessors ---- */

const char *auth_cap_kid(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return cap->kid;
}

const char *auth_cap_ref(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return cap->ref;
}

struct str auth_cap_tenant(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return cap->tenant.p != NULL ? cap->tenant : STR(AUTH_TENANT_DEFAULT);
}

const struct sha256 *auth_cap_id(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return &cap->id;
}

bool auth_cap_has(const struct auth_cap *cap, enum auth_cv kind)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return (cap->kinds & AUTH_BIT(kind)) != 0;
}

int64_t auth_cap_expires_ms(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return cap->exp_ms;
}

size_t auth_cap_caveats(const struct auth_cap *cap)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    return cap->n;
}

const struct auth_caveat *auth_cap_caveat(const struct auth_cap *cap, size_t i)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    CHECK(i < cap->n);
    return &cap->caveats[i];
}

bool auth_cap_daily(const struct auth_cap *cap, size_t i, struct auth_daily *out)
{
    CHECK_MAGIC(cap, AUTH_CAP_MAGIC);
    if (i >= cap->ndaily)
        return false;
    *out = cap->daily[i];
    return true;
}

void auth_tenant_id(struct str tenant, uint8_t out[AUTH_TENANT_ID_BYTES])
{
    struct sha256 h;
    sha256_of(tenant.p, tenant.n, &h);
    memcpy(out, h.b, AUTH_TENANT_ID_BYTES);
}

bool auth_cap_fits_tenant_id(const struct auth_cap *cap, const uint8_t id[AUTH_TENANT_ID_BYTES])
{
    static const uint8_t zero[AUTH_TENANT_ID_BYTES];
    uint8_t own[AUTH_TENANT_ID_BYTES];
    if (memcmp(id, zero, sizeof zero) == 0)
        return true;
    auth_tenant_id(auth_cap_tenant(cap), own);
    return memcmp(id, own, sizeof own) == 0;
}
