/* Moves: a loader brings one part of a version from one tier to another, or compares files with it. */
#include "../jobs/job.h"
#include "../jobs/job_load.h"
#include "../jobs/verify.h"
#include "../versions/sharing.h"
#include "tiers_internal.h"
#include "../../config/config.h"
#include "../../../service/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct move_job {
	struct job job;
	struct tier_move *move; /* NULL: it has ended, or has left the job to its loader */
	char *source; /* owned; NULL: it moves between memories */
};

struct tier_move *job_move_of(const struct job *job)
{
	return job->kind == JOB_MOVE ? ((const struct move_job *)job)->move : NULL;
}

bool job_makes_room(const struct job *job)
{
	const struct tier_move *move = job_move_of(job);

	return move && move->to > move->from && !move->copies;
}

bool job_makes_copy(const struct job *job)
{
	const struct tier_move *move = job_move_of(job);

	return move && move->copies;
}

void job_move_forget(struct job *job)
{
	((struct move_job *)job)->move = NULL;
}

/* What the version comes back from, or is compared with: files or nodes. NULL: it moves between memories. */
static const struct description *source_of(const struct tier_move *move)
{
	if (move->describes)
		return move->describes;
	return tier_has_memory(move->from) && tier_has_memory(move->to) ? NULL : move->version->description;
}

/* Its maker may know where the other's files are, and nobody else's files decide what the version gets. */
static bool may_read_files_of(const struct tier_move *move, const struct version *other)
{
	const struct version *version = move->version;

	return other->by_operator == version->by_operator &&
	       (version->by_operator || other->owner == version->owner) &&
	       sharing_may(move->work, other, version);
}

/* Returns the files of another version that has the same content, for one that only nodes have: they may be gone, or this node may be
 * the only one. NULL: there is none. */
static const struct description *files_of_same(const struct tier_move *move)
{
	struct version *other = NULL;

	while ((other = registry_next_version(move->work->ledger->registry, NULL, other))) {
		if (other->state == VERSION_READY && description_has_files(other->description) &&
		    version_has_content_of(other, move->version) && may_read_files_of(move, other))
			return other->description;
	}
	return NULL;
}

static uint64_t bytes_of_ranks(const struct version *version)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < version->world; i++)
		bytes += version_rank(version, i)->bytes;
	return bytes;
}

/* Where the part has a twin, the job has the twin's memory. Returns how many there are, with their positions. */
static uint32_t put_twins(const struct relocated *memory, struct part *part,
			  uint64_t positions[PART_SEGMENTS_MAX])
{
	const bool of_files = part->segment_count == 0;
	uint32_t count = 0;

	for (uint32_t i = 0; count < memory->twin_count; i++) {
		const struct segment *segment = memory->twins[i].segment;

		if (!segment)
			continue;
		positions[count] = i;
		part->segments[of_files ? count : i] = (struct part_fd){segment->fd, segment->bytes};
		count++;
	}
	if (of_files)
		part->segment_count = count;
	return count;
}

static size_t job_move_put(struct message_writer *w, const struct job *job, const struct config *config,
			   int ret_fds[PACKET_FDS_MAX])
{
	const struct tier_move *move = job_move_of(job);
	const struct version *version = move->version;
	const struct replica *replica = &version->replicas[job->replica];
	const struct description *source = source_of(move);
	const bool of_nodes = source && !description_has_files(source);
	const struct description *files = of_nodes ? files_of_same(move) : source;
	const struct job_peers peers = job_peers_of(&config->peers);
	const struct job_again again = {
		.peers = peer_settings_on(&config->peers) ? &peers : NULL,
		.source = of_nodes ? source->source : NULL,
		.fingerprint = of_nodes ? source->fingerprint : NULL,
		.version = &version->id,
		.content = &version_rank(version, 0)->content,
		.bytes = bytes_of_ranks(version),
	};
	/* Files are compared with the index, wherever the memory lies. */
	const enum tier from = move->describes ? ON_DEVICE : move->from;
	struct job_move_params params = {.model = job->model,
					 .tag = job->tag,
					 .place = {job->rank, job->world, replica->device->id},
					 .from = tier_name(from),
					 .to = tier_name(move->describes ? ON_FILES : move->to),
					 .keep = job->by_operator && job->devices[0]->context > 0 &&
						 config->keep_context_s > 0,
					 .again = of_nodes ? &again : NULL};
	static const uint64_t behind_index = 1;
	uint64_t shared[PART_SEGMENTS_MAX];
	uint32_t shared_count;
	size_t count;
	struct part part;

	if (files) {
		params.source = files->source;
		params.choice = files->choice;
		params.by_publisher = files->by_publisher;
		params.files = job->publisher_sock >= 0 ? &behind_index : NULL;
		params.roots.items = (const char *const *)config->roots;
		params.roots.count = (uint32_t)config->root_count;
	}
	replica_list(replica, &part);
	if (source) /* its memory is not needed: the index has the digests */
		part.segment_count = 0;
	shared_count = put_twins(&move->memory[job->replica], &part, shared);
	params.shared.items = shared_count ? shared : NULL;
	params.shared.count = shared_count;
	record_put(w, form_job_move.params, &params);
	count = part_write(w, &part, ret_fds);
	if (params.files)
		ret_fds[count++] = job->publisher_sock;
	return count;
}

