#include "request.h"
#include "../../base/grow.h"
#include "../base/complaint.h"
#include "../base/metrics.h"
#include "audit.h"
#include "clients.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void request_result(const struct request *request, struct message_writer *w)
{
	message_writer_borrow(w, MESSAGE_BODY_MAX, &request->session->net->answer);
	message_response(w, request->id);
}

/* The answer can't be told. An error would say that nothing was done. */
static void leave_untold(const struct request *request, const struct error *error)
{
	struct session *session = request->session;

	if (request->looks) {
		request_refuse(request, error);
		return;
	}
	complain(session->net->complaints, session->peer.uid, COMPLAINT_UNTOLD,
		 "session %llu (%s, pid %d, uid %u) is ended, and what it asked for is done: %s",
		 (unsigned long long)session->id, session->peer.command, (int)session->peer.pid,
		 (unsigned)session->peer.uid, error->message);
	session_end(session);
}

static bool request_finish_answer(const struct request *request, struct message_writer *w)
{
	struct error error;
	int r;

	message_end(w);
	r = message_finish(w);
	if (r == 0)
		return true;
	message_writer_clear(w);
	error_set(&error, r, NULL, "gpuwmd could not write the answer: %s", strerror(-r));
	leave_untold(request, &error);
	return false;
}

static int body_memfd(const char *data, size_t bytes, int *ret_fd)
{
	int fd = memfd_create("gpuwm-body", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	if (fd < 0)
		return -errno;
	r = file_write_all(fd, data, bytes);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS_ALL) < 0)
		r = -errno;
	if (r < 0)
		close(fd);
	else
		*ret_fd = fd;
	return r;
}

static void answer_large(const struct request *request, struct message_writer *w)
{
	struct message_writer small;
	struct error error;
	size_t bytes;
	const void *result = message_map(w, &bytes);
	int fd = -1, r = body_memfd(result, bytes, &fd);

	message_writer_clear(w);
	if (r < 0) {
		error_set(&error, r, NULL, "gpuwmd could not make a memfd of %zu bytes for the answer: %s",
			  bytes, strerror(-r));
		leave_untold(request, &error);
		return;
	}
	request_result(request, &small);
	message_put_u64(&small, "body", 0);
	message_put_u64(&small, "bytes", bytes);
	request_answer_fds(request, &small, &fd, 1);
}

static void send_parcel(const struct request *request, struct message_writer *w, struct parcel *parcel)
{
	parcel->data = w->buffer.data;
	parcel->bytes = w->buffer.size;
	session_send(request->session, parcel);
	message_writer_clear(w);
}

void request_answer(const struct request *request, struct message_writer *w)
{
	struct parcel parcel = {0};

	if (!request_finish_answer(request, w))
		return;
	if (w->buffer.size > PACKET_BYTES_MAX)
		answer_large(request, w);
	else
		send_parcel(request, w, &parcel);
}

void request_tell(const struct request *request, const void *result)
{
	struct message_writer w;

	request_result(request, &w);
	record_put(&w, request->form->result, result);
	request_answer(request, &w);
}

void request_done(const struct request *request)
{
	struct message_writer w;

	request_result(request, &w);
	request_answer(request, &w);
}

void request_answer_lease(const struct request *request, struct message_writer *w, const int *fds,
			  size_t fd_count, uint64_t lease)
{
	struct parcel parcel = {.fds = fds, .fd_count = fd_count, .lease = lease, .request = request->id};

	if (request_finish_answer(request, w))
		send_parcel(request, w, &parcel);
}

int request_copy_fds(int *fds, size_t count, struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0), r = -errno;

		if (fd < 0) {
			while (i > 0)
				close(fds[--i]);
			return error_set(error, r, NULL, "gpuwmd could not copy a descriptor: %s",
					 strerror(-r));
		}
		fds[i] = fd;
	}
	return 0;
}

void request_answer_fds(const struct request *request, struct message_writer *w, const int *fds,
			size_t fd_count)
{
	struct parcel parcel = {.fds = fds, .fd_count = fd_count, .close_fds = true};

	if (request_finish_answer(request, w))
		send_parcel(request, w, &parcel);
	else
		parcel_close_fds(&parcel);
}

void request_refuse(const struct request *request, const struct error *error)
{
	struct session *session = request->session;

	session->client->clients->refused++;
	session->times->refused++;
	metrics_refused(session->net->metrics, request->form ? request->form->name : refused_unknown,
			error->code);
	if (request->audit)
		audit_tell(session, request->audit, error);
	if (session_refuse(session, &request->id, error) < 0)
		session_end(session);
}
