#include "net/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"

enum { BACKLOG = 1024 };

union any_addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

enum err net_addr_parse(struct str s, uint8_t out_addr[16])
{
    char text[INET6_ADDRSTRLEN];
    if (s.n == 0 || s.n >= sizeof text)
        return ERR_SYNTAX;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        memcpy(out_addr, mapped, sizeof mapped);
        memcpy(out_addr + 12, &v4, 4);
        return ERR_OK;
    }
    if (inet_pton(AF_INET6, text, &v6) == 1) {
        memcpy(out_addr, &v6, 16);
        return ERR_OK;
    }
    return ERR_SYNTAX;
}

enum err net_cidr_parse(struct str s, struct net_cidr *out_cidr)
{
    struct str host;
    struct str bits_text = str_cut(s, '/', &host);
    struct net_cidr c;
    enum err e = net_addr_parse(host, c.addr);
    if (e != ERR_OK)
        return e;
    bool v4 = memchr(host.p, ':', host.n) == NULL;
    uint64_t bits = v4 ? 32 : 128;
    if (bits_text.p) {
        uint64_t given;
        if (str_parse_u64(bits_text, &given) != ERR_OK || given > bits)
            return ERR_SYNTAX;
        bits = given;
    }
    c.bits = (uint8_t)(v4 ? 96 + bits : bits);
    *out_cidr = c;
    return ERR_OK;
}

bool net_cidr_has(const struct net_cidr *c, const uint8_t addr[16])
{
    size_t whole = c->bits / 8u;
    if (memcmp(c->addr, addr, whole) != 0)
        return false;
    unsigned rest = c->bits % 8u;
    return rest == 0 || ((c->addr[whole] ^ addr[whole]) >> (8 - rest)) == 0;
}

bool net_cidr_any(const struct net_cidr *list, size_t n, const uint8_t addr[16])
{
    for (size_t i = 0; i < n; i++)
        if (net_cidr_has(&list[i], addr))
            return true;
    return false;
}

bool net_addr_is_loopback(const uint8_t addr[16])
{
    static const uint8_t v6[16] = {[15] = 1};
    if (memcmp(addr, mapped, sizeof mapped) == 0)
        return addr[12] == 127;
    return memcmp(addr, v6, sizeof v6) == 0;
}

void net_peer_format(const struct net_peer *peer, char out[NET_PEER_CHARS])
{
    if (peer->kind == NET_PEER_UNIX)
        snprintf(out, NET_PEER_CHARS, "uid:%u", (unsigned)peer->uid);
    else if (memcmp(peer->addr, mapped, sizeof mapped) == 0)
        inet_ntop(AF_INET, peer->addr + 12, out, NET_PEER_CHARS);
    else
        inet_ntop(AF_INET6, peer->addr, out, NET_PEER_CHARS);
}

enum err net_sock_split(struct str s, struct str *out_host, uint16_t *out_port)
{
    const char *colon = memrchr(s.p, ':', s.n);
    if (!colon)
        return ERR_SYNTAX;
    struct str host = {s.p, (size_t)(colon - s.p)};
    struct str port_text = {colon + 1, s.n - host.n - 1};
    uint64_t port;
    if (str_parse_u64(port_text, &port) != ERR_OK || port > 65535)
        return ERR_SYNTAX;
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = (struct str){host.p + 1, host.n - 2};
    else if (memchr(host.p, ':', host.n))
        return ERR_SYNTAX;
    *out_host = host;
    *out_port = (uint16_t)port;
    return ERR_OK;
}

static enum err address(const char *bind_to, union any_addr *out, socklen_t *out_n)
{
    struct str host;
    uint16_t port;
    uint8_t addr[16];
    enum err e = net_sock_split(str_from_c(bind_to), &host, &port);
    if (e == ERR_OK)
        e = net_addr_parse(host, addr);
    if (e != ERR_OK)
        return e;
    memset(out, 0, sizeof *out);
    if (memchr(host.p, ':', host.n)) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        memcpy(&out->v6.sin6_addr, addr, 16);
        *out_n = sizeof out->v6;
    } else {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        memcpy(&out->v4.sin_addr, addr + 12, 4);
        *out_n = sizeof out->v4;
    }
    return ERR_OK;
}

static enum err fail(int fd)
{
    int saved = errno;
    if (fd >= 0)
        close(fd);
    return saved == EADDRINUSE ? ERR_EXISTS : err_from_errno(saved);
}

