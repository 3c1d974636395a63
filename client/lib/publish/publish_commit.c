/* From filled memory to a version: seal, hand in, commit. */
#include "publish_state.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tensors by their places: groups that share one, and those of them whose bytes must be read. */
struct digest_plan {
	size_t *order; /* positions of tensors */
	struct memory_span *spans;
	struct memory_sum *sums; /* of the spans */
	size_t span_count;
};

/* Behind the last of those that share a place with order[first]. */
static size_t group_end(const struct gpuwm_publish *publish, const size_t *order, size_t first)
{
	size_t end = first + 1;

	while (end < publish->tensor_count && plan_shares_place(&publish->plan, order[first], order[end]))
		end++;
	return end;
}

/* One of the group whose digest was given, or `end`. */
static size_t group_given(const struct gpuwm_publish *publish, const size_t *order, size_t first, size_t end)
{
	while (first < end && !publish->have_digest[order[first]])
		first++;
	return first;
}

static int plan_digests(const struct gpuwm_publish *publish, struct digest_plan *plan, struct error *error)
{
	size_t count = publish->tensor_count;

	plan->order = plan_order(&publish->plan, count);
	plan->spans = calloc(count + 1, sizeof(*plan->spans));
	plan->sums = calloc(count + 1, sizeof(*plan->sums));
	if (!plan->order || !plan->spans || !plan->sums)
		return error_set(error, -ENOMEM, NULL, "out of memory for the digests of %zu tensors", count);
	for (size_t first = 0, end; first < count; first = end) {
		const struct plan_place *place = &publish->plan.places[plan->order[first]];

		end = group_end(publish, plan->order, first);
		if (group_given(publish, plan->order, first, end) == end)
			plan->spans[plan->span_count++] = (struct memory_span){
				(const uint8_t *)publish->segments[place->segment].address + place->offset,
				place->bytes};
	}
	return 0;
}

/* What was given or found goes to all of each group, and into the index. */
static int take_digests(struct gpuwm_publish *publish, const struct digest_plan *plan, struct error *error)
{
	const struct memory_sum *sum = plan->sums;
	int r = 0;

	for (size_t first = 0, end; first < publish->tensor_count && r == 0; first = end) {
		size_t given;
		struct digest digest;

		end = group_end(publish, plan->order, first);
		given = group_given(publish, plan->order, first, end);
		digest = given < end ? publish->digests[plan->order[given]] : (sum++)->digest;
		for (size_t i = first; i < end && r == 0; i++) {
			publish_digest(publish, plan->order[i], &digest);
			r = index_builder_digest(publish->builder, plan->order[i], &digest);
			if (r < 0)
				error_set(error, r, NULL, "the index took no digest of tensor %zu",
					  plan->order[i]);
		}
	}
	return r;
}

static int digest_all(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		      struct error *error)
{
	const struct memory_digest_options options = {.progress = progress, .user_data = user_data};
	struct digest_plan plan = {0};
	int r = plan_digests(publish, &plan, error);

	if (r == 0)
		r = memory_digests(&publish->device, plan.spans, plan.span_count, &options, plan.sums, error);
	if (r == 0)
		r = take_digests(publish, &plan, error);
	free(plan.order);
	free(plan.spans);
	free(plan.sums);
	return r;
}

static int finish_index(struct gpuwm_publish *publish, struct error *error)
{
	struct publish_part *part = &publish->part;
	struct index_map map;
	int r;

	if (publish->given)
		r = index_builder_finish_in(publish->builder, part->index_fd, &part->index_bytes, error);
	else
		r = index_builder_finish(publish->builder, &part->index_fd, &part->index_bytes, error);

	if (r == 0)
		r = index_map_open(part->index_fd, part->index_bytes, true, &map, error);
	if (r < 0)
		return r;
	part->layout = map.view.header->layout;
	part->content = map.view.header->content;
	index_map_close(&map);
	part->tensors = publish->tensor_count;
	part->segments = publish->segments;
	part->segment_count = publish->plan.segment_count;
	return 0;
}

