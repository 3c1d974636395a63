/* A lease with its descriptors, for those who map themselves. */
#include "../request/lease.h"
#include "../key.h"
#include "../mapping/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gpuwm_handles {
	struct gpuwm_client *client;
	struct grant grant; /* and its watch over forks is that of the handles */
	struct index_map index;
};

static int handles_get(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *given,
		       struct gpuwm_handles *handles, struct error *error)
{
	struct gpuwm_attach_options options;
	int r = client_take_options(given, &options, sizeof(options), error);

	if (r == 0 && options.announce)
		r = error_set(error, -EINVAL, "attach takes one",
			      "handles have no address: the caller maps them later");
	if (r == 0)
		r = grant_take(client, ref, &options, &handles->grant, error);
	if (r < 0)
		return r;
	r = grant_describe(&handles->grant, &handles->index, error);
	if (r == 0) {
		r = key_compare(&handles->index.view, &handles->grant.version, options.key, options.key_count,
				error);
		if (r < 0)
			index_map_close(&handles->index);
	}
	if (r < 0) {
		grant_close_fds(&handles->grant);
		lease_release(client, handles->grant.lease, NULL);
		return r;
	}
	handles->client = client_keep(client);
	return 0;
}

int gpuwm_get_handles(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		      struct gpuwm_handles **ret_handles)
{
	struct gpuwm_handles *handles = calloc(1, sizeof(*handles));
	struct error error;
	int r;

	if (handles)
		r = handles_get(client, ref, options, handles, &error);
	else
		r = error_set(&error, -ENOMEM, NULL, "out of memory for handles");
	if (r < 0) {
		free(handles);
		return client_fail(&error);
	}
	*ret_handles = handles;
	return 0;
}

int gpuwm_handles_release(struct gpuwm_handles *handles)
{
	struct error error;
	int r;

	if (!handles)
		return 0;
	r = fork_check(&handles->grant.hook, &error);
	if (r < 0)
		return client_fail(&error);
	grant_close_fds(&handles->grant);
	index_map_close(&handles->index);
	r = lease_release(handles->client, handles->grant.lease, &error);
	client_drop(handles->client);
	free(handles);
	return r < 0 ? client_fail(&error) : 0;
}

const struct gpuwm_version_info *gpuwm_handles_version(const struct gpuwm_handles *handles)
{
	return &handles->grant.version;
}

int gpuwm_handles_segment(const struct gpuwm_handles *handles, uint32_t position, uint64_t *ret_bytes)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r == 0 && position >= handles->grant.version.segments)
		r = error_set(&error, -ERANGE, NULL, "there is no segment %u: there are %u", position,
			      handles->grant.version.segments);
	if (r == 0 && handles->grant.copy)
		r = error_set(&error, -ENOTSUP, "its segments have handles of CUDA IPC",
			      "handles by cuda_ipc have no descriptors of segments");
	if (r < 0)
		return client_fail(&error);
	if (ret_bytes)
		*ret_bytes = handles->grant.part.segments[position].bytes;
	return handles->grant.part.segments[position].fd;
}

int gpuwm_handles_index(const struct gpuwm_handles *handles, uint64_t *ret_bytes)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r < 0)
		return client_fail(&error);
	if (ret_bytes)
		*ret_bytes = handles->grant.part.index.bytes;
	return handles->grant.part.index.fd;
}

int gpuwm_handles_check(const struct gpuwm_handles *handles)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r == 0)
		r = lease_check(handles->client, handles->grant.lease, &error);
	return r < 0 ? client_fail(&error) : 0;
}

uint64_t gpuwm_handles_tensor_count(const struct gpuwm_handles *handles)
{
	return handles->index.view.header->tensor_count;
}

int gpuwm_handles_tensor_at(const struct gpuwm_handles *handles, uint64_t position,
			    struct gpuwm_tensor *ret_tensor)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r == 0)
		r = tensor_of(&handles->index.view, position, ret_tensor, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_handles_metadata_at(const struct gpuwm_handles *handles, uint32_t position, const char **ret_key,
			      const char **ret_value)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r == 0)
		r = text_of(&handles->index.view, position, ret_key, ret_value, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_handles_file_at(const struct gpuwm_handles *handles, uint32_t position, const char **ret_name,
			  const void **ret_data, uint32_t *ret_bytes)
{
	struct error error;
	int r = fork_check(&handles->grant.hook, &error);

	if (r == 0)
		r = file_of(&handles->index.view, position, ret_name, ret_data, ret_bytes, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* ---- by legacy CUDA IPC ------------------------------------------------ */

static int copy_of(const struct gpuwm_handles *handles, const struct memory_copy **ret, struct error *error)
{
	int r = fork_check(&handles->grant.hook, error);

	if (r < 0)
		return r;
	if (!handles->grant.copy)
		return error_set(error, -ENOTSUP, "ask for them with the option transport",
				 "these handles are descriptors, not of CUDA IPC");
	*ret = handles->grant.copy;
	return 0;
}

int gpuwm_handles_ipc_segment(const struct gpuwm_handles *handles, uint32_t position,
			      unsigned char ret_handle[GPUWM_IPC_HANDLE_BYTES], uint64_t *ret_bytes)
{
	const struct memory_copy *copy = NULL;
	struct error error;
	int r = copy_of(handles, &copy, &error);

	if (r == 0 && position >= copy->count)
		r = error_set(&error, -ERANGE, NULL, "there is no segment %u: there are %u", position,
			      copy->count);
	if (r < 0)
		return client_fail(&error);
	memcpy(ret_handle, copy->segments[position].handle.bytes, GPUWM_IPC_HANDLE_BYTES);
	if (ret_bytes)
		*ret_bytes = copy->segments[position].bytes;
	return 0;
}

int gpuwm_handles_ipc_event(const struct gpuwm_handles *handles,
			    unsigned char ret_handle[GPUWM_IPC_HANDLE_BYTES], uint64_t *ret_holder)
{
	const struct memory_copy *copy = NULL;
	struct error error;
	int r = copy_of(handles, &copy, &error);

	if (r < 0)
		return client_fail(&error);
	memcpy(ret_handle, copy->event.bytes, GPUWM_IPC_HANDLE_BYTES);
	if (ret_holder)
		*ret_holder = copy->holder;
	return 0;
}
