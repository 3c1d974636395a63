#ifdef GPUWM_UCX
#include "wire.h"

#include "ucx.h"

#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* A thread looks at UCX by itself, since not every transport can wake it. A fast network has something new after 50 us. A line of 50 MB/s brings
 * 50 KB in a ms, and the kernel keeps some MB. */
#define NAP_US_MIN 50
#define NAP_US_MAX 1000
/* Between GPUs a message of 64 MiB takes 0.2 ms over NVLink and 1 to 2 ms over RDMA, and a nap would take as long again: it does not sleep as
 * long as messages of a GPU's memory are on their way and something happened so lately. */
#define AWAKE_SECONDS 2e-3
/* What UCX still has to say about the connection reaches the other side before it ends. */
#define WIRE_LINGER_MS 100
#define YOUNG_MS 1000 /* later UCX has said it */
#define SETTLE_MS 5000 /* UCX needs milliseconds to end what is on its way, and more on a busy machine */

/* So many messages are on their way at most: those of a taker, which has asked for each of them. */
#define MESSAGES_MAX 64

struct wire {
	const struct ucx *ucx;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_bytes;
	struct areas areas; /* registered memory */
	ucp_ep_h endpoint; /* NULL: not connected */
	ucs_status_t failed; /* of the endpoint; UCS_OK: it works */
	struct wire_message *messages[MESSAGES_MAX]; /* on their way */
	unsigned message_count;
	void (*release)(void *object); /* NULL: nothing ends with the wire */
	void *object;
	unsigned nap_us; /* the last nap */
	bool of_gpu; /* a message of a GPU's memory was begun */
	double worked; /* when UCX last had something to do, by clock_steady_seconds */
	uint64_t begun_ms; /* when it connected */
	uint64_t greetings[2]; /* theirs, and ours */
	struct wire_message met[2]; /* the messages with these */
	bool greeted[2]; /* they were begun */
	int ended; /* messages that wire_progress has not counted yet */
};

static int ucx_failed(const struct wire *wire, ucs_status_t status, const char *what, struct error *error)
{
	int code = -EIO;

	if (status == UCS_ERR_NO_MEMORY)
		code = -ENOMEM;
	else if (status == UCS_ERR_UNREACHABLE)
		code = -EHOSTUNREACH;
	else if (status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
		 status == UCS_ERR_NOT_CONNECTED)
		code = -ECONNRESET;
	return error_set(error, code, code == -EHOSTUNREACH ? "see UCX_TLS and UCX_NET_DEVICES" : NULL,
			 "UCX could not %s: %s", what, wire->ucx->ucs_status_string(status));
}

/* Debian's release ends the process now and then, by an assertion, if the other side goes away while it sends over TCP without a copy: it
 * counts the end of such a message twice. */
#define MINOR_WITHOUT_COPIES 22

/* The receiver fetches what the sender has registered for reading. TCP can't fetch: there the sender's messages are copied (ucx.c). */
static int configure(const struct wire *wire, ucp_config_t **ret, struct error *error)
{
	ucp_config_t *config;
	unsigned major, minor, release;
	ucs_status_t status = wire->ucx->ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return ucx_failed(wire, status, "be configured", error);
	status = wire->ucx->ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
	if (status != UCS_OK) {
		wire->ucx->ucp_config_release(config);
		return ucx_failed(wire, status, "be configured", error);
	}
	wire->ucx->ucp_get_version(&major, &minor, &release);
	if (major == 1 && minor < MINOR_WITHOUT_COPIES)
		wire->ucx->ucp_config_modify(config, "ZCOPY_THRESH", "inf");
	*ret = config;
	return 0;
}

static int open_worker(struct wire *wire, struct error *error)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					    .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_config_t *config = NULL;
	ucs_status_t status;
	int r = configure(wire, &config, error);

	if (r < 0)
		return r;
	status = wire->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &wire->context);
	wire->ucx->ucp_config_release(config);
	if (status != UCS_OK)
		return ucx_failed(wire, status, "start", error);
	status = wire->ucx->ucp_worker_create(wire->context, &worker, &wire->worker);
	if (status == UCS_OK)
		status = wire->ucx->ucp_worker_get_address(wire->worker, &wire->address, &wire->address_bytes);
	return status == UCS_OK ? 0 : ucx_failed(wire, status, "open its devices", error);
}

