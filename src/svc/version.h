/* The version of everything in this tree; CHANGELOG.md says what changed. */
#ifndef RON_SVC_VERSION_H
#define RON_SVC_VERSION_H

#define SVC_VERSION "0.1.0"

#endif
