#include "gpuwmd.h"

#include "../answer.h"
#include "../../../proto/socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

bool gpuwmd_config_told(const json_t *status, char *ret_path, size_t size)
{
	const char *told = answer_text(status, "config");

	if (*told == '/')
		snprintf(ret_path, size, "%s", told);
	else if (*told) /* as it stands in the command line of gpuwmd */
		snprintf(ret_path, size, "/proc/%llu/cwd/%s", (unsigned long long)answer_number(status, "pid"),
			 told);
	return *told;
}

enum config_origin gpuwmd_config(const char *given, char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES])
{
	json_t *status = chosen_config ? NULL : gpuwmd_status(given);
	enum config_origin origin = CONFIG_TOLD;

	if (chosen_config)
		origin = CONFIG_CHOSEN;
	else if (!status)
		origin = CONFIG_DEFAULT;
	else if (!gpuwmd_config_told(status, ret_path, PLACE_BYTES))
		origin = CONFIG_NONE;
	json_decref(status);
	if (origin == CONFIG_CHOSEN || origin == CONFIG_DEFAULT)
		snprintf(ret_path, PLACE_BYTES, "%s", chosen_config ? chosen_config : GPUWMD_CONFIG_SYSTEM);
	if (origin == CONFIG_DEFAULT)
		machine_place(ret_path, ret_place);
	else if (origin != CONFIG_NONE)
		snprintf(ret_place, PLACE_BYTES, "%s", ret_path);
	return origin;
}

bool gpuwmd_config_find(struct findings *findings, const char *check, const char *given,
			char ret_path[PLACE_BYTES], char ret_place[PLACE_BYTES], const char **ret_note)
{
	const enum config_origin origin = gpuwmd_config(given, ret_path, ret_place);

	*ret_note = origin == CONFIG_DEFAULT
			    ? "; gpuwmd does not answer, so this is the file of the system's gpuwmd"
			    : "";
	if (origin == CONFIG_NONE)
		finding(findings, VERDICT_NOT_APPLICABLE, check, NULL, NULL,
			"gpuwmd runs without a configuration file");
	else if (access(ret_place, F_OK) == 0)
		return true;
	else
		finding(findings, VERDICT_NOT_APPLICABLE, check, ret_path, NULL, "there is no such file%s",
			*ret_note);
	return false;
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
