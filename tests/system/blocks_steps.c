/* A process may die at any instruction. One goes through the functions for blocks, and the test stops it after each instruction, takes a
 * copy of the control memory, and does there what gpuwmd does when the process has died. Nothing else may be needed. */
#include "blocks_storm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(blocks_steps);

#define BLOCKS 4
#define HELD_KEY 1 /* the test holds its block */
#define LAST_KEY 30 /* of all that are used here */
#define GO_ON_EACH 8 /* steps between two calls of the test */
#define STEPS_MOST 2000000

enum phase { PHASE_BEGIN, PHASE_FILL, PHASE_LOOK, PHASE_OPS, PHASE_END };

/* ---- the process ------------------------------------------------------------- */

static _Atomic uint32_t *phase_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *address;

	if (fd < 0 || ftruncate(fd, 4096) < 0)
		return NULL;
	address = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return address == MAP_FAILED ? NULL : address;
}

static struct gpuwm_block fill(struct gpuwm_region *region, uint32_t key)
{
	const struct gpuwm_block_key name = blocks_key(key);
	struct blocks_use use = {.key = key, .salt = 1 + key};
	size_t done;

	CHILD_ASSERT(gpuwm_blocks_reserve(region, &name, 1, 0, &use.block, &done) == 0 && done == 1);
	CHILD_ASSERT(use.block.number < BLOCKS);
	blocks_fill(gpuwm_block_address(region, use.block.number), &use);
	return use.block;
}

/* Keys that are there, evict others, are published twice in one call, and are read. */
static void go_through(struct gpuwm_region *region, _Atomic uint32_t *phase)
{
	const struct gpuwm_block_key names[3] = {blocks_key(20), blocks_key(21), blocks_key(HELD_KEY)};
	struct gpuwm_block blocks[3], held[3];
	size_t count;

	atomic_store(phase, PHASE_FILL);
	blocks[0] = fill(region, 20);
	blocks[1] = fill(region, 21);
	CHILD_ASSERT(gpuwm_blocks_publish(region, blocks, 2) == 0);
	atomic_store(phase, PHASE_LOOK);
	CHILD_ASSERT(gpuwm_blocks_reserve(region, names, 3, 0, held, &count) == 0 && count == 3);
	CHILD_ASSERT(gpuwm_blocks_find(region, names, 3, &count) == 0 && count == 3);
	CHILD_ASSERT(gpuwm_blocks_hold(region, names, 3, 0, held, &count) == 0 && count == 3);
	CHILD_ASSERT(gpuwm_blocks_hold_these(region, blocks, 2, 0) == 0);
	CHILD_ASSERT(gpuwm_blocks_release(region, held, 3) == 0);
	CHILD_ASSERT(gpuwm_blocks_release(region, blocks, 2) == 0);
	atomic_store(phase, PHASE_OPS);
	blocks[2] = fill(region, 22);
	CHILD_ASSERT(gpuwm_blocks_abandon(region, &blocks[2], 1) == 0);
	CHILD_ASSERT(gpuwm_blocks_drop(region, names, 3, &count) == 0 && count == 2);
	atomic_store(phase, PHASE_END);
}

/* argv: the phase's path. */
static int stepper(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct gpuwm_region_info info;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_region_open(client, "blocks", GPUWM_REGION_WRITE, 0, &region) == 0);
	gpuwm_region_info(region, &info);
	child_say((char)('A' + info.slot));
	CHILD_ASSERT(child_hear() == 'g');
	go_through(region, phase_map(argv[0]));
	child_hear();
	return 0;
}

/* ---- what is true when it has died --------------------------------------------- */

struct steps {
	struct gpuwm_region *region;
	struct control control, copy;
	unsigned my_slot, slot; /* slot: the process's */
	unsigned looks;
};

static uint32_t key_of(const struct control_name *name)
{
	const struct gpuwm_block_key is = {.key = {name->key[0], name->key[1]}, .check = name->check};

	for (uint32_t key = 1; key <= LAST_KEY; key++) {
		const struct gpuwm_block_key wanted = blocks_key(key);

		if (blocks_key_is(&is, &wanted))
			return key;
	}
	cr_assert_fail("a block that is READY has no key");
	abort();
}

static bool is_indexed(const struct control_blocks *blocks, uint32_t block)
{
	uint64_t key[2] = {blocks->names[block].key[0], blocks->names[block].key[1]};
	const _Atomic uint64_t *bucket = control_bucket(blocks, key);
	const uint64_t wanted = control_slot_of(block, block_word_generation(blocks->words[block]), key);

	for (unsigned i = 0; i < CONTROL_BUCKET_SLOTS; i++) {
		if (bucket[i] == wanted)
			return true;
	}
	return false;
}

/* It has the bytes of its key, and is found by it. */
static void check_ready(const struct steps *s, uint32_t block)
{
	const struct control_blocks *blocks = &s->copy.blocks;
	const uint64_t word = blocks->words[block];
	const struct blocks_use use = {{block, block_word_generation(word)}, key_of(&blocks->names[block]), 0};
	const bool is_held = use.key == HELD_KEY;

	cr_assert(blocks_bytes_are(gpuwm_block_address(s->region, block), &use, NULL),
		  "look %u: block %u is READY without the bytes of key %u", s->looks, block, use.key);
	cr_assert(is_indexed(blocks, block), "look %u: block %u is READY and not found", s->looks, block);
	cr_assert_eq(block_word_holders(word), is_held ? 1u << s->my_slot : 0, "look %u: block %u, word %#jx",
		     s->looks, block, (uintmax_t)word);
}

