#include "loader_internal.h"
#include "../../../base/limits.h"
#include "../../../service/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_exit_status(uv_process_t *process, int64_t status, int signal)
{
	char text[48];

	if (signal)
		snprintf(text, sizeof(text), " (signal %d)", signal);
	else
		snprintf(text, sizeof(text), " (exit status %d)", (int)status);
	loader_gone(process->data, text);
}

/* Its end of the socketpair is descriptor 3; it talks to our stderr. */
static int spawn_process(struct loader *l, int sock)
{
	const char *file = l->pool->work->config->loader;
	char *args[] = {(char *)file, "--fd", "3", NULL};
	uv_stdio_container_t stdio[] = {
		{.flags = UV_IGNORE},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
		{.flags = UV_INHERIT_FD, .data.fd = sock},
	};
	uv_process_options_t options = {
		.exit_cb = on_exit_status,
		.file = file,
		.args = args,
		.stdio = stdio,
		.stdio_count = sizeof(stdio) / sizeof(*stdio),
	};

	l->process.data = l;
	l->handles++; /* also when it fails */
	return uv_spawn(l->pool->work->loop, &l->process, &options);
}

static int not_started(const struct loader *l, int code, struct error *error)
{
	char limits[TEXT_BYTES_MAX + 1], own[PATH_BYTES_MAX + 1];
	const char *remedy = "--loader, or path in [loader] of gpuwmd's configuration, says where it is";

	if (code == -ENOENT && own_program_is_gone(own, sizeof(own)))
		remedy =
			"gpuwmd's own file was removed, too: gpuwmctl version says how to start gpuwmd from one that is "
			"there, without losing weights";
	if (code == -EAGAIN || code == -ENOMEM) {
		task_limits_explain(limits, sizeof(limits));
		remedy = limits;
	}
	return error_set(error, code, remedy, "%s could not be started: %s", l->pool->work->config->loader,
			 strerror(-code));
}

static int loader_spawn(struct loader *l, int *ret_sock, struct error *error)
{
	int pair[2], r;

	r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : 0;
	if (r == 0) {
		r = spawn_process(l, pair[1]);
		close(pair[1]);
		if (r < 0)
			close(pair[0]);
	}
	if (r < 0)
		return not_started(l, r, error);
	l->mourned = true;
	*ret_sock = pair[0];
	return 0;
}

static void kill_process(struct loader *l)
{
	uv_process_kill(&l->process, SIGKILL);
}

static void close_process(struct loader *l)
{
	if (l->process.data)
		uv_close((uv_handle_t *)&l->process, loader_handle_closed);
}

const struct loader_kind loader_spawned = {
	.begin = loader_spawn,
	.kill = kill_process,
	.close = close_process,
	.log = "gpuwmd's log has what it said last",
};
