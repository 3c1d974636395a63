#include "exporter/http.h"

#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tally tally;
static struct places places;

static void begin(void)
{
	places_begin(&places, &tally);
}

static void end(void)
{
	places_end(&places);
}

TestSuite(exporter_places, .init = begin, .fini = end);

/* A connection whose other end is told the cut of. */
static int other_end;
static struct place *connection(uint64_t now_ms)
{
	int ends[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	other_end = ends[1];
	return places_take(&places, ends[0], now_ms);
}

static bool is_cut(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void fill(unsigned count, uint64_t now_ms)
{
	while (places.taken < count)
		cr_assert_not_null(connection(now_ms));
}

Test(exporter_places, a_connection_on_which_no_request_ends_is_cut_in_time)
{
	struct place *place = connection(1000);
	int fd = other_end;

	places_busy(&places, place);
	places_look(&places, 1000 + HTTP_REQUEST_MS - 1);
	cr_expect_not(is_cut(fd));
	places_look(&places, 1000 + HTTP_REQUEST_MS);
	cr_expect(is_cut(fd));
	cr_expect_eq(tally.cut, 1);
	places_give(&places, place);
	cr_expect_eq(places.taken, 0);
}

Test(exporter_places, the_end_of_a_request_begins_the_time_anew)
{
	struct place *place = connection(0);
	int fd = other_end;

	places_done(&places, place, HTTP_REQUEST_MS - 1);
	places_look(&places, HTTP_REQUEST_MS + 1);
	cr_expect_not(is_cut(fd));
}

Test(exporter_places, if_there_are_many_a_silent_one_makes_room_at_once)
{
	struct place *busy;
	int of_busy, of_silent;

	busy = connection(0);
	of_busy = other_end;
	places_busy(&places, busy);
	connection(1);
	of_silent = other_end;
	fill(HTTP_CROWDED, 2);
	connection(HTTP_CROWDED_MS);
	cr_expect_not(is_cut(of_silent));
	connection(HTTP_CROWDED_MS + 1);
	cr_expect(is_cut(of_silent), "it was silent for longest");
	cr_expect_not(is_cut(of_busy), "its request is being answered");
	cr_expect_eq(tally.cut, 1);
}

Test(exporter_places, if_there_are_many_an_answer_that_nobody_reads_makes_room)
{
	struct place *place = connection(0);
	int fd = other_end;

	places_busy(&places, place);
	places_answered(&places, place, 1000);
	fill(HTTP_CROWDED, 1001);
	connection(1000 + HTTP_CROWDED_MS - 1);
	cr_expect_not(is_cut(fd));
	connection(1000 + HTTP_CROWDED_MS);
	cr_expect(is_cut(fd));
}

Test(exporter_places, if_there_are_many_each_connection_is_for_one_request)
{
	struct place *place = connection(0);
	int fd = other_end;

	fill(HTTP_CROWDED - 1, 0);
	places_done(&places, place, 0);
	cr_expect_not(is_cut(fd));
	fill(HTTP_CROWDED, 0);
	places_done(&places, place, 0);
	cr_expect(is_cut(fd));
	cr_expect_eq(tally.cut, 0, "it was not slow");
}

Test(exporter_places, a_connection_that_never_asked_is_cut_sooner)
{
	int fd;

	connection(0);
	fd = other_end;
	places_look(&places, HTTP_FIRST_MS - 1);
	cr_expect_not(is_cut(fd));
	places_look(&places, HTTP_FIRST_MS);
	cr_expect(is_cut(fd));
}

Test(exporter_places, if_nearly_all_are_taken_the_oldest_that_never_asked_makes_room)
{
	int of_asked, of_sent, of_oldest;

	places_busy(&places, connection(0));
	of_asked = other_end;
	connection(0);
	of_sent = other_end;
	cr_assert_eq(write(of_sent, "G", 1), 1);
	connection(1);
	of_oldest = other_end;
	fill(HTTP_FULL - 1, 2);
	cr_expect_not(places_full(&places, 1 + HTTP_SILENT_MS));
	cr_expect_not(is_cut(of_oldest));
	connection(2);
	cr_expect(places_full(&places, HTTP_SILENT_MS));
	cr_expect_not(is_cut(of_oldest), "its request may be on its way");
	cr_expect(places_full(&places, 1 + HTTP_SILENT_MS));
	cr_expect(is_cut(of_oldest));
	cr_expect_not(is_cut(of_asked), "it has asked");
	cr_expect_not(is_cut(of_sent), "its request is not read yet");
}

Test(exporter_places, without_a_place_there_is_none)
{
	fill(HTTP_CONNECTIONS_MAX, 0);
	cr_expect_null(connection(0));
	places_busy(&places, NULL);
	places_answered(&places, NULL, 0);
	places_done(&places, NULL, 0);
	places_give(&places, NULL);
	cr_expect_eq(places.taken, HTTP_CONNECTIONS_MAX);
}
