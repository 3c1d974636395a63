/* get_handles by legacy CUDA IPC: a lease of a copy, which is made first if the user has none. */
#include "methods.h"
#include "../work/jobs/copies.h"
#include "../work/versions/leases.h"
#include "../work/loaders/loader.h"
#include "../work/tiers/moves.h"
#include "../work/tiers/room.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the answer ---- */

static void put_copy(struct message_writer *w, const struct request *request, const struct lease *lease,
		     uint64_t generation)
{
	const struct ipc_copy *copy = lease->copy;
	const struct replica *replica = &lease->version->replicas[lease->replica];
	char texts[PART_SEGMENTS_MAX][IPC_HANDLE_TEXT], event[IPC_HANDLE_TEXT];
	struct ipc_segment segments[PART_SEGMENTS_MAX];
	struct get_handles_result result;

	for (uint32_t i = 0; i < replica->segment_count; i++) {
		ipc_handle_format(&copy->handles[i], texts[i]);
		segments[i] = (struct ipc_segment){texts[i], replica->segments[i].segment->bytes};
	}
	ipc_handle_format(&copy->event, event);
	result = lease_result(lease->version, lease->replica, lease->id, generation);
	result.transport = TRANSPORT_CUDA_IPC;
	result.handles.items = segments;
	result.handles.count = replica->segment_count;
	result.event = event;
	result.holder = &copy->pid;
	record_put(w, request->form->result, &result);
}

/* The part has no segments here: its bytes are the copy's. */
static void copy_answer(const struct request *request, const struct lease *lease, uint64_t generation)
{
	const struct replica *replica = &lease->version->replicas[lease->replica];
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	struct part part;
	size_t count;

	part_init(&part);
	part.index = (struct part_fd){replica->index.fd, replica->index.bytes};
	request_result(request, &w);
	put_copy(&w, request, lease, generation);
	count = part_write(&w, &part, fds);
	request_answer_lease(request, &w, fds, count, lease->id);
	lease_count_attach(request, lease->version);
}

/* ---- waiting for a copy that is being made ---- */

/* The lease is there from the beginning, so that neither version nor copy goes meanwhile. */
static void copy_wake(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct request *request = &waiter->request;
	struct work *work = &request->server->work;
	struct lease *lease = lease_find(work->ledger->registry, waiter->job, request->session);
	struct error error;

	(void)changed;
	(void)expired; /* it waits as long as the job takes */
	if (lease && lease->copy && lease->copy->state == COPY_FILLING)
		return;
	if (lease && lease->copy && lease->copy->state == COPY_READY) {
		copy_answer(request, lease, waiter->generation);
	} else if (lease) {
		error = lease->copy->error;
		versions_free_unused(work, leases_end(work, lease));
		request_refuse(request, &error);
	} else {
		error_set(&error, -ESTALE, "ask again", "the lease was revoked before its copy was made");
		request_refuse(request, &error);
	}
	waiter_free(waiter);
}

/* ---- the lease ---- */

/* Answers with the copy, or waits for it. */
static int copy_join(const struct request *request, const struct lease_found *found, struct ipc_copy *copy,
		     struct lease *lease, struct error *error)
{
	struct waiter *waiter;
	int r;

	moves_stop_demotion(&request->server->work, found->version, "an attach");
	ipc_copy_join(copy, lease);
	if (copy->state == COPY_READY) {
		copy_answer(request, lease, found->generation);
		return 0;
	}
	r = waiter_new(request, WAIT_COPY, -1, copy_wake, &waiter, error);
	if (r < 0)
		return r;
	waiter->job = lease->id;
	waiter->generation = found->generation;
	return 0;
}

