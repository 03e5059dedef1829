/*
 * How a call goes: PQsendQueryPrepared and PQpipelineSync put bytes into libpq's buffer, flush() moves them out as the socket
 * takes them, finish() reads until the result, its end and the sync are there. In pipeline mode an error in one statement is
 * over at its sync, so the connection stays usable after a definite refusal; after anything else it is dropped, because what
 * would arrive next could not be told from the answer to the next call.
 */
#include "store/pg.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rt/task.h"

enum { HOSTS_MAX = 16, SLICE_MS = 50, CONNECT_MS = 1000, VERSION_MIN = 150000 };

struct store_pg {
    struct store_pg_config cfg;
    char *dsn, *application;
    char *hosts[HOSTS_MAX], *ports[HOSTS_MAX];
    size_t n_hosts, host; /* host: the one to try first */
    PGconn *c;
    bool ready;
    char why[320];
};

/* ---- waiting ---- */

static void say(struct store_pg *p, const char *what, const char *detail)
{
    snprintf(p->why, sizeof p->why, "%s%s%s", what, detail != NULL && *detail ? ": " : "",
             detail == NULL ? "" : detail);
    for (char *s = p->why; *s; s++)
        if (*s == '\n')
            *s = ' ';
    for (size_t n = strlen(p->why); n > 0 && p->why[n - 1] == ' '; n--)
        p->why[n - 1] = 0;
}

/* ERR_OK: something may be done. Ends when the task is cancelled. */
static enum err wait_fd(int fd, short events, struct deadline by) RT_BLOCKS
{
    struct rt_task *self = rt_task_current();
    for (;;) {
        if (self != NULL && rt_task_canceled(self))
            return ERR_CANCELED;
        int64_t left = deadline_left_ms(by);
        struct pollfd f = {fd, events, 0};
        int n = poll(&f, 1, (int)(left < SLICE_MS ? left : SLICE_MS));
        if (self != NULL)
            rt_task_beat(self);
        if (n > 0)
            return ERR_OK;
        if (n < 0 && errno != EINTR)
            return ERR_DISCONNECTED;
        if (left == 0)
            return ERR_TIMEOUT;
    }
}

static enum err lost(struct store_pg *p, enum err e, const char *what)
{
    say(p, what, e == ERR_TIMEOUT ? "no answer in time" : p->c == NULL ? "" : PQerrorMessage(p->c));
    store_pg_drop(p);
    return e;
}

/* ---- the list of hosts ---- */

static size_t split(const char *list, char **out)
{
    size_t n = 0;
    while (list != NULL && n < HOSTS_MAX) {
        const char *comma = strchr(list, ',');
        out[n] = comma == NULL ? strdup(list) : strndup(list, (size_t)(comma - list));
        CHECK(out[n] != NULL);
        n++;
        list = comma == NULL ? NULL : comma + 1;
    }
    return n;
}

enum err store_pg_create(const struct store_pg_config *cfg, struct store_pg **out)
{
    char *message = NULL;
    PQconninfoOption *all = PQconninfoParse(cfg->dsn, &message);
    bool said = message != NULL;
    PQfreemem(message);
    if (all == NULL)
        return said ? ERR_SYNTAX : ERR_UNAVAILABLE; /* nothing is said by a library that is not there */
    struct store_pg *p = calloc(1, sizeof *p);
    CHECK(p != NULL);
    p->cfg = *cfg;
    p->dsn = strdup(cfg->dsn);
    p->application = strdup(cfg->application == NULL ? "ron" : cfg->application);
    CHECK(p->dsn != NULL && p->application != NULL);
    size_t n_ports = 0;
    for (PQconninfoOption *o = all; o->keyword != NULL; o++) {
        if (strcmp(o->keyword, "host") == 0 && o->val != NULL)
            p->n_hosts = split(o->val, p->hosts);
        if (strcmp(o->keyword, "port") == 0 && o->val != NULL)
            n_ports = split(o->val, p->ports);
    }
    PQconninfoFree(all);
    for (size_t i = n_ports; n_ports == 1 && i < p->n_hosts; i++) {
        p->ports[i] = strdup(p->ports[0]);
        CHECK(p->ports[i] != NULL);
    }
    if (p->n_hosts == 0)
        p->n_hosts = 1;
    *out = p;
    return ERR_OK;
}

void store_pg_drop(struct store_pg *p)
{
    if (p->c != NULL)
        PQfinish(p->c);
    p->c = NULL;
    p->ready = false;
}

