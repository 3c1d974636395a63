/* What all transports have in common. */
#include "wire.h"

#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* A thread looks at the transport by itself, since not every one can wake it. A fast network has something new after 50 us. A line of 50 MB/s
 * brings 50 KB in a ms, and the kernel keeps some MB. */
#define NAP_US_MIN 50
#define NAP_US_MAX 1000
/* Between GPUs a message of 64 MiB takes 0.2 ms over NVLink and 1 to 2 ms over RDMA, and a nap would take as long again: it does not sleep as
 * long as messages of a GPU's memory are on their way and something happened so lately. */
#define AWAKE_SECONDS 2e-3

/* ---- which transport ------------------------------------------------------- */

static int wires_none(struct error *error)
{
	return error_set(error, -ENOTSUP, "build gpuwm where libucx-dev is installed",
			 "this gpuwm was built without UCX");
}

static const struct wire_ops *wire_named(const char *name)
{
	size_t i = 0;

	while (wires[i] && strcmp(wires[i]->name, name) != 0)
		i++;
	return wires[i];
}

int wire_find(const char *name, const struct wire_ops **ret, struct error *error)
{
	const struct wire_ops *ops = wire_named(name);

	if (!wires[0])
		return wires_none(error);
	if (!ops)
		return error_set(error, -ENOTSUP, "update the older one of the two nodes",
				 "this gpuwm sends nothing by \"%.*s\"", WIRE_NAME_BYTES_MAX, name);
	*ret = ops;
	return 0;
}

int wire_choose(const char *const *names, size_t count, const struct wire_ops **ret, struct error *error)
{
	static const char *const older[] = {WIRE_UNNAMED};

	if (!names) {
		names = older;
		count = 1;
	}
	for (size_t i = 0; wires[i]; i++) {
		for (size_t k = 0; k < count; k++) {
			if (strcmp(wires[i]->name, names[k]) == 0) {
				*ret = wires[i];
				return 0;
			}
		}
	}
	if (!wires[0])
		return wires_none(error);
	return error_set(error, -EPROTONOSUPPORT, "update the older one of the two nodes",
			 "both nodes have no way for the bytes in common: here is %s, there %s",
			 wires[0]->title, count > 0 ? names[0] : "none");
}

uint32_t wire_names(const char *ret_names[WIRES_MAX])
{
	uint32_t count = 0;

	for (; count < WIRES_MAX && wires[count]; count++)
		ret_names[count] = wires[count]->name;
	return count;
}

/* ---- a wire's life --------------------------------------------------------- */

int wire_open(const struct wire_ops *ops, struct wire **ret, struct error *error)
{
	int r = ops->open(ret, error);

	if (r == 0)
		(*ret)->ops = ops;
	return r;
}

bool wire_settle(struct wire *wire)
{
	return wire->ops->settle(wire);
}

static struct wire *volatile hanging; /* a leak checker finds it here */

struct wire *wire_close(struct wire *wire)
{
	void (*release)(void *object) = wire ? wire->release : NULL;
	void *object = wire ? wire->object : NULL;

	if (wire && !wire_settle(wire)) {
		hanging = wire;
		return NULL;
	}
	if (wire)
		wire->ops->free(wire);
	if (release)
		release(object);
	return NULL;
}

void wire_keep(struct wire *wire, void (*release)(void *object), void *object)
{
	wire->release = release;
	wire->object = object;
}

void wire_register(struct wire *wire, void *data, size_t bytes, enum wire_memory memory)
{
	if (wire->ops->add_memory)
		wire->ops->add_memory(wire, data, bytes, memory);
}

bool wire_carries(const struct wire *wire, enum wire_memory memory)
{
	return memory == WIRE_HOST || (wire->ops->carries_gpu && wire->ops->carries_gpu(wire));
}

const void *wire_address(const struct wire *wire, size_t *ret_bytes)
{
	return wire->ops->address(wire, ret_bytes);
}

int wire_connect(struct wire *wire, const void *address, size_t bytes, struct error *error)
{
	return wire->ops->connect(wire, address, bytes, error);
}

/* ---- messages -------------------------------------------------------------- */

