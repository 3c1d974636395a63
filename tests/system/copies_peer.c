#include "copies_peer.h"

#include <stdio.h>

/* ---- peers ------------------------------------------------------------ */

static void count_revoked(const struct gpuwm_lost *lost, void *user_data)
{
	if (lost->revoked && lost->error.code == -ESTALE)
		__atomic_add_fetch((unsigned *)user_data, 1, __ATOMIC_SEQ_CST);
}

struct gpuwm_attach_options by_copy(const struct gpuwmd *d)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.device = d->device;
	options.transport = GPUWM_TRANSPORT_CUDA_IPC;
	return options;
}

/* argv: ref, device. */
static int peer(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_attach_options where = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping, *next = NULL;
	struct gpuwm_client *client;
	unsigned told = 0;
	char word;

	CHILD_ASSERT(argc == 2);
	options.lost = count_revoked;
	options.lost_data = &told;
	where.device = argv[1];
	where.transport = GPUWM_TRANSPORT_CUDA_IPC;
	CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	if (gpuwm_attach(client, argv[0], &where, &mapping) < 0) {
		child_say('f');
		gpuwm_close(client);
		return 0;
	}
	child_say('a');
	while ((word = child_hear()) && word != 'd') {
		if (word == 'r')
			child_say(mapping_holds(next ? next : mapping, 1) ? 'k' : '?');
		if (word == 'n')
			child_say((char)('0' + __atomic_load_n(&told, __ATOMIC_SEQ_CST)));
		if (word == 'c')
			child_say(gpuwm_mapping_revoked(mapping) && gpuwm_mapping_check(mapping) == -ESTALE
					  ? 'y'
					  : 'n');
		if (word == 'A')
			child_say(gpuwm_attach(client, argv[0], &where, &next) == 0 ? 'a' : 'f');
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	CHILD_ASSERT(gpuwm_detach(next) == 0);
	gpuwm_close(client);
	return 0;
}

struct process peer_start(const struct gpuwmd *d)
{
	return process_start(peer, "m@v1", d->device, NULL);
}

struct process peer_of(const struct gpuwmd *d)
{
	struct process p = peer_start(d);

	process_expect(&p, 'a');
	return p;
}

char peer_answers(struct process *p, char word)
{
	process_tell(p, word);
	return process_hear(p);
}

void peer_end(struct process *p)
{
	process_tell(p, 'd');
	process_finish(p);
}

/* ---- what gpuwmd tells ------------------------------------------------ */

/* The first copy that `list` tells; NULL. json_decref it. */
static json_t *copy_listed(struct gpuwmd *d)
{
	json_t *list = query(d->admin, "list", NULL),
	       *copy = json_incref(json_array_get(json_object_get(list, "copies"), 0));

	json_decref(list);
	return copy;
}

uint64_t copy_number(struct gpuwmd *d, const char *key)
{
	json_t *copy = copy_listed(d);
	uint64_t number = (uint64_t)json_integer_value(json_object_get(copy, key));

	json_decref(copy);
	return number;
}

pid_t copy_holder(struct gpuwmd *d)
{
	pid_t pid = (pid_t)copy_number(d, "pid");

	cr_assert_gt(pid, 0);
	return pid;
}
