/*
 * How a command talks to a running service: one HTTP request, the operator's token, and an exit code that means something.
 *
 *     struct client_answer a;
 *     int status = client_call(ctx, "wallet", &(struct client_request){.path = "/v1/balance?…"}, &a);
 *     if (status != CMD_OK)
 *         return client_finish(ctx, &a, status);        says what the service said
 *     … json_t *body = a.json …
 *     client_free(&a);
 *
 * Ownership   The answer owns its bytes and its parsed JSON; client_free (or client_finish) ends both.
 */
#ifndef RON_CLIENT_H
#define RON_CLIENT_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "ron/cmd.h"
#include "ron/progress.h"
#include "rt/lock.h"

struct client_request {
    const char *method;     /* NULL: GET, or POST with a body */
    const char *path;       /* with query, already encoded */
    const char *body;       /* JSON, NULL: none */
    size_t body_n;          /* 0: strlen */
    const char *type;       /* NULL: application/json */
    const char *headers[8]; /* more headers */
    int64_t timeout_ms;     /* 0: 10 s */
    size_t answer_max;      /* largest body; 0: 64 MiB */
    bool no_token;
    /* Retries 429, 503 and broken connections until the time-out; only for requests that may be repeated. */
    bool repeat;
    struct progress *upload; /* told how much of the body is out; NULL: nobody is */
};

struct client_answer {
    enum err err; /* no answer: why */
    int status;
    struct buf body;
    json_t *json; /* NULL unless the body is JSON */
    char etag[96], location[640], replayed[8];
    char where[256];         /* who was asked */
    struct progress *upload; /* of the request */
};

/* Follows a 307 to another node. CMD_OK for 2xx, CMD_REFUSED for other 4xx, CMD_UNAVAILABLE for 429, 5xx and no answer. */
int client_call(struct cmd_ctx *ctx, const char *service, const struct client_request *rq,
                struct client_answer *out) RT_BLOCKS;

/* Says on stderr what the service said (or that it is not there, and how to start it), frees, returns `status`. */
int client_finish(struct cmd_ctx *ctx, struct client_answer *a, int status);
void client_free(struct client_answer *a);

/* Prints the body as it came (--json), newline added. */
void client_print_raw(const struct client_answer *a);
/* For answers that no command says in its own way: a line per member, or as it came with --json. */
void client_print(struct cmd_ctx *ctx, const struct client_answer *a);

/* What was answered, either way: client_print, or client_finish. */
int client_show(struct cmd_ctx *ctx, struct client_answer *a, int status);

/* What RON_<SERVICE>_URL says, or --config, or else http://127.0.0.1:<port>. */
const char *client_base_url(const struct cmd_ctx *ctx, const char *service, char out[256]);
/* The token to present; false: there is none (said on stderr). */
bool client_token(struct cmd_ctx *ctx, struct buf *out);
/* The one in this file; false: it cannot be used (said on stderr, with what to do). */
bool client_token_file(struct cmd_ctx *ctx, const char *path, struct buf *out);
/* Percent-encodes for a path segment or query value. */
void client_encode(const char *text, struct buf *out);

/* Members of a JSON object, with "" and 0 for what is not there. */
const char *client_str(const json_t *object, const char *name);
long long client_int(const json_t *object, const char *name);

#endif
