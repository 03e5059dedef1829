#include "services/ledger/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/rng.h"
#include "services/ledger/replica.h"
#include "store/file_replace.h"

enum { SUPERBLOCK = 4096 };

void ledger_superblock_encode(const struct ledger_superblock *sb, uint8_t out[4096])
{
    size_t n = strlen(sb->origin);
    memset(out, 0, SUPERBLOCK);
    memcpy(out, "RONLEDG1", 8);
    le32_put(out + 8, 1);
    le32_put(out + 12, sb->align);
    le32_put(out + 16, sb->segment_bytes);
    le64_put(out + 20, sb->created_ms);
    memcpy(out + 28, sb->ledger_id, 16);
    le16_put(out + 44, (uint16_t)n);
    memcpy(out + 46, sb->origin, n);
    le32_put(out + SUPERBLOCK - 4, crc32c(0, out, SUPERBLOCK - 4));
}

enum err ledger_superblock_decode(const uint8_t in[4096], struct ledger_superblock *out)
{
    if (memcmp(in, "RONLEDG1", 8) != 0 || le32_get(in + SUPERBLOCK - 4) != crc32c(0, in, SUPERBLOCK - 4))
        return ERR_CORRUPT;
    if (le32_get(in + 8) != 1)
        return ERR_VERSION;
    struct ledger_superblock sb = {
        .align = le32_get(in + 12), .segment_bytes = le32_get(in + 16), .created_ms = le64_get(in + 20)};
    size_t n = le16_get(in + 44);
    if (n > NOTE_ORIGIN_MAX || !ledger_note_origin_ok(str_of((const char *)in + 46, n)) ||
        (sb.align != 512 && sb.align != 4096) || sb.segment_bytes % 4096 != 0 || sb.segment_bytes == 0)
        return ERR_CORRUPT;
    memcpy(sb.ledger_id, in + 28, 16);
    memcpy(sb.origin, in + 46, n);
    *out = sb;
    return ERR_OK;
}

static void path_of(const struct ledger *l, const char *name, char out[STORE_PATH_MAX])
{
    store_path_join(out, l->set.dir, name);
}

/* "00000001.seg", "00000001.segz": not a spare. */
static enum err segment_seen(void *ctx, const char *name)
{
    if (name[0] >= '0' && name[0] <= '9')
        *(bool *)ctx = true;
    return ERR_OK;
}

static enum err segments_there(struct ledger *l, bool *out) RT_BLOCKS
{
    char dir[STORE_PATH_MAX];
    *out = false;
    path_of(l, "journal", dir);
    return store_disk_list(l->deps.disk, dir, segment_seen, out);
}

/*
 * A ledger is founded where none has been. Segments without a superblock, or a signing key of another log, say that there was one: its
 * disk is not mounted, or the file was lost. Founding another in its place would end the old one.
 */