static void look(struct steps *s)
{
	bool held_is_there = false;

	memcpy(s->copy.head, s->control.head, control_bytes((struct control_shape){.blocks = BLOCKS}));
	control_user_left(&s->copy, s->slot);
	cr_assert_null(control_blocks_damage(&s->copy.blocks, 1u << s->my_slot | 1u << s->slot));
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint64_t word = s->copy.blocks.words[i];

		cr_assert_neq(block_word_state(word), BLOCK_OWNED, "look %u: block %u, word %#jx", s->looks, i,
			      (uintmax_t)word);
		if (block_word_state(word) != BLOCK_READY)
			continue;
		check_ready(s, i);
		held_is_there |= key_of(&s->copy.blocks.names[i]) == HELD_KEY;
	}
	cr_assert(held_is_there, "look %u: the block that the test holds is gone", s->looks);
	s->looks++;
}

/* Nobody waits for a process that is stopped, wherever it is. */
static void others_go_on(const struct steps *s)
{
	const struct gpuwm_block_key names[2] = {blocks_key(HELD_KEY), blocks_key(LAST_KEY)};
	struct gpuwm_block block;
	size_t count;

	OK(gpuwm_blocks_find(s->region, names, 2, &count));
	cr_assert_eq(count, 1);
	OK(gpuwm_blocks_hold(s->region, names, 2, 0, &block, &count));
	cr_assert_eq(count, 1);
	OK(gpuwm_blocks_release(s->region, &block, 1));
}

/* ---- the test -------------------------------------------------------------- */

static struct gpuwm_region *made(struct gpuwm_client *client)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.name = "blocks";
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS;
	options.block_bytes = BLOCKS_BYTES;
	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

/* All blocks are READY, and one is held. */
static void fill_all(struct gpuwm_region *region)
{
	const struct gpuwm_block_key held_key = blocks_key(HELD_KEY);
	struct gpuwm_block block;
	size_t count;

	for (uint32_t key = HELD_KEY; key < HELD_KEY + BLOCKS; key++) {
		block = fill(region, key);
		OK(gpuwm_blocks_publish(region, &block, 1));
	}
	OK(gpuwm_blocks_hold(region, &held_key, 1, 0, &block, &count));
	cr_assert_eq(count, 1);
}

/* A signal or a call that was begun before may stop it too. */
static void step(pid_t pid)
{
	int status;

	cr_assert_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0, "%s", strerror(errno));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSTOPPED(status), "the process ended with status %#x", status);
}

static void step_through(struct steps *s, struct process *p, const _Atomic uint32_t *phase)
{
	unsigned steps = 0;

	while (atomic_load(phase) != PHASE_END) {
		const bool is_begun = atomic_load(phase) != PHASE_BEGIN;

		step(p->pid);
		if (is_begun)
			look(s);
		if (is_begun && steps % GO_ON_EACH == 0)
			others_go_on(s);
		cr_assert(steps++ < STEPS_MOST);
	}
}

static void prepare(struct steps *s, struct gpuwm_region *region)
{
	const uint64_t bytes = control_bytes((struct control_shape){.blocks = BLOCKS});
	struct gpuwm_region_info info;

	gpuwm_region_info(region, &info);
	s->region = region;
	s->my_slot = info.slot;
	s->control = control_at(control_mapped(), (struct control_shape){.blocks = BLOCKS});
	s->copy = control_at(aligned_alloc(64, bytes), (struct control_shape){.blocks = BLOCKS});
	fill_all(region);
}

static void end(struct steps *s, struct gpuwmd *d, struct gpuwm_client *client)
{
	const struct gpuwm_block_key held_key = blocks_key(HELD_KEY);
	struct gpuwm_block blocks[2];
	size_t count;

	OK(gpuwm_blocks_hold(s->region, &held_key, 1, 0, blocks, &count));
	blocks[1] = blocks[0];
	OK(gpuwm_blocks_release(s->region, blocks, 2));
	free(s->copy.head);
	OK(gpuwm_region_remove(client, "blocks"));
	OK(gpuwm_region_close(s->region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}

GPUWMD_TEST_IF(blocks_steps, a_death_at_any_instruction_leaves_nothing_to_repair,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind"),
	       gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct steps s = {0};
	_Atomic uint32_t *phase;
	struct process p;
	char path[96];
	int status;

	prepare(&s, made(client));
	snprintf(path, sizeof path, "%s/phase", d->dir);
	phase = phase_map(path);
	cr_assert(phase);
	p = process_start(stepper, path, NULL);
	s.slot = (unsigned)(process_hear(&p) - 'A');
	cr_assert_eq(ptrace(PTRACE_ATTACH, p.pid, NULL, NULL), 0, "%s", strerror(errno));
	cr_assert_eq(waitpid(p.pid, &status, 0), p.pid);
	process_tell(&p, 'g');
	step_through(&s, &p, phase);
	cr_assert(s.looks > 1000);
	fprintf(stderr, "blocks steps: %u looks\n", s.looks);
	process_kill(&p, SIGKILL);
	munmap(phase, 4096);
	end(&s, d, client);
}
