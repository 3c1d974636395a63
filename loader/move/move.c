#include "move_internal.h"

#include "compare.h"
#include "../check.h"
#include "../devices/lanes.h"
#include "../jobs.h"

#include "../../base/bytes.h"
#include "../../proto/wire/messages.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- the index ----------------------------------------------------------- */

/* An index or a memory that can't be read says nothing about the version's bytes. */
static int not_damage(int r, struct error *error)
{
	if (r == -EBADMSG)
		r = error->code = -EIO;
	return r;
}

static int compare_segments(const struct move *move)
{
	const struct part *part = &move->of.part;
	const struct index_view *view = &move->index.view;

	if (part->segment_count != view->header->segment_count)
		return error_set(move->error, -EIO, NULL, "the index names %u segments, %u came with the job",
				 view->header->segment_count, part->segment_count);
	for (uint32_t i = 0; i < part->segment_count; i++)
		if (part->segments[i].bytes != view->segments[i].bytes)
			return error_set(move->error, -EIO, NULL,
					 "segment %u: the index says %llu bytes, the job says %llu", i,
					 (unsigned long long)view->segments[i].bytes,
					 (unsigned long long)part->segments[i].bytes);
	return 0;
}

/* Whether the job came with the part's memory. */
static bool has_memory(const struct move *move)
{
	return tier_has_memory(move->from) && tier_has_memory(move->to);
}

/* Twins lie among the part's segments, or are all that came. */
static int take_twins(struct move *move)
{
	const struct job_move_params *params = move->params;
	const struct part *part = &move->of.part;
	const bool among = has_memory(move);

	for (uint32_t i = 0; i < PART_SEGMENTS_MAX; i++)
		move->twins[i] = -1;
	if (!among && part->segment_count != params->shared.count && !move->verifies)
		return error_set(move->error, -EIO, NULL, "%u segments came with the job, which shares %u",
				 part->segment_count, params->shared.count);
	for (uint32_t i = 0; i < params->shared.count; i++) {
		const uint64_t position = params->shared.items[i];
		const struct part_fd *twin = &part->segments[among ? position : i];

		if (position >= segment_count(move) || move->twins[position] >= 0 ||
		    twin->bytes != move->index.view.segments[position].bytes)
			return error_set(move->error, -EIO, NULL,
					 "the job shares segment %" PRIu64 " of %u, twice or with another size",
					 position, segment_count(move));
		move->twins[position] = twin->fd;
		move->twin_count++;
	}
	return 0;
}

static int open_index(struct move *move)
{
	const struct job_move_params *params = move->params;
	const struct part_fd *index = &move->of.part.index;
	const struct index_header *header;
	int r = index_map_open(index->fd, index->bytes, false, &move->index, move->error);

	if (r < 0)
		return not_damage(r, move->error);
	header = move->index.view.header;
	if (header->rank != params->place.rank || header->world != params->place.world)
		return error_set(move->error, -EIO, NULL,
				 "the index is of rank %u of %u, the job of rank %" PRIu64 " of %" PRIu64,
				 header->rank, header->world, params->place.rank, params->place.world);
	r = has_memory(move) ? compare_segments(move) : 0;
	if (r == 0)
		r = take_twins(move);
	for (uint32_t i = 0; r == 0 && i < header->segment_count; i++) {
		move->all_bytes += move->index.view.segments[i].bytes;
		move->bytes += move_makes(move, i) ? move->index.view.segments[i].bytes : 0;
	}
	return r;
}

/* ---- checking ------------------------------------------------------------ */

/* Reads the bytes of a part, and compares them with the index. left_out: as in check_part. */
static int move_check(struct move *move, const char *device, const struct part *part, const bool *left_out,
		      int *ret_damaged)
{
	struct check_part of = check_part_at(&move->params->place, part);
	struct check_result result;
	struct check *opened = NULL;
	int r;

	of.device = device;
	of.left_out = left_out;
	r = not_damage(check_open(&of, &opened, move->error), move->error);
	if (r == 0)
		r = check_bytes(opened, work_advance, move->work, &result, move->error);
	if (r == 0 && result.report.note[0])
		work_note(move->work, "%s", result.report.note);
	*ret_damaged = r == -EBADMSG ? check_damaged(opened) : -1;
	check_close(opened);
	return r;
}

/* If the old memory differs too, the version is damaged; if not, the copy went wrong. Of segments with twins the job does not have the
 * old memory. */
