#include "ron/ledger_verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "ron/verify/check.h"

static FILE *open_in(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, "rb");
}

/* The head that somebody holds: who signed it, and that it is one of this ledger. */
static bool note_fits(struct verify *c, struct str note, struct str vkey, struct str origin)
{
    struct str named;
    snprintf(c->at_file, sizeof c->at_file, "checkpoint");
    if (verify_note_read(note, &named, &c->note_size, &c->note_root) != ERR_OK)
        return verify_wrong(c, "this is no signed note");
    if (vkey.n != 0 && verify_note(note, vkey, &c->note_size, &c->note_root) != ERR_OK)
        return verify_wrong(c, "the note is not signed by that key");
    return str_eq(named, origin) || verify_wrong(c, "the note is of another log");
}

void verify_meets_note(struct verify *c)
{
    if (c->tree.n == c->note_size)
        c->note_met = sha256_eq(&c->root, &c->note_root);
}

/* From the first segment to the last that there must be. */
static int segments(struct verify *c)
{
    bool end = false;
    for (uint32_t no = 1; !end && no <= c->reach.segment; no++) {
        size_t n = 0;
        if (!verify_segment_exists(c, no)) {
            snprintf(c->at_file, sizeof c->at_file, "journal/%08u.seg", no);
            c->at_byte = 0;
            return verify_wrong(c, "segment is missing"), 1;
        }
        uint8_t *p = verify_segment_read(c, no, &n);
        if (p == NULL)
            return c->failed ? 1 : 2;
        bool good = verify_segment(c, p, n, no == c->reach.segment, &end);
        free(p);
        if (!good)
            return 1;
    }
    return verify_reached(c) ? 0 : 1;
}

static int check(const char *dir, struct str note, struct str vkey, bool derived,
                 ledger_verify_entry_fn *fn, void *ctx, struct ledger_verify_report *out)
{
    struct verify *c = calloc(1, sizeof *c);
    size_t n = 0;
    char path[1024];
    memset(out, 0, sizeof *out);
    if (c == NULL)
        return 2;
    *c = (struct verify){.r = out, .dir = dir, .fn = fn, .ctx = ctx};
    snprintf(path, sizeof path, "%s/SUPERBLOCK", dir);
    uint8_t *sb = verify_slurp(path, &n);
    int code = sb == NULL ? 2 : 0;
    snprintf(c->at_file, sizeof c->at_file, "SUPERBLOCK");
    if (sb != NULL &&
        (n != 4096 || memcmp(sb, "RONLEDG1", 8) != 0 || le32_get(sb + 4092) != crc32c(0, sb, 4092)))
        code = (verify_wrong(c, "superblock"), 1);
    if (code == 0) {
        c->align = le32_get(sb + 12);
        c->segment_bytes = le32_get(sb + 16);
        memcpy(c->ledger_id, sb + 28, 16);
        c->tree0 = derived ? open_in(dir, "tree/00") : NULL;
        c->groups = derived ? open_in(dir, "groups") : NULL;
        sha256_of("", 0, &c->root);
        verify_reach(c);
    }
    bool have_note =
        note.n != 0 || vkey.n != 0; /* who names a key wants a signature: an empty note has none */
    if (code == 0 && have_note) {
        size_t origin_n = le16_get(sb + 44);
        code = origin_n <= 4092 - 46 && note_fits(c, note, vkey, str_of((char *)sb + 46, origin_n)) ? 0 : 1;
    }
    free(sb);
    verify_meets_note(c);
    if (code == 0)
        code = segments(c);
    if (code == 0 && !verify_state(c))
        code = 1;
    if (code == 0 && have_note && !c->note_met) {
        snprintf(c->at_file, sizeof c->at_file, "checkpoint");
        code = (verify_wrong(c, "the signed head is not in this journal"), 1);
    }
    if (c->tree0 != NULL)
        fclose(c->tree0);
    if (c->groups != NULL)
        fclose(c->groups);
    verify_table_free(&c->rows);
    verify_table_free(&c->lanes);
    verify_table_free(&c->supply);
    verify_table_free(&c->holds);
    verify_table_free(&c->units);
    verify_table_free(&c->ids);
    verify_table_free(&c->reversals);
    free(c);
    return code;
}

int ledger_verify(const char *dir, struct str note, struct str vkey, ledger_verify_entry_fn *fn, void *ctx,
                  struct ledger_verify_report *out)
{
    return check(dir, note, vkey, true, fn, ctx, out);
}

int ledger_verify_journal(const char *dir, ledger_verify_entry_fn *fn, void *ctx,
                          struct ledger_verify_report *out)
{
    return check(dir, (struct str){NULL, 0}, (struct str){NULL, 0}, false, fn, ctx, out);
}
