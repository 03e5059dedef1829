/* The edge: a map tile out of a pack, named by its hash, and HTTP as the standard has it. */
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "ron/demo/demo.h"

static const char tile[] = "/edge/tiles/demo/0/0/0.mvt";

/* "sha256:<hex>" in quotes, as it stands in an ETag. */
static bool etag_names(const struct client_answer *a, const void *p, size_t n)
{
    struct sha256 hash;
    char text[SHA256_TEXT_CHARS], quoted[SHA256_TEXT_CHARS + 4];
    sha256_of(p, n, &hash);
    sha256_format(&hash, text);
    snprintf(quoted, sizeof quoted, "\"%s\"", text);
    return strcmp(a->etag, quoted) == 0;
}

RT_BLOCKS
static bool conditional(struct demo *d, const char *etag)
{
    struct client_answer a;
    char header[160];
    snprintf(header, sizeof header, "If-None-Match: %s", etag);
    if (!demo_call(d, "edge", 304,
                   &(struct client_request){.path = tile, .no_token = true, .headers = {header}}, &a))
        return false;
    bool ok = demo_claim(d, a.body.n == 0, "who has it already gets 304 and no byte");
    client_free(&a);
    return ok;
}

RT_BLOCKS
static bool part(struct demo *d, const struct client_answer *whole)
{
    struct client_answer a;
    if (!demo_call(
            d, "edge", 206,
            &(struct client_request){.path = tile, .no_token = true, .headers = {"Range: bytes=2-9"}}, &a))
        return false;
    bool ok =
        demo_claim(d,
                   a.body.n == 8 && whole->body.n >= 10 && memcmp(a.body.p, whole->body.p + 2, 8) == 0 &&
                       strcmp(a.etag, whole->etag) == 0,
                   "bytes 2-9 are bytes 2-9 of the same tile");
    client_free(&a);
    return ok;
}

void demo_tiles(struct demo *d)
{
    struct client_answer a, about;
    demo_chapter(d, "A map");
    if (!demo_call(d, "edge", 200, &(struct client_request){.path = tile, .no_token = true}, &a))
        return;
    if (demo_claim(d, a.body.n > 0 && etag_names(&a, a.body.p, a.body.n),
                   "a tile of %zu bytes came from a pack, and its ETag is its SHA-256", a.body.n) &&
        conditional(d, a.etag) && part(d, &a) &&
        demo_call(d, "edge", 200,
                  &(struct client_request){.path = "/edge/tiles/demo.json", .no_token = true}, &about)) {
        demo_claim(d, strcmp(client_str(about.json, "tilejson"), "3.0.0") == 0,
                   "TileJSON tells a map library where the tiles are");
        client_free(&about);
    }
    client_free(&a);
}
