/* What a good worker of one user notices of another user's floods, each beside a control in which as many
 * connections idle and as many processes burn time. Needs root, to be both users.
 *
 *   fairness [--bin FOLDER] [--connections N,N...] [--processes N] [--rounds N] [--seconds S] [--check] [FLOOD...]
 *
 * --check: exits with 1 where a goal is missed. Without names of floods it runs all.
 * --bounded: a short form with wide margins, for `make check`: exits with 1 where one of them is missed each time.
 * Without root it says so and exits with 77.
 */
#include "bench.h"

#include "lib/flood.h"
#include "lib/good_worker.h"
#include "lib/operate.h"
#include "lib/publish.h"
#include "lib/supervised.h"

#include <getopt.h>
#include <libgen.h>
#include <stdbool.h>
#include <sys/resource.h>

#define SKIPPED 77
#define HOSTILE_UID 65533
#define HOSTILE_GID 65534 /* may publish */
#define PUBLISH_GROUP "nogroup"
#define GOOD_UID 65532
#define REF "good@v1"

#define ROUNDS_MAX 31
#define COUNTS_MAX 8
#define LOOK_MS 10
#define SETTLE_MS 300000

/* At most so many times the control's, and so much more. */
struct goals {
	double p50_ratio, p50_more_us, p99_ratio, p99_more_us;
	double connect_us, gap_us;
};
static const struct goals goals = {2, 0, 3, 0, 20e3, 1e6};
/* What the machine's other processes do must not fail a test: a turn of the scheduler is some milliseconds, and
 * a sanitizer makes all of it slower. A gpuwmd that serves connections in turns, whosever they are, misses: with 300 of a
 * hostile user p50 was 90 ms and more. */
static const struct goals bounded_goals = {20, 40e3, 20, 500e3, 150e3, 5e6};
#define BOUNDED_ATTEMPTS 3
/* Publishes are left out: a sanitizer makes each start of a loader ten times as long. */
static const char *const bounded_floods[] = {"packets", "status", "list", "unknown", "leases", "held",
					     "unread",  "events", "deaf", "claims",  "churn"};

struct settings {
	char bin[512];
	unsigned counts[COUNTS_MAX], count_count, processes, rounds;
	double seconds;
	bool check, bounded;
	int admin; /* an operator's connection */
};

/* ---- one measurement ---- */

struct figures {
	double p50, p99, connect, gap;
	double rate; /* what the flood had answered, or connected, in a second */
};

/* Over a connection that was there before the floods. */
static uint64_t sessions(int admin)
{
	static uint8_t buffer[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = buffer};
	struct pollfd ready = {.fd = admin, .events = POLLIN};
	struct message_writer w;
	struct request request;

	message_writer_init(&w, sizeof(request.data));
	message_request(&w, REQUEST_ID, "status");
	message_end(&w);
	request_finish(&w, &request);
	send_request(admin, &request);
	if (poll(&ready, 1, SETTLE_MS) != 1 || packet_receive(admin, true, &packet) != 1)
		DIE("gpuwmd does not tell its status");
	return answer_u64(&packet, "sessions");
}

/* Until gpuwmd has let go of what the last flood's connections held. */
static void settle(int admin)
{
	double give_up = now_us() + SETTLE_MS * 1e3;

	while (sessions(admin) > 1) {
		if (now_us() > give_up)
			DIE("gpuwmd still has connections of processes that are gone");
		usleep(LOOK_MS * 1000);
	}
}

static struct figures measure(struct supervised *gpuwmd, const struct settings *settings,
			      const struct flood *flood, unsigned connections)
{
	const struct flood_settings hostile = {.socket = gpuwmd->socket,
					       .ref = REF,
					       .uid = HOSTILE_UID,
					       .gid = HOSTILE_GID,
					       .processes = settings->processes,
					       .connections = connections};
	const struct good_worker_settings good = {.socket = gpuwmd->socket,
						  .ref = REF,
						  .uid = GOOD_UID,
						  .gid = GOOD_UID,
						  .attach_us = settings->seconds * 1e6,
						  .connect_us = settings->seconds * 1e6 / 2};
	struct good_worker *worker = good_worker_start(&good);
	struct flooders flooders = flooders_start(flood, &hostile);
	struct good_worker_times times;
	uint64_t done = flooders_done(&flooders);
	double gap, begin = now_us(), rate;

	supervised_gap_begin(gpuwmd);
	good_worker_begin(worker);
	while (!good_worker_done(worker, &times)) {
		supervised_look(gpuwmd);
		usleep(LOOK_MS * 1000);
	}
	gap = supervised_gap_us(gpuwmd);
	rate = (double)(flooders_done(&flooders) - done) / (now_us() - begin) * 1e6;
	flooders_stop(&flooders);
	settle(settings->admin);
	return (struct figures){times.attach_p50, times.attach_p99, times.connect_p50, gap, rate};
}

