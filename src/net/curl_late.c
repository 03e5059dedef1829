/* libcurl's functions, loaded by the first client (rt/late.h). The options that are variadic there all take one word. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include <stdarg.h>

#include "rt/late.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *),
               "every option is one word");

#define FUNCTIONS(F)                                                                                       \
    F(CURLcode, curl_global_init, (long flags), (flags))                                                   \
    F(CURL *, curl_easy_init, (void), ())                                                                  \
    F(void, curl_easy_reset, (CURL * h), (h))                                                              \
    F(void, curl_easy_cleanup, (CURL * h), (h))                                                            \
    F(CURLM *, curl_multi_init, (void), ())                                                                \
    F(CURLMcode, curl_multi_cleanup, (CURLM * m), (m))                                                     \
    F(CURLMcode, curl_multi_add_handle, (CURLM * m, CURL * h), (m, h))                                     \
    F(CURLMcode, curl_multi_remove_handle, (CURLM * m, CURL * h), (m, h))                                  \
    F(CURLMcode, curl_multi_assign, (CURLM * m, curl_socket_t s, void *p), (m, s, p))                      \
    F(CURLMcode, curl_multi_perform, (CURLM * m, int *running), (m, running))                              \
    F(CURLMcode, curl_multi_poll,                                                                          \
      (CURLM * m, struct curl_waitfd extra[], unsigned int n, int ms, int *ready),                         \
      (m, extra, n, ms, ready))                                                                            \
    F(CURLMcode, curl_multi_socket_action, (CURLM * m, curl_socket_t s, int what, int *running),           \
      (m, s, what, running))                                                                               \
    F(CURLMsg *, curl_multi_info_read, (CURLM * m, int *left), (m, left))                                  \
    F(struct curl_slist *, curl_slist_append, (struct curl_slist * l, const char *s), (l, s))              \
    F(void, curl_slist_free_all, (struct curl_slist * l), (l))                                             \
    F(CURLU *, curl_url, (void), ())                                                                       \
    F(void, curl_url_cleanup, (CURLU * u), (u))                                                            \
    F(CURLUcode, curl_url_get, (CURLU * u, CURLUPart what, char **part, unsigned int flags),               \
      (u, what, part, flags))                                                                              \
    F(CURLUcode, curl_url_set, (CURLU * u, CURLUPart what, const char *part, unsigned int flags),          \
      (u, what, part, flags))                                                                              \
    F(void, curl_free, (void *p), (p))

/* The same for functions that end in one word of any kind; named last, so that the table holds them too. */
#define VARIADIC(F)                                                                                        \
    F(CURLcode, curl_easy_setopt, (CURL * h, CURLoption o, ...), (h, o, word))                             \
    F(CURLcode, curl_easy_getinfo, (CURL * h, CURLINFO o, ...), (h, o, word))                              \
    F(CURLMcode, curl_multi_setopt, (CURLM * h, CURLMoption o, ...), (h, o, word))

#define STUB(ret, name, params, args)                                                                      \
    ret name params                                                                                        \
    {                                                                                                      \
        va_list ap;                                                                                        \
        va_start(ap, o);                                                                                   \
        void *word = va_arg(ap, void *);                                                                   \
        va_end(ap);                                                                                        \
        pthread_once(&late_once, late_load);                                                               \
        return late_at[LATE_##name] ? ((ret(*) params)late_at[LATE_##name])args : (ret)0;                  \
    }

RT_LATE("libcurl.so.4", FUNCTIONS, VARIADIC)
VARIADIC(STUB)
