/* get_handles beside a bare echo of one descriptor, with hand-encoded packets
 * on both sides, interleaved: ratios hold where absolute times do not.
 *
 *   handles --echo SOCKET --daemon SOCKET [--check] LABEL=REF...
 *
 * --check: exit 1 where a ratio misses its goal.
 */
#include "bench.h"

#include "lib/flags.h"
#include "lib/report.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BLOCKS 7 /* of the latency of one client, each on connections of its own */
#define ROUNDS 1000 /* in a block */
#define WARM_UP 200
#define CLIENT_CPU 0
#define OTHER_CPU 1
#define ANY_CPU (-1)
#define CLIENTS 64
#define PROCESSES 2
#define PER_CLIENT 500 /* requests: 64 * 500 leases are below the limit of 65,536 a uid */
#define REPEATS 9 /* of the throughput */
#define GOAL_P50 1.35
#define GOAL_RATE 0.75

struct latency {
	double echo_p50, echo_p99, handles_p50, handles_p99, release_p50, ratio;
};
#define LATENCY_FIGURES ((int)(sizeof(struct latency) / sizeof(double)))

static uint8_t buffer[PACKET_BYTES_MAX + 1];

static double timed_trip(int sock, const struct request *request, struct packet *packet)
{
	double start = now_us();

	round_trip(sock, request, packet);
	return now_us() - start;
}

static struct latency measure_block(const char *echo_path, const char *daemon_path, const char *ref)
{
	static double echo[ROUNDS], handles[ROUNDS], release[ROUNDS];
	struct packet packet = {.data = buffer};
	struct request get, give;
	int echo_sock = connect_to(echo_path), sock = connect_and_greet(daemon_path, &packet);

	request_get_handles(ref, &get);
	for (int i = -WARM_UP; i < ROUNDS; i++) {
		int at = i < 0 ? 0 : i;

		echo[at] = timed_trip(echo_sock, &get, &packet);
		packet_drop(&packet);
		handles[at] = timed_trip(sock, &get, &packet);
		request_release(answer_u64(&packet, "lease"), &give);
		packet_drop(&packet);
		release[at] = timed_trip(sock, &give, &packet);
		answer_u64(&packet, NULL);
	}
	close(echo_sock);
	close(sock);
	return (struct latency){
		.echo_p50 = percentile(echo, ROUNDS, 0.5),
		.echo_p99 = percentile(echo, ROUNDS, 0.99),
		.handles_p50 = percentile(handles, ROUNDS, 0.5),
		.handles_p99 = percentile(handles, ROUNDS, 0.99),
		.release_p50 = percentile(release, ROUNDS, 0.5),
		.ratio = percentile(handles, ROUNDS, 0.5) / percentile(echo, ROUNDS, 0.5),
	};
}

/* Where client and servers run moves a round trip by a factor of three, and the
 * scheduler may choose differently for the two servers: so the choice is made here. */
static void place(const char *path, int cpu)
{
	struct ucred peer = {.pid = 0};
	socklen_t bytes = sizeof(peer);
	int sock = path ? connect_to(path) : -1;
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (cpu == ANY_CPU || i == cpu)
			CPU_SET(i, &set);
	if (path && getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		DIE("SO_PEERCRED: %s", strerror(errno));
	if (sched_setaffinity(peer.pid, sizeof(set), &set) < 0)
		DIE("placing process %d on processor %d: %s", peer.pid, cpu, strerror(errno));
	if (sock >= 0)
		close(sock);
}

/* Each figure is the median of the blocks'. */
static struct latency measure_latency(const char *echo_path, const char *daemon_path, const char *ref,
				      int server_cpu)
{
	double values[LATENCY_FIGURES][BLOCKS];
	union {
		struct latency latency;
		double figures[LATENCY_FIGURES];
	} u;

	place(NULL, CLIENT_CPU);
	place(echo_path, server_cpu);
	place(daemon_path, server_cpu);
	for (int block = 0; block < BLOCKS; block++) {
		u.latency = measure_block(echo_path, daemon_path, ref);
		for (int i = 0; i < LATENCY_FIGURES; i++)
			values[i][block] = u.figures[i];
	}
	for (int i = 0; i < LATENCY_FIGURES; i++)
		u.figures[i] = percentile(values[i], BLOCKS, 0.5);
	place(NULL, ANY_CPU);
	place(echo_path, ANY_CPU);
	place(daemon_path, ANY_CPU);
	return u.latency;
}

struct crowd {
	int epoll;
	int socks[CLIENTS];
	unsigned left[CLIENTS]; /* requests to be sent */
	unsigned count, answers;
};

static void crowd_gather(struct crowd *crowd, const char *path, bool greet, unsigned count)
{
	struct packet packet = {.data = buffer};

	*crowd = (struct crowd){.epoll = epoll_create1(EPOLL_CLOEXEC), .count = count};
	for (unsigned i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

		crowd->socks[i] = greet ? connect_and_greet(path, &packet) : connect_to(path);
		crowd->left[i] = PER_CLIENT;
		if (epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, crowd->socks[i], &event) < 0)
			DIE("epoll: %s", strerror(errno));
	}
}

static void crowd_send(struct crowd *crowd, unsigned client, const struct request *request)
{
	if (crowd->left[client] == 0)
		return;
	crowd->left[client]--;
	send_request(crowd->socks[client], request);
}

