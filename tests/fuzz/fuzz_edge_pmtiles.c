/* PMTiles headers and directories from anywhere: refused with a reason, or every entry within its section. */
#include <stdlib.h>

#include "base/check.h"
#include "services/edge/core/pmtiles.h"

static enum err read_memory(void *ctx, uint64_t offset, size_t n, uint8_t *out)
{
    const struct bytes *b = ctx;
    if (offset > b->n || n > b->n - offset)
        return ERR_RANGE;
    memcpy(out, b->p + offset, n);
    return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct edge_pmtiles_header h;
    struct edge_dir dir;
    struct edge_fault f = {""};
    struct bytes file = {data, size};
    struct edge_pmtiles_limits limits = {1 << 16, 1 << 20};
    enum err e = edge_pmtiles_header_decode(file, size, &h, &f);
    if (e == ERR_OK)
        e = edge_pmtiles_walk(&h, &limits, read_memory, &file, &dir, &f);
    if (e != ERR_OK) {
        CHECK(f.text[0] != 0);
        return 0;
    }
    for (size_t i = 0; i < dir.n; i++) {
        CHECK(dir.list[i].run > 0 && dir.list[i].offset + dir.list[i].length <= h.data.length);
        CHECK(i == 0 || dir.list[i].id >= dir.list[i - 1].id + dir.list[i - 1].run);
        CHECK(edge_dir_find(dir.list, dir.n, dir.list[i].id) == &dir.list[i]);
    }
    free(dir.list);
    return 0;
}
