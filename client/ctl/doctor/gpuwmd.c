#include "gpuwmd.h"

#include "unit.h"
#include "../answer.h"
#include "../../../proto/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A gpuwmd that does not answer sooner hangs. A group of checks connects three times at most, and may take QUICK_MS. */
#define ANSWER_MS 2000
#define CONFIG "/etc/gpuwm/gpuwmd.conf"

void gpuwmd_socket(const char *given, bool admin, char *ret_path, size_t size)
{
	char *path = socket_path(given, admin);

	snprintf(ret_path, size, "%s", path ? path : "");
	free(path);
}

int gpuwmd_connect(const char *given, bool admin, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct unit unit;

	if (unit_keeps_waiting(given, &unit))
		return -ECONNREFUSED;
	options.socket = given;
	options.name = "gpuwmctl doctor";
	options.flags = GPUWM_CONNECT_ONCE | (admin ? GPUWM_CONNECT_ADMIN : 0);
	options.timeout_ms = ANSWER_MS;
	return gpuwm_connect(&options, ret_client);
}

json_t *gpuwmd_status(const char *given)
{
	return gpuwmd_ask(given, "status");
}

static const char *chosen_config;

void gpuwmd_config_choose(const char *path)
{
	chosen_config = path;
}

void gpuwmd_config(const char *given, char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES])
{
	json_t *status = chosen_config ? NULL : gpuwmd_status(given);
	const char *told = answer_text(status, "config");

	if (chosen_config)
		snprintf(ret_path, PLACE_BYTES, "%s", chosen_config);
	else if (*told && *told != '/') /* as it stands in the command line of gpuwmd */
		snprintf(ret_path, PLACE_BYTES, "/proc/%llu/cwd/%s",
			 (unsigned long long)answer_number(status, "pid"), told);
	else
		snprintf(ret_path, PLACE_BYTES, "%s", *told ? told : CONFIG);
	if (chosen_config || *told)
		snprintf(ret_place, PLACE_BYTES, "%s", ret_path);
	else
		machine_place(ret_path, ret_place);
	json_decref(status);
}

json_t *gpuwmd_ask(const char *given, const char *method)
{
	struct gpuwm_client *client;
	json_t *status = NULL;
	int r = gpuwmd_connect(given, true, &client);

	if (r < 0 && r != -ETIMEDOUT)
		r = gpuwmd_connect(given, false, &client);
	if (r < 0)
		return NULL;
	answer_ask(client, method, NULL, &status);
	gpuwm_close(client);
	return status;
}
