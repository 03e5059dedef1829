/*
 * CHECK states what must be true; it is on in every build and aborts with the place and the expression.
 * Use it for bugs (ours), never for input (theirs).
 */
#ifndef RON_BASE_CHECK_H
#define RON_BASE_CHECK_H

__attribute__((noreturn, cold)) void check_failed(const char *expr, const char *file, int line,
                                                  const char *func);

#define CHECK(expr)                                                                                        \
    do {                                                                                                   \
        if (__builtin_expect(!(expr), 0))                                                                  \
            check_failed(#expr, __FILE__, __LINE__, __func__);                                             \
    } while (0)

#define CHECK_MAGIC(ptr, value) CHECK((ptr) != NULL && (ptr)->magic == (value))

#define UNREACHABLE() check_failed("unreachable", __FILE__, __LINE__, __func__)

#endif
