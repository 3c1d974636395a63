#include "load_internal.h"

#include "../base/bytes.h"
#include "../proto/index/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a segment, before bytes are compared. */
enum { UNKNOWN = -1, NO_CANDIDATE = -2 };

struct sharing {
	struct work *work;
	const char *with; /* model@tag */
	const struct share_part *part;
	struct share *share;
	struct index_map index; /* the resident one */
	int candidates[PART_SEGMENTS_MAX]; /* resident segments that may be equal */
	bool taken[PART_SEGMENTS_MAX]; /* of the resident ones */
	uint32_t damaged; /* equal digests, but other bytes; UINT32_MAX: none */
	struct error *error;
};

/* ---- the resident part ---- */

static int share_ask(struct sharing *s)
{
	struct message_writer w;
	struct reply reply;
	struct fields f;
	int r;

	message_write_request(&w, request_next_id(), &form_loader_resident,
			      &(struct loader_resident_params){s->part->rank, s->part->device});
	r = connection_call(s->work->connection, &w, CALL_TIMEOUT_MS, &reply, s->error);
	message_writer_clear(&w);
	if (r < 0)
		return r;
	fields_of(&f, reply.message.body);
	r = part_read(&f, &reply.packet, &s->share->resident);
	reply_clear(&reply);
	/* EBADMSG would say that the source is damaged. */
	return r < 0 ? error_set(s->error, -EPROTO, NULL, "loader_resident: %s", f.error.message) : 0;
}

static int share_open_index(struct sharing *s)
{
	const struct part_fd *index = &s->share->resident.index;
	int r = index_map_open(index->fd, index->bytes, true, &s->index, s->error);

	if (r == 0 && s->index.view.header->segment_count == s->share->resident.segment_count)
		return 0;
	if (r == 0) {
		index_map_close(&s->index);
		r = error_set(s->error, -EIO, NULL, "the index of %s speaks of other segments than gpuwmd",
			      s->with);
	}
	return r == -EBADMSG ? s->error->code = -EIO : r;
}

/* ---- which segments may be equal ---- */

/* Narrows down what the segment with this tensor may be equal to. */
static void look_at_tensor(struct sharing *s, size_t position)
{
	const struct plan_place *place = &publish_plan(s->part->publish)->places[position];
	int64_t found = index_find(&s->index.view, s->part->specs[position].name);
	const struct index_tensor *tensor = found < 0 ? NULL : &s->index.view.tensors[found];
	int *candidate = &s->candidates[place->segment];

	if (*candidate == NO_CANDIDATE)
		return;
	if (!tensor || tensor->offset != place->offset || tensor->bytes != place->bytes ||
	    !digest_equal(&tensor->digest, &s->part->digests[position]) ||
	    (*candidate != UNKNOWN && (uint32_t)*candidate != tensor->segment))
		*candidate = NO_CANDIDATE;
	else
		*candidate = (int)tensor->segment;
}

static void find_candidates(struct sharing *s)
{
	const struct publish_part *sealed = s->part->sealed;

	for (uint32_t i = 0; i < sealed->segment_count; i++)
		s->candidates[i] = UNKNOWN;
	for (size_t i = 0; i < s->part->tensor_count; i++)
		look_at_tensor(s, i);
	for (uint32_t i = 0; i < sealed->segment_count; i++) {
		int *candidate = &s->candidates[i];

		if (*candidate >= 0 &&
		    s->share->resident.segments[*candidate].bytes == sealed->segments[i].bytes &&
		    !s->taken[*candidate])
			s->taken[*candidate] = true;
		else
			*candidate = NO_CANDIDATE;
	}
}

/* ---- which are ---- */

/* Compares a segment of the part with the resident one that may be the same, byte by byte. */
static int segments_equal(struct sharing *s, uint32_t position, bool *ret_equal)
{
	const struct memory_device *device = publish_device(s->part->publish);
	const struct memory_segment *own = &s->part->sealed->segments[position];
	const int fds[2] = {own->fd, s->share->resident.segments[s->candidates[position]].fd};
	struct memory_segment segments[2] = {{.fd = -1}, {.fd = -1}};
	int r = 0;

	for (unsigned i = 0; r == 0 && i < 2; i++) {
		r = device->ops->import(device, fds[i], own->bytes, false, &segments[i], s->error);
		if (r == 0)
			r = device->ops->map(device, &segments[i], MEMORY_READ, s->error);
	}
	/* Nothing says that the source is damaged. */
	if (r == -EBADMSG)
		r = s->error->code = -EIO;
	if (r == 0)
		r = device->ops->enter(device, s->error);
	if (r == 0) {
		r = memory_compare(
			device,
			&(struct memory_pair){segments[0].address, segments[1].address, segments[0].bytes},
			work_advance, s->work, ret_equal, s->error);
		device->ops->leave(device);
	}
	for (unsigned i = 0; i < 2; i++)
		device->ops->release(device, &segments[i]);
	return r;
}

