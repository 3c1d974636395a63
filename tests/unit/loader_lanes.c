/* From buffers into the memory of targets, in the background. */
#include "loader/devices/lanes.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error error;

/* Memory that is neither `host` nor a GPU: written at once, through the interface. */
static struct memory_ops plain_ops;

static int plain_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		       struct error *write_error)
{
	if (device->id[0] == 'x')
		return error_set(write_error, -EIO, NULL, "the device is gone");
	memcpy(to, from, bytes);
	return 0;
}

static struct memory_device plain(const char *id)
{
	struct memory_device device = {.ops = &plain_ops};

	plain_ops = memory_host;
	plain_ops.write = plain_write;
	strcpy(device.id, id);
	return device;
}

Test(lanes, write_to_other_memory_at_once)
{
	struct memory_device device = plain("y"), host = {.ops = &memory_host};
	char memory[2][16] = {{0}}, there[2][16] = {{0}};
	void *addresses[] = {memory[0], memory[1]}, *of_host[] = {there[0], there[1]};
	struct copy_target targets[] = {{.device = &host, .addresses = of_host},
					{.device = &device, .addresses = addresses}};
	const struct lane_span spans[] = {{"abcd", 0, 3, 4}, {there[1], 1, 0, 4}};
	struct lanes *lanes;

	cr_assert_eq(lanes_open(targets, 2, 3, &lanes, &error), 0, "%s", error.message);
	memcpy(there[1], "efgh", 4);
	cr_assert_eq(lanes_send(lanes, 0, spans, 2, &error), 0, "%s", error.message);
	cr_assert_arr_eq(there[0], "\0\0\0abcd", 8);
	cr_assert_arr_eq(memory[0], "\0\0\0abcd", 8);
	cr_assert_arr_eq(memory[1], "efgh", 5);
	cr_assert_eq(lanes_wait(lanes, 0, &error), 0);
	cr_assert_eq(lanes_drain(lanes, &error), 0);
	cr_assert_str_eq(lanes_note(lanes), "");
	cr_assert_null(lanes_close(lanes));
	cr_assert_null(lanes_close(NULL));
}

Test(lanes, tell_what_a_device_says)
{
	struct memory_device device = plain("x");
	void *addresses[] = {NULL};
	struct copy_target target = {.device = &device, .addresses = addresses};
	struct lanes *lanes;

	cr_assert_eq(lanes_open(&target, 1, 1, &lanes, &error), 0);
	cr_assert_eq(lanes_send(lanes, 0, &(struct lane_span){"a", 0, 0, 1}, 1, &error), -EIO);
	cr_assert_str_eq(error.message, "the device is gone");
	lanes_close(lanes);
}

#ifdef GPUWM_CUDA

#include "tests/support/any/fd_count.h"
#include "tests/support/any/own_folder.h"
#include "loader/copy/copy.h"

#include <sys/wait.h>
#include <unistd.h>

#define GPUS 3
#define TENSORS 2
#define TENSOR_BYTES MIB(1)
#define SLOTS 2
#define PIECE KIB(256)

/* Memory on GPUs with tensors in it, and a pinned ring. */
static struct machine {
	size_t gpus;
	struct memory_device devices[GPUS];
	struct memory_segment segments[GPUS];
	void *addresses[GPUS][TENSORS];
	struct copy_target targets[GPUS];
	size_t held;
	bool entered;
	struct ring ring;
	struct lanes *lanes;
} m;

static int gpu_make(size_t i)
{
	struct memory_device *device = &m.devices[i];
	char id[DEVICE_BYTES_MAX + 1];
	int r;

	snprintf(id, sizeof(id), "GPU-fa4e0000-0000-4000-8000-%012zx", i);
	m.segments[i].fd = -1;
	r = memory_device_open(id, device, &error);
	if (r == 0)
		r = device->ops->hold(device, &error);
	if (r < 0)
		return r;
	m.held++;
	r = device->ops->create(device, TENSORS * TENSOR_BYTES, &m.segments[i], &error);
	if (r == 0)
		r = device->ops->map(device, &m.segments[i], MEMORY_WRITE, &error);
	for (size_t k = 0; r == 0 && k < TENSORS; k++)
		m.addresses[i][k] = (char *)m.segments[i].address + k * TENSOR_BYTES;
	m.targets[i] = (struct copy_target){
		.device = device, .addresses = m.addresses[i], .segments = &m.segments[i], .segment_count = 1};
	return r;
}

static int machine_make(size_t gpus)
{
	int r = 0;

	m = (struct machine){.gpus = gpus};
	for (size_t i = 0; r == 0 && i < gpus; i++)
		r = gpu_make(i);
	if (r == 0)
		r = m.devices[0].ops->enter(&m.devices[0], &error);
	if (r < 0)
		return r;
	m.entered = true;
	r = ring_make(PIECE, SLOTS, &m.ring, &error);
	if (r < 0)
		return r;
	ring_lock(&m.ring, &m.devices[0]);
	return lanes_open(m.targets, gpus, SLOTS, &m.lanes, &error);
}

