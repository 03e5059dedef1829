/*
 * HTTP/1.1 as a load needs it: requests with a token, answers with a Content-Length (the services send no other).
 *
 * Threads     Pure.
 */
#ifndef RON_LOAD_HTTP_H
#define RON_LOAD_HTTP_H

#include "load/mill.h"

/* `more`: further header lines, each with its CRLF; may be NULL. A request without a body has body.p NULL. */
void load_http_put(struct buf *out, const char *method, const char *path, const char *token,
                   const char *more, struct bytes body);
enum err load_http_parse(struct bytes in, struct load_answer *out); /* for struct load_wire */
/* What one makes of a status when the request may be repeated: DONE for 200, AGAIN for 429, ELSEWHERE for 5xx, else FAILED. */
enum load_verdict load_verdict_of(int status);

/* The first refusal, kept for whoever runs the load. */
struct load_complaint {
    int status;
    char text[400];
};
void load_complain(struct load_complaint *c, const struct load_answer *a, bool oap);

#endif
