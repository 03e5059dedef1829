/*
 * What the frame costs: the tiny service of the tests with one route that answers at once, beside a bare server that has the
 * same route, limits and number of loops but no frame around it.
 *
 *   bench.frame [alone]      prints the service's port and the bare server's (alone: only the service runs, as a process
 *                            would); ends when its input ends
 *
 * The service counts every request, times it and begins and ends a span around its handler, as all services do. A loop of
 * each server is a thread of its own, named `listener` and `bare`, so that bench/rows/frame can tell their CPU time apart.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "obs/span.h"
#include "svc/internal.h"
#include "tiny.h"

static struct svc *service;
static struct net_server *bare;

static void reply(struct net_req *rq)
{
    net_reply(rq, 200, &(struct net_headers){.type = "text/plain"}, bytes_of("ok\n", 3));
}

static void observed_get(struct net_req *rq, void *ctx)
{
    struct obs_span span;
    (void)ctx;
    obs_span_begin(svc_tracer(service), NULL, "get", &span);
    reply(rq);
    obs_span_end(svc_tracer(service), &span, ERR_OK);
}

static void bare_get(struct net_req *rq, void *ctx)
{
    (void)ctx;
    reply(rq);
}

static const struct net_route observed_routes[] = {
    {.method = "GET", .pattern = "/direct", .fn = observed_get}, {.method = NULL}};
static const struct net_route bare_route = {.method = "GET", .pattern = "/direct", .fn = bare_get};

RT_BLOCKS
static void *bare_loop(void *arg)
{
    (void)arg;
    prctl(PR_SET_NAME, "bare");
    CHECK(net_server_run(bare, 0, NULL) == ERR_OK);
    return NULL;
}

static void open_service(const char *dir, struct svc_data **out_data, const struct svc_def *def)
{
    const char *why = "";
    static const char *const flags[] = {"--bind=127.0.0.1:0", "--http.threads=1"};
    struct svc_options opt = {.flags = flags, .flag_count = 2, .quiet = true};
    if (svc_data_open(dir, true, SVC_DATA_SHARED, out_data, &why) != ERR_OK) {
        fprintf(stderr, "bench.frame: %s\n", why);
        exit(1);
    }
    opt.data = *out_data;
    if (svc_open(def, &opt, &service) != ERR_OK || svc_start(service) != ERR_OK) {
        fprintf(stderr, "bench.frame: %s\n", svc_last_error());
        exit(1);
    }
}

RT_BLOCKS
static void run_beside(void)
{
    struct net_listen listen = {.bind = "127.0.0.1:0"};
    struct net_routes set = {&bare_route, 1, NULL};
    struct net_server_config config = {.listen = &listen,
                                       .listen_count = 1,
                                       .routes = &set,
                                       .routes_count = 1,
                                       .limits = svc__limits(service)};
    pthread_t loop;
    CHECK(net_server_create(&config, &bare) == ERR_OK && pthread_create(&loop, NULL, bare_loop, NULL) == 0);
    printf("%d %u\n", svc_port(service), net_server_port(bare, 0));
    fflush(stdout);
    char c;
    while (read(STDIN_FILENO, &c, 1) > 0)
        ;
    net_server_stop(bare);
    pthread_join(loop, NULL);
    net_server_destroy(bare);
}

RT_BLOCKS
int main(int argc, char **argv)
{
    bool alone = argc > 1 && strcmp(argv[1], "alone") == 0;
    struct svc_data *data;
    struct svc_def def = tiny_svc;
    char dir[] = "/tmp/ron-bench-frame-XXXXXX", c;
    if (!alone)
        def.routes = observed_routes;
    CHECK(mkdtemp(dir));
    open_service(dir, &data, &def);
    if (!alone) {
        run_beside();
    } else {
        printf("%d\n", svc_port(service));
        fflush(stdout);
        while (read(STDIN_FILENO, &c, 1) > 0)
            ;
    }
    int left = svc_drain(service);
    svc_close(service);
    svc_data_close(data);
    CHECK(rmdir(dir) == 0); /* amnesia: nothing was written */
    return left;
}