/* ---- one row ---- */

struct row {
	struct figures control, flood;
};

static double median_of(const double *values, unsigned count)
{
	double sorted[ROUNDS_MAX];

	memcpy(sorted, values, count * sizeof(*values));
	return percentile(sorted, count, 0.5);
}

/* Medians of the rounds, of the gap the longest. */
static struct figures summary(const struct figures *rounds, unsigned count)
{
	double p50[ROUNDS_MAX], p99[ROUNDS_MAX], connect[ROUNDS_MAX], rate[ROUNDS_MAX], gap = 0;

	for (unsigned i = 0; i < count; i++) {
		p50[i] = rounds[i].p50;
		p99[i] = rounds[i].p99;
		connect[i] = rounds[i].connect;
		rate[i] = rounds[i].rate;
		gap = rounds[i].gap > gap ? rounds[i].gap : gap;
	}
	return (struct figures){median_of(p50, count), median_of(p99, count), median_of(connect, count), gap,
				median_of(rate, count)};
}

/* Control and flood in turns. */
static struct row measure_row(struct supervised *gpuwmd, const struct settings *settings,
			      const struct flood *flood, unsigned connections)
{
	struct figures controls[ROUNDS_MAX], flooded[ROUNDS_MAX];

	for (unsigned i = 0; i < settings->rounds; i++) {
		controls[i] = measure(gpuwmd, settings, NULL, connections);
		flooded[i] = measure(gpuwmd, settings, flood, connections);
	}
	return (struct row){summary(controls, settings->rounds), summary(flooded, settings->rounds)};
}

/* ---- the table ---- */

static void print_head(const struct settings *s)
{
	printf("A good worker beside %u hostile process%s of another user: medians of %u rounds, in turns, of %g s; times in ms\n\n",
	       s->processes, s->processes == 1 ? "" : "es", s->rounds, s->seconds);
	printf("| flood | connections | p50: control | flood | x | p99: control | flood | x "
	       "| reconnect: control | flood | longest gap of pings | flood, a second | missed |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

/* What exceeds its goal, as words for the table. */
static unsigned print_missed(const struct row *row, const struct goals *g)
{
	const struct {
		const char *what;
		bool missed;
	} all[] = {
		{"p50", row->flood.p50 > g->p50_ratio * row->control.p50 + g->p50_more_us},
		{"p99", row->flood.p99 > g->p99_ratio * row->control.p99 + g->p99_more_us},
		{"reconnect", row->flood.connect > g->connect_us},
		{"gap", row->flood.gap > g->gap_us},
	};
	unsigned missed = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].missed)
			printf("%s%s", missed++ ? ", " : "", all[i].what);
	return missed;
}

static unsigned print_row(const struct flood *flood, unsigned connections, const struct row *row,
			  const struct goals *g)
{
	unsigned missed;

	printf("| %s | %u | %.2f | %.2f | %.1f | %.2f | %.2f | %.1f | %.2f | %.2f | %.0f | %.0f | ",
	       flood->what, connections, row->control.p50 / 1e3, row->flood.p50 / 1e3,
	       row->flood.p50 / row->control.p50, row->control.p99 / 1e3, row->flood.p99 / 1e3,
	       row->flood.p99 / row->control.p99, row->control.connect / 1e3, row->flood.connect / 1e3,
	       row->flood.gap / 1e3, row->flood.rate);
	missed = print_missed(row, g);
	printf(" |\n");
	fflush(stdout);
	return missed;
}

/* A test measures again what missed: a bad moment of the machine does not come three times. */
static unsigned run_row(struct supervised *gpuwmd, const struct settings *s, const struct flood *flood,
			unsigned connections)
{
	unsigned missed = 1;

	for (int attempt = 0; missed > 0 && attempt < (s->bounded ? BOUNDED_ATTEMPTS : 1); attempt++) {
		struct row row = measure_row(gpuwmd, s, flood, connections);

		missed = print_row(flood, connections, &row, s->bounded ? &bounded_goals : &goals);
	}
	return missed;
}

