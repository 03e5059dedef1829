/*
 * Configuration of an instance: sources in, snapshots out, reload all or nothing.
 *
 * A snapshot stays alive until svc_close, so that a task may keep a borrowed pointer for as long as it likes; that is
 * bounded by the number of changes kept (SVC_SNAPSHOTS_MAX), after which one more is refused. A reload that changes no key is for the
 * sake of key files and certificates, and is never one too many.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "svc/internal.h"

enum { CONFIG_FILE_MAX = 1 << 20 };

/* The sections one file may hold; each service reads its own. */
static const char *const sections[] = {"ledger", "wallet",  "mailbox", "rewarder",
                                       "edge",   "console", "tiny",    NULL};

static _Thread_local char last_error[640];

void svc_say_error(const char *sentence)
{
    svc__set_error("%s", sentence);
}

void svc__set_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(last_error, sizeof last_error, fmt, ap);
    va_end(ap);
}

const char *svc_last_error(void)
{
    return last_error;
}

static enum err read_config_file(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        svc__set_error("cannot read the configuration file %s: %s", path, strerror(errno));
        return err_from_errno(errno);
    }
    enum err e = ERR_OK;
    for (;;) {
        uint8_t *room = buf_reserve(out, 65536);
        ssize_t n = room ? read(fd, room, 65536) : 0;
        if (!room || n < 0)
            e = room ? err_from_errno(errno) : ERR_TOO_LARGE;
        if (n <= 0)
            break;
        buf_commit(out, (size_t)n);
    }
    close(fd);
    if (e != ERR_OK)
        svc__set_error("cannot read the configuration file %s (%s)", path, err_title(e));
    return e;
}

/* Fills *out_sources; the text stays in *text. */
static enum err gather(const char *file, const char *const *flags, size_t flag_count, struct buf *text,
                       struct conf_sources *out_sources)
{
    *out_sources = (struct conf_sources){
        .env = (const char *const *)environ, .flags = flags, .flags_n = flag_count, .sections = sections};
    if (!file)
        return ERR_OK;
    enum err e = read_config_file(file, text);
    out_sources->file_name = file;
    out_sources->file_text = buf_str(text);
    return e;
}

/* The list's numbers are any; cut to those of users, another one than was written would be let in. */
enum err svc_check_values(const struct svc_def *def, const struct conf *conf)
{
    const struct svc_config *c = conf_values(conf);
    for (size_t i = 0; i < c->uds_allow_uids.n; i++) {
        int64_t uid = c->uds_allow_uids.v[i];
        if (uid >= 0 && uid < (int64_t)(uid_t)-1)
            continue;
        svc__set_error("%s.uds_allow_uids: %lld is no user's number (0..%lld)", def->name, (long long)uid,
                       (long long)(uid_t)-1 - 1);
        return ERR_BAD_REQUEST;
    }
    return ERR_OK;
}

static enum err load(const struct svc_def *def, const char *file, const char *const *flags,
                     size_t flag_count, struct conf **out_conf)
{
    struct buf text;
    struct conf_sources from;
    struct conf_error why = {0};
    buf_init(&text, CONFIG_FILE_MAX);
    enum err e = gather(file, flags, flag_count, &text, &from);
    if (e == ERR_OK && (e = conf_load(def->config, &from, out_conf, &why)) != ERR_OK)
        svc__set_error("%s", why.text);
    buf_fini(&text);
    if (e == ERR_OK && (e = svc_check_values(def, *out_conf)) != ERR_OK) {
        conf_destroy(*out_conf);
        *out_conf = NULL;
    }
    return e;
}

enum err svc_check_config(const struct svc_def *def, const struct svc_options *opt)
{
    struct conf *c = NULL;
    enum err e = load(def, opt->config_file, opt->flags, opt->flag_count, &c);
    if (e == ERR_OK)
        conf_destroy(c);
    return e;
}

static void adopt(struct svc *s, struct conf *c)
{
    s->snapshots[s->snapshot_count++] = c;
    atomic_store_explicit(&s->conf, c, memory_order_release); /* pairs with the acquire in svc_config */
}

enum err svc__config_open(struct svc *s)
{
    struct conf *c = NULL;
    enum err e = load(s->def, s->config_file, s->flags, s->flag_count, &c);
    if (e == ERR_OK)
        adopt(s, c);
    return e;
}

/* Read and judged, and nothing in force yet. */
struct reading {
    struct conf *conf;
    size_t changed;
    struct net_tls_fresh *tls; /* NULL: there is no TLS */
};

