#include "auth/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whoever owns the file can change it, so it has to be us or root. Root, who looks after services that run as somebody
 * else, trusts whom it lets run them. */
static enum err check_private(const struct stat *st)
{
    if (st->st_uid != geteuid() && st->st_uid != 0 && geteuid() != 0)
        return ERR_PERMISSION;
    return (st->st_mode & (S_IRWXG | S_IRWXO)) ? ERR_PERMISSION : ERR_OK;
}

static enum err read_all(int fd, char *p, size_t max, size_t *out_n)
{
    size_t n = 0;
    while (n < max) {
        ssize_t got = read(fd, p + n, max - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_from_errno(errno);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out_n = n;
    return ERR_OK;
}

enum err auth_secret_file_read(const char *path, size_t max, bool private_only, struct auth_secret *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_from_errno(errno);
    struct stat st;
    struct auth_secret s = {NULL, 0};
    enum err e = fstat(fd, &st) == 0 ? ERR_OK : err_from_errno(errno);
    if (e == ERR_OK && !S_ISREG(st.st_mode))
        e = ERR_PERMISSION;
    if (e == ERR_OK && private_only)
        e = check_private(&st);
    if (e == ERR_OK && (uint64_t)st.st_size > max)
        e = ERR_TOO_LARGE;
    if (e == ERR_OK) {
        /* One byte more than there should be, so that a file growing under us is seen. */
        size_t room = (size_t)st.st_size + 1;
        s.p = malloc(room);
        e = s.p != NULL ? read_all(fd, s.p, room, &s.n) : ERR_NO_MEMORY;
        if (e == ERR_OK && s.n == room)
            e = ERR_IO;
    }
    close(fd);
    if (e == ERR_OK)
        *out = s;
    else
        auth_secret_free(&s);
    return e;
}

static enum err write_all(int fd, struct str text)
{
    while (text.n > 0) {
        ssize_t put = write(fd, text.p, text.n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_from_errno(errno);
        text.p += put;
        text.n -= (size_t)put;
    }
    return fsync(fd) == 0 ? ERR_OK : err_from_errno(errno);
}

static enum err sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy)
        return ERR_RANGE;
    strcpy(copy, path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_from_errno(errno);
    enum err e = fsync(fd) == 0 ? ERR_OK : err_from_errno(errno);
    close(fd);
    return e;
}

/* Writes beside the goal first: a crash leaves either nothing or the whole file under the goal's name. */
static enum err write_beside(const char *path, struct str text, char tmp[PATH_MAX])
{
    int n = snprintf(tmp, PATH_MAX, "%s.XXXXXX", path);
    if (n < 0 || n >= PATH_MAX)
        return ERR_RANGE;
    int fd = mkostemp(tmp, O_CLOEXEC); /* 0600 by definition */
    if (fd < 0)
        return err_from_errno(errno);
    enum err e = write_all(fd, text);
    close(fd);
    if (e != ERR_OK)
        unlink(tmp);
    return e;
}

enum err auth_secret_file_create(const char *path, struct str text)
{
    char tmp[PATH_MAX];
    if (access(path, F_OK) == 0)
        return ERR_EXISTS; /* nothing is written, not even for a moment: each start asks */
    enum err e = write_beside(path, text, tmp);
    if (e != ERR_OK)
        return e;
    /* link() and not rename(): of two first starts only one may win. */
    if (link(tmp, path) != 0)
        e = err_from_errno(errno);
    unlink(tmp);
    return e == ERR_OK ? sync_folder_of(path) : e;
}

enum err auth_secret_file_replace(const char *path, struct str text)
{
    char tmp[PATH_MAX];
    enum err e = write_beside(path, text, tmp);
    if (e != ERR_OK)
        return e;
    if (rename(tmp, path) != 0) {
        e = err_from_errno(errno);
        unlink(tmp);
        return e;
    }
    return sync_folder_of(path);
}

void auth_secret_free(struct auth_secret *s)
{
    if (s->p != NULL) {
        OPENSSL_cleanse(s->p, s->n);
        free(s->p);
    }
    *s = (struct auth_secret){NULL, 0};
}

/* The owner by name, or by number where nobody has given it one. */
static const char *owner_name(uid_t uid, char *room, size_t n)
{
    struct passwd entry, *found = NULL;
    char text[1024];
    if (getpwuid_r(uid, &entry, text, sizeof text, &found) == 0 && found != NULL)
        snprintf(room, n, "%s", found->pw_name);
    else
        snprintf(room, n, "the user %u", (unsigned)uid);
    return room;
}

const char *auth_secret_file_advice(const char *path, char out[AUTH_SECRET_ADVICE_MAX])
{
    struct stat st;
    char name[64];
    if (stat(path, &st) != 0)
        snprintf(out, AUTH_SECRET_ADVICE_MAX,
                 "lies where this user may not look; ask its owner, or use sudo");
    else if (!S_ISREG(st.st_mode))
        snprintf(out, AUTH_SECRET_ADVICE_MAX, "is not a file; name one");
    else if (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0)
        snprintf(out, AUTH_SECRET_ADVICE_MAX, "belongs to %s; run this as its owner or as root",
                 owner_name(st.st_uid, name, sizeof name));
    else if (st.st_mode & (S_IRWXG | S_IRWXO))
        snprintf(out, AUTH_SECRET_ADVICE_MAX,
                 "is open to others and therefore not used; run: chmod 600 %.4096s", path);
    else
        snprintf(out, AUTH_SECRET_ADVICE_MAX,
                 "may not be used by this user; run this as its owner or as root");
    return out;
}