int publish_seal_idle(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		      const struct publish_part **ret_part, struct error *error)
{
	const struct memory_device *device = &publish->device;
	int r = publish_memory_all(publish, error);

	if (r == 0)
		r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = digest_all(publish, progress, user_data, error);
	device->ops->leave(device);
	if (r == 0)
		r = publish_memory_close(publish, error);
	for (uint32_t i = 0; i < publish->plan.segment_count && r == 0; i++)
		r = device->ops->export(device, &publish->segments[i], error);
	if (r == 0)
		r = finish_index(publish, error);
	if (r == 0)
		*ret_part = &publish->part;
	return r;
}

int publish_seal(struct gpuwm_publish *publish, memory_progress_fn *progress, void *user_data,
		 const struct publish_part **ret_part, struct error *error)
{
	int r = fork_check(&publish->hook, error);

	if (r == 0)
		r = publish->device.ops->idle(&publish->device, error);
	if (r == 0)
		r = publish_seal_idle(publish, progress, user_data, ret_part, error);
	return r;
}

void publish_part_list(const struct publish_part *sealed, struct part *ret)
{
	ret->index = (struct part_fd){sealed->index_fd, sealed->index_bytes};
	ret->segment_count = sealed->segment_count;
	for (uint32_t i = 0; i < sealed->segment_count; i++)
		ret->segments[i] = (struct part_fd){sealed->segments[i].fd, sealed->segments[i].bytes};
}

static int hand_in(struct gpuwm_publish *publish, const struct publish_part *sealed, struct error *error)
{
	struct descriptors with;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	struct part part;
	int r;

	publish_part_list(sealed, &part);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), form_hand_in.name);
	with = (struct descriptors){fds, part_write(&w, &part, fds)};
	message_end(&w);
	/* As long as all checkers are busy. gpuwmd ends the socket if the part is not to be checked. */
	r = connection_call_with(publish->checker, &w, &with, -1, NULL, error);
	message_writer_clear(&w);
	return r;
}

/* Waits for the check, however long: gpuwmd watches the checker. 1: done, but
 * *error says that the alias was not moved. */
static int ask_commit(struct gpuwm_publish *publish, const struct publish_part *part, struct committed *ret,
		      struct error *error)
{
	const uint64_t tensors = part->tensors;
	struct publish_commit_result result;
	struct reply reply;
	struct call call;
	int r;

	call_begin(&call, publish->client, &form_publish_commit,
		   &(struct publish_commit_params){.publish = &publish->publish,
						   .rank = part->rank,
						   .device = publish->device.id,
						   .content = &part->content,
						   .layout = publish->given ? &part->layout : NULL,
						   .tensors = publish->given ? &tensors : NULL,
						   .attach = publish->attaches});
	call.only = publish->round;
	r = call_run(&call, -1, &reply, error);
	/* gpuwmd went away with the commit, and the next one knows nothing of it, or there is none. */
	if (r == -ENOENT && call.taken)
		return error_set(error, -ECANCELED, "publish again",
				 "gpuwmd went away before %s@%s was ready: what is not ready is not kept",
				 publish->model, publish->tag);
	if (r == -ECONNREFUSED && call.taken)
		return error_set(error, -ECONNABORTED, "once it runs, list tells whether the version is ready",
				 "gpuwmd took the commit of %s@%s, went away, and did not come back in time",
				 publish->model, publish->tag);
	if (r < 0)
		return r;
	r = reply_read(&reply, &form_publish_commit, &result, error);
	if (r == 0) {
		*ret = (struct committed){
			.waits = strcmp(result.state, "ready") != 0,
			.lease = result.lease ? *result.lease : 0,
			.round = call.round,
		};
		if (result.alias_error)
			*error = *result.alias_error;
		r = result.alias_error != NULL;
	}
	reply_clear(&reply);
	return r;
}

