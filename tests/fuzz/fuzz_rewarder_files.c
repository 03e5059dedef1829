/*
 * What a start reads from the disk, and what a stranger hands to the proof checker: registry.log (replayed and scanned, which
 * must agree on what is there), records of settle.log, and proofs. Structure-aware: most inputs are frames with right checksums
 * and damage chosen by the input, and proofs made from a real tree with one thing changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "services/rewarder/core/tree.h"
#include "services/rewarder/files.h"
#include "take.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) RT_BLOCKS;

/* ---- registry.log ---- */

static enum err count_line(void *ctx, struct bytes line)
{
    CHECK(line.n >= 2);
    ++*(uint64_t *)ctx;
    return ERR_OK;
}

static void build_log(struct take *t, struct buf *log)
{
    unsigned frames = (unsigned)take_number(t, 1) % 6;
    for (unsigned i = 0; i < frames; i++) {
        char line[64];
        int n = snprintf(line, sizeof line, "{\"n\":%u,\"x\":\"%0*d\"}", i,
                         1 + (int)(take_number(t, 1) % 20), 0);
        rewarder_log_frame(bytes_of(line, (size_t)n), log);
    }
    unsigned faults = (unsigned)take_number(t, 1) % 3;
    for (unsigned i = 0; i < faults && log->n; i++)
        log->p[take_number(t, 2) % log->n] ^= (uint8_t)(1u << (take_number(t, 1) % 8));
    if (t->n & 1)
        buf_truncate(log, log->n - take_number(t, 1) % (log->n + 1));
    buf_put(log, t->p, t->n);
}

/* Replay refuses damage before good frames and cuts off a torn end; afterwards it reads the same again. */
static void replay(struct bytes log) RT_BLOCKS
{
    struct store_disk *disk;
    struct rewarder_files f;
    struct rewarder_log_state st;
    uint64_t lines = 0, scanned = 0, again = 0;
    CHECK(store_disk_memory(0, &disk) == ERR_OK);
    CHECK(rewarder_files_open(&f, disk, "r") == ERR_OK);
    if (log.n)
        CHECK(store_file_append(f.log, log.p, log.n) == ERR_OK);
    CHECK(rewarder_log_scan(&f, count_line, &scanned, &st) == ERR_OK);
    enum err e = rewarder_log_replay(&f, count_line, &lines);
    CHECK(e == ERR_OK || e == ERR_CORRUPT);
    CHECK(lines <= scanned || st.torn); /* a scan also wants objects */
    if (e == ERR_OK) {
        CHECK(rewarder_log_append(&f, bytes_of("{\"n\":9}", 7)) == ERR_OK);
        CHECK(rewarder_log_replay(&f, count_line, &again) == ERR_OK && again == lines + 1);
    }
    rewarder_files_close(&f);
    store_disk_destroy(disk);
}

/* ---- settle.log ---- */

static void settle_record(struct take *t)
{
    uint8_t rec[REWARDER_SETTLE_RECORD] = {0}, back[REWARDER_SETTLE_RECORD];
    struct rewarder_settle_record s;
    memcpy(rec, t->p, t->n < sizeof rec ? t->n : sizeof rec);
    if (rewarder_settle_decode(rec, &s)) {
        rewarder_settle_encode(&s, back);
        CHECK(!memcmp(rec, back, 24)); /* four bytes are unused */
    }
    s = (struct rewarder_settle_record){(uint32_t)take_number(t, 4), (uint32_t)take_number(t, 4),
                                        take_number(t, 8), take_number(t, 8)};
    rewarder_settle_encode(&s, rec);
    CHECK(rewarder_settle_decode(rec, &s));
    rec[take_number(t, 1) % 28] ^= (uint8_t)(1u << (take_number(t, 1) % 8));
    CHECK(!rewarder_settle_decode(rec, &s));
}

/* ---- proofs ---- */

enum { LEAVES_MAX = 600 };

static void prove(struct take *t)
{
    static struct rewarder_node leaves[LEAVES_MAX];
    struct rewarder_node block[REWARDER_TREE_BLOCK], node, leaf;
    struct rewarder_tree tree;
    struct rewarder_proof p;
    uint64_t n = 1 + take_number(t, 2) % LEAVES_MAX, index = take_number(t, 2) % n;
    CHECK(rewarder_tree_init(&tree, n) == ERR_OK);
    for (uint64_t i = 0; i < n; i++)
        leaves[i] = rewarder_leaf((struct bytes){NULL, 0}, STR("acct"), (wide_u128)i + 1);
    for (uint64_t b = 0; b * REWARDER_TREE_BLOCK < n; b++) {
        size_t from = b * REWARDER_TREE_BLOCK,
               k = n - from < REWARDER_TREE_BLOCK ? n - from : REWARDER_TREE_BLOCK;
        memcpy(block, leaves + from, k * sizeof *block);
        CHECK(rewarder_nodes_reduce(block, k, &node) == ERR_OK);
        rewarder_tree_set_block(&tree, b, &node);
    }
    CHECK(rewarder_tree_close(&tree) == ERR_OK);
    size_t from = index / REWARDER_TREE_BLOCK * REWARDER_TREE_BLOCK;
    memcpy(block, leaves + from,
           (n - from < REWARDER_TREE_BLOCK ? n - from : REWARDER_TREE_BLOCK) * sizeof *block);
    rewarder_tree_prove(&tree, index, block, &p);
    leaf = leaves[index];
    CHECK(rewarder_proof_check(&p, &leaf, &tree.root) == ERR_OK);
    unsigned what = (unsigned)take_number(t, 1) % 6,
             step = p.steps ? (unsigned)take_number(t, 1) % p.steps : 0;
    uint8_t bit = (uint8_t)(1u << (take_number(t, 1) % 8));
    if (what == 0)
        leaf.sum += bit;
    else if (what == 1)
        leaf.hash.b[take_number(t, 1) % 32] ^= bit;
    else if (what == 2)
        p.count += 1 + take_number(t, 1);
    else if (p.steps == 0)
        p.index += 1; /* nothing else to change: past the end */
    else if (what == 3)
        p.step[step].node.sum ^= bit;
    else if (what == 4)
        p.step[step].node.hash.b[take_number(t, 1) % 32] ^= bit;
    else
        p.step[step].left = !p.step[step].left;
    /* Another count may give the same shape around a leaf: then the path still is one. Everything else is a lie. */
    CHECK(what == 2 || rewarder_proof_check(&p, &leaf, &tree.root) != ERR_OK);
    if (what == 2)
        (void)!rewarder_proof_check(&p, &leaf, &tree.root);
    rewarder_tree_fini(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct take t = {data, size};
    struct buf log;
    switch (take_number(&t, 1) % 4) {
    case 0:
        replay((struct bytes){t.p, t.n});
        break;
    case 1:
        buf_init(&log, 1 << 20);
        build_log(&t, &log);
        replay(buf_bytes(&log));
        buf_fini(&log);
        break;
    case 2:
        settle_record(&t);
        break;
    default:
        prove(&t);
        break;
    }
    return 0;
}
