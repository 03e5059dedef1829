#include "rt/topology.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"

const char *rt_queue_kind_name(enum rt_queue_kind k)
{
    static const char *const names[] = {"mpsc", "broadcast", "watch", "interval", "semaphore"};
    CHECK((unsigned)k < sizeof names / sizeof *names);
    return names[k];
}

const char *rt_policy_name(enum rt_policy p)
{
    static const char *const names[] = {"reject", "drop oldest", "wait", "retry once", "last wins", "lag"};
    CHECK((unsigned)p < sizeof names / sizeof *names);
    return names[p];
}

const char *rt_on_fail_name(enum rt_on_fail f)
{
    static const char *const names[] = {"restart", "escalate", "abort"};
    CHECK((unsigned)f < sizeof names / sizeof *names);
    return names[f];
}

void rt_topology_init(struct rt_topology *t, const char *service)
{
    memset(t, 0, sizeof *t);
    t->service = service;
}

void rt_topology_add_task(struct rt_topology *t, struct rt_topology_task row)
{
    CHECK(t->tasks_n < RT_TOPOLOGY_ROWS_MAX);
    t->tasks[t->tasks_n++] = row;
}

void rt_topology_add_queue(struct rt_topology *t, struct rt_topology_queue row)
{
    CHECK(t->queues_n < RT_TOPOLOGY_ROWS_MAX);
    t->queues[t->queues_n++] = row;
}

void rt_topology_add_lock(struct rt_topology *t, struct rt_topology_lock row)
{
    CHECK(t->locks_n < RT_TOPOLOGY_ROWS_MAX);
    t->locks[t->locks_n++] = row;
}

void rt_topology_add_timeout(struct rt_topology *t, struct rt_topology_timeout row)
{
    CHECK(t->timeouts_n < RT_TOPOLOGY_ROWS_MAX);
    t->timeouts[t->timeouts_n++] = row;
}

const struct rt_topology_task *rt_topology_find_task(const struct rt_topology *t, const char *name)
{
    for (size_t i = 0; i < t->tasks_n; i++) {
        if (strcmp(t->tasks[i].name, name) == 0)
            return &t->tasks[i];
    }
    return NULL;
}

const struct rt_topology_queue *rt_topology_find_queue(const struct rt_topology *t, const char *name)
{
    for (size_t i = 0; i < t->queues_n; i++) {
        if (strcmp(t->queues[i].name, name) == 0)
            return &t->queues[i];
    }
    return NULL;
}

/* Walks "a, b,c": the next name, or an empty one at the end. */
static struct str name_next(const char **list)
{
    const char *p = *list + strspn(*list, ", ");
    size_t n = strcspn(p, ", ");
    *list = p + n;
    return str_of(p, n);
}

static bool list_has(const char *list, const char *name)
{
    for (struct str s = name_next(&list); s.n > 0; s = name_next(&list)) {
        if (str_eq_c(s, name))
            return true;
    }
    return false;
}

/* Output. */

static void put_json(struct buf *out, const char *text)
{
    buf_putc(out, '"');
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *p);
    }
    buf_putc(out, '"');
}

static void put_json_member(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, "\"%s\":", key);
    put_json(out, text);
}

static void put_json_names(struct buf *out, const char *key, const char *list)
{
    buf_printf(out, ",\"%s\":[", key);
    const char *comma = "";
    for (struct str s = name_next(&list); s.n > 0; s = name_next(&list)) {
        buf_printf(out, "%s\"%.*s\"", comma, STR_ARG(s));
        comma = ",";
    }
    buf_putc(out, ']');
}

static void json_task(const struct rt_topology_task *k, struct buf *out)
{
    buf_putc(out, '{');
    put_json_member(out, "name", k->name);
    buf_printf(out, ",\"count\":%u,\"on_fail\":\"%s\",\"drain_step\":%u,\"heartbeat_ms\":%" PRId64 ",",
               k->count, rt_on_fail_name(k->on_fail), k->drain_step, k->heartbeat_ms);
    put_json_member(out, "does", k->text);
    buf_putc(out, '}');
}

static void json_queue(const struct rt_topology_queue *q, struct buf *out)
{
    buf_putc(out, '{');
    put_json_member(out, "name", q->name);
    buf_printf(out, ",\"kind\":\"%s\",\"capacity\":%" PRIu64 ",\"policy\":\"%s\"",
               rt_queue_kind_name(q->kind), q->capacity, rt_policy_name(q->policy));
    put_json_names(out, "from", q->from);
    put_json_names(out, "to", q->to);
    buf_putc(out, ',');
    put_json_member(out, "on_full", q->on_full);
    buf_putc(out, '}');
}

