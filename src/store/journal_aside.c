/*
 * Setting the last frame aside: a group that was written here but that the replicated stream does not have was never
 * acknowledged. It is copied into a file of its own, flushed, and then zeroed in its segment (with the segment's header when it
 * was the segment's first frame), which leaves the journal as if a power cut had come before it.
 *
 * A crash between the two leaves both: the next opening does it again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "store/file_replace.h"
#include "store/journal_internal.h"

static enum err zero_range(struct store_journal *j, uint32_t segment_no, uint32_t from,
                           uint32_t end) RT_BLOCKS
{
    char path[STORE_PATH_MAX];
    struct store_file *f;
    store_journal_segment_path(path, j->dir, segment_no);
    uint8_t *zeros = calloc(1, end - from);
    enum err e = zeros == NULL ? ERR_NO_MEMORY : store_file_open(j->cfg.disk, path, STORE_WRITE, &f);
    if (e == ERR_OK) {
        e = store_file_pwrite(f, zeros, end - from, from);
        if (e == ERR_OK)
            e = store_file_sync(f);
        store_file_close(f);
    }
    free(zeros);
    return e;
}

enum err store_journal_set_aside(struct store_journal *j, struct store_pos at, const char *path)
{
    CHECK_MAGIC(j, STORE_JOURNAL_MAGIC);
    struct buf b;
    struct store_frame f;
    buf_init(&b, j->cfg.layout.segment_bytes);
    enum err e = store_journal_read(j, at, &b, &f);
    if (e == ERR_OK && f.group_no != j->head.last_group)
        e = ERR_RANGE;
    if (e == ERR_OK)
        e = store_file_replace(j->cfg.disk, path, buf_bytes(&b));
    store_journal_fail(j); /* what it knows of its end is no longer so */
    if (e == ERR_OK)
        e = zero_range(j, at.segment, at.offset == STORE_SEGMENT_HEADER ? 0 : at.offset,
                       at.offset + (uint32_t)b.n);
    buf_fini(&b);
    return e;
}
