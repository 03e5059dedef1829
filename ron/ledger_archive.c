#include "ron/ledger_archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/sha256.h"

enum { BLOCK = 512, PIECE = 1 << 20, NAME_MAX_CHARS = 99, FILES_MAX = 100000, LEVEL = 3 };
#define FILE_BYTES_MAX ((UINT64_C(8) << 30) - 1) /* what the header of a tar can say */

static enum err fail(struct ledger_archive_report *r, enum err e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum err fail(struct ledger_archive_report *r, enum err e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, args);
    va_end(args);
    return e;
}

/* The folders, in the order they are packed in. All but the first are derived from it. */
static const char *const folders[] = {"journal", "tree", "index", "state", "ckpt"};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

static bool digits_then(const char *name, const char *prefix, size_t digits, const char *suffix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && strspn(name + n, "0123456789") == digits &&
           strcmp(name + n + digits, suffix) == 0;
}

static bool name_ok(const char *name)
{
    return strcmp(name, "SUPERBLOCK") == 0 || strcmp(name, "checkpoint") == 0 ||
           strcmp(name, "groups") == 0 || digits_then(name, "journal/", 8, ".seg") ||
           digits_then(name, "journal/", 8, ".segz") || digits_then(name, "tree/", 2, "") ||
           digits_then(name, "index/", 8, ".run") || digits_then(name, "state/", 8, ".run") ||
           digits_then(name, "ckpt/MANIFEST-", 20, ".json");
}

/* ---- writing ---- */

struct packer {
    FILE *out;
    ZSTD_CCtx *z;
    struct buf sums;
    struct ledger_archive_report *r;
};

static enum err put(struct packer *p, const void *bytes, size_t n, ZSTD_EndDirective end)
{
    char out[1 << 16];
    ZSTD_inBuffer in = {bytes, n, 0};
    size_t left;
    do {
        ZSTD_outBuffer o = {out, sizeof out, 0};
        left = ZSTD_compressStream2(p->z, &o, &in, end);
        if (ZSTD_isError(left))
            return fail(p->r, ERR_IO, "cannot compress: %s", ZSTD_getErrorName(left));
        /* cppcheck-suppress legacyUninitvar ; zstd fills it through o */
        if (fwrite(out, 1, o.pos, p->out) != o.pos)
            return fail(p->r, ERR_IO, "cannot write: %s", strerror(errno));
    } while (in.pos < in.size || (end == ZSTD_e_end && left != 0));
    return ERR_OK;
}

static enum err put_header(struct packer *p, const char *name, uint64_t bytes)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;
    CHECK(strlen(name) <= NAME_MAX_CHARS && bytes <= FILE_BYTES_MAX);
    memcpy(h, name, strlen(name));
    memcpy(h + 100, "0000600", 7);
    memcpy(h + 108, "0000000", 7);
    memcpy(h + 116, "0000000", 7);
    snprintf(h + 124, 12, "%011llo", (unsigned long long)bytes);
    memcpy(h + 136, "00000000000", 11);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    return put(p, h, BLOCK, ZSTD_e_continue);
}

static enum err put_padding(struct packer *p, uint64_t bytes)
{
    static const char zeros[BLOCK];
    size_t over = (size_t)(bytes % BLOCK);
    return over == 0 ? ERR_OK : put(p, zeros, BLOCK - over, ZSTD_e_continue);
}

static enum err put_text(struct packer *p, const char *name, struct bytes text)
{
    enum err e = put_header(p, name, text.n);
    if (e == ERR_OK)
        e = put(p, text.p, text.n, ZSTD_e_continue);
    return e == ERR_OK ? put_padding(p, text.n) : e;
}

static enum err put_file(struct packer *p, const char *dir, const char *name)
{
    char path[1400], hex[65] = "";
    struct stat st = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *in = fopen(path, "rb");
    uint8_t *piece = malloc(PIECE);
    enum err e = in == NULL || fstat(fileno(in), &st) != 0 || (uint64_t)st.st_size > FILE_BYTES_MAX
                     ? fail(p->r, ERR_IO, "cannot read %s", path)
                 : piece == NULL ? fail(p->r, ERR_NO_MEMORY, "no memory")
                                 : put_header(p, name, (uint64_t)st.st_size);
    struct sha256_ctx h;
    struct sha256 sum;
    sha256_init(&h);
    for (uint64_t left = e == ERR_OK ? (uint64_t)st.st_size : 0; e == ERR_OK && left > 0;) {
        size_t n = fread(piece, 1, left < PIECE ? (size_t)left : PIECE, in);
        if (n == 0)
            e = fail(p->r, ERR_IO, "%s became shorter", path);
        sha256_update(&h, piece, n);
        if (e == ERR_OK)
            e = put(p, piece, n, ZSTD_e_continue);
        left -= n;
    }
    if (e == ERR_OK)
        e = put_padding(p, (uint64_t)st.st_size);
    if (e == ERR_OK) {
        sha256_final(&h, &sum);
        hex_encode(sum.b, 32, hex);
        buf_printf(&p->sums, "%.64s  %s\n", hex, name);
        p->r->files++;
        p->r->bytes += (uint64_t)st.st_size;
    }
    if (in != NULL)
        fclose(in);
    free(piece);
    return e;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum err put_folder(struct packer *p, const char *dir, const char *folder)
{
    char path[1200], name[300];
    struct dirent **v = NULL;
    enum err e = ERR_OK;
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    int n = scandir(path, &v, NULL, by_name);
    if (n < 0)
        return errno == ENOENT && strcmp(folder, folders[0]) != 0
                   ? ERR_OK
                   : fail(p->r, ERR_IO, "cannot read %s", path);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/%.250s", folder, v[i]->d_name);
        if (e == ERR_OK && name_ok(name))
            e = put_file(p, dir, name);
        free(v[i]);
    }
    free(v);
    return e;
}

