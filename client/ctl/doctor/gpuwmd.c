#include "gpuwmd.h"

#include "../answer.h"
#include "../../../proto/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A gpuwmd that does not answer sooner hangs. A group of checks connects three times at most, and may take QUICK_MS. */
#define ANSWER_MS 2000

void gpuwmd_socket(const char *given, bool admin, char *ret_path, size_t size)
{
	char *path = socket_path(given, admin);

	snprintf(ret_path, size, "%s", path ? path : "");
	free(path);
}

int gpuwmd_connect(const char *given, bool admin, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = given;
	options.name = "gpuwmctl doctor";
	options.flags = GPUWM_CONNECT_ONCE | (admin ? GPUWM_CONNECT_ADMIN : 0);
	options.timeout_ms = ANSWER_MS;
	return gpuwm_connect(&options, ret_client);
}

json_t *gpuwmd_status(const char *given)
{
	struct gpuwm_client *client;
	json_t *status = NULL;
	int r = gpuwmd_connect(given, true, &client);

	if (r < 0 && r != -ETIMEDOUT)
		r = gpuwmd_connect(given, false, &client);
	if (r < 0)
		return NULL;
	answer_ask(client, "status", NULL, &status);
	gpuwm_close(client);
	return status;
}
