#include "call.h"

#include "../../../base/clock.h"

#include <errno.h>
#include <string.h>

#define MAY_BE_DONE "it may or may not be done: look, then repeat"

void call_begin(struct call *call, struct gpuwm_client *client, const struct message_form *form,
		const void *params)
{
	*call = (struct call){.client = client, .form = form};
	message_writer_init(&call->request, PACKET_BYTES_MAX);
	message_request(&call->request, request_next_id(), form->name);
	record_put(&call->request, form->params, params);
}

/* Until when the call waits for a gpuwmd that went away. */
static int64_t patience_of(const struct call *call, int64_t wait_ms, int64_t deadline)
{
	const int64_t patience = clock_deadline(call->client->restart_ms);

	return wait_ms > 0 && !call->has_work ? clock_earlier(patience, deadline) : patience;
}

/* How long the answer may take. left: of wait_ms. */
static int64_t answer_time(const struct call *call, int64_t wait_ms, int64_t left)
{
	const int64_t more = call->has_work ? call->work_ms : ANSWER_SLACK_MS;

	if (wait_ms == 0 && !call->has_work)
		return CALL_TIMEOUT_MS;
	return left < 0 || more < 0 || left > INT64_MAX - more ? -1 : left + more;
}

/* Sends it once. *ret_again: gpuwmd went away, and the next one is to be asked. */
static int call_try(struct call *call, int64_t patience, int64_t answer_ms, struct reply *ret_reply,
		    bool *ret_again, struct error *error)
{
	struct gpuwm_client *client = call->client;
	struct connection *connection;
	enum fate fate;
	int r = reconnect_take(client, call->taken && call->form->again ? 0 : call->only, patience, &connection,
			       &call->round, error);

	*ret_again = false;
	if (r < 0)
		return r;
	r = connection_try(connection, &call->request, answer_ms, ret_reply, &fate, error);
	if (fate != FATE_UNSENT)
		call->in_doubt = fate == FATE_UNANSWERED;
	/* A gpuwmd that stops says so, and leaves the request to the next one. */
	if (fate != FATE_ANSWERED || r == -ECONNRESET)
		reviver_ended(&client->reviver, connection, error);
	connection_free(connection);
	/* The answer came, and this process had no memory or no descriptors to read it. */
	if (fate == FATE_UNANSWERED && (r == -ENOMEM || r == -EMFILE) && !call->form->again) {
		const struct error why = *error;

		return error_set(error, -ECONNABORTED, MAY_BE_DONE, "the answer could not be read: %s",
				 why.message);
	}
	if (r != -ECONNRESET || client->reviver.once)
		return r;
	if (fate != FATE_UNSENT)
		call->taken++;
	*ret_again = fate != FATE_UNANSWERED || call->form->again;
	if (!*ret_again)
		return error_set(error, -ECONNABORTED, MAY_BE_DONE, "gpuwmd went away before it answered");
	return r;
}

int call_run(struct call *call, int64_t wait_ms, struct reply *ret_reply, struct error *error)
{
	const struct message_mark open = message_mark(&call->request);
	const int64_t deadline = clock_deadline(wait_ms);
	int64_t patience = patience_of(call, wait_ms, deadline), left;
	struct error unused;
	bool again;
	int r;

	if (!error)
		error = &unused;
	for (unsigned losses = 0;; losses++) {
		left = wait_ms > 0 ? clock_until(deadline) : wait_ms;
		/* Ends the params with what is left of the wait. */
		message_rewind(&call->request, open);
		if (left != 0 && record_row(call->form->params, "wait_ms"))
			message_put_i64(&call->request, "wait_ms", left);
		message_end(&call->request);
		r = call_try(call, patience, answer_time(call, wait_ms, left), ret_reply, &again, error);
		if (!again)
			break;
		/* One that waits meets many restarts; another one may be what ends gpuwmd. */
		if (losses == 0 || wait_ms != 0 || call->has_work)
			patience = patience_of(call, wait_ms, deadline);
	}
	message_writer_clear(&call->request);
	return r;
}

int call_plain(struct gpuwm_client *client, const struct message_form *form, const void *params,
	       struct error *error)
{
	struct call call;

	call_begin(&call, client, form, params);
	return call_run(&call, 0, NULL, error);
}
