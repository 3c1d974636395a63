/* Memory in the making for other frameworks, and the commit after which it is the version's. */
#include "../mapping/dlpack.h"
#include "../request/lease.h"
#include "publish_state.h"
#include "../request/call.h"

#include <errno.h>
#include <stdlib.h>

/* ---- exports ------------------------------------------------------------- */

/* One of the two. */
struct exported {
	struct DLManagedTensor *plain;
	struct DLManagedTensorVersioned *versioned;
};

/* Under publish->lock: others may be adding texts, which move what the builder holds. */
static int export_locked(struct gpuwm_publish *publish, size_t position, const struct memory_span *place,
			 bool versioned, struct exported *ret, struct error *error)
{
	struct index_tensor_spec spec;
	struct gpuwm_tensor tensor;
	struct dlpack_source from = {
		.device = &publish->device,
		.tensor = &tensor,
		.writable = true,
		.keep = &publish->mapping->keep,
	};

	index_builder_spec(publish->builder, position, &spec);
	tensor = (struct gpuwm_tensor){
		.name = spec.name,
		.dtype = spec.dtype,
		.ndim = spec.ndim,
		.shape = spec.shape,
		.strides = spec.strides,
		.data = place->address,
		.bytes = place->bytes,
	};
	return versioned ? dlpack_export_versioned(&from, &ret->versioned, error)
			 : dlpack_export(&from, &ret->plain, error);
}

static int publish_export(struct gpuwm_publish *publish, size_t position, bool versioned, struct exported *ret)
{
	struct memory_span place;
	struct error error;
	void *data;
	int r = publish_place(publish, position, &data, &place.bytes, &error);

	if (r < 0)
		return client_fail(&error);
	place.address = data;
	pthread_mutex_lock(&publish->lock);
	r = export_locked(publish, position, &place, versioned, ret, &error);
	pthread_mutex_unlock(&publish->lock);
	return r < 0 ? client_fail(&error) : r;
}

int gpuwm_publish_dlpack(struct gpuwm_publish *publish, size_t position, struct DLManagedTensor **ret)
{
	struct exported made;
	int r = publish_export(publish, position, false, &made);

	if (r >= 0)
		*ret = made.plain;
	return r;
}

int gpuwm_publish_dlpack_versioned(struct gpuwm_publish *publish, size_t position,
				   struct DLManagedTensorVersioned **ret)
{
	struct exported made;
	int r = publish_export(publish, position, true, &made);

	if (r >= 0)
		*ret = made.versioned;
	return r;
}

/* ---- the commit ---------------------------------------------------------- */

/* What the mapping will need, made before there is a version: afterwards nothing is to fail. */
struct ahead {
	struct index_map index;
	struct subset all; /* segments */
	struct lease *lease; /* in case that none is granted */
};

static void ahead_clear(struct ahead *ahead)
{
	index_map_close(&ahead->index);
	free(ahead->lease);
}

static int ahead_make(const struct publish_part *part, struct ahead *ret, struct error *error)
{
	struct ahead ahead = {.lease = calloc(1, sizeof(*ahead.lease))};
	int r;

	if (!ahead.lease)
		return error_set(error, -ENOMEM, NULL, "out of memory for a lease");
	r = index_map_open(part->index_fd, part->index_bytes, true, &ahead.index, error);
	if (r == 0)
		r = subset_of(&ahead.index.view, NULL, 0, &ahead.all, error);
	if (r < 0)
		ahead_clear(&ahead);
	else
		*ret = ahead;
	return r;
}

/* The lease that came with the commit. NULL: none did, or the connection has ended since, and the lease with it. */
static struct lease *hold_given(const struct gpuwm_publish *publish, const struct committed *committed,
				struct ahead *ahead)
{
	struct lease *lease = ahead->lease;

	if (committed->lease == 0)
		return NULL;
	publish_describe(publish, &lease->version);
	lease->id = committed->lease;
	if (!lease_hold(publish->client, lease, committed->round))
		return NULL;
	ahead->lease = NULL;
	return lease;
}

