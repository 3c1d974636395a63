#include "access.h"

#include "clients.h"
#include "../config/config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void operators_socket_look(struct operators_socket *ret, const char *path)
{
	struct stat st;

	*ret = (struct operators_socket){0};
	snprintf(ret->path, sizeof(ret->path), "%s", path);
	if (stat(path, &st) == 0 && st.st_mode & S_IWGRP &&
	    st.st_gid != 0) /* nobody should join the group root */
		group_name(st.st_gid, ret->group);
}

const char *remedy_operator(const struct clients *clients, char text[REMEDY_BYTES])
{
	const struct operators_socket *socket = &clients->operators;

	if (socket->path[0] == '\0')
		snprintf(text, REMEDY_BYTES, "operators connect to the admin socket");
	else if (socket->group[0] == '\0')
		snprintf(text, REMEDY_BYTES,
			 "operators connect to %.512s; admin_group and admin_mode in [socket] of gpuwmd's "
			 "configuration say who may",
			 socket->path);
	else
		snprintf(
			text, REMEDY_BYTES,
			"operators connect to %.512s, as members of the group %s may: usermod -aG %s USER, then "
			"log in again",
			socket->path, socket->group, socket->group);
	return text;
}

const char *remedy_observer(const struct clients *clients, char text[REMEDY_BYTES])
{
	const char *group = clients->config->observe_group;
	size_t used;

	remedy_operator(clients, text);
	used = strlen(text);
	if (clients->has_observe_group)
		snprintf(text + used, REMEDY_BYTES - used,
			 "; observers are members of the group %s: usermod -aG %s USER", group, group);
	return text;
}

const char *remedy_publisher(const struct clients *clients, char text[REMEDY_BYTES])
{
	static const char rules[] =
		"publish and operate of a section [model.N] of gpuwmd's configuration name others who may";
	const char *group = clients->config->publish_group;

	if (clients->has_publish_group)
		snprintf(text, REMEDY_BYTES, "join the group %s: usermod -aG %s USER, then log in again; %s",
			 group, group, rules);
	else
		snprintf(text, REMEDY_BYTES,
			 "this machine has no group of publishers: publish_group in [access] names one; %s",
			 rules);
	return text;
}
