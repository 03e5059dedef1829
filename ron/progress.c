#include "ron/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "rt/os.h"

enum { EVERY_NS = 100000000 };

void progress_begin(struct progress *p, const struct cmd_ctx *ctx, const char *what)
{
    *p = (struct progress){.what = what, .on = isatty(STDERR_FILENO) && !cmd_global(ctx)->json};
    progress_step(p, 0, 0);
}

void progress_step(struct progress *p, uint64_t done, uint64_t of)
{
    int64_t now = p->on ? os_now_ns() : 0;
    if (!p->on || (p->shown_ns && now - p->shown_ns < EVERY_NS))
        return;
    p->shown_ns = now;
    if (of)
        fprintf(stderr, "\r%s  %3u %%", p->what, (unsigned)((unsigned __int128)done * 100 / of));
    else if (done)
        fprintf(stderr, "\r%s  %llu", p->what, (unsigned long long)done);
    else
        fprintf(stderr, "\r%s", p->what);
}

void progress_clear(struct progress *p)
{
    if (p->on)
        fprintf(stderr, "\r\033[K");
}

void progress_end(struct progress *p)
{
    progress_clear(p);
    p->on = false;
}
