#include "gpuwmd.h"

#include <errno.h>
#include <stdlib.h>

void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, gpuwm_lost_fn *lost, void *lost_data)
{
	*gpuwmd = (struct gpuwmd){.socket = socket, .lost = lost, .lost_data = lost_data};
	pthread_mutex_init(&gpuwmd->lock, NULL);
}

void gpuwmd_end(struct gpuwmd *gpuwmd)
{
	gpuwmd->client = gpuwm_close(gpuwmd->client);
	pthread_mutex_destroy(&gpuwmd->lock);
}

int gpuwmd_error(struct error *error)
{
	const struct gpuwm_error *last = gpuwm_error();

	return error_set(error, last->code, last->detail, "%s", last->message);
}

static int connect_once(struct gpuwmd *gpuwmd, struct error *error)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = gpuwmd->socket;
	options.name = "gpuwm-peer";
	options.restart_ms = GPUWMD_RESTART_MS;
	options.lost = gpuwmd->lost;
	options.lost_data = gpuwmd->lost_data;
	return gpuwm_connect(&options, &gpuwmd->client) < 0 ? gpuwmd_error(error) : 0;
}

int gpuwmd_client(struct gpuwmd *gpuwmd, struct gpuwm_client **ret_client, struct error *error)
{
	int r = 0;

	pthread_mutex_lock(&gpuwmd->lock);
	if (!gpuwmd->client)
		r = connect_once(gpuwmd, error);
	*ret_client = gpuwmd->client;
	pthread_mutex_unlock(&gpuwmd->lock);
	return r;
}

int gpuwmd_list(struct gpuwmd *gpuwmd, struct listing *ret, struct error *error)
{
	struct gpuwm_client *client;
	char *json;
	int r = gpuwmd_client(gpuwmd, &client, error);

	if (r < 0)
		return r;
	if (gpuwm_query(client, "list", NULL, &json) < 0)
		return gpuwmd_error(error);
	r = listing_read(json, ret, error);
	free(json);
	return r;
}
