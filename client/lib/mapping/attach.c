#include "attach.h"

#include "../request/lease.h"
#include "../key.h"

#include <errno.h>
#include <stdlib.h>

/* A mapping owns no descriptor: after a fork there is nothing to close. */
static void nothing_in_child(void *object)
{
	(void)object;
}

/* Gives back all but the struct. */
static int mapping_end(struct gpuwm_mapping *mapping, struct error *error)
{
	int r = mapping->lease ? lease_release(mapping->client, mapping->lease, error) : 0;

	fork_unwatch(&mapping->hook);
	client_drop(mapping->client);
	free(mapping->key);
	return r;
}

int mapping_free(struct gpuwm_mapping *mapping, struct error *error)
{
	int r = mapping_end(mapping, error);

	free(mapping);
	return r;
}

static int unmap_unused(struct mapped_part *part)
{
	int r;

	if (!reaper_enter())
		return -EBUSY;
	part->device.ops->background(&part->device);
	r = mapped_part_leave(part, NULL);
	if (r == 1) {
		reaper_go_on();
		mapped_part_free(part);
	}
	reaper_leave();
	return r < 0 ? r : 0;
}

/* Of a mapping that ends. */
static void end_parking(struct gpuwm_mapping *mapping)
{
	if (mapping->parked)
		mapped_part_forget_parked(mapping->part);
	mapping->parked = false;
}

/* On the reaper's thread. The lease ends after the memory is unmapped: what is in use counts as used. */
static int end_unused(struct keep *keep)
{
	struct gpuwm_mapping *mapping =
		(struct gpuwm_mapping *)((char *)keep - offsetof(struct gpuwm_mapping, keep));
	int r;

	end_parking(mapping);
	r = unmap_unused(mapping->part);
	if (r < 0)
		return r;
	if (mapping->lease)
		lease_drop(mapping->client, mapping->lease);
	mapping->lease = NULL;
	mapping_free(mapping, NULL);
	return 0;
}

void mapping_init(struct gpuwm_mapping *mapping, struct mapped_part *part)
{
	mapping->part = part;
	fork_watch(&mapping->hook, nothing_in_child, mapping);
	keep_init(&mapping->keep, end_unused);
}

int mapping_check_awake(const struct gpuwm_mapping *mapping, struct error *error)
{
	return mapping->parked ? mapped_part_is_away(mapping->part, error) : 0;
}

static int announce_now(struct gpuwm_mapping *mapping, const char *address, struct error *error)
{
	return lease_announce(mapping->client, mapping->lease, address, mapping->client->restart_ms, error);
}

int mapping_take(struct gpuwm_client *client, struct grant *grant, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping *mapping, struct error *error)
{
	int r;

	mapping->key = key_copy(options->key, options->key_count);
	mapping->key_count = options->key_count;
	mapping->owner = owner_of(options);
	if (mapping->key)
		r = mapped_part_use(grant, options, &mapping->part, error);
	else
		r = error_set(error, -ENOMEM, NULL, "out of memory for a key");
	if (r == 0 && options->populate) {
		r = mapped_part_populate(mapping->part, error);
		if (r < 0)
			mapped_part_drop(mapping->part, NULL);
	}
	grant_close_fds(grant);
	if (r < 0) {
		free(mapping->key);
		lease_release(client, grant->lease, NULL);
		return r;
	}
	mapping->client = client_keep(client);
	mapping->version = grant->version;
	mapping->lease = grant->lease;
	mapping_init(mapping, mapping->part);
	if (options->announce)
		r = announce_now(mapping, options->announce, error);
	if (r < 0) {
		keep_claim(&mapping->keep);
		mapped_part_drop(mapping->part, NULL);
		mapping_end(mapping, NULL);
	}
	return r;
}

int mapping_announce_again(struct gpuwm_mapping *mapping, const char *address, struct error *error)
{
	return lease_announce(mapping->client, mapping->lease, address[0] ? address : NULL, 0, error);
}

int gpuwm_announce(struct gpuwm_mapping *mapping, const char *address)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = announce_now(mapping, address, &error);
	return r < 0 ? client_fail(&error) : 0;
}

static int attach(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *given,
		  struct gpuwm_mapping *mapping, struct error *error)
{
	struct gpuwm_attach_options options;
	struct grant grant;
	int r = client_take_options(given, &options, sizeof(options), error);

	if (r == 0)
		r = grant_take(client, ref, &options, &grant, error);
	return r < 0 ? r : mapping_take(client, &grant, &options, mapping, error);
}

int gpuwm_attach(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping **ret_mapping)
{
	struct gpuwm_mapping *mapping = calloc(1, sizeof(*mapping));
	struct error error;
	int r;

	if (mapping)
		r = attach(client, ref, options, mapping, &error);
	else
		r = error_set(&error, -ENOMEM, NULL, "out of memory for a mapping");
	if (r < 0) {
		free(mapping);
		return client_fail(&error);
	}
	*ret_mapping = mapping;
	return 0;
}

static int check_unused(struct gpuwm_mapping *mapping, struct error *error)
{
	unsigned others;

	if (keep_claim(&mapping->keep))
		return 0;
	others = keep_others(&mapping->keep);
	return error_set(error, -EBUSY,
			 "free them first, or drop the mapping: its memory goes after the last of them",
			 others == 1 ? "%u tensor still uses the memory of %s@%s"
				     : "%u tensors still use the memory of %s@%s",
			 others, mapping->version.model, mapping->version.tag);
}

int gpuwm_detach(struct gpuwm_mapping *mapping)
{
	struct error error;
	int r;

	if (!mapping)
		return 0;
	r = fork_check(&mapping->hook, &error);
	if (r == 0)
		r = check_unused(mapping, &error);
	if (r < 0)
		return client_fail(&error);
	end_parking(mapping);
	r = mapped_part_drop(mapping->part, &error);
	if (r < 0) {
		keep_put_back(&mapping->keep);
		return client_fail(&error);
	}
	r = mapping_free(mapping, &error);
	return r < 0 ? client_fail(&error) : 0;
}

void gpuwm_drop(struct gpuwm_mapping *mapping)
{
	if (mapping)
		keep_give_up(&mapping->keep);
}

int gpuwm_hold(struct gpuwm_mapping *mapping)
{
	struct error error;
	int r = keep_use(&mapping->keep, &error);

	return r < 0 ? client_fail(&error) : 0;
}

void gpuwm_unhold(struct gpuwm_mapping *mapping)
{
	keep_unuse(&mapping->keep);
}

uint64_t gpuwm_mapping_exports(const struct gpuwm_mapping *mapping)
{
	return keep_others(&mapping->keep);
}

int gpuwm_mapping_check(const struct gpuwm_mapping *mapping)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0 && !mapping->parked)
		r = mapped_part_check(mapping->part, &error);
	if (r == 0)
		r = lease_check(mapping->client, mapping->lease, &error);
	return r < 0 ? client_fail(&error) : 0;
}

bool gpuwm_mapping_revoked(const struct gpuwm_mapping *mapping)
{
	return fork_check(&mapping->hook, NULL) == 0 && lease_was_revoked(mapping->client, mapping->lease);
}

const struct gpuwm_version_info *gpuwm_mapping_version(const struct gpuwm_mapping *mapping)
{
	return &mapping->version;
}

const void *gpuwm_mapping_address(const struct gpuwm_mapping *mapping, uint64_t *ret_bytes)
{
	if (ret_bytes)
		*ret_bytes = mapping->part->range.bytes;
	return mapping->part->range.base;
}
