#include "services/rewarder/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/str.h"
#include "ledger_client/ledger_client.h"
#include "store/file_replace.h"
#include "svc/svc.h"

/* PKCS#8 and SubjectPublicKeyInfo of Ed25519 are these prefixes and 32 bytes (RFC 8410). */
static const uint8_t private_prefix[16] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                           0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
static const uint8_t public_prefix[12] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                          0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

static const char private_head[] = "-----BEGIN PRIVATE KEY-----\n",
                  private_tail[] = "\n-----END PRIVATE KEY-----\n";
static const char public_head[] = "-----BEGIN PUBLIC KEY-----\n",
                  public_tail[] = "\n-----END PUBLIC KEY-----\n";

static void write_pem(const char *head, const char *tail, const uint8_t *prefix, size_t prefix_n,
                      const uint8_t key[32], struct buf *out)
{
    uint8_t der[64];
    char text[128];
    memcpy(der, prefix, prefix_n);
    memcpy(der + prefix_n, key, 32);
    base64_encode(der, prefix_n + 32, text);
    buf_puts(out, head);
    buf_puts(out, text);
    buf_puts(out, tail);
    explicit_bzero(der, sizeof der);
    explicit_bzero(text, sizeof text);
}

/* The 32 bytes behind the prefix of what stands between the head's line and the next. */
static bool read_pem(struct str pem, const char *head_text, const uint8_t *prefix, size_t prefix_n,
                     uint8_t out[32])
{
    uint8_t der[64];
    size_t n;
    pem = str_trim(pem);
    struct str head = str_from_c(head_text);
    if (!str_starts(pem, head))
        return false;
    pem.p += head.n;
    pem.n -= head.n;
    const char *end = memchr(pem.p, '\n', pem.n);
    bool ok = end && base64_decode(str_of(pem.p, (size_t)(end - pem.p)), der, sizeof der, &n) == ERR_OK &&
              n == prefix_n + 32 && memcmp(der, prefix, prefix_n) == 0;
    if (ok)
        memcpy(out, der + prefix_n, 32);
    explicit_bzero(der, sizeof der);
    return ok;
}

static bool read_private(struct str pem, uint8_t seed[32])
{
    return read_pem(pem, private_head, private_prefix, sizeof private_prefix, seed);
}

static bool read_public(struct str pem, uint8_t key[32])
{
    return read_pem(pem, public_head, public_prefix, sizeof public_prefix, key);
}

static enum err load_or_make(struct store_disk *disk, const char *path, bool make,
                             uint8_t seed[32]) RT_BLOCKS
{
    char storage[512];
    struct buf pem;
    buf_init_fixed(&pem, storage, sizeof storage);
    enum err e = store_file_slurp(disk, path, &pem);
    if (e == ERR_OK)
        e = read_private(buf_str(&pem), seed) ? ERR_OK : ERR_SYNTAX;
    else if (e == ERR_NOT_FOUND && make) {
        char dir[STORE_PATH_MAX];
        rng_secure(seed, 32);
        buf_reset(&pem);
        write_pem(private_head, private_tail, private_prefix, sizeof private_prefix, seed, &pem);
        e = store_path_dir(path, dir) ? store_disk_mkdirs(disk, dir) : ERR_RANGE;
        if (e == ERR_OK)
            e = store_file_replace(disk, path, buf_bytes(&pem));
    }
    explicit_bzero(storage, sizeof storage);
    return e;
}

/* ---- what is published ---- */

static void public_path(const struct rewarder_files *f, const char *kid, char out[STORE_PATH_MAX])
{
    int n =
        snprintf(out, STORE_PATH_MAX, "%s/public%s%s%s", f->root, *kid ? "/" : "", kid, *kid ? ".pem" : "");
    CHECK(n > 0 && n < STORE_PATH_MAX);
}

static enum err describe(const uint8_t public_key[32], struct rewarder_public *out)
{
    struct buf pem;
    rewarder_kid(public_key, out->kid);
    buf_init_fixed(&pem, out->pem, sizeof out->pem - 1);
    write_pem(public_head, public_tail, public_prefix, sizeof public_prefix, public_key, &pem);
    if (pem.err == ERR_OK)
        out->pem[pem.n] = '\0';
    return pem.err;
}

/* In the order of ids; one that is there already, or that there is no room for, changes nothing. */
static void note(struct rewarder_keys *k, const struct rewarder_public *p)
{
    size_t at = 0;
    rt_lock_take(&k->lock);
    while (at < k->known_n && strcmp(k->known[at].kid, p->kid) < 0)
        at++;
    bool there = at < k->known_n && !strcmp(k->known[at].kid, p->kid);
    if (!there && k->known_n < REWARDER_KEYS_MAX) {
        memmove(&k->known[at + 1], &k->known[at], (k->known_n - at) * sizeof *k->known);
        k->known[at] = *p;
        k->known_n++;
    }
    rt_lock_release(&k->lock);
}

