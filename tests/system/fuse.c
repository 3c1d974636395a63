/* A descriptor from a file system whose server never answers: whoever closes
 * or asks it hangs in the kernel. That may be a checker, never gpuwmd. */
#include "described.h"
#include "raw.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(fuse);

/* ---- the server: answers until a file is open, then reads and is silent ---- */

static void answer(int fuse, const struct fuse_in_header *request, const void *data, size_t bytes)
{
	char out[sizeof(struct fuse_out_header) + 256];
	struct fuse_out_header header = {.len = (uint32_t)(sizeof header + bytes), .unique = request->unique};

	memcpy(out, &header, sizeof header);
	memcpy(out + sizeof header, data, bytes);
	CHILD_ASSERT(write(fuse, out, header.len) == (ssize_t)header.len);
}

static void answer_init(int fuse, const struct fuse_in_header *request)
{
	const struct fuse_init_in *in = (const void *)(request + 1);
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = in->minor, .max_readahead = 4096, .max_write = 4096};

	answer(fuse, request, &out, sizeof out);
}

static void answer_lookup(int fuse, const struct fuse_in_header *request)
{
	struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 3600, .attr_valid = 0};

	out.attr = (struct fuse_attr){.ino = 2, .mode = S_IFREG | 0600, .nlink = 1, .size = 65536};
	answer(fuse, request, &out, sizeof out);
}

static void answer_attributes(int fuse, const struct fuse_in_header *request)
{
	struct fuse_attr_out out = {.attr_valid = 3600};

	out.attr = (struct fuse_attr){.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
	answer(fuse, request, &out, sizeof out);
}

/* argv: where to mount. */
static int server(int argc, char **argv)
{
	static char buffer[1 << 17];
	char options[128];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	const struct fuse_in_header *request = (const void *)buffer;
	struct fuse_open_out opened = {.fh = 1};
	bool silent = false;

	CHILD_ASSERT(argc == 1 && fuse >= 0);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (mount("gpuwm-test", argv[0], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		child_say('x');
		return 0;
	}
	child_say('m');
	while (read(fuse, buffer, sizeof buffer) > 0) {
		if (request->opcode == FUSE_INIT)
			answer_init(fuse, request);
		else if (request->opcode == FUSE_LOOKUP && !silent)
			answer_lookup(fuse, request);
		else if (request->opcode == FUSE_GETATTR && request->nodeid == 1)
			answer_attributes(fuse, request);
		else if (request->opcode == FUSE_OPEN && !silent)
			silent = true, answer(fuse, request, &opened, sizeof opened);
	}
	return 0;
}

/* ---- the publisher that hands such a descriptor in -------------------- */

/* argv: the file. Says 'h' before the commit, then 'r' when it was refused. */
static int publisher(int argc, char **argv)
{
	struct raw_publish p;
	int code;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(raw_publish_begin(&p, "m@v1", KB(64)) == 0);
	raw_publish_fill(&p);
	p.segment = open(argv[0], O_RDWR | O_CLOEXEC);
	CHILD_ASSERT(p.segment >= 0);
	code = raw_hand_in(&p);
	child_say('h');
	if (code == 0)
		code = raw_commit(&p);
	CHILD_ASSERT(code == -EBADMSG || code == -ETIMEDOUT || code == -EIO || code == -ECONNRESET);
	child_say('r');
	child_hear();
	return 0;
}

struct dead {
	struct process server;
	char folder[96], file[112];
};

static void dead_mount(struct gpuwmd *d, struct dead *ret)
{
	snprintf(ret->folder, sizeof ret->folder, "%s/fuse", d->dir);
	snprintf(ret->file, sizeof ret->file, "%s/f", ret->folder);
	cr_assert(mkdir(ret->folder, 0755) == 0);
	ret->server = process_start(server, ret->folder, NULL);
	SKIP_UNLESS(process_hear(&ret->server) == 'm', "this root may not mount");
}

/* Its end aborts the file system, and all who hang in it go on. */
static void dead_end(struct dead *dead)
{
	process_kill(&dead->server, SIGKILL);
	umount2(dead->folder, MNT_DETACH);
}

Test(fuse, a_descriptor_of_a_dead_file_system_hangs_nobody_but_its_checker)
{
	struct gpuwmd *d;
	struct process publishing;
	struct dead dead;
	struct stat stat_;

	SKIP_UNLESS(geteuid() == 0 && stat("/dev/fuse", &stat_) == 0,
		    "only root can mount a file system, and needs /dev/fuse");
	d = gpuwmd_start("--set", "limits.check_stall_ms=500", NULL);
	dead_mount(d, &dead);
	publishing = process_start(publisher, dead.file, NULL);
	process_expect(&publishing, 'h');
	for (int i = 0; i < 50; i++) {
		int64_t begin = clock_ms();

		OK(gpuwm_ping(d->admin, NULL));
		cr_assert_lt(clock_ms() - begin, SOON_MS);
		poll_pause(begin);
	}
	process_expect(&publishing, 'r');
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	dead_end(&dead);
	process_kill(&publishing, SIGKILL);
	DROP(d, "m@v2");
	gpuwmd_stop_empty(d);
}

/* argv: the file. Says 'p' when it has said that it parked, and keeps all it has. */
static int sleeper(int argc, char **argv)
{
	static struct raw_reply has;
	struct fields f;
	int sock = raw_client(getenv("GPUWM_SOCKET"));

	CHILD_ASSERT(argc == 1 && open(argv[0], O_RDWR | O_CLOEXEC) >= 0);
	RAW_SEND(sock, 2, "get_handles", TEXT("ref", "m@v1"));
	CHILD_ASSERT(raw_receive(sock, &has) && has.message.error.code == 0);
	fields_of(&f, has.message.body);
	CHILD_ASSERT(RAW_ASK(sock, "park", NUMBER("lease", fields_u64(&f, "lease"))) == 0);
	child_say('p');
	child_hear();
	return 0;
}

/* gpuwmd looks at what it has open: at the memory that it kept, and past this file. */
Test(fuse, a_worker_with_such_a_descriptor_hangs_no_look_at_it)
{
	struct gpuwmd *d;
	struct process worker;
	struct dead dead;
	struct stat stat_;

	SKIP_UNLESS(geteuid() == 0 && stat("/dev/fuse", &stat_) == 0,
		    "only root can mount a file system, and needs /dev/fuse");
	SKIP_UNLESS(backend() == BACKEND_HOST, "only of host memory the kernel lists who has it");
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	dead_mount(d, &dead);
	worker = process_start(sleeper, dead.file, NULL);
	process_expect(&worker, 'p');
	demote(d, "m@v1", "files");
	cr_assert(EVENTUALLY(SOON_MS, log_lines(d, "m@v1: a worker that said that it parked") == 1));
	dead_end(&dead);
	process_kill(&worker, SIGKILL);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
