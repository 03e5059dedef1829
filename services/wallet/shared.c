/* What every part of the wallet uses: the ledger's time and health, roots, the policy in force. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/siphash.h"
#include "services/wallet/wallet.h"

int64_t wallet_now_ns(const struct wallet *w)
{
    return clock_mono_ns(svc_clock(w->svc));
}

struct deadline wallet_in_ms(const struct wallet *w, int64_t ms)
{
    return deadline_at_ns(wallet_now_ns(w) + ms * 1000000);
}

int64_t wallet_left_ms(const struct wallet *w, struct deadline by)
{
    if (deadline_is_never(by))
        return INT64_MAX;
    int64_t left_ns = by.at_ns - wallet_now_ns(w);
    return left_ns <= 0 ? 0 : (left_ns - 1) / 1000000 + 1;
}

struct deadline wallet_wake_at(const struct wallet *w, int64_t until_ns, int64_t most_ms)
{
    int64_t left_ns = until_ns - wallet_now_ns(w);
    return left_ns < most_ms * 1000000 ? deadline_at_ns(os_now_ns() + left_ns) : deadline_in_ms(most_ms);
}

uint64_t wallet_ledger_now_ms(const struct wallet *w)
{
    int64_t offset = atomic_load_explicit(&w->ledger_offset_ms, memory_order_relaxed);
    return offset == INT64_MIN ? 0 : (uint64_t)(wallet_now_ns(w) / 1000000 + offset);
}

const char *wallet_shed(struct wallet *w)
{
    if (atomic_load_explicit(&w->forked, memory_order_relaxed))
        return "fork";
    if (!atomic_load_explicit(&w->ledger_up, memory_order_relaxed))
        return atomic_load_explicit(&w->ledger_safe_mode, memory_order_relaxed) ? "safe_mode" : "down";
    if (rt_breaker_state(&w->breaker, wallet_now_ns(w)) != RT_BREAKER_CLOSED)
        return "breaker";
    return NULL;
}

bool wallet_cannot_read(struct wallet *w)
{
    return wallet_shed(w) && (atomic_load_explicit(&w->forked, memory_order_relaxed) ||
                              !atomic_load_explicit(&w->ledger_safe_mode, memory_order_relaxed));
}

/* ---- calls ---- */

int64_t wallet_retry_pause_ms(const struct wallet_config *cfg, uint64_t tries, uint32_t retry_after_s)
{
    int64_t asked = (int64_t)retry_after_s * 1000;
    double pause = (double)cfg->retry_base;
    for (uint64_t i = 1; i < tries; i++)
        pause *= cfg->retry_factor;
    int64_t ours = pause < (double)cfg->retry_max ? (int64_t)pause : cfg->retry_max;
    return ours > asked ? ours : asked;
}

void wallet_call_begin(struct wallet *w)
{
    os_a64_add(&w->calls, 1, memory_order_relaxed);
}

void wallet_breaker_note(struct wallet *w, bool good, int64_t now_ns)
{
    uint64_t opened = rt_breaker_opened(&w->breaker);
    bool was_closed = rt_breaker_state(&w->breaker, now_ns) == RT_BREAKER_CLOSED;
    if (good)
        rt_breaker_success(&w->breaker, now_ns);
    else
        rt_breaker_failure(&w->breaker, now_ns);
    if (rt_breaker_opened(&w->breaker) != opened) {
        obs_counter_inc(obs_counter_nth(w->m[WALLET_M_circuit_open], 0));
        obs_log(svc_log(w->svc), OBS_WARN, "breaker.open", OBS_STR("svc", "ledger"), OBS_END);
    } else if (!was_closed && rt_breaker_state(&w->breaker, now_ns) == RT_BREAKER_CLOSED)
        obs_log(svc_log(w->svc), OBS_INFO, "breaker.closed", OBS_STR("svc", "ledger"), OBS_END);
}

