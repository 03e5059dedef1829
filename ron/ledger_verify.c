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

int ledger_verify(const char *dir, struct str note, struct str vkey, ledger_verify_entry_fn *fn, void *ctx,
                  struct ledger_verify_report *out)
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
        c->tree0 = open_in(dir, "tree/00");
        c->groups = open_in(dir, "groups");
        sha256_of("", 0, &c->root);
    }
    bool have_note = note.n != 0;
    if (code == 0 && have_note) {
        size_t origin_n = le16_get(sb + 44);
        code = origin_n <= 4092 - 46 && note_fits(c, note, vkey, str_of((char *)sb + 46, origin_n)) ? 0 : 1;
    }
    free(sb);
    verify_meets_note(c);
    bool end = false;
    for (uint32_t no = 1; code == 0 && !end && verify_segment_exists(c, no); no++) {
        uint8_t *p = verify_segment_read(c, no, &n);
        if (p == NULL) {
            code = c->failed ? 1 : 2;
            break;
        }
        if (!verify_segment(c, p, n, !verify_segment_exists(c, no + 1), &end))
            code = 1;
        free(p);
    }
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
