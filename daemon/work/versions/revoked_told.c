/* Who hears of revoked leases: holders, subscribers, and operators who look. */
#include "revoked_internal.h"
#include "../../../proto/wire/messages.h"

/* ---- telling ---- */

/* What a holder lost of one version is one event, or thousands of leases would push all other events out of the ring. */
static void emit_revoked(const struct revoked_holder *holder, const struct of_version *of, const char *reason)
{
	uint64_t numbers[REVOKED_PER_EVENT];
	struct revoked_event event = {
		.version = &of->id,
		.model = of->model,
		.tag = of->tag,
		.session = holder->session_id,
		.pid = peer_pid(&holder->peer),
		.uid = holder->peer.uid,
		.count = of->event_count,
		.leases.items = numbers,
		.reason = reason,
	};

	for (const struct revoked *revoked = of->event_first; revoked && event.leases.count < REVOKED_PER_EVENT;
	     revoked = revoked->next_of_event)
		numbers[event.leases.count++] = revoked->id;
	event_emit(holder->work->ledger->events, &event_revoked, &event,
		   &(struct event_about){.model = of->model, .owner = of->owner});
}

/* Sorts the holder's untold leases by version; the first version. */
static struct of_version *by_version(struct revoked_holder *holder)
{
	struct of_version *first = NULL, **end = &first;

	for (struct revoked *revoked = holder->untold; revoked; revoked = revoked->next_untold) {
		struct of_version *of = revoked->of;

		if (of->event_count++ == 0) {
			of->event_end = &of->event_first;
			*end = of;
			end = &of->event_next;
		}
		*of->event_end = revoked;
		of->event_end = &revoked->next_of_event;
	}
	return first;
}

/* As many as one packet has, from `revoked` on; the one after them. */
static const struct revoked *tell_session(const struct revoked *revoked, const char *reason)
{
	struct session *session = revoked->holder->session;
	uint64_t numbers[REVOKED_PER_PACKET];
	struct revoked_params params = {.reason = reason, .leases.items = numbers};
	struct parcel parcel = {0};
	struct message_writer w;

	for (; revoked && params.leases.count < REVOKED_PER_PACKET; revoked = revoked->next_untold)
		numbers[params.leases.count++] = revoked->id;
	message_write_notification(&w, &form_revoked, &params);
	if (message_finish(&w) == 0) {
		parcel.data = w.buffer.data;
		parcel.bytes = w.buffer.size;
		session_send(session, &parcel);
	} else {
		session_end(session); /* without memory for it the session hears of it when it resumes */
	}
	message_writer_clear(&w);
	return revoked;
}

static void put_kicked(struct message_writer *w, const struct revoked_holder *holder,
		       const struct revoked *revoked)
{
	const struct of_version *of = revoked->of;

	record_put_map(w, NULL, &kicked_record,
		       &(struct kicked){.lease = revoked->id,
					.session = holder->session_id,
					.pid = peer_pid(&holder->peer),
					.uid = holder->peer.uid,
					.command = holder->peer.command,
					.version = &of->id,
					.model = of->model,
					.tag = of->tag,
					.device = revoked->device->id,
					.rank = revoked->rank});
}

static void tell_holder(struct revoked_holder *holder, const char *reason, struct message_writer *leases)
{
	const struct revoked *first = holder->untold;
	struct revoked *revoked = holder->untold, *next;
	struct of_version *of, *next_of;

	while (first && holder->session)
		first = tell_session(first, reason);
	for (of = by_version(holder); of; of = next_of) {
		next_of = of->event_next;
		emit_revoked(holder, of, reason);
		of->event_count = 0;
		of->event_first = NULL;
		of->event_next = NULL;
	}
	holder->untold = NULL;
	holder->untold_end = &holder->untold;
	for (; revoked; revoked = next) {
		next = revoked->next_untold;
		revoked->next_untold = NULL;
		if (leases)
			put_kicked(leases, holder, revoked);
		if (revoked->unsent)
			revoked_end(revoked);
	}
	if (!holder->first)
		revoked_holder_end(holder);
}

void revoked_tell(struct work *work, const char *reason, struct message_writer *leases)
{
	struct revoked_holder *holder = work->revoked->holders, *next;

	for (; holder; holder = next) {
		next = holder->next;
		if (holder->untold)
			tell_holder(holder, reason, leases);
	}
}

/* ---- looking ---- */

static void put_leases(struct message_writer *w, const struct revoked_holder *holder)
{
	for (const struct revoked *revoked = holder->first; revoked; revoked = revoked->next_of_holder) {
		const struct of_version *of = revoked->of;
		const bool freed = !revoked->version;

		record_put_map(w, NULL, &lease_told_record,
			       &(struct lease_told){
				       .lease = revoked->id,
				       .version = &of->id,
				       .model = of->model,
				       .tag = of->tag,
				       .device = revoked->device->id,
				       .rank = revoked->rank,
				       .since_ms = revoked->since_ms,
				       .revoked_ms = &revoked->revoked_ms,
				       .bytes = &revoked->bytes,
				       .freed = &freed,
				       .room = revoked->room ? revoked->room->charge.bytes : 0,
			       });
	}
}

void put_revoked_of(struct message_writer *w, const struct session *session)
{
	if (session->client->revoked)
		put_leases(w, session->client->revoked);
}

static void put_gone(struct message_writer *w, const struct revoked_holder *holder)
{
	message_begin_map(w, NULL);
	record_put(w, &client_told_record,
		   &(struct client_told){
			   .session = holder->session_id,
			   .pid = peer_pid(&holder->peer),
			   .uid = holder->peer.uid,
			   .gid = holder->peer.gid,
			   .name = holder->name,
			   .command = holder->peer.command,
			   .socket = session_kind_name(holder->kind),
			   .since_ms = holder->session_since_ms,
			   .ended = true,
		   });
	message_begin_array(w, "leases");
	put_leases(w, holder);
	message_end(w);
	message_end(w);
}

void put_revoked_gone(struct message_writer *w, const struct work *work)
{
	for (const struct revoked_holder *holder = work->revoked->holders; holder; holder = holder->next) {
		if (!holder->session)
			put_gone(w, holder);
	}
}
