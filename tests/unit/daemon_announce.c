/* Addresses that workers announce with their leases, and who hears of them. */
#include "tests/support/daemon/revoked.h"

TestSuite(announce, .init = server_open, .fini = server_close, .timeout = 120);

#define HERE "10.0.0.5:8000"

static int announce(int sock, uint64_t lease, const char *address)
{
	return ASK(sock, "announce", NUMBER("lease", lease), TEXT("address", address));
}

static int withdraw(int sock, uint64_t lease)
{
	return ASK(sock, "announce", NUMBER("lease", lease));
}

/* The next event of this connection is about this lease. */
static void hears(int sock, uint64_t lease, const char *address, const char *state)
{
	cr_assert(comes(sock), "nothing is said");
	cr_assert_str_eq(answer_text("kind"), "announced");
	cr_expect_eq(answer_u64("lease"), lease);
	cr_expect_str_eq(answer_text("state"), state);
	cr_expect_str_eq(answer_text("model"), "m");
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect_eq(answer_has("address"), address != NULL);
	if (address)
		cr_expect_str_eq(answer_text("address"), address);
}

static int subscribed(enum session_kind kind)
{
	int sock = greeted(kind);

	cr_assert_eq(ask(sock, "subscribe"), 0);
	return sock;
}

/* A worker with a lease of m@v1. */
static int worker_with(uint64_t *ret_lease)
{
	int sock = greeted(SESSION_WORKER);

	ready("m", "v1");
	*ret_lease = lease_by(sock, "m");
	return sock;
}

Test(announce, observers_and_operators_hear_of_each_change)
{
	uint64_t lease;
	int worker = worker_with(&lease), admin = subscribed(SESSION_ADMIN), other, observer;

	observer = greeted(SESSION_WORKER);
	server->net.sessions->client->roles = ROLE_WORKER | ROLE_OBSERVER;
	cr_assert_eq(ask(observer, "subscribe"), 0);
	other = greeted(SESSION_WORKER);
	server->net.sessions->client->roles = ROLE_WORKER;
	cr_assert_eq(ask(other, "subscribe"), 0);
	cr_assert_eq(announce(worker, lease, HERE), 0);
	hears(admin, lease, HERE, "announced");
	hears(observer, lease, HERE, "announced");
	cr_assert_eq(announce(worker, lease, HERE), 0);
	cr_expect_not(comes(admin), "nothing has changed");
	cr_assert_eq(announce(worker, lease, "unix:/s"), 0);
	hears(admin, lease, "unix:/s", "announced");
	cr_assert_eq(withdraw(worker, lease), 0);
	hears(admin, lease, NULL, "withdrawn");
	cr_assert_eq(withdraw(worker, lease), 0);
	cr_expect_not(comes(admin));
	cr_expect_not(comes(other), "where a worker listens is no business of other workers");
}

Test(announce, an_address_ends_with_its_lease)
{
	uint64_t lease;
	int worker = worker_with(&lease), admin = subscribed(SESSION_ADMIN);

	cr_assert_eq(announce(worker, lease, HERE), 0);
	hears(admin, lease, HERE, "announced");
	cr_assert_eq(release(worker, lease), 0);
	hears(admin, lease, NULL, "ended");
	lease = lease_by(worker, "m");
	cr_assert_eq(announce(worker, lease, HERE), 0);
	hears(admin, lease, HERE, "announced");
	close(worker);
	cr_assert(comes(admin));
	cr_expect_str_eq(answer_text("kind"), "peer_lost");
	hears(admin, lease, NULL, "ended");
}

Test(announce, an_address_ends_with_a_revoked_lease)
{
	uint64_t lease;
	int worker = worker_with(&lease), admin = subscribed(SESSION_ADMIN), operator= greeted(SESSION_ADMIN);

	cr_assert_eq(announce(worker, lease, HERE), 0);
	hears(admin, lease, HERE, "announced");
	cr_assert_eq(kick(operator, "lease", lease), 0);
	hears(admin, lease, NULL, "ended");
	forget();
	cr_assert(comes(admin));
	cr_expect_str_eq(answer_text("kind"), "revoked");
	hears_that_it_is_revoked(worker, lease);
	cr_expect_eq(announce(worker, lease, HERE), -ENOENT);
}

Test(announce, a_gpuwmd_that_stops_takes_no_address_away)
{
	uint64_t lease, last;
	int worker = worker_with(&lease);

	cr_assert_eq(announce(worker, lease, HERE), 0);
	last = event_last(server->ledger.events);
	server->net.stopping = true;
	close(worker);
	TURN_UNTIL(leases() == 0);
	cr_expect_eq(event_last(server->ledger.events), last);
	server->net.stopping = false;
}

Test(announce, nobody_hears_of_versions_without_a_name)
{
	int worker = greeted(SESSION_WORKER);
	struct version *version = ready("m", "v1");
	uint64_t lease = lease_by(worker, "m"), last;

	version->model->name[0] = '~'; /* as nameless_model does */
	last = event_last(server->ledger.events);
	cr_assert_eq(announce(worker, lease, HERE), 0);
	cr_expect_eq(event_last(server->ledger.events), last);
	version->model->name[0] = 'm';
}

