/* Who opens a source's files for writing is seen, though no time of the files changes. */
#include "../../loader/copy/copy.h"
#include "tests/support/loader/opened.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ONE "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static const char *path;

static void begin(void)
{
	source_setup();
	path = in_folder("model.safetensors");
	write_safetensors(path, ONE, 4);
}

TestSuite(lease, .init = begin, .fini = source_teardown);

static int open_source(void)
{
	char *paths[] = {folder};
	const struct roots roots = {.paths = paths, .count = 1};
	int r;

	memset(&error, 0, sizeof(error));
	r = source_open(folder, &(struct load_choice){0}, &roots, &source, &error);
	return r < 0 ? r : source_read_extras(&source, &roots, &error);
}

/* The open does not wait until the lease is given up. */
static void write_opens(void)
{
	cr_assert_lt(open(path, O_RDWR | O_NONBLOCK), 0);
	cr_assert_eq(errno, EWOULDBLOCK);
}

Test(lease, a_file_that_is_open_for_writing_is_refused)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	cr_assert_eq(open_source(), -EBUSY);
	cr_assert(strstr(error.message, "model.safetensors is open for writing, or mapped for writing"), "%s",
		  error.message);
	cr_assert(strstr(error.detail, "load it when nobody writes it"), "%s", error.detail);
	close(fd);
	cr_assert_eq(open_source(), 0, "%s", error.message);
	cr_assert_str_eq(source.notes[0], "");
}

Test(lease, a_file_that_is_mapped_for_writing_is_refused)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *address = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	cr_assert_neq(address, MAP_FAILED);
	close(fd);
	cr_assert_eq(open_source(), -EBUSY);
	munmap(address, 4);
	cr_assert_eq(open_source(), 0, "%s", error.message);
}

Test(lease, who_opens_it_for_writing_is_seen_and_need_not_write)
{
	cr_assert_eq(open_source(), 0, "%s", error.message);
	cr_assert_eq(source_check_leases(&source, &error), 0);
	close(open(path, O_RDONLY | O_CLOEXEC));
	cr_assert_eq(source_check_leases(&source, &error), 0, "a reader is none");
	write_opens();
	cr_assert_eq(source_check_leases(&source, &error), -EIO);
	cr_assert(strstr(error.message, "was opened for writing while it was read"), "%s", error.message);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), -EIO);
}

Test(lease, a_writer_need_not_wait_when_the_files_are_read)
{
	int fd;

	cr_assert_eq(open_source(), 0, "%s", error.message);
	source_give_back_leases(&source);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	cr_assert_geq(fd, 0, "%s", strerror(errno));
	close(fd);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), 0, "%s", error.message);
}

static int write_meanwhile(uint64_t bytes, void *data)
{
	bool *wrote = data;

	(void)bytes;
	if (!*wrote)
		write_opens();
	*wrote = true;
	return 0;
}

/* The writer waits for the copy, which ends then, and not when all is copied. */
Test(lease, a_copy_ends_when_somebody_opens_a_file_for_writing)
{
	char byte[4];
	void *places[] = {byte};
	bool wrote = false;
	const struct copy_target target = {.addresses = places};
	const struct copy copy = {.source = &source,
				  .targets = &target,
				  .target_count = 1,
				  .progress = write_meanwhile,
				  .user_data = &wrote};
	struct copy_report report;
	struct digest digest;

	cr_assert_eq(open_source(), 0, "%s", error.message);
	cr_assert_eq(copy_run(&copy, &digest, &report, &error), -EIO);
	cr_assert(strstr(error.message, "was opened for writing while it was read"), "%s", error.message);
}

Test(lease, a_small_file_that_is_open_for_writing_is_left_out_by_name)
{
	int fd;

	write_bytes(in_folder("config.json"), "{}", 2);
	fd = open(in_folder("config.json"), O_WRONLY | O_CLOEXEC);
	cr_assert_eq(open_source(), 0, "%s", error.message);
	cr_assert_eq(source.extra_count, 0);
	cr_assert(strstr(source.left[0], "config.json") && strstr(source.left[0], "open for writing"), "%s",
		  source.left[0]);
	close(fd);
}

/* The kernel gives leases to the owner and to CAP_LEASE only. */
Test(lease, where_there_is_none_a_note_says_what_is_not_seen)
{
	int status;
	pid_t child;

	if (geteuid() != 0)
		return;
	cr_assert_eq(chmod(folder, 0755) | chmod(path, 0644), 0);
	child = fork();
	if (child == 0) {
		const bool noted = seteuid(65534) == 0 && open_source() == 0 &&
				   strstr(source.notes[0], "through a mapping (mmap)") &&
				   strstr(source.notes[0], "does not own them, and has no CAP_LEASE") &&
				   strstr(source.notes[0], "verify --source");

		_exit(noted ? 0 : 1);
	}
	cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(lease, memory_that_is_sealed_needs_none)
{
	struct file_lease lease;
	int fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(lease_take(fd, "weights", &lease, &error), 0, "%s", error.message);
	cr_assert(lease.unseen && strstr(lease.unseen, "whoever made them"),
		  "its maker is no writer for the kernel");
	lease_give_back(&lease, fd);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	cr_assert_eq(lease_take(fd, "weights", &lease, &error), 0, "%s", error.message);
	cr_assert(!lease.held && !lease.unseen);
	close(fd);
}
