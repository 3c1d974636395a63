#include "revoked.h"

struct device *host(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST);
}

uint64_t lease_by(int sock, const char *ref)
{
	uint64_t lease;

	send_get(sock, 5, ref, 0);
	cr_assert_eq(answered(sock), 0, "%s", message.error.message);
	lease = answer_u64("lease");
	forget();
	return lease;
}

static void send_kick(int admin, const char *key, uint64_t number)
{
	struct message_writer w;

	begin_request(&w, 6, "kick");
	if (key)
		message_put_u64(&w, key, number);
	send_request(admin, &w);
}

int kick(int admin, const char *key, uint64_t number)
{
	send_kick(admin, key, number);
	return answered(admin);
}

int release(int sock, uint64_t lease)
{
	return ASK(sock, "release", NUMBER("lease", lease));
}

int retire_by(int admin, const char *ref, bool force, uint64_t after_ms)
{
	return ASK(admin, "retire", TEXT("ref", ref), FLAG("force", force), NUMBER("after_ms", after_ms));
}

void hears_that_it_is_revoked(int sock, uint64_t lease)
{
	const msgpack_object *ids;
	struct fields f;
	uint32_t count;

	cr_assert(comes(sock), "nothing is said");
	cr_assert_eq(message.type, MESSAGE_NOTIFICATION);
	cr_assert_str_eq(message.method, "revoked");
	fields_of(&f, message.body);
	ids = fields_array(&f, "leases", &count);
	cr_assert_eq(count, 1);
	cr_expect_eq(ids[0].via.u64, lease);
	cr_expect(strstr(answer_text("reason"), "an operator"));
}

struct version *unnamed(const char *tag)
{
	struct version *version = ready("m", tag);

	registry_remove_aliases(server->ledger.registry);
	return version;
}

bool is_gone(const char *tag)
{
	struct ref ref = {0};
	struct version *found;
	uint64_t generation;

	snprintf(ref.model, sizeof(ref.model), "m");
	snprintf(ref.name, sizeof(ref.name), "%s", tag);
	return registry_find(server->ledger.registry, &ref, &found, &generation, NULL) < 0;
}

struct session *session_of(enum session_kind kind)
{
	struct session *session = server->net.sessions;

	while (session->kind != kind)
		session = session->next;
	return session;
}

void grant_many(struct session *session, struct version *version, uint64_t count)
{
	struct lease *lease;
	struct error error;

	for (uint64_t i = 0; i < count; i++)
		cr_assert_eq(lease_grant(server->ledger.registry, version, 0,
					 &(struct lease_holder){.holder = session,
								.leases = &session->client->leases,
								.quota = server->ledger.quota,
								.uid = session->peer.uid},
					 &lease, &error),
			     0, "%s", error.message);
}
