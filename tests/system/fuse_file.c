#include "fuse_file.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER FUSE_ROOT_ID
#define NODE 2 /* of the file */
#define READ_MAX (1u << 20)

struct serving {
	int fuse;
	const char *backing;
	enum fuse_fault fault;
	uint64_t at;
	bool reached;
};

static void answer(const struct serving *s, const struct fuse_in_header *request, int error, const void *data,
		   size_t bytes)
{
	static char out[sizeof(struct fuse_out_header) + READ_MAX];
	struct fuse_out_header header = {
		.len = (uint32_t)(sizeof header + bytes), .error = error, .unique = request->unique};

	memcpy(out, &header, sizeof header);
	if (bytes)
		memcpy(out + sizeof header, data, bytes);
	/* A request whose process was killed is gone: ENOENT. */
	if (write(s->fuse, out, header.len) < 0)
		CHILD_ASSERT(errno == ENOENT);
}

static void answer_init(const struct serving *s, const struct fuse_in_header *request)
{
	const struct fuse_init_in *in = (const void *)(request + 1);
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
				    .minor = in->minor,
				    .max_readahead = 65536,
				    .max_write = 65536,
				    .flags = FUSE_ASYNC_READ | FUSE_AUTO_INVAL_DATA,
				    .max_background = 64};

	answer(s, request, 0, &out, sizeof out);
}

/* As the backing file is now: its size and time are not cached. */
static struct fuse_attr file_attributes(const struct serving *s)
{
	struct stat stat_;

	CHILD_ASSERT(stat(s->backing, &stat_) == 0);
	return (struct fuse_attr){.ino = NODE,
				  .mode = S_IFREG | 0644,
				  .nlink = 1,
				  .size = (uint64_t)stat_.st_size,
				  .blocks = (uint64_t)stat_.st_blocks,
				  .mtime = (uint64_t)stat_.st_mtim.tv_sec,
				  .mtimensec = (uint32_t)stat_.st_mtim.tv_nsec,
				  .ctime = (uint64_t)stat_.st_ctim.tv_sec,
				  .ctimensec = (uint32_t)stat_.st_ctim.tv_nsec};
}

static void answer_lookup(const struct serving *s, const struct fuse_in_header *request)
{
	const char *name = (const char *)(request + 1);
	struct fuse_entry_out out = {.nodeid = NODE, .entry_valid = 3600};

	out.attr = file_attributes(s);
	if (strcmp(name, "model.safetensors") == 0)
		answer(s, request, 0, &out, sizeof out);
	else
		answer(s, request, -ENOENT, NULL, 0);
}

static void answer_attributes(const struct serving *s, const struct fuse_in_header *request)
{
	struct fuse_attr_out out = {.attr = {.ino = FOLDER, .mode = S_IFDIR | 0755, .nlink = 2}};

	if (request->nodeid == NODE)
		out.attr = file_attributes(s);
	answer(s, request, 0, &out, sizeof out);
}

/* Whether this read is answered after all. */
static bool fault(struct serving *s)
{
	bool first = !s->reached;

	s->reached = true;
	if (first && s->fault != FUSE_FAILS)
		child_say('w');
	if (s->fault == FUSE_HANGS)
		for (;;)
			pause();
	if (first && s->fault == FUSE_WAITS)
		child_hear();
	return s->fault != FUSE_FAILS;
}

static void answer_read(struct serving *s, const struct fuse_in_header *request)
{
	static char data[READ_MAX];
	const struct fuse_read_in *in = (const void *)(request + 1);
	ssize_t got;
	int fd;

	CHILD_ASSERT(in->size <= READ_MAX);
	if (in->offset + in->size > s->at && !fault(s)) {
		answer(s, request, -EIO, NULL, 0);
		return;
	}
	fd = open(s->backing, O_RDONLY | O_CLOEXEC);
	got = pread(fd, data, in->size, (off_t)in->offset);
	close(fd);
	CHILD_ASSERT(got >= 0);
	answer(s, request, 0, data, (size_t)got);
}

static void answer_one(struct serving *s, const struct fuse_in_header *request)
{
	const struct fuse_open_out opened = {.fh = 1};

	switch (request->opcode) {
	case FUSE_INIT:
		answer_init(s, request);
		return;
	case FUSE_LOOKUP:
		answer_lookup(s, request);
		return;
	case FUSE_GETATTR:
		answer_attributes(s, request);
		return;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(s, request, 0, &opened, sizeof opened);
		return;
	case FUSE_READ:
		answer_read(s, request);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	case FUSE_READDIR: /* empty */
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		answer(s, request, 0, NULL, 0);
		return;
	default:
		answer(s, request, -ENOSYS, NULL, 0);
	}
}

/* argv: where to mount, the backing file, the fault, the byte. */
static int server(int argc, char **argv)
{
	static char buffer[1 << 17];
	struct serving s = {.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC)};
	char options[128];

	CHILD_ASSERT(argc == 4);
	s.backing = argv[1];
	s.fault = (enum fuse_fault)atoi(argv[2]);
	s.at = strtoull(argv[3], NULL, 10);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", s.fuse);
	if (s.fuse < 0 || mount("gpuwm-test", argv[0], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		child_say('x');
		return 0;
	}
	child_say('m');
	while (read(s.fuse, buffer, sizeof buffer) > 0)
		answer_one(&s, (const void *)buffer);
	return 0;
}

bool fuse_file_mount(struct gpuwmd *d, const char *backing, enum fuse_fault fault, uint64_t at,
		     struct fuse_file *ret)
{
	char number[24], which[8];
	struct stat stat_;

	if (geteuid() != 0 || stat("/dev/fuse", &stat_) < 0)
		return false;
	snprintf(ret->folder, sizeof ret->folder, "%s/fuse", d->root);
	snprintf(ret->path, sizeof ret->path, "%s/model.safetensors", ret->folder);
	snprintf(number, sizeof number, "%ju", (uintmax_t)at);
	snprintf(which, sizeof which, "%d", fault);
	cr_assert(mkdir(ret->folder, 0755) == 0);
	ret->server = process_start(server, ret->folder, backing, which, number, NULL);
	return process_hear(&ret->server) == 'm';
}

void fuse_file_end(struct fuse_file *file)
{
	process_kill(&file->server, SIGKILL);
	umount2(file->folder, MNT_DETACH);
}
