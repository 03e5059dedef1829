/*
 * Preloaded into a program: while the first byte of the file READ_GATE is not 0, nothing behind the first MiB and a half of files below
 * packs/ and cas/ is in memory, nor does the disk give it. Who cannot wait is told so, who can waits until the gate is open.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FROM = 3 << 19 };

static const volatile char *closed;

__attribute__((constructor)) static void look(void)
{
    const char *path = getenv("READ_GATE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    closed = p == MAP_FAILED ? NULL : p;
}

static int on_that_disk(int fd)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = 0;
    return strstr(path, "/packs/") || strstr(path, "/cas/");
}

static int held(int fd, size_t n, off_t at)
{
    return closed && closed[0] && at + (off_t)n > FROM && on_that_disk(fd);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    while (held(fd, n, at))
        usleep(1000);
    return syscall(SYS_pread64, fd, p, n, at);
}

ssize_t pread64(int fd, void *p, size_t n, off_t at)
{
    return pread(fd, p, n, at);
}

ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags)
{
    if (held(fd, v[0].iov_len, at)) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_preadv2, fd, v, count, at, 0, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *v, int count, off_t at, int flags)
{
    return preadv2(fd, v, count, at, flags);
}
