/* Memory that stays writable: on host, and on tests/fakecuda or a GPU where GPUWM_TEST_BACKEND says so. */
#include "memory/memory.h"
#include "tests/support/any/child.h"
#include "tests/support/any/reach.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/lib/fake.h"

#ifdef GPUWM_CUDA
#include "memory/cuda.h"
#endif

static struct memory_device device;
static const struct memory_ops *ops;
static uint64_t bytes;
static struct error error;

static bool on_host(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return !backend || strcmp(backend, "host") == 0;
}

static void find_device(char id[DEVICE_BYTES_MAX + 1])
{
	strcpy(id, "host");
#ifdef GPUWM_CUDA
	if (!on_host())
		cr_assert(eq(int, cuda_id(0, id, &error), 0), "%s", error.message);
#endif
}

static void setup(void)
{
	char id[DEVICE_BYTES_MAX + 1];

	find_device(id);
	cr_assert(eq(int, memory_device_open(id, &device, &error), 0), "%s", error.message);
	ops = device.ops;
	cr_assert(eq(int, ops->granularity(&device, &bytes, &error), 0));
}

TestSuite(memory_shared, .init = setup);

/* The test is about the host's memory. */
static void host_only(void)
{
	if (!on_host())
		cr_skip("it is about host memory");
}

/* New memory whose first word is this. */
static struct memory_segment shared(uint64_t word)
{
	struct memory_segment segment;

	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->write(&device, segment.address, &word, 8, &error), 0), "%s", error.message);
	ops->leave(&device);
	ops->unmap(&device, &segment);
	cr_assert(eq(int, ops->share(&device, &segment, &error), 0), "%s", error.message);
	return segment;
}

static struct memory_segment mapped(int fd, enum memory_access access)
{
	struct memory_segment segment;

	cr_assert(eq(int, ops->map_shared(&device, fd, bytes, access, &segment, &error), 0), "%s",
		  error.message);
	cr_assert(eq(int, segment.fd, -1));
	return segment;
}

static void refused(int fd, uint64_t size, enum memory_access access, int code, const char *words)
{
	struct memory_segment segment;

	cr_assert(eq(int, ops->map_shared(&device, fd, size, access, &segment, &error), code), "%s",
		  error.message);
	cr_assert(strstr(error.message, words) != NULL, "%s", error.message);
}

static uint64_t word_at(const void *address)
{
	uint64_t word;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	cr_assert(eq(int, ops->read(&device, &word, address, 8, &error), 0), "%s", error.message);
	ops->leave(&device);
	return word;
}

static int put_word(void *address, uint64_t word)
{
	int r;

	cr_assert(eq(int, ops->enter(&device, &error), 0));
	r = ops->write(&device, address, &word, 8, &error);
	ops->leave(&device);
	return r;
}

Test(memory_shared, what_one_writes_the_other_reads)
{
	struct memory_segment segment = shared(5), writer, reader;
	int fds = fd_count();

	writer = mapped(segment.fd, MEMORY_WRITE);
	reader = mapped(segment.fd, MEMORY_READ);
	cr_assert(ne(ptr, writer.address, reader.address));
	cr_assert(eq(u64, word_at(reader.address), 5));
	cr_assert(eq(int, put_word(writer.address, 6), 0));
	cr_assert(eq(u64, word_at(reader.address), 6));
	ops->unmap_shared(&device, &writer);
	cr_assert(eq(u64, word_at(reader.address), 6));
	ops->unmap_shared(&device, &reader);
	cr_assert(reader.address == NULL && writer.address == NULL);
	cr_assert(eq(int, fd_count(), fds));
	ops->release(&device, &segment);
}

Test(memory_shared, stays_when_its_maker_and_the_descriptor_are_gone)
{
	struct memory_segment segment = shared(5), reader;

	reader = mapped(segment.fd, MEMORY_READ);
	ops->release(&device, &segment);
	cr_assert(eq(u64, word_at(reader.address), 5));
	ops->unmap_shared(&device, &reader);
}

Test(memory_shared, is_not_written_where_it_is_mapped_for_reading)
{
	struct memory_segment segment = shared(5), reader;

	reader = mapped(segment.fd, MEMORY_READ);
	if (on_host())
		cr_assert(can_read(reader.address) && !can_write(reader.address));
	else
		cr_assert(eq(int, put_word(reader.address, 6), -EIO));
	ops->unmap_shared(&device, &reader);
	ops->release(&device, &segment);
}

Test(memory_shared, refuses_another_size)
{
	struct memory_segment segment = shared(5);
	int fds = fd_count();

	refused(segment.fd, bytes * 2, MEMORY_READ, -EBADMSG, "bytes");
	refused(segment.fd, bytes + 1, MEMORY_WRITE, -EBADMSG, "bytes");
	refused(segment.fd, bytes / 2, MEMORY_WRITE, -EBADMSG, "bytes");
	cr_assert(eq(int, fd_count(), fds));
	ops->release(&device, &segment);
}

Test(memory_shared, refuses_what_is_no_memory)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	refused(null, bytes, MEMORY_READ, -EBADMSG, on_host() ? "is not a memfd" : "is not memory of a GPU");
	close(null);
}

