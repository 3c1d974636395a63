/* A version in the making: memory to fill, then a sealed part. */
#include "publish_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct gpuwm_publish *publish_free(struct gpuwm_publish *publish)
{
	if (!publish)
		return NULL;
	alive_end(&publish->alive);
	publish_memory_end(publish);
	fork_unwatch(&publish->hook);
	if (publish->part.index_fd >= 0)
		close(publish->part.index_fd);
	connection_free(publish->checker);
	index_builder_free(publish->builder);
	plan_clear(&publish->plan);
	free(publish->segments);
	free(publish->made);
	free(publish->digests);
	free(publish->have_digest);
	client_drop(publish->client);
	pthread_mutex_destroy(&publish->lock);
	pthread_mutex_destroy(&publish->making);
	free(publish);
	return NULL;
}

const char *gpuwm_publish_id(const struct gpuwm_publish *publish)
{
	return publish->id;
}

const struct version_id *publish_number(const struct gpuwm_publish *publish)
{
	return &publish->publish;
}

const struct plan *publish_plan(const struct gpuwm_publish *publish)
{
	return &publish->plan;
}

const struct memory_device *publish_device(const struct gpuwm_publish *publish)
{
	return &publish->device;
}

struct memory_segment *publish_segment(struct gpuwm_publish *publish, uint32_t position)
{
	return &publish->segments[position];
}

void publish_digest(struct gpuwm_publish *publish, size_t position, const struct digest *digest)
{
	publish->digests[position] = *digest;
	publish->have_digest[position] = 1;
}

int publish_tell_abort(struct gpuwm_publish *publish, const char *reason, struct error *error)
{
	struct call call;
	int r;

	publish_memory_end(publish);
	call_begin(&call, publish->client, &form_publish_abort,
		   &(struct publish_abort_params){.publish = &publish->publish, .reason = reason});
	call.only = publish->round;
	r = call_run(&call, 0, NULL, error);
	return r == -ECONNRESET || r == -ECONNABORTED ? 0 : r;
}
