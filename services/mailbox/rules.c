/*
 * Configuration as the core wants it. A topic policy is one line of text:
 *
 *     "orders.* class=orders t_replay=unlimited max_attempts=3 ordered=true default_visibility=10s"
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "services/mailbox/mailbox.h"

uint64_t mailbox_index_max(const struct mailbox_config *cfg)
{
    if (cfg->index_max)
        return cfg->index_max;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t ram = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
    return ram / 4 / 96;
}

static bool set(struct mailbox_policy *p, struct str key, struct str value)
{
    uint64_t v;
    int64_t ms;
    if (str_eq_c(key, "class") && value.n > 0 && value.n < sizeof p->class_name) {
        memcpy(p->class_name, value.p, value.n);
        p->class_name[value.n] = 0;
        return true;
    }
    if (str_eq_c(key, "t_replay") && str_eq_c(value, "unlimited")) {
        p->t_replay_ms = MAILBOX_UNLIMITED;
        return true;
    }
    if (str_eq_c(key, "t_replay") && str_parse_duration_ms(value, &ms) == ERR_OK) {
        p->t_replay_ms = (uint64_t)ms;
        return true;
    }
    if (str_eq_c(key, "max_attempts") && str_parse_u64(value, &v) == ERR_OK && v >= 1 && v <= 100) {
        p->max_attempts = (uint8_t)v;
        return true;
    }
    if (str_eq_c(key, "ordered") && (str_eq_c(value, "true") || str_eq_c(value, "false"))) {
        p->ordered = str_eq_c(value, "true");
        return true;
    }
    if (str_eq_c(key, "default_visibility") && str_parse_duration_ms(value, &ms) == ERR_OK && ms >= 50 &&
        ms <= 86400000) {
        p->default_visibility_ms = (uint32_t)ms;
        return true;
    }
    return false;
}

static struct str next_word(struct str *rest)
{
    while (rest->n && *rest->p == ' ')
        rest->p++, rest->n--;
    struct str w = {rest->p, 0};
    while (rest->n && *rest->p != ' ')
        rest->p++, rest->n--, w.n++;
    return w;
}

static enum err parse_policy(const char *text, const struct mailbox_policy *base,
                             struct mailbox_policy *out, char why[200])
{
    struct str rest = str_from_c(text), match = next_word(&rest), word;
    *out = *base;
    snprintf(out->class_name, sizeof out->class_name, "default");
    if (match.n == 0 || match.n >= sizeof out->match) {
        snprintf(why, 200, "topic_policies: \"%.80s\" does not begin with a topic or a prefix and '*'",
                 text);
        return ERR_BAD_REQUEST;
    }
    memcpy(out->match, match.p, match.n);
    out->match[match.n] = 0;
    while ((word = next_word(&rest)).n > 0) {
        const char *eq = memchr(word.p, '=', word.n);
        size_t at = eq ? (size_t)(eq - word.p) : 0;
        if (!eq || !set(out, str_of(word.p, at), str_of(eq + 1, word.n - at - 1))) {
            snprintf(why, 200, "topic_policies: \"%.80s\": cannot use \"%.*s\"", text, STR_ARG(word));
            return ERR_BAD_REQUEST;
        }
    }
    return ERR_OK;
}

enum err mailbox_rules_make(const struct mailbox_config *cfg, uint16_t shards, struct mailbox_rules *out,
                            char why[200])
{
    memset(out, 0, sizeof *out);
    out->index_max = (mailbox_index_max(cfg) + shards - 1) / shards;
    out->max_topics = (uint32_t)((cfg->max_topics + shards - 1) / shards);
    out->backoff_base_ms = (uint64_t)cfg->backoff_base;
    out->backoff_max_ms = (uint64_t)cfg->backoff_max;
    out->retention_ready_ms = (uint64_t)cfg->retention_ready;
    out->retention_dlq_ms = (uint64_t)cfg->retention_dlq;
    out->topic_idle_ms = (uint64_t)cfg->retention_topic_idle;
    struct mailbox_policies *ps = &out->policies;
    ps->p[0] = (struct mailbox_policy){.class_name = "default",
                                       .t_replay_ms = (uint64_t)cfg->t_replay,
                                       .default_visibility_ms = (uint32_t)cfg->default_visibility,
                                       .max_attempts = (uint8_t)cfg->max_attempts};
    ps->n = 1;
    for (size_t i = 0; i < cfg->topic_policies.n && ps->n < MAILBOX_CLASSES_MAX; i++) {
        enum err e = parse_policy(cfg->topic_policies.v[i], &ps->p[0], &ps->p[ps->n], why);
        if (e != ERR_OK)
            return e;
        uint32_t lease = ps->p[ps->n].default_visibility_ms;
        if (lease != ps->p[0].default_visibility_ms &&
            (lease < cfg->visibility_ms_min || lease > cfg->visibility_max)) {
            snprintf(why, 200,
                     "topic_policies: \"%.80s\": default_visibility is not between visibility_ms_min and "
                     "visibility_max",
                     cfg->topic_policies.v[i]);
            return ERR_BAD_REQUEST;
        }
        ps->n++;
    }
    return ERR_OK;
}

struct mailbox_layout mailbox_layout_in(uint64_t bytes, const struct mailbox_config *cfg)
{
    enum { LEAST = 4 << 20, FEWEST = 4, ENOUGH = 8 };
    struct mailbox_layout x = {mailbox_shards_at_first(cfg), (uint32_t)cfg->segment_bytes};
    uint64_t shards = bytes / (FEWEST * LEAST);
    if (shards < x.shards)
        x.shards = shards < 1 ? 1 : (uint16_t)shards;
    uint64_t each = bytes / x.shards / ENOUGH / 4096 * 4096;
    if (each < x.segment_bytes)
        x.segment_bytes = each < LEAST ? LEAST : (uint32_t)each;
    return x;
}
