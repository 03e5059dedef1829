/*
 * Directory packs: every regular file below a directory, under its SHA-256. The digests of the last mount are kept in an
 * index (.dix), so that only files whose size, times or inode changed are read again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "services/edge/core/record.h"
#include "services/edge/pack.h"
#include "store/file_replace.h"

/* What a start waits for: a listener that opens seconds later because of one directory would keep all other packs from being served. */
enum { START_BYTES = 64 << 20, START_FILE_COST = 1 << 10 };

struct scan {
    struct edge *e;
    struct edge_pack *p;
    struct edge_fault *fault;
    size_t cap;
    struct map known; /* path -> struct known */
    struct known *known_list;
    size_t known_n;
    struct buf index; /* the bytes known_list points into */
    uint64_t hashed;
    uint64_t left; /* of what may be read now */
};

struct known {
    struct edge_record r;
};

static int open_beneath(int dirfd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC | O_NONBLOCK,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

static void index_path(const struct edge_pack *p, const struct edge *e, char out[STORE_PATH_MAX])
{
    char name[EDGE_TAG_NAME_MAX];
    edge_pack_tag_name(p, name);
    snprintf(out, STORE_PATH_MAX, "%s/tags/%s", svc_data_dir(e->svc), name);
}

RT_BLOCKS
static void read_index(struct scan *s)
{
    char path[STORE_PATH_MAX];
    uint64_t created;
    index_path(s->p, s->e, path);
    buf_init(&s->index, 1u << 30);
    if (store_file_slurp(svc_disk(s->e->svc), path, &s->index) != ERR_OK ||
        edge_log_header_decode(EDGE_LOG_DIX, buf_bytes(&s->index), &created) != ERR_OK)
        return;
    s->known_list = calloc(s->index.n / 76 + 1, sizeof *s->known_list);
    for (size_t at = EDGE_LOG_HEADER, n; s->known_list; at += n) {
        struct known *k = &s->known_list[s->known_n];
        if (edge_record_decode(bytes_of(s->index.p + at, s->index.n - at), &k->r, &n) != ERR_OK ||
            k->r.type != EDGE_DIX_FILE || map_put(&s->known, bytes_of_str(k->r.name), k, NULL) != ERR_OK)
            return;
        s->known_n++;
    }
}

/* known: with what the last one had; of a path that is there twice the later counts. */
RT_BLOCKS
static void write_index(struct scan *s, bool known)
{
    char path[STORE_PATH_MAX];
    uint8_t head[EDGE_LOG_HEADER];
    struct buf out;
    index_path(s->p, s->e, path);
    buf_init(&out, 1u << 30);
    edge_log_header_encode(EDGE_LOG_DIX, (uint64_t)edge_now_ms(s->e), head);
    buf_put(&out, head, sizeof head);
    for (size_t i = 0; known && i < s->known_n; i++)
        edge_record_encode(&s->known_list[i].r, &out);
    for (size_t i = 0; i < s->p->list_n; i++) {
        const struct edge_member *m = &s->p->list[i];
        edge_record_encode(&(struct edge_record){.type = EDGE_DIX_FILE,
                                                 .name = m->path,
                                                 .size = m->id.size,
                                                 .mtime_ns = m->id.mtime_ns,
                                                 .ctime_ns = m->id.ctime_ns,
                                                 .ino = m->id.ino,
                                                 .digest = m->digest},
                           &out);
    }
    enum err e =
        out.err == ERR_OK ? store_file_replace(svc_disk(s->e->svc), path, buf_bytes(&out)) : out.err;
    if (e != ERR_OK)
        obs_log(svc_log(s->e->svc), OBS_WARN, "index_not_written",
                OBS_STR("pack", (const char *)s->p->name), OBS_ERR(e), OBS_END);
    buf_fini(&out);
}

static bool spend(struct scan *s, uint64_t n)
{
    bool enough = n <= s->left;
    if (enough)
        s->left -= n;
    else
        snprintf(s->fault->text, sizeof s->fault->text, "its files are being read");
    return enough;
}

RT_BLOCKS
static enum err digest_of(struct scan *s, int fd, struct edge_member *m)
{
    struct known *k = map_get(&s->known, bytes_of_str(m->path));
    uint8_t scratch[64 << 10];
    struct sha256_ctx c;
    if (k && k->r.size == m->id.size && k->r.mtime_ns == m->id.mtime_ns &&
        k->r.ctime_ns == m->id.ctime_ns && k->r.ino == m->id.ino) {
        m->digest = k->r.digest;
        return ERR_OK;
    }
    if (!spend(s, m->id.size))
        return ERR_BUSY;
    sha256_init(&c);
    for (uint64_t at = 0; at < m->id.size;) {
        ssize_t n = pread(fd, scratch, sizeof scratch, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ERR_IO;
        sha256_update(&c, scratch, (size_t)n);
        at += (uint64_t)n;
        edge_turns_rest(&s->p->edge->turns, (uint64_t)n, edge_config(s->p->edge)->packs_seal_rate);
    }
    sha256_final(&c, &m->digest);
    s->hashed += m->id.size;
    return ERR_OK;
}

RT_BLOCKS
static enum err add_file(struct scan *s, const char *path)
{
    struct edge_pack *p = s->p;
    if (!spend(s, START_FILE_COST))
        return ERR_BUSY;
    int fd = open_beneath(p->dirfd, path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_from_errno(errno);
    if (p->list_n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct edge_member *bigger = reallocarray(p->list, cap, sizeof *bigger);
        if (!bigger) {
            close(fd);
            return ERR_NO_MEMORY;
        }
        p->list = bigger;
        s->cap = cap;
    }
    struct edge_member m = {.path = str_from_c(strdup(path))};
    m.mime = edge_mime_of(m.path);
    enum err e = m.path.p ? edge_file_id_of_fd(fd, &m.id) : ERR_NO_MEMORY;
    if (e == ERR_OK)
        e = digest_of(s, fd, &m);
    close(fd);
    if (e != ERR_OK) {
        if (e != ERR_BUSY)
            snprintf(s->fault->text, sizeof s->fault->text, "%.100s cannot be read (%s)", path,
                     err_title(e));
        free((void *)(uintptr_t)m.path.p);
        return e;
    }
    p->list[p->list_n++] = m;
    return ERR_OK;
}

RT_BLOCKS
static enum err scan_dir(struct scan *s, const char *path, int depth)
{
    enum err e = ERR_OK;
    int fd = *path ? open_beneath(s->p->dirfd, path, O_RDONLY | O_DIRECTORY) : dup(s->p->dirfd);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return err_from_errno(errno);
    }
    rewinddir(d);
    for (struct dirent *de = readdir(d); de && e == ERR_OK; de = readdir(d)) {
        char child[EDGE_NAME_MAX + 1];
        struct stat st;
        int n = snprintf(child, sizeof child, "%s%s%s", path, *path ? "/" : "", de->d_name);
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if (n < 0 || (size_t)n >= sizeof child || !edge_name_ok(str_from_c(child)))
            continue; /* no URL could name it */
        if (fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            if (depth == EDGE_DIR_DEPTH_MAX) {
                snprintf(s->fault->text, sizeof s->fault->text, "directories are nested deeper than %d",
                         depth);
                e = ERR_TOO_LARGE;
            } else
                e = scan_dir(s, child, depth + 1);
        } else if (S_ISREG(st.st_mode))
            e = s->p->list_n < EDGE_DIR_FILES_MAX ? add_file(s, child) : ERR_TOO_LARGE;
    }
    closedir(d);
    return e;
}

static int by_path(const void *a, const void *b)
{
    return str_cmp(((const struct edge_member *)a)->path, ((const struct edge_member *)b)->path);
}

static enum err finish(struct edge_pack *p)
{
    struct sha256_ctx c;
    enum err e = ERR_OK;
    if (p->list_n)
        qsort(p->list, p->list_n, sizeof *p->list, by_path);
    edge_dir_id_begin(&c);
    for (size_t i = 0; e == ERR_OK && i < p->list_n; i++) {
        edge_dir_id_add(&c, p->list[i].path, &p->list[i].digest);
        p->list_bytes += p->list[i].id.size;
        e = map_add(&p->members, bytes_of_str(p->list[i].path), &p->list[i]);
    }
    sha256_final(&c, &p->id);
    return e;
}

enum err edge_dir_open(struct edge *e, struct edge_pack *p, struct edge_fault *f)
{
    struct scan s = {.e = e, .p = p, .fault = f, .left = e->generation ? UINT64_MAX : START_BYTES};
    p->dirfd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dirfd < 0) {
        snprintf(f->text, sizeof f->text, "cannot be opened (%s)", err_title(err_from_errno(errno)));
        return ERR_NOT_FOUND;
    }
    enum err err = map_init(&s.known, 0);
    if (err == ERR_OK) {
        read_index(&s);
        err = scan_dir(&s, "", 1);
    }
    if (err == ERR_OK)
        err = finish(p);
    if (err == ERR_OK || err == ERR_BUSY) /* what is known by now need not be read again */
        write_index(&s, err == ERR_BUSY);
    obs_counter_add(obs_counter(e->m[EDGE_M_hashed]), s.hashed);
    map_fini(&s.known);
    free(s.known_list);
    buf_fini(&s.index);
    return err;
}

bool edge_dir_same(const struct edge_pack *a, const struct edge_pack *b)
{
    bool same = a->list_n == b->list_n;
    for (size_t i = 0; same && i < a->list_n; i++)
        same = str_eq(a->list[i].path, b->list[i].path) && edge_file_id_eq(&a->list[i].id, &b->list[i].id);
    return same;
}

enum err edge_member_open(struct edge *e, struct edge_pack *p, struct edge_member *m,
                          struct edge_file **out)
{
    struct edge_file *f, *none = NULL;
    int fd = open_beneath(p->dirfd, m->path.p, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? ERR_CONFLICT : err_from_errno(errno);
    enum err err = edge_file_of_fd(fd, &f);
    if (err != ERR_OK)
        return err;
    if (!edge_file_id_eq(&f->id, &m->id)) {
        edge_file_unref(f);
        return ERR_CONFLICT;
    }
    *out = f;
    if (atomic_load(&e->open_files) < EDGE_OPEN_FILES_MAX) {
        edge_file_ref(f);
        if (atomic_compare_exchange_strong(&m->open, &none, f))
            atomic_fetch_add(&e->open_files, 1);
        else
            edge_file_unref(f);
    }
    return ERR_OK;
}
