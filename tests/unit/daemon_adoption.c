/* A start of gpuwmd in which the calls that tell what was stored fail: nothing is lost by that. */
#include "tests/support/daemon/storing.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct error error;

/* Which call fails, how, and how often. */
enum call { FCNTL, FSTAT, PREAD, GETSOCKOPT };
static struct {
	bool armed;
	enum call call;
	int code;
	unsigned first, count; /* the calls from `first` on, so many */
	unsigned seen;
} fault;

static bool fails(enum call call)
{
	if (!fault.armed || fault.call != call)
		return false;
	fault.seen++;
	if (fault.seen <= fault.first || fault.seen - fault.first > fault.count)
		return false;
	errno = fault.code;
	return true;
}

/* These come before libc's, for libsystemd too. */
#define EXPORT __attribute__((visibility("default")))

EXPORT int fcntl(int fd, int command, ...)
{
	va_list list;
	long argument;

	va_start(list, command);
	argument = va_arg(list, long);
	va_end(list);
	if (command == F_GET_SEALS && fails(FCNTL))
		return -1;
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

EXPORT int fstat(int fd, struct stat *ret)
{
	return fails(FSTAT) ? -1 : (int)syscall(SYS_newfstatat, fd, "", ret, 0x1000 /* AT_EMPTY_PATH */);
}

/* libsystemd's name for it. */
EXPORT int fstat64(int fd, struct stat64 *ret)
{
	return fstat(fd, (struct stat *)ret);
}

EXPORT ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
	return fails(PREAD) ? -1 : syscall(SYS_pread64, fd, data, bytes, offset);
}

EXPORT int getsockopt(int sock, int level, int option, void *value, socklen_t *bytes)
{
	return fails(GETSOCKOPT) ? -1 : (int)syscall(SYS_getsockopt, sock, level, option, value, bytes);
}

static void arm(enum call call, int code, unsigned first, unsigned count)
{
	fault.call = call;
	fault.code = code;
	fault.first = first;
	fault.count = count;
	fault.seen = 0;
	fault.armed = true;
}

/* ---- what the last gpuwmd left ---- */

static struct part_fd sealed(uint64_t bytes)
{
	int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	return (struct part_fd){.fd = fd, .bytes = bytes};
}

static void store_version(const char *tag)
{
	struct publish_checked checked = {.part = {.index = sealed(100), .segment_count = 1}, .tensors = 3};
	struct publish_part *part;
	struct publish *publish = building("m", tag, &part);
	struct version *version = publish->version;

	checked.part.segments[0] = sealed(4096);
	cr_assert_eq(publish_commit(publish, part, part->publisher, &checked.content, &error), 0);
	cr_assert_eq(publish_checked(server->ledger.registry, publish, part, &checked, &error), 0);
	cr_assert_eq(versions_complete(&server->work, publish, &error), 0, "%s", error.message);
	TURN_UNTIL(version->state == VERSION_READY);
}

/* The store has the state, m@v1 and m@v2. */
enum { STORED = 5 };

static void setup(void)
{
	storing_begin("100");
	store_version("v1");
	store_version("v2");
	server = server_free(server);
	config_clear(&config);
	cr_assert_eq(manager_keeps(&manager, NULL), STORED);
}

static void teardown(void)
{
	fault.armed = false;
	manager_stop(&manager);
}

TestSuite(adoption, .init = setup, .fini = teardown, .timeout = 120);

static int by_name(const void *a, const void *b)
{
	uint64_t x = ((const struct inherited_fd *)a)->name, y = ((const struct inherited_fd *)b)->name;

	return x < y ? -1 : x > y;
}

/* As inherited_read gives it. */
static struct inherited passed(void)
{
	struct inherited left = inherited_none;

	left.ours = calloc(STORED, sizeof(*left.ours));
	left.strange = calloc(1, sizeof(*left.strange));
	left.strange_fds = calloc(1, sizeof(*left.strange_fds));
	pthread_mutex_lock(&manager.lock);
	for (int i = 0; i < manager.count; i++) {
		struct inherited_fd *ours = &left.ours[left.count];
		int fd = fcntl(manager.kept[i].fd, F_DUPFD_CLOEXEC, 3);

		if (strcmp(manager.kept[i].name, STORE_STATE) == 0)
			left.state = fd;
		else if (store_name_parse(manager.kept[i].name, &ours->name) == 0)
			left.ours[left.count++].fd = fd;
	}
	pthread_mutex_unlock(&manager.lock);
	qsort(left.ours, left.count, sizeof(*left.ours), by_name);
	return left;
}

