/*
 * How far the journal must reach at least: files besides it know of segments, groups and entries that once were. A journal whose end is
 * gone is whole in itself, and all the same not the one that was. Looked at before the journal is read: a ledger that runs only adds.
 */
#include "ron/verify/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/hex.h"

/* The highest number in names like 00000012.seg of a folder. */
static uint64_t highest(const struct verify *c, const char *folder, const char *prefix, size_t digits)
{
    char path[1024];
    uint64_t most = 0;
    size_t skip = strlen(prefix);
    snprintf(path, sizeof path, "%s/%s", c->dir, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, prefix, skip) == 0 && strspn(e->d_name + skip, "0123456789") == digits) {
            uint64_t n = strtoull(e->d_name + skip, NULL, 10);
            most = n > most ? n : most;
        }
    if (d != NULL)
        closedir(d);
    return most;
}

static uint64_t rows(const struct verify *c, const char *name, uint64_t bytes)
{
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size / bytes : 0;
}

/* A small text file; empty when there is none. */
static void text(const struct verify *c, const char *name, char out[256])
{
    char path[1024];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    uint8_t *p = verify_slurp(path, &n);
    out[0] = 0;
    if (p != NULL && n < 256) {
        memcpy(out, p, n);
        out[n] = 0;
    }
    free(p);
}

void verify_reach(struct verify *c)
{
    char s[256], hex[65] = "";
    unsigned segment, crc;
    unsigned long long group, seq;
    c->reach = (struct verify_reach){.segment = (uint32_t)highest(c, "journal", "", 8),
                                     .entries = highest(c, "ckpt", "MANIFEST-", 20),
                                     .leaves = rows(c, "tree/00", 32),
                                     .groups = rows(c, "groups", 64)};
    text(c, "BEGUN", s);
    if (sscanf(s, "%8u %8x", &segment, &crc) == 2 && crc32c(0, s, 8) == crc && segment > c->reach.segment)
        c->reach.segment = segment;
    text(c, "CLEAN", s);
    if (sscanf(s, "{\"group_no\":%llu,\"root\":\"sha256:%64[0-9a-f]\",\"seq\":%llu}", &group, hex, &seq) ==
            3 &&
        hex_decode(str_from_c(hex), c->reach.root.b, 32) == ERR_OK) {
        c->reach.clean = true;
        c->reach.clean_group = group;
        c->reach.clean_seq = seq;
    }
}

static bool shorter(struct verify *c, const char *file, const char *rule)
{
    snprintf(c->at_file, sizeof c->at_file, "%s", file);
    c->at_byte = 0;
    return verify_wrong(c, rule);
}

bool verify_reached(struct verify *c)
{
    if (c->reach.groups > c->group)
        return shorter(c, "groups", "the journal ends before the group table");
    if (c->reach.leaves > c->tree.n)
        return shorter(c, "tree/00", "the journal ends before the tree");
    if (c->reach.entries > c->tree.n)
        return shorter(c, "ckpt", "the journal ends before the newest checkpoint");
    if (c->reach.clean && (c->reach.clean_seq != c->tree.n || c->reach.clean_group != c->group ||
                           !sha256_eq(&c->reach.root, &c->root)))
        return shorter(c, "CLEAN", "the journal is not the one that was closed");
    return true;
}
