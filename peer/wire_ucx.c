/* UCX as a transport. UCX_TLS, UCX_NET_DEVICES and its other variables count as usual. Two settings don't come from the environment, because
 * nobody may get a key with which to write this process's memory: the receiver fetches (UCX_RNDV_SCHEME=get_zcopy), or the sender's
 * messages are copied. An address is that of a UCX worker. UCX trusts it: it comes over TLS. */
#include "wire.h"

#include "ucx.h"

#include "../base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* What UCX still has to say about the connection reaches the other side before it ends. */
#define WIRE_LINGER_MS 100
#define YOUNG_MS 1000 /* later UCX has said it */
#define SETTLE_MS 5000 /* UCX needs milliseconds to end what is on its way, and more on a busy machine */
/* Less has no room for a worker's id alone. */
#define ADDRESS_BYTES_MIN 16

/* Memory that UCX registered once, for all messages in it. Elsewhere UCX asks the driver about each message's memory, and registers
 * it: a take from one GPU to another then went at 113 to 160 GB/s, and with areas at 362. */
struct area {
	const char *data;
	size_t bytes;
	ucp_mem_h handle;
};

struct wire_ucx {
	struct wire wire;
	const struct ucx *ucx;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_bytes;
	struct area *areas;
	size_t area_count;
	ucp_ep_h endpoint; /* NULL: not connected */
	ucs_status_t failed; /* of the endpoint; UCS_OK: it works */
	uint64_t begun_ms; /* when it connected */
};

static struct wire_ucx *ucx_of(const struct wire *wire)
{
	return (struct wire_ucx *)wire;
}

static int ucx_failed(const struct wire_ucx *wire, ucs_status_t status, const char *what, struct error *error)
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

/* The receiver fetches what the sender has registered for reading. TCP can't fetch: there the sender's messages are copied. */
static int configure(const struct wire_ucx *wire, ucp_config_t **ret, struct error *error)
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

static int open_worker(struct wire_ucx *wire, struct error *error)
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

static void wire_ucx_free(struct wire *base)
{
	struct wire_ucx *wire = ucx_of(base);

	if (wire->address)
		wire->ucx->ucp_worker_release_address(wire->worker, wire->address);
	if (wire->worker)
		wire->ucx->ucp_worker_destroy(wire->worker);
	for (size_t i = 0; i < wire->area_count; i++)
		wire->ucx->ucp_mem_unmap(wire->context, wire->areas[i].handle);
	free(wire->areas);
	if (wire->context)
		wire->ucx->ucp_cleanup(wire->context);
	free(wire);
}

static int wire_ucx_open(struct wire **ret, struct error *error)
{
	const struct ucx *ucx;
	struct wire_ucx *wire;
	int r = ucx_open(&ucx, error);

	if (r < 0)
		return r;
	wire = calloc(1, sizeof(*wire));
	if (!wire)
		return error_set(error, -ENOMEM, NULL, "no memory for a connection by UCX");
	wire->ucx = ucx;
	r = open_worker(wire, error);
	if (r < 0)
		wire_ucx_free(&wire->wire);
	else
		*ret = &wire->wire;
	return r;
}

static void finish_message(struct wire_ucx *wire, struct wire_message *message, ucs_status_t status)
{
	if (message->request)
		wire->ucx->ucp_request_free(message->request);
	message->request = NULL;
	wire_message_end(&wire->wire, message, status == UCS_OK ? 0 : ucx_failed(wire, status, "", NULL));
}

static bool wire_ucx_work(struct wire *base)
{
	struct wire_ucx *wire = ucx_of(base);
	bool worked = false;

	while (wire->ucx->ucp_worker_progress(wire->worker) > 0)
		worked = true;
	/* What is done leaves the list, and the last one takes its place. */
	for (unsigned i = base->message_count; i-- > 0;) {
		struct wire_message *message = base->messages[i];
		ucs_status_t status = wire->ucx->ucp_request_check_status(message->request);

		if (status != UCS_INPROGRESS)
			finish_message(wire, message, status);
	}
	return worked;
}

/* ---- the end --------------------------------------------------------------- */

/* Whatever is on its way fails then. */
static void close_endpoint(struct wire_ucx *wire, int64_t deadline)
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

static bool wire_ucx_settle(struct wire *base)
{
	struct wire_ucx *wire = ucx_of(base);
	int64_t deadline = clock_deadline(SETTLE_MS), grace = clock_deadline(WIRE_LINGER_MS);

	while (wire->endpoint && wire->failed == UCS_OK && clock_steady_ms() - wire->begun_ms < YOUNG_MS &&
	       clock_left(grace) > 0)
		wire->ucx->ucp_worker_progress(wire->worker);
	if (wire->endpoint)
		close_endpoint(wire, deadline);
	/* What UCX has begun to fetch can't be cancelled: it has failed with the endpoint. */
	for (unsigned i = 0; i < base->message_count; i++)
		wire->ucx->ucp_request_cancel(wire->worker, base->messages[i]->request);
	do {
		wire_ucx_work(base);
	} while (base->message_count > 0 && clock_left(deadline) > 0);
	return base->message_count == 0;
}

/* ---- the connection -------------------------------------------------------- */

