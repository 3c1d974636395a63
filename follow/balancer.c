#include "balancer.h"
#include "slots.h"
#include "../base/beneath.h"
#include "../base/grow.h"
#include "../base/leftover.h"
#include "../base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A slot that leaves is free for others in the next round. */
#define ROUNDS_MAX 3

void balancer_begin(struct balancer *balancer)
{
	balancer->is_silent = false;
}

static int slots_ask(struct balancer *balancer, struct route *route, struct slots *ret)
{
	char command[COMMAND_BYTES], *answer;
	struct error error;
	int r;

	if (balancer->is_silent)
		return -ETIMEDOUT;
	snprintf(command, sizeof(command), "show servers state %s", route->backend);
	r = haproxy_ask(balancer->socket, command, &answer, &error);
	if (r < 0) {
		balancer->is_written = false; /* the next one may have other servers */
		balancer->is_silent = r == -ETIMEDOUT;
		log_trouble(&balancer->trouble, "%s (%s)", error.message, error.detail);
		return r;
	}
	log_trouble_over(&balancer->trouble, "HAProxy answers again");
	r = slots_read(answer, ret);
	if (r == -EBADMSG)
		log_trouble(&route->refused, "HAProxy tells no servers of the backend %s: %.200s",
			    route->backend, answer);
	free(answer);
	return r;
}

/* ---- what it had ---- */

void balancer_adopt(struct balancer *balancer, struct route *route, uint64_t keep_until_ms)
{
	char address[ADDRESS_BYTES_MAX + 1];
	struct slots slots;

	if (route->adopted || slots_ask(balancer, route, &slots) < 0)
		return;
	route->adopted = true;
	for (size_t i = 0; i < slots.count; i++) {
		const struct slot *slot = &slots.items[i];

		slot_address(slot, address);
		if (slot->state == SLOT_MAINT || address_wrong(address))
			continue;
		if (fleet_adopt(&route->fleet, address, slot->state == SLOT_READY ? SERVER_READY : SERVER_DRAIN,
				keep_until_ms) < 0)
			route->adopted = false;
	}
	slots_clear(&slots);
}

/* ---- what it is to have ---- */

static void tell_left_out(struct route *route, const struct commands *commands)
{
	if (commands->without_slot > 0)
		log_trouble(
			&route->full,
			"%zu servers of %s get no requests: the backend %s has no slot that is free; give its "
			"server-template more",
			commands->without_slot, route->ref, route->backend);
	else
		log_trouble_over(&route->full, "all servers have a slot again");
	if (commands->without_ip > 0)
		log_trouble(
			&route->odd,
			"%zu servers of %s get no requests, %s for one: HAProxy takes IP addresses only; announce "
			"IP:PORT, or use --exec",
			commands->without_ip, route->ref, commands->odd);
	else
		log_trouble_over(&route->odd, "all servers have IP addresses again");
}

static size_t count_in_use(const struct slots *slots)
{
	size_t count = 0;

	for (size_t i = 0; i < slots->count; i++)
		count += slots->items[i].state != SLOT_MAINT;
	return count;
}

/* HAProxy has no command that tells its server-state-file. But one that was started without the servers of before has all slots in
 * maintenance, though nobody had to be removed. */
static void tell_forgotten(const struct balancer *balancer, struct route *route, const struct slots *slots)
{
	if (route->slots_in_use == 0)
		return;
	if (count_in_use(slots) > 0)
		log_trouble_over(&route->forgotten, "HAProxy has its servers again");
	else
		log_trouble(
			&route->forgotten,
			"HAProxy has lost the %zu servers of its backend %s, so requests failed until now: if it was "
			"reloaded or restarted, it needs `server-state-file %s` in its section global, and "
			"`load-server-state-from-file global` in defaults",
			route->slots_in_use, route->backend,
			balancer->state_file ? balancer->state_file : "FILE, the one of --haproxy-state,");
}

static int say_all(struct balancer *balancer, struct route *route, const struct commands *commands)
{
	struct error error;
	int r = 0;

	for (size_t i = 0; r == 0 && i < commands->count; i++) {
		r = haproxy_set(balancer->socket, commands->items[i], &error);
		balancer->is_written = false;
	}
	balancer->is_silent = r == -ETIMEDOUT;
	if (r < 0)
		log_trouble(&route->refused, "%s (%s)", error.message, error.detail);
	return r;
}

/* Returns how many commands HAProxy got. */
static int round_once(struct balancer *balancer, struct route *route)
{
	struct commands commands;
	struct slots slots;
	int r = slots_ask(balancer, route, &slots);

	if (r < 0)
		return r;
	tell_forgotten(balancer, route, &slots);
	r = reconcile(route->backend, &route->fleet, &slots, &commands);
	route->slots_in_use = r == 0 && commands.count == 0 ? count_in_use(&slots) : 0;
	slots_clear(&slots);
	if (r < 0)
		return r;
	tell_left_out(route, &commands);
	r = say_all(balancer, route, &commands);
	r = r < 0 ? r : (int)commands.count;
	commands_clear(&commands);
	return r;
}

void balancer_apply(struct balancer *balancer, struct route *route)
{
	int r = 1;

	for (int i = 0; i < ROUNDS_MAX && r > 0; i++)
		r = round_once(balancer, route);
	if (r == 0)
		log_trouble_over(&route->refused, "HAProxy takes all changes again");
	else if (r > 0)
		log_trouble(&route->refused, "HAProxy's backend %s does not become what it is told to be",
			    route->backend);
}

/* ---- what the next one is to begin with ---- */

/* Others may write into the folder too: it is HAProxy's. */
static int replace_file_in(int folder, const char *name, const char *text)
{
	char beside[NAME_MAX + 1];
	struct leftovers left;
	struct stat st;
	int r = leftover_name(name, beside), fd;

	if (r < 0)
		return r;
	leftovers_remove(folder, &left);
	fd = beneath_make(folder, beside, O_WRONLY, 0644, &st);
	if (fd < 0)
		return fd;
	r = file_write_all(fd, text, strlen(text));
	if (r == 0)
		r = file_write_all(fd, "\n", 1);
	close(fd);
	if (r == 0 && renameat(folder, beside, folder, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(folder, beside, 0);
	return r;
}

/* A HAProxy that starts meanwhile reads the old file or the new one. */
static int replace_file(const char *path, const char *text)
{
	char above[PATH_BYTES_MAX + 1];
	const char *name = path_last(path);
	int folder, r;

	if (snprintf(above, sizeof(above), "%.*s.", (int)(name - path), path) >= (int)sizeof(above))
		return -ENAMETOOLONG;
	folder = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return -errno;
	r = replace_file_in(folder, name, text);
	close(folder);
	return r;
}

void balancer_write(struct balancer *balancer)
{
	struct error error;
	char *answer;
	int r;

	if (!balancer->state_file || balancer->is_written || balancer->is_silent ||
	    haproxy_ask(balancer->socket, "show servers state", &answer, &error) < 0)
		return;
	r = replace_file(balancer->state_file, answer);
	free(answer);
	balancer->is_written = r == 0;
	if (r < 0)
		log_trouble(&balancer->file_trouble, "%s can't be written: %s", balancer->state_file,
			    strerror(-r));
	else
		log_trouble_over(&balancer->file_trouble, "the state file is written again");
}