static int share_segment(struct sharing *s, uint32_t position)
{
	bool equal = false;
	int r = segments_equal(s, position, &equal);

	if (r < 0)
		return r;
	if (!equal) {
		s->damaged = (uint32_t)s->candidates[position];
		return 0;
	}
	s->share->from[position] = s->candidates[position];
	s->share->count++;
	s->share->bytes += s->part->sealed->segments[position].bytes;
	publish_release_segment(s->part->publish, position);
	return 0;
}

/* ---- what is told ---- */

static void share_note(const struct sharing *s)
{
	const struct share *share = s->share;
	uint32_t all = s->part->sealed->segment_count;
	char shared[BYTES_TEXT], total[BYTES_TEXT], segment[BYTES_TEXT];
	uint64_t largest = 0;

	work_note(s->work, "rank %u on %s shares %u of its %u segments with %s: %s of %s%s", s->part->rank,
		  s->part->device, share->count, all, s->with, bytes_format(share->bytes, shared),
		  bytes_format(publish_plan(s->part->publish)->total, total),
		  share->count < all ? "; the rest differs in tensors, their places or their bytes" : "");
	for (uint32_t i = 0; i < share->resident.segment_count; i++) {
		if (share->resident.segments[i].bytes > largest)
			largest = share->resident.segments[i].bytes;
	}
	if (share->count < all && all != share->resident.segment_count)
		work_note(
			s->work,
			"a segment is shared whole or not at all: %s has %u of at most %s; versions that are loaded with "
			"one segment_bytes (--segment-bytes) share more",
			s->with, share->resident.segment_count, bytes_format(largest, segment));
	if (s->damaged != UINT32_MAX)
		work_note(s->work,
			  "segment %u of %s has the digests of this load, but other bytes: it is damaged; "
			  "gpuwmctl verify %s tells more",
			  s->damaged, s->with, s->with);
}

/* ---- all ---- */

static int share_compare(struct sharing *s)
{
	uint64_t bytes = 0;
	int r = share_open_index(s);

	if (r < 0)
		return r;
	find_candidates(s);
	for (uint32_t i = 0; i < s->part->sealed->segment_count; i++)
		bytes += s->candidates[i] >= 0 ? s->part->sealed->segments[i].bytes : 0;
	r = work_phase(s->work, "comparing", bytes);
	for (uint32_t i = 0; r == 0 && i < s->part->sealed->segment_count; i++) {
		if (s->candidates[i] >= 0)
			r = share_segment(s, i);
	}
	index_map_close(&s->index);
	if (r == 0)
		share_note(s);
	return r;
}

int share_run(struct work *work, const char *with, const struct share_part *part, struct share **ret,
	      struct error *error)
{
	struct sharing s = {.work = work, .with = with, .part = part, .damaged = UINT32_MAX, .error = error};
	int r;

	*ret = NULL;
	s.share = calloc(1, sizeof(*s.share));
	if (!s.share)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	part_init(&s.share->resident);
	for (uint32_t i = 0; i < PART_SEGMENTS_MAX; i++)
		s.share->from[i] = -1;
	r = share_ask(&s);
	if (r == -ENODEV) {
		work_note(work, "nothing is shared: %s", error->message);
		share_free(s.share);
		return 0;
	}
	if (r == 0)
		r = share_compare(&s);
	if (r == 0)
		*ret = s.share;
	else
		share_free(s.share);
	return r;
}

struct share *share_free(struct share *share)
{
	if (share)
		part_close(&share->resident);
	free(share);
	return NULL;
}

void share_list(const struct share *share, struct part *list)
{
	for (uint32_t i = 0; i < list->segment_count; i++) {
		if (share->from[i] >= 0)
			list->segments[i].fd = share->resident.segments[share->from[i]].fd;
	}
}
