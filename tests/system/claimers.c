#include "claimers.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* argv: device, name, seed. */
static int claimer(int argc, char **argv)
{
	const struct checkpoint *c = SMALL(strtoull(argv[2], NULL, 10));
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_publish *publish = NULL;
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_client *client;
	bool again = true;
	char word;

	CHILD_ASSERT(argc == 3);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	options.wait_ms = -1;
	while (again) {
		int r = gpuwm_claim(client, argv[1], &options, &mapping);

		if (r < 0)
			fprintf(stderr, "claim: %s\n", gpuwm_error()->message);
		CHILD_ASSERT(r >= 0);
		CHILD_ASSERT(r == 1 || mapping_holds(mapping, c->seed));
		child_say(r == 1 ? 'b' : 'a');
		for (again = false; !again && (word = child_hear()) && word != 'd';) {
			if (word == 'o')
				CHILD_ASSERT(publish_begin(client, argv[0], argv[1], c, &publish) == 0);
			if (word == 'p')
				CHILD_ASSERT(publish_version(client, argv[0], argv[1], c) == 0);
			if (word == 'c')
				CHILD_ASSERT(gpuwm_publish_commit(publish, NULL) < 0);
			if (word == 'x')
				CHILD_ASSERT(gpuwm_publish_abort(publish, "the test wants it") == 0);
			if (word == 'g')
				CHILD_ASSERT(gpuwm_claim_give_up(client, argv[1]) == 0);
			child_say(word);
			again = word == 'x' || word == 'g' || word == 'c';
		}
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

struct process claimer_start(struct gpuwmd *d, const char *name)
{
	return process_start(claimer, d->device, name, "1", NULL);
}

void claimer_publish(struct process *p)
{
	process_tell(p, 'p');
	process_expect(p, 'p');
	process_tell(p, 'd');
	process_finish(p);
}

/* Who speaks first, and which word. */
static int crowd_hear(struct crowd *c, char *ret_word)
{
	struct pollfd polls[CROWD];

	for (int i = 0; i < c->count; i++)
		polls[i] = (struct pollfd){.fd = c->gone[i] ? -1 : c->p[i].from, .events = POLLIN};
	cr_assert(poll(polls, (nfds_t)c->count, SLOW_MS) > 0, "nobody says a word");
	for (int i = 0; i < c->count; i++) {
		if (polls[i].revents) {
			*ret_word = process_hear(&c->p[i]);
			return i;
		}
	}
	cr_assert_fail("nobody");
	return -1;
}

int crowd_elect(struct crowd *c)
{
	char word;
	int builder = crowd_hear(c, &word);

	cr_assert_eq(word, 'b');
	return builder;
}

bool crowd_is_silent(struct crowd *c)
{
	struct pollfd polls[CROWD];

	for (int i = 0; i < c->count; i++)
		polls[i] = (struct pollfd){.fd = c->gone[i] ? -1 : c->p[i].from, .events = POLLIN};
	return poll(polls, (nfds_t)c->count, 0) == 0;
}

int crowd_start(struct crowd *c, struct gpuwmd *d, int count)
{
	int builder;

	*c = (struct crowd){.d = d, .count = count};
	for (int i = 0; i < count; i++)
		c->p[i] = claimer_start(d, NAME);
	builder = crowd_elect(c);
	cr_assert(EVENTUALLY(SLOW_MS, status_of(d, "waiting") == (uint64_t)count - 1));
	cr_assert(crowd_is_silent(c));
	cr_assert_eq(status_of(d, "claims"), 1);
	return builder;
}

void crowd_tell(struct crowd *c, int which, char word)
{
	process_tell(&c->p[which], word);
	process_expect(&c->p[which], word);
}

void crowd_kill(struct crowd *c, int which)
{
	process_kill(&c->p[which], SIGKILL);
	c->gone[which] = true;
}

void crowd_end(struct crowd *c, int builder)
{
	process_tell(&c->p[builder], 'p');
	process_expect(&c->p[builder], 'p');
	for (int i = 0; i < c->count; i++) {
		if (i != builder && !c->gone[i])
			process_expect(&c->p[i], 'a');
	}
	cr_assert_eq(status_of(c->d, "claims"), 0);
	for (int i = 0; i < c->count; i++) {
		if (c->gone[i])
			continue;
		process_tell(&c->p[i], 'd');
		process_finish(&c->p[i]);
	}
	DROP(c->d, "m@v1");
	gpuwmd_stop_empty(c->d);
}