int wire_open(struct wire **ret, struct error *error)
{
	const struct ucx *ucx;
	struct wire *wire;
	int r = ucx_open(&ucx, error);

	if (r < 0)
		return r;
	wire = calloc(1, sizeof(*wire));
	if (!wire)
		return error_set(error, -ENOMEM, NULL, "no memory for a connection by UCX");
	wire->ucx = ucx;
	r = open_worker(wire, error);
	if (r < 0)
		wire_close(wire);
	else
		*ret = wire;
	return r;
}

static void finish_message(struct wire *wire, struct wire_message *message, ucs_status_t status)
{
	if (message->request)
		wire->ucx->ucp_request_free(message->request);
	message->request = NULL;
	message->result = status == UCS_OK ? 0 : ucx_failed(wire, status, "", NULL);
	message->done = true;
	wire->ended++;
}

/* Looks which messages are done. */
static void collect(struct wire *wire)
{
	for (unsigned i = 0; i < wire->message_count;) {
		struct wire_message *message = wire->messages[i];
		ucs_status_t status = wire->ucx->ucp_request_check_status(message->request);

		if (status == UCS_INPROGRESS) {
			i++;
			continue;
		}
		finish_message(wire, message, status);
		wire->messages[i] = wire->messages[--wire->message_count];
	}
}

/* ---- the end --------------------------------------------------------------- */

/* Whatever is on its way fails then. */
static void close_endpoint(struct wire *wire, int64_t deadline)
{
	const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					   .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t request = wire->ucx->ucp_ep_close_nbx(wire->endpoint, &param);

	wire->endpoint = NULL;
	if (!UCS_PTR_IS_PTR(request))
		return;
	while (wire->ucx->ucp_request_check_status(request) == UCS_INPROGRESS && clock_left(deadline) > 0)
		wire->ucx->ucp_worker_progress(wire->worker);
	wire->ucx->ucp_request_free(request);
}

bool wire_settle(struct wire *wire)
{
	int64_t deadline = clock_deadline(SETTLE_MS), grace = clock_deadline(WIRE_LINGER_MS);

	while (wire->endpoint && wire->failed == UCS_OK && clock_steady_ms() - wire->begun_ms < YOUNG_MS &&
	       clock_left(grace) > 0)
		wire->ucx->ucp_worker_progress(wire->worker);
	if (wire->endpoint)
		close_endpoint(wire, deadline);
	/* What UCX has begun to fetch can't be cancelled: it has failed with the endpoint. */
	for (unsigned i = 0; i < wire->message_count; i++)
		wire->ucx->ucp_request_cancel(wire->worker, wire->messages[i]->request);
	do {
		wire->ucx->ucp_worker_progress(wire->worker);
		collect(wire);
	} while (wire->message_count > 0 && clock_left(deadline) > 0);
	return wire->message_count == 0;
}

static struct wire *volatile hanging; /* a leak checker finds it here */

struct wire *wire_close(struct wire *wire)
{
	if (!wire)
		return NULL;
	if (wire->worker && !wire_settle(wire)) {
		hanging = wire;
		return NULL;
	}
	if (wire->worker) {
		if (wire->address)
			wire->ucx->ucp_worker_release_address(wire->worker, wire->address);
		wire->ucx->ucp_worker_destroy(wire->worker);
	}
	areas_clear(&wire->areas, wire->ucx, wire->context);
	if (wire->context)
		wire->ucx->ucp_cleanup(wire->context);
	if (wire->release)
		wire->release(wire->object);
	free(wire);
	return NULL;
}

/* ---- the connection -------------------------------------------------------- */

const void *wire_address(const struct wire *wire, size_t *ret_bytes)
{
	*ret_bytes = wire->address_bytes;
	return wire->address;
}

void wire_keep(struct wire *wire, void (*release)(void *object), void *object)
{
	wire->release = release;
	wire->object = object;
}