int move_blame(struct move *move)
{
	const char *from = tier_device(move->from, move->params->place.device);
	struct error arrived = *move->error;
	bool twins[PART_SEGMENTS_MAX];
	int r = work_phase(move->work, "checking", move->bytes);

	for (uint32_t i = 0; i < segment_count(move); i++)
		twins[i] = !move_makes(move, i);
	if (r == 0)
		r = move_check(move, from, &move->of.part, twins, &move->work->damaged);
	if (r != 0)
		return r;
	return error_set(move->error, -EIO,
			 "try again; where that fails too, suspect the device, or the way to it",
			 "the bytes that arrived on %s are not those that lie on %s: %s", move->device.id, from,
			 arrived.message);
}

static int check_new(struct move *move)
{
	struct error arrived;
	struct part list;
	uint64_t bytes = 0;
	int damaged, r;

	/* What came from files into host memory was digested by this CPU when it was written. */
	for (uint32_t i = 0; i < segment_count(move); i++) {
		if (!tier_has_memory(move->from) && move->device.ops->cpu_addresses)
			move->compared[i] = move_makes(move, i);
		bytes += move->compared[i] ? 0 : move->index.view.segments[i].bytes;
	}
	if (bytes == 0)
		return 0;
	move_memory_list(move, &list);
	r = work_phase(move->work, "checking", bytes);
	if (r == 0)
		r = move_check(move, move->device.id, &list, move->compared, &damaged);
	if (r != -EBADMSG)
		return r;
	if (damaged >= 0 && !move_makes(move, (uint32_t)damaged)) {
		arrived = *move->error;
		move->work->damaged = damaged; /* gpuwmd knows whose it is */
		return error_set(move->error, -EIO, "try again: it then gets memory of its own",
				 "segment %d, which it was to share on %s, is damaged: %s", damaged,
				 move->device.id, arrived.message);
	}
	if (has_memory(move))
		return move_blame(move);
	return not_damage(r, move->error);
}

/* ---- the order ------------------------------------------------------------ */

/* A version that other nodes have may come from the files of another version of this one, and else from those nodes. */
static int move_from_nodes(struct move *move)
{
	const char *files = move->params->source;
	int r;

	if (!files)
		return move_from_peer(move);
	r = move_from_files(move);
	if (r == 0)
		work_note(move->work, "read from %s: another version with these files has the same content",
			  files);
	if (!move_files_are_wrong(r))
		return r;
	work_note(move->work, "other nodes are asked: another version had the same content in %s, but %s",
		  files, move->error->message);
	move_memory_free(move);
	move->copied = (struct copy_report){0};
	return move_from_peer(move);
}

static int move_from_source(struct move *move)
{
	return move->params->again ? move_from_nodes(move) : move_from_files(move);
}

/* What brings the bytes from a tier to another one. For files, move_prove proves that they lie there already. */
static int (*const ways[TIERS][TIERS])(struct move *move) = {
	[ON_DEVICE] = {[ON_HOST] = move_back, [ON_FILES] = move_prove},
	[ON_HOST] = {[ON_DEVICE] = move_forth, [ON_FILES] = move_prove},
	[ON_FILES] = {[ON_DEVICE] = move_from_source, [ON_HOST] = move_from_source},
};
static_assert(TIERS == 3, "the table has a way between any two tiers");

/* Another version has all of it there. */
static int move_nothing(struct move *move)
{
	int r = move_memory_make(move, tier_device(move->to, move->params->place.device));

	return r < 0 ? r : move_await_gpu(move);
}

static void note_twins(const struct move *move)
{
	char shared[BYTES_TEXT], all[BYTES_TEXT];

	if (move->twin_count > 0)
		work_note(move->work, "shares %u of its %u segments there, as it did before: %s of %s",
			  move->twin_count, segment_count(move),
			  bytes_format(move->all_bytes - move->bytes, shared),
			  bytes_format(move->all_bytes, all));
}

static void move_note_copied(const struct move *move)
{
	char text[TEXT_BYTES_MAX + 1];

	if (move->copied.seconds <= 0)
		return;
	copy_report_text(&move->copied, text, sizeof(text));
	work_note(move->work, "%s", text);
	if (move->copied.note[0])
		work_note(move->work, "%s", move->copied.note);
}

static int move_part(struct move *move)
{
	const struct job_move_params *params = move->params;
	struct part list;
	int r;

	/* Memory goes between a GPU and the host, or comes from files. */
	if (move->from == move->to)
		return error_set(move->error, -EINVAL, NULL, "%s@%s lies on that tier already", params->model,
				 params->tag);
	if (device_same(params->place.device, DEVICE_HOST) && has_memory(move))
		return error_set(move->error, -EINVAL, "demote it to files",
				 "%s@%s lies in host memory: that is its device", params->model, params->tag);
	r = open_index(move);
	if (r == 0)
		note_twins(move);
	if (r == 0 && tier_has_memory(move->to) && move_count_made(move) == 0)
		r = move_nothing(move);
	else if (r == 0)
		r = ways[move->from][move->to](move);
	move->lanes = lanes_close(move->lanes);
	if (r < 0)
		return r;
	move_note_copied(move);
	if (tier_has_memory(move->to)) {
		r = move_memory_close(move);
		if (r == 0)
			r = check_new(move);
	}
	if (r == 0)
		r = work_phase(move->work, "handing in", 0);
	if (r < 0)
		return r;
	move_memory_list(move, &list);
	return report_moved(move->work, &(struct loader_moved_params){params->place.rank, params->place.device},
			    &list, move->error);
}

