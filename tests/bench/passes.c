/* What part of a request its reading is. gpuwmd reads a packet in three passes: the scan, msgpack-c's tree, and the search for each
 * field. Each pass is timed in a loop, on a recorded packet, between rounds of the whole requests on the same machine: the ratios hold
 * where absolute times do not.
 *
 *   passes --socket SOCKET REF
 */
#include "bench.h"

#include "lib/flags.h"
#include "lib/report.h"

#include "proto/wire/messages_lease.h"
#include "proto/wire/messages_session.h"
#include "proto/wire/record.h"

#include <stdalign.h>
#include <stddef.h>

#define BLOCKS 21 /* each figure is the median of the blocks' */
#define ROUNDS 1000 /* requests in a block */
#define READS 50000 /* of the packet in a block, by each pass */

enum figure { SCAN, TREE, FIELDS, PROCESSOR, ROUND_TRIP, FIGURES };

static uint8_t buffer[PACKET_BYTES_MAX + 1];

static void request_ping(struct request *ret)
{
	struct message_writer w;

	message_writer_init(&w, sizeof(ret->data));
	message_request(&w, REQUEST_ID, "ping");
	message_end(&w);
	request_finish(&w, ret);
}

static double processor_us(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time) < 0)
		DIE("a clock of processor time: %s", strerror(errno));
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Reads the packet as far as `last`. Returns the microseconds of processor time: others may want the processor. */
static double read_until(const struct request *request, const struct record *params, enum figure last)
{
	alignas(max_align_t) char ret[RECORD_BYTES_MAX];
	const double start = processor_us(CLOCK_PROCESS_CPUTIME_ID);
	struct message message;
	struct error error;
	const char *why;
	int r = 0;

	for (unsigned i = 0; i < READS && r == 0; i++) {
		if (last == SCAN) {
			r = message_scan(request->data, request->bytes, MESSAGE_ELEMENTS_MAX, &why);
			continue;
		}
		r = message_read_bounded(request->data, request->bytes, &message, &why);
		if (r == 0 && last == FIELDS)
			r = record_read(params, &message, ret, &error);
		message_clear(&message);
	}
	if (r < 0)
		DIE("a request that can't be read");
	return (processor_us(CLOCK_PROCESS_CPUTIME_ID) - start) / READS;
}

static clockid_t clock_of(int sock)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	clockid_t clock;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 ||
	    clock_getcpuclockid(peer.pid, &clock) != 0)
		DIE("gpuwmd's processor time can't be read");
	return clock;
}

/* A block of requests. The leases are given back afterwards, outside of what is timed. */
static void ask(int sock, const struct request *request, bool leases, double figures[FIGURES])
{
	static double trips[ROUNDS];
	static uint64_t held[ROUNDS];
	struct packet packet = {.data = buffer};
	const clockid_t clock = clock_of(sock);
	const double before = processor_us(clock);
	struct request give;

	for (unsigned i = 0; i < ROUNDS; i++) {
		const double start = now_us();

		round_trip(sock, request, &packet);
		trips[i] = now_us() - start;
		held[i] = answer_u64(&packet, leases ? "lease" : NULL);
		packet_drop(&packet);
	}
	figures[PROCESSOR] = (processor_us(clock) - before) / ROUNDS;
	figures[ROUND_TRIP] = percentile(trips, ROUNDS, 0.5);
	for (unsigned i = 0; leases && i < ROUNDS; i++) {
		request_release(held[i], &give);
		round_trip(sock, &give, &packet);
		answer_u64(&packet, NULL);
		packet_drop(&packet);
	}
}

static void measure(const char *socket, const struct request *request, const struct message_form *form,
		    bool leases)
{
	static const char *const names[] = {"the scan", "msgpack-c's tree", "the fields"};
	struct packet packet = {.data = buffer};
	double values[FIGURES][BLOCKS], figures[FIGURES], all = 0;
	int sock = connect_and_greet(socket, &packet);

	for (unsigned block = 0; block < BLOCKS; block++) {
		for (unsigned last = SCAN; last <= FIELDS; last++)
			figures[last] = read_until(request, form->params, last);
		ask(sock, request, leases, figures);
		for (unsigned i = 0; i < FIGURES; i++)
			values[i][block] = figures[i] - (i == TREE || i == FIELDS ? figures[i - 1] : 0);
	}
	close(sock);
	for (unsigned i = 0; i < FIGURES; i++)
		figures[i] = percentile(values[i], BLOCKS, 0.5);
	heading("%s, %zu bytes: %.2f us of gpuwmd's processor time, %.2f us from request to answer", form->name,
		request->bytes, figures[PROCESSOR], figures[ROUND_TRIP]);
	for (unsigned i = SCAN; i <= FIELDS; i++) {
		result(figures[i], "us", "%s", names[i]);
		all += figures[i];
	}
	result(100 * all / figures[PROCESSOR], "%", "all three, of the processor time");
	result(100 * all / figures[ROUND_TRIP], "%", "all three, of the time from request to answer");
	result(100 * figures[TREE] / figures[PROCESSOR], "%", "the tree alone, of the processor time");
}

int main(int argc, char **argv)
{
	const char *socket = NULL;
	const struct flag flags[] = {{"socket", .text = &socket}, {0}};
	struct request request;

	flags_read(argc, argv, flags);
	if (!socket || optind + 1 != argc)
		DIE("usage: passes --socket SOCKET REF");
	request_ping(&request);
	measure(socket, &request, &form_ping, false);
	request_get_handles(argv[optind], &request);
	measure(socket, &request, &form_get_handles, true);
	return 0;
}
