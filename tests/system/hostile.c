/* Peers that send what they should not: one clear error, and nobody else notices. */
#include "raw.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

SYSTEM_SUITE(hostile);

/* A daemon with a peer that behaves, whose pings must be answered to the end. */
struct scene {
	struct gpuwmd *d;
	int good;
	size_t fds;
};

static struct scene scene_make(void)
{
	struct scene s = {.d = gpuwmd_start(NULL)};

	s.good = raw_client(s.d->socket);
	s.fds = fds_settled(s.d);
	return s;
}

static void scene_end(struct scene *s)
{
	cr_assert_eq(raw_call(s->good, METHOD_PING), 0);
	cr_assert(EVENTUALLY(SOON_MS, fds_of(s->d->pid) == s->fds), "%zu fds, not %zu", fds_of(s->d->pid),
		  s->fds);
	close(s->good);
	gpuwmd_stop_empty(s->d);
}

/* ---- packets that are no messages ------------------------------------- */

#define BYTES(text) text, sizeof(text) - 1

static const struct {
	const char *what, *data;
	size_t bytes;
} malformed[] = {
	{"five bytes that ask for 16 GiB", BYTES("\xdd\xff\xff\xff\xff")},
	{"a map of four billion entries", BYTES("\x94\x00\x02\xa4ping\x91\xdf\xff\xff\xff\xff")},
	{"a text longer than its packet", BYTES("\x94\x00\x02\xdb\xff\xff\xff\xff")},
	{"a single byte", BYTES("\xc1")},
	{"text", BYTES("GET / HTTP/1.1\r\n\r\n")},
	{"no array", BYTES("\x81\xa1x\x01")},
	{"an array cut short", BYTES("\x94\x00\x02\xa4ping")},
	{"trailing bytes", BYTES("\x94\x00\x02\xa4ping\x91\x80\x00")},
	{"an unknown type of message", BYTES("\x94\x07\x02\xa4ping\x91\x80")},
	{"params that are no map", BYTES("\x94\x00\x02\xa4ping\x91\x01")},
	{"a method that is no text", BYTES("\x94\x00\x02\x05\x91\x80")},
	{"an id that is no number", BYTES("\x94\x00\xa1x\xa4ping\x91\x80")},
	{"a map with keys that are no texts", BYTES("\x94\x00\x02\xa4ping\x91\x81\x01\x01")},
	{"duplicate keys", BYTES("\x94\x00\x02\xabget_handles\x91\x82\xa3ref\xa1m\xa3ref\xa1n")},
	{"nesting deeper than 8",
	 BYTES("\x94\x00\x02\xa4ping\x91\x81\xa1x\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x01")},
};

Test(hostile, a_packet_that_is_no_message_is_refused_and_ends_the_connection)
{
	struct scene s = scene_make();

	for (unsigned i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
		int sock = raw_client(s.d->socket);

		cr_assert_eq(raw_send_bytes(sock, malformed[i].data, malformed[i].bytes, NULL, 0), 0);
		cr_assert_eq(raw_code(sock), -EPROTO, "%s: %s", malformed[i].what, raw_refusal());
		cr_assert(raw_ended(sock), "%s: the connection goes on", malformed[i].what);
		close(sock);
	}
	scene_end(&s);
}

Test(hostile, malformed_packets_instead_of_hello)
{
	struct scene s = scene_make();

	for (unsigned i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
		int sock = raw_connect(s.d->socket);

		cr_assert_eq(raw_send_bytes(sock, malformed[i].data, malformed[i].bytes, NULL, 0), 0);
		cr_assert_eq(raw_code(sock), -EPROTO, "%s: %s", malformed[i].what, raw_refusal());
		close(sock);
	}
	scene_end(&s);
}

Test(hostile, an_oversized_packet_is_refused_with_the_limit)
{
	struct scene s = scene_make();
	static uint8_t data[100000];
	int sock = raw_client(s.d->socket);

	cr_assert_eq(send(sock, data, sizeof data, MSG_NOSIGNAL), sizeof data);
	cr_assert_eq(raw_code(sock), -EPROTO);
	cr_assert(strstr(raw_refusal(), "65536"), "%s", raw_refusal());
	cr_assert(raw_ended(sock));
	close(sock);
	scene_end(&s);
}

Test(hostile, an_empty_packet_ends_the_connection)
{
	struct scene s = scene_make();
	int sock = raw_client(s.d->socket);

	cr_assert_eq(send(sock, "", 0, MSG_NOSIGNAL), 0);
	cr_assert(raw_ended(sock));
	close(sock);
	scene_end(&s);
}