void wallet_call_end(struct wallet *w, enum wallet_call call, const struct ledger_answer *a,
                     int64_t sent_ns)
{
    int64_t now = wallet_now_ns(w);
    obs_counter_inc(obs_counter_nth(w->m[WALLET_M_upstream_calls], (size_t)call * 3 + (size_t)a->outcome));
    obs_hist_observe(obs_hist_nth(w->m[WALLET_M_upstream_latency], call), (double)(now - sent_ns) / 1e9);
    bool failed = a->outcome == LEDGER_UNKNOWN ||
                  (a->outcome == LEDGER_REFUSED && (a->status == 0 || a->status >= 500));
    /* Busy, or between two writers: it is there, and says so at once. Shedding would only keep us away when it can again. */
    bool neutral = a->outcome == LEDGER_REFUSED &&
                   (a->status == 429 || a->err == ERR_BUSY || a->err == ERR_NOT_WRITER);
    if (a->err == ERR_TIMEOUT && a->outcome != LEDGER_ANSWERED) /* refused: not a byte was sent */
        obs_counter_inc(obs_counter_nth(w->m[WALLET_M_io_timeouts], a->outcome == LEDGER_UNKNOWN ? 3 : 2));
    /* The prober reports its own: while half open, only probes decide. */
    if (call != WALLET_CALL_HEAD && !neutral && rt_breaker_state(&w->breaker, now) == RT_BREAKER_CLOSED)
        wallet_breaker_note(w, !failed, now);
    if (failed && !neutral)
        obs_counter_inc(obs_counter_nth(w->m[WALLET_M_upstream_fail], 0));
    os_a64_add(&w->calls, (uint64_t)-1, memory_order_release); /* the last use of w in this call */
}

void wallet_fork(struct wallet *w, const char *what)
{
    if (atomic_exchange_explicit(&w->forked, true, memory_order_relaxed))
        return;
    obs_counter_inc(obs_counter(w->m[WALLET_M_forks]));
    obs_health_set(svc_health(w->svc), w->cause_fork, false);
    obs_log(svc_log(w->svc), OBS_ERROR, "ledger.fork", OBS_STR("what", what), OBS_END);
}

void wallet_saw_root(struct wallet *w, uint64_t tree_size, const struct sha256 *root)
{
    rt_lock_take(&w->roots_lock);
    enum err e = wallet_roots_see(&w->roots, tree_size, root);
    rt_lock_release(&w->roots_lock);
    if (e != ERR_OK)
        wallet_fork(w, "two roots for one size");
}

/* ---- policy ---- */

struct wallet_policy_box *wallet_policy_get(struct wallet *w)
{
    rt_lock_take(&w->policy_lock);
    struct wallet_policy_box *box = w->policy;
    os_a32_add(&box->refs, 1, memory_order_relaxed);
    rt_lock_release(&w->policy_lock);
    return box;
}

void wallet_policy_put(struct wallet_policy_box *box)
{
    if (!box || os_a32_add(&box->refs, (uint32_t)-1, memory_order_acq_rel) != 1)
        return;
    wallet_policy_free(box->policy);
    free(box);
}

static enum err read_whole(const char *path, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ERR_NOT_FOUND;
    for (;;) {
        uint8_t *room = buf_reserve(out, 65536);
        ssize_t n = room ? read(fd, room, 65536) : -1;
        if (n <= 0) {
            close(fd);
            return n == 0 ? out->err : ERR_IO;
        }
        buf_commit(out, (size_t)n);
    }
}

enum err wallet_policy_load(struct wallet *w)
{
    const char *file = wallet_config(w)->policy_file;
    struct json_error why = {0};
    struct wallet_policy *p = NULL;
    enum err e = ERR_OK;
    if (!*file)
        e = (p = wallet_policy_default()) ? ERR_OK : ERR_NO_MEMORY;
    else {
        struct buf text;
        buf_init(&text, 16 << 20);
        e = read_whole(file, &text);
        if (e == ERR_OK)
            e = wallet_policy_read(buf_bytes(&text), &p, &why);
        buf_fini(&text);
    }
    struct wallet_policy_box *box = e == ERR_OK ? calloc(1, sizeof *box) : NULL;
    if (!box) {
        wallet_policy_free(p);
        obs_log(svc_log(w->svc), OBS_ERROR, "policy.refused", OBS_STR("file", file),
                OBS_STR("member", why.path), OBS_STR("reason", json_reason_name(why.reason)),
                OBS_ERR(e == ERR_OK ? ERR_NO_MEMORY : e), OBS_END);
        return e == ERR_OK ? ERR_NO_MEMORY : e;
    }
    box->policy = p;
    os_a32_store(&box->refs, 1, memory_order_relaxed);
    rt_lock_take(&w->policy_lock);
    struct wallet_policy_box *old = w->policy;
    w->policy = box;
    rt_lock_release(&w->policy_lock);
    wallet_policy_put(old);
    obs_gauge_set(obs_gauge(w->m[WALLET_M_policy_version]), (double)wallet_policy_version(p));
    obs_health_set(svc_health(w->svc), w->cause_policy, true);
    return ERR_OK;
}
