/* Asks gpuwmd for a lease, or for a claim of what is not there. */
#include "lease.h"

#include "call.h"
#include "../../../base/clock.h"
#include "../key.h"
#include "../../../memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum asked { ASK_AGAIN, GRANTED, CLAIMED };

/* What is asked for. */
struct asking {
	const char *ref, *name; /* of get_handles, or of claim */
	const struct gpuwm_attach_options *options; /* the caller took them, by client_take_options */
	const char *device; /* theirs, or the current one */
	uint64_t round; /* of the connection that answered */
};

static bool is_copied(const struct gpuwm_attach_options *options)
{
	return options->transport == GPUWM_TRANSPORT_CUDA_IPC;
}

static int call_for_lease(struct gpuwm_client *client, struct asking *asking, int64_t wait_ms,
			  struct reply *reply, struct error *error)
{
	const struct gpuwm_attach_options *options = asking->options;
	struct call call;
	int r;

	if (asking->name)
		call_begin(&call, client, &form_claim,
			   &(struct claim_params){.name.text = asking->name,
						  .device = asking->device,
						  .rank = options->rank,
						  .owner = owner_of(options)});
	else
		call_begin(&call, client, &form_get_handles,
			   &(struct get_handles_params){.ref.text = asking->ref,
							.device = asking->device,
							.rank = options->rank,
							.look = options->look,
							.owner = owner_of(options),
							.transport =
								is_copied(options) ? TRANSPORT_CUDA_IPC : NULL,
							.room = options->room});
	r = call_run(&call, wait_ms, reply, error);
	asking->round = call.round;
	return r;
}

/* An `asked`. GRANTED: the lease is the client's; ASK_AGAIN: the connection ended right after it had
 * answered, and so did the lease. */
static int lease_ask_once(struct gpuwm_client *client, struct asking *asking, int64_t wait_ms,
			  struct grant *grant, struct error *error)
{
	struct claim_result claim;
	struct reply reply;
	bool held;
	int r = call_for_lease(client, asking, wait_ms, &reply, error);

	if (r < 0)
		return r;
	if (asking->name && reply_read(&reply, &form_claim, &claim, NULL) == 0 && claim.claimed) {
		reply_clear(&reply);
		return CLAIMED;
	}
	fork_lock();
	fork_watch(&grant->hook, grant_in_child, grant);
	r = grant_read(&reply, grant, error);
	fork_unlock();
	/* One that is older than copies does not know what it was asked for. */
	if (r == 0 && is_copied(asking->options) && !grant->copy)
		r = error_set(error, -ENOTSUP, "upgrade gpuwmd: an upgrade keeps the weights",
			      "this gpuwmd makes no copies by cuda_ipc: it is older");
	if (r == 0 && !asking->name && grant->lease->room != asking->options->room)
		r = error_set(error, -ENOTSUP, "upgrade gpuwmd, or attach without room",
			      "this gpuwmd makes no room: it is older");
	reply_clear(&reply);
	held = lease_hold(client, grant->lease, asking->round);
	if (r == 0 && held)
		return GRANTED;
	grant_close_fds(grant);
	if (held) {
		lease_release(client, grant->lease, NULL);
		grant->lease = NULL;
	}
	return r < 0 ? r : ASK_AGAIN;
}

/* GRANTED, CLAIMED or why not. */
static int lease_ask(struct gpuwm_client *client, struct asking *asking, struct grant *ret, struct error *error)
{
	const int64_t deadline = clock_deadline(asking->options->wait_ms);
	int64_t wait_ms = asking->options->wait_ms;
	struct lease *lease = calloc(1, sizeof(*lease));
	int r;

	if (!lease)
		return error_set(error, -ENOMEM, NULL, "out of memory for a lease");
	do {
		*ret = (struct grant){.lease = lease};
		part_init(&ret->part);
		r = lease_ask_once(client, asking, wait_ms, ret, error);
		wait_ms = wait_ms > 0 ? clock_left(deadline) : wait_ms;
	} while (r == ASK_AGAIN);
	if (r != GRANTED)
		free(ret->lease);
	return r;
}

/* The client's name of the device of this thread's current context. */
static const char *current_device(const struct gpuwm_client *client)
{
	char id[DEVICE_BYTES_MAX + 1];

	if (memory_current_device(id) < 0)
		return NULL;
	for (size_t i = 0; i < client->device_count; i++) {
		const struct gpuwm_device *device = &client->devices[i];

		if (device_same(device->id, id))
			return device->id;
	}
	return NULL;
}

static int transport_options_check(const struct asking *asking, struct error *error)
{
	const struct gpuwm_attach_options *options = asking->options;

	if (options->transport != GPUWM_TRANSPORT_FD && options->transport != GPUWM_TRANSPORT_CUDA_IPC)
		return error_set(error, -EINVAL, "GPUWM_TRANSPORT_FD, or GPUWM_TRANSPORT_CUDA_IPC",
				 "there is no transport %d", (int)options->transport);
	if (options->room > 0 && (asking->name || options->look || is_copied(options)))
		return error_set(error, -EINVAL, "unpark it with room: a mapping that is awake gets it so, too",
				 "room is for attaches by descriptors, without look");
	if (!is_copied(options))
		return 0;
	if (asking->name)
		return error_set(error, -ENOTSUP, "claim and build by descriptors, then attach by cuda_ipc",
				 "a claim is answered with descriptors");
	if (options->address || options->peer_count > 0 || options->look)
		return error_set(
			error, -ENOTSUP, "attach by descriptors, or without it",
			"with cuda_ipc there is no option \"%s\": the driver opens a copy at addresses of its "
			"choice, for one GPU",
			options->address ? "address"
			: options->look  ? "look"
					 : "peers");
	return 0;
}

static int lease_take(struct gpuwm_client *client, struct asking *asking, struct grant *ret,
		      struct error *error)
{
	const struct gpuwm_attach_options *options = asking->options;
	int r = transport_options_check(asking, error);

	if (r == 0)
		r = key_check(options->key, options->key_count, error);
	if (r == 0)
		r = owner_check(options, error);
	if (r == 0)
		r = reconnect_watch(client, error);
	if (r < 0)
		return r;
	r = lease_ask(client, asking, ret, error);
	if (r == -ENODEV && !asking->device && (asking->device = current_device(client)))
		r = lease_ask(client, asking, ret, error);
	return r;
}

int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error)
{
	struct asking asking = {.ref = ref, .options = options, .device = options->device};
	int r = client_check(client, error);

	if (r == 0 && !ref)
		r = error_set(error, -EINVAL, "model, model@tag, model@alias or a version id",
			      "no ref was given");
	if (r == 0)
		r = lease_take(client, &asking, ret, error);
	return r < 0 ? r : 0;
}

int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error)
{
	struct asking asking = {.name = name, .options = options, .device = options->device};
	int r = lease_take(client, &asking, ret, error);

	if (r != CLAIMED)
		return r < 0 ? r : 0;
	*ret_round = asking.round;
	return 1;
}
