/* UCX as two transports: over network cards that have RDMA, and between the GPUs of one machine. UCX_NET_DEVICES and its other variables count as
 * usual. Two settings don't come from the environment:
 *
 *   UCX_RNDV_SCHEME=get_zcopy  Nobody may get a key with which to write this process's memory: the receiver fetches, or the sender's messages are
 *                              copied.
 *   UCX_TLS, without tcp       Over TCP UCX has a message that writes anywhere in the process, and takes it from everybody who reaches its port: a
 *                              local user does, whatever the firewall. So it opens no port at all.
 *
 * An address is that of a UCX worker. UCX trusts it: it comes over TLS. */
#include "wire.h"

#include "ucx.h"

#include "../base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Which of UCX's own transports it may use. All of them read and write no GPU's memory without the last two. */
#define TLS_OF_RDMA "ib,cuda_copy,gdr_copy"
#define TLS_OF_GPUS "sm,cuda_copy,cuda_ipc"

/* In the tag of a greeting. */
#define NUMBER_GREETING ((UINT32_C(1) << WIRE_NUMBER_BITS) - 1)

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
	uint64_t greetings[2]; /* theirs, and ours */
	struct wire_message met[2]; /* the messages with these */
	bool greeted[2]; /* they were begun */
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
	return error_set(error, code, code == -EHOSTUNREACH ? "see UCX_NET_DEVICES" : NULL,
			 "UCX could not %s: %s", what, wire->ucx->ucs_status_string(status));
}

/* Debian's release ends the process now and then, by an assertion, if the other side goes away while it sends over TCP without a copy: it
 * counts the end of such a message twice. */
#define MINOR_WITHOUT_COPIES 22

static int configure(const struct wire_ucx *wire, const char *transports, ucp_config_t **ret,
		     struct error *error)
{
	ucp_config_t *config;
	unsigned major, minor, release;
	ucs_status_t status = wire->ucx->ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return ucx_failed(wire, status, "be configured", error);
	status = wire->ucx->ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
	if (status == UCS_OK)
		status = wire->ucx->ucp_config_modify(config, "TLS", transports);
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

static int open_worker(struct wire_ucx *wire, const char *transports, struct error *error)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					    .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_config_t *config = NULL;
	ucs_status_t status;
	int r = configure(wire, transports, &config, error);

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

static int open_with(const char *transports, struct wire **ret, struct error *error)
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
	r = open_worker(wire, transports, error);
	if (r < 0)
		wire_ucx_free(&wire->wire);
	else
		*ret = &wire->wire;
	return r;
}

