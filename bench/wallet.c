/*
 * Clients of a wallet that keep their promises: every strand repeats what was refused, nothing is asked twice with another key.
 *
 *   bench.wallet PORT TOKEN-FILE [name=value ...]     prints one line of JSON
 *
 *   conns=64 payers=64 first_payer=0 depth=1 rate=0 seconds=3 run=k balances=0   as in tests/lib/wallet_load.h
 *   acked=FILE    the last nonce acknowledged to each strand, a line each
 *
 * bench/rows/wallet uses it where wrk does not do: open loop, lanes, SIGTERM in the middle.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "wallet_load.h"

static char token[4096];

static const char *value_of(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t n = strlen(name);
    for (int i = 3; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return otherwise;
}

static unsigned number_of(int argc, char **argv, const char *name, const char *otherwise)
{
    return (unsigned)strtoul(value_of(argc, argv, name, otherwise), NULL, 10);
}

static void print_times(const char *name, const struct wallet_load_times *t)
{
    printf(",\"%s\":{\"n\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f}", name,
           (unsigned long long)t->n, wallet_load_ms(t, 0.5), wallet_load_ms(t, 0.99),
           wallet_load_ms(t, 0.999));
}

static void write_acked(const char *file, const struct wallet_load_result *r, unsigned n)
{
    FILE *f = fopen(file, "w");
    CHECK(f);
    for (unsigned i = 0; i < n; i++)
        fprintf(f, "%llu\n", (unsigned long long)r->acked[i]);
    fclose(f);
}

int main(int argc, char **argv)
{
    static struct wallet_load_result r;
    if (argc < 3) {
        fprintf(stderr, "usage: bench.wallet PORT TOKEN-FILE [name=value ...]\n");
        return 2;
    }
    FILE *f = fopen(argv[2], "r");
    CHECK(f && fgets(token, sizeof token, f));
    fclose(f);
    token[strcspn(token, "\n")] = 0;
    struct wallet_load_spec s = {.port = (uint16_t)strtoul(argv[1], NULL, 10),
                                 .token = token,
                                 .run = value_of(argc, argv, "run", "k"),
                                 .conns = number_of(argc, argv, "conns", "64"),
                                 .payers = number_of(argc, argv, "payers", "64"),
                                 .first_payer = number_of(argc, argv, "first_payer", "0"),
                                 .depth = number_of(argc, argv, "depth", "1"),
                                 .balances = number_of(argc, argv, "balances", "0"),
                                 .rate = strtod(value_of(argc, argv, "rate", "0"), NULL),
                                 .ms =
                                     (int64_t)(strtod(value_of(argc, argv, "seconds", "3"), NULL) * 1000)};
    wallet_load_run(&s, &r);
    printf("{\"seconds\":%.3f,\"sent\":%llu,\"ok\":%llu,\"per_s\":%.1f,\"busy\":%llu,\"draining\":%llu,"
           "\"pending\":%llu,"
           "\"unavailable\":%llu,\"conflict\":%llu,\"other\":%llu,\"cut\":%llu,\"unsent\":%llu,\"no_retry_"
           "after\":%llu",
           r.seconds, (unsigned long long)r.sent, (unsigned long long)r.ok, (double)r.ok / r.seconds,
           (unsigned long long)r.busy, (unsigned long long)r.draining, (unsigned long long)r.pending,
           (unsigned long long)r.unavailable, (unsigned long long)r.conflict, (unsigned long long)r.other,
           (unsigned long long)r.cut, (unsigned long long)r.unsent, (unsigned long long)r.no_retry_after);
    print_times("good", &r.good);
    print_times("refused", &r.refused);
    printf("}\n");
    if (r.other)
        fprintf(stderr, "odd: %s\n", r.first_odd);
    if (*value_of(argc, argv, "acked", ""))
        write_acked(value_of(argc, argv, "acked", ""), &r, s.conns);
    return 0;
}