/* ---- the end ---- */

/* Returns the segment of another version that the loader found to be damaged, or NULL. */
static struct segment *damaged_twin(const struct tier_move *move, const struct job *job)
{
	const struct relocated *memory = &move->memory[job->replica];

	return job->found_segment && memory->holds_twins &&
			       job->damaged_segment <
				       replica_count_segments(&move->version->replicas[job->replica])
		       ? memory->twins[job->damaged_segment].segment
		       : NULL;
}

static void job_move_end(struct work *work, struct job *job, const struct error *error)
{
	struct tier_move *move = job_move_of(job);
	struct error unfinished;

	if (!move)
		return;
	move->parts[job->replica].job = NULL;
	work_later(work, LATER_MOVES);
	if (move->parts[job->replica].arrived || move->state != MOVE_COPIES) {
		job_move_forget(job);
		return;
	}
	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	if (error && damaged_twin(move, job))
		sharing_taint_twin(work, move->name, damaged_twin(move, job), error);
	else if (error && error->code == -EBADMSG && !source_of(move)) /* it has read memory */
		verify_taint(work, job, move->version, error);
	moves_stop(work, move->version, error ? error : &unfinished);
	job_move_forget(job);
}

static bool is_storing(const struct job *job)
{
	const struct tier_move *move = job_move_of(job);

	return move && (move->state == MOVE_STORES || move->state == MOVE_UNSTORES);
}

static void job_move_free(struct job *job)
{
	free(((struct move_job *)job)->source);
}

const struct job_actions job_move = {
	.size = sizeof(struct move_job),
	.is_of_part = true,
	.put = job_move_put,
	.end = job_move_end,
	.clear = job_close_socket, /* until then the socket is the job's, for another loader */
	.free = job_move_free,
	.is_storing = is_storing,
};

/* ---- the beginning ---- */

static int job_move_fill(struct job *job, struct tier_move *move, uint32_t i)
{
	const struct replica *replica = &move->version->replicas[i];
	const struct description *source = source_of(move);
	struct move_job *own = (struct move_job *)job;
	/* A loader needs a context only where it writes or reads memory of a GPU. */
	const bool on_gpu = !move->describes && (tier_is_resident(move->to) ||
						 (tier_is_resident(move->from) && tier_has_memory(move->to)));
	struct device *device =
		on_gpu ? replica->device : device_find(&move->work->ledger->devices, DEVICE_HOST);
	job->version = move->version->id;
	own->move = move;
	job->takes_turns = !move->who.by_operator;
	job->replica = i;
	job->rank = replica->rank;
	job->world = move->version->world;
	job->total = replica->bytes;
	job->by_operator = move->version->by_operator;
	job->source = own->source = source ? strdup(source->source) : NULL;
	if (source && !job->source)
		return -ENOMEM;
	return device ? job_add_device(job, device) : 0;
}

static int make_job(struct tier_move *move, uint32_t i, struct error *error)
{
	const struct version *version = move->version;
	struct work *work = move->work;
	struct job *job;
	int r = job_new(work,
			&(struct job_wish){JOB_MOVE, model_name(version->model), version->tag, move->who.uid,
					   move->who.by_operator},
			&job, error);

	if (r < 0)
		return r;
	if (job_move_fill(job, move, i) < 0) {
		job_drop(&work->jobs, job);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	move->parts[i].job = job;
	return 0;
}

int tiers_make_jobs(struct tier_move *move, struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < move->part_count; i++) {
		if (move_has_job_for(move, i))
			r = make_job(move, i, error);
	}
	for (uint32_t i = 0; r < 0 && i < move->part_count; i++) {
		if (move->parts[i].job)
			job_drop(&move->work->jobs, move->parts[i].job);
		move->parts[i].job = NULL;
	}
	return r;
}
