#include "part.h"

#include <errno.h>
#include <unistd.h>

void part_init(struct part *part)
{
	part->index = (struct part_fd){.fd = -1};
	part->segment_count = 0;
}

/* The descriptor of the first segment is the one at position `first`. */
static size_t write_segments(struct message_writer *w, const struct part *part, size_t first,
			     int ret_fds[PACKET_FDS_MAX])
{
	message_begin_array(w, "segments");
	for (uint32_t i = 0; i < part->segment_count; i++) {
		ret_fds[first + i] = part->segments[i].fd;
		message_begin_map(w, NULL);
		message_put_u64(w, "fd", first + i);
		message_put_u64(w, "bytes", part->segments[i].bytes);
		message_end(w);
	}
	message_end(w);
	return first + part->segment_count;
}

size_t part_write(struct message_writer *w, const struct part *part, int ret_fds[PACKET_FDS_MAX])
{
	ret_fds[0] = part->index.fd;
	message_put_u64(w, "index", 0);
	message_put_u64(w, "index_bytes", part->index.bytes);
	return write_segments(w, part, 1, ret_fds);
}

size_t part_segments_write(struct message_writer *w, const struct part *part, int ret_fds[PACKET_FDS_MAX])
{
	return write_segments(w, part, 0, ret_fds);
}

static void read_segment(struct fields *f, const msgpack_object *element, struct packet *packet,
			 struct part *part)
{
	struct part_fd *segment = &part->segments[part->segment_count];
	struct fields s;
	uint64_t position;

	fields_of(&s, element);
	position = fields_u64(&s, "fd");
	segment->bytes = fields_u64(&s, "bytes");
	if (s.error.code)
		f->error = s.error;
	else if (packet_take_fd(packet, position, &segment->fd) < 0)
		error_set(&f->error, -EBADMSG, NULL, "segment %u came without its descriptor",
			  part->segment_count);
	else
		part->segment_count++;
}

/* Returns the array of segments, or NULL after an error. */
static const msgpack_object *segments_of(struct fields *f, uint32_t *ret_count)
{
	const msgpack_object *segments = fields_array(f, "segments", ret_count);

	if (!f->error.code && *ret_count > PART_SEGMENTS_MAX)
		error_set(&f->error, -EINVAL, "make fewer and larger ones",
			  "%u segments; a part has at most %d", *ret_count, PART_SEGMENTS_MAX);
	return segments;
}

int part_read(struct fields *f, struct packet *packet, struct part *ret)
{
	uint64_t index = fields_u64(f, "index");
	uint32_t count = 0;
	const msgpack_object *segments;

	part_init(ret);
	ret->index.bytes = fields_u64(f, "index_bytes");
	segments = segments_of(f, &count);
	if (!f->error.code && packet_take_fd(packet, index, &ret->index.fd) < 0)
		error_set(&f->error, -EBADMSG, NULL, "the index came without its descriptor");
	for (uint32_t i = 0; !f->error.code && i < count; i++)
		read_segment(f, &segments[i], packet, ret);
	return f->error.code;
}

int part_segments_read(struct fields *f, struct packet *packet, struct part *ret)
{
	uint32_t count = 0;
	const msgpack_object *segments;

	part_init(ret);
	segments = segments_of(f, &count);
	for (uint32_t i = 0; !f->error.code && i < count; i++)
		read_segment(f, &segments[i], packet, ret);
	return f->error.code;
}

void part_close(struct part *part)
{
	if (part->index.fd >= 0)
		close(part->index.fd);
	for (uint32_t i = 0; i < part->segment_count; i++) {
		if (part->segments[i].fd >= 0)
			close(part->segments[i].fd);
	}
	part_init(part);
}
