/* A request, and its one answer. */
#ifndef GPUWM_DAEMON_REQUEST_H
#define GPUWM_DAEMON_REQUEST_H

#include "../../proto/wire/messages.h"
#include "../../proto/wire/packet.h"

#include <stdbool.h>

struct audit;
struct server;
struct session;

struct request {
	struct server *server; /* for its method; no floor below looks inside */
	struct session *session;
	uint64_t id;
	uint64_t received_ns; /* steady: when its packet came */
	const struct message_form *form; /* of its method; NULL: there is no such method */
	bool looks; /* its method changes nothing, so gpuwmd may answer with an error if it can't send the answer */
	struct audit *audit; /* of a request for a change; NULL: it is for none */
	/* The packet of the request, and what it says; NULL once the request waits. */
	struct packet *packet;
	const struct message *message;
};

/* Begins the answer. The caller then writes the result's keys and calls request_answer or one of the functions after it,
 * which end the map, send the answer, and clear w. An answer up to a packet's size needs no memory. If a larger one can't
 * be sent, gpuwmd ends the connection, since the peer must not take the request for failed, and undoes what it made for
 * the peer alone. If the request's method changes nothing, gpuwmd refuses the request instead. */
void request_result(const struct request *request, struct message_writer *w);

/* Answers with the result, a struct of the form's result. */
void request_tell(const struct request *request, const void *result);
/* Sends the answer. An answer that does not fit a packet goes as a sealed memfd. */
void request_answer(const struct request *request, struct message_writer *w);
/* Answers with {}. */
void request_done(const struct request *request);
/* Sends the answer with descriptors of a lease, which stay gpuwmd's. */
void request_answer_lease(const struct request *request, struct message_writer *w, const int *fds,
			  size_t fd_count, uint64_t lease);
/* Replaces descriptors by copies, for request_answer_fds: the answer may wait to be sent when the originals are closed. On errors
 * there are no copies. */
int request_copy_fds(int *fds, size_t count, struct error *error);
/* Sends the answer with descriptors that the function takes over. */
void request_answer_fds(const struct request *request, struct message_writer *w, const int *fds,
			size_t fd_count);

/* Answers with an error, and counts it. If the request is for a change, the audit has it. */
void request_refuse(const struct request *request, const struct error *error);

#endif
