/*
 * The files of the browser console, built from console/ and linked into the program (cmake/RonConsole.cmake): one table,
 * sorted by path, so that the program needs no directory of its own at run time.
 */
#ifndef RON_CONSOLE_ASSETS_H
#define RON_CONSOLE_ASSETS_H

#include "base/bytes.h"

struct console_asset {
    const char *path; /* "index.html", "assets/index-3fa2.js" */
    const unsigned char *start, *end;
};

extern const struct console_asset console_assets[]; /* ends with a NULL path */

#endif
