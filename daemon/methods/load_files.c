#include "methods.h"

#include "../../proto/wire/messages.h"
#include "../../service/peers.h"
#include "../clients/access.h"
#include "../work/jobs/job_load.h"
#include "../work/versions/claims.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int load_files_check(const struct load_wish *wish, struct error *error)
{
	if (wish->fingerprint)
		return error_set(error, -EINVAL, "leave it out", "only versions of a peer have a fingerprint");
	if (wish->source[0] == '/' || peer_source(wish->source))
		return error_set(error, -EINVAL, "such as hf:ORG/NAME@COMMIT",
				 "the source of files that are passed is a name, not a path: %.512s",
				 wish->source);
	return 0;
}

/* Who passes files could read them without gpuwm, and publish them: who may publish may load them too. */
int load_rights(const struct request *request, const struct load_params *params, bool by_operator,
		struct error *error)
{
	struct model *model = registry_model(request->server->ledger.registry, params->name.ref.model);
	char remedy[REMEDY_BYTES];
	int r;

	if (by_operator)
		return 0;
	if (!params->files || params->wish.share_with || params->retire_old)
		return error_set(error, -EACCES, remedy_operator(request->session->client->clients, remedy),
				 "a load %s needs the role operator",
				 !params->files            ? "of a path or of a peer's version"
				 : params->wish.share_with ? "that shares memory"
							   : "that retires the old version");
	r = access_publish(request->session, params->name.ref.model, error);
	if (r == 0 && params->wish.alias && model && model_owner(model).known)
		r = access_swap(request->session, model, error);
	return r < 0 ? r : claims_check(&request->server->work, request->session, &params->name.ref, error);
}

int load_as_publisher(struct load_job *load, const struct request *request)
{
	load->job.takes_turns = true;
	if (!load->params->wish.alias)
		return 0;
	load->groups = access_groups(request->session, &load->group_count);
	return load->groups ? 0 : -ENOMEM;
}

int load_take_files(struct job_table *jobs, struct job *job, int *ret_sock, struct error *error)
{
	int pair[2], r = job_take_files(jobs, job, error);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set(error, -errno, NULL,
				 "gpuwmd could not make a socket for the files of the load: %s",
				 strerror(errno));
	job->publisher_sock = pair[1];
	*ret_sock = pair[0];
	return 0;
}

void load_answer(const struct request *request, const struct job *job, int sock)
{
	static const uint64_t first = 0;
	struct message_writer w;

	request_result(request, &w);
	record_put(&w, request->form->result, &(struct load_result){job->id, sock >= 0 ? &first : NULL});
	request_answer_fds(request, &w, &sock, sock >= 0);
}
