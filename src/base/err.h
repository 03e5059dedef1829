/*
 * The one list of errors. Every fallible function of the project returns enum err and is NODISCARD;
 * out-parameters are untouched unless it returned ERR_OK. Bugs are not errors: see check.h.
 */
#ifndef RON_BASE_ERR_H
#define RON_BASE_ERR_H

#include <stdbool.h>

#define NODISCARD __attribute__((warn_unused_result))

enum err {
    ERR_OK = 0,
#define ERR(name, code, status, retryable, title) ERR_##name,
#include "base/err.def"
#undef ERR
    ERR_COUNT
};

const char *err_name(enum err e);  /* "ERR_BUSY", for logs */
const char *err_code(enum err e);  /* "busy", stable, for clients */
const char *err_title(enum err e); /* "Busy" */
int err_http_status(enum err e);   /* 429; 200 for ERR_OK */
bool err_retryable(enum err e);

/* The only place where errno becomes an enum err. */
enum err err_from_errno(int errnum);

#endif