static void machine_end(void)
{
	lanes_close(m.lanes);
	ring_free(&m.ring);
	if (m.entered)
		m.devices[0].ops->leave(&m.devices[0]);
	for (size_t i = 0; i < m.held; i++) {
		m.devices[i].ops->release(&m.devices[i], &m.segments[i]);
		m.devices[i].ops->unhold(&m.devices[i]);
	}
}

static uint8_t value_at(uint32_t tensor, uint64_t offset)
{
	return (uint8_t)(offset / 251 + offset + tensor * 97);
}

/* Every tensor in pieces of two spans, each slot written again as soon as it may be. */
static int send_all(void)
{
	struct lane_span spans[2];
	size_t slot = 0;
	int r = 0;

	for (uint32_t tensor = 0; tensor < TENSORS; tensor++)
		for (uint64_t at = 0; r == 0 && at < TENSOR_BYTES; at += PIECE, slot = (slot + 1) % SLOTS) {
			uint8_t *buffer = ring_buffer(&m.ring, slot % m.ring.count);

			r = lanes_wait(m.lanes, slot % m.ring.count, &error);
			for (uint64_t i = 0; r == 0 && i < PIECE; i++)
				buffer[i] = value_at(tensor, at + i);
			spans[0] = (struct lane_span){buffer, tensor, at, 1000};
			spans[1] = (struct lane_span){buffer + 1000, tensor, at + 1000, PIECE - 1000};
			if (r == 0)
				r = lanes_send(m.lanes, slot % m.ring.count, spans, 2, &error);
		}
	return r == 0 ? lanes_drain(m.lanes, &error) : r;
}

/* 0: all GPUs hold everything; -EBADMSG: another byte; what reading said. */
static int look(void)
{
	static uint8_t back[TENSOR_BYTES];

	for (size_t gpu = 0; gpu < m.gpus; gpu++)
		for (uint32_t tensor = 0; tensor < TENSORS; tensor++) {
			const struct memory_device *device = &m.devices[gpu];
			int r = device->ops->enter(device, &error);

			if (r < 0)
				return r;
			r = device->ops->read(device, back, m.addresses[gpu][tensor], TENSOR_BYTES, &error);
			device->ops->leave(device);
			if (r < 0)
				return r;
			for (uint64_t i = 0; i < TENSOR_BYTES; i++)
				if (back[i] != value_at(tensor, i))
					return error_set(&error, -EBADMSG, NULL, "GPU %zu, tensor %u, byte %zu",
							 gpu, tensor, (size_t)i);
		}
	return 0;
}

