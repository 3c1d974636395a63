/* The text of a notification: what sd_notify(3) sends, as newline-separated assignments.
 *
 * libsystemd has only the sender's side. The receiver's side is part of systemd's manager and in no
 * library. So it is here, with the rules of systemd's src/core. */
#ifndef GPUWM_KEEPER_NOTIFY_H
#define GPUWM_KEEPER_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* systemd's limit; the keeper refuses a longer datagram */
#define NOTIFY_BYTES_MAX 4096
#define FD_NAME_BYTES_MAX 255
#define FD_NAME_DEFAULT "stored"

struct notification {
	bool ready;
	bool stopping;
	bool watchdog; /* WATCHDOG=1: the program lives */
	bool watchdog_trigger; /* WATCHDOG=trigger: act as if it did not live */
	bool store, remove; /* FDSTORE=1, FDSTOREREMOVE=1 */
	bool barrier; /* BARRIER=1: the keeper answers on its descriptor and closes it */
	bool adopted; /* STORE_ADOPTED_TEXT of service/store_answer.h */
	bool main_pid; /* MAINPID=, which the keeper does not follow */
	bool name_given, name_valid;
	char name[FD_NAME_BYTES_MAX + 1]; /* FDNAME=, if it is valid */
	uint64_t extend_us; /* EXTEND_TIMEOUT_USEC=; 0: none */
	const char *status; /* STATUS=, a part of the text without a terminating zero; NULL: none */
	size_t status_bytes;
};

/* Parses the text. It skips unknown assignments, and those that do not concern the keeper:
 * RELOADING, ERRNO, FDPOLL (it polls no stored descriptor). If an assignment is there twice, the
 * first one wins. Returns 0 and sets *ret. Fails with -EBADMSG if the text has a zero byte. */
int notify_parse(const char *text, size_t bytes, struct notification *ret);

/* Returns whether the name has 1 to 255 characters, all of them ASCII, and none a control character
 * or ':'. */
bool fd_name_valid(const char *name, size_t bytes);

#endif
