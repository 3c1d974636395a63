/* A chunk handed to another process and back, in the order of streams, beside a bare ping-pong of words in the same processes.
 *
 *   hand_over [--device UUID] [--turns N] [--check]
 *
 * gpuwmd is at $GPUWM_SOCKET. A round: one stream says that the chunk is written; the reader's stream waits for that, and says that
 * it has finished; the first stream waits for that. All rounds of a turn are queued, and then begin. A bare round is the same with two
 * words that the test made.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/report.h"

#include <gpuwm/region.h>

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ROUNDS 100 /* of a turn: fewer operations than a queue takes */
#define TURNS_MAX 1000
#define CHUNK_BYTES 4096
#define HOST_BYTES 4096
#define WORD_BYTES 128
#define RATIO 1.5 /* of a hand-over to a bare round: the goal */

enum word { GATE, THERE, BACK };

static struct told {
	char device[64], region[33];
	_Atomic unsigned arrived[2]; /* at barriers */
	unsigned reader; /* its slot */
	struct gpuwm_token tokens[ROUNDS];
	double bare_us[TURNS_MAX], ours_us[TURNS_MAX];
} * told;

static char *words; /* of all processes, registered in each */

#define GPUWM(call)                                                                                            \
	do {                                                                                                   \
		if ((call) < 0)                                                                                \
			DIE("%s: %s", #call, gpuwm_error()->message);                                          \
	} while (0)

/* ---- both processes ------------------------------------------------------------- */

static void meet(unsigned side)
{
	unsigned mine = atomic_fetch_add(&told->arrived[side], 1) + 1;
	double begin = now_us();

	while (atomic_load(&told->arrived[!side]) < mine)
		if (now_us() - begin > 60e6)
			DIE("the other process does not come");
}

static CUdeviceptr word(enum word number)
{
	return (CUdeviceptr)words + number * WORD_BYTES;
}

static void put(CUstream stream, enum word number, uint64_t value)
{
	CU(driver.cuStreamWriteValue64_v2(stream, word(number), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

static void wait_for(CUstream stream, enum word number, uint64_t value)
{
	CU(driver.cuStreamWaitValue64_v2(stream, word(number), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static CUstream begin(void)
{
	CUstream stream;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	driver_open(told->device[0] ? told->device : NULL);
	driver_context();
	CU(driver.cuMemHostRegister_v2(words, HOST_BYTES,
				       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	CU(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* ---- the owner -------------------------------------------------------------------- */

/* Opens the gate for what is queued. Returns the time of a round. */
static double time_rounds(CUstream stream, uint64_t turn)
{
	double start = now_us();

	atomic_store((_Atomic uint64_t *)(words + GATE * WORD_BYTES), turn);
	CU(driver.cuStreamSynchronize(stream));
	return (now_us() - start) / ROUNDS;
}

static void bare_turn(CUstream stream, uint64_t turn)
{
	wait_for(stream, GATE, 2 * turn + 1);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		put(stream, THERE, turn * ROUNDS + i);
		wait_for(stream, BACK, turn * ROUNDS + i);
	}
	meet(0);
	told->bare_us[turn] = time_rounds(stream, 2 * turn + 1);
}

static void our_turn(struct gpuwm_region *pool, CUstream stream, uint64_t turn)
{
	const struct gpuwm_readers readers = {.named = 1u << told->reader};
	struct gpuwm_chunk *chunk;

	wait_for(stream, GATE, 2 * turn + 2);
	for (unsigned i = 0; i < ROUNDS; i++) {
		GPUWM(gpuwm_chunk_alloc(pool, CHUNK_BYTES, 10000, &chunk));
		GPUWM(gpuwm_chunk_offer_in_stream(chunk, &readers, stream, &told->tokens[i]));
		GPUWM(gpuwm_token_finished_in_stream(pool, &told->tokens[i], stream));
	}
	meet(0); /* the tokens are there */
	meet(0); /* the reader has queued its part */
	told->ours_us[turn] = time_rounds(stream, 2 * turn + 2);
}

static void own(unsigned turns)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	CUstream stream = begin();
	struct gpuwm_client *client;
	struct gpuwm_region_info info;
	struct gpuwm_region *pool;

	GPUWM(gpuwm_connect(NULL, &client));
	options.device = told->device;
	options.bytes = 2 * ROUNDS * CHUNK_BYTES;
	GPUWM(gpuwm_region_create(client, &options, &pool));
	gpuwm_region_info(pool, &info);
	snprintf(told->region, sizeof(told->region), "%s", info.id);
	meet(0); /* the region is there */
	meet(0); /* the reader has its slot */
	for (unsigned turn = 0; turn < turns; turn++) {
		bare_turn(stream, turn);
		our_turn(pool, stream, turn);
	}
	meet(0);
	GPUWM(gpuwm_region_close(pool));
}

/* ---- the reader --------------------------------------------------------------------- */

static void bare_answer(CUstream stream, uint64_t turn)
{
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		wait_for(stream, THERE, turn * ROUNDS + i);
		put(stream, BACK, turn * ROUNDS + i);
	}
	meet(1);
}

static void our_answer(struct gpuwm_region *pool, CUstream stream)
{
	struct gpuwm_chunk *chunk;

	meet(1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		GPUWM(gpuwm_chunk_take_in_stream(pool, &told->tokens[i], stream, &chunk));
		GPUWM(gpuwm_chunk_finish_in_stream(chunk, stream));
	}
	meet(1);
}

static void read_all(unsigned turns)
{
	CUstream stream = begin();
	struct gpuwm_client *client;
	struct gpuwm_region_info info;
	struct gpuwm_region *pool;

	GPUWM(gpuwm_connect(NULL, &client));
	meet(1);
	GPUWM(gpuwm_region_open(client, told->region, 0, 0, &pool));
	gpuwm_region_info(pool, &info);
	told->reader = info.slot;
	meet(1);
	for (unsigned turn = 0; turn < turns; turn++) {
		bare_answer(stream, turn);
		our_answer(pool, stream);
	}
	CU(driver.cuStreamSynchronize(stream));
	GPUWM(gpuwm_region_close(pool));
	meet(1);
}

/* ---- this process --------------------------------------------------------------------- */

static pid_t start(void (*fn)(unsigned turns), unsigned turns)
{
	pid_t child = fork();

	if (child < 0)
		DIE("fork: %s", strerror(errno));
	if (child == 0) {
		fn(turns);
		fflush(NULL);
		_exit(0);
	}
	return child;
}

static void end(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || status != 0)
		DIE("a process of the pair failed");
}

static void *shared(size_t bytes)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (address == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	return address;
}

/* gpuwmd's first GPU, asked in a process of its own: this one forks the others. */
static void find_device(unsigned turns)
{
	const struct gpuwm_device *devices;
	struct gpuwm_client *client;
	size_t count;

	(void)turns;
	GPUWM(gpuwm_connect(NULL, &client));
	count = gpuwm_devices(client, &devices);
	for (size_t i = 0; i < count && !told->device[0]; i++) {
		if (devices[i].is_cuda)
			snprintf(told->device, sizeof(told->device), "%s", devices[i].id);
	}
	gpuwm_close(client);
}

int main(int argc, char **argv)
{
	const char *device = NULL;
	uint64_t turns = 50;
	bool check = false;
	pid_t owner, reader;
	double bare, ours;

	flags_read(argc, argv,
		   (const struct flag[]){{.name = "device", .text = &device},
					 {.name = "turns", .number = &turns},
					 {.name = "check", .set = &check},
					 {0}});
	if (turns > TURNS_MAX)
		DIE("at most %d turns", TURNS_MAX);
	told = shared(sizeof(*told));
	words = shared(HOST_BYTES);
	if (device)
		snprintf(told->device, sizeof(told->device), "%s", device);
	else
		end(start(find_device, 0));
	owner = start(own, (unsigned)turns);
	reader = start(read_all, (unsigned)turns);
	end(owner);
	end(reader);
	bare = percentile(told->bare_us, turns, 0.5);
	ours = percentile(told->ours_us, turns, 0.5);
	heading("to another process and back, median of %u turns of %d rounds", (unsigned)turns, ROUNDS);
	result(bare, "us", "bare words");
	result(ours, "us", "chunks of a pool");
	result_at_most(ours / bare, RATIO, "x", "the ratio of the two");
	return check && results_missed() > 0;
}