/* Every client has one request under way until each has had PER_CLIENT answers. */
static void crowd_run(struct crowd *crowd, const struct request *request)
{
	struct packet packet = {.data = buffer};
	struct epoll_event events[CLIENTS];

	for (unsigned i = 0; i < crowd->count; i++)
		crowd_send(crowd, i, request);
	while (crowd->answers < crowd->count * PER_CLIENT) {
		int n = epoll_wait(crowd->epoll, events, CLIENTS, CALL_TIMEOUT_MS);

		if (n <= 0)
			DIE("no answers in %d ms", CALL_TIMEOUT_MS);
		for (int i = 0; i < n; i++) {
			unsigned client = events[i].data.u32;

			if (packet_receive(crowd->socks[client], true, &packet) != 1)
				DIE("a connection ended");
			/* Only an error comes without a descriptor. */
			if (packet.fd_count == 0)
				answer_u64(&packet, "lease");
			packet_drop(&packet);
			crowd->answers++;
			crowd_send(crowd, client, request);
		}
	}
}

struct span {
	double start, end;
};

/* A process of the crowd: ready, wait for the start, run, tell when. */
_Noreturn static void crowd_process(int sock, const char *path, bool greet, const struct request *request)
{
	struct crowd crowd;
	struct span span;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crowd_gather(&crowd, path, greet, CLIENTS / PROCESSES);
	if (send(sock, &byte, 1, 0) != 1 || recv(sock, &byte, 1, 0) != 1)
		_exit(1);
	span.start = now_us();
	crowd_run(&crowd, request);
	span.end = now_us();
	/* Not exit: the table's buffered beginning is the parent's. */
	_exit(send(sock, &span, sizeof(span), 0) != sizeof(span));
}

/* Requests a second with CLIENTS connections. */
static double measure_rate(const char *path, bool greet, const struct request *request)
{
	struct span span, all = {.start = 0};
	int socks[PROCESSES], ends[2], status;
	char byte = 0;

	for (int i = 0; i < PROCESSES; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
			DIE("socketpair: %s", strerror(errno));
		socks[i] = ends[0];
		if (fork() == 0)
			crowd_process(ends[1], path, greet, request);
		close(ends[1]);
	}
	for (int i = 0; i < PROCESSES; i++)
		if (recv(socks[i], &byte, 1, 0) != 1)
			DIE("a measuring process ended");
	for (int i = 0; i < PROCESSES; i++)
		if (send(socks[i], &byte, 1, MSG_NOSIGNAL) != 1)
			DIE("a measuring process ended");
	for (int i = 0; i < PROCESSES; i++) {
		if (recv(socks[i], &span, sizeof(span), 0) != sizeof(span))
			DIE("a measuring process ended");
		all.start = i == 0 || span.start < all.start ? span.start : all.start;
		all.end = i == 0 || span.end > all.end ? span.end : all.end;
		close(socks[i]);
	}
	while (wait(&status) > 0)
		;
	return CLIENTS * PER_CLIENT / (all.end - all.start) * 1e6;
}

static void report_latency(const char *place_name, struct latency l)
{
	result(l.handles_p50, "us", "p50, %s; p99 %.1f; echo %.1f, %.1f; release %.1f", place_name,
	       l.handles_p99, l.echo_p50, l.echo_p99, l.release_p50);
	result_at_most(l.ratio, GOAL_P50, "x", "p50 / echo's p50, %s", place_name);
}

/* Medians of interleaved pairs: a virtual machine's processors come and go, for both alike. */
static void report_rate(const char *echo, const char *daemon, const char *ref)
{
	double echo_rates[REPEATS], rates[REPEATS], ratios[REPEATS];
	struct request get;

	request_get_handles(ref, &get);
	for (int i = 0; i < REPEATS; i++) {
		echo_rates[i] = measure_rate(echo, false, &get);
		rates[i] = measure_rate(daemon, true, &get);
		ratios[i] = rates[i] / echo_rates[i];
	}
	result(percentile(rates, REPEATS, 0.5), "/s", "requests of %d clients; echo %.0f", CLIENTS,
	       percentile(echo_rates, REPEATS, 0.5));
	result_at_least(percentile(ratios, REPEATS, 0.5), GOAL_RATE, "x", "requests / echo's");
}

static void measure(const char *echo, const char *daemon, const char *label, const char *ref)
{
	heading("get_handles beside a bare uv_poll server that passes one descriptor: %s", label);
	report_latency("same processor", measure_latency(echo, daemon, ref, CLIENT_CPU));
	if (sysconf(_SC_NPROCESSORS_ONLN) > OTHER_CPU)
		report_latency("another processor", measure_latency(echo, daemon, ref, OTHER_CPU));
	report_rate(echo, daemon, ref);
}

int main(int argc, char **argv)
{
	const char *echo = NULL, *daemon = NULL;
	bool check = false;
	const struct flag flags[] = {
		{"echo", .text = &echo}, {"daemon", .text = &daemon}, {"check", .set = &check}, {0}};

	flags_read(argc, argv, flags);
	if (!echo || !daemon)
		DIE("usage: handles --echo SOCKET --daemon SOCKET [--check] LABEL=REF...");
	for (; optind < argc; optind++) {
		char *ref = strchr(argv[optind], '=');

		if (!ref)
			DIE("LABEL=REF: %s", argv[optind]);
		*ref++ = 0;
		measure(echo, daemon, argv[optind], ref);
	}
	return check && results_missed() > 0;
}
