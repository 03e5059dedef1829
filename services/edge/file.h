/*
 * An open file whose bytes leave without a copy in user space.
 *
 * The file is mapped, but only the kernel touches the mapping: writev copies from the page cache, and a file that became
 * shorter gives EFAULT there instead of a signal here. So that an event loop never waits for the disk, the mapping is used
 * only for pages in the warm set: a bit per page, set after the page was really read, forgotten after 10 to 20 seconds.
 *
 * Ownership   Reference-counted; the last unref unmaps and closes.
 * Threads     Everything from any thread. edge_file_warm_up and edge_file_read may wait for the disk.
 */
#ifndef RON_EDGE_FILE_H
#define RON_EDGE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/sha256.h"
#include "rt/lock.h"
#include "services/edge/core/pack_id.h"

enum { EDGE_PAGE = 4096, EDGE_LOOK_NS = 1000000 /* so often the times of a file in use are compared */ };

struct edge_file {
    _Atomic uint32_t refs;
    _Atomic bool changed; /* in place: nothing of it may be served any more */
    int fd;               /* -1: memory */
    uint64_t size;
    const uint8_t *bytes; /* the mapping, or memory */
    bool memory;          /* user space may read bytes */
    bool owned;           /* memory to be freed */
    struct edge_file_id id;
    size_t words;
    _Atomic uint64_t *warm[2]; /* [era & 1] is the current one */
    _Atomic int64_t era;       /* number of the present 10 seconds */
    _Atomic int64_t looked_ns; /* when edge_file_unchanged_at asked for its times */
};

/* Takes over fd (also when it fails). */
NODISCARD enum err edge_file_of_fd(int fd, struct edge_file **out);
/* p: static, or taken over when owned. */
NODISCARD enum err edge_file_of_memory(const uint8_t *p, size_t n, bool owned, struct edge_file **out);
struct edge_file *edge_file_ref(struct edge_file *f);
void edge_file_unref(struct edge_file *f); /* NULL is fine */

bool edge_file_warm(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns);
/* How much of it is, from its beginning on. */
uint64_t edge_file_warm_ahead(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns);
/* Tries to read without waiting, for a slice not much larger than a page: true when it is warm now. */
bool edge_file_warm_now(struct edge_file *f, uint64_t at, uint64_t n, int64_t now_ns);
NODISCARD enum err edge_file_warm_up(struct edge_file *f, uint64_t at, uint64_t n,
                                     int64_t now_ns) RT_BLOCKS;
/* Exactly n bytes; ERR_IO when they are not there any more. */
NODISCARD enum err edge_file_read(struct edge_file *f, uint64_t at, void *out, size_t n) RT_BLOCKS;
/* The same without waiting for the disk; ERR_BUSY when it would. */
NODISCARD enum err edge_file_read_now(struct edge_file *f, uint64_t at, void *out, size_t n);
NODISCARD enum err edge_file_hash(struct edge_file *f, uint64_t at, uint64_t n,
                                  struct sha256 *out) RT_BLOCKS;

NODISCARD enum err edge_file_id_of_fd(int fd, struct edge_file_id *out);
/* Nothing of it may be served any more. */
void edge_file_set_changed(struct edge_file *f);
uint64_t
edge_file_changes(void); /* how often that was said of any file; acquire, after the file's own word */
/* Compares size, times and inode with what they were when it was opened; remembers a difference. */
bool edge_file_unchanged(struct edge_file *f);
/* The same, as it was when somebody last asked, if that is less than every_ns ago. */
bool edge_file_unchanged_at(struct edge_file *f, int64_t now_ns, int64_t every_ns);

#endif
