/* The browser console as a service: pages and a same-origin way to the APIs. */
#ifndef RON_CONSOLE_CONSOLE_H
#define RON_CONSOLE_CONSOLE_H

#include "svc/svc.h"

extern const struct svc_def console_svc;

#endif