void rt_topology_json(const struct rt_topology *t, struct buf *out)
{
    buf_putc(out, '{');
    put_json_member(out, "service", t->service);
    buf_puts(out, ",\"tasks\":[");
    for (size_t i = 0; i < t->tasks_n; i++) {
        buf_puts(out, i ? "," : "");
        json_task(&t->tasks[i], out);
    }
    buf_puts(out, "],\"queues\":[");
    for (size_t i = 0; i < t->queues_n; i++) {
        buf_puts(out, i ? "," : "");
        json_queue(&t->queues[i], out);
    }
    buf_puts(out, "],\"locks\":[");
    for (size_t i = 0; i < t->locks_n; i++) {
        buf_puts(out, i ? ",{" : "{");
        put_json_member(out, "name", t->locks[i].name);
        buf_printf(out, ",\"rank\":%u,", t->locks[i].rank);
        put_json_member(out, "guards", t->locks[i].guards);
        buf_putc(out, '}');
    }
    buf_puts(out, "],\"timeouts\":[");
    for (size_t i = 0; i < t->timeouts_n; i++) {
        buf_puts(out, i ? ",{" : "{");
        put_json_member(out, "name", t->timeouts[i].name);
        buf_printf(out, ",\"ms\":%" PRId64 ",", t->timeouts[i].ms);
        put_json_member(out, "then", t->timeouts[i].then);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
}

void rt_topology_mermaid(const struct rt_topology *t, struct buf *out)
{
    buf_puts(out, "flowchart LR\n");
    for (size_t i = 0; i < t->tasks_n; i++) {
        const struct rt_topology_task *k = &t->tasks[i];
        if (k->count == 1)
            buf_printf(out, "  %s[\"%s\"]\n", k->name, k->name);
        else
            buf_printf(out, "  %s[\"%s &times;%u\"]\n", k->name, k->name, k->count);
    }
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = &t->queues[i];
        const char *arrow = q->kind == RT_MPSC ? "-->" : "-.->";
        const char *from = q->from;
        for (struct str f = name_next(&from); f.n > 0; f = name_next(&from)) {
            const char *to = q->to;
            for (struct str c = name_next(&to); c.n > 0; c = name_next(&to))
                buf_printf(out, "  %.*s %s|\"%s %s(%" PRIu64 ") %s\"| %.*s\n", STR_ARG(f), arrow, q->name,
                           rt_queue_kind_name(q->kind), q->capacity, rt_policy_name(q->policy), STR_ARG(c));
        }
    }
}

void rt_topology_markdown(const struct rt_topology *t, struct buf *out)
{
    buf_printf(out, "## %s\n\n| task | threads | on failure | drain step | heartbeat | does |\n",
               t->service);
    buf_puts(out, "|---|---:|---|---:|---:|---|\n");
    for (size_t i = 0; i < t->tasks_n; i++) {
        const struct rt_topology_task *k = &t->tasks[i];
        buf_printf(out, "| `%s` | %u | %s | %u | ", k->name, k->count, rt_on_fail_name(k->on_fail),
                   k->drain_step);
        if (k->heartbeat_ms > 0)
            buf_printf(out, "%" PRId64 " ms", k->heartbeat_ms);
        buf_printf(out, " | %s |\n", k->text);
    }
    buf_puts(
        out,
        "\n| queue | kind | capacity | from | to | policy | when full |\n|---|---|---:|---|---|---|---|\n");
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = &t->queues[i];
        buf_printf(out, "| `%s` | %s | %" PRIu64 " | %s | %s | %s | %s |\n", q->name,
                   rt_queue_kind_name(q->kind), q->capacity, q->from, q->to, rt_policy_name(q->policy),
                   q->on_full);
    }
    if (t->locks_n > 0)
        buf_puts(out, "\n| lock | rank | guards |\n|---|---:|---|\n");
    for (size_t i = 0; i < t->locks_n; i++)
        buf_printf(out, "| `%s` | %u | %s |\n", t->locks[i].name, t->locks[i].rank, t->locks[i].guards);
    if (t->timeouts_n > 0)
        buf_puts(out, "\n| time-out | ms | then |\n|---|---:|---|\n");
    for (size_t i = 0; i < t->timeouts_n; i++)
        buf_printf(out, "| `%s` | %" PRId64 " | %s |\n", t->timeouts[i].name, t->timeouts[i].ms,
                   t->timeouts[i].then);
}

/* Checks: each prints its violations and returns how many. */