static ucs_memory_type_t type_of(enum wire_memory memory)
{
	return memory == WIRE_CUDA ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

void wire_register(struct wire *wire, void *data, size_t bytes, enum wire_memory memory)
{
	areas_add(&wire->areas, wire->ucx, wire->context, data, bytes, type_of(memory));
}

bool wire_carries(const struct wire *wire, enum wire_memory memory)
{
	ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	return memory == WIRE_HOST || (wire->ucx->ucp_context_query(wire->context, &attributes) == UCS_OK &&
				       (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)));
}

static void endpoint_failed(void *user_data, ucp_ep_h endpoint, ucs_status_t status)
{
	struct wire *wire = user_data;

	(void)endpoint;
	wire->failed = status;
}

int wire_connect(struct wire *wire, const void *address, size_t bytes, struct error *error)
{
	const ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {endpoint_failed, wire},
	};
	ucs_status_t status;

	if (bytes < WIRE_ADDRESS_BYTES_MIN || bytes > WIRE_ADDRESS_BYTES_MAX)
		return error_set(error, -EBADMSG, NULL, "%zu bytes are no address of a UCX worker", bytes);
	wire->begun_ms = clock_steady_ms();
	status = wire->ucx->ucp_ep_create(wire->worker, &params, &wire->endpoint);
	if (status != UCS_OK)
		wire->endpoint = NULL;
	return status == UCS_OK ? 0 : ucx_failed(wire, status, "connect to the other side", error);
}

/* ---- messages -------------------------------------------------------------- */

static ucp_request_param_t param_for(const struct wire *wire, const struct wire_piece *piece)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.memory_type = type_of(piece->memory),
		.memh = areas_find(&wire->areas, piece->data, piece->bytes),
	};

	if (param.memh)
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
	return param;
}

/* Takes over what UCX returned. */
static int begun(struct wire *wire, ucs_status_ptr_t request, struct wire_message *message, const char *what,
		 struct error *error)
{
	if (UCS_PTR_IS_ERR(request))
		return ucx_failed(wire, UCS_PTR_STATUS(request), what, error);
	message->done = false;
	message->request = request;
	if (!request)
		finish_message(wire, message, UCS_OK);
	else
		wire->messages[wire->message_count++] = message;
	return 0;
}

/* Whether one more message may be begun. */
static int admit(struct wire *wire, const struct wire_piece *piece, struct error *error)
{
	wire->of_gpu = wire->of_gpu || piece->memory == WIRE_CUDA;
	return wire->message_count < MESSAGES_MAX
		       ? 0
		       : error_set(error, -EIO, NULL, "%d messages are on their way already", MESSAGES_MAX);
}

int wire_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
	      struct error *error)
{
	const ucp_request_param_t param = param_for(wire, piece);
	int r = admit(wire, piece, error);

	if (r < 0)
		return r;
	return begun(wire,
		     wire->ucx->ucp_tag_send_nbx(wire->endpoint, piece->data, piece->bytes, piece->tag, &param),
		     message, "send", error);
}

int wire_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		 struct error *error)
{
	const ucp_request_param_t param = param_for(wire, piece);
	int r = admit(wire, piece, error);

	if (r < 0)
		return r;
	return begun(wire,
		     wire->ucx->ucp_tag_recv_nbx(wire->worker, piece->data, piece->bytes, piece->tag,
						 ~(ucp_tag_t)0, &param),
		     message, "receive", error);
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
	bool worked = wire->ucx->ucp_worker_progress(wire->worker) > 0;
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	int ended;

	for (;;) {
		while (wire->ucx->ucp_worker_progress(wire->worker) > 0)
			worked = true;
		collect(wire);
		if (wire->ended > 0 || clock_left(deadline) == 0)
			break;
		if (wire->failed != UCS_OK)
			return ucx_failed(wire, wire->failed, "reach the other side any more", error);
		if (ppoll(&wait, 1, &(struct timespec){.tv_nsec = judge_nap(wire, worked) * 1000L}, NULL) > 0)
			break;
		worked = false;
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
		r = error_set(error, -ECONNRESET, NULL, "UCX lost the other side at once");
	return r < 0 ? r : 0;
}

#endif
