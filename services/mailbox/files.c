/*
 * The small files of the data directory (docs/formats/mailbox.md): META says what this is, routing which shard owns
 * which bucket, CLEAN that the last stop was orderly and how far each journal went.
 */
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/rng.h"
#include "services/mailbox/mailbox.h"
#include "services/mailbox/reshard.h"
#include "store/file_replace.h"

enum {
    META_BYTES = 4096,
    CLEAN_BYTES = 8 + 4 + 64 * 8 + 4,
    SEGMENT_MIN = 4 << 20, /* as storage.segment_bytes */
    SEGMENT_MAX = 256 << 20
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

static enum err create(struct mailbox *mb, const char *dir) RT_BLOCKS
{
    static uint8_t p[META_BYTES];
    char meta[STORE_PATH_MAX];
    store_path_join(meta, dir, "META");
    memset(p, 0, sizeof p);
    if (!mb->replica) /* else it is the shared mailbox's */
        rng_secure(mb->instance, sizeof mb->instance);
    memcpy(p, "RONMBOX1", 8);
    le32_put(p + 8, 1);
    le32_put(p + 12, mb->shards);
    memcpy(p + 16, mb->instance, 16);
    le64_put(p + 32, (uint64_t)clock_wall_ms(mb->clock));
    seal(p, sizeof p);
    mailbox_routing_first(&mb->routing, mb->shards);
    enum err e = mailbox_routing_save(svc_disk(mb->svc), dir, &mb->routing);
    return e == ERR_OK ? store_file_replace(svc_disk(mb->svc), meta, bytes_of(p, sizeof p)) : e;
}

/* META says how many shards there were at first, routing how many there are. */
static enum err load_routing(struct mailbox *mb, const char *dir) RT_BLOCKS
{
    enum err e = mailbox_routing_settle(svc_disk(mb->svc), dir, &mb->routing);
    if (e != ERR_OK)
        return e == ERR_NOT_FOUND ? ERR_CORRUPT : e;
    if (mb->replica)
        return mb->routing.shards == mb->shards ? ERR_OK : ERR_CORRUPT;
    mb->shards = mb->routing.shards;
    return mailbox_reshard_sweep(svc_disk(mb->svc), dir, mb->shards);
}

enum err mailbox_files_meta(struct store_disk *disk, const char *dir, struct mailbox_meta *out)
{
    char path[STORE_PATH_MAX];
    struct buf b;
    store_path_join(path, dir, "META");
    enum err e = slurp(disk, path, &b);
    if (e == ERR_OK && !sealed(buf_bytes(&b), META_BYTES, "RONMBOX1"))
        e = ERR_CORRUPT;
    if (e == ERR_OK && le32_get(b.p + 8) != 1)
        e = ERR_VERSION;
    if (e == ERR_OK && (le32_get(b.p + 12) < 1 || le32_get(b.p + 12) > MAILBOX_SHARDS_MAX))
        e = ERR_CORRUPT;
    if (e == ERR_OK) {
        out->shards = (uint16_t)le32_get(b.p + 12);
        memcpy(out->instance, b.p + 16, sizeof out->instance);
    }
    buf_fini(&b);
    return e;
}

enum err mailbox_files_open(struct mailbox *mb, const char *dir, uint16_t want_shards)
{
    struct mailbox_meta meta;
    enum err e = mailbox_files_meta(svc_disk(mb->svc), dir, &meta);
    if (e == ERR_NOT_FOUND) {
        if (!mb->replica)
            mb->shards = want_shards;
        return create(mb, dir);
    }
    if (e != ERR_OK)
        return e;
    mb->shards = meta.shards;
    memcpy(mb->instance, meta.instance, sizeof mb->instance);
    return load_routing(mb, dir);
}

struct sizes {
    struct store_disk *disk;
    char dir[STORE_PATH_MAX];
    uint64_t wanted, largest;
    bool seen;
};

static enum err note_size(void *ctx, const char *name) RT_BLOCKS
{
    struct sizes *z = ctx;
    char path[STORE_PATH_MAX];
    struct store_stat st;
    size_t n = strlen(name);
    if (n < 4 || strcmp(name + n - 4, ".seg") != 0)
        return ERR_OK;
    store_path_join(path, z->dir, name);
    if (store_disk_stat(z->disk, path, &st) != ERR_OK)
        return ERR_OK; /* whoever opens it says what is wrong with it */
    z->seen = z->seen || st.bytes == z->wanted;
    if (st.bytes % 4096 == 0 && st.bytes <= SEGMENT_MAX && st.bytes > z->largest)
        z->largest = st.bytes;
    return ERR_OK;
}

uint32_t mailbox_files_segment_bytes(struct mailbox *mb, const char *dir, uint32_t wanted)
{
    struct sizes z = {.disk = svc_disk(mb->svc), .wanted = wanted};
    for (uint16_t no = 0; no < mb->shards && !z.seen; no++) {
        struct store_stat st;
        mailbox_log_shard_dir(z.dir, dir, no);
        if (store_disk_stat(z.disk, z.dir, &st) == ERR_OK &&
            store_disk_list(z.disk, z.dir, note_size, &z) != ERR_OK)
            return wanted;
    }
    return z.seen || z.largest < SEGMENT_MIN ? wanted : (uint32_t)z.largest;
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

static enum err save_last_groups(struct store_disk *disk, const char *dir,
                                 const struct mailbox_last_groups *g) RT_BLOCKS
{
    uint8_t p[CLEAN_BYTES] = {0};
    char path[STORE_PATH_MAX];
    memcpy(p, "RONCLEA1", 8);
    le32_put(p + 8, g->shards);
    for (size_t i = 0; i < MAILBOX_SHARDS_MAX; i++)
        le64_put(p + 12 + i * 8, g->group[i]);
    seal(p, sizeof p);
    store_path_join(path, dir, "CLEAN");
    return store_file_replace(disk, path, bytes_of(p, sizeof p));
}

enum err mailbox_files_clean(struct mailbox *mb, const char *dir)
{
    struct mailbox_last_groups g = {.shards = mb->shards};
    for (uint16_t i = 0; i < mb->shards; i++)
        g.group[i] = mb->lanes[i].log.next_group - 1;
    return save_last_groups(svc_disk(mb->svc), dir, &g);
}

enum err mailbox_files_forget_last_group(struct store_disk *disk, const char *dir, uint16_t shard)
{
    char path[STORE_PATH_MAX];
    struct mailbox_last_groups g;
    bool others = false;
    enum err e = mailbox_files_last_groups(disk, dir, &g);
    if (e != ERR_OK && e != ERR_CORRUPT)
        return e == ERR_NOT_FOUND ? ERR_OK : e;
    for (uint16_t i = 0; e == ERR_OK && i < MAILBOX_SHARDS_MAX; i++)
        others = others || (i != shard && g.group[i]);
    if (others) {
        g.group[shard] = 0;
        return save_last_groups(disk, dir, &g);
    }
    store_path_join(path, dir, "CLEAN");
    return store_file_remove(disk, path);
}

enum err mailbox_files_last_groups(struct store_disk *disk, const char *dir,
                                   struct mailbox_last_groups *out)
{
    char path[STORE_PATH_MAX];
    struct buf b;
    store_path_join(path, dir, "CLEAN");
    enum err e = slurp(disk, path, &b);
    if (e == ERR_OK && !sealed(buf_bytes(&b), CLEAN_BYTES, "RONCLEA1"))
        e = ERR_CORRUPT;
    if (e == ERR_OK) {
        out->shards = le32_get(b.p + 8);
        for (size_t i = 0; i < MAILBOX_SHARDS_MAX; i++)
            out->group[i] = le64_get(b.p + 12 + i * 8);
    }
    buf_fini(&b);
    return e;
}

enum err mailbox_files_check_clean(struct mailbox *mb, const char *dir)
{
    char path[STORE_PATH_MAX];
    struct mailbox_last_groups last;
    bool shorter = false;
    enum err e = mailbox_files_last_groups(svc_disk(mb->svc), dir, &last);
    if (e == ERR_NOT_FOUND)
        return ERR_OK;
    if (e == ERR_CORRUPT)
        obs_log(svc_log(mb->svc), OBS_WARN, "clean_unreadable", OBS_END);
    for (uint16_t i = 0; e == ERR_OK && last.shards == mb->shards && i < mb->shards; i++) {
        if (mb->lanes[i].log.next_group - 1 >= last.group[i])
            continue;
        shorter = true; /* the journal ends before the orderly stop */
        atomic_store(&mb->lanes[i].readonly, true);
        mailbox_shard_failed(&mb->lanes[i].shard);
        obs_log(svc_log(mb->svc), OBS_ERROR, "journal.corrupt", OBS_U64("shard", i),
                OBS_STR("why", "shorter than the last orderly stop says"), OBS_END);
    }
    if (shorter || (e != ERR_OK && e != ERR_CORRUPT))
        return e; /* kept until the shard is repaired: the next start must find it out again */
    store_path_join(path, dir, "CLEAN");
    return store_file_remove(svc_disk(mb->svc), path);
}
