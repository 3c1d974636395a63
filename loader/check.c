#include "check.h"

#include "../base/utf8.h"

#include "../proto/index/index.h"
#include "../proto/names.h"
#include "../proto/wire/reference.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Each read from a GPU costs some 10 us, however small it is. */
#define PADDING_CHUNK KIB(64)

/* What is read in one go: a tensor, or padding, the bytes that belong to no tensor. */
struct piece {
	const struct index_tensor *tensor; /* NULL: padding, which must be all zeros */
	uint32_t segment;
	uint64_t from, to; /* offsets in the segment */
};

/* What check_add had of a piece. */
struct tally {
	struct digest_sum sum; /* atomic */
	bool not_zero; /* atomic */
};

/* A check in progress: one part, with its index and its device. */
struct check {
	const struct check_part *part;
	struct check_result result;
	struct memory_device device;
	struct index_map index;
	const struct index_tensor **order; /* sorted by segment, then by offset */
	struct memory_segment *segments; /* mapped */
	const void *const *elsewhere; /* where the bytes are read; NULL: in the segments */
	struct piece *pieces; /* these cover all bytes of all segments, in order */
	size_t piece_count;
	struct memory_span *spans; /* the addresses of the pieces */
	struct memory_sum *sums;
	struct tally *tallies;
	bool torn[PART_SEGMENTS_MAX]; /* see check_adds */
	memory_progress_fn *progress;
	void *user_data;
	int stopped; /* the value that progress returned */
	int damaged; /* the segment that differs; -1: none is known */
};

static int index_map(const struct check_part *part, struct index_map *ret, struct error *error)
{
	if (part->part->index.bytes > INDEX_BYTES_MAX)
		return error_set(error, -EBADMSG, NULL,
				 "the index has %" PRIu64 " bytes, above the limit of %" PRIu64,
				 part->part->index.bytes, (uint64_t)INDEX_BYTES_MAX);
	return index_map_open(part->part->index.fd, part->part->index.bytes, false, ret, error);
}

static int compare_segments(const struct check_part *part, const struct index_view *view, uint64_t *ret_bytes,
			    struct error *error)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < part->part->segment_count; i++) {
		uint64_t bytes = part->part->segments[i].bytes;

		if (view->segments[i].bytes != bytes)
			return error_set(error, -EBADMSG, NULL,
					 "segment %u: the index says %" PRIu64 " bytes, hand_in says %" PRIu64,
					 i, view->segments[i].bytes, bytes);
		if (bytes > part->bytes_max - sum)
			return error_set(error, -EBADMSG,
					 "publish_begin must ask for what the segments hold in all",
					 "segment %u: with its %" PRIu64 " bytes the part is above the %" PRIu64
					 " that were granted",
					 i, bytes, part->bytes_max);
		sum += bytes;
	}
	*ret_bytes = sum;
	return 0;
}

/* A publisher that writes its index itself can give a field any name. */
static int check_key(const struct index_view *view, struct error *error)
{
	for (uint32_t i = 0; i < view->header->metadata_count; i++) {
		const char *key = view->heap + view->metadata[i].key, *wrong;

		if (strncmp(key, KEY_PREFIX, strlen(KEY_PREFIX)) != 0)
			continue;
		wrong = key_field_wrong(key + strlen(KEY_PREFIX), view->heap + view->metadata[i].value);
		if (wrong)
			return error_set(error, -EBADMSG,
					 "\"" KEY_PREFIX "\" begins the fields of a version's key",
					 "the metadata \"%.128s\": the field %s", key, wrong);
	}
	return 0;
}

static int check_index(const struct check_part *part, const struct index_map *index, struct check_result *ret,
		       struct error *error)
{
	const struct index_header *header = index->view.header;
	uint64_t bytes = 0;
	int r;

	if (header->rank != part->rank || header->world != part->world)
		return error_set(error, -EBADMSG, NULL,
				 "the index is of rank %u of %u, the publish of rank %u of %u", header->rank,
				 header->world, part->rank, part->world);
	if (header->segment_count != part->part->segment_count)
		return error_set(error, -EBADMSG, NULL, "the index names %u segments, %u were handed in",
				 header->segment_count, part->part->segment_count);
	r = compare_segments(part, &index->view, &bytes, error);
	if (r == 0)
		r = check_key(&index->view, error);
	if (r < 0)
		return r;
	*ret = (struct check_result){
		.layout = header->layout,
		.content = header->content,
		.tensors = header->tensor_count,
		.bytes = bytes,
	};
	return 0;
}