static enum err pack_all(struct packer *p, const char *dir)
{
    static const char end[2 * BLOCK];
    enum err e = put_file(p, dir, "SUPERBLOCK");
    if (e == ERR_OK)
        e = put_file(p, dir, "checkpoint");
    for (size_t i = 0; e == ERR_OK && i < FOLDERS; i++)
        e = put_folder(p, dir, folders[i]);
    char groups[1300];
    snprintf(groups, sizeof groups, "%s/groups", dir);
    if (e == ERR_OK && access(groups, F_OK) == 0)
        e = put_file(p, dir, "groups");
    if (e == ERR_OK)
        e = put_text(p, "SHA256SUMS", buf_bytes(&p->sums));
    return e == ERR_OK ? put(p, end, sizeof end, ZSTD_e_end) : e;
}

enum err ledger_archive_pack(const char *dir, const char *path, struct ledger_archive_report *out)
{
    char temp[1200];
    *out = (struct ledger_archive_report){0};
    snprintf(temp, sizeof temp, "%s.part", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct packer p = {.out = fd < 0 ? NULL : fdopen(fd, "wb"), .z = ZSTD_createCCtx(), .r = out};
    buf_init(&p.sums, 16 << 20);
    enum err e = p.out == NULL || p.z == NULL
                     ? fail(out, ERR_IO, "cannot write %s: %s", temp, strerror(errno))
                     : ERR_OK;
    if (e == ERR_OK) {
        ZSTD_CCtx_setParameter(p.z, ZSTD_c_compressionLevel, LEVEL);
        ZSTD_CCtx_setParameter(p.z, ZSTD_c_checksumFlag, 1);
        e = pack_all(&p, dir);
    }
    if (e == ERR_OK && (fflush(p.out) != 0 || fsync(fileno(p.out)) != 0))
        e = fail(out, ERR_IO, "cannot flush %s: %s", temp, strerror(errno));
    if (p.out != NULL)
        fclose(p.out);
    if (e == ERR_OK && rename(temp, path) != 0)
        e = fail(out, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (e != ERR_OK)
        unlink(temp);
    ZSTD_freeCCtx(p.z);
    buf_fini(&p.sums);
    return e;
}

/* ---- reading ---- */

struct unpacker {
    FILE *in;
    ZSTD_DCtx *z;
    struct ledger_archive_report *r;
    uint8_t raw[1 << 16];
    ZSTD_inBuffer held;
    struct buf seen, sums; /* as computed, as stated */
};

static enum err get(struct unpacker *u, void *bytes, size_t n)
{
    ZSTD_outBuffer o = {bytes, n, 0};
    while (o.pos < o.size) {
        if (u->held.pos == u->held.size) {
            u->held = (ZSTD_inBuffer){u->raw, fread(u->raw, 1, sizeof u->raw, u->in), 0};
            if (u->held.size == 0)
                return fail(u->r, ERR_CORRUPT, "the archive ends too early");
        }
        size_t rc = ZSTD_decompressStream(u->z, &o, &u->held);
        if (ZSTD_isError(rc))
            return fail(u->r, ERR_CORRUPT, "the archive is damaged: %s", ZSTD_getErrorName(rc));
    }
    return ERR_OK;
}

static enum err header_check(struct unpacker *u, const uint8_t h[BLOCK], char name[100],
                             uint64_t *out_bytes)
{
    unsigned sum = 0, stated = 0;
    unsigned long long bytes = 0;
    char text[13] = "", check[9] = "";
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : h[i];
    memcpy(check, h + 148, 8);
    memcpy(text, h + 124, 12);
    memcpy(name, h, 99);
    name[99] = 0;
    if (sscanf(check, "%o", &stated) != 1 || stated != sum || sscanf(text, "%llo", &bytes) != 1 ||
        memcmp(h + 257, "ustar", 5) != 0 || h[345] != 0)
        return fail(u->r, ERR_CORRUPT, "not an archive of a ledger");
    if ((h[156] != '0' && h[156] != 0) || bytes > FILE_BYTES_MAX)
        return fail(u->r, ERR_CORRUPT, "%s is no plain file of a ledger", name);
    *out_bytes = bytes;
    return ERR_OK;
}

static enum err get_file(struct unpacker *u, const char *dir, const char *name, uint64_t bytes)
{
    char path[1400], hex[65] = "";
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    uint8_t *piece = malloc(PIECE);
    enum err e =
        fd < 0 || piece == NULL ? fail(u->r, ERR_IO, "cannot write %s: %s", path, strerror(errno)) : ERR_OK;
    struct sha256_ctx h;
    struct sha256 sum;
    sha256_init(&h);
    for (uint64_t left = (bytes + BLOCK - 1) / BLOCK * BLOCK, file = bytes; e == ERR_OK && left > 0;) {
        size_t n = left < PIECE ? (size_t)left : PIECE, of_file = file < n ? (size_t)file : n;
        e = get(u, piece, n);
        if (e == ERR_OK && write(fd, piece, of_file) != (ssize_t)of_file)
            e = fail(u->r, ERR_IO, "cannot write %s: %s", path, strerror(errno));
        sha256_update(&h, piece, of_file);
        left -= n;
        file -= of_file;
    }
    if (e == ERR_OK && fsync(fd) != 0)
        e = fail(u->r, ERR_IO, "cannot flush %s: %s", path, strerror(errno));
    if (e == ERR_OK) {
        sha256_final(&h, &sum);
        hex_encode(sum.b, 32, hex);
        buf_printf(&u->seen, "%.64s  %s\n", hex, name);
        u->r->files++;
        u->r->bytes += bytes;
    }
    if (fd >= 0)
        close(fd);
    free(piece);
    return e;
}

static enum err get_sums(struct unpacker *u, uint64_t bytes)
{
    uint64_t whole = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    uint8_t *p = bytes > (16 << 20) ? NULL : buf_reserve(&u->sums, (size_t)whole + 1);
    if (p == NULL)
        return fail(u->r, ERR_CORRUPT, "SHA256SUMS is too long");
    enum err e = get(u, p, (size_t)whole);
    if (e == ERR_OK)
        buf_commit(&u->sums, (size_t)bytes);
    return e;
}

static enum err unpack_all(struct unpacker *u, const char *dir)
{
    static const uint8_t zeros[BLOCK];
    for (unsigned i = 0; i < FILES_MAX; i++) {
        uint8_t h[BLOCK] = {0};
        char name[100];
        uint64_t bytes = 0;
        enum err e = get(u, h, BLOCK);
        if (e != ERR_OK)
            return e;
        if (memcmp(h, zeros, BLOCK) == 0)
            break;
        e = header_check(u, h, name, &bytes);
        if (e == ERR_OK && strcmp(name, "SHA256SUMS") == 0)
            e = get_sums(u, bytes);
        else if (e == ERR_OK && !name_ok(name))
            e = fail(u->r, ERR_CORRUPT, "a ledger has no file %s", name);
        else if (e == ERR_OK)
            e = get_file(u, dir, name, bytes);
        if (e != ERR_OK)
            return e;
    }
    /* Written in the order they were packed, so equal texts are equal files. */
    if (u->sums.n == 0 || u->sums.n != u->seen.n || memcmp(u->sums.p, u->seen.p, u->sums.n) != 0)
        return fail(u->r, ERR_CORRUPT, "files do not match SHA256SUMS");
    return ERR_OK;
}

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    bool empty = d != NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    if (d != NULL)
        closedir(d);
    return empty;
}

static enum err make_folders(struct unpacker *u, const char *dir)
{
    char path[1200];
    for (size_t i = 0; i < FOLDERS; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        if (mkdir(path, 0700) != 0)
            return fail(u->r, ERR_IO, "cannot make %s", path);
    }
    return ERR_OK;
}

enum err ledger_archive_unpack(const char *path, const char *dir, struct ledger_archive_report *out)
{
    *out = (struct ledger_archive_report){0};
    if (!is_empty(dir))
        return fail(out, ERR_EXISTS, "%s is not an empty directory", dir);
    struct unpacker *u = calloc(1, sizeof *u);
    if (u == NULL)
        return fail(out, ERR_NO_MEMORY, "no memory");
    u->r = out;
    u->in = fopen(path, "rb");
    u->z = ZSTD_createDCtx();
    buf_init(&u->seen, 16 << 20);
    buf_init(&u->sums, 17 << 20);
    enum err e = u->in == NULL || u->z == NULL
                     ? fail(out, ERR_IO, "cannot read %s: %s", path, strerror(errno))
                     : make_folders(u, dir);
    if (e == ERR_OK)
        e = unpack_all(u, dir);
    if (u->in != NULL)
        fclose(u->in);
    ZSTD_freeDCtx(u->z);
    buf_fini(&u->seen);
    buf_fini(&u->sums);
    free(u);
    return e;
}