/* The lease comes first: of what gives no lease nobody makes a copy. */
static int grant_copy(const struct request *request, const struct lease_found *found, struct error *error)
{
	struct work *work = &request->server->work;
	const struct lease_holder holder = lease_holder_of(request);
	const uid_t uid = request->session->peer.uid;
	struct ipc_copy *copy = ipc_copy_find(&work->ledger->copies, found->version, found->replica, uid);
	const uint64_t last_used_ms = found->version->last_used_ms;
	struct lease *lease;
	int r = lease_grant(work->ledger->registry, found->version, found->replica, &holder, &lease, error);

	if (r < 0)
		return r;
	if (!copy)
		r = copies_make(work, found->version, found->replica, uid, &copy, error);
	if (r == 0)
		r = copy_join(request, found, copy, lease, error);
	if (r < 0) {
		struct version *version = leases_end(work, lease);

		version->last_used_ms = last_used_ms; /* who got nothing did not use it */
		versions_free_unused(work, version);
	}
	return r;
}

int lease_copied(const struct request *request, const struct lease_found *found, struct error *error)
{
	struct work *work = &request->server->work;
	struct device *device = found->version->replicas[found->replica].device;
	int r;

	if (!device->kind->is_gpu)
		r = error_set(error, -ENOTSUP,
			      "attach by descriptors (\"" TRANSPORT_FD "\"), which any process can map",
			      "%s is no GPU: CUDA IPC hands out memory of GPUs only", device->id);
	else
		r = device_check_there(device, error);
	if (r == 0)
		r = grant_copy(request, found, error);
	work_later(work, LATER_COPIES); /* a copy that was made and is not leased */
	if (r == -ENOSPC)
		room_explain(work, device, found->version->replicas[found->replica].bytes, false, error);
	return r;
}

/* ---- the loader has made it ---- */

static int take_handles(const struct loader_holds_params *params, struct ipc_handle **ret,
			struct ipc_handle *ret_event, struct error *error)
{
	struct ipc_handle *handles;

	if (ipc_handle_parse(params->event, ret_event) < 0)
		return error_set(error, -EINVAL, NULL, "\"event\" is not %d bytes as hexadecimal digits",
				 IPC_HANDLE_BYTES);
	handles = calloc((size_t)params->handles.count + 1, sizeof(*handles));
	if (!handles)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	for (uint32_t i = 0; i < params->handles.count; i++)
		ipc_handle_parse(params->handles.items[i].handle,
				 &handles[i]); /* which its record has checked */
	*ret = handles;
	return 0;
}

int method_loader_holds(struct request *request, const void *given, struct error *error)
{
	const struct loader_holds_params *params = given;
	struct ipc_handle *handles = NULL, event;
	struct job *job = NULL;
	int r = current_job(request, &job, error);

	if (r == 0 && job->kind != JOB_HOLD)
		r = error_set(error, -EINVAL, NULL, "this loader has no copy to make");
	if (r == 0)
		r = take_handles(params, &handles, &event, error);
	if (r == 0)
		r = copies_filled(job, handles, params->handles.count, &event, error);
	if (r < 0)
		free(handles);
	else
		request_done(request);
	return r;
}

/* ---- list ---- */

void put_copies(struct message_writer *w, struct session *session, const char *model)
{
	const struct ipc_copy *copy = session->client->clients->ledger->copies.first;

	message_begin_array(w, "copies");
	for (; copy; copy = copy->next) {
		const struct version *version = copy->version;

		if (copy->state == COPY_ENDED || !access_sees(session, version->model) ||
		    (model && strcmp(model, model_name(version->model)) != 0))
			continue;
		record_put_map(w, NULL, &copy_listed_record,
			       &(struct copy_listed){
				       .version = &version->id,
				       .model = model_name(version->model),
				       .tag = version->tag,
				       .rank = version->replicas[copy->replica].rank,
				       .device = ipc_copy_device(copy)->id,
				       .state = ipc_copy_state_name(copy->state),
				       .uid = copy->uid,
				       .bytes = copy->bytes,
				       .leases = copy->lease_count,
				       .since_ms = copy->since_ms,
				       .pid = copy->pid ? &copy->pid : NULL,
			       });
	}
	message_end(w);
}
