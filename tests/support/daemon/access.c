#include "access.h"

int connect_uid(uid_t uid, unsigned roles)
{
	int sock = greeted(SESSION_WORKER);

	server->net.sessions->peer.uid = uid;
	server->net.sessions->peer.gid = uid;
	server->net.sessions->client->roles = ROLE_WORKER | roles;
	server->net.sessions->client->access = (struct access){0};
	return sock;
}

void rule(const char *section, const char *key, const char *value)
{
	struct error error;

	cr_assert_eq(config_set(&config, section, key, value, &error), 0, "%s", error.message);
	server->clients.rules_generation++;
}

struct version *owned(const char *model, const char *tag, uid_t uid)
{
	struct publish_part *part;
	struct publish *publish = building(model, tag, &part);

	publish->version->owner = uid;
	return complete(publish, part, 1);
}

int get(int sock, const char *ref)
{
	send_get(sock, 1, ref, 0);
	return answered(sock);
}

uint32_t told(int sock, const char *what)
{
	struct fields f;
	uint32_t count;

	cr_assert_eq(ask(sock, "list"), 0);
	fields_of(&f, message.body);
	fields_array(&f, what, &count);
	return count;
}

int retire(int sock, const char *ref)
{
	return ASK(sock, "retire", TEXT("ref", ref));
}

int swap(int sock, const char *model, const char *to)
{
	return ASK(sock, "hot_swap", TEXT("model", model), TEXT("to", to));
}

int pin(int sock, const char *ref)
{
	return ASK(sock, "pin_version", TEXT("ref", ref), TEXT("pin", "p"));
}

int may_publish(uid_t uid, unsigned roles, const char *model, struct error *error)
{
	int sock = connect_uid(uid, roles), r = access_publish(server->net.sessions, model, error);

	close(sock);
	turn();
	return r;
}
