/* Files of a file system in user space: one that cannot say what is cached, fails in the
 * middle of a file, gives less than it said, or stops answering. */
#include "harness.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Far from the beginning and the end of the file. */
#define MIDDLE MB(10)

/* ---- the server: one file, whose bytes are those of another ------------- */

struct files {
	int fuse, real;
	uint64_t bytes;
	char beyond; /* what is done with reads beyond MIDDLE: 'g' answered, 'e' EIO, 'c' cut off, 's' silence */
};

static void answer(const struct files *files, const struct fuse_in_header *request, int error, const void *data,
		   size_t bytes)
{
	static char out[sizeof(struct fuse_out_header) + (1 << 17)];
	struct fuse_out_header header = {
		.len = (uint32_t)(sizeof header + bytes), .error = error, .unique = request->unique};

	memcpy(out, &header, sizeof header);
	if (bytes > 0)
		memcpy(out + sizeof header, data, bytes);
	/* ENOENT: who asked was killed. */
	CHILD_ASSERT(write(files->fuse, out, header.len) == (ssize_t)header.len || errno == ENOENT);
}

static struct fuse_attr attributes_of(const struct files *files, uint64_t node)
{
	if (node == 1)
		return (struct fuse_attr){.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
	return (struct fuse_attr){.ino = 2, .mode = S_IFREG | 0644, .nlink = 1, .size = files->bytes};
}

static void answer_read(const struct files *files, const struct fuse_in_header *request)
{
	const struct fuse_read_in *in = (const void *)(request + 1);
	static char data[1 << 17];
	bool beyond = files->beyond != 'g' && in->offset + in->size > MIDDLE;
	ssize_t n;

	if (beyond && files->beyond == 's')
		return;
	if (beyond && files->beyond == 'e') {
		answer(files, request, -EIO, NULL, 0);
		return;
	}
	n = beyond ? 0 : pread(files->real, data, in->size, (off_t)in->offset);
	CHILD_ASSERT(n >= 0);
	answer(files, request, 0, data, (size_t)n);
}

static void answer_one(const struct files *files, const struct fuse_in_header *request)
{
	const struct fuse_init_in *in = (const void *)(request + 1);
	struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION, .minor = in->minor, .max_readahead = 1 << 17, .max_write = 4096};
	struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 3600, .attr = attributes_of(files, 2)};
	struct fuse_attr_out attributes = {.attr = attributes_of(files, request->nodeid)};
	struct fuse_open_out opened = {.fh = 1};

	switch (request->opcode) {
	case FUSE_INIT:
		answer(files, request, 0, &init, sizeof init);
		break;
	case FUSE_LOOKUP:
		answer(files, request, 0, &entry, sizeof entry);
		break;
	case FUSE_GETATTR:
		answer(files, request, 0, &attributes, sizeof attributes);
		break;
	case FUSE_OPEN:
		answer(files, request, 0, &opened, sizeof opened);
		break;
	case FUSE_READ:
		answer_read(files, request);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(files, request, -ENOSYS, NULL, 0);
	}
}

/* argv: where to mount, the file, what is done with reads beyond MIDDLE. */
static int server(int argc, char **argv)
{
	static char buffer[1 << 17];
	struct files files = {.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC)};
	char options[128];
	struct stat stat_;

	CHILD_ASSERT(argc == 3 && files.fuse >= 0);
	files.real = open(argv[1], O_RDONLY | O_CLOEXEC);
	CHILD_ASSERT(files.real >= 0 && fstat(files.real, &stat_) == 0);
	files.bytes = (uint64_t)stat_.st_size;
	files.beyond = argv[2][0];
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", files.fuse);
	if (mount("gpuwm-test", argv[0], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		child_say('x');
		return 0;
	}
	child_say('m');
	while (read(files.fuse, buffer, sizeof buffer) > 0)
		answer_one(&files, (const void *)buffer);
	return 0;
}

/* ---- the tests ---------------------------------------------------------- */

