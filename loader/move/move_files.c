#include "move_internal.h"

#include "../devices/lanes.h"
#include "../../service/log.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the copy ------------------------------------------------------------- */

struct files_copy {
	struct move_files *files;
	void **addresses; /* of the plain tensors */
	struct copy_target target;
};

void *files_place(const struct move *move, uint32_t position)
{
	const struct index_tensor *tensor = &move->index.view.tensors[position];

	return (char *)move->segments[tensor->segment].address + tensor->offset;
}

/* Makes the memory, waits for the GPU if there is one, and finds out where each tensor goes. */
static int make_target(struct files_copy *c)
{
	struct move *move = c->files->move;
	const struct files_list *plain = &c->files->plain;
	int r = move_memory_make(move, tier_device(move->to, move->params->place.device));

	if (r == 0)
		r = move_await_gpu(move);
	if (r == 0)
		r = move_memory_zero(move);
	for (size_t i = 0; r == 0 && i < plain->count; i++)
		c->addresses[i] =
			files_shared(c->files, plain->index[i]) ? NULL : files_place(move, plain->index[i]);
	c->target = (struct copy_target){
		.rank = c->target.rank,
		.device = &move->device,
		.addresses = c->addresses,
		.segments = move->made,
		.segment_count = move_count_made(move),
	};
	return r < 0 ? r : work_phase(move->work, "copying", plain->bytes + c->files->strided.bytes);
}

/* The function `open` of struct copy, which runs beside the first reads. */
static int open_lanes(struct lanes **ret, void *data, struct error *error)
{
	struct files_copy *c = data;
	struct move *move = c->files->move;
	int r = make_target(c);

	if (r == 0)
		r = lanes_open(&c->target, 1, prepare_ring(move->prepare)->count, &move->lanes, error);
	*ret = move->lanes;
	return r;
}

/* Reads the plain tensors, into the target if there is one. */
static int read_plain(struct files_copy *c, bool writes, struct digest *digests)
{
	struct move *move = c->files->move;
	const bool is_cut = move->params->choice.cut;
	const struct move_files *files = c->files;
	const struct files_list *plain = &files->plain;
	struct source source = files->source;
	struct ring *ring = writes ? prepare_ring(move->prepare) : NULL;
	const struct copy copy = {
		.source = &source,
		.targets = &c->target,
		.target_count = writes || is_cut,
		.cut = is_cut ? &files->cut : NULL,
		.readers = ring ? prepare_readers(move->prepare) : 0,
		.ring = ring,
		.open = open_lanes,
		.open_data = c,
		.progress = work_advance,
		.user_data = move->work,
	};
	int r = 0;

	/* A cut has shares of all ranks, of which the target's is read. */
	if (!is_cut) {
		source.tensors = plain->tensors;
		source.tensor_count = plain->count;
		source.bytes = plain->bytes;
	}
	c->target.rank = is_cut ? (uint32_t)move->params->place.rank : 0;
	if (writes && !ring)
		r = make_target(c);
	else if (ring)
		r = prepare_wait_buffers(move->prepare, work_advance, move->work, move->error);
	else
		r = work_phase(move->work, "reading", plain->bytes + files->strided.bytes);
	if (r == 0)
		r = copy_run(&copy, digests, &move->copied, move->error);
	digests += files_first(files);
	for (size_t i = 0; r == 0 && i < plain->count; i++) {
		if (!files_shared(files, plain->index[i]))
			r = files_compare(files, &plain->tensors[i], plain->index[i], &digests[i], move->error);
	}
	return r;
}

static int files_read_all(struct move_files *files, bool writes)
{
	const size_t count = files->plain.count;
	struct files_copy c = {.files = files, .addresses = calloc(count + 1, sizeof(*c.addresses))};
	struct digest *digests = calloc(files_digests(files) + 1, sizeof(*digests));
	int r;

	if (!c.addresses || !digests)
		r = error_set(files->move->error, -ENOMEM, NULL, "no room to read %zu tensors", count);
	else
		r = read_plain(&c, writes, digests);
	if (r == 0)
		r = files_strided(files, writes);
	files->move->lanes = lanes_close(files->move->lanes); /* they refer to the target */
	free(digests);
	free(c.addresses);
	return r;
}

/* ---- the ways ------------------------------------------------------------- */

static int open_files(struct move_files *files)
{
	struct move *move = files->move;
	int r = work_phase(move->work, "opening", 0);

	if (r == 0)
		r = files_open(files);
	for (size_t i = 0; r == 0 && i < SOURCE_NOTES_MAX && files->source.notes[i][0]; i++)
		work_note(move->work, "%s", files->source.notes[i]);
	return r;
}

bool move_files_are_wrong(int r)
{
	return r < 0 && r != -ECANCELED && r != -ECONNRESET && r != -ENOMEM && r != -ENOSPC && r != -ENODEV;
}

/* What a publisher has described is brought back, or compared, whenever anybody asks for it. Then its files may be others, which that user
 * may not read: the user learns that they are others, and no more. What he passes he may read. */
static int files_say_no_more(const struct move *move, int r)
{
	const struct job_move_params *params = move->params;

	if (!move_files_are_wrong(r) || !params->by_publisher || move->files >= 0)
		return r;
	log_plain("%s (not told: a publisher has described %s@%s by these files)", move->error->message,
		  params->model, params->tag);
	return error_set(
		move->error, -EBADMSG,
		"bring back the files by which it was described, without links to them; the loader's log has "
		"the reason",
		"%s does not have the files by which %s@%s was described", params->source, params->model,
		params->tag);
}

int move_from_files(struct move *move)
{
	struct move_files files = {.move = move};
	int r = open_files(&files);

	if (r == 0)
		r = prepare_buffers(move->prepare, files.plain.bytes, move->error);
	if (r == 0)
		r = files_read_all(&files, true);
	files_close(&files);
	return files_say_no_more(move, r);
}

int move_prove(struct move *move)
{
	struct move_files files = {.move = move};
	int r = open_files(&files);

	if (r == 0)
		r = files_read_all(&files, false);
	files_close(&files);
	return files_say_no_more(move, r);
}
