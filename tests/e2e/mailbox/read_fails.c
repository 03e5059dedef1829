/* Preloaded into a program: whatever it reads of the file whose name the file READ_FAILS says cannot be read, at any moment. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NAME = 64 };

static const volatile char *bad;

__attribute__((constructor)) static void look(void)
{
    const char *path = getenv("READ_FAILS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, NAME, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    bad = p == MAP_FAILED ? NULL : p;
}

static int is_bad(int fd)
{
    char link[64], path[512], name[NAME];
    if (!bad || !bad[0])
        return 0;
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = bad[i];
    name[sizeof name - 1] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    size_t len = strlen(name);
    return n > (ssize_t)len && strncmp(path + n - len, name, len) == 0;
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    if (is_bad(fd)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, p, n, at);
}

ssize_t pread64(int fd, void *p, size_t n, off_t at)
{
    return pread(fd, p, n, at);
}