static enum err nothing_was_here(struct ledger *l, const char *origin) RT_BLOCKS
{
    struct buf b;
    struct ledger_signer *key = NULL;
    bool segments;
    enum err err = segments_there(l, &segments);
    if (err == ERR_OK && segments)
        return ledger_refuse(l, ERR_CORRUPT,
                             "SUPERBLOCK is missing and the journal is there: put SUPERBLOCK back from a "
                             "backup or a snapshot of this ledger");
    buf_init(&b, 4096);
    if (err == ERR_OK && l->set.key_file[0] != 0)
        err = store_file_slurp(l->deps.disk, l->set.key_file, &b);
    if (err == ERR_OK && b.n != 0)
        err = ledger_signer_open(buf_str(&b), &key);
    if (key != NULL && !str_eq_c(ledger_signer_origin(key), origin))
        err = ledger_refuse(
            l, ERR_CONFLICT,
            "the directory holds no ledger, and the signing key (log.key_file) is of one: is its "
            "disk mounted? For a new log, move the key away");
    ledger_signer_destroy(key);
    if (b.p != NULL)
        explicit_bzero(b.p, b.n);
    buf_fini(&b);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

static enum err found(struct ledger *l, const char *path, struct ledger_superblock *out) RT_BLOCKS
{
    struct ledger_superblock sb = {.align = l->set.align, .segment_bytes = l->set.segment_bytes};
    int64_t now = l->deps.clock->wall_ms(l->deps.clock->ctx);
    sb.created_ms = now < 0 ? 0 : (uint64_t)now;
    rng_secure(sb.ledger_id, sizeof sb.ledger_id);
    bool copy = ledger_replica_identity(l, sb.ledger_id, sb.origin, sizeof sb.origin);
    if (copy) {
        /* a further copy of a ledger that exists */
    } else if (l->set.origin[0] != 0) {
        snprintf(sb.origin, sizeof sb.origin, "%s", l->set.origin);
    } else {
        char id[33];
        hex_encode(sb.ledger_id, 16, id);
        snprintf(sb.origin, sizeof sb.origin, "localhost/ron-ledger/%s", id);
    }
    uint8_t bytes[SUPERBLOCK];
    ledger_superblock_encode(&sb, bytes);
    enum err err = copy || l->set.amnesia ? ERR_OK : nothing_was_here(l, sb.origin);
    if (err == ERR_OK && !l->set.amnesia)
        err = store_file_replace(l->deps.disk, path, bytes_of(bytes, sizeof bytes));
    if (err == ERR_OK)
        *out = sb;
    return err;
}

enum err ledger_superblock_open(struct ledger *l, struct ledger_superblock *out)
{
    char path[STORE_PATH_MAX];
    path_of(l, "SUPERBLOCK", path);
    struct buf b;
    buf_init(&b, SUPERBLOCK);
    enum err err = l->set.amnesia ? ERR_NOT_FOUND : store_file_slurp(l->deps.disk, path, &b);
    if (err == ERR_NOT_FOUND)
        err = found(l, path, out);
    else if (err == ERR_OK)
        err = b.n == SUPERBLOCK ? ledger_superblock_decode(b.p, out) : ERR_CORRUPT;
    buf_fini(&b);
    if (err == ERR_OK && l->set.origin[0] != 0 && strcmp(l->set.origin, out->origin) != 0)
        return ledger_refuse(l, ERR_CONFLICT,
                             "log.origin is fixed when a ledger is founded, and is another here");
    return err;
}

enum err ledger_key_new(struct store_disk *disk, const char *file, const char *origin,
                        struct ledger_signer **out_signer)
{
    uint8_t seed[ED25519_SEED_BYTES];
    char text[NOTE_VKEY_MAX + 17];
    rng_secure(seed, sizeof seed);
    size_t n = ledger_signer_secret(str_from_c(origin), seed, text);
    text[n++] = '\n';
    enum err err = file != NULL ? store_file_replace(disk, file, bytes_of(text, n)) : ERR_OK;
    if (err == ERR_OK)
        err = ledger_signer_open(str_of(text, n), out_signer);
    explicit_bzero(seed, sizeof seed);
    explicit_bzero(text, sizeof text);
    return err;
}

/* Whoever pinned the old key would be told by a new one of a log that is not theirs, under the name of theirs. */
static enum err first_key(struct ledger *l, const char *origin, bool keep) RT_BLOCKS
{
    bool segments = false;
    enum err err = keep ? segments_there(l, &segments) : ERR_OK;
    if (segments)
        return ledger_refuse(l, ERR_PERMISSION,
                             "the signing key (log.key_file) is missing, and the log has entries: put the "
                             "key back. If it is lost, ron ledger new-key makes another");
    return err == ERR_OK ? ledger_key_new(l->deps.disk, keep ? l->set.key_file : NULL, origin, &l->signer)
                         : err;
}

enum err ledger_key_open(struct ledger *l, const char *origin)
{
    struct buf b;
    buf_init(&b, 4096);
    bool keep = !l->set.amnesia && l->set.key_file[0] != 0;
    enum err err = keep ? store_file_slurp(l->deps.disk, l->set.key_file, &b) : ERR_NOT_FOUND;
    uint8_t known[16];
    char known_origin[NOTE_ORIGIN_MAX + 1];
    if (err == ERR_NOT_FOUND && ledger_replica_identity(l, known, known_origin, sizeof known_origin)) {
        err = ledger_refuse(l, ERR_PERMISSION,
                            "a copy needs the signing key of the ledger that founded the stream: copy its "
                            "keys/ledger-ed25519 here (log.key_file)");
    } else if (err == ERR_NOT_FOUND) {
        err = first_key(l, origin, keep);
    } else if (err == ERR_OK) {
        err = ledger_signer_open(buf_str(&b), &l->signer);
        if (err == ERR_OK && !str_eq_c(ledger_signer_origin(l->signer), origin))
            err = ledger_refuse(l, ERR_CONFLICT,
                                "the signing key (log.key_file) is of another log than this ledger");
    }
    if (b.p != NULL)
        explicit_bzero(b.p, b.n);
    buf_fini(&b);
    return err;
}

static const struct json_field clean_fields[] = {
    JSON_REQ(struct ledger_clean, group_no, JSON_KIND_U64),
    JSON_REQ(struct ledger_clean, root, JSON_KIND_HASH),
    JSON_REQ(struct ledger_clean, seq, JSON_KIND_U64),
    JSON_END,
};

struct store_segment *ledger_segments(struct ledger *l, size_t *out_n)
{
    enum { MORE = 8 }; /* it may grow between the two looks */
    size_t room = store_journal_segments(l->sink->journal, NULL, 0) + MORE;
    struct store_segment *v = malloc(room * sizeof *v);
    if (v == NULL)
        return NULL;
    size_t n = store_journal_segments(l->sink->journal, v, room);
    *out_n = n < room ? n : room;
    return v;
}

enum err ledger_clean_read(struct ledger *l, struct ledger_clean *out)
{
    char path[STORE_PATH_MAX];
    path_of(l, "CLEAN", path);
    struct buf b;
    buf_init(&b, 4096);
    struct arena a;
    arena_init(&a, 1024, 65536);
    struct json_error why;
    struct ledger_clean c = {0};
    enum err err = l->set.amnesia ? ERR_NOT_FOUND : store_file_slurp(l->deps.disk, path, &b);
    if (err == ERR_OK) {
        c.there = true;
        if (json_read_dto(buf_bytes(&b), clean_fields, &c, &a, &why) != ERR_OK)
            c.there = false; /* a guard that cannot be read guards nothing; the journal is the truth */
    } else if (err == ERR_NOT_FOUND) {
        err = ERR_OK;
    }
    arena_fini(&a);
    buf_fini(&b);
    if (err == ERR_OK)
        *out = c;
    return err;
}

enum err ledger_clean_write(struct ledger *l, const struct ledger_head *head)
{
    char path[STORE_PATH_MAX];
    path_of(l, "CLEAN", path);
    struct buf b;
    struct json_w w;
    buf_init(&b, 4096);
    json_w_init(&w, &b);
    json_obj_begin(&w);
    json_put_u64(&w, "group_no", head->group_no);
    json_put_hash(&w, "root", &head->root);
    json_put_u64(&w, "seq", head->seq);
    json_obj_end(&w);
    enum err err = b.err == ERR_OK ? store_file_replace(l->deps.disk, path, buf_bytes(&b)) : b.err;
    buf_fini(&b);
    return err;
}

enum err ledger_note_write(struct ledger *l, const struct ledger_head *head)
{
    char path[STORE_PATH_MAX], note[NOTE_MAX];
    size_t n = 0;
    path_of(l, "checkpoint", path);
    enum err err = ledger_note_sign(l->signer, head->seq, &head->root, note, &n);
    return err == ERR_OK ? store_file_replace(l->deps.disk, path, bytes_of(note, n)) : err;
}

enum err ledger_clean_remove(struct ledger *l)
{
    char path[STORE_PATH_MAX];
    path_of(l, "CLEAN", path);
    return l->set.amnesia ? ERR_OK : store_file_remove(l->deps.disk, path);
}

enum { BEGUN_DIGITS = 8, BEGUN_BYTES = BEGUN_DIGITS + 1 + 8 + 1 };

static void begun_text(uint32_t segment_no, char out[BEGUN_BYTES + 8])
{
    int n = snprintf(out, BEGUN_DIGITS + 4, "%08u", segment_no);
    snprintf(out + n, BEGUN_BYTES + 8 - (size_t)n, " %08x\n", crc32c(0, out, (size_t)n));
}

enum err ledger_begun_read(struct ledger *l, uint32_t *out)
{
    char path[STORE_PATH_MAX], got[BEGUN_BYTES + 1] = "", want[BEGUN_BYTES + 8];
    struct buf b;
    uint32_t no = 0;
    path_of(l, "BEGUN", path);
    buf_init(&b, 4096);
    enum err err = l->set.amnesia ? ERR_NOT_FOUND : store_file_slurp(l->deps.disk, path, &b);
    if (err == ERR_OK) {
        if (b.n == BEGUN_BYTES)
            memcpy(got, b.p, BEGUN_BYTES);
        if (sscanf(got, "%8u", &no) == 1)
            begun_text(no, want);
        if (no == 0 || memcmp(got, want, BEGUN_BYTES) != 0) {
            no = 0; /* a guard that cannot be read guards nothing; the journal is the truth */
            obs_log(l->deps.log, OBS_WARN, "guard_unreadable", OBS_STR("file", "BEGUN"), OBS_END);
        }
    } else if (err == ERR_NOT_FOUND) {
        err = ERR_OK;
    }
    buf_fini(&b);
    if (err == ERR_OK)
        *out = no;
    return err;
}

enum err ledger_begun_write(struct ledger *l, uint32_t segment_no)
{
    char path[STORE_PATH_MAX], text[BEGUN_BYTES + 8];
    path_of(l, "BEGUN", path);
    begun_text(segment_no, text);
    return store_file_replace(l->deps.disk, path, bytes_of(text, BEGUN_BYTES));
}

enum err ledger_safe_file_write(struct ledger *l, const char *reason)
{
    char path[STORE_PATH_MAX];
    path_of(l, "SAFE_MODE", path);
    if (l->set.amnesia)
        return ERR_OK;
    if (reason == NULL)
        return store_file_remove(l->deps.disk, path);
    return store_file_replace(l->deps.disk, path, bytes_of(reason, strlen(reason)));
}

bool ledger_safe_file_there(struct ledger *l)
{
    char path[STORE_PATH_MAX];
    struct store_stat st;
    path_of(l, "SAFE_MODE", path);
    return !l->set.amnesia && store_disk_stat(l->deps.disk, path, &st) == ERR_OK;
}
