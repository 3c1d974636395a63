/* What a packet costs gpuwmd before a method sees it: the scan, msgpack-c's unpacking, and giving the memory
 * back. The costliest packets beside the usual ones, each of 65,536 bytes at most.
 *
 *   packets [--check]
 */
#include "bench.h"

#include "lib/report.h"

#include <stdbool.h>

#define ROUNDS 301
#define MAP_KEYS MESSAGE_MAP_MAX
#define GOAL_US 200 /* of a core: a get_handles with its system calls takes 15 */

struct made {
	uint8_t data[PACKET_BYTES_MAX];
	size_t bytes;
};

static void put(struct made *p, const void *data, size_t bytes)
{
	if (p->bytes + bytes > sizeof(p->data))
		DIE("a packet does not fit");
	memcpy(p->data + p->bytes, data, bytes);
	p->bytes += bytes;
}

static void put_u16(struct made *p, uint8_t head, unsigned value)
{
	uint8_t bytes[] = {head, (uint8_t)(value >> 8), (uint8_t)value};

	put(p, bytes, sizeof(bytes));
}

/* A ping with one unknown parameter: an array of `count` elements, which the caller writes. */
static void begin_ping(struct made *p, unsigned count)
{
	static const char head[] = "\x94\x00\x07\xa4ping\x91\x81\xa1x";

	p->bytes = 0;
	put(p, head, sizeof(head) - 1);
	put_u16(p, 0xdc, count);
}

/* A map whose keys have all the same length and differ in their ends only. */
static void put_map(struct made *p, unsigned keys, unsigned key_bytes)
{
	uint8_t key[300];

	put_u16(p, 0xde, keys);
	memset(key, 'k', sizeof(key));
	for (unsigned i = 0; i < keys; i++) {
		uint8_t head[] = {0xd9, (uint8_t)key_bytes};

		key[key_bytes - 1] = (uint8_t)i;
		put(p, head, sizeof(head));
		put(p, key, key_bytes);
		put(p, "\xc0", 1);
	}
}

/* As many maps as the packet holds, and as many elements as may be. */
static void make_maps(struct made *p, unsigned keys, unsigned key_bytes, uint64_t elements_max)
{
	uint64_t by_bytes = (PACKET_BYTES_MAX - 32) / (3 + keys * (key_bytes + 3u));
	uint64_t by_elements = (elements_max - 16) / (1 + 2 * keys);
	unsigned maps = (unsigned)(by_bytes < by_elements ? by_bytes : by_elements);

	begin_ping(p, maps);
	for (unsigned i = 0; i < maps; i++)
		put_map(p, keys, key_bytes);
}

static void make_values(struct made *p, unsigned count)
{
	begin_ping(p, count);
	for (unsigned i = 0; i < count; i++)
		put(p, "\xc0", 1);
}

static void make_resume(struct made *p)
{
	static const uint8_t id[16] = {1};
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, REQUEST_ID, "resume");
	message_begin_array(&w, "leases");
	for (unsigned i = 0; i < RESUME_LEASES_MAX; i++) {
		message_begin_map(&w, NULL);
		message_put_hex128(&w, "version", id);
		message_put_text(&w, "device", "GPU-00000000-0000-0000-0000-000000000000");
		message_put_u64(&w, "rank", i);
		message_end(&w);
	}
	message_end(&w);
	message_end(&w);
	if (message_finish(&w) < 0)
		DIE("a resume does not fit");
	p->bytes = 0;
	put(p, w.buffer.data, w.buffer.size);
	message_writer_clear(&w);
}

static double read_us(const struct made *p)
{
	double times[ROUNDS];
	struct message message;
	const char *why;

	for (int i = 0; i < ROUNDS; i++) {
		double start = now_us();

		message_read_bounded(p->data, p->bytes, &message, &why);
		message_clear(&message);
		times[i] = now_us() - start;
	}
	return percentile(times, ROUNDS, 0.5);
}

static void measure(const struct made *p, const char *what)
{
	struct message message;
	const char *why;
	int r = message_read_bounded(p->data, p->bytes, &message, &why);

	message_clear(&message);
	result_at_most(read_us(p), GOAL_US, "us", "%s, %zu bytes%s", what, p->bytes, r < 0 ? ": refused" : "");
}

int main(int argc, char **argv)
{
	static struct made packet;

	heading("reading a packet, median of %d", ROUNDS);
	begin_ping(&packet, 0);
	measure(&packet, "a ping");
	make_resume(&packet);
	measure(&packet, "a resume of 256 leases");
	make_maps(&packet, MAP_KEYS, 1, MESSAGE_ELEMENTS_MAX);
	measure(&packet, "maps of 256 short keys, as many as may be");
	make_maps(&packet, 16, 1, MESSAGE_ELEMENTS_MAX);
	measure(&packet, "maps of 16 short keys, as many as may be");
	make_maps(&packet, MAP_KEYS, 1, PACKET_BYTES_MAX);
	measure(&packet, "maps of 256 short keys");
	make_maps(&packet, MAP_KEYS, 60, PACKET_BYTES_MAX);
	measure(&packet, "maps of 256 keys of 60 bytes");
	make_maps(&packet, MAP_KEYS, 240, PACKET_BYTES_MAX);
	measure(&packet, "maps of 256 keys of 240 bytes");
	make_values(&packet, 4000);
	measure(&packet, "4,000 values of a byte");
	make_values(&packet, PACKET_BYTES_MAX - 32);
	measure(&packet, "values of a byte");
	return argc > 1 && strcmp(argv[1], "--check") == 0 && results_missed() > 0;
}