void store_pg_destroy(struct store_pg *p)
{
    if (p == NULL)
        return;
    store_pg_drop(p);
    for (size_t i = 0; i < HOSTS_MAX; i++) {
        free(p->hosts[i]);
        free(p->ports[i]);
    }
    explicit_bzero(p->dsn, strlen(p->dsn));
    free(p->dsn);
    free(p->application);
    free(p);
}

bool store_pg_connected(const struct store_pg *p)
{
    return p->ready;
}

const char *store_pg_why(const struct store_pg *p)
{
    return p->why;
}

/* ---- what the server promises ---- */

bool store_pg_sync_names_ok(const char *names, unsigned *out_k)
{
    while (isspace((unsigned char)*names))
        names++;
    if (strncasecmp(names, "ANY", 3) != 0 || !isspace((unsigned char)names[3]))
        return false;
    char *end;
    unsigned long k = strtoul(names + 3, &end, 10);
    while (isspace((unsigned char)*end))
        end++;
    if (k == 0 || k > 1000 || *end != '(')
        return false;
    *out_k = (unsigned)k;
    return true;
}

static enum err judge(struct store_pg *p, const PGresult *r)
{
    const char *fsync = PQgetvalue(r, 0, 0), *pages = PQgetvalue(r, 0, 1), *commit = PQgetvalue(r, 0, 2),
               *names = PQgetvalue(r, 0, 3);
    char text[200];
    unsigned k = 0;
    if (PQserverVersion(p->c) < VERSION_MIN)
        say(p, "PostgreSQL 15 or later is needed, not", PQparameterStatus(p->c, "server_version"));
    else if (strcmp(fsync, "on") != 0)
        say(p, "PostgreSQL must have fsync = on, not", fsync);
    else if (strcmp(pages, "on") != 0)
        say(p, "PostgreSQL must have full_page_writes = on, not", pages);
    else if (strcmp(commit, "on") != 0 && strcmp(commit, "remote_apply") != 0)
        say(p, "PostgreSQL must have synchronous_commit = on, not", commit);
    else if (!store_pg_sync_names_ok(names, &k) || k < p->cfg.quorum) {
        snprintf(text, sizeof text,
                 "PostgreSQL must have synchronous_standby_names = 'ANY k (...)' with k >= %u, not '%.80s'",
                 p->cfg.quorum, names);
        say(p, text, NULL);
    } else
        return ERR_OK;
    return ERR_UNAVAILABLE;
}

/* A plain query before pipeline mode begins. */
static enum err query(struct store_pg *p, const char *sql, struct deadline by, PGresult **out) RT_BLOCKS
{
    if (PQsendQuery(p->c, sql) != 1)
        return lost(p, ERR_DISCONNECTED, "PostgreSQL");
    PGresult *last = NULL;
    for (;;) {
        int busy = PQflush(p->c);
        if (busy < 0 || PQconsumeInput(p->c) != 1) {
            PQclear(last);
            return lost(p, ERR_DISCONNECTED, "PostgreSQL");
        }
        if (!PQisBusy(p->c)) {
            PGresult *r = PQgetResult(p->c);
            if (r == NULL)
                break;
            PQclear(last);
            last = r;
            continue;
        }
        enum err e = wait_fd(PQsocket(p->c), (short)(POLLIN | (busy ? POLLOUT : 0)), by);
        if (e != ERR_OK) {
            PQclear(last);
            return lost(p, e, "PostgreSQL");
        }
    }
    ExecStatusType st = PQresultStatus(last);
    if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK) {
        say(p, "PostgreSQL refused", PQresultErrorMessage(last));
        PQclear(last);
        return ERR_CONFLICT;
    }
    *out = last;
    return ERR_OK;
}

static enum err run(struct store_pg *p, const char *sql, struct deadline by) RT_BLOCKS
{
    PGresult *r = NULL;
    enum err e = query(p, sql, by, &r);
    PQclear(r);
    return e;
}

static enum err check_promise(struct store_pg *p, struct deadline by) RT_BLOCKS
{
    PGresult *r = NULL;
    if (p->cfg.quorum == 0)
        return ERR_OK;
    enum err e =
        query(p,
              "select current_setting('fsync'), current_setting('full_page_writes'), "
              "current_setting('synchronous_commit'), current_setting('synchronous_standby_names')",
              by, &r);
    if (e == ERR_OK)
        e = judge(p, r);
    PQclear(r);
    return e;
}

/* ---- connecting ---- */