void wire_message_begun(struct wire *wire, struct wire_message *message)
{
	message->done = false;
	wire->messages[wire->message_count++] = message;
}

void wire_message_end(struct wire *wire, struct wire_message *message, int result)
{
	for (unsigned i = 0; i < wire->message_count; i++) {
		if (wire->messages[i] == message) {
			wire->messages[i] = wire->messages[--wire->message_count];
			break;
		}
	}
	message->result = result;
	message->done = true;
	wire->ended++;
}

/* Whether one more message may be begun. */
static int admit(struct wire *wire, const struct wire_piece *piece, struct error *error)
{
	wire->of_gpu = wire->of_gpu || piece->memory == WIRE_CUDA;
	return wire->message_count < WIRE_MESSAGES_MAX
		       ? 0
		       : error_set(error, -EIO, NULL, "%d messages are on their way already",
				   WIRE_MESSAGES_MAX);
}

int wire_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
	      struct error *error)
{
	int r = admit(wire, piece, error);

	return r < 0 ? r : wire->ops->send(wire, piece, message, error);
}

int wire_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		 struct error *error)
{
	int r = admit(wire, piece, error);

	return r < 0 ? r : wire->ops->receive(wire, piece, message, error);
}

/* Returns the next nap: shorter as long as there is something to do after it, and longer if there was nothing. */
static unsigned judge_nap(struct wire *wire, bool worked)
{
	double now = clock_steady_seconds();

	if (worked)
		wire->worked = now;
	if (wire->of_gpu && wire->message_count > 0 && now - wire->worked < AWAKE_SECONDS)
		return 0;
	wire->nap_us = worked ? wire->nap_us / 2 : wire->nap_us * 2;
	if (wire->nap_us < NAP_US_MIN)
		wire->nap_us = NAP_US_MIN;
	else if (wire->nap_us > NAP_US_MAX)
		wire->nap_us = NAP_US_MAX;
	return wire->nap_us;
}

int wire_progress(struct wire *wire, int fd, int64_t deadline, struct error *error)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	int ended, r;

	for (;;) {
		bool worked = wire->ops->work(wire);

		if (wire->ended > 0 || clock_left(deadline) == 0)
			break;
		r = wire->ops->state(wire, error);
		if (r < 0)
			return r;
		if (ppoll(&wait, 1, &(struct timespec){.tv_nsec = judge_nap(wire, worked) * 1000L}, NULL) > 0)
			break;
	}
	ended = wire->ended;
	wire->ended = 0;
	return ended;
}

static int begin_greeting(struct wire *wire, const struct wire_meeting *meeting, bool ours, struct error *error)
{
	struct wire_piece piece = {
		.tag = wire_tag(meeting->nonce, WIRE_NUMBER_GREETING),
		.data = &wire->greetings[ours],
		.bytes = sizeof(wire->greetings[ours]),
	};

	wire->greeted[ours] = true;
	if (!ours)
		return wire_receive(wire, &piece, &wire->met[ours], error);
	return wire_send(wire, &piece, &wire->met[ours], error);
}

/* Does what can be done now. Ours goes at once, or when theirs has come. */
static int greet(struct wire *wire, const struct wire_meeting *meeting, struct error *error)
{
	int r = wire->greeted[0] ? 0 : begin_greeting(wire, meeting, false, error);

	if (r < 0 || wire->greeted[1] || !(meeting->begins || wire->met[0].done))
		return r;
	r = wire_connect(wire, meeting->address, meeting->bytes, error);
	return r < 0 ? r : begin_greeting(wire, meeting, true, error);
}

int wire_meet(struct wire *wire, const struct wire_meeting *meeting, int64_t deadline, struct error *error)
{
	int r = greet(wire, meeting, error);

	while (r >= 0 && !(wire->met[0].done && wire->met[1].done)) {
		if (clock_left(deadline) == 0)
			return 1;
		r = wire_progress(wire, -1, deadline, error);
		if (r >= 0)
			r = greet(wire, meeting, error);
	}
	if (r >= 0 && (wire->met[0].result < 0 || wire->met[1].result < 0))
		r = error_set(error, -ECONNRESET, NULL, "%s lost the other side at once", wire->ops->title);
	return r < 0 ? r : 0;
}
