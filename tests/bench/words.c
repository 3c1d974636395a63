/* Words that streams of two processes write and wait for: bare calls only, no gpuwmd.
 *
 *   words [--device UUID] [--rounds N] [--check]
 *
 * Round trips between two processes, with words in registered host memory (a memfd that both map) and in memory of the GPU that both
 * map, each also with CUDA_DEVICE_MAX_CONNECTIONS=1. Then how soon a stream that waits goes on, while the queues of both processes
 * are full: after a plain store by this process, which makes no call of the driver; and after a write by another stream of the
 * process whose stream waits.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/report.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ROUNDS_MAX 10000
#define WARM_ROUNDS 200
#define AHEAD 100 /* rounds that are queued before the first begins: less than a queue takes */
#define RELEASES 10
#define FILL_MAX 20000 /* operations; a real queue is full long before */
#define STILL_US 200000.0 /* a queue that takes nothing for so long is full */
#define GIVE_UP_US 2e6
#define HOST_BYTES 4096

/* Of a kind of memory. Each has a cache line of its own. */
enum word { THERE, BACK, GATE, WORDS };
#define WORD_BYTES 128

/* Of the host's memory only. */
#define HOLD(side) (8 + 2 * (unsigned)(side)) /* what the side's stream waits for */
#define PASSED(side) (9 + 2 * (unsigned)(side)) /* what it writes then */
#define FILLED(side) (12 + (unsigned)(side)) /* what its queue is filled with */

enum side { PING, PONG };
enum release { BY_STORE, BY_STREAM };

/* What the processes tell each other besides words. */
struct told {
	_Atomic unsigned arrived[64]; /* barriers, in the order of the program */
	_Atomic unsigned queued[2];
	_Atomic unsigned rescue, full[2]; /* full: what the queue took, once it is full */
	double trip_us[ROUNDS_MAX], ahead_us;
	double store_us[RELEASES], stream_us[RELEASES];
};

struct run {
	const char *device, *connections;
	bool on_gpu;
	size_t rounds;
	int words, ends[2];
};

static struct told *told;

/* ---- one process ---------------------------------------------------------------- */

struct process {
	enum side side;
	CUstream stream, other;
	char *host;
	CUdeviceptr words; /* of the placement */
	unsigned next_barrier;
};

static void meet(struct process *process)
{
	_Atomic unsigned *arrived = &told->arrived[process->next_barrier++];
	double begin = now_us();

	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < 2)
		if (now_us() - begin > 60e6)
			DIE("the other process does not come");
}

static CUdeviceptr host_word(const struct process *process, unsigned number)
{
	return (CUdeviceptr)process->host + number * WORD_BYTES;
}

static CUdeviceptr word(const struct process *process, enum word number)
{
	return process->words + number * WORD_BYTES;
}

static _Atomic uint64_t *cpu_word(char *host, unsigned number)
{
	return (_Atomic uint64_t *)(host + number * WORD_BYTES);
}

