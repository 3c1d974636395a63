#include "blocks_actor.h"

#include "tests/support/any/threads.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ANSWER_MS 60000

struct actor {
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	const char *name;
};

/* ---- what it does ---------------------------------------------------------- */

static int fill(const struct actor *a, const struct actor_wish *wish)
{
	for (uint32_t i = 0; i < wish->count; i++) {
		const struct blocks_use use = {wish->blocks[i], wish->first + i, 1 + wish->first};
		uint64_t words[BLOCKS_WORDS];

		blocks_fill(words, &use);
		memcpy(gpuwm_block_address(a->region, use.block.number), words,
		       BLOCKS_BYTES / 8 * (uint64_t)wish->wait_ms);
	}
	return 0;
}

static int verify(const struct actor *a, const struct actor_wish *wish)
{
	for (uint32_t i = 0; i < wish->count; i++) {
		const struct blocks_use use = {wish->blocks[i], wish->first + i, 1 + wish->first};

		if (!blocks_bytes_are(gpuwm_block_address(a->region, use.block.number), &use, NULL))
			return -EBADMSG;
	}
	return 0;
}

/* Writes over all of the control memory but its magic number. */
static int scribble(void)
{
	size_t bytes;
	char *first = control_mapping(&bytes);

	CHILD_ASSERT(first);
	memset(first + 8, 0xa5, bytes - 8);
	return 0;
}

static int with_keys(const struct actor *a, const struct actor_wish *wish, struct actor_answer *ret)
{
	struct gpuwm_block_key keys[ACTOR_BLOCKS];

	CHILD_ASSERT(wish->count <= ACTOR_BLOCKS);
	for (uint32_t i = 0; i < wish->count; i++)
		keys[i] = blocks_key(wish->first + i);
	switch (wish->what) {
	case ACTOR_RESERVE:
		return gpuwm_blocks_reserve(a->region, keys, wish->count, wish->wait_ms, ret->blocks,
					    &ret->count);
	case ACTOR_FIND:
		return gpuwm_blocks_find(a->region, keys, wish->count, &ret->count);
	case ACTOR_HOLD:
		return gpuwm_blocks_hold(a->region, keys, wish->count, wish->wait_ms, ret->blocks, &ret->count);
	default:
		return gpuwm_blocks_drop(a->region, keys, wish->count, &ret->count);
	}
}

static int with_blocks(const struct actor *a, const struct actor_wish *wish)
{
	switch (wish->what) {
	case ACTOR_FILL:
		return fill(a, wish);
	case ACTOR_VERIFY:
		return verify(a, wish);
	case ACTOR_PUBLISH:
		return gpuwm_blocks_publish(a->region, wish->blocks, wish->count);
	case ACTOR_ABANDON:
		return gpuwm_blocks_abandon(a->region, wish->blocks, wish->count);
	case ACTOR_RELEASE:
		return gpuwm_blocks_release(a->region, wish->blocks, wish->count);
	default:
		return gpuwm_blocks_hold_these(a->region, wish->blocks, wish->count, wish->wait_ms);
	}
}

static int act(struct actor *a, const struct actor_wish *wish, struct actor_answer *ret)
{
	switch (wish->what) {
	case ACTOR_OPEN:
		return gpuwm_region_open(a->client, a->name, wish->count, 0, &a->region);
	case ACTOR_CLOSE:
		return gpuwm_region_close(a->region);
	case ACTOR_CHECK:
		return gpuwm_region_check(a->region);
	case ACTOR_ADDRESS:
		return gpuwm_block_address(a->region, 0) ? 0 : -ENXIO;
	case ACTOR_SCRIBBLE:
		return scribble();
	case ACTOR_RESERVE:
	case ACTOR_FIND:
	case ACTOR_HOLD:
	case ACTOR_DROP:
		return with_keys(a, wish, ret);
	default:
		return with_blocks(a, wish);
	}
}

/* argv: region, flags. */
static int actor(int argc, char **argv)
{
	struct actor a = {.name = argv[0]};
	struct actor_wish wish = {.what = ACTOR_OPEN, .count = (uint32_t)strtoul(argv[1], NULL, 10)};

	CHILD_ASSERT(argc == 2);
	child_keeps_context();
	CHILD_ASSERT(gpuwm_connect(NULL, &a.client) == 0);
	do {
		struct actor_answer answer = {0};

		answer.code = act(&a, &wish, &answer);
		if (answer.code < 0)
			snprintf(answer.message, sizeof answer.message, "%s", gpuwm_error()->message);
		CHILD_ASSERT(write(CHILD_OUT, &answer, sizeof answer) == sizeof answer);
	} while (read(CHILD_IN, &wish, sizeof wish) == sizeof wish && wish.what != ACTOR_END);
	gpuwm_close(a.client);
	return 0;
}

/* ---- the test's side --------------------------------------------------------- */

struct process actor_start(const char *region, unsigned flags)
{
	const struct actor_answer *answer;
	struct process p;
	char text[16];

	snprintf(text, sizeof text, "%u", flags);
	p = process_start(actor, region, text, NULL);
	answer = actor_hear(&p);
	cr_assert_eq(answer->code, 0, "%s", answer->message);
	return p;
}

void actor_send(struct process *p, const struct actor_wish *wish)
{
	cr_assert_eq(write(p->to, wish, sizeof *wish), (ssize_t)sizeof *wish);
}

bool actor_is_done(struct process *p)
{
	return poll(&(struct pollfd){.fd = p->from, .events = POLLIN}, 1, 0) == 1;
}

void actor_waits(struct process *p)
{
	cr_assert(EVENTUALLY(SOON_MS, thread_is_asleep(p->pid, p->pid) || actor_is_done(p)));
	cr_assert(!actor_is_done(p), "it answers, and was to wait");
}

const struct actor_answer *actor_hear(struct process *p)
{
	static struct actor_answer answer;

	cr_assert(EVENTUALLY(ANSWER_MS, actor_is_done(p)), "the actor does not answer");
	cr_assert_eq(read(p->from, &answer, sizeof answer), (ssize_t)sizeof answer, "the actor ended");
	return &answer;
}

const struct actor_answer *actor_does(struct process *p, const struct actor_wish *wish)
{
	actor_send(p, wish);
	return actor_hear(p);
}

void actor_end(struct process *p)
{
	ACTOR_OK(p, ACTOR_CLOSE, .count = 0);
	actor_send(p, &(const struct actor_wish){.what = ACTOR_END});
	process_finish(p);
}
