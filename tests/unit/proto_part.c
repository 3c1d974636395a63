/* A part on its way: what is read is what was written, and who owns the descriptors when it fails. */
#include "../../proto/wire/part.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct message_writer w;
static struct message m;
static struct fields f;
static struct packet packet;
static struct part part;

static int fd_new(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* f has the fields of what was written. */
static void end(void)
{
	const char *why;

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
	fields_of(&f, m.body);
}

/* Writes a part of so many segments of 10, 11, … bytes. The packet gets all descriptors but the last `lost`. */
static void write_part(uint32_t count, uint32_t lost)
{
	struct part sent = {.index = {fd_new(), 64}, .segment_count = count};

	for (uint32_t i = 0; i < count; i++)
		sent.segments[i] = (struct part_fd){fd_new(), 10 + i};
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
	packet.fd_count = part_write(&w, &sent, packet.fds);
	cr_assert_eq(packet.fd_count, count + 1);
	end();
	for (; lost > 0; lost--)
		close(packet.fds[--packet.fd_count]);
}

static void clear(void)
{
	part_close(&part);
	packet_drop(&packet);
	message_clear(&m);
	message_writer_clear(&w);
}

TestSuite(part, .fini = clear);

Test(part, is_read_as_it_was_written)
{
	int index, second;

	write_part(3, 0);
	index = packet.fds[0];
	second = packet.fds[2];
	cr_assert_eq(part_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_expect_eq(part.index.fd, index);
	cr_expect_eq(part.index.bytes, 64);
	cr_expect_eq(part.segment_count, 3);
	cr_expect_eq(part.segments[1].fd, second);
	cr_expect_eq(part.segments[1].bytes, 11);
	packet_drop(&packet);
	cr_expect(is_open(index) && is_open(second), "the part owns them");
	part_close(&part);
	cr_expect(!is_open(index) && !is_open(second));
	cr_expect_eq(part.index.fd, -1);
	cr_expect_eq(part.segment_count, 0);
}

Test(part, has_as_many_segments_as_may_be)
{
	write_part(PART_SEGMENTS_MAX, 0);
	cr_assert_eq(part_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_expect_eq(part.segment_count, PART_SEGMENTS_MAX);
	cr_expect_eq(part.segments[PART_SEGMENTS_MAX - 1].bytes, 9 + PART_SEGMENTS_MAX);
}

Test(part, keeps_what_it_took_when_a_descriptor_is_missing)
{
	write_part(3, 1);
	cr_expect_eq(part_read(&f, &packet, &part), -EBADMSG);
	cr_expect_str_eq(f.error.message, "segment 2 came without its descriptor");
	cr_expect_eq(part.segment_count, 2);
	cr_expect(is_open(part.index.fd));
	cr_expect(is_open(part.segments[1].fd));
}

/* Writes the segments of a part alone. */
static void write_segments(uint32_t count)
{
	struct part sent = {.index = {.fd = -1}, .segment_count = count};

	for (uint32_t i = 0; i < count; i++)
		sent.segments[i] = (struct part_fd){fd_new(), 10 + i};
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
	packet.fd_count = part_segments_write(&w, &sent, packet.fds);
	cr_assert_eq(packet.fd_count, count);
	end();
}

Test(part, segments_come_without_an_index)
{
	int first;

	write_segments(2);
	first = packet.fds[0];
	cr_assert_eq(part_segments_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_expect_eq(part.index.fd, -1);
	cr_expect_eq(part.segment_count, 2);
	cr_expect_eq(part.segments[0].fd, first);
	cr_expect_eq(part.segments[1].bytes, 11);
}

Test(part, no_segments_are_an_answer_too)
{
	write_segments(0);
	cr_assert_eq(part_segments_read(&f, &packet, &part), 0, "%s", f.error.message);
	cr_expect_eq(part.segment_count, 0);
}

Test(part, needs_its_index)
{
	write_part(0, 1);
	cr_expect_eq(part_read(&f, &packet, &part), -EBADMSG);
	cr_expect_str_eq(f.error.message, "the index came without its descriptor");
}

Test(part, closes_only_what_nobody_else_has_taken)
{
	int fd;

	write_part(1, 0);
	cr_assert_eq(part_read(&f, &packet, &part), 0);
	fd = part.segments[0].fd;
	part.segments[0].fd = -1;
	part_close(&part);
	cr_expect(is_open(fd));
	close(fd);
}

static void refused(const char *message)
{
	end();
	cr_expect_eq(part_read(&f, &packet, &part), -EINVAL);
	cr_expect_str_eq(f.error.message, message, "%s", f.error.message);
	cr_expect_eq(part.index.fd, -1);
}

static void begin(void)
{
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", 64);
}

Test(part, has_no_more_segments_than_a_part_may_have)
{
	begin();
	message_begin_array(&w, "segments");
	for (uint32_t i = 0; i < PART_SEGMENTS_MAX + 1; i++)
		message_put_u64(&w, NULL, i);
	message_end(&w);
	refused("253 segments; a part has at most 252");
}

Test(part, has_segments)
{
	begin();
	refused("\"segments\" is missing");
}

Test(part, has_maps_for_segments)
{
	begin();
	message_begin_array(&w, "segments");
	message_put_u64(&w, NULL, 1);
	message_end(&w);
	end();
	packet.fds[packet.fd_count++] = fd_new();
	cr_expect_eq(part_read(&f, &packet, &part), -EINVAL);
	cr_expect_str_eq(f.error.message, "a map was expected");
	cr_expect_eq(part.segment_count, 0);
}
