#include "base/err.h"

#include <errno.h>
#include <stddef.h>

#include "base/check.h"

struct err_row {
    const char *name, *code, *title;
    int status;
    bool retryable;
};

static const struct err_row rows[ERR_COUNT] = {
    [ERR_OK] = {"ERR_OK", "ok", "OK", 200, false},
#define ERR(name, code, status, retryable, title)                                                          \
    [ERR_##name] = {"ERR_" #name, code, title, status, retryable},
#include "base/err.def"
#undef ERR
};

static const struct err_row *err_row(enum err e)
{
    CHECK((unsigned)e < ERR_COUNT);
    return &rows[e];
}

const char *err_name(enum err e)
{
    return err_row(e)->name;
}

const char *err_code(enum err e)
{
    return err_row(e)->code;
}

const char *err_title(enum err e)
{
    return err_row(e)->title;
}

int err_http_status(enum err e)
{
    return err_row(e)->status;
}

bool err_retryable(enum err e)
{
    return err_row(e)->retryable;
}

enum err err_from_errno(int errnum)
{
    switch (errnum) {
    case 0:
        return ERR_OK;
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ENOMEM:
        return ERR_NO_MEMORY;
    case EACCES:
    case EPERM:
    case EROFS: /* nobody may */
        return ERR_PERMISSION;
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case ECONNREFUSED:
        return ERR_REFUSED;
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
        return ERR_DISCONNECTED;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return ERR_BUSY;
    default:
        return ERR_IO;
    }
}