Test(memory_shared, has_a_size_that_nobody_changes_and_a_mode_of_its_owners_alone)
{
	struct memory_segment segment;
	struct stat st;

	host_only();
	segment = shared(5);
	cr_assert(eq(int, fcntl(segment.fd, F_GET_SEALS), F_SEAL_GROW | F_SEAL_SHRINK));
	cr_assert(eq(int, ftruncate(segment.fd, 0), -1));
	cr_assert(eq(int, fstat(segment.fd, &st), 0));
	cr_assert(eq(uint, st.st_mode & 07777, 0600));
	ops->release(&device, &segment);
}

Test(memory_shared, refuses_a_memfd_whose_size_can_change)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	host_only();
	cr_assert(eq(int, ftruncate(fd, (off_t)bytes), 0));
	refused(fd, bytes, MEMORY_READ, -EBADMSG, "its size can still be changed");
	close(fd);
}

static int mapping_count(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	while (fgets(line, sizeof(line), file))
		count++;
	fclose(file);
	return count;
}

/* The writer's mapping goes on; nobody gets another one, and all others read what it writes. */
Test(memory_shared, has_one_writer_after_its_seal)
{
	struct memory_segment segment, writer, reader;
	int mappings;

	host_only();
	segment = shared(5);
	writer = mapped(segment.fd, MEMORY_WRITE);
	cr_assert(eq(int, fcntl(segment.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0));
	mappings = mapping_count();
	refused(segment.fd, bytes, MEMORY_WRITE, -EPERM, "mapping");
	cr_assert(eq(int, mapping_count(), mappings));
	cr_assert(strstr(error.detail, "map it for reading") != NULL, "%s", error.detail);
	reader = mapped(segment.fd, MEMORY_READ);
	*(uint64_t *)writer.address = 9;
	cr_assert(eq(u64, word_at(reader.address), 9));
	ops->unmap_shared(&device, &reader);
	ops->unmap_shared(&device, &writer);
	ops->release(&device, &segment);
}

Test(memory_shared, is_mapped_for_reading_from_a_descriptor_for_reading)
{
	struct memory_segment segment, reader;
	char path[64];
	int fd;

	host_only();
	segment = shared(5);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", segment.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(ge(int, fd, 0));
	refused(fd, bytes, MEMORY_WRITE, -EACCES, "mapping");
	reader = mapped(fd, MEMORY_READ);
	close(fd);
	cr_assert(eq(u64, word_at(reader.address), 5));
	cr_assert(eq(int, mprotect(reader.address, bytes, PROT_READ | PROT_WRITE), -1));
	ops->unmap_shared(&device, &reader);
	ops->release(&device, &segment);
}

Test(memory_shared, is_not_there_in_a_forked_child)
{
	struct memory_segment segment = shared(5), reader = mapped(segment.fd, MEMORY_READ);

	cr_assert(eq(int, IN_CHILD(can_read(reader.address)), 0));
	ops->unmap_shared(&device, &reader);
	ops->release(&device, &segment);
}

Test(memory_shared, a_map_that_fails_leaves_nothing)
{
	struct memory_segment segment = shared(5), reader;
	struct rlimit limit, none;
	int fds = fd_count();

	host_only();
	cr_assert(eq(int, getrlimit(RLIMIT_AS, &limit), 0));
	none = limit;
	none.rlim_cur = 1;
	cr_assert(eq(int, setrlimit(RLIMIT_AS, &none), 0));
	cr_assert(eq(int, ops->map_shared(&device, segment.fd, bytes, MEMORY_READ, &reader, &error), -ENOMEM));
	cr_assert(eq(int, setrlimit(RLIMIT_AS, &limit), 0));
	cr_assert(strstr(error.detail, "RLIMIT_AS") != NULL, "%s", error.detail);
	cr_assert(eq(int, fd_count(), fds));
	ops->release(&device, &segment);
}

/* ---- what the driver fails ------------------------------------------------------ */

static void inject(const char *failures)
{
	if (on_host() || strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("needs the stand-in for the driver");
	setenv("FAKECUDA_FAIL", failures, 1);
	setup();
}

static void no_map(void)
{
	inject("cuMemImportFromShareableHandle:1:2,cuMemAddressReserve:2:2,cuMemMap:2:999,cuMemSetAccess:2:999");
}

/* Each call in its turn. */
Test(memory_shared_short, a_map_that_the_driver_fails_leaves_nothing, .init = no_map)
{
	const int codes[] = {-ENOMEM, -ENOMEM, -EIO, -EIO};
	struct memory_segment segment = shared(5), reader;
	int fds = fd_count();

	for (int i = 0; i < 4; i++) {
		cr_assert(eq(int, ops->map_shared(&device, segment.fd, bytes, MEMORY_READ, &reader, &error),
			     codes[i]),
			  "call %d: %s", i, error.message);
		cr_assert(eq(int, fd_count(), fds));
	}
	reader = mapped(segment.fd, MEMORY_READ);
	cr_assert(eq(u64, word_at(reader.address), 5));
	ops->unmap_shared(&device, &reader);
	ops->release(&device, &segment);
}

static void no_export(void)
{
	inject("cuMemExportToShareableHandle:1:999");
}

Test(memory_shared_short, memory_that_can_not_be_exported_is_not_shared, .init = no_export)
{
	struct memory_segment segment;

	cr_assert(eq(int, ops->create(&device, bytes, &segment, &error), 0));
	cr_assert(eq(int, ops->share(&device, &segment, &error), -EIO));
	cr_assert(eq(int, segment.fd, -1));
	cr_assert(eq(int, ops->share(&device, &segment, &error), 0), "%s", error.message);
	ops->release(&device, &segment);
}