static void put(CUstream stream, CUdeviceptr at, uint64_t value)
{
	CU(driver.cuStreamWriteValue64_v2(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

static void wait_for(CUstream stream, CUdeviceptr at, uint64_t value)
{
	CU(driver.cuStreamWaitValue64_v2(stream, at, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static char *map_host(int fd)
{
	char *host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (host == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	return host;
}

static void send_fd(int sock, int fd)
{
	int r = packet_send(sock, "m", 1, &fd, 1);

	if (r < 0)
		DIE("sending a descriptor: %s", strerror(-r));
}

static int receive_fd(int sock)
{
	static uint8_t buffer[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = buffer};
	struct pollfd ready = {.fd = sock, .events = POLLIN};
	int fd;

	if (poll(&ready, 1, 60000) != 1 || packet_receive(sock, true, &packet) != 1 ||
	    packet_take_fd(&packet, 0, &fd) < 0)
		DIE("no descriptor came");
	return fd;
}

#define GPU_BYTES ((size_t)2 << 20)

/* One makes the memory, the other one gets its descriptor. */
static CUdeviceptr map_gpu(enum side side, int sock)
{
	CUmemAllocationProp properties = driver_properties();
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int fd;

	if (side == PING) {
		CU(driver.cuMemCreate(&handle, GPU_BYTES, &properties, 0));
		CU(driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						       0));
		send_fd(sock, fd);
	} else {
		fd = receive_fd(sock);
		CU(driver.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	}
	CU(driver.cuMemAddressReserve(&address, GPU_BYTES, 0, 0, 0));
	CU(driver.cuMemMap(address, GPU_BYTES, 0, handle, 0));
	CU(driver.cuMemSetAccess(address, GPU_BYTES, &rights, 1));
	if (side == PING) {
		CU(driver.cuMemsetD8_v2(address, 0, GPU_BYTES));
		CU(driver.cuCtxSynchronize());
	}
	return address;
}

static struct process process_begin(const struct run *run, enum side side)
{
	struct process process = {.side = side};
	CUdeviceptr host;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (run->connections)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", run->connections, 1);
	driver_open(run->device);
	driver_context();
	process.host = map_host(run->words);
	CU(driver.cuMemHostRegister_v2(process.host, HOST_BYTES,
				       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	CU(driver.cuMemHostGetDevicePointer_v2(&host, process.host, 0));
	if (host != (CUdeviceptr)process.host)
		DIE("host memory has another address on the GPU");
	process.words = run->on_gpu ? map_gpu(side, run->ends[side]) : host;
	CU(driver.cuStreamCreate(&process.stream, CU_STREAM_NON_BLOCKING));
	CU(driver.cuStreamCreate(&process.other, CU_STREAM_NON_BLOCKING));
	meet(&process);
	return process;
}

/* ---- round trips ---------------------------------------------------------------- */

/* Queues the other side's part of rounds `first` to `last`. */
static void answer(struct process *process, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++) {
		wait_for(process->stream, word(process, THERE), i);
		put(process->stream, word(process, BACK), i);
	}
}

/* From the call that queues the write until the stream is seen to have passed the wait. */
static double round_trip_us(struct process *process, size_t round)
{
	double begin = now_us();
	CUresult result;

	put(process->stream, word(process, THERE), round);
	wait_for(process->stream, word(process, BACK), round);
	while ((result = driver.cuStreamQuery(process->stream)) == CUDA_ERROR_NOT_READY)
		;
	CU(result);
	return now_us() - begin;
}

/* All is queued, and then begins. */
static double ahead_us(struct process *process, size_t first)
{
	double begin;

	wait_for(process->stream, host_word(process, GATE), 1);
	for (size_t i = first; i < first + AHEAD; i++) {
		put(process->stream, word(process, THERE), i);
		wait_for(process->stream, word(process, BACK), i);
	}
	begin = now_us();
	atomic_store(cpu_word(process->host, GATE), 1);
	CU(driver.cuStreamSynchronize(process->stream));
	return (now_us() - begin) / AHEAD;
}

static void trips(const struct run *run, enum side side)
{
	struct process process = process_begin(run, side);
	const size_t all = WARM_ROUNDS + run->rounds;

	if (side == PONG) {
		answer(&process, 1, all);
		CU(driver.cuStreamSynchronize(process.stream));
		answer(&process, all + 1, all + AHEAD);
		meet(&process);
		CU(driver.cuStreamSynchronize(process.stream));
	} else {
		for (size_t i = 1; i <= all; i++) {
			double us = round_trip_us(&process, i);

			if (i > WARM_ROUNDS)
				told->trip_us[i - WARM_ROUNDS - 1] = us;
		}
		meet(&process);
		told->ahead_us = ahead_us(&process, all + 1);
	}
	meet(&process);
}

/* ---- releases ------------------------------------------------------------------- */

static void *fill(void *data)
{
	struct process *process = data;

	driver_context();
	for (unsigned i = 1; i <= FILL_MAX && !atomic_load(&told->rescue); i++) {
		put(process->stream, host_word(process, FILLED(process->side)), i);
		atomic_store(&told->queued[process->side], i);
	}
	return NULL;
}

/* Waits until the queue takes nothing more. Returns how many operations it has taken. */
static unsigned until_full(enum side side)
{
	unsigned seen = 0, now;
	double since = now_us();

	while (now_us() - since < STILL_US) {
		now = atomic_load(&told->queued[side]);
		if (now != seen)
			since = now_us();
		seen = now;
		usleep(1000);
	}
	return seen;
}

/* A stream that waits, and as much behind it as its queue takes. */
static void hold(const struct run *run, enum side side)
{
	struct process process = process_begin(run, side);
	pthread_t filler;

	wait_for(process.stream, host_word(&process, HOLD(side)), 1);
	put(process.stream, host_word(&process, PASSED(side)), 1);
	if (pthread_create(&filler, NULL, fill, &process) != 0)
		DIE("no thread");
	atomic_store(&told->full[side], until_full(side));
	while (!atomic_load(&told->rescue))
		usleep(100);
	if (atomic_load(&told->rescue) == 1 + BY_STREAM)
		put(process.other, host_word(&process, HOLD(side)), 1);
	pthread_join(filler, NULL);
	CU(driver.cuStreamSynchronize(process.stream));
	CU(driver.cuStreamSynchronize(process.other));
	meet(&process);
}

/* ---- this process, without the driver --------------------------------------------- */

static pid_t start(const struct run *run, enum side side, void (*fn)(const struct run *run, enum side side))
{
	pid_t child = fork();

	if (child < 0)
		DIE("fork: %s", strerror(errno));
	if (child == 0) {
		fn(run, side);
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

static void prepare(struct run *run)
{
	memset(told->arrived, 0, sizeof(told->arrived));
	memset(told->queued, 0, sizeof(told->queued));
	memset(told->full, 0, sizeof(told->full));
	atomic_store(&told->rescue, 0);
	run->words = memfd_create("words", MFD_CLOEXEC);
	if (run->words < 0 || ftruncate(run->words, HOST_BYTES) < 0)
		DIE("no memfd: %s", strerror(errno));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, run->ends) < 0)
		DIE("socketpair: %s", strerror(errno));
}

static void finish(struct run *run)
{
	close(run->words);
	close(run->ends[0]);
	close(run->ends[1]);
}

static void measure_trips(struct run run)
{
	pid_t children[2];

	prepare(&run);
	for (int side = 0; side < 2; side++)
		children[side] = start(&run, side, trips);
	end(children[PING]);
	end(children[PONG]);
	finish(&run);
	heading("words in %s, CUDA_DEVICE_MAX_CONNECTIONS %s", run.on_gpu ? "GPU memory" : "host memory",
		run.connections ? run.connections : "unset");
	result(percentile(told->trip_us, run.rounds, 0.5), "us", "round trip, p50 of %zu", run.rounds);
	result(percentile(told->trip_us, run.rounds, 0.99), "us", "round trip, p99");
	result(told->ahead_us, "us", "round trip, mean of %d that were queued ahead", AHEAD);
}

/* Returns the time until the side's stream has passed, or a negative number if it did not. */
static double until_passed(char *host, enum side side, double begin)
{
	while (atomic_load(cpu_word(host, PASSED(side))) == 0)
		if (now_us() - begin > GIVE_UP_US)
			return -1;
	return now_us() - begin;
}

static void wait_until_full(void)
{
	double begin = now_us();

	while (!atomic_load(&told->full[PING]) || !atomic_load(&told->full[PONG])) {
		if (now_us() - begin > 60e6)
			DIE("the queues were not filled within 60 s");
		usleep(1000);
	}
}

/* If the stream could not help itself, a store does, so that the processes end. */
static double release_once(struct run run, enum release release)
{
	pid_t children[2];
	double begin, us;
	char *host;

	prepare(&run);
	host = map_host(run.words);
	for (int side = 0; side < 2; side++)
		children[side] = start(&run, side, hold);
	wait_until_full();
	begin = now_us();
	if (release == BY_STORE)
		atomic_store(cpu_word(host, HOLD(PING)), 1);
	else
		atomic_store(&told->rescue, 1 + BY_STREAM);
	us = until_passed(host, PING, begin);
	atomic_store(&told->rescue, 1 + release);
	atomic_store(cpu_word(host, HOLD(PING)), 1);
	atomic_store(cpu_word(host, HOLD(PONG)), 1);
	end(children[PING]);
	end(children[PONG]);
	munmap(host, HOST_BYTES);
	finish(&run);
	return us;
}

static void measure_releases(struct run run)
{
	unsigned never[2] = {0};

	for (int i = 0; i < RELEASES; i++) {
		told->store_us[i] = release_once(run, BY_STORE);
		told->stream_us[i] = release_once(run, BY_STREAM);
		never[BY_STORE] += told->store_us[i] < 0;
		never[BY_STREAM] += told->stream_us[i] < 0;
	}
	heading("a stream that waits, both queues full (%u and %u writes), CUDA_DEVICE_MAX_CONNECTIONS %s",
		told->full[PING], told->full[PONG], run.connections ? run.connections : "unset");
	result(percentile(told->store_us, RELEASES, 0.5), "us", "goes on after a store by the CPU, p50");
	result(percentile(told->store_us, RELEASES, 1), "us", "goes on after a store by the CPU, the slowest");
	result_at_most(never[BY_STORE], 0, "of 10", "did not go on within %.0f s", GIVE_UP_US / 1e6);
	result(percentile(told->stream_us, RELEASES, 0.5), "us", "goes on after another stream's write, p50");
	result(never[BY_STREAM], "of 10", "did not go on within %.0f s", GIVE_UP_US / 1e6);
}

int main(int argc, char **argv)
{
	static const char *const connections[] = {NULL, "1"};
	struct run run = {.rounds = 2000};
	uint64_t rounds = run.rounds;
	bool check = false;

	flags_read(argc, argv,
		   (const struct flag[]){{.name = "device", .text = &run.device},
					 {.name = "rounds", .number = &rounds},
					 {.name = "check", .set = &check},
					 {0}});
	run.rounds = rounds;
	if (rounds > ROUNDS_MAX)
		DIE("at most %d rounds", ROUNDS_MAX);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		run.connections = connections[i];
		for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
			run.on_gpu = on_gpu;
			measure_trips(run);
		}
		run.on_gpu = false;
		measure_releases(run);
	}
	return check && results_missed() > 0;
}
