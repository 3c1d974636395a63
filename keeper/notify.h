/* The text of a notification: what sd_notify(3) sends, as newline-separated assignments.
 *
 * libsystemd has the sender's side only. The receiver's is part of systemd's manager and in
 * no library, so it is here, with the rules of systemd's src/core.
 */
#ifndef GPUWM_KEEPER_NOTIFY_H
#define GPUWM_KEEPER_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As systemd's: a longer datagram is refused. */
#define NOTIFY_BYTES_MAX 4096
#define FD_NAME_BYTES_MAX 255
#define FD_NAME_DEFAULT "stored"

struct notification {
	bool ready;
	bool stopping;
	bool watchdog; /* WATCHDOG=1: it lives */
	bool watchdog_trigger; /* WATCHDOG=trigger: act as if it did not */
	bool store, remove; /* FDSTORE=1, FDSTOREREMOVE=1 */
	bool barrier; /* BARRIER=1: the keeper answers on its descriptor and closes it */
	bool main_pid; /* MAINPID=, which we don't follow */
	bool name_given, name_valid;
	char name[FD_NAME_BYTES_MAX + 1]; /* FDNAME=, when valid */
	uint64_t extend_us; /* EXTEND_TIMEOUT_USEC=; 0: none */
	const char *status; /* STATUS=, within the text, not terminated; NULL: none */
	size_t status_bytes;
};

/* Parses the text. Skips unknown assignments, and those that do not concern the keeper: RELOADING, ERRNO, FDPOLL (it polls
 * no stored descriptor). If an assignment is there twice, the first one wins. -EBADMSG, with *ret untouched: the text has a
 * zero byte. */
int notify_parse(const char *text, size_t bytes, struct notification *ret);

/* 1 to 255 characters, none of them a control character, ':' or beyond ASCII. */
bool fd_name_valid(const char *name, size_t bytes);

#endif
