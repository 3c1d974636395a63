/* UCX by itself: one process sends from GPU 0, another one receives on GPU 1 (or on the same one), as gpuwm-peer and a loader do: from plain
 * memory of the sender, into memory of cuMemCreate. Prints the rate from the first message that came to the last, and the time before.
 *
 *   gpu-ucx [GIB [MESSAGE_MIB]]
 */
#include "gpu.h"

#include "../../peer/ucx.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_FLIGHT 4
#define TAG 7
#define ADDRESS_MAX 8192

static const struct ucx *ucx;
static ucp_worker_h worker;

static size_t gib = 16, message = (size_t)64 << 20;

/* Opens a worker of its own, and prints what took how long. */
static void open_worker(const char *whose)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	const ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					    .thread_mode = UCS_THREAD_MODE_SINGLE};
	double begin = now_ms(), found, started;
	ucp_config_t *config;
	ucp_context_h context;
	struct error error;

	if (ucx_open(&ucx, &error) < 0)
		DIE("%s", error.message);
	found = now_ms();
	if (ucx->ucp_config_read(NULL, NULL, &config) != UCS_OK ||
	    ucx->ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy") != UCS_OK ||
	    ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context) != UCS_OK)
		DIE("UCX does not start");
	started = now_ms();
	if (ucx->ucp_worker_create(context, &single, &worker) != UCS_OK)
		DIE("UCX opens no worker");
	printf("UCX of %s: its library after %.0f ms, its context after %.0f ms, its worker after %.0f ms\n",
	       whose, found - begin, started - begin, now_ms() - begin);
	fflush(stdout);
}

static void finish(ucs_status_ptr_t *request)
{
	ucs_status_t status = UCS_PTR_IS_ERR(*request) ? UCS_PTR_STATUS(*request) : UCS_OK;

	while (UCS_PTR_IS_PTR(*request) && (status = ucx->ucp_request_check_status(*request)) == UCS_INPROGRESS)
		ucx->ucp_worker_progress(worker);
	if (status != UCS_OK)
		DIE("a message failed: %s", ucx->ucs_status_string(status));
	if (UCS_PTR_IS_PTR(*request))
		ucx->ucp_request_free(*request);
	*request = NULL;
}

static const ucp_request_param_t on_gpu = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
					   .memory_type = UCS_MEMORY_TYPE_CUDA};

static void failed(void *user_data, ucp_ep_h endpoint, ucs_status_t status)
{
	(void)user_data;
	(void)endpoint;
	(void)status;
}

static ucp_ep_h connect_worker(const void *address)
{
	const ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {failed, NULL},
	};
	ucp_ep_h endpoint;

	if (ucx->ucp_ep_create(worker, &params, &endpoint) != UCS_OK)
		DIE("UCX does not connect");
	return endpoint;
}

static int run_sender(int sock)
{
	char address[ADDRESS_MAX], end;
	ucs_status_ptr_t requests[IN_FLIGHT] = {NULL};
	CUdeviceptr buffers[IN_FLIGHT];
	ucp_ep_h endpoint;

	context_make(0);
	for (int i = 0; i < IN_FLIGHT; i++) {
		CU(cuMemAlloc(&buffers[i], message));
		CU(cuMemsetD8(buffers[i], 0x5a, message));
	}
	CU(cuCtxSynchronize());
	open_worker("the sender");
	if (recv(sock, address, sizeof(address), 0) <= 0)
		DIE("no address came");
	endpoint = connect_worker(address);
	for (size_t i = 0; i < (gib << 30) / message; i++) {
		finish(&requests[i % IN_FLIGHT]);
		requests[i % IN_FLIGHT] =
			ucx->ucp_tag_send_nbx(endpoint, (void *)buffers[i % IN_FLIGHT], message, TAG, &on_gpu);
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		finish(&requests[i]);
	while (recv(sock, &end, 1, MSG_DONTWAIT) < 0)
		ucx->ucp_worker_progress(worker);
	_exit(0);
}

static CUdeviceptr make_target(int ordinal, size_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
	};
	const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	CU(cuMemCreate(&handle, bytes, &prop, 0));
	CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
	CU(cuMemMap(at, bytes, 0, handle, 0));
	CU(cuMemSetAccess(at, bytes, &access, 1));
	return at;
}

static void check(CUdeviceptr at)
{
	unsigned char first;

	CU(cuMemcpyDtoH(&first, at, 1));
	if (first != 0x5a)
		DIE("other bytes came");
}

static void run_receiver(int sock)
{
	size_t bytes = gib << 30, address_bytes;
	ucs_status_ptr_t requests[IN_FLIGHT] = {NULL};
	double begin, first = 0, end;
	ucp_address_t *address;
	CUdeviceptr at;
	int count;

	CU(cuInit(0));
	CU(cuDeviceGetCount(&count));
	context_make(count > 1);
	at = make_target(count > 1, bytes);
	open_worker("the receiver");
	open_worker("the receiver, once more");
	if (ucx->ucp_worker_get_address(worker, &address, &address_bytes) != UCS_OK ||
	    send(sock, address, address_bytes, 0) < 0)
		DIE("the address could not be sent");
	begin = now_ms();
	for (size_t i = 0; i < bytes / message; i++) {
		finish(&requests[i % IN_FLIGHT]);
		if (i == IN_FLIGHT)
			first = now_ms();
		requests[i % IN_FLIGHT] = ucx->ucp_tag_recv_nbx(worker, (void *)(at + i * message), message,
								TAG, ~(ucp_tag_t)0, &on_gpu);
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		finish(&requests[i]);
	end = now_ms();
	check(at + bytes - message);
	printf("UCX alone: %zu GiB in messages of %zu MiB, %d GPUs: the first came after %.0f ms, the others at %.1f GB/s; "
	       "%.1f GB/s in all\n",
	       gib, message >> 20, count, first - begin, (double)(bytes - message) / (end - first) / 1e6,
	       (double)bytes / (end - begin) / 1e6);
}

/* UCX as it is by itself, without what ucx.c sets. */
static void use_own_settings(void)
{
	setenv("UCX_MEM_MMAP_HOOK_MODE", "bistro", 0);
	setenv("UCX_MEM_CUDA_HOOK_MODE", "bistro", 0);
	setenv("UCX_MEMTYPE_CACHE", "try", 0);
}

int main(int argc, char **argv)
{
	int sockets[2];
	char number[16];
	pid_t sender;

	use_own_settings();
	if (argc > 1)
		gib = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		message = strtoul(argv[2], NULL, 10) << 20;
	if (argc > 3)
		return run_sender(atoi(argv[3]));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) < 0)
		DIE("no socketpair");
	sender = fork();
	if (sender == 0) {
		snprintf(number, sizeof(number), "%d", sockets[1]);
		close(sockets[0]);
		execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "16", argc > 2 ? argv[2] : "64", number,
		      NULL);
		_exit(1);
	}
	close(sockets[1]);
	run_receiver(sockets[0]);
	close(sockets[0]);
	return waitpid(sender, NULL, 0) == sender ? 0 : 1;
}