static enum err listen_on(const union any_addr *a, socklen_t n, bool shared, int *out_fd)
{
    int on = 1;
    int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(fd);
    /* TCP_NODELAY is inherited by accepted sockets: one system call for all of them. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
        (a->sa.sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
        bind(fd, &a->sa, n) != 0 || listen(fd, BACKLOG) != 0)
        return fail(fd);
    *out_fd = fd;
    return ERR_OK;
}

enum err net_sock_listen_tcp(const char *bind_to, bool shared, int *out_fd)
{
    union any_addr a;
    socklen_t n;
    enum err e = address(bind_to, &a, &n);
    if (e != ERR_OK)
        return e;
    if (shared) {
        /* SO_REUSEPORT would let a second process of ours share the port unnoticed: ask without it first. */
        int probe;
        e = listen_on(&a, n, false, &probe);
        if (e != ERR_OK)
            return e;
        close(probe);
    }
    return listen_on(&a, n, shared, out_fd);
}

enum err net_sock_listen_same(int like, int *out_fd)
{
    union any_addr a;
    socklen_t n = sizeof a;
    if (getsockname(like, &a.sa, &n) != 0)
        return err_from_errno(errno);
    return listen_on(&a, n, true, out_fd);
}

uint16_t net_sock_port(int fd)
{
    union any_addr a;
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.sa, &n) != 0)
        return 0;
    if (a.sa.sa_family == AF_INET)
        return ntohs(a.v4.sin_port);
    return a.sa.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port) : 0;
}

static enum err directory_closed(const char *path)
{
    char *dir = strdup(path);
    if (!dir)
        return ERR_NO_MEMORY;
    char *slash = strrchr(dir, '/');
    enum err e = ERR_OK;
    struct stat st;
    if (!slash || slash == dir)
        e = ERR_PERMISSION; /* the root or the working directory is not ours to close */
    if (e == ERR_OK) {
        *slash = 0;
        if ((mkdir(dir, 0700) != 0 && errno != EEXIST) || stat(dir, &st) != 0)
            e = err_from_errno(errno);
        else if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
            e = ERR_PERMISSION;
    }
    free(dir);
    return e;
}

/* A socket file that nobody answers on is left over from a process that died. */
static enum err remove_stale(const union any_addr *a, socklen_t n)
{
    struct stat st;
    if (lstat(a->un.sun_path, &st) != 0)
        return errno == ENOENT ? ERR_OK : err_from_errno(errno);
    if (!S_ISSOCK(st.st_mode))
        return ERR_EXISTS;
    /* Non-blocking: somebody alive whose queue is full (EAGAIN) would be waited for. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_from_errno(errno);
    bool alive = connect(fd, &a->sa, n) == 0 || errno != ECONNREFUSED;
    close(fd);
    if (alive)
        return ERR_EXISTS;
    return unlink(a->un.sun_path) == 0 ? ERR_OK : err_from_errno(errno);
}

enum err net_sock_listen_unix(const char *path, int *out_fd)
{
    union any_addr a = {.un = {.sun_family = AF_UNIX}};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof a.un.sun_path)
        return ERR_SYNTAX;
    memcpy(a.un.sun_path, path, len);
    enum err e = directory_closed(path);
    if (e == ERR_OK)
        e = remove_stale(&a, sizeof a.un);
    if (e != ERR_OK)
        return e;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The directory is closed to others, so nobody gets in between bind and chmod. */
    if (fd < 0 || bind(fd, &a.sa, sizeof a.un) != 0 || chmod(path, 0600) != 0 || listen(fd, BACKLOG) != 0)
        return fail(fd);
    *out_fd = fd;
    return ERR_OK;
}

static enum err peer_unix(int fd, struct net_peer *out_peer)
{
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0)
        return fail(fd);
    *out_peer =
        (struct net_peer){.kind = NET_PEER_UNIX, .loopback = true, .uid = cred.uid, .pid = cred.pid};
    memcpy(out_peer->addr, mapped, sizeof mapped);
    out_peer->addr[12] = 127;
    out_peer->addr[15] = 1;
    return ERR_OK;
}

enum err net_sock_accept(int listen_fd, int *out_fd, struct net_peer *out_peer)
{
    union any_addr a;
    socklen_t n = sizeof a;
    int fd;
    do
        fd = accept4(listen_fd, &a.sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? ERR_EMPTY : err_from_errno(errno);
    if (a.sa.sa_family == AF_UNIX) {
        enum err e = peer_unix(fd, out_peer);
        if (e != ERR_OK)
            return e;
        *out_fd = fd;
        return ERR_OK;
    }
    *out_peer = (struct net_peer){.kind = NET_PEER_TCP};
    if (a.sa.sa_family == AF_INET) {
        memcpy(out_peer->addr, mapped, sizeof mapped);
        memcpy(out_peer->addr + 12, &a.v4.sin_addr, 4);
        out_peer->port = ntohs(a.v4.sin_port);
    } else {
        memcpy(out_peer->addr, &a.v6.sin6_addr, 16);
        out_peer->port = ntohs(a.v6.sin6_port);
    }
    out_peer->loopback = net_addr_is_loopback(out_peer->addr);
    *out_fd = fd;
    return ERR_OK;
}