void publish_describe(const struct gpuwm_publish *publish, struct gpuwm_version_info *ret)
{
	const struct publish_part *part = &publish->part;

	*ret = (struct gpuwm_version_info){
		.rank = part->rank,
		.world = publish->world,
		.bytes = publish->plan.total,
		.segments = part->segment_count,
		.tensors = part->tensors,
	};
	strcpy(ret->id, publish->version);
	strcpy(ret->model, publish->model);
	strcpy(ret->tag, publish->tag);
	strcpy(ret->device, publish->device.id);
	memcpy(ret->layout, part->layout.bytes, sizeof(ret->layout));
	memcpy(ret->content, part->content.bytes, sizeof(ret->content));
}

bool publish_may_be_ready(const struct gpuwm_publish *publish, int r)
{
	return !publish->device.ops->seals &&
	       (r == -ECONNABORTED || r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EPROTO || r == -ENOMEM);
}

int publish_fail(struct gpuwm_publish *publish, bool tell, int r, struct error *error)
{
	int lost = publish_memory_reopen(publish, error);

	if (tell)
		publish_tell_abort(publish, error->message, NULL);
	return lost < 0 ? lost : r;
}

int publish_hand_over(struct gpuwm_publish *publish, const struct publish_part *part, struct committed *ret,
		      struct error *error)
{
	int r = 0;

	if (!publish->given && !publish->checker)
		r = error_set(error, -EPROTO, NULL, "publish_begin named no checker to hand the version to");
	if (r == 0 && !publish->given)
		r = hand_in(publish, part, error);
	/* A checker that went away was sent away: gpuwmd knows why, and says so at the commit. */
	if (r < 0 && r != -ECONNRESET)
		return publish_fail(publish, true, r, error);
	r = ask_commit(publish, part, ret, error);
	return r < 0 && !publish_may_be_ready(publish, r) ? publish_fail(publish, false, r, error) : r;
}

static int commit_plain(struct gpuwm_publish *publish, void *ret, struct error *error)
{
	struct gpuwm_version_info *ret_version = ret;
	const struct publish_part *part;
	struct committed committed;
	int r = 0;

	if (publish->nameless)
		r = error_set(error, -EINVAL, "give it a name, or commit it and stay attached",
			      "a version without a name is freed when nobody has a lease of it");
	publish->stays = publish_has_exports(publish);
	if (r == 0)
		r = publish_seal_idle(publish, NULL, NULL, &part, error);
	if (r < 0)
		return publish_fail(publish, true, r, error);
	r = publish_hand_over(publish, part, &committed, error);
	if (r >= 0 && ret_version)
		publish_describe(publish, ret_version);
	return r;
}

static int publish_check(const struct gpuwm_publish *publish, struct error *error)
{
	if (!publish)
		return error_set(error, -EINVAL, NULL, "no publish was given");
	return fork_check(&publish->hook, error);
}

static int publish_ended(struct gpuwm_publish *publish, int r, const struct error *error)
{
	publish_free(publish);
	if (r != 0)
		client_fail(error);
	return r;
}

int publish_end_with(struct gpuwm_publish *publish, publish_commit_fn *commit, void *ret)
{
	struct error error;
	int r = publish_check(publish, &error);

	if (r < 0)
		return client_fail(&error);
	r = publish->device.ops->idle(&publish->device, &error);
	if (r == -EBUSY)
		return client_fail(&error);
	r = r == 0 ? commit(publish, ret, &error) : publish_fail(publish, true, r, &error);
	/* Of the memory, or of gpuwmd: from here they would say that the publish goes on. */
	if (r == -EBUSY || r == -ECHILD)
		r = error.code = -EIO;
	return publish_ended(publish, r, &error);
}

int gpuwm_publish_commit(struct gpuwm_publish *publish, struct gpuwm_version_info *ret_version)
{
	return publish_end_with(publish, commit_plain, ret_version);
}

int gpuwm_publish_abort(struct gpuwm_publish *publish, const char *reason)
{
	struct error error;
	int r;

	if (!publish)
		return 0;
	r = publish_check(publish, &error);
	if (r < 0)
		return client_fail(&error);
	r = publish_memory_reopen(publish, &error);
	if (r == 0)
		r = publish_tell_abort(publish, reason, &error);
	else
		publish_tell_abort(publish, reason, NULL);
	return publish_ended(publish, r, &error);
}