/* ---- the job ---------------------------------------------------------------- */

static int move_take(struct job *job, const struct message *message, struct packet *packet, struct error *error)
{
	struct move *move = (struct move *)job;
	int r;

	move->params = job->params;
	move->files = -1;
	/* It is the last descriptor: those before it are the part's. */
	if (move->params->files) {
		if (*move->params->files + 1 != packet->fd_count ||
		    packet_take_fd(packet, *move->params->files, &move->files) < 0)
			return error_set(error, -EBADMSG, NULL,
					 "the job came without the socket for its files");
		packet->fd_count--;
	}
	r = part_job_take(job, message, packet, error);
	if (r < 0)
		return r;
	tier_find(move->params->from, &move->from); /* the message was checked for unknown tiers */
	tier_find(move->params->to, &move->to);
	job->keep = move->params->keep;
	return 0;
}

static void move_clear(struct job *job)
{
	struct move *move = (struct move *)job;

	if (move->files >= 0)
		close(move->files);
	part_job_clear(job);
}

/* A GPU is needed if its memory is read or written. */
static int move_prepare(const struct move *move, struct prepare **prepare, struct error *error)
{
	const bool touches =
		tier_has_memory(move->to) && (tier_is_resident(move->from) || tier_is_resident(move->to));

	return prepare_start(&(struct prepare_for){move->of.job.devices, touches, .keeps = move->of.job.keep},
			     prepare, error);
}

/* Sets *ret to the roots of the loader's service if it has its own, and otherwise to those of the message. *own is for roots_clear. */
static int find_roots(const struct work *work, const struct job_move_params *params, struct roots *own,
		      struct roots *ret, struct error *error)
{
	const struct roots said = {.paths = (char **)params->roots.items, .count = params->roots.count};
	int r = work->service->own ? roots_read(work->service->file, own, error) : 0;

	*ret = work->service->own ? *own : said;
	ret->links = params->by_publisher ? BENEATH_NO_LINKS : BENEATH_LINKS;
	return r;
}

int move_compare(const struct job_move_params *params, const struct part *part, struct work *work,
		 struct error *error)
{
	struct roots own = {0}, roots;
	struct move move = {
		.of.part = *part,
		.from = ON_DEVICE,
		.to = ON_FILES,
		.verifies = true,
		.files = -1,
		.params = params,
		.roots = &roots,
		.work = work,
		.error = error,
	};
	int r = find_roots(work, params, &own, &roots, error);

	if (r == 0)
		r = open_index(&move);
	if (r == 0)
		r = move_prove(&move);
	if (r == 0)
		move_note_copied(&move);
	index_map_close(&move.index);
	roots_clear(&own);
	return r;
}

/* Moves the part, and hands the new memory to gpuwmd. Afterwards this process holds none of the new memory. Returns 0. Fails with
 *   -EBADMSG     Bytes are not those of the index. If the part's own memory differs, work->damaged is its segment; otherwise the
 *                files changed, and the message names one of them.
 *   -ENOENT      A file is missing.
 *   -EINVAL      The part can't lie on the job's tier or device.
 *   -ENOSPC      There is no room for the new memory.
 *   -EIO         Memory or a file can't be read.
 *   -ECANCELED, -ECONNRESET, and the codes of its steps. */
static int move_run(struct job *job, struct work *work, struct error *error)
{
	struct move *move = (struct move *)job;
	const struct job_move_params *params = move->params;
	struct roots own = {0}, roots;
	int r = move_prepare(move, &work->prepare, error);

	if (r == 0)
		r = find_roots(work, params, &own, &roots, error);
	if (r == 0)
		r = work_phase(work, "mapping", 0);
	move->roots = &roots;
	move->work = work;
	move->prepare = work->prepare;
	move->error = error;
	if (r == 0)
		r = move_part(move);
	move_memory_free(move);
	index_map_close(&move->index);
	roots_clear(&own);
	return r;
}

const struct job_kind kind_move = {.name = "move",
				   .form = &form_job_move,
				   .place = offsetof(struct job_move_params, place),
				   .bytes = sizeof(struct move),
				   .take = move_take,
				   .run = move_run,
				   .clear = move_clear};