static const void *wire_ucx_address(const struct wire *wire, size_t *ret_bytes)
{
	*ret_bytes = ucx_of(wire)->address_bytes;
	return ucx_of(wire)->address;
}

static ucs_memory_type_t type_of(enum wire_memory memory)
{
	return memory == WIRE_CUDA ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

/* If UCX refuses, there is no such area, and UCX registers the memory of each message by itself. */
static void wire_ucx_add_memory(struct wire *base, void *data, size_t bytes, enum wire_memory memory)
{
	struct wire_ucx *wire = ucx_of(base);
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.address = data,
		.length = bytes,
		.memory_type = type_of(memory),
	};
	struct area *areas = realloc(wire->areas, (wire->area_count + 1) * sizeof(*areas));

	if (!areas)
		return;
	wire->areas = areas;
	areas[wire->area_count] = (struct area){.data = data, .bytes = bytes};
	wire->area_count +=
		wire->ucx->ucp_mem_map(wire->context, &params, &areas[wire->area_count].handle) == UCS_OK;
}

/* Returns the handle of the area that has all of these bytes, or NULL. */
static ucp_mem_h area_find(const struct wire_ucx *wire, const char *data, size_t bytes)
{
	for (size_t i = 0; i < wire->area_count; i++) {
		const struct area *area = &wire->areas[i];

		if (data >= area->data && data + bytes <= area->data + area->bytes)
			return area->handle;
	}
	return NULL;
}

static bool wire_ucx_carries_gpu(const struct wire *base)
{
	const struct wire_ucx *wire = ucx_of(base);
	ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	return wire->ucx->ucp_context_query(wire->context, &attributes) == UCS_OK &&
	       (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA));
}

static void endpoint_failed(void *user_data, ucp_ep_h endpoint, ucs_status_t status)
{
	struct wire_ucx *wire = user_data;

	(void)endpoint;
	wire->failed = status;
}

static int wire_ucx_connect(struct wire *base, const void *address, size_t bytes, struct error *error)
{
	struct wire_ucx *wire = ucx_of(base);
	const ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {endpoint_failed, wire},
	};
	ucs_status_t status;

	if (bytes < ADDRESS_BYTES_MIN || bytes > WIRE_ADDRESS_BYTES_MAX)
		return error_set(error, -EBADMSG, NULL, "%zu bytes are no address of a UCX worker", bytes);
	wire->begun_ms = clock_steady_ms();
	status = wire->ucx->ucp_ep_create(wire->worker, &params, &wire->endpoint);
	if (status != UCS_OK)
		wire->endpoint = NULL;
	return status == UCS_OK ? 0 : ucx_failed(wire, status, "connect to the other side", error);
}

static int wire_ucx_state(const struct wire *base, struct error *error)
{
	const struct wire_ucx *wire = ucx_of(base);

	return wire->failed == UCS_OK ? 0
				      : ucx_failed(wire, wire->failed, "reach the other side any more", error);
}

/* ---- messages -------------------------------------------------------------- */

static ucp_request_param_t param_for(const struct wire_ucx *wire, const struct wire_piece *piece)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.memory_type = type_of(piece->memory),
		.memh = area_find(wire, piece->data, piece->bytes),
	};

	if (param.memh)
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
	return param;
}

/* Takes over what UCX returned. */
static int begun(struct wire_ucx *wire, ucs_status_ptr_t request, struct wire_message *message,
		 const char *what, struct error *error)
{
	if (UCS_PTR_IS_ERR(request))
		return ucx_failed(wire, UCS_PTR_STATUS(request), what, error);
	message->request = request;
	if (!request)
		finish_message(wire, message, UCS_OK);
	else
		wire_message_begun(&wire->wire, message);
	return 0;
}

static int wire_ucx_send(struct wire *base, const struct wire_piece *piece, struct wire_message *message,
			 struct error *error)
{
	struct wire_ucx *wire = ucx_of(base);
	const ucp_request_param_t param = param_for(wire, piece);

	return begun(wire,
		     wire->ucx->ucp_tag_send_nbx(wire->endpoint, piece->data, piece->bytes, piece->tag, &param),
		     message, "send", error);
}

static int wire_ucx_receive(struct wire *base, const struct wire_piece *piece, struct wire_message *message,
			    struct error *error)
{
	struct wire_ucx *wire = ucx_of(base);
	const ucp_request_param_t param = param_for(wire, piece);

	return begun(wire,
		     wire->ucx->ucp_tag_recv_nbx(wire->worker, piece->data, piece->bytes, piece->tag,
						 ~(ucp_tag_t)0, &param),
		     message, "receive", error);
}

const struct wire_ops wire_ucx = {
	.name = "ucx",
	.title = "UCX",
	.remedy =
		"are the ports that UCX uses open (UCX_TCP_PORT_RANGE), and do UCX_TLS and UCX_NET_DEVICES name what "
		"joins the two?",
	.open = wire_ucx_open,
	.settle = wire_ucx_settle,
	.free = wire_ucx_free,
	.add_memory = wire_ucx_add_memory,
	.carries_gpu = wire_ucx_carries_gpu,
	.address = wire_ucx_address,
	.connect = wire_ucx_connect,
	.send = wire_ucx_send,
	.receive = wire_ucx_receive,
	.work = wire_ucx_work,
	.state = wire_ucx_state,
};
