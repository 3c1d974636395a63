/* How long a killed gpuwmd is missed, and what of. */
#include "registry_storm.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 100 /* how exact the moments are */
#define WATCH_MS 20000

static void ask(int sock, const char *version)
{
	RAW_SEND(sock, 1, "hello", NUMBER("protocol_min", PROTOCOL_MIN), NUMBER("protocol_max", PROTOCOL_MAX),
		 TEXT("client", "watch"));
	if (!version[0])
		return;
	RAW_SEND(sock, 2, "get_handles", TEXT("ref", version));
}

/* ---- the keeper's log ------------------------------------------------- */

void keeper_log_open(struct keeper_log *log, const struct gpuwmd *d)
{
	*log = (struct keeper_log){.fd = open(d->log, O_RDONLY | O_CLOEXEC)};
	cr_assert(log->fd >= 0);
	keeper_log_read(log);
}

static void take_line(struct keeper_log *log)
{
	const char *started = strstr(log->line, "is started (process "), *program = strchr(log->line, ' ');

	/* A time stands before it. gpuwmd's lines have other programs there. */
	if (!program || strncmp(program, " gpuwm-keeper: ", 15) != 0)
		return;
	if (started) {
		log->starts++;
		sscanf(started, "is started (process %d)", &log->pid);
	}
	log->readies += strstr(log->line, "gpuwmd is ready") != NULL;
}

void keeper_log_read(struct keeper_log *log)
{
	ssize_t got;
	char *end;

	while ((got = read(log->fd, log->line + log->used, sizeof log->line - 1 - log->used)) > 0) {
		log->used += (size_t)got;
		log->line[log->used] = 0;
		while ((end = strchr(log->line, '\n'))) {
			*end = 0;
			take_line(log);
			log->used -= (size_t)(end + 1 - log->line);
			memmove(log->line, end + 1, log->used + 1);
		}
		cr_assert(log->used < sizeof log->line - 1, "a line of the log is too long");
	}
}

/* ---- watching --------------------------------------------------------- */

/* 0: nothing yet; else the code, after which its descriptors are closed. */
static bool answered(int sock, int *ret_code)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};

	if (poll(&ready, 1, 0) == 0)
		return false;
	*ret_code = raw_code(sock);
	return true;
}

void registry_watch(const struct gpuwmd *d, struct keeper_log *log, const char *version, struct moments *m)
{
	unsigned starts = log->starts, readies = log->readies;
	int64_t deadline = clock_ms() + WATCH_MS;
	int sock = raw_connect(d->socket), code = 0;

	ask(sock, version);
	while (version[0] ? m->attached_us == 0 && code == 0 : m->hello_us == 0) {
		cr_assert(clock_ms() < deadline, "no gpuwmd comes back");
		keeper_log_read(log);
		if (!m->started_us && log->starts > starts)
			m->started_us = clock_us();
		if (!m->ready_us && log->readies > readies)
			m->ready_us = clock_us();
		if (!m->hello_us && answered(sock, &code)) {
			cr_assert_eq(code, 0, "hello: %s", raw_refusal());
			m->hello_us = clock_us();
		}
		if (m->hello_us && version[0] && answered(sock, &code) && code == 0)
			m->attached_us = clock_us();
		pause_us(LOOK_US);
	}
	if (!m->ready_us) /* the keeper has not said so yet */
		m->ready_us = m->attached_us;
	close(sock);
}