static unsigned check_names(const struct rt_topology *t, struct buf *why)
{
    unsigned bad = 0;
    for (size_t i = 0; i < t->tasks_n; i++) {
        if (t->tasks[i].count == 0 || rt_topology_find_task(t, t->tasks[i].name) != &t->tasks[i]) {
            buf_printf(why, "task %s: declared twice, or without a thread\n", t->tasks[i].name);
            bad++;
        }
    }
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = &t->queues[i];
        if (rt_topology_find_queue(t, q->name) != q) {
            buf_printf(why, "queue %s: declared twice\n", q->name);
            bad++;
        }
        const char *to = q->to;
        unsigned consumers = 0;
        for (struct str s = name_next(&to); s.n > 0; s = name_next(&to)) {
            char name[64];
            CHECK(s.n < sizeof name);
            memcpy(name, s.p, s.n);
            name[s.n] = '\0';
            consumers++;
            if (q->kind == RT_MPSC && !rt_topology_find_task(t, name)) {
                buf_printf(why, "queue %s: its consumer %s is no task\n", q->name, name);
                bad++;
            }
        }
        if (consumers == 0) {
            buf_printf(why, "queue %s: nobody empties it\n", q->name);
            bad++;
        }
    }
    return bad;
}

static bool queue_fits(const struct rt_topology_queue *q)
{
    switch (q->kind) {
    case RT_MPSC:
        return q->capacity >= 1 && q->policy <= RT_RETRY_ONCE;
    case RT_BROADCAST:
        return q->capacity >= 1 && (q->policy == RT_LAG || q->policy == RT_DROP_OLDEST);
    case RT_WATCH:
        return q->capacity == 1 && q->policy == RT_LAST_WINS;
    case RT_INTERVAL:
        return q->capacity <= 1;
    case RT_SEMAPHORE:
        return q->capacity >= 1 && q->policy == RT_WAIT;
    }
    return false;
}

static unsigned check_bounds(const struct rt_topology *t, struct buf *why)
{
    unsigned bad = 0;
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = &t->queues[i];
        if (!queue_fits(q)) {
            buf_printf(why, "queue %s: a %s of capacity %" PRIu64 " cannot %s\n", q->name,
                       rt_queue_kind_name(q->kind), q->capacity, rt_policy_name(q->policy));
            bad++;
        }
    }
    for (size_t i = 0; i < t->locks_n; i++) {
        for (size_t k = 0; k < i; k++) {
            if (t->locks[i].rank == t->locks[k].rank) {
                buf_printf(why, "locks %s and %s: the same rank\n", t->locks[k].name, t->locks[i].name);
                bad++;
            }
        }
    }
    return bad;
}

/* Does task `a` wait for room in a queue that `b` empties? */
static bool waits_for(const struct rt_topology *t, size_t a, size_t b)
{
    for (size_t i = 0; i < t->queues_n; i++) {
        const struct rt_topology_queue *q = &t->queues[i];
        if (q->kind == RT_MPSC && q->policy == RT_WAIT && list_has(q->from, t->tasks[a].name) &&
            list_has(q->to, t->tasks[b].name))
            return true;
    }
    return false;
}

enum { UNSEEN, OPEN, CLOSED };

/* Depth first; a way back to an open task is a cycle. */
static bool finds_cycle(const struct rt_topology *t, size_t at, unsigned char *seen, struct buf *why)
{
    seen[at] = OPEN;
    for (size_t next = 0; next < t->tasks_n; next++) {
        if (!waits_for(t, at, next))
            continue;
        if (seen[next] == OPEN || (seen[next] == UNSEEN && finds_cycle(t, next, seen, why))) {
            buf_printf(why, "wait cycle: %s waits for %s\n", t->tasks[at].name, t->tasks[next].name);
            return true;
        }
    }
    seen[at] = CLOSED;
    return false;
}

static unsigned check_waits(const struct rt_topology *t, struct buf *why)
{
    unsigned bad = 0;
    unsigned char seen[RT_TOPOLOGY_ROWS_MAX] = {UNSEEN};
    for (size_t a = 0; a < t->tasks_n; a++) {
        if (seen[a] == UNSEEN)
            bad += finds_cycle(t, a, seen, why);
        for (size_t b = 0; b < t->tasks_n; b++) {
            if (waits_for(t, a, b) && t->tasks[a].drain_step > t->tasks[b].drain_step) {
                buf_printf(why, "drain: %s (step %u) waits for %s (step %u), which ends before it\n",
                           t->tasks[a].name, t->tasks[a].drain_step, t->tasks[b].name,
                           t->tasks[b].drain_step);
                bad++;
            }
        }
    }
    return bad;
}

enum err rt_topology_check(const struct rt_topology *t, struct buf *out_why)
{
    unsigned bad = check_names(t, out_why) + check_bounds(t, out_why) + check_waits(t, out_why);
    return bad > 0 ? ERR_CONFLICT : ERR_OK;
}