Test(hostile, a_map_of_more_than_256_entries_is_refused)
{
	struct scene s = scene_make();
	int sock = raw_client(s.d->socket);
	char packet[12 + 257 * 5] = "\x94\x00\x02\xa4ping\x91\xde\x01";
	size_t bytes = 11;

	/* A map16 of 257 entries: "000": 0 and so on. The last byte of its head is 1. */
	packet[bytes++] = 1;
	for (int i = 0; i < 257; i++)
		bytes += (size_t)snprintf(packet + bytes, 5, "\xa3%03x", i) + 1;
	cr_assert_eq(raw_send_bytes(sock, packet, bytes, NULL, 0), 0);
	cr_assert_eq(raw_code(sock), -EPROTO);
	close(sock);
	scene_end(&s);
}

Test(hostile, unknown_keys_are_skipped)
{
	struct scene s = scene_make();

	cr_assert_eq(RAW_ASK(s.good, METHOD_PING, TEXT("novelty", "of a later version")), 0, "%s",
		     raw_refusal());
	scene_end(&s);
}

/* ---- messages that are wrong ------------------------------------------ */

Test(hostile, an_unknown_method_is_refused_and_the_connection_goes_on)
{
	struct scene s = scene_make();

	cr_assert_eq(raw_call(s.good, "make_coffee"), -ENOSYS);
	cr_assert(strstr(raw_refusal(), "make_coffee"), "%s", raw_refusal());
	cr_assert_eq(raw_call(s.good, "a_method_whose_name_is_longer_than_any_that_there_is"), -ENOSYS);
	scene_end(&s);
}

Test(hostile, nothing_but_ping_works_before_hello)
{
	struct scene s = scene_make();
	int sock = raw_connect(s.d->socket);

	cr_assert_eq(raw_call(sock, METHOD_PING), 0, "%s", raw_refusal());
	cr_assert_neq(raw_call(sock, METHOD_LIST), 0);
	cr_assert(strstr(raw_refusal(), "hello"), "%s", raw_refusal());
	close(sock);
	scene_end(&s);
}

Test(hostile, a_version_that_is_not_spoken_is_refused_with_both_ranges)
{
	struct scene s = scene_make();
	int sock = raw_connect(s.d->socket);

	cr_assert_eq(RAW_ASK(sock, METHOD_HELLO, NUMBER("protocol_min", 700), NUMBER("protocol_max", 701),
			     TEXT("client", "from the future")),
		     -EPROTONOSUPPORT);
	cr_assert(strstr(raw_refusal(), "700") && strstr(raw_refusal(), "1"), "%s", raw_refusal());
	close(sock);
	scene_end(&s);
}

Test(hostile, wrong_types_and_missing_parameters_are_named)
{
	struct scene s = scene_make();

	cr_assert_eq(RAW_ASK(s.good, METHOD_GET_HANDLES, NUMBER("ref", 7)), -EINVAL);
	cr_assert(strstr(raw_refusal(), "ref"), "%s", raw_refusal());
	cr_assert_eq(raw_call(s.good, METHOD_RELEASE), -EINVAL);
	cr_assert(strstr(raw_refusal(), "lease"), "%s", raw_refusal());
	cr_assert_eq(RAW_ASK(s.good, METHOD_GET_HANDLES, TEXT("ref", "m"), SIGNED("wait_ms", -2)), -EINVAL);
	cr_assert(strstr(raw_refusal(), "wait_ms"), "%s", raw_refusal());
	scene_end(&s);
}

/* Only a missing `to` removes an alias; an empty one is somebody's mistake. */
Test(hostile, a_swap_to_an_empty_name_removes_nothing)
{
	struct scene s = scene_make();
	int admin = raw_client(s.d->admin_socket);

	cr_assert_eq(RAW_ASK(admin, METHOD_HOT_SWAP, TEXT("model", "m"), TEXT("to", "")), -EINVAL);
	cr_assert(strstr(raw_refusal(), "empty"), "%s", raw_refusal());
	close(admin);
	scene_end(&s);
}

static const char *const wrong_refs[] = {"",   "@",  "m@",     "@v1",     "m@v1@v2", "../m",
					 "/m", ".m", "m m@v1", "m@a\x01", "m@v\xff"};

