/* A service for the tests of gpuwm-keeper: does what it is told over a socket, with libsystemd's own calls.
 *
 *   notify-service SOCKET [LABEL]
 *
 * It connects to SOCKET (SOCK_SEQPACKET), says "hello PID NANOSECONDS LABEL" with the time at which main
 * began, and answers each packet, a command and its arguments, with one. Several commands may stand in
 * one packet, with ';' between them; each is answered.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define FDS_MAX 253 /* a message */
#define OWN_MAX 4096

static int control;
static char reply[200000];
static char **given_names;
static int given;
static int own[OWN_MAX], own_count;
static int feed_ms = -1;
static volatile sig_atomic_t hangups;
static char on_term[256]; /* what it notifies at SIGTERM, in place of ending */

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void answer(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(reply, sizeof reply, format, list);
	va_end(list);
	if (send(control, reply, strlen(reply), MSG_NOSIGNAL) < 0)
		_exit(9);
}

/* ---- commands --------------------------------------------------------- */

static int make_fd(const char *kind, unsigned long bytes, unsigned seed)
{
	int fd = strcmp(kind, "tmpfs") == 0 ? open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
					    : memfd_create("test", MFD_CLOEXEC);
	char block[4096];

	memset(block, (int)seed, sizeof block);
	for (unsigned long left = bytes; fd >= 0 && left > 0;) {
		ssize_t put = write(fd, block, left < sizeof block ? left : sizeof block);

		if (put <= 0)
			return -1;
		left -= (unsigned long)put;
	}
	return fd;
}

/* store NAME COUNT BYTES SEED KIND [each]: "-" for no name; with `each`, a message and a name (NAME000000) for each. */
static void do_store(char *arguments)
{
	char name[512], kind[16] = "", each[8] = "", text[1024];
	unsigned count = 0, seed = 0, sent = 0;
	unsigned long bytes = 0;
	int r = 1;

	sscanf(arguments, "%511s %u %lu %u %15s %7s", name, &count, &bytes, &seed, kind, each);
	while (r > 0 && sent < count) {
		unsigned many = each[0] ? 1 : count - sent < FDS_MAX ? count - sent : FDS_MAX;

		for (unsigned i = 0; i < many; i++)
			own[own_count + (int)i] = make_fd(kind, bytes, seed + sent + i);
		if (strcmp(name, "-") == 0)
			snprintf(text, sizeof text, "FDSTORE=1\nFDPOLL=0");
		else if (each[0])
			snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s%06u\nFDPOLL=0", name, sent);
		else
			snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
		r = sd_pid_notify_with_fds(0, 0, text, own + own_count, many);
		own_count += (int)many;
		sent += many;
	}
	answer("store %d", r);
}

/* What it was started with: "COUNT NAME:BYTES:FIRST-BYTE ..." */
static void do_list(void)
{
	size_t used = (size_t)snprintf(reply, sizeof reply, "%d", given);

	for (int i = 0; i < given; i++) {
		unsigned char first = 0;
		off_t bytes = lseek(SD_LISTEN_FDS_START + i, 0, SEEK_END);

		if (pread(SD_LISTEN_FDS_START + i, &first, 1, 0) < 0)
			first = 255;
		used += (size_t)snprintf(reply + used, sizeof reply - used, " %s:%ld:%u", given_names[i],
					 (long)bytes, first);
	}
	send(control, reply, used, MSG_NOSIGNAL);
}

static void do_close(void)
{
	for (int i = 0; i < given; i++)
		close(SD_LISTEN_FDS_START + i);
	while (own_count > 0)
		close(own[--own_count]);
	given = 0;
	answer("closed");
}

/* A notification of another process, with a descriptor; waits for its end. */
static void do_foreign(const char *text, int times)
{
	int fd = STDIN_FILENO, status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		for (int i = 0; i < times; i++)
			sd_pid_notify_with_fds(0, 0, text, &fd, 1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	answer("foreign %d", (int)pid);
}

/* A grandchild whose parent is gone. It ends when `orphans-end` closes the pipe that it reads. */
static int orphan_pipe[2] = {-1, -1};

static void do_orphan(void)
{
	char nothing;
	pid_t pid;

	if (orphan_pipe[0] < 0 && pipe2(orphan_pipe, O_CLOEXEC) < 0)
		_exit(8);
	pid = fork();
	if (pid == 0) {
		if (fork() != 0)
			_exit(0);
		close(orphan_pipe[1]);
		_exit(read(orphan_pipe[0], &nothing, 1) == 0 ? 7 : 8);
	}
	waitpid(pid, NULL, 0);
	answer("orphan");
}

static void do_orphans_end(void)
{
	close(orphan_pipe[0]);
	close(orphan_pipe[1]);
	orphan_pipe[0] = orphan_pipe[1] = -1;
	answer("ended");
}

/* raw BYTES, with '#' for a zero byte, and with as many copies of stdin. */
static void do_raw(char *text, int fd_count)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	union {
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control_ = {0};
	struct iovec iov = {text, strlen(text)};
	struct msghdr header = {
		.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &iov, .msg_iovlen = 1};
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (char *c = text; (c = strchr(c, '#'));)
		*c++ = 0;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("NOTIFY_SOCKET"));
	if (fd_count > 0) {
		struct cmsghdr *c = (struct cmsghdr *)control_.bytes;

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
		memset(CMSG_DATA(c), 0, (size_t)fd_count * sizeof(int));
		header.msg_control = control_.bytes;
		header.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
	}
	answer("raw %d", sendmsg(sock, &header, 0) < 0 ? -errno : 0);
	close(sock);
}

