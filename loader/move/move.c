#include "move_internal.h"

#include "../check.h"
#include "../devices/lanes.h"
#include "../jobs.h"

#include "../../base/bytes.h"
#include "../../proto/wire/messages.h"

#include <errno.h>

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
	const struct part *part = move->job->part;
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
static bool has_memory(const struct job *job)
{
	return tier_has_memory(job->from) && tier_has_memory(job->to);
}

static int open_index(struct move *move)
{
	const struct job *job = move->job;
	const struct part_fd *index = &job->part->index;
	const struct index_header *header;
	int r = index_map_open(index->fd, index->bytes, false, &move->index, move->error);

	if (r < 0)
		return not_damage(r, move->error);
	header = move->index.view.header;
	if (header->rank != job->rank || header->world != job->world)
		return error_set(move->error, -EIO, NULL,
				 "the index is of rank %u of %u, the job of rank %u of %u", header->rank,
				 header->world, job->rank, job->world);
	for (uint32_t i = 0; i < header->segment_count; i++)
		move->bytes += move->index.view.segments[i].bytes;
	return has_memory(job) ? compare_segments(move) : 0;
}

/* ---- checking ------------------------------------------------------------ */

/* Reads all bytes of a part, and compares them with the index. */
static int move_check(struct move *move, const char *device, const struct part *part, int *ret_damaged)
{
	const struct check_part of = {
		.device = device,
		.rank = move->job->rank,
		.world = move->job->world,
		.bytes_max = UINT64_MAX,
		.part = part,
	};
	struct check_result result;
	struct check *opened = NULL;
	int r = not_damage(check_open(&of, &opened, move->error), move->error);

	if (r == 0)
		r = check_bytes(opened, work_advance, move->work, &result, move->error);
	if (r == 0 && result.report.note[0])
		work_note(move->work, "%s", result.report.note);
	*ret_damaged = r == -EBADMSG ? check_damaged(opened) : -1;
	check_close(opened);
	return r;
}

/* The new memory differs. If the old one does too, the version is damaged; if not, the copy went wrong. */
static int blame(struct move *move, const char *from)
{
	struct error arrived = *move->error;
	int r = work_phase(move->work, "checking", move->bytes);

	if (r == 0)
		r = move_check(move, from, move->job->part, &move->work->damaged);
	if (r != 0)
		return r;
	return error_set(move->error, -EIO,
			 "try again; where that fails too, suspect the device, or the way to it",
			 "the bytes that arrived on %s are not those that lie on %s: %s", move->device.id, from,
			 arrived.message);
}

static int check_new(struct move *move)
{
	const struct job *job = move->job;
	struct part list;
	int damaged, r;

	/* What came from files into host memory was digested by this CPU when it was written. */
	if (!tier_has_memory(job->from) && move->device.ops->cpu_addresses)
		return 0;
	move_memory_list(move, &list);
	r = work_phase(move->work, "checking", move->bytes);
	if (r == 0)
		r = move_check(move, move->device.id, &list, &damaged);
	if (r != -EBADMSG)
		return r;
	if (has_memory(job))
		return blame(move, tier_device(job->from, job->device));
	return not_damage(r, move->error);
}

/* ---- the order ------------------------------------------------------------ */

/* Between tiers with memory. */
static const struct {
	enum tier from, to;
	int (*run)(struct move *move);
} ways[] = {
	{ON_DEVICE, ON_HOST, move_back},
	{ON_HOST, ON_DEVICE, move_forth},
};

/* Brings the bytes to the tier where they are to lie. For files, proves that they lie there already. */
static int move_bytes(struct move *move)
{
	const enum tier from = move->job->from, to = move->job->to;

	if (!tier_has_memory(to))
		return move_prove(move);
	if (!tier_has_memory(from))
		return move_from_files(move);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (ways[i].from == from && ways[i].to == to)
			return ways[i].run(move);
	}
	return error_set(move->error, -EINVAL, "use gpuwm-loader and gpuwmd of one release",
			 "this loader has no way from the tier %s to %s", tier_name(from), tier_name(to));
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
	const struct job *job = move->job;
	struct part list;
	int r;

	/* Memory goes between a GPU and the host, or comes from files. */
	if (job->from == job->to)
		return error_set(move->error, -EINVAL, NULL, "%s@%s lies on that tier already", job->model,
				 job->tag);
	if (device_same(job->device, DEVICE_HOST) && has_memory(job))
		return error_set(move->error, -EINVAL, "demote it to files",
				 "%s@%s lies in host memory: that is its device", job->model, job->tag);
	r = open_index(move);
	if (r == 0)
		r = move_bytes(move);
	move->lanes = lanes_close(move->lanes);
	if (r < 0)
		return r;
	move_note_copied(move);
	if (tier_has_memory(job->to)) {
		r = move_memory_close(move);
		if (r == 0)
			r = check_new(move);
	}
	if (r == 0)
		r = work_phase(move->work, "handing in", 0);
	if (r < 0)
		return r;
	move_memory_list(move, &list);
	return report_moved(move->work, job, &list, move->error);
}

int move_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error)
{
	struct move move = {.job = job, .work = work, .prepare = prepare, .error = error};
	int r = work_phase(work, "mapping", 0);

	if (r == 0)
		r = move_part(&move);
	move_memory_free(&move);
	index_map_close(&move.index);
	return r;
}
