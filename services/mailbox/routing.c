#include "services/mailbox/routing.h"

#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/file_replace.h"

enum { ROUTING_BYTES = 8 + 4 + 4 + 8 + MAILBOX_BUCKETS * 2 + 4 };

void mailbox_routing_first(struct mailbox_routing *r, uint16_t shards)
{
    CHECK(shards >= 1 && shards <= MAILBOX_SHARDS_MAX);
    r->generation = 1;
    r->shards = shards;
    for (int b = 0; b < MAILBOX_BUCKETS; b++)
        r->of[b] = (uint16_t)(b % shards);
}

static uint16_t share(uint16_t shards, uint16_t no)
{
    return (uint16_t)(MAILBOX_BUCKETS / shards + (no < MAILBOX_BUCKETS % shards));
}

void mailbox_routing_change(const struct mailbox_routing *from, uint16_t shards,
                            struct mailbox_routing *out)
{
    uint16_t has[MAILBOX_SHARDS_MAX] = {0}, next = 0;
    CHECK(shards >= 1 && shards <= MAILBOX_SHARDS_MAX && out != from);
    out->generation = from->generation + 1;
    out->shards = shards;
    for (int b = 0; b < MAILBOX_BUCKETS; b++) {
        uint16_t owner = from->of[b];
        out->of[b] = owner < shards && has[owner] < share(shards, owner) ? owner : MAILBOX_NOBODY;
        if (out->of[b] != MAILBOX_NOBODY)
            has[owner]++;
    }
    for (int b = 0; b < MAILBOX_BUCKETS; b++) {
        if (out->of[b] != MAILBOX_NOBODY)
            continue;
        while (has[next] >= share(shards, next)) /* the shares add up: somebody has room */
            next = (uint16_t)((next + 1) % shards);
        out->of[b] = next;
        has[next]++;
        next = (uint16_t)((next + 1) % shards);
    }
}

enum err mailbox_routing_save(struct store_disk *d, const char *dir, const struct mailbox_routing *r)
{
    uint8_t p[ROUTING_BYTES] = {0};
    char path[STORE_PATH_MAX];
    memcpy(p, "RONROUT1", 8);
    le32_put(p + 8, 1);
    le32_put(p + 12, r->shards);
    le64_put(p + 16, r->generation);
    for (size_t b = 0; b < MAILBOX_BUCKETS; b++)
        le16_put(p + 24 + b * 2, r->of[b]);
    le32_put(p + ROUTING_BYTES - 4, crc32c(0, p, ROUTING_BYTES - 4));
    store_path_join(path, dir, "routing");
    return store_file_replace(d, path, bytes_of(p, sizeof p));
}

static enum err decode(struct bytes b, struct mailbox_routing *out)
{
    struct mailbox_routing r;
    if (b.n < 16 || memcmp(b.p, "RONROUT1", 8) != 0 || le32_get(b.p + b.n - 4) != crc32c(0, b.p, b.n - 4))
        return ERR_CORRUPT;
    if (le32_get(b.p + 8) != 1)
        return ERR_VERSION;
    if (b.n != ROUTING_BYTES)
        return ERR_CORRUPT;
    uint32_t shards = le32_get(b.p + 12);
    if (shards < 1 || shards > MAILBOX_SHARDS_MAX)
        return ERR_CORRUPT;
    r.shards = (uint16_t)shards;
    r.generation = le64_get(b.p + 16);
    for (size_t i = 0; i < MAILBOX_BUCKETS; i++) {
        r.of[i] = le16_get(b.p + 24 + i * 2);
        if (r.of[i] >= shards)
            return ERR_CORRUPT;
    }
    *out = r;
    return ERR_OK;
}

enum err mailbox_routing_load(struct store_disk *d, const char *dir, struct mailbox_routing *out)
{
    char path[STORE_PATH_MAX];
    struct buf b;
    buf_init(&b, 1 << 16);
    store_path_join(path, dir, "routing");
    enum err e = store_file_slurp(d, path, &b);
    if (e == ERR_OK)
        e = decode(buf_bytes(&b), out);
    buf_fini(&b);
    return e;
}

enum err mailbox_routing_settle(struct store_disk *d, const char *dir, struct mailbox_routing *out)
{
    enum err e = store_disk_sync_dir(d, dir);
    return e == ERR_OK ? mailbox_routing_load(d, dir, out) : e;
}
