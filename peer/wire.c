/* What all transports have in common. */
#include "wire.h"

#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread looks at the transport by itself, since not every one can wake it. A fast network has something new after 50 us. A line of 50 MB/s
 * brings 50 KB in a ms, and the kernel keeps some MB. */
#define NAP_US_MIN 50
#define NAP_US_MAX 1000
/* Between GPUs a message of 64 MiB takes 0.2 ms over NVLink and 1 to 2 ms over RDMA, and a nap would take as long again: it does not sleep as
 * long as messages of a GPU's memory are on their way and something happened so lately. */
#define AWAKE_SECONDS 2e-3

/* How soon it sees that both sides have met. */
#define MEET_LOOK_MS 1

/* ---- which transport ------------------------------------------------------- */

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

	if (!ops)
		return error_set(error, -ENOTSUP, "update the older one of the two nodes",
				 "this gpuwm sends nothing by \"%.*s\"", WIRE_NAME_BYTES_MAX, name);
	*ret = ops;
	return 0;
}

uint32_t wire_names(const char *ret_names[WIRES_MAX])
{
	uint32_t count = 0;

	for (size_t i = 0; wires[i] && count < WIRES_MAX; i++) {
		if (!wires[i]->here || wires[i]->here(NULL) == 0)
			ret_names[count++] = wires[i]->name;
	}
	return count;
}

/* ---- a wire's life --------------------------------------------------------- */

int wire_open(const struct wire_ops *ops, bool serves, struct wire **ret, struct error *error)
{
	int r = ops->open(ret, error);

	if (r == 0) {
		(*ret)->ops = ops;
		(*ret)->serves = serves;
	}
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

int wire_meet(struct wire *wire, const struct wire_meeting *meeting, int64_t deadline, struct error *error)
{
	int r = wire->ops->meet(wire, meeting, error);

	while (r == 1 && clock_left(deadline) > 0) {
		r = wire_progress(wire, -1, clock_deadline(MEET_LOOK_MS), error);
		if (r >= 0)
			r = wire->ops->meet(wire, meeting, error);
	}
	wire->ended = 0; /* nothing was on its way but the transport's own */
	return r;
}

/* ---- an address as text -------------------------------------------- */

char *wire_text(const void *address, size_t bytes)
{
	const uint8_t *from = address;
	char *text = malloc(2 * bytes + 1);

	for (size_t i = 0; text && i < bytes; i++)
		snprintf(text + 2 * i, 3, "%02x", from[i]);
	return text;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int wire_bytes(const char *text, void **ret, size_t *ret_bytes, struct error *error)
{
	size_t bytes = strlen(text) / 2;
	uint8_t *address = malloc(bytes + 1);

	if (!address)
		return error_set(error, -ENOMEM, NULL, "no memory for the address of the other side");
	if (strlen(text) % 2 != 0) {
		free(address);
		return error_set(error, -EPROTO, NULL,
				 "the address of the other side has half a byte at its end");
	}
	for (size_t i = 0; i < bytes; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0) {
			free(address);
			return error_set(error, -EPROTO, NULL,
					 "the address of the other side has other "
					 "characters than hexadecimal digits");
		}
		address[i] = (uint8_t)(high << 4 | low);
	}
	*ret = address;
	*ret_bytes = bytes;
	return 0;
}