/* A start; what keeping_begin says. */
static int start(uint64_t *ret_adopted)
{
	struct inherited left = passed();
	int r;

	server_open();
	device_table_clear(&server->ledger.devices); /* the state has them */
	fault.armed = fault.count > 0;
	r = keeping_begin(server->keeping, &left, &error);
	fault.armed = false;
	cr_expect_null(r == 0 ? keeping_locked(server->keeping) : NULL);
	*ret_adopted = keeping_adopted(server->keeping);
	cr_expect_eq(keeping_lost(server->keeping), 0);
	inherited_clear(&left);
	server = server_free(server);
	config_clear(&config);
	return r;
}

static void starts_well(void)
{
	uint64_t adopted;

	fault.count = 0;
	cr_assert_eq(start(&adopted), 0, "%s", error.message);
	cr_assert_eq(adopted, 2);
	cr_assert_eq(manager_keeps(&manager, NULL), STORED);
}

/* Each of the calls that a start makes fails once. */
static void each_fails_once(enum call call, int code)
{
	uint64_t adopted;
	unsigned nth = 0;

	do {
		arm(call, code, nth, 1);
		fault.armed = false;
		cr_assert_eq(start(&adopted), 0, "call %u: %s", nth, error.message);
		cr_assert_eq(adopted, 2, "call %u of kind %d", nth, (int)call);
		cr_assert_eq(manager_keeps(&manager, NULL), STORED);
	} while (nth++ < fault.seen);
	cr_assert_gt(nth, 3, "the start does not make these calls");
}

Test(adoption, a_look_at_seals_that_fails_once_loses_nothing)
{
	each_fails_once(FCNTL, EIO);
	each_fails_once(FCNTL, ENOMEM);
}

Test(adoption, a_look_at_a_size_that_fails_once_loses_nothing)
{
	each_fails_once(FSTAT, ENOMEM);
	each_fails_once(FSTAT, EINTR);
}

/* Every call from the nth on fails: the start ends, and what is stored stays. */
static void all_fail(enum call call, int code)
{
	uint64_t adopted;
	unsigned ended = 0;

	for (unsigned nth = 0; nth < 6; nth++) {
		arm(call, code, nth, UINT32_MAX);
		fault.armed = false;
		if (start(&adopted) < 0) {
			ended++;
			cr_expect(strstr(error.message, strerror(code)), "%s", error.message);
		}
		cr_assert_eq(manager_keeps(&manager, NULL), STORED, "call %u: something was let go", nth);
	}
	cr_assert_gt(ended, 2);
	starts_well();
}

Test(adoption, what_can_not_be_looked_at_is_left_to_the_next_start)
{
	all_fail(FCNTL, EIO);
	all_fail(FSTAT, ENOMEM);
	all_fail(PREAD, EIO);
}

Test(adoption, the_error_names_version_and_descriptor_and_says_that_all_is_kept)
{
	uint64_t adopted;

	arm(FCNTL, EIO, 1, UINT32_MAX); /* the state's is the first */
	fault.armed = false;
	cr_assert_eq(start(&adopted), -EAGAIN);
	cr_expect_str_eq(error.message, "the index of rank 0 on host of m@v1 could not be looked at: "
					"Input/output error");
	cr_expect(strstr(error.detail, "lets nothing go"), "%s", error.detail);
}

/* ---- sockets ---- */

enum { TAKEN, NOT_TAKEN, REFUSED, UNCLEAR };

/* In a process of its own, where descriptor 3 is the socket that was passed. */
static void read_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX}; /* a name that the kernel gives */
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0), r;
	struct inherited in;
	char pid[16];

	if (bind(sock, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 || listen(sock, 1) < 0 ||
	    dup2(sock, 3) != 3)
		_exit(UNCLEAR);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_FDNAMES", "own-worker", 1);
	fault.armed = true;
	r = inherited_read(&in, &error);
	if (r < 0)
		_exit(r == -ENOMEM && strstr(error.message, "can't be looked at") ? REFUSED : UNCLEAR);
	_exit(in.sockets[INHERITED_OWN_WORKER] == 3 ? TAKEN : NOT_TAKEN);
}

static int what_becomes_of_a_socket(enum call call, unsigned first, unsigned count)
{
	int status = 0;
	pid_t pid;

	arm(call, ENOMEM, first, count);
	fault.armed = false;
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		read_socket();
	cr_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

Test(adoption, a_look_at_a_socket_that_fails_once_loses_nothing)
{
	cr_expect_eq(what_becomes_of_a_socket(FSTAT, 0, 1), TAKEN);
	cr_expect_eq(what_becomes_of_a_socket(GETSOCKOPT, 0, 1), TAKEN);
	cr_expect_eq(what_becomes_of_a_socket(GETSOCKOPT, 1, 1), TAKEN);
}

Test(adoption, a_socket_that_can_not_be_looked_at_is_left_to_the_next_start)
{
	cr_expect_eq(what_becomes_of_a_socket(FSTAT, 0, UINT32_MAX), REFUSED);
	cr_expect_eq(what_becomes_of_a_socket(GETSOCKOPT, 0, UINT32_MAX), REFUSED);
}
