#include "ron/demo/demo.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rt/deadline.h"

enum { PATIENCE_MS = 10000, LOOK_EVERY_US = 20000 };
/* About as long as it takes to read what was printed. */
enum { CHAPTER_PAUSE_MS = 500, CLAIM_PAUSE_MS = 150, LETTER_PAUSE_MS = 5 };

static void pause_ms(struct demo *d, int64_t ms) RT_BLOCKS
{
    if (!d->paced)
        return;
    usleep((useconds_t)ms * 1000);
    d->paused_ms += ms;
}

void demo_chapter(struct demo *d, const char *title)
{
    d->chapter = title;
    if (!cmd_global(d->ctx)->json)
        printf(cmd_global(d->ctx)->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", title);
    fflush(stdout);
    pause_ms(d, CHAPTER_PAUSE_MS);
}

bool demo_claim(struct demo *d, bool holds, const char *fmt, ...)
{
    char text[512];
    bool color = cmd_global(d->ctx)->color;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    d->claims++;
    d->failed += !holds;
    json_array_append_new(d->log,
                          json_pack("{s:s,s:s,s:b}", "chapter", d->chapter, "claim", text, "holds", holds));
    if (!cmd_global(d->ctx)->json)
        printf("  %s%s%s %s\n", color ? (holds ? "\033[32m" : "\033[1;31m") : "",
               holds ? "ok    " : "FAILED", color ? "\033[0m" : "", text);
    fflush(stdout);
    pause_ms(d, CLAIM_PAUSE_MS + LETTER_PAUSE_MS * (int64_t)strlen(text));
    return holds;
}

bool demo_call(struct demo *d, const char *service, int want, const struct client_request *rq,
               struct client_answer *out)
{
    client_call(d->ctx, service, rq, out);
    if (out->err == ERR_OK && out->status == want)
        return true;
    if (out->err != ERR_OK)
        demo_claim(d, false, "the %s did not answer %s (%s)", service, rq->path, err_title(out->err));
    else
        demo_claim(d, false, "the %s answered %s with %d %s instead of %d: %s", service, rq->path,
                   out->status, client_str(out->json, "code"), want, client_str(out->json, "detail"));
    client_free(out);
    return false;
}

bool demo_until(struct demo *d, const char *service, const char *path, const char *member,
                const char *const *values, struct client_answer *out)
{
    struct deadline by = deadline_in_ms(PATIENCE_MS);
    for (;;) {
        if (!demo_call(d, service, 200, &(struct client_request){.path = path}, out))
            return false;
        const char *now = client_str(out->json, member);
        for (const char *const *v = values; *v; v++)
            if (strcmp(now, *v) == 0)
                return true;
        if (deadline_passed(by)) {
            demo_claim(d, false, "%s stays '%s' instead of becoming '%s'", path, now, values[0]);
            client_free(out);
            return false;
        }
        client_free(out);
        usleep(LOOK_EVERY_US);
    }
}
