#include "services/rewarder/ledger.h"

#include <stdio.h>
#include <string.h>

#include "auth/mint.h"

enum { LEDGER_PORT_OFFSET = 10, INFLIGHT_MAX = 256, TOKEN_ROOM = 8192 };

static enum err read_token(struct rewarder *r, struct buf *out)
{
    const char *file = rewarder_config(r)->ledger_token_file;
    return *file ? auth_token_file_read(file, out)
                 : svc_data_ledger_token(svc_data(r->svc), "rewarder", out);
}

void rewarder_ledger_open(struct rewarder *r)
{
    char url[256], text[TOKEN_ROOM];
    struct buf token;
    const char *configured = rewarder_config(r)->ledger_url;
    r->ledger = svc_wiring(r->svc); /* in one process `ron up` hands a direct client over */
    if (r->ledger && !*configured)
        return;
    r->ledger = NULL;
    buf_init_fixed(&token, text, sizeof text - 1);
    enum err e = read_token(r, &token);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", svc_base_port(r->svc) + LEDGER_PORT_OFFSET);
    if (e == ERR_OK)
        e = ledger_client_open(&(struct ledger_client_conf){.url = *configured ? configured : url,
                                                            .token = buf_cstr(&token),
                                                            .inflight_max = INFLIGHT_MAX},
                               &r->ledger);
    explicit_bzero(text, sizeof text);
    r->own_ledger = e == ERR_OK;
    if (e != ERR_OK)
        obs_log(r->log, OBS_WARN, "ledger.none", OBS_ERR(e), OBS_END);
}

static enum err idle(struct rt_task *self, void *arg) RT_BLOCKS
{
    (void)arg;
    while (!rt_task_stopping(self)) {
        rt_task_beat(self);
        (void)!rt_task_sleep(self, deadline_in_ms(5000));
    }
    return ERR_OK;
}

enum err rewarder_ledger_add_task(struct rewarder *r)
{
    return r->own_ledger ? svc_add_task(r->svc, "ledger_io", ledger_client_io_run, r->ledger)
                         : svc_add_task(r->svc, "ledger_io", idle, r);
}

void rewarder_ledger_reloaded(struct rewarder *r)
{
    char text[TOKEN_ROOM];
    struct buf token;
    if (!r->ledger)
        return;
    buf_init_fixed(&token, text, sizeof text - 1);
    enum err e = read_token(r, &token);
    if (e == ERR_OK)
        e = ledger_client_set_token(r->ledger, buf_str(&token));
    explicit_bzero(text, sizeof text);
    if (e != ERR_OK)
        obs_log(r->log, OBS_WARN, "ledger.token_kept", OBS_ERR(e), OBS_END);
}
