/* Paths, tile addresses, origins, redirects, Accept-Encoding, Prefer and compressed tiles from anywhere. */
#include <stdlib.h>

#include "base/check.h"
#include "base/str.h"
#include "services/edge/core/accept.h"
#include "services/edge/core/name.h"
#include "services/edge/core/tile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = {(const char *)data, size}, name, ext, first, second;
    struct edge_origin o;
    struct edge_tile t;
    struct buf b;
    char *room = malloc(size + 1);
    CHECK(room != NULL);
    if (edge_name_decode(s, room, &name) == ERR_OK)
        CHECK(edge_name_ok(name) && str_utf8_valid(name));
    buf_init(&b, 1 << 16);
    second = str_cut(s, '\n', &first);
    if (edge_origin_parse(first, false, &o) == ERR_OK) {
        CHECK(o.path.p[0] == '/' && o.scheme.n == 5);
        if (second.p && edge_url_resolve(first, second, &b) == ERR_OK && edge_url_below(buf_str(&b), &o))
            CHECK(b.n >= first.n || b.n > 8);
    }
    if (edge_tile_parse(first, first, second, &t, &ext) == ERR_OK) {
        struct edge_tile back;
        CHECK(edge_tile_of_id(edge_tile_id(&t), &back) == ERR_OK && back.x == t.x && back.y == t.y &&
              back.z == t.z);
    }
    (void)edge_accepts(s, EDGE_CODING_GZIP);
    CHECK(edge_prefer_parse(s).wait_s <= EDGE_PREFER_WAIT_MAX);
    (void)edge_wants_digest(s);
    (void)edge_mime_ok(s);
    buf_reset(&b);
    if (edge_inflate(EDGE_CODING_GZIP, bytes_of(data, size), &b) == ERR_OK)
        CHECK(b.n <= b.max);
    buf_reset(&b);
    if (edge_inflate(EDGE_CODING_ZSTD, bytes_of(data, size), &b) == ERR_OK)
        CHECK(b.n <= b.max);
    buf_fini(&b);
    free(room);
    return 0;
}
