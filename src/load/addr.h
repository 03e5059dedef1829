/*
 * Where a load goes: http://host:port, unix:/path (HTTP), oap://host:port, oap+unix:/path; several, separated by commas.
 */
#ifndef RON_LOAD_ADDR_H
#define RON_LOAD_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

enum { LOAD_ADDRS_MAX = 8 };

struct load_addr {
    struct sockaddr_storage at;
    socklen_t at_n;
    bool oap;
    char text[200]; /* as it was written */
};

/* ERR_SYNTAX: none, too many, or one that is none of the above (TLS is not spoken); ERR_NOT_FOUND: a name that does not resolve;
 * ERR_CONFLICT: HTTP and OAP in one list. *out_n is how many are good. */
NODISCARD enum err load_addrs_parse(const char *list, struct load_addr out[LOAD_ADDRS_MAX], size_t *out_n);

#endif
