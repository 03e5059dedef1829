/*
 * The three small files of the data directory (docs/formats/mailbox.md): META says what this is, routing which shard owns
 * which bucket, CLEAN that the last stop was orderly and how far each journal went.
 */
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "services/mailbox/mailbox.h"
#include "store/file_replace.h"

enum {
    META_BYTES = 4096,
    ROUTING_BYTES = 8 + 4 + 4 + 8 + MAILBOX_BUCKETS * 2 + 4,
    CLEAN_BYTES = 8 + 4 + 64 * 8 + 4
};

static void seal(uint8_t *p, size_t n)
{
    le32_put(p + n - 4, crc32c(0, p, n - 4));
}

static bool sealed(struct bytes b, size_t n, const char *magic)
{
    return b.n == n && memcmp(b.p, magic, 8) == 0 && le32_get(b.p + n - 4) == crc32c(0, b.p, n - 4);
}

static enum err slurp(struct store_disk *d, const char *path, struct buf *b) RT_BLOCKS
{
    buf_init(b, 1 << 16);
    return store_file_slurp(d, path, b);
}

static enum err write_routing(struct mailbox *mb, const char *path, uint64_t generation) RT_BLOCKS
{
    static uint8_t p[ROUTING_BYTES];
    memset(p, 0, sizeof p);
    memcpy(p, "RONROUT1", 8);
    le32_put(p + 8, 1);
    le32_put(p + 12, mb->shards);
    le64_put(p + 16, generation);
    for (int i = 0; i < MAILBOX_BUCKETS; i++)
        le16_put(p + 24 + i * 2, mb->routing[i]);
    seal(p, sizeof p);
    return store_file_replace(svc_disk(mb->svc), path, bytes_of(p, sizeof p));
}

static enum err create(struct mailbox *mb, const char *meta, const char *routing) RT_BLOCKS
{
    static uint8_t p[META_BYTES];
    memset(p, 0, sizeof p);
    if (!mb->replica) /* else it is the shared mailbox's */
        rng_secure(mb->instance, sizeof mb->instance);
    memcpy(p, "RONMBOX1", 8);
    le32_put(p + 8, 1);
    le32_put(p + 12, mb->shards);
    memcpy(p + 16, mb->instance, 16);
    le64_put(p + 32, (uint64_t)clock_wall_ms(mb->clock));
    seal(p, sizeof p);
    for (int i = 0; i < MAILBOX_BUCKETS; i++)
        mb->routing[i] = (uint16_t)(i % mb->shards);
    enum err e = write_routing(mb, routing, 1);
    return e == ERR_OK ? store_file_replace(svc_disk(mb->svc), meta, bytes_of(p, sizeof p)) : e;
}

static enum err load_routing(struct mailbox *mb, const char *path) RT_BLOCKS
{
    struct buf b;
    enum err e = slurp(svc_disk(mb->svc), path, &b);
    if (e == ERR_OK &&
        (!sealed(buf_bytes(&b), ROUTING_BYTES, "RONROUT1") || le32_get(b.p + 12) != mb->shards))
        e = ERR_CORRUPT;
    for (int i = 0; e == ERR_OK && i < MAILBOX_BUCKETS; i++) {
        mb->routing[i] = le16_get(b.p + 24 + i * 2);
        if (mb->routing[i] >= mb->shards)
            e = ERR_CORRUPT;
    }
    buf_fini(&b);
    return e;
}

enum err mailbox_files_open(struct mailbox *mb, const char *dir, uint16_t want_shards)
{
    char meta[STORE_PATH_MAX], routing[STORE_PATH_MAX];
    struct buf b;
    store_path_join(meta, dir, "META");
    store_path_join(routing, dir, "routing");
    enum err e = slurp(svc_disk(mb->svc), meta, &b);
    if (e == ERR_NOT_FOUND) {
        buf_fini(&b);
        if (!mb->replica)
            mb->shards = want_shards;
        return create(mb, meta, routing);
    }
    if (e == ERR_OK && !sealed(buf_bytes(&b), META_BYTES, "RONMBOX1"))
        e = ERR_CORRUPT;
    if (e == ERR_OK && le32_get(b.p + 8) != 1)
        e = ERR_VERSION;
    if (e == ERR_OK) {
        mb->shards = (uint16_t)le32_get(b.p + 12);
        memcpy(mb->instance, b.p + 16, 16);
        if (mb->shards < 1 || mb->shards > MAILBOX_SHARDS_MAX)
            e = ERR_CORRUPT;
    }
    buf_fini(&b);
    return e == ERR_OK ? load_routing(mb, routing) : e;
}

bool mailbox_files_made(struct mailbox *mb, const char *dir)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    store_path_join(path, dir, "META");
    return store_disk_stat(svc_disk(mb->svc), path, &st) == ERR_OK;
}

enum err mailbox_files_shared(struct mailbox *mb, const char *dir)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    const char *stream = mb->replica ? mailbox_config(mb)->replica_stream : "";
    store_path_join(path, dir, "REPLICA");
    enum err e = store_disk_stat(svc_disk(mb->svc), path, &st);
    if (mb->replica)
        return e == ERR_OK ? e
                           : store_file_replace(svc_disk(mb->svc), path, bytes_of(stream, strlen(stream)));
    if (e != ERR_OK)
        return e == ERR_NOT_FOUND ? ERR_OK : e;
    obs_log(svc_log(mb->svc), OBS_ERROR, "replica_refused",
            OBS_STR("why", "this directory is a node's of a shared mailbox: start it with replica.dsn"),
            OBS_END);
    return ERR_CONFLICT;
}

enum err mailbox_files_clean(struct mailbox *mb, const char *dir)
{
    uint8_t p[CLEAN_BYTES] = {0};
    char path[STORE_PATH_MAX];
    memcpy(p, "RONCLEA1", 8);
    le32_put(p + 8, mb->shards);
    for (uint16_t i = 0; i < mb->shards; i++)
        le64_put(p + 12 + i * 8, mb->lanes[i].log.next_group - 1);
    seal(p, sizeof p);
    store_path_join(path, dir, "CLEAN");
    return store_file_replace(svc_disk(mb->svc), path, bytes_of(p, sizeof p));
}

enum err mailbox_files_check_clean(struct mailbox *mb, const char *dir)
{
    char path[STORE_PATH_MAX];
    struct buf b;
    store_path_join(path, dir, "CLEAN");
    enum err e = slurp(svc_disk(mb->svc), path, &b);
    if (e == ERR_NOT_FOUND) {
        buf_fini(&b);
        return ERR_OK;
    }
    if (e == ERR_OK && sealed(buf_bytes(&b), CLEAN_BYTES, "RONCLEA1") && le32_get(b.p + 8) == mb->shards) {
        for (uint16_t i = 0; i < mb->shards; i++) {
            if (mb->lanes[i].log.next_group - 1 <
                le64_get(b.p + 12 + i * 8)) { /* the journal ends before the orderly stop */
                atomic_store(&mb->lanes[i].readonly, true);
                mailbox_shard_failed(&mb->lanes[i].shard);
                obs_log(svc_log(mb->svc), OBS_ERROR, "journal.corrupt", OBS_U64("shard", i),
                        OBS_STR("why", "shorter than the last orderly stop says"), OBS_END);
            }
        }
    }
    buf_fini(&b);
    return e == ERR_OK ? store_file_remove(svc_disk(mb->svc), path) : e;
}