static enum err dial(struct store_pg *p, size_t host, struct deadline by) RT_BLOCKS
{
    const char *keys[] = {"dbname", "host", "port", "target_session_attrs", "application_name", NULL};
    const char *values[] = {p->dsn, p->hosts[host], p->ports[host], "read-write", p->application, NULL};
    p->c = PQconnectStartParams(keys, values, 1);
    if (p->c == NULL)
        return ERR_NO_MEMORY;
    PostgresPollingStatusType st = PGRES_POLLING_WRITING;
    while (st != PGRES_POLLING_OK) {
        if (PQstatus(p->c) == CONNECTION_BAD || st == PGRES_POLLING_FAILED)
            return lost(p, ERR_REFUSED, "PostgreSQL is not reached");
        enum err e = wait_fd(PQsocket(p->c), st == PGRES_POLLING_READING ? POLLIN : POLLOUT, by);
        if (e != ERR_OK)
            return lost(p, e, "PostgreSQL is not reached");
        st = PQconnectPoll(p->c);
    }
    return PQsetnonblocking(p->c, 1) == 0 ? ERR_OK : lost(p, ERR_DISCONNECTED, "PostgreSQL");
}

static enum err prepare(struct store_pg *p, struct deadline by) RT_BLOCKS
{
    enum err e = check_promise(p, by);
    if (e == ERR_OK && p->cfg.schema != NULL)
        e = run(p, p->cfg.schema, by);
    for (size_t i = 0; e == ERR_OK && i < p->cfg.n_statements; i++) {
        char text[2048];
        int n = snprintf(text, sizeof text, "prepare %s as %s", p->cfg.statements[i].name,
                         p->cfg.statements[i].sql);
        CHECK(n > 0 && (size_t)n < sizeof text);
        e = run(p, text, by);
    }
    if (e == ERR_OK && PQenterPipelineMode(p->c) != 1)
        e = ERR_DISCONNECTED;
    return e;
}

enum err store_pg_connect(struct store_pg *p, struct deadline by)
{
    rt_lock_check_none("connect to PostgreSQL");
    if (p->ready)
        return ERR_OK;
    enum err e = ERR_REFUSED;
    size_t next = p->host;
    for (size_t i = 0; i < p->n_hosts; i++) {
        size_t host = (p->host + i) % p->n_hosts;
        struct deadline slice = deadline_min(by, deadline_in_ms(CONNECT_MS));
        store_pg_drop(p);
        e = dial(p, host, slice);
        if (e == ERR_OK)
            e = prepare(p, by);
        if (e == ERR_OK) {
            p->host = host;
            p->ready = true;
            p->why[0] = 0;
            return ERR_OK;
        }
        store_pg_drop(p);
        next = (host + 1) % p->n_hosts;
        if (e == ERR_UNAVAILABLE || e == ERR_CONFLICT || e == ERR_CANCELED || deadline_passed(by))
            break;
    }
    p->host = next; /* one that says nothing may have used up the time: the next attempt begins behind it */
    return e == ERR_CONFLICT ? ERR_UNAVAILABLE : e;
}

/* ---- calls ---- */

enum err store_pg_send(struct store_pg *p, size_t which, const struct store_pg_param *v, int n,
                       struct deadline by)
{
    enum { PARAMS_MAX = 12 };
    const char *values[PARAMS_MAX] = {0};
    int lengths[PARAMS_MAX] = {0}, formats[PARAMS_MAX] = {0};
    CHECK(n <= PARAMS_MAX && which < p->cfg.n_statements);
    if (!p->ready)
        return ERR_DISCONNECTED;
    char *copies[PARAMS_MAX] = {0};
    for (int i = 0; i < n; i++) {
        values[i] = v[i].p;
        lengths[i] = v[i].n;
        formats[i] = v[i].text ? 0 : 1;
        if (v[i].text) { /* libpq wants them ended by a zero */
            copies[i] = strndup(v[i].p == NULL ? "" : v[i].p, (size_t)v[i].n);
            CHECK(copies[i] != NULL);
            values[i] = copies[i];
        } else if (v[i].p == NULL) {
            values[i] = "";
        }
    }
    bool sent =
        PQsendQueryPrepared(p->c, p->cfg.statements[which].name, n, values, lengths, formats, 1) == 1 &&
        PQpipelineSync(p->c) == 1;
    for (int i = 0; i < n; i++)
        free(copies[i]);
    for (;;) {
        int busy = sent ? PQflush(p->c) : -1;
        if (busy < 0)
            return lost(p, ERR_DISCONNECTED, "PostgreSQL");
        if (busy == 0)
            return ERR_OK;
        enum err e = wait_fd(PQsocket(p->c), POLLIN | POLLOUT, by);
        if (e != ERR_OK)
            return lost(p, e, "PostgreSQL");
        if (PQconsumeInput(p->c) != 1)
            return lost(p, ERR_DISCONNECTED, "PostgreSQL");
    }
}