static enum err publish(struct rewarder_files *f, const struct rewarder_public *p) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    public_path(f, "", path);
    enum err e = rewarder_files_mkdirs(f, path);
    public_path(f, p->kid, path);
    if (e != ERR_OK || (store_disk_stat(f->disk, path, &st) == ERR_OK && st.bytes == strlen(p->pem)))
        return e;
    return store_file_replace(f->disk, path, bytes_of(p->pem, strlen(p->pem)));
}

struct listing {
    struct rewarder_keys *keys;
    struct rewarder_files *files;
};

static enum err visit_public(void *ctx, const char *name) RT_BLOCKS
{
    struct listing *l = ctx;
    struct rewarder_public p;
    struct buf pem;
    char path[STORE_PATH_MAX], storage[REWARDER_PEM_CHARS];
    uint8_t key[32];
    struct str kid = str_from_c(name);
    if (kid.n != REWARDER_KID_LEN + 4 || !str_ends(kid, STR(".pem")))
        return ERR_OK;
    snprintf(p.kid, sizeof p.kid, "%.*s", REWARDER_KID_LEN, name);
    public_path(l->files, p.kid, path);
    buf_init_fixed(&pem, storage, sizeof storage);
    if (store_file_slurp(l->files->disk, path, &pem) != ERR_OK || !read_public(buf_str(&pem), key))
        return ERR_OK;
    bool ours = describe(key, &p) == ERR_OK && !strncmp(p.kid, name, REWARDER_KID_LEN);
    if (ours)
        note(l->keys, &p);
    return ERR_OK;
}

enum err rewarder_keys_recover(struct rewarder_keys *k, struct rewarder_files *f)
{
    char dir[STORE_PATH_MAX];
    public_path(f, "", dir);
    enum err e = store_disk_list(f->disk, dir, visit_public, &(struct listing){k, f});
    return e == ERR_NOT_FOUND ? ERR_OK : e;
}

/* ---- the current key ---- */

void rewarder_keys_init(struct rewarder_keys *k)
{
    *k = (struct rewarder_keys){.known_n = 0};
    rt_lock_init(&k->lock, "cfg_snapshot", 1);
}

void rewarder_keys_fini(struct rewarder_keys *k)
{
    rewarder_signer_unref(k->current);
    k->current = NULL;
    rt_lock_fini(&k->lock);
}

static struct rewarder_signer *make_signer(const uint8_t seed[32])
{
    uint8_t public_key[32];
    struct rewarder_signer *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->key = ed25519_key_from_seed(seed);
    if (s->key)
        ed25519_public(s->key, public_key);
    if (!s->key || describe(public_key, &s->public) != ERR_OK) {
        rewarder_signer_unref(s);
        return NULL;
    }
    return s;
}

enum err rewarder_keys_use(struct rewarder_keys *k, struct rewarder_files *f, struct store_disk *disk,
                           const char *path, bool make)
{
    uint8_t seed[32];
    enum err e = load_or_make(disk, path, make, seed);
    if (e != ERR_OK)
        return e;
    struct rewarder_signer *s = make_signer(seed), *old;
    explicit_bzero(seed, sizeof seed);
    if (!s)
        return ERR_NO_MEMORY;
    e = publish(f, &s->public); /* before anything is signed with it */
    if (e != ERR_OK) {
        rewarder_signer_unref(s);
        return e;
    }
    note(k, &s->public);
    rt_lock_take(&k->lock);
    old = k->current;
    k->current = s;
    rt_lock_release(&k->lock);
    rewarder_signer_unref(old);
    return ERR_OK;
}

struct rewarder_signer *rewarder_keys_signer(struct rewarder_keys *k)
{
    rt_lock_take(&k->lock);
    struct rewarder_signer *s = k->current;
    if (s)
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    rt_lock_release(&k->lock);
    return s;
}

void rewarder_signer_unref(struct rewarder_signer *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->key)
        ed25519_key_destroy(s->key);
    free(s);
}

size_t rewarder_keys_list(struct rewarder_keys *k, struct rewarder_public out[REWARDER_KEYS_MAX])
{
    size_t n = 0;
    rt_lock_take(&k->lock);
    if (k->current)
        out[n++] = k->current->public;
    for (size_t i = 0; i < k->known_n && n < REWARDER_KEYS_MAX; i++)
        if (!k->current || strcmp(k->known[i].kid, k->current->public.kid) != 0)
            out[n++] = k->known[i];
    rt_lock_release(&k->lock);
    return n;
}

bool rewarder_keys_signed(struct rewarder_keys *k, const char *kid, struct bytes message,
                          const uint8_t signature[64])
{
    char pem[REWARDER_PEM_CHARS] = "";
    uint8_t public_key[32];
    rt_lock_take(&k->lock);
    for (size_t i = 0; i < k->known_n; i++)
        if (!strcmp(k->known[i].kid, kid))
            memcpy(pem, k->known[i].pem, sizeof pem);
    rt_lock_release(&k->lock);
    struct ed25519_key *key =
        read_public(str_from_c(pem), public_key) ? ed25519_key_from_public(public_key) : NULL;
    bool ok = key && ed25519_verify(key, message, signature) == ERR_OK;
    if (key)
        ed25519_key_destroy(key);
    return ok;
}
