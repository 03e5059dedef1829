#include "services/edge/core/pack_id.h"

void edge_pack_id(enum edge_pack_kind kind, const struct edge_file_id *file, struct bytes head,
                  struct sha256 *out)
{
    static const char tag[] = "RON-EDGE-PACK1"; /* with its zero byte */
    uint8_t numbers[44];
    struct sha256 head_hash;
    le32_put(numbers, (uint32_t)kind);
    le64_put(numbers + 4, file->dev);
    le64_put(numbers + 12, file->ino);
    le64_put(numbers + 20, file->size);
    le64_put(numbers + 28, file->mtime_ns);
    le64_put(numbers + 36, file->ctime_ns);
    sha256_of(head.p, head.n, &head_hash);
    const struct bytes parts[] = {
        {(const uint8_t *)tag, sizeof tag}, {numbers, sizeof numbers}, {head_hash.b, sizeof head_hash.b}};
    sha256_of_parts(parts, 3, out);
}

void edge_dir_id_begin(struct sha256_ctx *c)
{
    static const char tag[] = "RON-EDGE-DIR1";
    sha256_init(c);
    sha256_update(c, tag, sizeof tag);
}

void edge_dir_id_add(struct sha256_ctx *c, struct str path, const struct sha256 *digest)
{
    sha256_update(c, path.p, path.n);
    sha256_update(c, "", 1);
    sha256_update(c, digest->b, sizeof digest->b);
}
