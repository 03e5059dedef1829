#include "ron/bench_rows.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 32, NAME_CHARS = 64, FIXED_ARGS = 8 };

static bool usable(const char *path)
{
    return access(path, X_OK) == 0;
}

/* The program bench/peers; false: there is none. */
static bool find_peers(char out[PATH_MAX])
{
    const char *named = getenv("RON_BENCH");
    char self[PATH_MAX - 32];
    if (named != NULL) {
        snprintf(out, PATH_MAX, "%s/peers", named);
        return usable(out);
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = 0;
        for (int up = 0; up < 3; up++) { /* build/release/ron lies two folders below the top */
            char *slash = strrchr(self, '/');
            if (slash != NULL)
                *slash = 0;
        }
        snprintf(out, PATH_MAX, "%s/bench/peers", self);
        if (usable(out))
            return true;
    }
    snprintf(out, PATH_MAX, "bench/peers");
    return usable(out);
}

int bench_rows_run(struct cmd_ctx *ctx, const char *service, int argc, char **argv)
{
    char peers[PATH_MAX], names[ROWS_MAX][NAME_CHARS], out[] = "--out", place[] = "ron-bench",
                                                       seconds[] = "--seconds";
    char *args[ROWS_MAX + FIXED_ARGS];
    int n = 0;
    if (argc > ROWS_MAX)
        return cmd_fail(ctx, CMD_USAGE, "at most %d rows", ROWS_MAX);
    if (!find_peers(peers))
        return cmd_fail(ctx, CMD_FAILED,
                        "rows run beside their peers in a clone of the repository: make bench ROW=%s%s%s",
                        service, argc > 0 ? "-" : "", argc > 0 ? argv[0] : "");
    args[n++] = peers;
    for (int i = 0; i < argc || i == 0; i++) {
        snprintf(names[i], NAME_CHARS, "%s%s%s", service, argc > 0 ? "-" : "", argc > 0 ? argv[i] : "");
        args[n++] = names[i];
    }
    args[n++] = out;
    args[n++] = place;
    const char *for_s = cmd_flag(ctx, "seconds", NULL);
    char text[32];
    if (for_s != NULL) {
        snprintf(text, sizeof text, "%.31s", for_s);
        args[n++] = seconds;
        args[n++] = text;
    }
    args[n] = NULL;
    fflush(stdout);
    execv(peers, args);
    return cmd_fail(ctx, CMD_FAILED, "cannot start %s: %s", peers, strerror(errno));
}
