#include "clients.h"

#include "../../service/log.h"
#include "../config/config.h"

#include <errno.h>
#include <stdlib.h>

/* If the machine has no such group, the log says so, and what that means, which is `without`. */
static bool find_group(const char *name, gid_t *ret, const char *without)
{
	const bool found = name[0] && group_find(name, ret);

	if (name[0] && !found)
		log_info("there is no group %s: %s", name, without);
	return found;
}

void clients_configure(struct clients *clients)
{
	const struct config *config = clients->config;

	clients->has_publish_group = find_group(
		config->publish_group, &clients->publish_group,
		"only root, gpuwmd's own user, operators and users that [model.N] names may publish");
	clients->has_observe_group =
		find_group(config->observe_group, &clients->observe_group, "nobody is an observer");
	clients->rules_generation++;
	clients->roles_generation++;
}

int client_new(struct clients *clients, struct session *session)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->clients = clients;
	session->client = client;
	return 0;
}

void client_free(struct session *session)
{
	audience_leave(session);
	free(session->client->unit);
	free(session->client);
	session->client = NULL;
}