/* A lease for what is ready, or is when other parts are. */
static int take_lease(const struct gpuwm_publish *publish, bool waits, struct lease **ret, struct error *error)
{
	const struct gpuwm_attach_options options = {
		.size = sizeof(options),
		.device = publish->device.id,
		.rank = publish->part.rank,
		.wait_ms = waits ? -1 : 0,
	};
	struct grant grant;
	int r = grant_take(publish->client, publish->version, &options, &grant, error);

	if (r < 0)
		return r;
	/* They are those that were handed in. */
	grant_close_fds(&grant);
	*ret = grant.lease;
	return 0;
}

/* The version is ready, but not leased. 2. */
static int without_lease(struct gpuwm_publish *publish, struct ahead *ahead, struct error *error)
{
	struct error why = *error;

	publish_describe(publish, &ahead->lease->version);
	lease_missed(publish->client, ahead->lease, &why);
	error_set(error, why.code, "switch the mapping to the same version: that takes a lease",
		  "%s@%s is ready and mapped, but without a lease: %.700s", publish->model, publish->tag,
		  why.message);
	publish->mapping->lease = ahead->lease;
	ahead->lease = NULL;
	return 2;
}

/* What is only known once gpuwmd has answered: 0, 2, or the version failed with another part. */
static int lease_it(struct gpuwm_publish *publish, const struct committed *committed, struct ahead *ahead,
		    struct error *error)
{
	const bool waits = committed->waits;
	int r;

	publish->mapping->lease = hold_given(publish, committed, ahead);
	if (publish->mapping->lease)
		return 0;
	r = take_lease(publish, waits, &publish->mapping->lease, error);
	if (r == 0)
		return 0;
	/* A quota is asked for what is ready. */
	if (!waits || r == -EDQUOT)
		return without_lease(publish, ahead, error);
	return publish_may_be_ready(publish, r) ? r : publish_fail(publish, false, r, error);
}

static struct gpuwm_mapping *become_mapping(struct gpuwm_publish *publish, struct ahead *ahead)
{
	struct gpuwm_mapping *mapping = publish->mapping;

	publish_describe(publish, &mapping->version);
	/* A child that is made meanwhile closes the descriptors as the publish's or as the mapping's. */
	fork_lock();
	for (uint32_t i = 0; i < publish->plan.segment_count; i++)
		publish->device.ops->settle(&publish->segments[i]);
	publish_memory_give(publish);
	fork_unlock();
	mapped_part_become(mapping->part, &mapping->version, &ahead->index, &ahead->all);
	ahead->index = (struct index_map){0};
	mapping->client = client_keep(publish->client);
	publish->mapping = NULL;
	return mapping;
}

static int commit_sealed(struct gpuwm_publish *publish, const struct publish_part *part, struct ahead *ahead,
			 struct gpuwm_mapping **ret, struct error *error)
{
	struct error unleased;
	struct committed committed;
	int r = publish_hand_over(publish, part, &committed, error), leased;

	if (r < 0)
		return r;
	leased = lease_it(publish, &committed, ahead, &unleased);
	if (leased != 0)
		*error = unleased;
	if (leased < 0)
		return leased;
	*ret = become_mapping(publish, ahead);
	return leased ? leased : r;
}

static int commit_attached(struct gpuwm_publish *publish, void *ret, struct error *error)
{
	const struct publish_part *part;
	struct ahead ahead;
	int r = reconnect_watch(publish->client, error);

	publish->stays = publish->attaches = true;
	if (r == 0)
		r = publish_seal_idle(publish, NULL, NULL, &part, error);
	if (r == 0)
		r = ahead_make(part, &ahead, error);
	if (r < 0)
		return publish_fail(publish, true, r, error);
	r = commit_sealed(publish, part, &ahead, ret, error);
	ahead_clear(&ahead);
	return r;
}

int gpuwm_publish_commit_attached(struct gpuwm_publish *publish, struct gpuwm_mapping **ret_mapping)
{
	return publish_end_with(publish, commit_attached, ret_mapping);
}
