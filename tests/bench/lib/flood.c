#include "flood.h"
#include "flooder.h"

#include <grp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BATCH 256

void become(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
		DIE("becoming user %u: %s", (unsigned)uid, strerror(errno));
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the uid clears it */
}

static void reopen(struct flooder *f, struct connection *c)
{
	close(c->sock);
	c->sock = flooder_open(f);
	c->step = 0;
	flooder_watch(f, c);
	f->way->next(f, c, NULL);
}

static void on_readable(struct flooder *f, struct connection *c)
{
	struct message message;
	const char *why;

	if (packet_receive(c->sock, true, &f->packet) != 1) {
		reopen(f, c);
		return;
	}
	packet_drop(&f->packet);
	++*f->done;
	if (message_read(f->packet.data, f->packet.bytes, &message, &why) < 0)
		DIE("an answer that is none: %s", why);
	f->way->next(f, c, &message);
	message_clear(&message);
}

_Noreturn static void go_on(struct flooder *f)
{
	struct epoll_event events[BATCH];

	for (;;) {
		int n = epoll_wait(f->epoll, events, BATCH, -1);

		for (int i = 0; i < n; i++)
			on_readable(f, &f->connections[events[i].data.u32]);
	}
}

static void begin_flood(struct flooder *f)
{
	for (unsigned i = 0; f->way->next && i < f->count; i++) {
		flooder_watch(f, &f->connections[i]);
		f->way->next(f, &f->connections[i], NULL);
	}
}

_Noreturn static void burn(void)
{
	for (volatile unsigned n = 0;; n++)
		;
}

/* A flood that has begun would keep the other processes from opening theirs. */
static void wait_for_others(int sock)
{
	char byte = 0;

	if (send(sock, &byte, 1, MSG_NOSIGNAL) != 1 || recv(sock, &byte, 1, 0) != 1)
		_exit(1);
}

_Noreturn static void run_process(const struct flood *flood, const struct flood_settings *s, unsigned process,
				  uint64_t *done, int sock)
{
	struct flooder f = {.settings = s, .process = process, .done = done, .way = flood ? flood->way : NULL};

	become(s->uid, s->gid);
	signal(SIGPIPE, SIG_IGN);
	f.count = (process + 1) * s->connections / s->processes - process * s->connections / s->processes;
	flooder_open_all(&f);
	if (flood && flood->way->prepare)
		flood->way->prepare(&f);
	wait_for_others(sock);
	if (flood)
		begin_flood(&f);
	wait_for_others(sock);
	if (!flood)
		burn();
	if (f.way->run)
		f.way->run(&f);
	go_on(&f);
}

/* Lets all of them go on when each has come so far. */
static void gather(const int *socks, unsigned count)
{
	char byte = 0;

	for (unsigned i = 0; i < count; i++)
		if (recv(socks[i], &byte, 1, 0) != 1)
			DIE("a process of the flood has ended");
	for (unsigned i = 0; i < count; i++)
		if (send(socks[i], &byte, 1, MSG_NOSIGNAL) != 1)
			DIE("a process of the flood has ended");
}

struct flooders flooders_start(const struct flood *flood, const struct flood_settings *settings)
{
	struct flooders flooders = {.count = settings->processes};
	int socks[FLOOD_PROCESSES_MAX], ends[2];

	flooders.done = mmap(NULL, sizeof(uint64_t[FLOOD_PROCESSES_MAX]), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (flooders.done == MAP_FAILED)
		DIE("out of memory");
	fflush(NULL);
	for (unsigned i = 0; i < settings->processes; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
			DIE("socketpair: %s", strerror(errno));
		socks[i] = ends[0];
		flooders.pids[i] = fork();
		if (flooders.pids[i] == 0)
			run_process(flood, settings, i, &flooders.done[i], ends[1]);
		close(ends[1]);
	}
	gather(socks, settings->processes); /* all connections are open */
	gather(socks, settings->processes); /* all requests are under way */
	for (unsigned i = 0; i < settings->processes; i++)
		close(socks[i]);
	return flooders;
}

uint64_t flooders_done(const struct flooders *flooders)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < flooders->count; i++)
		sum += __atomic_load_n(&flooders->done[i], __ATOMIC_RELAXED);
	return sum;
}

void flooders_stop(struct flooders *flooders)
{
	int status;

	for (unsigned i = 0; i < flooders->count; i++)
		kill(flooders->pids[i], SIGKILL);
	for (unsigned i = 0; i < flooders->count; i++)
		if (waitpid(flooders->pids[i], &status, 0) < 0 || !WIFSIGNALED(status))
			DIE("a process of the flood ended before its time");
	munmap(flooders->done, sizeof(uint64_t[FLOOD_PROCESSES_MAX]));
	flooders->count = 0;
}
