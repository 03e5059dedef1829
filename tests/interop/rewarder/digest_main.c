/*
 * Prints every byte-determining hash of a few epochs: what must be the same for every compiler, optimisation level, number
 * of threads, partition size and row order. Built several ways by determinism.test.
 * usage: digest THREADS PARTITION SHUFFLE_SEED      (build with -DDIGEST_ROWS=n for a shorter one)
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/hex.h"
#include "base/rng.h"
#include "services/rewarder/core/calc.h"
#include "services/rewarder/core/manifest.h"
#include "services/rewarder/core/snapshot.h"

#ifndef DIGEST_ROWS
#define DIGEST_ROWS 30000
#endif
enum { ROWS = DIGEST_ROWS };

struct work {
    struct rewarder_calc *calc;
    enum rewarder_phase phase;
    atomic_ullong next;
};

static void *parts(void *arg)
{
    struct work *w = arg;
    uint64_t n = rewarder_calc_parts(w->calc, w->phase);
    for (;;) {
        uint64_t i = atomic_fetch_add(&w->next, 1);
        if (i >= n)
            return NULL;
        if (rewarder_calc_part(w->calc, w->phase, i) != ERR_OK)
            abort();
    }
}

static void run_threads(struct rewarder_calc *calc, unsigned threads)
{
    for (enum rewarder_phase ph = REWARDER_SCORES; ph < REWARDER_PHASES; ph++) {
        struct work w = {calc, ph, 0};
        pthread_t t[16];
        for (unsigned i = 1; i < threads; i++)
            if (pthread_create(&t[i], NULL, parts, &w))
                abort();
        parts(&w);
        for (unsigned i = 1; i < threads; i++)
            pthread_join(t[i], NULL);
        if (rewarder_calc_close(calc, ph) != ERR_OK)
            abort();
    }
}

static void snapshot(uint64_t shuffle, bool json, struct buf *b)
{
    static unsigned order[ROWS];
    struct rng values, mix;
    uint64_t usage[ROWS][2];
    rng_seed(&values, 42);
    rng_seed(&mix, shuffle);
    for (unsigned i = 0; i < ROWS; i++) {
        unsigned j = shuffle ? (unsigned)rng_below(&mix, i + 1) : i;
        order[i] = order[j];
        order[j] = i;
        usage[i][0] = rng_below(&values, 1000000);
        usage[i][1] = rng_u64(&values) >> (1 + rng_below(&values, 60));
    }
    buf_printf(b,
               "{\"snapshot\":1,\"tenant\":\"t\",\"epoch\":\"e\",\"dims\":[\"%s\",\"%s\"],\"count\":%d,"
               "\"salt\":\"000102030405060708090a0b0c0d0e0f\"%s",
               shuffle % 2 ? "b" : "a", shuffle % 2 ? "a" : "b", ROWS, json ? ",\"rows\":[" : "}\n");
    for (unsigned i = 0; i < ROWS; i++)
        buf_printf(b, "%s[\"acct:%u\",%llu,%llu]%s", json && i ? "," : "", order[i],
                   (unsigned long long)usage[order[i]][shuffle % 2],
                   (unsigned long long)usage[order[i]][1 - shuffle % 2], json ? "" : "\n");
    if (json)
        buf_puts(b, "]}");
}

static void print_hash(const char *what, const struct sha256 *h)
{
    char hex[SHA256_HEX_CHARS];
    hex_encode(h->b, 32, hex);
    printf("%s %s\n", what, hex);
}

int main(int argc, char **argv)
{
    static const char *const roundings[] = {"floor", "largest_remainder", "webster"};
    static const char *const pools[] = {"1000000007", "170141183460469231731687303715884105727"};
    if (argc != 4)
        return 2;
    unsigned threads = (unsigned)atoi(argv[1]);
    uint64_t partition = strtoull(argv[2], NULL, 10), shuffle = strtoull(argv[3], NULL, 10);
    struct buf in;
    struct rewarder_snapshot s;
    struct rewarder_snapshot_error why;
    buf_init(&in, 64 << 20);
    snapshot(shuffle, shuffle % 3 == 1, &in);
    if (rewarder_snapshot_parse(buf_bytes(&in), shuffle % 3 == 1 ? REWARDER_JSON : REWARDER_NDJSON, ROWS,
                                &s, &why) != ERR_OK) {
        fprintf(stderr, "%s\n", why.reason);
        return 1;
    }
    print_hash("rows", &s.rows.digest);
    for (unsigned k = 0; k < 6; k++) {
        struct buf policy, manifest;
        struct rewarder_policy *p;
        struct rewarder_calc *c;
        const char *member;
        unsigned index;
        struct sha256 h;
        buf_init(&policy, 4096);
        buf_init(&manifest, 1 << 20);
        buf_printf(&policy,
                   "{\"v\":1,\"id\":\"p\",\"asset\":\"ron\",\"funding_account\":\"pool:rewards\",\"dust_"
                   "account\":\"pool:dust\",\"pool\":\"%s\","
                   "\"rounding\":\"%s\",\"min_payout\":\"3\",\"weights\":[{\"dim\":\"a\",\"num\":3,\"den\":"
                   "7},{\"dim\":\"b\",\"num\":1,\"den\":1}]}",
                   pools[k / 3], roundings[k % 3]);
        if (rewarder_policy_create(buf_bytes(&policy), &p, &member) != ERR_OK ||
            rewarder_calc_create(&s.rows, p, p->pool, partition, &c, &index) != ERR_OK)
            return 1;
        run_threads(c, threads);
        struct rewarder_manifest m = {
            STR("t"), STR("e"), p, &s.rows, {.declared = p->pool}, rewarder_calc_result(c)};
        rewarder_manifest_write(&m, &manifest);
        sha256_of(manifest.p, manifest.n, &h);
        print_hash("run.json", &h);
        print_hash("payouts.bin", &rewarder_calc_result(c)->file_hash);
        size_t n = rewarder_tree_bytes(rewarder_calc_tree(c));
        uint8_t *tree = malloc(n);
        rewarder_tree_encode(rewarder_calc_tree(c), tree);
        sha256_of(tree, n, &h);
        print_hash("tree.bin", &h);
        free(tree);
        rewarder_calc_destroy(c);
        rewarder_policy_destroy(p);
        buf_fini(&policy);
        buf_fini(&manifest);
    }
    rewarder_snapshot_fini(&s);
    buf_fini(&in);
    return 0;
}
