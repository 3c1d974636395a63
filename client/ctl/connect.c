#include "connect.h"

#include <errno.h>

/* Returns true if admin.sock is not there or refuses this user. gpuwmctl reports every other error. */
static bool is_no_operator(int code)
{
	return code == -EACCES || code == -EPERM || code == -ENOENT || code == -ECONNREFUSED;
}

int connect_as(const struct arguments *arguments, enum command_socket need, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	int r;

	options.socket = arguments->socket;
	options.name = "gpuwmctl";
	options.flags = GPUWM_CONNECT_ADMIN;
	r = gpuwm_connect(&options, ret_client);
	if (need == SOCKET_ADMIN || !is_no_operator(r))
		return r;
	/* On the workers' socket, the rules say what the user sees. */
	options.flags = 0;
	return gpuwm_connect(&options, ret_client);
}
