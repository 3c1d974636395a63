/* Peers that send what they should not, to a real gpuwmd: nobody else notices, and gpuwmd keeps no descriptor. What gpuwmd
 * answers to a wrong request is in tests/unit/daemon_dispatch.c. */
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
	cr_assert_eq(raw_call(s->good, "ping"), 0);
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

/* Also instead of hello. */
Test(hostile, a_packet_that_is_no_message_is_refused_and_ends_the_connection)
{
	struct scene s = scene_make();

	for (unsigned i = 0; i < 2 * (sizeof malformed / sizeof malformed[0]); i++) {
		int sock = i % 2 ? raw_client(s.d->socket) : raw_connect(s.d->socket);
		const char *what = malformed[i / 2].what;

		cr_assert_eq(raw_send_bytes(sock, malformed[i / 2].data, malformed[i / 2].bytes, NULL, 0), 0);
		cr_assert_eq(raw_code(sock), -EPROTO, "%s: %s", what, raw_refusal());
		cr_assert(raw_ended(sock), "%s: the connection goes on", what);
		close(sock);
	}
	scene_end(&s);
}

/* ---- descriptors where none are taken --------------------------------- */

Test(hostile, as_many_descriptors_as_fit_are_refused_and_dropped)
{
	struct scene s = scene_make();
	struct message_writer w;
	int sock = raw_client(s.d->socket), fds[PACKET_FDS_MAX];

	for (size_t i = 0; i < PACKET_FDS_MAX; i++)
		fds[i] = s.good;
	raw_request(&w, 2, "ping");
	raw_send_fds(sock, &w, fds, PACKET_FDS_MAX);
	cr_assert_eq(raw_code(sock), -EPROTO, "%s", raw_refusal());
	cr_assert(raw_ended(sock));
	close(sock);
	scene_end(&s);
}

Test(hostile, a_flood_of_descriptors_leaves_the_daemons_count_flat)
{
	struct scene s = scene_make();
	struct message_writer w;

	for (int i = 0; i < 200; i++) {
		int sock = raw_connect(s.d->socket);

		raw_request(&w, 2, "ping");
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
