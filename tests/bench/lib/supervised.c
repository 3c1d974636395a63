#include "supervised.h"

#include "../bench.h"
#include "operate.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define START_MS 30000

static struct supervised only;

static int entry_remove(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat, (void)type, (void)ftw;
	return remove(path);
}

/* Also when the program ends early; not in its children. */
static void clean_up(void)
{
	static pid_t owner;

	if (owner == 0) {
		owner = getpid();
		return;
	}
	if (owner != getpid() || only.pid == 0)
		return;
	kill(only.pid, SIGKILL);
	waitpid(only.pid, NULL, 0);
	nftw(only.folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
	only.pid = 0;
}

/* ---- notifications ---- */

static void close_all(struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		const int *fds = (const int *)CMSG_DATA(c);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
			close(fds[i]);
	}
}

/* When the notification was sent, however late it is read. */
static double sent_us(struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		struct timespec time;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
			continue;
		memcpy(&time, CMSG_DATA(c), sizeof(time));
		return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
	}
	DIE("a notification came without its time");
}

static double wall_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void count_gap(struct supervised *s, double now)
{
	if (now - s->last_ping_us > s->gap_us)
		s->gap_us = now - s->last_ping_us;
}

/* True: it was READY=1. */
static bool take(struct supervised *s, const char *text, double at_us)
{
	if (strstr(text, "WATCHDOG=1")) {
		count_gap(s, at_us);
		s->last_ping_us = at_us;
	}
	return strstr(text, "READY=1");
}

/* The kernel's times of sockets are of the wall clock. False: nothing is there. */
static bool receive(struct supervised *s, bool *ret_ready)
{
	char text[4096], control[CMSG_SPACE(PACKET_FDS_MAX * sizeof(int)) + 64];
	struct iovec part = {text, sizeof(text) - 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(s->notify, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return false;
	text[n] = 0;
	*ret_ready = take(s, text, sent_us(&message)) || *ret_ready;
	close_all(&message);
	return true;
}

static bool look(struct supervised *s)
{
	bool ready = false;

	while (receive(s, &ready))
		;
	if (waitpid(s->pid, NULL, WNOHANG) != 0)
		DIE("gpuwmd has ended");
	return ready;
}

void supervised_look(struct supervised *s)
{
	look(s);
}

void supervised_gap_begin(struct supervised *s)
{
	look(s);
	/* While nobody looked, the socket kept ten pings and lost the others. */
	s->last_ping_us = wall_us();
	s->gap_us = 0;
}

double supervised_gap_us(struct supervised *s)
{
	look(s);
	count_gap(s, wall_us());
	return s->gap_us;
}

/* ---- life ---- */

static void listen_for_notifications(struct supervised *s, struct sockaddr_un *address)
{
	const int on = 1;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address->sun_path, sizeof(address->sun_path), "%.31s/notify", s->folder);
	s->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s->notify < 0 || bind(s->notify, (struct sockaddr *)address, sizeof(*address)) < 0 ||
	    setsockopt(s->notify, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) < 0)
		DIE("%s: %s", address->sun_path, strerror(errno));
}

_Noreturn static void run(const struct supervised *s, const char *notify, const char *bin, const char *group)
{
	char program[600], loader[600], log[64], publish[128], every[32];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(program, sizeof(program), "%s/gpuwmd", bin);
	snprintf(loader, sizeof(loader), "%s/gpuwm-loader", bin);
	snprintf(log, sizeof(log), "%.31s/log", s->folder);
	snprintf(publish, sizeof(publish), "access.publish_group=%s", group);
	/* gpuwmd pings in a third of the time. */
	snprintf(every, sizeof(every), "%d", 3 * SUPERVISED_PING_US);
	setenv("NOTIFY_SOCKET", notify, 1);
	setenv("WATCHDOG_USEC", every, 1);
	unsetenv("WATCHDOG_PID");
	unsetenv("FDSTORE");
	dup2(open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
	execl(program, program, "--socket", s->socket, "--admin-socket", s->admin, "--root", s->folder,
	      "--loader", loader, "--set", "socket.mode=0666", "--set", publish, NULL);
	_exit(127);
}

static void wait_until_ready(struct supervised *s)
{
	struct pollfd readable = {.fd = s->notify, .events = POLLIN};
	struct gpuwm_client *client;

	do
		if (poll(&readable, 1, START_MS) != 1)
			DIE("gpuwmd does not become ready");
	while (!look(s));
	client = operator_connect(s->socket);
	standby_wait(client);
	gpuwm_close(client);
}

struct supervised *supervised_start(const char *bin, const char *publish_group)
{
	struct sockaddr_un address;
	struct supervised *s = &only;

	clean_up();
	atexit(clean_up);
	snprintf(s->folder, sizeof(s->folder), "/tmp/gpuwm-bench.XXXXXX");
	if (!mkdtemp(s->folder) || chmod(s->folder, 0755) < 0)
		DIE("%s: %s", s->folder, strerror(errno));
	snprintf(s->socket, sizeof(s->socket), "%.31s/gpuwm.sock", s->folder);
	snprintf(s->admin, sizeof(s->admin), "%.31s/admin.sock", s->folder);
	listen_for_notifications(s, &address);
	s->last_ping_us = wall_us();
	s->pid = fork();
	if (s->pid == 0)
		run(s, address.sun_path, bin, publish_group);
	if (s->pid < 0)
		DIE("fork: %s", strerror(errno));
	wait_until_ready(s);
	return s;
}

void supervised_stop(struct supervised *s)
{
	int status;

	kill(s->pid, SIGTERM);
	if (waitpid(s->pid, &status, 0) != s->pid || status != 0)
		DIE("gpuwmd ended with status %#x", (unsigned)status);
	s->pid = 0;
	close(s->notify);
	nftw(s->folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}