Test(hostile, names_outside_the_grammar_are_refused)
{
	struct scene s = scene_make();
	char longest[200];

	memset(longest, 'a', sizeof longest);
	longest[sizeof longest - 1] = 0;
	for (unsigned i = 0; i <= sizeof wrong_refs / sizeof wrong_refs[0]; i++) {
		const char *ref = i < sizeof wrong_refs / sizeof wrong_refs[0] ? wrong_refs[i] : longest;

		cr_assert_eq(RAW_ASK(s.good, METHOD_GET_HANDLES, TEXT("ref", ref)), -EINVAL, "'%s': %s", ref,
			     raw_refusal());
	}
	scene_end(&s);
}

Test(hostile, a_worker_operates_nothing)
{
	static const char *const methods[] = {METHOD_LOAD, METHOD_CLIENTS, METHOD_JOBS, METHOD_CANCEL,
					      METHOD_DRAIN};
	struct scene s = scene_make();

	for (unsigned i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		cr_assert_eq(raw_call(s.good, methods[i]), -EACCES, "%s: %s", methods[i], raw_refusal());
		cr_assert(strstr(raw_refusal(), "operator"), "%s", raw_refusal());
	}
	cr_assert_eq(status_of(s.d, "draining"), 0);
	scene_end(&s);
}

Test(hostile, a_client_is_no_loader)
{
	static const char *const methods[] = {METHOD_LOADER_HELLO, METHOD_LOADER_CHECKED, METHOD_LOADER_DONE};
	struct scene s = scene_make();
	int admin = raw_client(s.d->admin_socket);

	for (unsigned i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		int code = raw_call(admin, methods[i]);

		cr_assert(code == -EACCES || code == -ENOSYS, "%s: %s", methods[i], raw_refusal());
	}
	close(admin);
	scene_end(&s);
}

Test(hostile, a_lease_of_somebody_else_is_not_released)
{
	struct scene s = scene_make();
	struct process worker;
	json_t *clients, *client, *lease = NULL;
	size_t i;

	load_small(s.d, 1);
	worker = worker_start(s.d, "m", 1);
	clients = query(s.d->admin, "clients", NULL);
	json_array_foreach(json_object_get(clients, "clients"), i, client) {
		if (json_array_size(json_object_get(client, "leases")))
			lease = json_array_get(json_object_get(client, "leases"), 0);
	}
	cr_assert(lease, "nobody has the lease");
	cr_assert_eq(RAW_ASK(s.good, METHOD_RELEASE,
			     NUMBER("lease", (uint64_t)json_integer_value(json_object_get(lease, "lease")))),
		     -ENOENT);
	cr_assert_eq(status_of(s.d, "leases"), 1);
	json_decref(clients);
	process_tell(&worker, 'd');
	process_finish(&worker);
	DROP(s.d, "m@v1");
	scene_end(&s);
}

/* ---- descriptors where none are taken --------------------------------- */

static void fds_sent(size_t count)
{
	struct scene s = scene_make();
	struct message_writer w;
	int sock = raw_client(s.d->socket), fds[PACKET_FDS_MAX];

	for (size_t i = 0; i < count; i++)
		fds[i] = s.good;
	raw_request(&w, 2, METHOD_PING);
	raw_send_fds(sock, &w, fds, count);
	cr_assert_eq(raw_code(sock), -EPROTO, "%s", raw_refusal());
	cr_assert(raw_ended(sock));
	close(sock);
	scene_end(&s);
}

Test(hostile, one_descriptor_is_refused_and_dropped)
{
	fds_sent(1);
}

Test(hostile, as_many_descriptors_as_fit_are_refused_and_dropped)
{
	fds_sent(PACKET_FDS_MAX);
}

Test(hostile, a_flood_of_descriptors_leaves_the_daemons_count_flat)
{
	struct scene s = scene_make();
	struct message_writer w;

	for (int i = 0; i < 200; i++) {
		int sock = raw_connect(s.d->socket);

		raw_request(&w, 2, METHOD_PING);
		raw_send_fds(sock, &w, (int[]){s.good, s.good, s.good}, 3);
		cr_assert_eq(raw_code(sock), -EPROTO);
		close(sock);
	}
	scene_end(&s);
}

static int64_t report_age_ms(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL);
	json_t *device = json_array_get(json_object_get(status, "devices"), 0);
	int64_t age = json_integer_value(json_object_get(device, "free_age_ms"));

	json_decref(status);
	return age;
}

GPUWMD_TEST(hostile, asking_for_the_status_again_and_again_does_not_drive_the_loader)
{
	cr_expect(EVENTUALLY(SOON_MS, report_age_ms(d) >= 500), "each request made the loader ask the driver");
	cr_expect(EVENTUALLY(SOON_MS, report_age_ms(d) < 500), "it is asked again");
}
