/* A part that comes back from another node. */
#include "move_internal.h"

#include <errno.h>
#include <stdio.h>

static int run_again(const struct peer_settings *settings, struct work *work, void *data, struct error *error)
{
	struct move *move = data;
	const struct part_fd *index = &move->of.part.index;
	const struct peer_again again = {
		.params = move->params,
		.index = move->index.view.header,
		.index_bytes = index->bytes,
		.device = &move->device,
		.segments = move->segments,
	};

	return peer_again_run(&again, settings, work, error);
}

/* The remedy if no node has it: any files with the same content will do. */
static int add_remedy(struct move *move, int r)
{
	const struct job_move_params *params = move->params;
	struct error why = *move->error;
	char remedy[3 * NAME_BYTES_MAX];

	if (why.detail[0] || r == -ECANCELED)
		return r;
	snprintf(remedy, sizeof(remedy),
		 "start a node that has it; or, if files have it: gpuwmctl describe %s@%s FOLDER",
		 params->model, params->tag);
	return error_set(move->error, r, remedy, "%s", why.message);
}

int move_from_peer(struct move *move)
{
	const struct job_again *again = move->params->again;
	int r = move_memory_make(move, tier_device(move->to, move->params->place.device));

	if (r == 0)
		r = move_await_gpu(move);
	if (r < 0)
		return r;
	r = with_peer_settings(again->peers, move->work, run_again, move, move->error);
	return r < 0 ? add_remedy(move, r) : 0;
}
