/* A limit of time bounds a whole command of gpuwmctl, whichever of its requests gpuwmd does not answer. */
#include "raw.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_limit);

/* ---- a gpuwmd that stops answering ------------------------------------------ */

/* Of one command: its client, its events, and those of the library. */
#define LINKS_MAX 8
enum { POLLED_END, POLLED_LISTENER, POLLED_LINKS };

/* Stands before gpuwmd, and passes requests on as long as it answers. Afterwards it goes on taking connections and requests. */
struct mute {
	char folder[80], socket[96]; /* for --socket; the operators' socket lies beside */
	const char *to; /* gpuwmd's */
	unsigned answered; /* how many requests reach gpuwmd, hello included */
	unsigned asked; /* how many came */
	int listener, end;
	pthread_t thread;
	struct link {
		int client, gpuwmd;
	} links[LINKS_MAX];
	size_t link_count;
};

static void link_add(struct mute *mute)
{
	const int client = accept4(mute->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	cr_assert_geq(client, 0);
	cr_assert_lt(mute->link_count, LINKS_MAX);
	mute->links[mute->link_count++] = (struct link){client, raw_connect(mute->to)};
}

static void link_close(struct link *link)
{
	close(link->client);
	close(link->gpuwmd);
	*link = (struct link){-1, -1};
}

/* Passes one packet on if there is one. Returns false at the end of the connection. */
static bool packet_pass(int from, int to, bool drop_it)
{
	static uint8_t data[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = data};
	const int r = packet_receive(from, true, &packet);

	if (r == 1 && !drop_it)
		packet_send(to, data, packet.bytes, packet.fds, packet.fd_count);
	packet_drop(&packet);
	return r == 1 || r == -EAGAIN;
}

static void link_look(struct mute *mute, struct link *link, bool asks, bool answers)
{
	bool goes_on = true;

	if (asks) {
		goes_on = packet_pass(link->client, link->gpuwmd, mute->asked >= mute->answered);
		mute->asked += goes_on;
	}
	if (goes_on && answers)
		goes_on = packet_pass(link->gpuwmd, link->client, false);
	if (!goes_on)
		link_close(link);
}

static void *mute_run(void *user_data)
{
	struct mute *mute = user_data;
	struct pollfd polled[POLLED_LINKS + 2 * LINKS_MAX];

	for (;;) {
		const size_t count = mute->link_count;

		polled[POLLED_END] = (struct pollfd){.fd = mute->end, .events = POLLIN};
		polled[POLLED_LISTENER] = (struct pollfd){.fd = mute->listener, .events = POLLIN};
		for (size_t i = 0; i < count; i++) {
			polled[POLLED_LINKS + 2 * i] =
				(struct pollfd){.fd = mute->links[i].client, .events = POLLIN};
			polled[POLLED_LINKS + 2 * i + 1] =
				(struct pollfd){.fd = mute->links[i].gpuwmd, .events = POLLIN};
		}
		poll(polled, POLLED_LINKS + 2 * count, -1);
		if (polled[POLLED_END].revents)
			return NULL;
		for (size_t i = 0; i < count; i++)
			link_look(mute, &mute->links[i], polled[POLLED_LINKS + 2 * i].revents,
				  polled[POLLED_LINKS + 2 * i + 1].revents);
		if (polled[POLLED_LISTENER].revents)
			link_add(mute);
	}
}

static void mute_begin(struct mute *mute, const struct gpuwmd *d, unsigned answered)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*mute = (struct mute){.to = d->admin_socket, .answered = answered};
	snprintf(mute->folder, sizeof mute->folder, "%s/mute", d->dir);
	snprintf(mute->socket, sizeof mute->socket, "%s/gpuwm.sock", mute->folder);
	snprintf(address.sun_path, sizeof address.sun_path, "%s/admin.sock", mute->folder);
	mkdir(mute->folder, 0700);
	unlink(address.sun_path);
	mute->end = eventfd(0, EFD_CLOEXEC);
	mute->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	cr_assert(mute->end >= 0 && mute->listener >= 0);
	cr_assert_eq(bind(mute->listener, (const struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(mute->listener, LINKS_MAX), 0);
	cr_assert_eq(pthread_create(&mute->thread, NULL, mute_run, mute), 0);
}

static void mute_end(struct mute *mute)
{
	eventfd_write(mute->end, 1);
	pthread_join(mute->thread, NULL);
	for (size_t i = 0; i < mute->link_count; i++)
		if (mute->links[i].client >= 0)
			link_close(&mute->links[i]);
	close(mute->listener);
	close(mute->end);
}

/* ---- the limit --------------------------------------------------------------- */

/* How much later than the end of its limit a command may end on a machine that is idle: after that end an answer may take
 * ANSWER_SLACK_MS, and gpuwmctl starts and ends. */
#define LATE_MS (ANSWER_SLACK_MS + 500)
/* A busy machine may be late by more once. What is always late is so each time. */
#define TRIES 3
/* No command of these tests asks as often: it would be stuck in a loop. */
#define REQUESTS_MAX 40

/* Runs gpuwmctl with these words again and again: gpuwmd answers no request, then the first one, then two, and so on, until it answers
 * all. Each run must end within the limit, with exit code 7 if something was not answered, else with `last`. */
#define ENDS_IN_TIME(d, limit_ms, last, ...)                                                                   \
	do {                                                                                                   \
		bool is_whole_ = false;                                                                        \
		for (unsigned answered_ = 0; !is_whole_; answered_++) {                                        \
			int64_t took_ms_ = INT64_MAX;                                                          \
			cr_assert_lt(answered_, REQUESTS_MAX);                                                 \
			for (int i = 0; i < TRIES && took_ms_ > (limit_ms) + LATE_MS; i++) {                   \
				struct mute mute_;                                                             \
				const int64_t before_ = clock_ms();                                            \
				int code_;                                                                     \
				mute_begin(&mute_, d, answered_);                                              \
				code_ = CTL("--socket", mute_.socket, __VA_ARGS__);                            \
				took_ms_ = clock_ms() - before_;                                               \
				mute_end(&mute_);                                                              \
				is_whole_ = mute_.asked <= answered_;                                          \
				cr_expect_eq(code_, is_whole_ ? (last) : 7, "%d after %u of %u requests: %s",  \
					     code_, answered_, mute_.asked, output);                           \
			}                                                                                      \
			cr_expect_leq(took_ms_, (limit_ms) + LATE_MS, "%lld ms with %u requests answered: %s", \
				      (long long)took_ms_, answered_, output);                                 \
		}                                                                                              \
	} while (0)

GPUWMD_TEST(ctl_limit, of_a_wait)
{
	load_small(d, 1);
	ENDS_IN_TIME(d, 300, 7, "wait", "m@v2", "--for", "ready", "--timeout", "300ms");
	ENDS_IN_TIME(d, 300, 7, "wait", "m@v1", "--for", "freed", "--timeout", "300ms");
	SAYS("m@v1 is ready, and nobody has retired it\n");
	ENDS_IN_TIME(d, 300, 0, "wait", "m@v1", "--for", "ready", "--timeout", "300ms");
	ENDS_IN_TIME(d, 300, 4, "wait", "00000000000000000000000000000000", "--for", "ready", "--timeout",
		     "300ms");
	DROP(d, "m@v1");
}

/* 0 is a limit, too: a gpuwmd that is well has the time for its answers. */
GPUWMD_TEST(ctl_limit, of_a_look)
{
	load_small(d, 1);
	ENDS_IN_TIME(d, 0, 7, "wait", "m@v2", "--for", "ready", "--timeout", "0");
	ENDS_IN_TIME(d, 0, 0, "wait", "m@v1", "--for", "ready", "--timeout", "0");
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(ctl_limit, of_a_retire, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop_empty)
{
	struct process worker = worker_start(d, "m@v1", 1);

	ENDS_IN_TIME(d, 0, 4, "retire", "n@v1", "--wait", "0");
	ENDS_IN_TIME(d, 0, 0, "retire", "m@v1", "--aliases", "--wait", "0");
	SAYS("m@v1 is retiring already: 1 lease holds it");
	ENDS_IN_TIME(d, 1000, 7, "retire", "m@v1", "--wait", "1");
	process_tell(&worker, 'd');
	process_finish(&worker);
	/* The run whose last look got no answer has freed it. */
	ENDS_IN_TIME(d, 1000, 4, "retire", "m@v2", "--wait", "1");
	SAYS("no model \"m\"\n");
}

/* The kernel takes the connection, and nobody reads it. */
GPUWMD_TEST(ctl_limit, of_a_gpuwmd_that_is_stopped)
{
	int64_t took_ms = INT64_MAX;

	load_small(d, 1);
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	for (int i = 0; i < TRIES && took_ms > LATE_MS; i++) {
		const int64_t before = clock_ms();

		CTL_IS(7, "wait", "m@v1", "--for", "ready", "--timeout", "0");
		CTL_IS(7, "retire", "m@v1", "--wait", "0");
		took_ms = (clock_ms() - before) / 2;
	}
	cr_expect_leq(took_ms, LATE_MS, "%lld ms", (long long)took_ms);
	cr_assert_eq(kill(d->pid, SIGCONT), 0);
	DROP(d, "m@v1");
}
