#include "services/wallet/transport.h"

#include <stdio.h>
#include <string.h>

#include "auth/mint.h"

enum { CALLS_AT_ONCE = 1024, LEDGER_PORT = 10 };

static enum err read_token(struct wallet *w, struct buf *out)
{
    const char *file = wallet_config(w)->ledger_token_file;
    return *file ? auth_token_file_read(file, out) : svc_data_ledger_token(svc_data(w->svc), "wallet", out);
}

enum err wallet_transport_open(struct wallet *w)
{
    const struct wallet_config *cfg = wallet_config(w);
    char url[64], text[8192];
    struct buf token;
    w->ledger = svc_wiring(w->svc);
    if (w->ledger && !*cfg->ledger_url)
        return ERR_OK;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", svc_base_port(w->svc) + LEDGER_PORT);
    buf_init_fixed(&token, text, sizeof text - 1);
    enum err e = read_token(w, &token);
    if (e != ERR_OK)
        return e;
    struct ledger_client_conf conf = {.url = *cfg->ledger_url ? cfg->ledger_url : url,
                                      .token = buf_cstr(&token),
                                      .inflight_max = CALLS_AT_ONCE};
    e = ledger_client_open(&conf, &w->ledger);
    explicit_bzero(text, sizeof text);
    w->owns_ledger = e == ERR_OK;
    return e;
}

enum err wallet_transport_start(struct wallet *w)
{
    if (!w->owns_ledger)
        return ERR_OK;
    return svc_add_loop_task(w->svc, "ledger_io", ledger_client_io_run, w->ledger, ledger_client_io_wake);
}

void wallet_transport_reloaded(struct wallet *w)
{
    char text[8192];
    struct buf token;
    if (!w->ledger)
        return;
    buf_init_fixed(&token, text, sizeof text - 1);
    enum err e = read_token(w, &token);
    if (e == ERR_OK)
        e = ledger_client_set_token(w->ledger, buf_str(&token));
    explicit_bzero(text, sizeof text);
    if (e != ERR_OK) /* the one in use stays */
        obs_log(svc_log(w->svc), OBS_WARN, "ledger.token_kept", OBS_ERR(e), OBS_END);
}

void wallet_transport_close(struct wallet *w)
{
    if (w->owns_ledger)
        ledger_client_close(w->ledger);
    w->owns_ledger = false;
}
