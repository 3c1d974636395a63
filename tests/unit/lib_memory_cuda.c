/* GPU memory, on a GPU or on tests/fakecuda: LD_LIBRARY_PATH says which. */
#include "memory/memory.h"
#include "tests/support/any/child.h"
#include "proto/index/digest.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>

#include "tests/support/lib/fake.h"

#ifdef GPUWM_CUDA

#include "memory/cuda.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct memory_device device;
static const struct memory_ops *ops = &memory_cuda;
static const struct cuda_driver *cuda;
static uint64_t bytes;

static void setup(void)
{
	char id[CUDA_ID_BYTES];
	struct error error;

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
	cr_assert(eq(int, cuda_open(&cuda, &error), 0), "%s", error.message);
	cr_assert(eq(int, cuda_id(0, id, &error), 0), "%s", error.message);
	cr_assert(eq(int, memory_device_open(id, &device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->granularity(&device, &bytes, &error), 0));
}

TestSuite(memory_cuda, .init = setup);

static bool context_active(void)
{
	unsigned flags;
	int active = 0;

	cuda->cuDevicePrimaryCtxGetState(device.ordinal, &flags, &active);
	return active;
}

/* A segment of zeros but for its first 8 bytes, exported. */
static struct memory_segment exported(void)
{
	struct memory_segment segment;
	struct error error;
	uint64_t word = 0x1122334455667788;

	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->zero(&device, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->write(&device, segment.address, &word, 8, &error), 0), "%s", error.message);
	ops->leave(&device);
	cr_assert(eq(int, ops->idle(&device, &error), 0), "%s", error.message);
	ops->unmap(&device, &segment);
	cr_assert(eq(int, ops->export(&device, &segment, &error), 0), "%s", error.message);
	return segment;
}

Test(memory_cuda, goes_to_another_with_its_bytes)
{
	struct memory_segment segment = exported(), copy;
	struct error error;
	uint64_t words[2];

	cr_assert(ne(int, fcntl(segment.fd, F_GETFD) & FD_CLOEXEC, 0));
	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, true, &copy, &error), 0), "%s",
		  error.message);
	ops->release(&device, &segment);
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, ops->read(&device, words, copy.address, 16, &error), 0), "%s", error.message);
	ops->leave(&device);
	cr_assert(eq(u64, words[0], 0x1122334455667788));
	cr_assert(eq(u64, words[1], 0));
	ops->release(&device, &copy);
	cr_assert(copy.address == NULL);
}

Test(memory_cuda, digests_as_the_cpu_does)
{
	struct memory_segment segment = exported();
	unsigned char *same = calloc(1, bytes);
	struct memory_span whole;
	struct memory_sum sum;
	struct digest expected;
	uint64_t word = 0x1122334455667788;
	struct error error;

	memcpy(same, &word, 8);
	expected = digest_of(same, bytes);
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_READ, &error), 0));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	whole = (struct memory_span){segment.address, bytes};
	cr_assert(eq(int, memory_digests(&device, &whole, 1, NULL, &sum, &error), 0));
	ops->leave(&device);
	cr_assert(digest_equal(&expected, &sum.digest));
	ops->release(&device, &segment);
	free(same);
}

Test(memory_cuda, refuses_writes_into_memory_that_is_mapped_for_reading)
{
	struct memory_segment segment = exported(), copy;
	struct error error;
	uint64_t word = 1;

	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, false, &copy, &error), 0));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), 0));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, ops->write(&device, copy.address, &word, 8, &error), -EIO));
	ops->leave(&device);
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

Test(memory_cuda, refuses_another_size)
{
	struct memory_segment segment = exported(), copy;
	struct error error;

	cr_assert(eq(int, ops->import(&device, segment.fd, bytes * 2, true, &copy, &error), 0));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), -EBADMSG), "%s", error.message);
	cr_assert(strstr(error.message, "does not hold exactly") != NULL, "%s", error.message);
	ops->release(&device, &copy);
	cr_assert(eq(int, ops->import(&device, segment.fd, bytes + 1, true, &copy, &error), 0));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), -EBADMSG), "%s", error.message);
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

Test(memory_cuda, refuses_what_is_no_memory_of_a_gpu)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), memfd = memfd_create("junk", MFD_CLOEXEC);
	struct memory_segment segment;
	struct error error;

	cr_assert(eq(int, ftruncate(memfd, (off_t)bytes), 0));
	cr_assert(eq(int, ops->import(&device, null, bytes, true, &segment, &error), -EBADMSG));
	cr_assert(eq(int, ops->import(&device, memfd, bytes, true, &segment, &error), -EBADMSG));
	cr_assert(strstr(error.message, "not memory of a GPU") != NULL);
	close(null);
	close(memfd);
}

/* The call's first use ends with this result. The driver's first call reads what is injected. */
static void inject(const char *call, int result)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char failure[96];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip("needs the stand-in for the driver");
	snprintf(failure, sizeof(failure), "%s:1:%d", call, result);
	setenv("FAKECUDA_FAIL", failure, 1);
	setup();
}

static void no_memory_to_import(void)
{
	inject("cuMemImportFromShareableHandle", CUDA_ERROR_OUT_OF_MEMORY);
}

Test(memory_cuda_short, an_import_without_memory_is_no_damage, .init = no_memory_to_import)
{
	struct memory_segment segment = exported(), copy;
	struct error error;

	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, true, &copy, &error), -ENOMEM));
	cr_expect(strstr(error.message, "no memory to import") != NULL, "%s", error.message);
	cr_expect(strstr(error.detail, "RLIMIT_AS") != NULL, "%s", error.detail);
	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, true, &copy, &error), 0));
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

