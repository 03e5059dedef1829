#include "load/addr.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/str.h"

static enum err at_path(struct str path, struct load_addr *out)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&out->at;
    if (path.n == 0 || path.n >= sizeof un->sun_path)
        return ERR_SYNTAX;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path.p, path.n);
    out->at_n = sizeof *un;
    return ERR_OK;
}

static enum err at_host(struct str s, struct load_addr *out)
{
    char host[128], port[8];
    const char *colon = memrchr(s.p, ':', s.n);
    if (colon == NULL)
        return ERR_SYNTAX;
    size_t host_n = (size_t)(colon - s.p), port_n = s.n - host_n - 1;
    if (host_n >= 2 && s.p[0] == '[' && s.p[host_n - 1] == ']') {
        s.p++;
        host_n -= 2;
    }
    if (host_n == 0 || host_n >= sizeof host || port_n == 0 || port_n >= sizeof port)
        return ERR_SYNTAX;
    memcpy(host, s.p, host_n);
    host[host_n] = 0;
    memcpy(port, colon + 1, port_n);
    port[port_n] = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    if (getaddrinfo(host, port, &hints, &list) != 0 || list == NULL)
        return ERR_NOT_FOUND;
    /* The services listen on 127.0.0.1 unless told otherwise, and "localhost" may be ::1 first. */
    const struct addrinfo *best = list;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next)
        if (i->ai_family == AF_INET && best->ai_family != AF_INET)
            best = i;
    memcpy(&out->at, best->ai_addr, best->ai_addrlen);
    out->at_n = best->ai_addrlen;
    freeaddrinfo(list);
    return ERR_OK;
}

static enum err parse_one(struct str s, struct load_addr *out)
{
    static const struct {
        const char *head;
        bool path, oap;
    } forms[] = {{"oap+unix:", true, true},
                 {"unix:", true, false},
                 {"oap://", false, true},
                 {"http://", false, false}};
    while (s.n > 0 && s.p[s.n - 1] == '/')
        s.n--;
    *out = (struct load_addr){.at_n = 0};
    if (s.n >= sizeof out->text)
        return ERR_SYNTAX;
    memcpy(out->text, s.p, s.n);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct str head = str_from_c(forms[i].head);
        if (!str_starts(s, head))
            continue;
        struct str rest = str_of(s.p + head.n, s.n - head.n);
        out->oap = forms[i].oap;
        return forms[i].path ? at_path(rest, out) : at_host(rest, out);
    }
    return ERR_SYNTAX;
}

enum err load_addrs_parse(const char *list, struct load_addr out[LOAD_ADDRS_MAX], size_t *out_n)
{
    struct str rest = str_from_c(list), one;
    size_t n = 0;
    do {
        rest = str_cut(rest, ',', &one);
        *out_n = n;
        if (n == LOAD_ADDRS_MAX)
            return ERR_SYNTAX;
        enum err e = parse_one(str_trim(one), &out[n]);
        if (e != ERR_OK)
            return e;
        if (out[n].oap != out[0].oap)
            return ERR_CONFLICT;
        n++;
    } while (rest.p != NULL);
    *out_n = n;
    return ERR_OK;
}
