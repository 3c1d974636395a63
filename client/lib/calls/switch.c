/* Another version at the same addresses. */
#include "../request/lease.h"
#include "../mapping/attach.h"
#include "../key.h"

#include <errno.h>
#include <string.h>

/* The index is the part's when that succeeds. */
static int switch_part(struct gpuwm_mapping *mapping, struct grant *grant,
		       const struct gpuwm_switch_options *options, struct error *error)
{
	const struct gpuwm_version_info *now = &mapping->version, *next = &grant->version;
	const bool is_there = !mapping->part->lost && strcmp(now->id, next->id) == 0;
	struct index_map index;
	int r = grant_describe(grant, &index, error);

	if (r < 0)
		return r;
	/* The key in the options is the caller's word on this version, so it counts even where nothing moves. The key of the attach does
	 * not then: a switch with a key of its own may have come here, past it. */
	if (options->key)
		r = key_compare(&index.view, next, options->key, options->key_count, error);
	else if (!is_there)
		r = key_compare(&index.view, next, mapping->key, mapping->key_count, error);
	if (r == 0 && is_there) {
		index_map_close(&index);
		return 0;
	}
	if (r == 0)
		r = layout_compare(&(struct layout){&mapping->part->index.view, now->model, now->tag},
				   &(struct layout){&index.view, next->model, next->tag}, error);
	if (r == 0)
		r = mapped_part_switch(mapping->part, grant, &index, options->idle, error);
	if (r < 0)
		index_map_close(&index);
	return r;
}

static int switch_to(struct gpuwm_mapping *mapping, const char *ref, const struct gpuwm_switch_options *options,
		     struct error *error)
{
	struct gpuwm_attach_options place = {
		.size = sizeof(place),
		.device = mapping->version.device,
		.rank = mapping->version.rank,
		.wait_ms = options->wait_ms,
		.key = options->key, /* grant_take checks that it can be a key */
		.key_count = options->key_count,
	};
	char address[ADDRESS_BYTES_MAX + 1];
	struct lease *left;
	struct grant grant;
	int r, moved = 0;

	owner_set(&mapping->owner, &place);
	r = grant_take(mapping->client, ref, &place, &grant, error);
	if (r < 0)
		return r;
	r = switch_part(mapping, &grant, options, error);
	grant_close_fds(&grant);
	left = r < 0 ? grant.lease : mapping->lease;
	lease_address(mapping->client, mapping->lease, address);
	/* Requests go on to the address: the new lease gets it before the old one ends. gpuwmd took it before, so it refuses it only if the
	 * client has as many as it may, old and new together. */
	if (r == 0) {
		mapping->version = grant.version;
		mapping->lease = grant.lease;
		moved = address[0] ? mapping_announce_again(mapping, address, NULL) : 0;
	}
	/* Refused or not, it is over: nothing of it is mapped. */
	lease_replace(mapping->client, left, r < 0 ? NULL : mapping->lease, NULL);
	if (moved == -EDQUOT)
		mapping_announce_again(mapping, address, NULL);
	return r;
}

int gpuwm_switch(struct gpuwm_mapping *mapping, const char *ref, const struct gpuwm_switch_options *given)
{
	struct gpuwm_switch_options options;
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0)
		r = mapping_check_awake(mapping, &error);
	if (r == 0)
		r = mapped_part_check_moves(mapping->part, &error);
	if (r == 0)
		r = switch_to(mapping, ref, &options, &error);
	return r < 0 ? client_fail(&error) : 0;
}