static void driver_fault_at_import(void)
{
	inject("cuMemImportFromShareableHandle", CUDA_ERROR_SYSTEM_NOT_READY);
}

Test(memory_cuda_short, an_import_that_the_driver_fails_is_no_damage, .init = driver_fault_at_import)
{
	struct memory_segment segment = exported(), copy;
	struct error error;

	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, true, &copy, &error), -EIO));
	ops->release(&device, &segment);
}

static void no_memory_to_map(void)
{
	inject("cuMemMap", CUDA_ERROR_OUT_OF_MEMORY);
}

Test(memory_cuda_short, a_map_without_memory_is_no_damage, .init = no_memory_to_map)
{
	struct memory_segment segment;
	struct error error;

	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), -ENOMEM), "%s", error.message);
	ops->release(&device, &segment);
}

Test(memory_cuda, an_import_without_descriptors_is_no_damage)
{
	struct memory_segment segment = exported(), copy;
	struct rlimit limit, none;
	struct error error;
	int r;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 3;
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &none), 0));
	r = ops->import(&device, segment.fd, bytes, true, &copy, &error);
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &limit), 0));
	cr_assert(r == 0 || r == -EMFILE, "%d: %s", r, error.message);
	if (r == 0) /* a driver that needs none */
		ops->release(&device, &copy);
	ops->release(&device, &segment);
}

Test(memory_cuda, refuses_memory_of_another_gpu_than_was_said)
{
	struct memory_segment segment = exported(), copy;
	struct memory_device other = device;
	struct error error;
	char id[CUDA_ID_BYTES];

	if (cuda->device_count < 2)
		cr_skip("there is one GPU only");
	cr_assert(eq(int, cuda_id(1, id, &error), 0));
	cr_assert(eq(int, memory_device_open(id, &other, &error), 0));
	cr_assert(eq(int, ops->import(&other, segment.fd, bytes, true, &copy, &error), -EBADMSG));
	cr_assert(strstr(error.message, id) != NULL, "%s", error.message);
	ops->release(&device, &segment);
}

Test(memory_cuda, says_that_there_is_no_room)
{
	struct memory_segment segment;
	struct error error;

	cr_assert(eq(int, ops->create(&device, UINT64_C(1) << 46, &segment, &error), -ENOSPC), "%s",
		  error.message);
	cr_assert(strstr(error.message, device.id) != NULL);
}

Test(memory_cuda, attaches_without_a_context)
{
	struct memory_segment segment, copy;
	struct error error;

	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0));
	cr_assert(eq(int, ops->export(&device, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->import(&device, segment.fd, bytes, true, &copy, &error), 0));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), 0));
	cr_assert(eq(int, ops->idle(&device, &error), 0));
	cr_assert(context_active() == false);
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

Test(memory_cuda, leaves_the_callers_context_as_it_was)
{
	CUcontext mine, now = NULL;
	struct error error;

	cr_assert(eq(int, cuda->cuCtxGetCurrent(&now), CUDA_SUCCESS));
	cr_assert(now == NULL);
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, cuda->cuCtxGetCurrent(&mine), CUDA_SUCCESS));
	cr_assert(mine != NULL);
	ops->leave(&device);
	cr_assert(eq(int, cuda->cuCtxGetCurrent(&now), CUDA_SUCCESS));
	cr_assert(now == NULL);
	cr_assert(context_active() == false);
}

Test(memory_cuda, keeps_the_context_between_hold_and_unhold)
{
	struct error error;

	cr_assert(eq(int, ops->hold(&device, &error), 0));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	ops->leave(&device);
	cr_assert(context_active());
	ops->unhold(&device);
	cr_assert(context_active() == false);
}

Test(memory_cuda, knows_the_device_of_the_current_context)
{
	char id[DEVICE_BYTES_MAX + 1];
	struct error error;

	cr_assert(eq(int, memory_current_device(id), -ENOENT));
	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, memory_current_device(id), 0));
	cr_assert(eq(str, id, device.id));
	cr_assert(eq(int, ops->idle(&device, &error), 0));
	ops->leave(&device);
}

Test(memory_cuda, finds_a_device_by_either_prefix)
{
	struct memory_device other;
	char mig[2 * DEVICE_BYTES_MAX];
	struct error error;

	snprintf(mig, sizeof(mig), "MIG-%.*s", DEVICE_BYTES_MAX, device.id + 4);
	cr_assert(eq(int, memory_device_open(mig, &other, &error), 0), "%s", error.message);
	cr_assert(eq(int, other.ordinal, device.ordinal));
	cr_assert(eq(int, memory_device_open("GPU-00000000-0000-0000-0000-000000000000", &other, &error),
		     -ENODEV));
	cr_assert(strstr(error.detail, "CUDA_VISIBLE_DEVICES") != NULL);
}

Test(memory_cuda, is_refused_in_a_forked_child)
{
	uint64_t granularity;

	cr_assert(eq(int, IN_CHILD(ops->granularity(&device, &granularity, NULL) == -ENOTSUP ? 0 : 1), 0));
}

#else

Test(memory_cuda, is_not_supported_without_the_header)
{
	struct memory_device device;
	struct error error = {0};

	cr_assert(eq(int, memory_device_open("GPU-00000000-0000-0000-0000-000000000000", &device, &error),
		     -ENOTSUP));
	cr_assert(strstr(error.message, "without cuda.h") != NULL);
}

#endif