static int compare_places(const void *a, const void *b)
{
	const struct index_tensor *x = *(const struct index_tensor *const *)a,
				  *y = *(const struct index_tensor *const *)b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int order_tensors(struct check *check, struct error *error)
{
	uint32_t count = check->index.view.header->tensor_count;

	check->order = calloc((size_t)count + 1, sizeof(*check->order));
	if (!check->order)
		return error_set(error, -ENOMEM, NULL, "no room to check %u tensors", count);
	for (uint32_t i = 0; i < count; i++)
		check->order[i] = &check->index.view.tensors[i];
	qsort(check->order, count, sizeof(*check->order), compare_places);
	return 0;
}

static int check_progress(uint64_t bytes, void *user_data)
{
	struct check *check = user_data;

	if (check->progress && !check->stopped)
		check->stopped = check->progress(bytes, check->user_data);
	return check->stopped;
}

static const void *address_of(const struct check *check, const struct piece *piece)
{
	const void *segment =
		check->elsewhere ? check->elsewhere[piece->segment] : check->segments[piece->segment].address;

	return (const uint8_t *)segment + piece->from;
}

/* Makes the error for padding that is not all zeros: it says where. */
static int padding_fails(const struct check *check, const struct piece *piece, struct error *error)
{
	const struct memory_device *device = &check->device;
	const uint8_t *address = address_of(check, piece);
	uint64_t from = 0, left = piece->to - piece->from;
	uint8_t buffer[PADDING_CHUNK];
	uint64_t bytes = left;

	for (; left > 0; from += bytes, left -= bytes) {
		int r;

		bytes = left < sizeof(buffer) ? left : sizeof(buffer);
		r = device->ops->read(device, buffer, address + from, bytes, error);
		if (r < 0)
			return r;
		if (buffer[0] != 0 || memcmp(buffer, buffer + 1, bytes - 1) != 0)
			break;
	}
	/* The memory reads differently each time, so none of it can be trusted. */
	if (left == 0) {
		from = 0;
		bytes = piece->to - piece->from;
	}
	return error_set(error, -EBADMSG, "what no tensor holds must be zero",
			 "segment %u: the padding in bytes %" PRIu64 " to %" PRIu64
			 " is not zero, expected zeros",
			 piece->segment, piece->from + from, piece->from + from + bytes);
}

static int tensor_fails(const struct check *check, const struct piece *piece, const struct digest *digest,
			struct error *error)
{
	const char *name = index_tensor_name(&check->index.view, piece->tensor);
	char said[VERSION_ID_TEXT], found[VERSION_ID_TEXT];

	hex128_format(piece->tensor->digest.bytes, said);
	hex128_format(digest->bytes, found);
	return error_set(error, -EBADMSG, "the memory was written after its digest was taken, or is damaged",
			 "tensor \"%.*s\": the index says digest %s, its %" PRIu64 " bytes have %s",
			 text_shown(name), name, said, piece->tensor->bytes, found);
}

static void add_piece(struct check *check, uint32_t segment, const struct index_tensor *tensor, uint64_t from,
		      uint64_t to)
{
	if (tensor && from % sizeof(uint64_t) != 0)
		check->torn[segment] = true;
	if (from < to || tensor)
		check->pieces[check->piece_count++] = (struct piece){tensor, segment, from, to};
}

/* Cuts one segment into tensors and padding. *at is the first of its tensors in the order; it moves
 * behind the last one. */
static void cut_segment(struct check *check, uint32_t segment, uint32_t *at)
{
	uint32_t count = check->index.view.header->tensor_count;
	uint64_t end = 0;

	for (; *at < count && check->order[*at]->segment == segment; (*at)++) {
		const struct index_tensor *tensor = check->order[*at];

		/* Tied tensors share a place. Since the index is valid, they also share a
		 * digest. */
		if (tensor->bytes > 0 && tensor->offset < end)
			continue;
		add_piece(check, segment, NULL, end, tensor->offset);
		add_piece(check, segment, tensor, tensor->offset, tensor->offset + tensor->bytes);
		if (tensor->offset + tensor->bytes > end)
			end = tensor->offset + tensor->bytes;
	}
	add_piece(check, segment, NULL, end, check->part->part->segments[segment].bytes);
}

static bool is_left_out(const struct check *check, uint32_t segment)
{
	return check->part->left_out && check->part->left_out[segment];
}

static int cut_all(struct check *check, struct error *error)
{
	size_t most = 2 * (size_t)check->index.view.header->tensor_count + check->part->part->segment_count + 1;
	uint32_t at = 0;

	check->pieces = calloc(most, sizeof(*check->pieces));
	check->spans = calloc(most, sizeof(*check->spans));
	check->sums = calloc(most, sizeof(*check->sums));
	check->tallies = calloc(most, sizeof(*check->tallies));
	if (!check->pieces || !check->spans || !check->sums || !check->tallies)
		return error_set(error, -ENOMEM, NULL, "no room to check %zu pieces of memory", most);
	for (uint32_t i = 0; i < check->part->part->segment_count; i++) {
		const size_t before = check->piece_count;

		cut_segment(check, i, &at);
		if (is_left_out(check, i))
			check->piece_count = before;
	}
	for (size_t i = 0; i < check->piece_count; i++)
		check->spans[i] = (struct memory_span){address_of(check, &check->pieces[i]),
						       check->pieces[i].to - check->pieces[i].from};
	return 0;
}

/* Maps the segment at `position`. On a GPU the mapping proves the segment's size. */
static int map_segment(struct check *check, uint32_t position, struct error *error)
{
	const struct memory_device *device = &check->device;
	const struct part_fd *declared = &check->part->part->segments[position];
	struct memory_segment *segment = &check->segments[position];
	int r;

	if (declared->bytes == 0)
		return error_set(error, -EBADMSG, "leave it out", "segment %u has no bytes", position);
	r = device->ops->import(device, declared->fd, declared->bytes, true, segment, error);
	if (r == 0)
		r = device->ops->map(device, segment, MEMORY_READ, error);
	if (r < 0) {
		/* An error of the memory does not say which segment it is about. */
		struct error inner = *error;

		error_set(error, r, inner.detail, "segment %u: %s", position, inner.message);
	}
	return r;
}

static int map_all(struct check *check, struct error *error)
{
	uint32_t count = check->part->part->segment_count;
	int r = 0;

	check->segments = calloc((size_t)count + 1, sizeof(*check->segments));
	if (!check->segments)
		return error_set(error, -ENOMEM, NULL, "no room to check %u segments", count);
	for (uint32_t i = 0; i < count; i++)
		check->segments[i].fd = -1;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (!is_left_out(check, i))
			r = map_segment(check, i, error);
	}
	return r;
}

