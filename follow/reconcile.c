#include "slots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server that wants a slot. */
struct wish {
	enum server_state state;
	char ip[ADDRESS_IP_TEXT];
	unsigned port;
	const struct slot *slot; /* NULL: it has none */
};

struct work {
	const char *backend;
	const struct slots *slots;
	struct wish *wishes;
	size_t wish_count;
	bool *taken; /* of each slot */
	struct commands *out;
};

/* ---- who gets which slot ---- */

static void make_wishes(struct work *work, const struct fleet *fleet)
{
	for (size_t i = 0; i < fleet->count; i++) {
		const struct server *server = &fleet->servers[i];
		struct wish *wish = &work->wishes[work->wish_count];

		*wish = (struct wish){.state = server->state};
		if (address_ip(server->address, wish->ip, &wish->port)) {
			work->wish_count++;
			continue;
		}
		work->out->without_ip++;
		strcpy(work->out->odd, server->address);
	}
}

static bool suits(const struct slot *slot, const struct wish *wish)
{
	return strcmp(slot->ip, wish->ip) == 0 && slot->port == wish->port;
}

/* wish NULL: any slot that is free. */
static void take_slot(struct work *work, struct wish *ret, const struct wish *wish)
{
	for (size_t i = 0; i < work->slots->count; i++) {
		const struct slot *slot = &work->slots->items[i];

		if (work->taken[i] || (wish ? !suits(slot, wish) : slot->state != SLOT_MAINT))
			continue;
		work->taken[i] = true;
		ret->slot = slot;
		return;
	}
}

static void give_slots(struct work *work)
{
	for (size_t i = 0; i < work->wish_count; i++)
		take_slot(work, &work->wishes[i], &work->wishes[i]);
	for (size_t i = 0; i < work->wish_count; i++) {
		if (!work->wishes[i].slot)
			take_slot(work, &work->wishes[i], NULL);
		work->out->without_slot += work->wishes[i].slot == NULL;
	}
}

/* ---- what to say ---- */

/* There is room for two commands of each slot. */
static void say(struct work *work, const struct slot *slot, const char *what)
{
	snprintf(work->out->items[work->out->count++], COMMAND_BYTES, "set server %s/%s %s", work->backend,
		 slot->name, what);
}

static void say_wish(struct work *work, const struct wish *wish)
{
	char what[ADDRESS_IP_TEXT + 32];

	if (!suits(wish->slot, wish)) {
		snprintf(what, sizeof(what), "addr %s port %u", wish->ip, wish->port);
		say(work, wish->slot, what);
	}
	snprintf(what, sizeof(what), "state %s", server_state_name(wish->state));
	if (wish->slot->state != (wish->state == SERVER_READY ? SLOT_READY : SLOT_DRAIN))
		say(work, wish->slot, what);
}

static void say_all(struct work *work)
{
	for (int state = SERVER_READY; state <= SERVER_DRAIN; state++) {
		for (size_t i = 0; i < work->wish_count; i++) {
			if (work->wishes[i].slot && work->wishes[i].state == (enum server_state)state)
				say_wish(work, &work->wishes[i]);
		}
	}
	for (size_t i = 0; i < work->slots->count; i++) {
		if (!work->taken[i] && work->slots->items[i].state != SLOT_MAINT)
			say(work, &work->slots->items[i], "state maint");
	}
}

int reconcile(const char *backend, const struct fleet *fleet, const struct slots *slots, struct commands *ret)
{
	struct work work = {.backend = backend, .slots = slots, .out = ret};

	*ret = (struct commands){.items = calloc(2 * slots->count + 1, COMMAND_BYTES)};
	work.wishes = calloc(fleet->count + 1, sizeof(*work.wishes));
	work.taken = calloc(slots->count + 1, sizeof(*work.taken));
	if (ret->items && work.wishes && work.taken) {
		make_wishes(&work, fleet);
		give_slots(&work);
		say_all(&work);
	} else {
		commands_clear(ret);
	}
	free(work.wishes);
	free(work.taken);
	return ret->items ? 0 : -ENOMEM;
}

void commands_clear(struct commands *commands)
{
	free(commands->items);
	*commands = (struct commands){0};
}
