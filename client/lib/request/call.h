/* A call to gpuwmd. If gpuwmd restarts meanwhile, the library sends the request again where the method's form says
 * that it may. */
#ifndef GPUWM_LIB_CALL_H
#define GPUWM_LIB_CALL_H

#include "client.h"
#include "../../../proto/wire/messages.h"

struct call {
	struct gpuwm_client *client;
	const struct message_form *form;
	struct message_writer request; /* its params are open */
	uint64_t
		only; /* the caller may set it: only the connection of this round will do, else -ECONNRESET; 0: any */
	/* The caller may set both: wait_ms is only for what gpuwmd waits for, and the answer may take this long besides; -1: for ever. */
	bool has_work;
	int64_t work_ms;
	uint64_t round; /* of the connection that answered */
	bool in_doubt; /* gpuwmd may have done the request, and its answer did not come */
	/* How often gpuwmd went away after it had got the request, without an answer and without saying that it stops. */
	unsigned taken;
};

/* Begins a call of the method with params, a struct of the form's params. */
void call_begin(struct call *call, struct gpuwm_client *client, const struct message_form *form,
		const void *params);

/* Sends the request, and waits for the answer for wait_ms and ANSWER_SLACK_MS, restarts of gpuwmd included (0: for
 * CALL_TIMEOUT_MS; -1: for ever), or as long as call->work_ms says. If the method has a parameter wait_ms, it gets the time that is left.
 * Clears the request. Sets *ret_reply (may be NULL), which the caller clears. If gpuwmd refuses the request, returns gpuwmd's code. Fails
 * with -ECONNREFUSED, -ECONNABORTED and -ETIMEDOUT as gpuwm/client.h says. */
int call_run(struct call *call, int64_t wait_ms, struct reply *ret_reply, struct error *error);

/* Makes a call that does not wait, and whose result nobody reads. */
int call_plain(struct gpuwm_client *client, const struct message_form *form, const void *params,
	       struct error *error);

/* ---- connecting again ----
 * When a client's gpuwmd goes away, it connects to the next one and takes its leases and claims again,
 * before any other call goes out. Either a thread of the library does this, the watcher, or a call that needs the connection. */

/* Begins the watcher, unless it runs or the client connects only once. -EAGAIN: the thread could not be made; -EMFILE,
 * -ENFILE: there is no descriptor for what wakes it. */
int reconnect_watch(struct gpuwm_client *client, struct error *error);

/* Waits until `deadline` for a connection that can be used. Sets *ret_connection, which the caller frees, and its round.
 * If `only` is not 0, takes the connection of that round, without waiting. -ECONNRESET: that connection has ended;
 * -ECONNREFUSED: there was no gpuwmd in time; -ECANCELED: the client was closed meanwhile. */
int reconnect_take(struct gpuwm_client *client, uint64_t only, int64_t deadline,
		   struct connection **ret_connection, uint64_t *ret_round, struct error *error);

#endif
