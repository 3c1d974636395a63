#include "good_worker.h"

#include "../bench.h"
#include "flood.h"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define SAMPLES_MAX 400000
#define PAUSE_US 1000

/* Shared with its process. */
#define RECONNECT_PAUSE_US 5000 /* gpuwmd takes a thousand connections a second of one user */

struct good_worker {
	pid_t pid;
	int sock; /* to it */
	struct good_worker_settings settings;
	struct good_worker_times times;
};

/* Of one kind, in a time. */
struct series {
	double *us;
	size_t count;
	double end;
};

static struct series series_begin(double us)
{
	struct series series = {.us = malloc(SAMPLES_MAX * sizeof(double)), .end = now_us() + us};

	if (!series.us)
		DIE("out of memory");
	return series;
}

/* True: go on, after a pause. Without one the times at which nothing is in the way would have all of the samples. */
static bool series_add(struct series *series, double us)
{
	series->us[series->count++] = us;
	usleep(PAUSE_US);
	return us < GOOD_WORKER_WAIT_US && series->count < SAMPLES_MAX && now_us() < series->end;
}

/* False: no answer came in GOOD_WORKER_WAIT_US. */
static bool ask(int sock, const struct request *request, struct packet *packet)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};

	send_request(sock, request);
	if (poll(&ready, 1, (int)(GOOD_WORKER_WAIT_US / 1e3)) != 1)
		return false;
	if (packet_receive(sock, true, packet) != 1)
		DIE("the good worker's connection has ended");
	return true;
}

static double attach_and_release(int sock, const struct request *get, struct packet *packet)
{
	double start = now_us();
	struct request give;

	if (!ask(sock, get, packet))
		return GOOD_WORKER_WAIT_US;
	request_release(answer_u64(packet, "lease"), &give);
	packet_drop(packet);
	if (!ask(sock, &give, packet))
		return GOOD_WORKER_WAIT_US;
	answer_u64(packet, NULL);
	return now_us() - start;
}

/* The kernel waits in connect while the backlog is full. */
static double connect_and_say_hello(const char *path, struct packet *packet)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval most = {.tv_sec = (time_t)(GOOD_WORKER_WAIT_US / 1e6)};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	double start = now_us(), took;
	struct request hello;

	request_hello(&hello);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) < 0)
		DIE("socket: %s", strerror(errno));
	if (connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0 && errno != EAGAIN)
		DIE("connect to %s: %s", path, strerror(errno));
	took = now_us() - start;
	if (took < GOOD_WORKER_WAIT_US && ask(sock, &hello, packet))
		answer_u64(packet, NULL);
	took = now_us() - start;
	close(sock);
	return took;
}

static void run(struct good_worker *worker, int parent)
{
	const struct good_worker_settings *s = &worker->settings;
	struct good_worker_times *times = &worker->times;
	static uint8_t buffer[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = buffer};
	struct series series;
	struct request get;
	int sock = connect_and_greet(s->socket, &packet);
	char byte = 0;

	if (send(parent, &byte, 1, MSG_NOSIGNAL) != 1 || recv(parent, &byte, 1, 0) != 1)
		_exit(1);
	request_get_handles(s->ref, &get);
	series = series_begin(s->attach_us);
	while (series_add(&series, attach_and_release(sock, &get, &packet)))
		;
	times->attaches = series.count;
	times->attach_p50 = percentile(series.us, series.count, 0.5);
	times->attach_p99 = percentile(series.us, series.count, 0.99);
	close(sock);
	series = series_begin(s->connect_us);
	while (series_add(&series, connect_and_say_hello(s->socket, &packet)))
		usleep(RECONNECT_PAUSE_US);
	times->connects = series.count;
	times->connect_p50 = percentile(series.us, series.count, 0.5);
}

struct good_worker *good_worker_start(const struct good_worker_settings *settings)
{
	struct good_worker *worker =
		mmap(NULL, sizeof(*worker), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ends[2];
	char byte;
	pid_t pid;

	if (worker == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		DIE("out of memory or descriptors");
	worker->settings = *settings;
	worker->sock = ends[0];
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		DIE("fork: %s", strerror(errno));
	if (pid == 0) {
		become(settings->uid, settings->gid);
		run(worker, ends[1]);
		_exit(0);
	}
	worker->pid = pid;
	close(ends[1]);
	if (recv(worker->sock, &byte, 1, 0) != 1)
		DIE("the good worker could not connect");
	return worker;
}

void good_worker_begin(struct good_worker *worker)
{
	char byte = 0;

	if (send(worker->sock, &byte, 1, MSG_NOSIGNAL) != 1)
		DIE("the good worker has ended");
}

bool good_worker_done(struct good_worker *worker, struct good_worker_times *ret)
{
	int status;
	pid_t pid = waitpid(worker->pid, &status, WNOHANG);

	if (pid == 0)
		return false;
	if (pid != worker->pid || status != 0)
		DIE("the good worker failed");
	*ret = worker->times;
	close(worker->sock);
	munmap(worker, sizeof(*worker));
	return true;
}