int check_open(const struct check_part *part, struct check **ret, struct error *error)
{
	struct check *check = calloc(1, sizeof(*check));
	int r;

	if (!check)
		return error_set(error, -ENOMEM, NULL, "out of memory");
	check->part = part;
	check->damaged = -1;
	r = index_map(part, &check->index, error);
	if (r < 0) {
		free(check);
		return r;
	}
	r = check_index(part, &check->index, &check->result, error);
	if (r == 0)
		r = memory_device_open(part->device, &check->device, error);
	if (r == 0)
		r = order_tensors(check, error);
	if (r == 0)
		r = map_all(check, error);
	if (r == 0)
		r = cut_all(check, error);
	if (r == 0)
		*ret = check;
	else
		check_close(check);
	return r;
}

const void *check_segment(const struct check *check, uint32_t segment)
{
	return check->segments[segment].address;
}

void check_elsewhere(struct check *check, const void *const *addresses)
{
	check->elsewhere = addresses;
	for (size_t i = 0; i < check->piece_count; i++)
		check->spans[i].address = address_of(check, &check->pieces[i]);
}

int check_damaged(const struct check *check)
{
	return check->damaged;
}

struct check *check_close(struct check *check)
{
	if (!check)
		return NULL;
	for (uint32_t i = 0; check->segments && i < check->part->part->segment_count; i++)
		check->device.ops->release(&check->device, &check->segments[i]);
	free(check->segments);
	free(check->pieces);
	free(check->spans);
	free(check->sums);
	free(check->tallies);
	free(check->order);
	index_map_close(&check->index);
	free(check);
	return NULL;
}