/* The next result, which may be NULL at the end of a statement. */
static enum err next_result(struct store_pg *p, struct deadline by, PGresult **out) RT_BLOCKS
{
    while (PQisBusy(p->c)) {
        enum err e = wait_fd(PQsocket(p->c), POLLIN, by);
        if (e != ERR_OK)
            return lost(p, e, "PostgreSQL");
        if (PQconsumeInput(p->c) != 1)
            return lost(p, ERR_DISCONNECTED, "PostgreSQL");
    }
    *out = PQgetResult(p->c);
    return ERR_OK;
}

static enum err verdict(struct store_pg *p, const PGresult *r)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    if (PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK)
        return ERR_OK;
    say(p, "PostgreSQL refused", PQresultErrorMessage(r));
    if (state == NULL)
        return ERR_DISCONNECTED;
    if (strcmp(state, "23505") == 0)
        return ERR_EXISTS;
    /* 08: connection; 57: the operator shut it down; 58, XX: it broke. None says what became of a commit that was under way. */
    if (strncmp(state, "08", 2) == 0 || strncmp(state, "57", 2) == 0 || strncmp(state, "58", 2) == 0 ||
        strncmp(state, "XX", 2) == 0 || strncmp(state, "25", 2) == 0)
        return ERR_DISCONNECTED;
    return ERR_CONFLICT;
}

/* A commit whose wait for the quorum was cancelled is reported as success, with a warning: it is not known to be durable. */
static bool has_wait_canceled(const struct store_pg *p)
{
    return strstr(p->why, "synchronous replication") != NULL;
}

static void on_notice(void *arg, const PGresult *r)
{
    struct store_pg *p = arg;
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    if (text != NULL && strstr(text, "synchronous replication") != NULL)
        say(p, "PostgreSQL", text);
}

enum err store_pg_finish(struct store_pg *p, struct deadline by, PGresult **out)
{
    PGresult *kept = NULL, *r = NULL;
    enum err judged = ERR_DISCONNECTED;
    if (!p->ready)
        return ERR_DISCONNECTED;
    PQsetNoticeReceiver(p->c, on_notice, p);
    p->why[0] = 0;
    unsigned ends = 0; /* one behind each statement; more would mean that nothing is to come */
    for (bool synced = false; !synced;) {
        enum err e = next_result(p, by, &r);
        if (e != ERR_OK) {
            PQclear(kept);
            return e;
        }
        if (r == NULL) {
            if (PQstatus(p->c) != CONNECTION_BAD && ++ends < 4)
                continue;
            PQclear(kept);
            return lost(p, ERR_DISCONNECTED, "PostgreSQL");
        }
        if (PQresultStatus(r) == PGRES_PIPELINE_SYNC) {
            synced = true;
            PQclear(r);
        } else if (kept == NULL) {
            judged = verdict(p, r);
            kept = r;
        } else {
            /* A commit that fails is reported behind the statement's own result. */
            if (judged == ERR_OK)
                judged = verdict(p, r);
            PQclear(r);
        }
    }
    if (judged == ERR_OK && has_wait_canceled(p))
        judged = ERR_DISCONNECTED;
    if (judged != ERR_OK) {
        PQclear(kept);
        if (judged == ERR_DISCONNECTED)
            store_pg_drop(p);
        return judged;
    }
    *out = kept;
    return ERR_OK;
}

enum err store_pg_call(struct store_pg *p, size_t which, const struct store_pg_param *v, int n,
                       struct deadline by, PGresult **out)
{
    rt_lock_check_none("call PostgreSQL");
    enum err e = store_pg_send(p, which, v, n, by);
    return e == ERR_OK ? store_pg_finish(p, by, out) : e;
}

int64_t store_pg_get_int8(const PGresult *r, int row, int column)
{
    CHECK(PQgetlength(r, row, column) == 8);
    return (int64_t)be64_get((const uint8_t *)PQgetvalue(r, row, column));
}

struct bytes store_pg_get_bytes(const PGresult *r, int row, int column)
{
    return bytes_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

uint64_t store_pg_affected(PGresult *r)
{
    return strtoull(PQcmdTuples(r), NULL, 10);
}