static void needs_stand_in(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char run[32];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs the stand-in for the driver");
	snprintf(run, sizeof(run), "lanes%d", getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	setenv("FAKECUDA_DEVICES", "3", 1);
}

static void carried_to(size_t gpus)
{
	cr_assert_eq(machine_make(gpus), 0, "%s", error.message);
	cr_assert_eq(lanes_wait(m.lanes, 1, &error), 0, "a slot that was never sent");
	cr_assert_eq(send_all(), 0, "%s", error.message);
	cr_assert_eq(look(), 0, "%s", error.message);
}

Test(lanes, carry_everything_to_a_gpu)
{
	needs_stand_in();
	carried_to(1);
	cr_assert_str_eq(lanes_note(m.lanes), "");
	machine_end();
}

static unsigned calls_of(const char *function)
{
	FILE *log = fopen(getenv("FAKECUDA_LOG"), "re");
	unsigned count = 0;
	char line[128];

	cr_assert_not_null(log);
	while (fgets(line, sizeof(line), log))
		count += strstr(line, function) != NULL;
	fclose(log);
	return count;
}

/* Each piece of two spans goes to `from_host` of the three GPUs from the host. */
static void replicas(const char *peers, unsigned from_host)
{
	char path[64];

	needs_stand_in();
	snprintf(path, sizeof(path), "%s/lanes", own_folder());
	setenv("FAKECUDA_LOG", path, 1);
	setenv("FAKECUDA_PEERS", peers, 1);
	carried_to(3);
	cr_assert_eq(calls_of("cuMemcpyHtoDAsync"), 2 * from_host * TENSORS * TENSOR_BYTES / PIECE);
	cr_assert_eq(unlink(path), 0);
}

Test(lanes, pass_on_what_the_first_gpu_got)
{
	replicas("1", 1);
	cr_assert(strstr(lanes_note(m.lanes), "001 gets its bytes over a peer copy from GPU-"), "%s",
		  lanes_note(m.lanes));
	cr_assert(strstr(lanes_note(m.lanes), "002 gets its bytes over a peer copy from GPU-"), "%s",
		  lanes_note(m.lanes));
	machine_end();
}

Test(lanes, go_to_every_gpu_from_the_host_where_none_are_peers)
{
	replicas("0", 3);
	cr_assert(
		strstr(lanes_note(m.lanes), "001 gets its bytes from the host: the driver says that it is no"),
		"%s", lanes_note(m.lanes));
	machine_end();
}

Test(lanes, trust_no_peer_copy_that_moves_nothing)
{
	replicas("2", 3);
	cr_assert(strstr(lanes_note(m.lanes), "from the host: a first peer copy changed the bytes"), "%s",
		  lanes_note(m.lanes));
	machine_end();
}

Test(lanes, go_from_the_host_where_a_first_peer_copy_fails)
{
	setenv("FAKECUDA_FAIL", "cuMemcpyDtoDAsync_v2:1:999", 1);
	replicas("1", 2);
	cr_assert(strstr(lanes_note(m.lanes), "001 gets its bytes from the host: a first peer copy: "), "%s",
		  lanes_note(m.lanes));
	machine_end();
}

/* What is not waited for is not there yet: a stand-in that hid this would prove nothing. */
Test(lanes, copy_in_the_background)
{
	struct lane_span span = {NULL, 0, 0, PIECE};
	uint8_t back = 0;

	needs_stand_in();
	cr_assert_eq(machine_make(1), 0, "%s", error.message);
	span.from = ring_buffer(&m.ring, 0);
	memset(ring_buffer(&m.ring, 0), 1, PIECE);
	cr_assert_eq(lanes_send(m.lanes, 0, &span, 1, &error), 0, "%s", error.message);
	cr_assert_eq(m.devices[0].ops->read(&m.devices[0], &back, m.addresses[0][0], 1, &error), 0);
	cr_assert_eq(back, 0xa5);
	memset(ring_buffer(&m.ring, 0), 2, PIECE);
	cr_assert_eq(lanes_drain(m.lanes, &error), 0, "%s", error.message);
	cr_assert_eq(m.devices[0].ops->read(&m.devices[0], &back, m.addresses[0][0], 1, &error), 0);
	cr_assert_eq(back, 2);
	machine_end();
}

Test(lanes, tell_that_memory_went_away_under_them)
{
	struct lane_span span = {NULL, 0, 0, PIECE};

	needs_stand_in();
	cr_assert_eq(machine_make(1), 0, "%s", error.message);
	span.from = ring_buffer(&m.ring, 0);
	cr_assert_eq(lanes_send(m.lanes, 0, &span, 1, &error), 0, "%s", error.message);
	m.devices[0].ops->release(&m.devices[0], &m.segments[0]);
	cr_assert_eq(lanes_wait(m.lanes, 0, &error), -EIO);
	cr_assert(strstr(error.message, m.devices[0].id) && strstr(error.message, "ILLEGAL_ADDRESS"), "%s",
		  error.message);
	machine_end();
}

/* In a child, whose driver fails at call n: 0 everything held, 1 a clean error, 2 something is left. */
static int with_failure(size_t gpus, unsigned n)
{
	int before = fd_count(), r;
	char failure[32];

	snprintf(failure, sizeof(failure), "*:%u:999", n);
	setenv("FAKECUDA_FAIL", failure, 1);
	r = machine_make(gpus);
	if (r == 0)
		r = send_all();
	if (r == 0)
		r = look();
	machine_end();
	/* Where all went well the failure was one of undoing. */
	if (r < 0 && (fd_count() != before || !error.message[0] || r == -EBADMSG))
		return 2;
	return r < 0;
}

/* Runs with each call failing in turn: how many there are. */
static unsigned each_call_fails(size_t gpus)
{
	char path[64];
	unsigned n = 0;
	bool happened = true;

	snprintf(path, sizeof(path), "%s/lanes", own_folder());
	setenv("FAKECUDA_LOG", path, 1);
	while (happened) {
		char line[128];
		FILE *log;
		pid_t child = fork();
		int status;

		n++;
		if (child == 0)
			_exit(with_failure(gpus, n));
		cr_assert(waitpid(child, &status, 0) == child);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2, "call %u: %#x", n, status);
		log = fopen(path, "re");
		for (happened = false; log && fgets(line, sizeof(line), log);)
			happened |= strstr(line, " 999\n") != NULL;
		cr_assert(log && fclose(log) == 0 && unlink(path) == 0);
		cr_assert(happened || WEXITSTATUS(status) == 0);
	}
	return n - 1;
}

Test(lanes, each_call_to_one_gpu_may_fail, .timeout = 300)
{
	needs_stand_in();
	cr_assert_gt(each_call_fails(1), 50);
}

Test(lanes, each_call_to_two_gpus_may_fail, .timeout = 300)
{
	needs_stand_in();
	cr_assert_gt(each_call_fails(2), 80);
}

#endif
