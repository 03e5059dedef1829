#include "svc/data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/mint.h"
#include "auth/secret_file.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/time_fmt.h"
#include "svc/internal.h"

static const int64_t KEY_LIFE_MS = INT64_C(10) * 365 * 24 * 3600 * 1000;

#define EVERYBODY "ron,ron-ledger,svc-wallet,svc-mailbox,svc-rewarder,svc-edge"
#define EVERYTHING                                                                                         \
    "admin,mint,issue,transfer,burn,hold,capture,release,reverse,read,send,recv,ack,dlq,inputs,compute,"   \
    "emit,payout,"                                                                                         \
    "shadow,fill,purge"

struct svc_data {
    char root[PATH_MAX - 64];
    char key_file[PATH_MAX], revocation_file[PATH_MAX];
    bool amnesia;
    struct auth_keyring *memory_keys; /* amnesia without a key file */
    int lock_fd;
};

static char why[512]; /* svc_data_open runs on one thread */

__attribute__((format(printf, 3, 4))) static enum err fail(enum err e, const char **out_why,
                                                           const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (out_why)
        *out_why = why;
    return e;
}

static enum err fail_because(enum err e, const char **out_why, const char *what, const char *path)
{
    return fail(e, out_why, "cannot %s %s: %s", what, path, svc__advice(e));
}

static enum err fail_secret(const char **out_why, const char *path)
{
    char advice[AUTH_SECRET_ADVICE_MAX];
    return fail(ERR_PERMISSION, out_why, "%s %s", path, auth_secret_file_advice(path, advice));
}

static enum err make_private_dir(const char *path, const char **out_why)
{
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail_because(err_from_errno(errno), out_why, "create the directory", path);
    if (stat(path, &st) != 0)
        return fail_because(err_from_errno(errno), out_why, "look at", path);
    if (!S_ISDIR(st.st_mode))
        return fail(ERR_EXISTS, out_why, "%s is not a directory", path);
    if (st.st_mode & 077)
        return fail(ERR_PERMISSION, out_why, "%s is open to others; run: chmod 700 %s", path, path);
    return ERR_OK;
}

/* Of the file LOCK the first byte is everybody's who uses the directory, and each service has one of its own behind it. */
static enum err take_lock(struct svc_data *d, enum svc_data_use use, const char **out_why)
{
    char path[PATH_MAX];
    struct flock lock = {.l_type = use == SVC_DATA_WHOLE ? F_WRLCK : F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_len = use == SVC_DATA_WHOLE ? 0 : 1};
    snprintf(path, sizeof path, "%s/LOCK", d->root);
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return fail_because(err_from_errno(errno), out_why, "open", path);
    if (fcntl(d->lock_fd, F_OFD_SETLK, &lock) != 0)
        return fail(ERR_LOCKED, out_why,
                    "%s is in use by another ron; stop that one, or choose another directory with --data",
                    d->root);
    return ERR_OK;
}

enum err svc_data_claim(struct svc_data *d, const char *service)
{
    static const char *const names[] = {"ledger", "wallet", "mailbox", "rewarder", "edge"};
    size_t i = 0, count = sizeof names / sizeof names[0];
    while (i < count && strcmp(names[i], service) != 0)
        i++;
    struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + (off_t)i, .l_len = 1};
    if (d->lock_fd < 0 || fcntl(d->lock_fd, F_OFD_SETLK, &own) == 0)
        return ERR_OK;
    return errno == EAGAIN || errno == EACCES ? ERR_LOCKED : err_from_errno(errno);
}

struct caveats {
    char text[3][256];
    struct str list[3];
};

static void caveats_make(struct caveats *c, const char *aud, const char *op, int64_t now_ms)
{
    char expires[TIME_FMT_CHARS];
    time_format_ms(now_ms + KEY_LIFE_MS, expires);
    snprintf(c->text[0], sizeof c->text[0], "aud in %s", aud);
    snprintf(c->text[1], sizeof c->text[1], "exp < %s", expires);
    snprintf(c->text[2], sizeof c->text[2], "op in %s", op);
    for (int i = 0; i < 3; i++)
        c->list[i] = str_from_c(c->text[i]);
}

struct token_row {
    const char *file, *service, *aud, *op;
};

/* What the first start writes. The ledger tokens hold what the service needs and no more. */
static const struct token_row tokens[] = {
    {"operator.token", NULL, EVERYBODY, EVERYTHING},
    {"keys/wallet-ledger.token", "wallet", "ron-ledger", "mint,burn,transfer,hold,capture,release,read"},
    {"keys/rewarder-ledger.token", "rewarder", "ron-ledger", "transfer,read"},
};

static const struct token_row *token_row(const char *service)
{
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        if (service ? tokens[i].service && strcmp(tokens[i].service, service) == 0 : !tokens[i].service)
            return &tokens[i];
    return NULL;
}