static int compare_piece(struct check *check, size_t number, struct error *error)
{
	const struct piece *piece = &check->pieces[number];
	const struct memory_sum *sum = &check->sums[number];
	int r = 0;

	if (!piece->tensor)
		r = sum->zero ? 0 : padding_fails(check, piece, error);
	else if (!digest_equal(&sum->digest, &piece->tensor->digest))
		r = tensor_fails(check, piece, &sum->digest, error);
	if (r == -EBADMSG)
		check->damaged = (int)piece->segment;
	return r;
}

/* ---- bytes that a copy has ------------------------------------------------ */

bool check_adds(const struct check *check, uint32_t segment)
{
	return !check->torn[segment] && !is_left_out(check, segment);
}

/* The first piece that ends behind `offset`. */
static size_t find_piece(const struct check *check, uint32_t segment, uint64_t offset)
{
	size_t from = 0, to = check->piece_count;

	while (from < to) {
		const size_t middle = from + (to - from) / 2;
		const struct piece *piece = &check->pieces[middle];

		if (piece->segment < segment || (piece->segment == segment && piece->to <= offset))
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void add_to(struct check *check, size_t number, uint64_t offset, const uint8_t *data, size_t bytes)
{
	struct tally *tally = &check->tallies[number];

	if (!check->pieces[number].tensor) {
		if (data[0] != 0 || memcmp(data, data + 1, bytes - 1) != 0)
			__atomic_store_n(&tally->not_zero, true, __ATOMIC_RELAXED);
		return;
	}
	digest_update_shared(&tally->sum, offset, data, bytes);
}

void check_add(struct check *check, uint32_t segment, uint64_t offset, const void *data, uint64_t bytes)
{
	const uint64_t end = offset + bytes;

	for (size_t i = find_piece(check, segment, offset); i < check->piece_count; i++) {
		const struct piece *piece = &check->pieces[i];
		const uint64_t from = piece->from > offset ? piece->from : offset;
		const uint64_t to = piece->to < end ? piece->to : end;

		if (piece->segment != segment || piece->from >= end)
			break;
		if (from < to)
			add_to(check, i, from - piece->from, (const uint8_t *)data + (from - offset),
			       (size_t)(to - from));
	}
}

int check_added(struct check *check, struct error *error)
{
	const struct memory_device *device = &check->device;
	int r = device->ops->enter(device, error);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < check->piece_count; i++) {
		const struct piece *piece = &check->pieces[i];
		const struct tally *tally = &check->tallies[i];

		check->sums[i] = (struct memory_sum){
			.digest = digest_final(&tally->sum, piece->to - piece->from),
			.zero = !tally->not_zero,
		};
		if (check_adds(check, piece->segment))
			r = compare_piece(check, i, error);
	}
	device->ops->leave(device);
	return r;
}

/* ---- bytes that are read --------------------------------------------------- */

static int check_inside(struct check *check, struct error *error)
{
	const struct memory_digest_options options = {
		.pace = check->part->pace,
		.progress = check_progress,
		.user_data = check,
		.ret_report = &check->result.report,
	};
	int r = memory_digests(&check->device, check->spans, check->piece_count, &options, check->sums, error);

	if (r < 0)
		return check->stopped ? check->stopped : r;
	for (size_t i = 0; r == 0 && i < check->piece_count; i++)
		r = compare_piece(check, i, error);
	return r;
}

int check_bytes(struct check *check, memory_progress_fn *progress, void *user_data, struct check_result *ret,
		struct error *error)
{
	const struct memory_device *device = &check->device;
	int r = device->ops->enter(device, error);

	if (r < 0)
		return r;
	check->progress = progress;
	check->user_data = user_data;
	r = check_inside(check, error);
	device->ops->leave(device);
	if (r == 0)
		*ret = check->result;
	return r;
}

int check_part(const struct check_part *part, memory_progress_fn *progress, void *user_data,
	       struct check_result *ret, struct error *error)
{
	struct check *check = NULL;
	int r = check_open(part, &check, error);

	if (r == 0)
		r = check_bytes(check, progress, user_data, ret, error);
	check_close(check);
	return r;
}
