/* Roots of the configuration that are not there: a warning each, since every load from below one fails. */
#ifndef GPUWM_DAEMON_ROOTS_H
#define GPUWM_DAEMON_ROOTS_H

struct config;
struct roots;
struct server;

/* NULL: out of memory. */
struct roots *roots_new(struct server *server);
/* Always NULL. Its memory goes when libuv has given back the last look. */
struct roots *roots_free(struct roots *roots);

/* Looks for all roots, without waiting: a file system that hangs keeps one of libuv's threads, and no more. Does
 * nothing where a service has the loaders: gpuwmd does not see their folders then. */
void roots_look(struct roots *roots);

/* Looks for all roots, and waits for the file system. */
void roots_look_now(const struct config *config);

#endif