Test(announce, refuses_what_is_no_address_and_no_lease)
{
	uint64_t lease;
	int worker = worker_with(&lease), other = greeted(SESSION_WORKER);

	cr_expect_eq(announce(worker, lease, ""), -EINVAL);
	cr_expect_eq(announce(worker, lease, "here"), -EINVAL);
	cr_expect(strstr(message.error.message, "the address \"here\" has no port"), "%s",
		  message.error.message);
	cr_expect(strstr(message.error.detail, "host:port"));
	cr_expect_eq(announce(other, lease, HERE), -ENOENT);
	cr_expect_eq(announce(worker, lease + 1, HERE), -ENOENT);
}

Test(announce, one_connection_has_a_limit)
{
	uint64_t lease, first;
	int worker = worker_with(&first);

	cr_assert_eq(announce(worker, first, HERE), 0);
	for (int i = 1; i < ADDRESSES_PER_SESSION_MAX; i++)
		cr_assert_eq(announce(worker, lease_by(worker, "m"), HERE), 0);
	lease = lease_by(worker, "m");
	cr_expect_eq(announce(worker, lease, HERE), -EDQUOT);
	cr_expect(strstr(message.error.message, "64"));
	cr_expect_eq(announce(worker, first, "b:1"), 0, "it is no further one");
	cr_assert_eq(release(worker, first), 0);
	cr_expect_eq(announce(worker, lease, HERE), 0);
	cr_assert_eq(withdraw(worker, lease), 0);
	cr_expect_eq(announce(worker, lease_by(worker, "m"), HERE), 0);
}

/* Resumes a lease; its address may be NULL. Returns the code of its own answer, or sets *ret_lease. */
static int resume(int sock, const struct version *version, const char *address, uint64_t *ret_lease)
{
	const msgpack_object *array;
	struct message_writer w;
	struct error error = {0};
	struct fields f, one;
	uint32_t count;

	begin_request(&w, 9, "resume");
	message_begin_array(&w, "leases");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "lease", 1);
	message_put_hex128(&w, "version", version->id.bytes);
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "rank", 0);
	if (address)
		message_put_text(&w, "address", address);
	message_end(&w);
	message_end(&w);
	send_request(sock, &w);
	cr_assert_eq(answered(sock), 0);
	fields_of(&f, message.body);
	array = fields_array(&f, "leases", &count);
	cr_assert_eq(count, 1);
	fields_of(&one, &array[0]);
	if (fields_error(&one, "error", &error))
		return error.code;
	*ret_lease = fields_u64(&one, "lease");
	return 0;
}

Test(announce, an_address_is_resumed_with_its_lease)
{
	int worker = greeted(SESSION_WORKER), admin = subscribed(SESSION_ADMIN);
	struct version *version = ready("m", "v1");
	uint64_t lease;

	lease_begin(server->ledger.registry, 10);
	cr_assert(comes(admin), "it is ready");
	cr_assert_eq(resume(worker, version, "nowhere", &lease), -EINVAL);
	cr_assert_eq(leases(), 0);
	cr_assert_eq(resume(worker, version, HERE, &lease), 0);
	cr_expect_str_eq(version->leases->address, HERE);
	server->net.sessions->next->client->addresses = ADDRESSES_PER_SESSION_MAX;
	cr_assert_eq(resume(worker, version, HERE, &lease), -EDQUOT);
	cr_assert_eq(leases(), 1, "a lease whose address is refused is not resumed");
	cr_assert_eq(resume(worker, version, NULL, &lease), 0);
	cr_assert_eq(leases(), 2);
	server->net.sessions->next->client->addresses = 1;
}

Test(announce, clients_tell_addresses)
{
	uint64_t lease;
	int worker = worker_with(&lease), admin = greeted(SESSION_ADMIN);
	const msgpack_object *clients, *held;
	struct fields f, one, of_lease;
	char address[ADDRESS_BYTES_MAX + 1];
	uint32_t count, held_count, found = 0;

	cr_assert_eq(announce(worker, lease, HERE), 0);
	lease_by(worker, "m");
	cr_assert_eq(ask(admin, "clients"), 0);
	fields_of(&f, message.body);
	clients = fields_array(&f, "clients", &count);
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&one, &clients[i]);
		held = fields_array(&one, "leases", &held_count);
		for (uint32_t j = 0; j < held_count; j++) {
			fields_of(&of_lease, &held[j]);
			if (!fields_have(&of_lease, "address"))
				continue;
			fields_text(&of_lease, "address", address, sizeof(address));
			cr_expect_str_eq(address, HERE);
			cr_expect_eq(fields_u64(&of_lease, "lease"), lease);
			found++;
		}
	}
	cr_expect_eq(found, 1);
}