static unsigned run(struct supervised *gpuwmd, const struct settings *s, const struct flood *flood)
{
	unsigned missed = 0;

	for (unsigned i = 0; i < s->count_count; i++)
		missed += run_row(gpuwmd, s, flood, s->counts[i]);
	return missed;
}

static unsigned run_named(struct supervised *gpuwmd, const struct settings *s, const char *const *names,
			  size_t count)
{
	unsigned missed = 0;

	for (size_t i = 0; i < count; i++) {
		const struct flood *flood = flood_find(names[i]);

		if (!flood)
			DIE("there is no flood %s", names[i]);
		missed += run(gpuwmd, s, flood);
	}
	return missed;
}

static unsigned run_all(struct supervised *gpuwmd, const struct settings *s)
{
	unsigned missed = 0;

	for (size_t i = 0; i < flood_count; i++)
		missed += run(gpuwmd, s, &floods[i]);
	return missed;
}

/* ---- main ---- */

static void publish(const struct supervised *gpuwmd)
{
	const struct filling filling = {.name = REF, .device = "host", .bytes = 65536, .tensors = 4, .byte = 1};
	struct gpuwm_client *client = worker_connect(gpuwmd->socket);

	publish_filled(client, &filling);
	gpuwm_close(client);
}

static void raise_descriptors(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void default_bin(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	path[n > 0 ? n : 0] = 0;
	for (int i = 0; i < 3; i++)
		dirname(path);
	strncat(path, "/bin", size - strlen(path) - 1);
}

static void parse_counts(const char *text, struct settings *s)
{
	for (s->count_count = 0; *text && s->count_count < COUNTS_MAX;
	     text += strcspn(text, ","), text += *text == ',')
		s->counts[s->count_count++] = (unsigned)strtoul(text, NULL, 10);
}

static void parse(int argc, char **argv, struct settings *s)
{
	static const struct option options[] = {
		{"bin", required_argument, NULL, 'b'},       {"connections", required_argument, NULL, 'n'},
		{"processes", required_argument, NULL, 'p'}, {"rounds", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'},   {"bounded", no_argument, NULL, 'q'},
		{"check", no_argument, NULL, 'c'},           {0}};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'b':
			snprintf(s->bin, sizeof(s->bin), "%s", optarg);
			break;
		case 'n':
			parse_counts(optarg, s);
			break;
		case 'p':
			s->processes = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			s->rounds = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 's':
			s->seconds = strtod(optarg, NULL);
			break;
		case 'q':
			s->bounded = true;
			s->rounds = 1;
			s->seconds = 0.4;
			parse_counts("300", s);
			break;
		case 'c':
			s->check = true;
			break;
		default:
			exit(2);
		}
	}
	if (s->processes < 1 || s->processes > FLOOD_PROCESSES_MAX || s->rounds < 1 || s->rounds > ROUNDS_MAX)
		DIE("1 to %d processes and 1 to %d rounds are possible", FLOOD_PROCESSES_MAX, ROUNDS_MAX);
}

int main(int argc, char **argv)
{
	struct settings s = {
		.counts = {300, 6000}, .count_count = 2, .processes = 2, .rounds = 3, .seconds = 1};
	uint8_t *buffer = malloc(PACKET_BYTES_MAX + 1);
	struct packet packet = {.data = buffer};
	struct supervised *gpuwmd;
	unsigned missed = 0;

	default_bin(s.bin, sizeof(s.bin));
	parse(argc, argv, &s);
	if (geteuid() != 0) {
		printf("skipped: only root can be two other users\n");
		return SKIPPED;
	}
	raise_descriptors();
	gpuwmd = supervised_start(s.bin, PUBLISH_GROUP);
	publish(gpuwmd);
	s.admin = connect_and_greet(gpuwmd->admin, &packet);
	free(buffer);
	print_head(&s);
	if (optind < argc)
		missed = run_named(gpuwmd, &s, (const char *const *)argv + optind, (size_t)(argc - optind));
	else if (s.bounded)
		missed =
			run_named(gpuwmd, &s, bounded_floods, sizeof(bounded_floods) / sizeof(*bounded_floods));
	else
		missed = run_all(gpuwmd, &s);
	supervised_stop(gpuwmd);
	if (s.bounded && missed > 0)
		printf("FAIL: %u of the figures above missed their bounds %d times\n", missed,
		       BOUNDED_ATTEMPTS);
	return (s.check || s.bounded) && missed > 0;
}
