#include "lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Every function that reads or writes a lease is called under the lock. Only the version, which never changes, may be
 * read without it. */

static void lease_free(struct lease *lease)
{
	free(lease->why);
	free(lease);
}

/* Whether gpuwmd waits for the release of the lease on the connection of this round: because the lease is granted there,
 * or because it was revoked and gpuwmd counts its memory as used until the release. */
static bool lease_counts(const struct lease *lease, uint64_t round)
{
	return lease->revoked || (lease->round == round && !lease->lost);
}

/* ---- revoked ----------------------------------------------------------- */

static void lease_lose(struct lease *lease, const struct error *why)
{
	lease->lost = why->code;
	lease->why = malloc(sizeof(*why));
	if (lease->why)
		*lease->why = *why;
}

static void lease_revoke(struct reviver *v, struct lease *lease, const char *reason)
{
	struct error why;

	error_set(&why, -ESTALE,
		  "let it go, or switch to another version: the memory counts as used until then",
		  "the lease on %s@%s was revoked: %s", lease->version.model, lease->version.tag, reason);
	lease_lose(lease, &why);
	lease->revoked = true;
	reviver_wake(v);
}

/* On the connection of this round: another gpuwmd may give the number to another lease. */
static struct lease *lease_find_held(const struct reviver *v, uint64_t id, uint64_t round)
{
	struct lease *lease = v->leases;

	while (lease && (lease->id != id || lease->round != round || lease->lost))
		lease = lease->next;
	return lease;
}

/* One thread may read that a lease is revoked before another thread has entered the lease. */
static void revoked_early(struct reviver *v, uint64_t id, uint64_t round)
{
	v->revoked_early[v->revoked_early_count++ % REVOKED_EARLY_MAX] = (struct granted){id, round};
}

static bool was_revoked_early(const struct reviver *v, uint64_t id, uint64_t round)
{
	for (unsigned i = 0; i < REVOKED_EARLY_MAX; i++) {
		if (id && v->revoked_early[i].id == id && v->revoked_early[i].round == round)
			return true;
	}
	return false;
}

