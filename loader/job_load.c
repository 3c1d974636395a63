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

/* The lists and settings below are only read: their texts stay the message's. */
static struct peer_list list_of(const char *const *items, uint32_t count)
{
	struct peer_list list = {.count = count};

	for (uint32_t i = 0; i < count; i++)
		list.items[i] = (char *)items[i];
	return list;
}

static struct peer_settings settings_of(const struct job_peers *peers)
{
	return (struct peer_settings){
		.certificate = (char *)peers->certificate,
		.key = (char *)peers->key,
		.authority = (char *)peers->authority,
		.secrets = list_of(peers->secrets.items, peers->secrets.count),
		.names = list_of(peers->names.items, peers->names.count),
		.peers = list_of(peers->peers.items, peers->peers.count),
		.dns = list_of(peers->dns.items, peers->dns.count),
		.listen = (char *)peers->listen,
		.clear = peers->clear,
	};
}

/* own: the settings of this loader's service count, and not the job's. */
static int run_of_peer(const struct job_load_params *params, bool own, struct work *work, struct error *error)
{
	struct peer_settings settings = {0};
	int r = own ? peer_settings_read(work->service->file, &settings, error) : 0;

	if (!own && params->peers)
		settings = settings_of(params->peers);
	if (r == 0)
		r = peer_load_run(params, &settings, work, error);
	if (own)
		peer_settings_clear(&settings);
	return r;
}

static int load_job_run(struct job *job, struct work *work, struct error *error)
{
	const struct job_load_params *params = job->params;
	const int files = ((struct load_job *)job)->files;
	/* Files that come as descriptors need no root. */
	const bool own = work->service->own && files < 0;
	struct roots roots_own = {0}, roots = {(char **)params->roots.items, params->roots.count, NULL};
	const struct prepare_for gpus = {job->devices, job->device_count, params->wish.choice.cut, job->keep};
	int r = params->wish.dry_run ? 0 : prepare_start(&gpus, &work->prepare, error);

	if (r == 0 && own) {
		r = roots_read(work->service->file, &roots_own, error);
		roots = roots_own;
	}
	if (r == 0)
		r = peer_source(params->wish.source) ? run_of_peer(params, own, work, error)
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
