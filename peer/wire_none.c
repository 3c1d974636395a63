/* The same functions in a build without UCX. */
#ifndef GPUWM_UCX
#include "wire.h"

#include <errno.h>

static int no_ucx(struct error *error)
{
	return error_set(error, -ENOTSUP, "build gpuwm where libucx-dev is installed",
			 "this gpuwm was built without UCX");
}

int wire_open(struct wire **ret, struct error *error)
{
	(void)ret;
	return no_ucx(error);
}

bool wire_settle(struct wire *wire)
{
	(void)wire;
	return true;
}

struct wire *wire_close(struct wire *wire)
{
	(void)wire;
	return NULL;
}

void wire_keep(struct wire *wire, void (*release)(void *object), void *object)
{
	(void)wire;
	release(object);
}

void wire_register(struct wire *wire, void *data, size_t bytes, enum wire_memory memory)
{
	(void)wire;
	(void)data;
	(void)bytes;
	(void)memory;
}

bool wire_carries(const struct wire *wire, enum wire_memory memory)
{
	(void)wire;
	(void)memory;
	return false;
}

const void *wire_address(const struct wire *wire, size_t *ret_bytes)
{
	(void)wire;
	*ret_bytes = 0;
	return NULL;
}

int wire_connect(struct wire *wire, const void *address, size_t bytes, struct error *error)
{
	(void)wire;
	(void)address;
	(void)bytes;
	return no_ucx(error);
}

int wire_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
	      struct error *error)
{
	(void)wire;
	(void)piece;
	(void)message;
	return no_ucx(error);
}

int wire_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		 struct error *error)
{
	(void)wire;
	(void)piece;
	(void)message;
	return no_ucx(error);
}

int wire_progress(struct wire *wire, int fd, int64_t deadline, struct error *error)
{
	(void)wire;
	(void)fd;
	(void)deadline;
	return no_ucx(error);
}

int wire_meet(struct wire *wire, const struct wire_meeting *meeting, int64_t deadline, struct error *error)
{
	(void)wire;
	(void)meeting;
	(void)deadline;
	return no_ucx(error);
}
#endif
