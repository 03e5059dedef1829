/*
 * What a proof costs: inclusion proofs at random places of a tree, read from its stored nodes as the ledger does, and their
 * verification as a stranger does it; microseconds of CPU each.
 *
 *   bench.proof [LEAVES [PROOFS]]     (10,000,000, 200,000)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/rng.h"
#include "services/ledger/core/merkle.h"

enum { STEP = 4096 };

struct tree {
    struct sha256 *levels[MERKLE_LEVELS];
};

static void put(void *ctx, unsigned level, uint64_t index, const struct sha256 *h)
{
    ((struct tree *)ctx)->levels[level][index] = *h;
}

static enum err get(void *ctx, unsigned level, uint64_t index, struct sha256 *out)
{
    *out = ((struct tree *)ctx)->levels[level][index];
    return ERR_OK;
}

static void grow(struct tree *t, uint64_t leaves, struct ledger_frontier *f)
{
    struct ledger_node_sink sink = {put, t};
    struct sha256 some[STEP];
    for (unsigned level = 0; level < MERKLE_LEVELS && leaves >> level != 0; level++)
        CHECK((t->levels[level] = malloc((leaves >> level) * sizeof *t->levels[level])) != NULL);
    ledger_frontier_init(f);
    while (f->n < leaves) {
        uint64_t n = leaves - f->n < STEP ? leaves - f->n : STEP;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t number = f->n + i;
            ledger_merkle_leaf(bytes_of(&number, sizeof number), &some[i]);
        }
        ledger_frontier_append_many(f, some, n, &sink);
    }
}

static double cpu_us(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

struct proof {
    uint64_t index;
    struct sha256 path[MERKLE_PATH_MAX];
    size_t n;
};

int main(int argc, char **argv)
{
    uint64_t leaves = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    size_t proofs = argc > 2 ? strtoul(argv[2], NULL, 10) : 200000;
    struct tree t = {{NULL}};
    struct ledger_node_source src = {get, &t};
    struct ledger_frontier f;
    struct sha256 root;
    struct rng rng;
    CHECK(leaves > 0 && proofs > 0);
    grow(&t, leaves, &f);
    ledger_frontier_root(&f, &root);
    rng_seed(&rng, 1);
    struct proof *v = calloc(proofs, sizeof *v);
    CHECK(v != NULL);
    for (size_t i = 0; i < proofs; i++)
        v[i].index = rng_u64(&rng) % leaves;
    double began = cpu_us();
    for (size_t i = 0; i < proofs; i++)
        CHECK(ledger_merkle_inclusion(&src, v[i].index, leaves, v[i].path, &v[i].n) == ERR_OK);
    double made = cpu_us();
    for (size_t i = 0; i < proofs; i++)
        CHECK(ledger_merkle_verify_inclusion(&t.levels[0][v[i].index], v[i].index, leaves, v[i].path,
                                             v[i].n, &root) == ERR_OK);
    double checked = cpu_us();
    printf("{\"leaves\":%llu,\"proofs\":%zu,\"make_us\":%.3f,\"verify_us\":%.3f}\n",
           (unsigned long long)leaves, proofs, (made - began) / (double)proofs,
           (checked - made) / (double)proofs);
    for (unsigned level = 0; level < MERKLE_LEVELS; level++)
        free(t.levels[level]);
    free(v);
}
