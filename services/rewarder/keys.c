#include "services/rewarder/keys.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/rng.h"
#include "base/str.h"
#include "store/file_replace.h"

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

static bool read_pem(struct str pem, uint8_t seed[32])
{
    uint8_t der[64];
    size_t n;
    pem = str_trim(pem);
    struct str head = str_of(private_head, sizeof private_head - 1);
    if (!str_starts(pem, head))
        return false;
    pem.p += head.n;
    pem.n -= head.n;
    const char *end = memchr(pem.p, '\n', pem.n);
    bool ok = end && base64_decode(str_of(pem.p, (size_t)(end - pem.p)), der, sizeof der, &n) == ERR_OK &&
              n == 48 && memcmp(der, private_prefix, sizeof private_prefix) == 0;
    if (ok)
        memcpy(seed, der + 16, 32);
    explicit_bzero(der, sizeof der);
    return ok;
}

static enum err load_or_make(struct store_disk *disk, const char *path, bool make,
                             uint8_t seed[32]) RT_BLOCKS
{
    char storage[512];
    struct buf pem;
    buf_init_fixed(&pem, storage, sizeof storage);
    enum err e = store_file_slurp(disk, path, &pem);
    if (e == ERR_OK)
        e = read_pem(buf_str(&pem), seed) ? ERR_OK : ERR_SYNTAX;
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

enum err rewarder_keys_open(struct rewarder *r, const char *path)
{
    char derived[STORE_PATH_MAX];
    if (!strcmp(path, "auto")) {
        snprintf(derived, sizeof derived, "%s/keys/rewarder.ed25519", svc_data_root(r->svc));
        path = derived;
    }
    return rewarder_keys_load(r, svc_disk(r->svc), path, true);
}

enum err rewarder_keys_load(struct rewarder *r, struct store_disk *disk, const char *path, bool make)
{
    uint8_t seed[32];
    struct buf pem;
    enum err e = load_or_make(disk, path, make, seed);
    if (e != ERR_OK)
        return e;
    r->signing_key = ed25519_key_from_seed(seed);
    explicit_bzero(seed, sizeof seed);
    if (!r->signing_key)
        return ERR_NO_MEMORY;
    ed25519_public(r->signing_key, r->public_key);
    rewarder_kid(r->public_key, r->kid);
    buf_init_fixed(&pem, r->public_pem, sizeof r->public_pem - 1);
    write_pem(public_head, public_tail, public_prefix, sizeof public_prefix, r->public_key, &pem);
    r->public_pem[pem.n] = '\0';
    return pem.err;
}

void rewarder_keys_close(struct rewarder *r)
{
    if (r->signing_key)
        ed25519_key_destroy(r->signing_key);
    r->signing_key = NULL;
}

enum err rewarder_ledger_open(const char *url, const char *token, struct ledger_client **out)
{
    return ledger_client_open(&(struct ledger_client_conf){.url = url, .token = token, .inflight_max = 256},
                              out);
}

enum err rewarder_ledger_add_task(struct svc *s, struct ledger_client *client)
{
    return svc_add_task(s, "ledger_io", ledger_client_io_run, client);
}