static int wire_rdma_open(struct wire **ret, struct error *error)
{
	return open_with(TLS_OF_RDMA, ret, error);
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

/* ---- meeting --------------------------------------------------------------- */

static int connect_to(struct wire_ucx *wire, const void *address, size_t bytes, struct error *error)
{
	ucp_ep_params_t params = {
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
	/* Debian's UCX notices no end of a process over shared memory, and refuses. The take's link, on the same machine, notices it. */
	if (status == UCS_ERR_UNREACHABLE && wire->wire.ops->of_one_machine) {
		params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
		status = wire->ucx->ucp_ep_create(wire->worker, &params, &wire->endpoint);
	}
	if (status != UCS_OK)
		wire->endpoint = NULL;
	return status == UCS_OK ? 0 : ucx_failed(wire, status, "connect to the other side", error);
}

static int begin_greeting(struct wire_ucx *wire, const struct wire_meeting *meeting, bool ours,
			  struct error *error)
{
	struct wire_piece piece = {
		.tag = wire_tag(meeting->nonce, NUMBER_GREETING),
		.data = &wire->greetings[ours],
		.bytes = sizeof(wire->greetings[ours]),
	};

	wire->greeted[ours] = true;
	if (!ours)
		return wire_receive(&wire->wire, &piece, &wire->met[ours], error);
	return wire_send(&wire->wire, &piece, &wire->met[ours], error);
}

/* A greeting goes in both directions, so that all connections are made before a message is on its way: UCX's releases with assertions, as Debian's
 * 1.13, end the process if the other side goes away while they are made. The server begins, and the taker connects when its greeting has come:
 * connections that cross each other take UCX longer. */
static int wire_ucx_meet(struct wire *base, const struct wire_meeting *meeting, struct error *error)
{
	struct wire_ucx *wire = ucx_of(base);
	int r = wire->greeted[0] ? 0 : begin_greeting(wire, meeting, false, error);

	if (r == 0 && !wire->greeted[1] && (base->serves || wire->met[0].done)) {
		r = connect_to(wire, meeting->address, meeting->bytes, error);
		if (r == 0)
			r = begin_greeting(wire, meeting, true, error);
	}
	if (r < 0 || !(wire->met[0].done && wire->met[1].done))
		return r < 0 ? r : 1;
	return wire->met[0].result < 0 || wire->met[1].result < 0
		       ? error_set(error, -ECONNRESET, NULL, "UCX lost the other side at once")
		       : 0;
}

/* ---- what this machine has ------------------------------------------------- */

#define RDMA_DEVICES "/sys/class/infiniband" /* InfiniBand and RoCE */
#define GPU_DEVICE "/dev/nvidiactl"

static int rdma_here(struct error *error)
{
	const struct ucx *ucx;
	DIR *folder = opendir(RDMA_DEVICES);
	struct dirent *entry = NULL;

	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while (folder && (entry = readdir(folder)) && entry->d_name[0] == '.')
		;
	if (folder)
		closedir(folder);
	if (!entry)
		return error_set(error, -ENOTSUP, NULL, "there is no network card with RDMA here");
	return ucx_open(&ucx, error);
}

static struct error no_gpus; /* code 0: there are some, and UCX knows them */

static void look_for_gpus(void)
{
	struct wire *wire;

	if (access(GPU_DEVICE, F_OK) < 0)
		error_set(&no_gpus, -ENOTSUP, NULL, "there is no GPU here");
	else if (open_with(TLS_OF_GPUS, &wire, &no_gpus) == 0) {
		if (!wire_ucx_carries_gpu(wire))
			error_set(&no_gpus, -ENOTSUP,
				  "PyPI's libucx-cu13 does: docs/peers.md says how to install it",
				  "the UCX that is installed here knows no CUDA");
		wire_ucx_free(wire);
	}
}

static int gpus_here(struct error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_for_gpus);
	if (error)
		*error = no_gpus;
	return no_gpus.code;
}

static int wire_gpus_open(struct wire **ret, struct error *error)
{
	return open_with(TLS_OF_GPUS, ret, error);
}

/* ---- both ------------------------------------------------------------------ */

#define UCX_OPS                                                                                                \
	.settle = wire_ucx_settle, .free = wire_ucx_free, .add_memory = wire_ucx_add_memory,                   \
	.carries_gpu = wire_ucx_carries_gpu, .address = wire_ucx_address, .meet = wire_ucx_meet,               \
	.send = wire_ucx_send, .receive = wire_ucx_receive, .work = wire_ucx_work, .state = wire_ucx_state

const struct wire_ops wire_rdma = {
	.name = "rdma",
	.title = "RDMA",
	.remedy = "does UCX_NET_DEVICES name the cards that join the two?",
	.here = rdma_here,
	.open = wire_rdma_open,
	UCX_OPS,
};

const struct wire_ops wire_gpus = {
	.name = "gpus",
	.title = "NVLink",
	.remedy = "gpuwm-peer and gpuwm-loader have to see each other's memory: see docs/peers.md",
	.of_one_machine = true,
	/* NVLink brings 100 GB/s and more, PCIe 10. Where UCX finds neither, the processor copies: 0.1 GB/s. */
	.rate_min = 2000000000,
	.judged_bytes = MIB(256),
	.here = gpus_here,
	.open = wire_gpus_open,
	UCX_OPS,
};
