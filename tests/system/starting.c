/* What gpuwmd announces it can do, and what it can't do it says before it serves. */
#include "starting.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(starting);

#define END_MS 20000

void starting_prepare(struct starting *s)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*s = (struct starting){.d = gpuwmd_new()};
	s->manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", s->d->dir);
	cr_assert_eq(bind(s->manager, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(chmod(address.sun_path, 0666), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

static void listen_to(struct starting *s)
{
	char text[1024];
	ssize_t got;

	while ((got = recv(s->manager, text, sizeof text - 1, 0)) >= 0) {
		text[got] = 0;
		s->ready |= strstr(text, "READY=1") != NULL;
	}
}

static bool has_ended(struct starting *s)
{
	s->ended = s->ended || waitpid(s->d->pid, &s->status, WNOHANG) == s->d->pid;
	listen_to(s); /* also what it said last */
	return s->ended;
}

void starting_run(struct starting *s, const char *const *words)
{
	unlink(s->d->log);
	listen_to(s);
	s->ready = s->ended = false;
	s->d->pid = gpuwmd_spawn_by(s->d, words, NULL);
	cr_assert(EVENTUALLY(END_MS, has_ended(s) || s->ready), "it neither serves nor ends");
	if (s->ended)
		s->d->pid = 0;
}

void starting_stop(struct starting *s)
{
	cr_assert_eq(kill(s->d->pid, SIGTERM), 0);
	cr_assert(EVENTUALLY(END_MS, has_ended(s)), "it does not stop");
	s->d->pid = 0;
	cr_assert(WIFEXITED(s->status) && WEXITSTATUS(s->status) == 0, "%#x", s->status);
}

void starting_refused(const struct starting *s, const char *words)
{
	cr_assert(s->ended && !s->ready, "it said that it was ready");
	cr_assert(!WIFEXITED(s->status) || WEXITSTATUS(s->status) != 0);
	cr_assert(log_says(s->d, words), "it does not say: %s", words);
}

/* A client's round. What failed may have met it: then it was told so, or libuv ended gpuwmd, and gpuwmd said so. */
static bool is_served(struct starting *s)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	bool served;
	char *text;

	preload(NULL);
	options.restart_ms = 1; /* nobody starts it again */
	served = gpuwm_connect(&options, &client) == 0 || gpuwm_connect(&options, &client) == 0;
	if (served) {
		served = gpuwm_query(client, "list", NULL, &text) == 0;
		if (served)
			free(text);
		gpuwm_close(client);
	}
	if (!served) {
		cr_assert(EVENTUALLY(END_MS, has_ended(s)), "it neither answers nor ends");
		cr_assert(log_says(s->d, "gpuwmd aborts: libuv"));
		s->d->pid = 0;
	}
	return served;
}

/* Each watch of its start in turn can't be had; in the end the one that fails is none of its start. */
Test(starting, what_can_not_be_watched_is_not_announced, .timeout = 120)
{
	unsigned refused = 0, n = 0;
	char text[16];
	struct starting s;

	SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library");
	starting_prepare(&s);
	do {
		snprintf(text, sizeof text, "%u", ++n);
		setenv("NO_WATCH", text, 1);
		preload("no-watch");
		starting_run(&s, NULL);
		if (s.ended) {
			starting_refused(&s, "epoll watches");
			refused++;
			continue;
		}
		if (is_served(&s))
			starting_stop(&s);
	} while (log_says(s.d, "no-watch: refused"));
	/* libuv 1.45 and newer makes most watches through io_uring, past the preload: 3 are left there, 8 with older ones. */
	cr_assert_geq(refused, 3, "of %u watches %u were needed", n, refused);
	s.d->stopped = true;
	close(s.manager);
}
