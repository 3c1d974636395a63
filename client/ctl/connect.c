#include "command.h"

#include "exit.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdio.h>

/* A user who reads nothing for a second wonders what hangs. gpuwmd answers a hello within some milliseconds. */
#define NOTICE_MS 800

static void (*explain_wait)(const struct arguments *arguments);

void connect_explain_by(void (*explain)(const struct arguments *arguments))
{
	explain_wait = explain;
}

/* Returns true if admin.sock is not there or refuses this user. gpuwmctl reports every other error. */
static bool is_no_operator(int code)
{
	return code == -EACCES || code == -EPERM || code == -ENOENT || code == -ECONNREFUSED;
}

/* Connects until the deadline. If gpuwmd has not answered after NOTICE_MS, says which process does not answer,
 * unless it is to be silent. */
static int connect_noting(const struct arguments *arguments, struct gpuwm_connect_options *options,
			  int64_t deadline, struct gpuwm_client **ret_client)
{
	const bool is_silent = arguments->is_completion;
	int left = clock_left(deadline);
	char detail[100];
	int r;

	options->timeout_ms = left < NOTICE_MS || is_silent ? left : NOTICE_MS;
	if (left == 0)
		options->timeout_ms = 1; /* 0 would mean 30 seconds */
	r = gpuwm_connect(options, ret_client);
	left = clock_left(deadline);
	if (r != -ETIMEDOUT || left == 0)
		return r;
	snprintf(detail, sizeof(detail), "waiting for it for up to %.1f s more; Ctrl-C ends",
		 (double)left / 1000);
	exit_note(detail, "%s", gpuwm_error()->message);
	if (explain_wait)
		explain_wait(arguments);
	left = clock_left(deadline);
	options->timeout_ms = left > 0 ? left : 1;
	return gpuwm_connect(options, ret_client);
}

int connect_as(const struct arguments *arguments, enum command_socket need, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const bool limited = arguments->deadline_ms >= 0;
	/* A shorter limit, such as 0, is no reason not to find a gpuwmd that is well. */
	const int64_t deadline = limited ? clock_later(arguments->deadline_ms, clock_deadline(ANSWER_SLACK_MS))
					 : clock_deadline(CALL_TIMEOUT_MS);
	int r;

	options.socket = arguments->socket;
	options.name = "gpuwmctl";
	options.flags = GPUWM_CONNECT_ADMIN;
	if (limited) /* 0 would mean 30 seconds */
		options.restart_ms = clock_later(clock_until(deadline), 1);
	r = connect_noting(arguments, &options, deadline, ret_client);
	if (need == SOCKET_ADMIN || !is_no_operator(r))
		return r;
	/* On the workers' socket, the rules say what the user sees. */
	options.flags = 0;
	return connect_noting(arguments, &options, deadline, ret_client);
}
