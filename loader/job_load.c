/* The kind of job by which a source becomes a version: of files (load.c), or of a peer (peer/peer_load.c). */
#include "jobs.h"
#include "files/roots.h"

#include "../proto/wire/messages.h"
#include "../service/peers.h"

#include <errno.h>
#include <unistd.h>

struct load_job {
	struct job job;
	int files; /* the socket that the files come from; -1: they have paths */
};

static int load_take(struct job *job, const struct message *message, struct packet *packet, struct error *error)
{
	const struct job_load_params *params = job->params;
	struct load_job *load = (struct load_job *)job;

	(void)message;
	load->files = -1;
	job->keep = params->keep;
	if (job_take_devices(job, params->wish.devices.items, params->wish.devices.count, error) < 0)
		return error->code;
	if (params->files && packet_take_fd(packet, *params->files, &load->files) < 0)
		return error_set(error, -EBADMSG, NULL, "the job came without the socket for its files");
	return 0;
}

static int run_of_peer(const struct peer_settings *settings, struct work *work, void *data, struct error *error)
{
	return peer_load_run(data, settings, work, error);
}

static int load_job_run(struct job *job, struct work *work, struct error *error)
{
	const struct job_load_params *params = job->params;
	const int files = ((struct load_job *)job)->files;
	/* Files that come as descriptors need no root. */
	const bool own = work->service->own && files < 0;
	struct roots roots_own = {0},
		     roots = {.paths = (char **)params->roots.items, .count = params->roots.count};
	const struct prepare_for gpus = {job->devices, job->device_count, params->wish.choice.cut, job->keep};
	int r = params->wish.dry_run ? 0 : prepare_start(&gpus, &work->prepare, error);

	if (r == 0 && own) {
		r = roots_read(work->service->file, &roots_own, error);
		roots = roots_own;
	}
	if (r == 0)
		r = peer_source(params->wish.source)
			    ? with_peer_settings(params->peers, work, run_of_peer, (void *)job->params, error)
			    : load_run(params, &roots, files, work, error);
	roots_clear(&roots_own);
	return r;
}

static void load_clear(struct job *job)
{
	const struct load_job *load = (struct load_job *)job;

	if (load->files >= 0)
		close(load->files);
}

const struct job_kind kind_load = {.name = "load",
				   .form = &form_job_load,
				   .bytes = sizeof(struct load_job),
				   .take = load_take,
				   .run = load_job_run,
				   .clear = load_clear};
