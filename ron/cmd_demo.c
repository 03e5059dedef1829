/* ron demo: money, messages, rewards, a map and a proof, against a running system or one of its own; every claim is checked. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/rng.h"
#include "ron/demo/demo.h"
#include "ron/services.h"

RT_BLOCKS
static bool somebody_answers(struct cmd_ctx *ctx, int64_t timeout_ms)
{
    struct client_answer a;
    client_call(ctx, "ledger",
                &(struct client_request){.path = "/healthz", .no_token = true, .timeout_ms = timeout_ms},
                &a);
    bool yes = a.err == ERR_OK;
    client_free(&a);
    return yes;
}

/* All five are there and ready: a chapter whose service is missing would only say so later. */
RT_BLOCKS
static void demo_system(struct demo *d)
{
    static const char *const five[] = {"ledger", "wallet", "mailbox", "rewarder", "edge"};
    demo_chapter(d, "The system");
    for (size_t i = 0; i < sizeof five / sizeof five[0]; i++) {
        struct client_answer a;
        client_call(d->ctx, five[i],
                    &(struct client_request){
                        .path = "/readyz", .no_token = true, .timeout_ms = 5000, .repeat = true},
                    &a);
        demo_claim(d,
                   ron_service_find(five[i]) && a.err == ERR_OK && a.status == 200 &&
                       json_is_true(json_object_get(a.json, "ready")),
                   "the %s is ready", five[i]);
        client_free(&a);
    }
}

static void demo_begin(struct demo *d, struct cmd_ctx *ctx)
{
    uint8_t word[4];
    rng_secure(word, sizeof word);
    *d = (struct demo){
        .ctx = ctx,
        .log = json_array(),
        .paced = isatty(STDOUT_FILENO) && !cmd_switch(ctx, "fast") && !cmd_global(ctx)->json,
    };
    hex_encode(word, sizeof word, d->run);
    snprintf(d->alice, sizeof d->alice, "demo:%s:alice", d->run);
    snprintf(d->shop, sizeof d->shop, "demo:%s:shop", d->run);
    if (!cmd_global(ctx)->json)
        printf("A day in the life, port %d, names with %s\n", cmd_global(ctx)->base_port, d->run);
}

static int demo_end(struct demo *d, double seconds)
{
    if (cmd_global(d->ctx)->json) {
        json_t *all = json_pack("{s:b,s:i,s:i,s:f,s:O}", "ok", d->failed == 0, "claims", d->claims,
                                "failed", d->failed, "seconds", seconds, "log", d->log);
        json_dumpf(all, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(all);
    } else if (d->failed)
        printf("\n%d of %d claims do not hold.\n", d->failed, d->claims);
    else
        printf("\nAll %d claims hold, checked in %.1f s.\n", d->claims, seconds);
    json_decref(d->log);
    return d->failed ? CMD_FAILED : CMD_OK;
}

RT_BLOCKS
static int run_demo(struct cmd_ctx *ctx, int argc, char **argv)
{
    struct demo d;
    (void)argc, (void)argv;
    bool running = cmd_switch(ctx, "running");
    if (cmd_switch(ctx, "own") || (!running && !somebody_answers(ctx, 1000)))
        return demo_with_own_system(ctx);
    if (running && !somebody_answers(ctx, 10000))
        return cmd_fail(ctx, CMD_UNAVAILABLE, "nobody answers on port %d; start it with: ron up",
                        cmd_global(ctx)->base_port);
    int64_t began = clock_mono_ns(clock_real());
    demo_begin(&d, ctx);
    demo_system(&d);
    demo_money(&d);
    demo_messages(&d);
    demo_rewards(&d);
    demo_tiles(&d);
    demo_proof(&d);
    return demo_end(&d, (double)(clock_mono_ns(clock_real()) - began) / 1e9 - (double)d.paused_ms / 1e3);
}

static const struct cmd_flag flags[] = {
    {"own", CMD_SWITCH, NULL, "start a system for it, even when one is running"},
    {"running", CMD_SWITCH, NULL, "use the running system, never start one"},
    {"fast", CMD_SWITCH, NULL, "no pauses to read by (there are some only on a terminal)"},
    {NULL, CMD_SWITCH, NULL, NULL},
};

static const struct cmd commands[] = {
    {NULL, "", "a day in the life, every claim checked",
     "  ron demo\n  ron demo --fast\n  ron demo --own --json\n  ron demo --running --base-port 7500", flags,
     0, 0, run_demo},
    {.run = NULL},
};

const struct cmd_group cmd_demo = {.noun = "demo",
                                   .summary =
                                       "a day in the life against the running system, or one of its own",
                                   .commands = commands};