void leases_on_notify(struct message *message, struct packet *packet, void *data, uint64_t round)
{
	struct gpuwm_client *client = data;
	struct reviver *v = &client->reviver;
	char reason[TEXT_BYTES_MAX + 1];
	const msgpack_object *ids;
	struct lease *lease;
	struct fields f;
	uint32_t count;

	(void)packet;
	if (strcmp(message->method, form_revoked.name) != 0)
		return;
	/* Not by its record, which needs memory: nobody tells of a revoked lease a second time. */
	fields_of(&f, message->body);
	ids = fields_array(&f, "leases", &count);
	fields_text_or(&f, "reason", reason, sizeof(reason), "");
	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; !f.error.code && i < count; i++) {
		if (ids[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
			continue;
		lease = lease_find_held(v, ids[i].via.u64, round);
		if (lease)
			lease_revoke(v, lease, reason);
		else
			revoked_early(v, ids[i].via.u64, round);
	}
	pthread_mutex_unlock(&v->lock);
}

bool lease_was_revoked(struct gpuwm_client *client, const struct lease *lease)
{
	bool revoked;

	pthread_mutex_lock(&client->reviver.lock);
	revoked = lease->revoked;
	pthread_mutex_unlock(&client->reviver.lock);
	return revoked;
}

/* ---- holding ----------------------------------------------------------- */

bool lease_hold(struct gpuwm_client *client, struct lease *lease, uint64_t round)
{
	struct reviver *v = &client->reviver;
	bool there;

	pthread_mutex_lock(&v->lock);
	there = v->connection && v->round == round;
	lease->round = round;
	if (there)
		DL_PREPEND(v->leases, lease);
	if (there && was_revoked_early(v, lease->id, round))
		lease_revoke(v, lease, "an operator revoked it as it was granted");
	pthread_mutex_unlock(&v->lock);
	return there;
}

bool lease_awake(struct gpuwm_client *client, struct lease *lease, const struct lease *told, uint64_t round)
{
	struct reviver *v = &client->reviver;
	bool there;

	pthread_mutex_lock(&v->lock);
	there = lease->round == round;
	if (there) {
		lease->id = told->id;
		lease->room = told->room;
		lease->parked = false;
	}
	if (there && was_revoked_early(v, told->id, round))
		lease_revoke(v, lease, "an operator revoked it as it was unparked");
	pthread_mutex_unlock(&v->lock);
	return there;
}

uint64_t lease_room(struct gpuwm_client *client, const struct lease *lease)
{
	uint64_t room;

	pthread_mutex_lock(&client->reviver.lock);
	room = lease->room;
	pthread_mutex_unlock(&client->reviver.lock);
	return room;
}

/* ---- giving back ------------------------------------------------------- */

/* What gpuwmd is told of a lease that ends. */
struct leaving {
	uint64_t id, room_to;
	bool revoked;
};

static void put_release(struct message_writer *w, const struct leaving *leaving)
{
	message_write_request(w, request_next_id(), &form_release,
			      &(struct release_params){leaving->id, leaving->room_to});
}

/* If the request can't be sent or answered, or there is no memory for it, the connection is ended instead: gpuwmd then ends
 * the lease by itself. */
static int tell_release(struct gpuwm_client *client, struct connection *connection,
			const struct leaving *leaving, struct error *error)
{
	struct message_writer w;
	struct error unused;
	enum fate fate;
	int r;

	if (!error)
		error = &unused;
	put_release(&w, leaving);
	r = connection_try(connection, &w, CALL_TIMEOUT_MS, NULL, &fate, error);
	message_writer_clear(&w);
	if (fate != FATE_ANSWERED || r == -ENOMEM)
		reviver_ended(&client->reviver, connection, error);
	if (r == 0 || r == -ECONNRESET || (r == -ENOMEM && !client->reviver.once) || fate != FATE_ANSWERED)
		return 0;
	error->code = -EIO;
	return -EIO;
}

/* If another call is under way, that call reads the answer. */
static void tell_release_now(struct gpuwm_client *client, struct connection *connection,
			     const struct leaving *leaving)
{
	struct message_writer w;
	struct error error;
	enum fate fate;
	int r;

	put_release(&w, leaving);
	r = connection_try_now(connection, &w, CALL_TIMEOUT_MS, &fate, &error);
	if (r == -EBUSY)
		r = connection_post(connection, &w, &error);
	message_writer_clear(&w);
	if (fate != FATE_ANSWERED || r == -ENOMEM)
		reviver_ended(&client->reviver, connection, &error);
	else if (r == -EAGAIN)
		tell_release(client, connection, leaving, NULL);
}

/* Takes the lease from the client and frees it; `to` gets its room, unless that is NULL. Returns the connection, kept, on which gpuwmd
 * waits for its release, and sets *ret; NULL: gpuwmd waits for none. */
static struct connection *lease_leave(struct gpuwm_client *client, struct lease *lease, struct lease *to,
				      struct leaving *ret)
{
	struct reviver *v = &client->reviver;
	struct connection *connection = NULL;

	*ret = (struct leaving){0};
	pthread_mutex_lock(&v->lock);
	if (to && lease->room > 0) {
		to->room = lease->room;
		ret->room_to = !lease->revoked && to->round == lease->round ? to->id : 0;
	}
	if (v->attempting) {
		lease->dropped = true;
		pthread_mutex_unlock(&v->lock);
		return NULL;
	}
	DL_DELETE(v->leases, lease);
	if (v->connection && lease_counts(lease, v->round))
		connection = connection_keep(v->connection);
	pthread_mutex_unlock(&v->lock);
	ret->id = lease->id;
	ret->revoked = lease->revoked;
	lease_free(lease);
	return connection;
}

int lease_replace(struct gpuwm_client *client, struct lease *lease, struct lease *to, struct error *error)
{
	struct leaving leaving;
	struct connection *connection = lease_leave(client, lease, to, &leaving);
	int r = connection ? tell_release(client, connection, &leaving, error) : 0;

	connection_free(connection);
	return leaving.revoked ? 0
			       : r; /* a gpuwmd that was started after the revocation does not know the lease */
}

int lease_release(struct gpuwm_client *client, struct lease *lease, struct error *error)
{
	return lease_replace(client, lease, NULL, error);
}

void lease_drop(struct gpuwm_client *client, struct lease *lease)
{
	struct leaving leaving;
	struct connection *connection = lease_leave(client, lease, NULL, &leaving);

	if (connection)
		tell_release_now(client, connection, &leaving);
	connection_free(connection);
}

void leases_settle(struct gpuwm_client *client, struct connection *connection, uint64_t round)
{
	struct reviver *v = &client->reviver;
	struct lease *lease;

	for (;;) {
		lease = v->leases;
		while (lease && !lease->dropped)
			lease = lease->next;
		if (!lease)
			return;
		DL_DELETE(v->leases, lease);
		if (connection && lease_counts(lease, round)) {
			pthread_mutex_unlock(&v->lock);
			tell_release(client, connection, &(struct leaving){.id = lease->id}, NULL);
			pthread_mutex_lock(&v->lock);
		}
		lease_free(lease);
	}
}

/* ---- losing ------------------------------------------------------------ */

void lease_missed(struct gpuwm_client *client, struct lease *lease, const struct error *why)
{
	struct reviver *v = &client->reviver;

	lease_lose(lease, why);
	lease->told = true;
	pthread_mutex_lock(&v->lock);
	DL_PREPEND(v->leases, lease);
	pthread_mutex_unlock(&v->lock);
}

void leases_lose(struct gpuwm_client *client, const struct error *why)
{
	for (struct lease *lease = client->reviver.leases; lease; lease = lease->next) {
		if (!lease->lost)
			lease_lose(lease, why);
	}
}

static int why_lost(const struct lease *lease, struct error *error)
{
	if (lease->lost && lease->why)
		*error = *lease->why;
	else if (lease->lost)
		error_set(error, lease->lost, NULL, "%s@%s was lost with a restart of gpuwmd",
			  lease->version.model, lease->version.tag);
	return lease->lost;
}

static struct lease *lease_find_untold(const struct reviver *v)
{
	struct lease *lease = v->leases;

	while (lease && (!lease->lost || lease->told || lease->dropped))
		lease = lease->next;
	return lease;
}

/* Calls the function of the program without the lock, which is held before and after. */
static void client_tell_lost(struct gpuwm_client *client, const struct gpuwm_lost *lost)
{
	struct reviver *v = &client->reviver;

	v->telling = true;
	/* A call that waits for this thread to connect now connects itself. */
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	client->lost(lost, client->lost_data);
	/* If the program forked in its function and the child returns here, this is the child's only thread, and it has
	 * nothing to do. */
	if (fork_check(&client->hook, NULL) < 0)
		pthread_exit(NULL);
	pthread_mutex_lock(&v->lock);
	v->telling = false;
}

bool leases_tell(struct gpuwm_client *client)
{
	struct lease *lease = lease_find_untold(&client->reviver);
	struct gpuwm_version_info version;
	struct gpuwm_lost lost;
	struct error error;

	if (!lease)
		return false;
	lease->told = true;
	if (!client->lost)
		return true;
	why_lost(lease, &error);
	version = lease->version;
	lost = (struct gpuwm_lost){
		.version = version.id,
		.model = version.model,
		.tag = version.tag,
		.device = version.device,
		.rank = version.rank,
		.error = {error.code, error_name(error.code), error.message, error.detail},
		.revoked = lease->revoked,
	};
	client_tell_lost(client, &lost);
	return true;
}

int lease_check(struct gpuwm_client *client, const struct lease *lease, struct error *error)
{
	struct reviver *v = &client->reviver;
	int r;

	if (client->reviver.once) /* no thread of the library reads the connection */
		connection_poll_now(v->connection);
	pthread_mutex_lock(&v->lock);
	r = why_lost(lease, error);
	if (client->reviver.once && connection_has_ended(v->connection))
		r = error_set(error, -ECONNRESET, "connect again", "the connection has ended");
	pthread_mutex_unlock(&v->lock);
	return r;
}

/* ---- taking again ------------------------------------------------------ */

/* Sets ret to leases that the client has not asked for on the connection of this round. */
static size_t leases_pick(struct reviver *v, uint64_t round, struct lease *ret[RESUME_LEASES_MAX])
{
	size_t count = 0;

	pthread_mutex_lock(&v->lock);
	for (struct lease *lease = v->leases; lease && count < RESUME_LEASES_MAX; lease = lease->next) {
		if (!lease->dropped && !lease->lost && lease->round != round)
			ret[count++] = lease;
	}
	pthread_mutex_unlock(&v->lock);
	return count;
}

static void put_leases(struct reviver *v, struct message_writer *w, struct lease *const *leases, size_t count)
{
	struct resume_lease asked[RESUME_LEASES_MAX];
	struct version_id ids[RESUME_LEASES_MAX];

	pthread_mutex_lock(&v->lock); /* for the addresses */
	for (size_t i = 0; i < count; i++) {
		hex128_parse(leases[i]->version.id, ids[i].bytes); /* gpuwmd told it */
		asked[i] = (struct resume_lease){leases[i]->id,
						 &ids[i],
						 leases[i]->version.device,
						 leases[i]->version.rank,
						 leases[i]->address[0] ? leases[i]->address : NULL,
						 leases[i]->copied ? TRANSPORT_CUDA_IPC : NULL,
						 leases[i]->parked,
						 leases[i]->room};
	}
	message_write_request(w, request_next_id(), &form_resume,
			      &(struct resume_params){.leases = {.items = asked, .count = (uint32_t)count}});
	pthread_mutex_unlock(&v->lock);
}

static int lease_take_answer(struct lease *lease, uint64_t round, const struct resumed_lease *answer,
			     struct error *error)
{
	const struct error *why = answer->error;

	/* The version is there, and gpuwmd is out of memory for the moment: the next connection asks again. */
	if (why && why->code == -ENOMEM) {
		*error = *why;
		return why->code;
	}
	if (why) {
		lease_lose(lease, why);
		lease->revoked = answer->revoked;
	} else if (answer->lease) {
		lease->id = *answer->lease;
		lease->round = round;
	} else {
		return error_set(error, -EPROTO, NULL, "resume: neither a lease nor an error");
	}
	return 0;
}

static int leases_take_answers(struct reviver *v, struct lease *const *leases, size_t count, uint64_t round,
			       const struct reply *reply, struct error *error)
{
	struct resume_result result;
	int r = reply_read(reply, &form_resume, &result, error);

	if (r == 0 && result.leases.count != count)
		r = error_set(error, -EPROTO, NULL, "resume: %u answers for %zu leases", result.leases.count,
			      count);
	if (r < 0)
		return r;
	pthread_mutex_lock(&v->lock);
	for (size_t i = 0; i < count && r == 0; i++)
		r = lease_take_answer(leases[i], round, &result.leases.items[i], error);
	pthread_mutex_unlock(&v->lock);
	return r;
}

int leases_resume(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		  struct error *error)
{
	struct lease *leases[RESUME_LEASES_MAX];
	struct message_writer w;
	struct reply reply;
	struct error why;
	size_t count;
	int r = 0;

	while (r == 0 && (count = leases_pick(&client->reviver, round, leases)) > 0) {
		put_leases(&client->reviver, &w, leases, count);
		r = connection_call(connection, &w, CALL_TIMEOUT_MS, &reply, error);
		message_writer_clear(&w);
		if (r < 0)
			break;
		r = leases_take_answers(&client->reviver, leases, count, round, &reply, error);
		reply_clear(&reply);
	}
	if (r == -ENOSYS) {
		error_set(&why, -ENOSYS, "attach again: the version may be there",
			  "the gpuwmd that runs now can't take leases again: it is older");
		pthread_mutex_lock(&client->reviver.lock);
		leases_lose(client, &why);
		pthread_mutex_unlock(&client->reviver.lock);
	}
	/* This gpuwmd refuses for as long as it runs, and every call gets that error. The next one may know the leases. */
	return r == -ENOSYS || r == -EUCLEAN ? 0 : r;
}
