#include "load/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/oap.h"

enum { HEAD_MAX = 65536 };

void load_http_put(struct buf *out, const char *method, const char *path, const char *token,
                   const char *more, struct bytes body)
{
    buf_puts(out, method);
    buf_putc(out, ' ');
    buf_puts(out, path);
    buf_puts(out, " HTTP/1.1\r\nHost: ron\r\nAuthorization: Bearer ");
    buf_puts(out, token);
    if (more != NULL)
        buf_puts(out, more);
    if (body.p != NULL) {
        buf_puts(out, "\r\nContent-Type: application/json\r\nContent-Length: ");
        buf_put_u64(out, body.n);
    }
    buf_puts(out, "\r\n\r\n");
    buf_put_bytes(out, body);
}

enum err load_http_parse(struct bytes in, struct load_answer *out)
{
    const uint8_t *end = memmem(in.p, in.n, "\r\n\r\n", 4);
    if (end == NULL)
        return in.n > HEAD_MAX ? ERR_SYNTAX : ERR_EMPTY;
    size_t head = (size_t)(end - in.p) + 4;
    const char *length = memmem(in.p, head, "\r\nContent-Length: ", 18);
    if (head < 16 || memcmp(in.p, "HTTP/1.", 7) != 0 || length == NULL)
        return ERR_SYNTAX;
    size_t n = strtoul(length + 18, NULL, 10); /* ends at the CRLF at the latest */
    if (in.n - head < n)
        return ERR_EMPTY;
    *out = (struct load_answer){
        .used = head + n, .status = atoi((const char *)in.p + 9), .body = bytes_of(in.p + head, n)};
    return ERR_OK;
}

enum load_verdict load_verdict_of(int status)
{
    return status == 200   ? LOAD_DONE
           : status == 429 ? LOAD_AGAIN
           : status >= 500 ? LOAD_ELSEWHERE
                           : LOAD_FAILED;
}

void load_complain(struct load_complaint *c, const struct load_answer *a, bool oap)
{
    struct net_oap_problem_view v;
    if (c->status != 0)
        return;
    c->status = a->status;
    if (a->status < 400) /* the answer is about many, and not all of them were taken */
        snprintf(c->text, sizeof c->text, "not everything in the request was taken");
    else if (oap && net_oap_problem_get(a->body, &v) == ERR_OK)
        snprintf(c->text, sizeof c->text, "%.*s %.*s %.*s", STR_ARG(v.code), STR_ARG(v.detail),
                 STR_ARG(v.details_json));
    else if (!oap)
        snprintf(c->text, sizeof c->text, "%.*s", (int)(a->body.n < 300 ? a->body.n : 300), a->body.p);
    for (char *p = c->text; *p != 0; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
}
