/*
 * Recipients who ask for their payouts, on the mill: open loop, so that a slow answer delays nobody else's question, and a question
 * that had to wait says so in its time.
 *
 *     bench.payout URL TOKEN_FILE EPOCH ACCOUNTS RATE CONNECTIONS SECONDS       prints one JSON object
 *
 * Each asks for an account acct:%09d below ACCOUNTS, drawn at random. RATE 0 is a closed loop: what the service can do at most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "load/http.h"
#include "load/mill.h"

struct askers {
    struct rng rng;
    const char *token, *epoch;
    uint64_t accounts;
    uint64_t asked[LOAD_MILL_CONNS_MAX]; /* by each slot */
    struct load_complaint complaint;
};

static uint64_t ask(void *app, unsigned slot, bool fresh, bool first_on_conn, struct buf *out)
{
    struct askers *a = app;
    char path[256];
    (void)first_on_conn;
    if (fresh)
        a->asked[slot] = rng_below(&a->rng, a->accounts);
    snprintf(path, sizeof path, "/rewarder/epochs/%s/payouts?account=acct:%09llu", a->epoch,
             (unsigned long long)a->asked[slot]);
    load_http_put(out, "GET", path, a->token, NULL, (struct bytes){NULL, 0});
    return 1;
}

/* Nothing is asked twice: a refusal is an error here. */
static enum load_verdict answered(void *app, unsigned slot, const struct load_answer *answer)
{
    struct askers *a = app;
    (void)slot;
    if (answer->status == 200)
        return LOAD_DONE;
    load_complain(&a->complaint, answer, false);
    return LOAD_FAILED;
}

static bool read_token(const char *path, char out[8192])
{
    FILE *f = fopen(path, "r");
    bool ok = f && fgets(out, 8192, f);
    if (f)
        fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = 0;
    return ok;
}

int main(int argc, char **argv)
{
    static struct askers a;
    static struct load_mill_result r;
    static const struct load_wire wire = {.ask = ask, .parse = load_http_parse, .answered = answered};
    struct load_addr addrs[LOAD_ADDRS_MAX];
    char token[8192];
    size_t n;
    if (argc != 8 || load_addrs_parse(argv[1], addrs, &n) != ERR_OK || !read_token(argv[2], token))
        return 2;
    rng_seed(&a.rng, 1);
    a.token = token;
    a.epoch = argv[3];
    a.accounts = strtoull(argv[4], NULL, 10);
    struct load_mill_spec spec = {.wire = &wire,
                                  .app = &a,
                                  .addrs = addrs,
                                  .n_addrs = n,
                                  .conns = (unsigned)atoi(argv[6]),
                                  .inflight = 1,
                                  .rate = atof(argv[5]),
                                  .ms = (int64_t)(atof(argv[7]) * 1000)};
    if (load_mill_run(&spec, &r) != ERR_OK)
        return 1;
    printf("{\"per_s\": %.0f, \"errors\": %llu, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, "
           "\"max_ms\": %.3f}\n",
           (double)r.done / r.seconds, (unsigned long long)(r.failed + r.cut + r.unanswered),
           load_times_ms(&r.times, 0.5), load_times_ms(&r.times, 0.99), load_times_ms(&r.times, 0.999),
           load_times_ms(&r.times, 1));
    if (a.complaint.status)
        fprintf(stderr, "%d %s\n", a.complaint.status, a.complaint.text);
    return r.failed ? 1 : 0;
}