static struct gpuwmd *d;
static struct process serving;
static char folder[128], path[160];

static void cleanup(void)
{
	if (folder[0])
		umount2(folder, MNT_DETACH);
	harness_cleanup();
}

TestSuite(loading_fuse, .fini = cleanup);

/* A checkpoint of 16 MiB, the path of which leads through the server. */
static void serve(const char *beyond)
{
	const char *real;
	struct stat stat_;

	SKIP_UNLESS(geteuid() == 0 && stat("/dev/fuse", &stat_) == 0,
		    "only root can mount a file system, and needs /dev/fuse");
	d = gpuwmd_start(NULL);
	snprintf(folder, sizeof folder, "%s/fuse", d->root);
	snprintf(path, sizeof path, "%s/m.safetensors", folder);
	cr_assert(mkdir(folder, 0755) == 0);
	real = checkpoint_write(d, "real", &(const struct checkpoint){.seed = 1, .count = 16, .bytes = MB(1)});
	serving = process_start(server, folder, real, beyond, NULL);
	SKIP_UNLESS(process_hear(&serving) == 'm', "this root may not mount");
}

/* The server's end aborts the file system, and all who hang in it go on: a loader that reads there
 * cannot be killed, and keeps its memory until then. */
static void stop(void)
{
	umount2(folder, MNT_DETACH);
	process_kill(&serving, SIGKILL);
	cr_assert(EVENTUALLY(10000, memory_of(d) == 0));
	gpuwmd_stop_empty(d);
}

static json_t *first_job(void)
{
	json_t *answer_ = query(d->admin, "jobs", "1");
	json_t *job = json_incref(json_array_get(json_object_get(answer_, "jobs"), 0));

	json_decref(answer_);
	cr_assert(job);
	return job;
}

static bool noted(const char *words)
{
	json_t *job = first_job(), *note;
	bool found = false;
	size_t i;

	json_array_foreach(json_object_get(job, "notes"), i, note)
		found |= strstr(json_string_value(note), words) != NULL;
	json_decref(job);
	return found;
}

static void fails_with(int code, const char *words)
{
	FAILS(code, load_try(d, path, "m@v1"));
	cr_assert(strstr(gpuwm_error()->message, words), "\"%s\" does not say \"%s\"", gpuwm_error()->message,
		  words);
	cr_assert(strstr(gpuwm_error()->message, path), "%s", gpuwm_error()->message);
}

Test(loading_fuse, one_that_cannot_say_what_is_cached_is_read_all_the_same)
{
	serve("good");
	load_version(d, path, "m@v1");
	cr_assert(noted("m.safetensors is read through the page cache"));
	cr_assert(noted("RWF_NOWAIT"));
	cr_assert(noted("16.0 MiB through the page cache"));
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
	stop();
}

Test(loading_fuse, an_error_in_the_middle_names_file_and_byte)
{
	const char *at;

	serve("error");
	fails_with(EIO, "reading at byte ");
	at = strstr(gpuwm_error()->message, "at byte ");
	cr_assert_geq(strtoull(at + strlen("at byte "), NULL, 10), MIDDLE, "%s", gpuwm_error()->message);
	stop();
}

Test(loading_fuse, a_file_that_has_less_than_it_said_is_truncated)
{
	serve("cut");
	fails_with(EIO, "was truncated while it was read");
	stop();
}

static uint64_t done_bytes(void)
{
	json_t *job = first_job();
	uint64_t done = (uint64_t)json_integer_value(json_object_get(job, "done"));

	json_decref(job);
	return done;
}

Test(loading_fuse, one_that_stops_answering_holds_nobody_up_and_can_be_cancelled)
{
	uint64_t job;

	serve("silent");
	OK(load_start(d, path, "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(20000, done_bytes() > MB(1)), "what came before is told");
	load_version(d, checkpoint_write(d, "other", SMALL(2)), "n@v1");
	OK(gpuwm_job_cancel(d->admin, job));
	FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, 20000));
	DROP(d, "n@v1");
	stop();
}