static enum err ensure_tokens(struct svc_data *d, const char **out_why)
{
    int64_t now_ms = clock_wall_ms(clock_real());
    struct auth_keyring *keys = NULL;
    struct auth_file_error where = {0};
    enum err e = auth_keyring_load(d->key_file, &keys, &where);
    if (e == ERR_PERMISSION)
        return fail_secret(out_why, d->key_file);
    if (e != ERR_OK)
        return fail(e, out_why, "%s line %u: %s", d->key_file, where.line,
                    where.reason ? where.reason : err_title(e));
    for (size_t i = 0; e == ERR_OK && i < sizeof tokens / sizeof tokens[0]; i++) {
        char path[PATH_MAX];
        struct caveats c = {0};
        snprintf(path, sizeof path, "%s/%s", d->root, tokens[i].file);
        caveats_make(&c, tokens[i].aud, tokens[i].op, now_ms);
        e = auth_token_file_ensure(path, keys, c.list, 3, now_ms);
        if (e == ERR_PERMISSION && access(path, F_OK) == 0)
            fail_secret(out_why, path);
        else if (e != ERR_OK)
            fail_because(e, out_why, "write the token file", path);
    }
    auth_keyring_unref(keys);
    return e;
}

static enum err open_on_disk(struct svc_data *d, enum svc_data_use use, const char **out_why)
{
    static const char *const folders[] = {"", "/keys", "/run"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s%s", d->root, folders[i]);
        enum err e = make_private_dir(path, out_why);
        if (e != ERR_OK)
            return e;
    }
    enum err e = take_lock(d, use, out_why);
    if (e != ERR_OK)
        return e;
    e = auth_keyring_ensure_file(d->key_file, "k1", clock_wall_ms(clock_real()) + KEY_LIFE_MS);
    if (e != ERR_OK)
        return fail_because(e, out_why, "create the key file", d->key_file);
    return ensure_tokens(d, out_why);
}

enum err svc_data_open(const char *root, bool amnesia, enum svc_data_use use, struct svc_data **out_data,
                       const char **out_why)
{
    if (strlen(root) >= sizeof((struct svc_data *)0)->root)
        return fail(ERR_TOO_LARGE, out_why, "the path is too long: %s", root);
    struct svc_data *d = calloc(1, sizeof *d);
    if (!d)
        return fail(ERR_NO_MEMORY, out_why, "no memory for %s", root);
    d->amnesia = amnesia;
    d->lock_fd = -1;
    snprintf(d->root, sizeof d->root, "%s", root);
    snprintf(d->key_file, sizeof d->key_file, "%s/keys/capabilities", d->root);
    snprintf(d->revocation_file, sizeof d->revocation_file, "%s/keys/revoked", d->root);

    enum err e = ERR_OK;
    if (!amnesia)
        e = open_on_disk(d, use, out_why);
    else if (access(d->key_file, R_OK) != 0) {
        e = auth_keyring_generate("k1", clock_wall_ms(clock_real()) + KEY_LIFE_MS, &d->memory_keys);
        if (e != ERR_OK)
            fail(e, out_why, "cannot make a key");
    }
    if (e != ERR_OK) {
        svc_data_close(d);
        return e;
    }
    *out_data = d;
    return ERR_OK;
}

void svc_data_close(struct svc_data *d)
{
    if (!d)
        return;
    auth_keyring_unref(d->memory_keys);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    free(d);
}

const char *svc_data_path(const struct svc_data *d)
{
    return d->root;
}

bool svc_data_amnesia(const struct svc_data *d)
{
    return d->amnesia;
}

struct auth_keyring *svc_data_keyring(const struct svc_data *d)
{
    return d->memory_keys;
}

const char *svc_data_key_file(const struct svc_data *d)
{
    return d->memory_keys ? NULL : d->key_file;
}

const char *svc_data_revocation_file(const struct svc_data *d)
{
    return d->revocation_file;
}

static enum err read_or_mint(const struct svc_data *d, const char *service, struct buf *out)
{
    const struct token_row *row = token_row(service);
    char path[PATH_MAX];
    if (!row)
        return ERR_NOT_FOUND;
    snprintf(path, sizeof path, "%s/%s", d->root, row->file);
    if (!d->memory_keys)
        return auth_token_file_read(path, out);
    struct caveats c = {0};
    size_t bad;
    caveats_make(&c, row->aud, row->op, clock_wall_ms(clock_real()));
    return auth_mint(d->memory_keys, (struct str){0}, c.list, 3, out, &bad);
}

enum err svc_data_operator_token(const struct svc_data *d, struct buf *out)
{
    return read_or_mint(d, NULL, out);
}

enum err svc_data_ledger_token(const struct svc_data *d, const char *service, struct buf *out)
{
    CHECK(service != NULL);
    return read_or_mint(d, service, out);
}
