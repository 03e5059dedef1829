/*
 * The one error body of the system: RFC 9457 problem details as JSON.
 *
 * Threads     Pure.
 * Memory      Writes into the caller's buffer; look at b->err afterwards.
 */
#ifndef RON_NET_PROBLEM_H
#define RON_NET_PROBLEM_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

struct net_problem_body {
    enum err err;
    int status;                /* 0: the error's */
    struct str detail;         /* one sentence for people; left out when empty */
    struct str corr_id;        /* left out when empty */
    struct bytes details_json; /* a JSON object, written as it is; left out when empty */
};

/* Errors that never leave the process under their own name (ERR_CLOSED, ERR_CORRUPT, ...) are told as their public kin. */
enum err net_problem_public(enum err e);
void net_problem_write(const struct net_problem_body *p, struct buf *b);

#endif