static enum err read_conf(struct svc *s, struct buf *out_diff, struct reading *r)
{
    struct buf text;
    struct conf_sources from;
    struct conf_error why = {0};
    struct conf *old = atomic_load_explicit(&s->conf, memory_order_acquire);
    buf_init(&text, CONFIG_FILE_MAX);
    enum err e = gather(s->config_file, s->flags, s->flag_count, &text, &from);
    if (e == ERR_OK) {
        e = conf_reload(old, &from, &r->conf, &why);
        if (e != ERR_OK)
            svc__set_error("%s", why.text);
    }
    buf_fini(&text);
    if (e != ERR_OK)
        return e;
    r->changed = conf_diff(old, r->conf, out_diff);
    if (r->changed && s->snapshot_count == SVC_SNAPSHOTS_MAX) {
        svc__set_error("changed %d times; restart to go on", SVC_SNAPSHOTS_MAX);
        return ERR_BUSY;
    }
    return ERR_OK;
}

static enum err read_tls(struct svc *s, struct reading *r)
{
    const struct svc_config *c = svc_common(s);
    enum err e = s->tls ? net_tls_read_again(s->tls, &r->tls) : ERR_OK;
    if (e != ERR_OK)
        svc__set_error("cannot use tls.cert %s with tls.key %s (%s)", c->tls_cert, c->tls_key,
                       err_title(e));
    return e;
}

/* Keys and revocations are read and in force in one: they come last of what can fail. */
static enum err take_keys(struct svc *s)
{
    struct auth_file_error where = {0};
    enum err e = auth_reload(s->auth, &where);
    if (e != ERR_OK)
        svc__set_error("key file line %u: %s", where.line, where.reason ? where.reason : err_title(e));
    return e;
}

static void put_in_force(struct svc *s, struct reading *r)
{
    if (r->changed) {
        adopt(s, r->conf);
        r->conf = NULL;
    }
    if (r->tls)
        net_tls_take(s->tls, r->tls);
    r->tls = NULL;
    const struct svc_config *common = svc_common(s);
    struct net_limits limits = svc__limits(s);
    net_server_set_limits(s->server, &limits);
    rt_supervisor_drain_within(s->supervisor, svc__drain_ms(s));
    obs_log_set_level(s->log, (enum obs_level)common->logging_level);
    if (s->tracer)
        obs_tracer_set_sample(s->tracer, (unsigned)(common->otlp_sample * 1e6));
    if (auth_set_cache_ttl(s->auth, common->auth_cache_ttl) != ERR_OK)
        obs_log(s->log, OBS_WARN, "auth_ttl_refused", OBS_END);
    if (s->def->hooks.reloaded)
        s->def->hooks.reloaded(s, s->state);
}

static enum err reload(struct svc *s, struct buf *out_diff)
{
    struct reading r = {0};
    enum err e = read_conf(s, out_diff, &r);
    if (e == ERR_OK)
        e = read_tls(s, &r);
    if (e == ERR_OK)
        e = take_keys(s);
    if (e == ERR_OK)
        put_in_force(s, &r);
    conf_destroy(r.conf);
    net_tls_forget(r.tls);
    if (e != ERR_OK)
        return e;
    obs_gauge_add(obs_gauge(s->families[SVC_M_config_reloads]), 1);
    obs_log(s->log, OBS_INFO, "config_reloaded", OBS_U64("changed", r.changed),
            OBS_STR("diff", buf_str(out_diff)), OBS_END);
    return ERR_OK;
}

/*
 * A signal and any number of admin calls may ask at once, each on a thread of its own. Of two that overlapped the one that had read
 * the older files could be the last to put them in force: a token revoked in between would be good again.
 */
enum err svc_reload(struct svc *s, struct buf *out_diff)
{
    if (atomic_exchange_explicit(&s->reloading, true, memory_order_acquire)) {
        svc__set_error("a reload is under way");
        return ERR_LOCKED;
    }
    enum err e = reload(s, out_diff);
    atomic_store_explicit(&s->reloading, false, memory_order_release); /* pairs with the exchange above */
    return e;
}

const void *svc_config(const struct svc *s)
{
    return conf_values(
        atomic_load_explicit(&s->conf, memory_order_acquire)); /* pairs with the release in adopt */
}

const struct svc_config *svc_common(const struct svc *s)
{
    return svc_config(s);
}

void svc__config_print(struct svc *s, struct buf *out)
{
    conf_print(atomic_load_explicit(&s->conf, memory_order_acquire), out);
}
