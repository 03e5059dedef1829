/*
 * Where everything durable lies, and how it gets there.
 *
 *   LOCK  registry.log  public/<kid>.pem  spool/  quarantine/<tenant>/<epoch>-<n>/
 *   inputs/<2 hex>/<hex>.raw .rows .meta     bytes as received; canonical rows; facts (written last: it is the proof)
 *   runs/<tenant>/<epoch>/                   run.json commitment payouts.bin tree.bin sigs/<kid>.sig settle.log
 *                                            settlement.json, and seal.json, written last: that is the seal
 *   dry/<tenant>/<epoch>/                    the same for dry runs
 *   shadow/<id>/                             diff.csv shadow.json, and meta.json, written last
 *
 * A run directory without seal.json is rubbish from a crash: it is overwritten by the next computation of the epoch.
 * Every file is flushed before the one that vouches for it is renamed into place (docs/formats/rewarder.md).
 *
 * Threads     Anybody may read. Only the artifact task writes, except spool files (their upload), settle.log (the
 *             emitter) and public/ (a start or a reload). Every function may wait for the disk.
 */
#ifndef RON_REWARDER_FILES_H
#define RON_REWARDER_FILES_H

#include "base/buf.h"
#include "base/sha256.h"
#include "services/rewarder/core/ident.h"
#include "store/disk.h"

enum { REWARDER_ROOT_MAX = 200 };

struct rewarder_files {
    struct store_disk *disk;
    char root[REWARDER_ROOT_MAX];
    struct store_file *lock, *log;
    uint64_t log_end;       /* behind the last frame that is durable */
    uint64_t log_alive;     /* what a fold of the log left when last looked at (compact.h) */
    uint64_t compact_above; /* smaller logs are left alone */
};

/* A whole file: mapped when it is large and the disk has descriptors, read otherwise. Keep the struct until rewarder_file_unload(). */
struct rewarder_file {
    struct bytes bytes;
    void *mapping; /* munmap, or NULL: free bytes.p */
};

/* Before it is opened: sealed runs are there and registry.log is not. What it knew of them (quarantined, discarded) is gone with it. */
bool rewarder_files_lost_log(struct store_disk *disk, const char *root) RT_BLOCKS;
NODISCARD enum err rewarder_files_open(struct rewarder_files *f, struct store_disk *disk,
                                       const char *root) RT_BLOCKS;
void rewarder_files_close(struct rewarder_files *f) RT_BLOCKS;

NODISCARD enum err rewarder_file_load(struct rewarder_files *f, const char *path,
                                      struct rewarder_file *out) RT_BLOCKS;
void rewarder_file_unload(struct rewarder_file *file);
/* Gives the pages of a mapped file back: the kernel keeps them cached, and whoever reads on finds them there. */
void rewarder_file_rest(const struct rewarder_file *file);

/* Paths. ext with its dot. */
void rewarder_path_input(const struct rewarder_files *f, const struct sha256 *cid, const char *ext,
                         char out[STORE_PATH_MAX]);
void rewarder_path_run(const struct rewarder_files *f, bool dry, const char *tenant, const char *epoch,
                       const char *name, char out[STORE_PATH_MAX]); /* name "": the directory */

/* Removes a run's files, seal.json last: while it is there, there is something left to remove. The directory stays. */
NODISCARD enum err rewarder_files_remove_run(struct rewarder_files *f, bool dry, const char *tenant,
                                             const char *epoch) RT_BLOCKS;
/* Its signatures, whichever keys made them. */
NODISCARD enum err rewarder_files_remove_sigs(struct rewarder_files *f, bool dry, const char *tenant,
                                              const char *epoch) RT_BLOCKS;
void rewarder_path_shadow(const struct rewarder_files *f, const struct sha256 *id, const char *name,
                          char out[STORE_PATH_MAX]);

/* A directory under the root and those above it, their names durable. */
NODISCARD enum err rewarder_files_mkdirs(struct rewarder_files *f, const char *path) RT_BLOCKS;

/* One file of a directory that is being filled: created or replaced, written, flushed. Its name is not yet durable. */
NODISCARD enum err rewarder_files_write(struct rewarder_files *f, const char *path,
                                        struct bytes contents) RT_BLOCKS;

/* registry.log: frames u32 len | u32 CRC32C | JSON. A torn last frame is cut off; damage before good frames is ERR_CORRUPT. */
typedef enum err rewarder_log_fn(void *ctx, struct bytes line);
struct rewarder_log_state {
    uint64_t frames, bad_at; /* bad_at: offset of the first damage */
    bool torn, damaged;      /* damage at the end only; damage before good frames */
};
/* Every good frame, whatever lies between; changes nothing. */
NODISCARD enum err rewarder_log_scan(struct rewarder_files *f, rewarder_log_fn *fn, void *ctx,
                                     struct rewarder_log_state *out) RT_BLOCKS;
/*
 * Replaces the log by these frames (lines, each with its length and checksum before it): a new file is written and flushed,
 * renamed over the log, and the directory flushed. A failure before the rename leaves the log as it was. One after it leaves
 * open which of the two a power cut would show, so nothing is appended any more: every later append is ERR_UNAVAILABLE.
 */
NODISCARD enum err rewarder_log_rewrite(struct rewarder_files *f, struct bytes frames) RT_BLOCKS;
/* The frames that are durable; free() the bytes. */
NODISCARD enum err rewarder_log_read(struct rewarder_files *f, struct bytes *out) RT_BLOCKS;
/* The line at *at of whole frames, and past it; false: there is none. */
bool rewarder_log_next(struct bytes frames, size_t *at, struct bytes *out_line);
void rewarder_log_frame(struct bytes line, struct buf *out);
NODISCARD enum err rewarder_log_replay(struct rewarder_files *f, rewarder_log_fn *fn, void *ctx) RT_BLOCKS;
/* Durable when it returns. After a failure the next line takes the failed one's place: no frame may follow a torn one. */
NODISCARD enum err rewarder_log_append(struct rewarder_files *f, struct bytes line) RT_BLOCKS;

/* settle.log of a run: 32-byte records, never flushed. */
struct rewarder_settle_record {
    uint32_t chunk, entries;
    uint64_t seq_start, nonce;
};
enum { REWARDER_SETTLE_RECORD = 32 };
void rewarder_settle_encode(const struct rewarder_settle_record *r, uint8_t out[REWARDER_SETTLE_RECORD]);
bool rewarder_settle_decode(const uint8_t in[REWARDER_SETTLE_RECORD], struct rewarder_settle_record *out);

#endif
