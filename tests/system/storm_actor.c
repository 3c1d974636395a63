/* A process in a storm. */
#include "storm.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define START_MS 30000
#define TRY_AGAIN_US 1000
#define LOOK_AGAIN_US 50

bool storm_code_is_among(int code, const int *codes)
{
	while (*codes && *codes != -code)
		codes++;
	return code >= 0 || *codes;
}

unsigned storm_choose(struct dice *dice, const unsigned *chances, unsigned count)
{
	unsigned all = 0, throw, i = 0;

	for (unsigned n = 0; n < count; n++)
		all += chances[n];
	throw = (unsigned)dice_throw(dice, all);
	for (; throw >= chances[i]; i++)
		throw -= chances[i];
	return i;
}

void storm_ready(void)
{
	child_say('o');
	CHILD_ASSERT(child_hear() == 'g');
}

/* ---- beginning and ending ---------------------------------------------------- */

static struct storm_board *board_map(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHILD_ASSERT(board != MAP_FAILED);
	close(fd);
	return board;
}

void storm_actor_begin(struct storm_actor *a, int argc, char **argv, size_t board_bytes)
{
	const int64_t deadline = clock_ms() + START_MS;

	CHILD_ASSERT(argc == 3);
	a->board = board_map(argv[0], board_bytes);
	a->number = (unsigned)atoi(argv[1]);
	a->told = &a->board->told[a->number];
	a->dice.state = strtoull(argv[2], NULL, 10);
	a->stream = storm_stream_new();
	while (gpuwm_connect(NULL, &a->client) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_us(TRY_AGAIN_US);
	}
}

struct gpuwm_region *storm_region_open(struct storm_actor *a, const char *name, unsigned flags)
{
	const int64_t deadline = clock_ms() + START_MS;
	struct gpuwm_region *region = NULL;

	while (MAY_REFUSE(gpuwm_region_open(a->client, name, flags, 0, &region), STORM_AWAY) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		flags &= ~(unsigned)GPUWM_REGION_OWN;
		pause_us(TRY_AGAIN_US);
	}
	return region;
}

void storm_actor_end(struct storm_actor *a)
{
	gpuwm_close(a->client);
	atomic_store(&a->told->state, STORM_ENDED);
}

/* ---- acting -------------------------------------------------------------------- */

static void stay_parked(struct storm_actor *a, const struct storm_part *part)
{
	if (part->park)
		part->park(a);
	atomic_store(&a->told->state, STORM_PARKED);
	while (atomic_load(&a->board->park)) {
		if (part->parked)
			part->parked(a);
		pause_us(LOOK_AGAIN_US);
	}
	atomic_store(&a->told->state, STORM_WORKING);
}

/* Whether another operation may begin: it is counted. */
static bool is_granted(struct storm_board *board)
{
	uint64_t count = atomic_load(&board->operations);

	do {
		if (count >= atomic_load(&board->granted) || atomic_load(&board->park))
			return false;
	} while (!atomic_compare_exchange_weak(&board->operations, &count, count + 1));
	return true;
}

static void act(struct storm_actor *a, const struct storm_part *part)
{
	const unsigned mood = part->mood ? part->mood(a) : 0;
	unsigned chances[STORM_OPERATIONS], count = 0, operation;
	int code;

	for (; part->operations[count].name; count++)
		chances[count] = part->operations[count].chances[mood];
	operation = storm_choose(&a->dice, chances, count);
	code = part->operations[operation].act(a);
	if (part->acted)
		part->acted(a);
	if (code == -EBUSY) {
		atomic_fetch_sub(&a->board->operations, 1);
		sched_yield();
	} else if (code < 0) {
		a->told->refused[operation]++;
	} else {
		a->told->done[operation]++;
	}
}

void storm_actor_work(struct storm_actor *a, const struct storm_part *part)
{
	atomic_store(&a->told->state, STORM_WORKING);
	while (!atomic_load(&a->board->finish)) {
		if (is_granted(a->board)) {
			act(a, part);
			continue;
		}
		if (atomic_load(&a->board->park))
			stay_parked(a, part);
		pause_us(LOOK_AGAIN_US);
	}
}
