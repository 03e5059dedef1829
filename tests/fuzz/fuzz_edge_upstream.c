/* Heads of origins' answers from anywhere: every text ends, every bound holds, a status line forgets what came before,
 * and trailers change nothing. */
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"
#include "services/edge/core/upstream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct edge_answer *a = malloc(sizeof *a);
    struct str rest = {(const char *)data, size}, line;
    CHECK(a != NULL);
    *a = (struct edge_answer){.declared = -1};
    while (rest.p) {
        rest = str_cut(rest, '\n', &line);
        bool over = a->headed, begins = !over && !a->in_head && str_starts(line, STR("HTTP/"));
        struct edge_answer before = *a;
        edge_upstream_line(a, line);
        if (over)
            CHECK(memcmp(&before, a, sizeof before) == 0);
        CHECK(memchr(a->etag, 0, sizeof a->etag) && memchr(a->type, 0, sizeof a->type) &&
              memchr(a->location, 0, sizeof a->location));
        CHECK(!a->etag_seen || strlen(a->etag) <= EDGE_ETAG_MAX);
        CHECK(a->declared >= -1);
        if (begins)
            CHECK(!a->etag[0] && !a->type[0] && !a->location[0] && !a->no_store && !a->coded &&
                  a->declared == -1);
    }
    free(a);
    return 0;
}