/* 32 and 33 are the C library's: it sets neither, so they stay as they were inherited. */
#define LIBC_SIGNALS (3ull << 31)

static void do_signals(void)
{
	unsigned long long blocked = 0, ignored = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof line, file)) {
		sscanf(line, "SigBlk: %llx", &blocked);
		sscanf(line, "SigIgn: %llx", &ignored);
	}
	if (file)
		fclose(file);
	answer("%016llx %016llx", blocked & ~LIBC_SIGNALS, ignored & ~LIBC_SIGNALS);
}

static void do_fds(void)
{
	size_t used = (size_t)snprintf(reply, sizeof reply, "fds");
	DIR *folder = opendir("/proc/self/fd");

	for (struct dirent *entry; (entry = readdir(folder));) {
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder) &&
		    atoi(entry->d_name) != control)
			used += (size_t)snprintf(reply + used, sizeof reply - used, " %s", entry->d_name);
	}
	closedir(folder);
	answer("%s", strdup(reply));
}

static void do_limits(void)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	answer("%llu %d %d", (unsigned long long)files.rlim_cur, getsid(0) == getpid(), (int)getppid());
}

static void do_command(char *command)
{
	char *arguments = strchr(command, ' ');

	if (arguments)
		*arguments++ = 0;
	else
		arguments = command + strlen(command);
	/* In a packet, newlines of a notification are '|'. */
	for (char *c = arguments; (c = strchr(c, '|'));)
		*c = '\n';
	if (strcmp(command, "notify") == 0)
		answer("notify %d", sd_notify(0, arguments));
	else if (strcmp(command, "store") == 0)
		do_store(arguments);
	else if (strcmp(command, "barrier") == 0)
		answer("barrier %d", sd_notify_barrier(0, 5000000));
	else if (strcmp(command, "list") == 0)
		do_list();
	else if (strcmp(command, "close") == 0)
		do_close();
	else if (strcmp(command, "foreign") == 0)
		do_foreign(arguments, 1);
	else if (strcmp(command, "foreign-100") == 0)
		do_foreign(arguments, 100);
	else if (strcmp(command, "orphan") == 0)
		do_orphan();
	else if (strcmp(command, "orphans-end") == 0)
		do_orphans_end();
	else if (strcmp(command, "raw") == 0)
		do_raw(arguments, 0);
	else if (strcmp(command, "raw-253") == 0)
		do_raw(arguments, FDS_MAX);
	else if (strcmp(command, "signals") == 0)
		do_signals();
	else if (strcmp(command, "fds") == 0)
		do_fds();
	else if (strcmp(command, "limits") == 0)
		do_limits();
	else if (strcmp(command, "hangups") == 0)
		answer("%d", (int)hangups);
	else if (strcmp(command, "env") == 0)
		answer("%s", getenv(arguments) ? getenv(arguments) : "(none)");
	else if (strcmp(command, "feed") == 0)
		answer("feed %d", feed_ms = atoi(arguments));
	else if (strcmp(command, "ignore") == 0)
		answer("ignore %d", signal(atoi(arguments), SIG_IGN) == SIG_ERR);
	else if (strcmp(command, "on-term") == 0)
		answer("on-term %d", snprintf(on_term, sizeof on_term, "%s", arguments) > 0);
	else if (strcmp(command, "exit") == 0)
		exit(atoi(arguments));
	else if (strcmp(command, "kill") == 0)
		kill(getpid(), atoi(arguments));
	else
		answer("what is '%s'?", command);
}

/* ---- main ------------------------------------------------------------- */

static void on_signal(int number)
{
	if (number == SIGHUP)
		hangups++;
	else if (on_term[0])
		sd_notify(0, on_term);
	else
		_exit(0);
}

static int dial(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (connect(sock, (struct sockaddr *)&address, sizeof address) < 0) {
		perror(path);
		exit(9);
	}
	return sock;
}

static void serve(void)
{
	struct pollfd ready = {.events = POLLIN};
	char packet[8192];
	ssize_t got;

	ready.fd = control;
	for (;;) {
		int r = poll(&ready, 1, feed_ms);

		if (feed_ms >= 0)
			sd_notify(0, "WATCHDOG=1");
		if (r <= 0)
			continue;
		got = recv(control, packet, sizeof packet - 1, 0);
		if (got <= 0)
			exit(9);
		packet[got] = 0;
		for (char *next = packet, *command; (command = strsep(&next, ";"));)
			do_command(command);
	}
}

int main(int argc, char **argv)
{
	int64_t began = now_ns();

	if (argc < 2)
		return 2;
	/* A crash that is asked for leaves no core. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	signal(SIGTERM, on_signal);
	signal(SIGHUP, on_signal);
	given = sd_listen_fds_with_names(0, &given_names);
	if (given < 0)
		return 3;
	control = dial(argv[1]);
	answer("hello %d %lld %s", (int)getpid(), (long long)began, argc > 2 ? argv[2] : "-");
	serve();
}
