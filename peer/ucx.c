#include "ucx.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static struct ucx ucx;
static struct error refused;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *name;
	void **function;
} functions[] = {
#define FUNCTION(name)                                                                                         \
	{                                                                                                      \
#name, (void **)&ucx.name                                                                      \
	}
	FUNCTION(ucp_get_version),
	FUNCTION(ucp_config_read),
	FUNCTION(ucp_config_modify),
	FUNCTION(ucp_config_release),
	FUNCTION(ucp_init_version),
	FUNCTION(ucp_context_query),
	FUNCTION(ucp_cleanup),
	FUNCTION(ucp_mem_map),
	FUNCTION(ucp_mem_unmap),
	FUNCTION(ucp_worker_create),
	FUNCTION(ucp_worker_destroy),
	FUNCTION(ucp_worker_get_address),
	FUNCTION(ucp_worker_release_address),
	FUNCTION(ucp_worker_progress),
	FUNCTION(ucp_ep_create),
	FUNCTION(ucp_ep_close_nbx),
	FUNCTION(ucp_tag_send_nbx),
	FUNCTION(ucp_tag_recv_nbx),
	FUNCTION(ucp_request_check_status),
	FUNCTION(ucp_request_cancel),
	FUNCTION(ucp_request_free),
	FUNCTION(ucs_status_string),
#undef FUNCTION
};

/* UCX reads these when it is loaded. Otherwise it would take over the signals of crashes, and write to stdout about every peer that goes away.
 *
 * UCX would also patch functions of libc and of the driver, to learn when memory is allocated and freed. Other threads may run these functions
 * meanwhile. UCX 1.22 waits 30 ms for each function, 1.2 s in all. Units with MemoryDenyWriteExecute= forbid it. UCX's other way, by tables of
 * pointers (reloc), misses gpuwm's calls of the driver, and a take then hangs in malloc. So UCX gets neither (HOOK_MODE).
 *
 * Without them UCX's cache of addresses (MEMTYPE_CACHE) takes a GPU's memory for the host's, and UCX crashes. Without that cache it asks the driver.
 * No registration outlives its memory: each wire has a UCX context of its own, and the buffers live as long as the wire. */
static void set_defaults(void)
{
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	setenv("UCX_LOG_FILE", "stderr", 0);
	setenv("UCX_LOG_LEVEL", "fatal", 0);
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
	setenv("UCX_MEM_CUDA_HOOK_MODE", "none", 0);
	setenv("UCX_MEMTYPE_CACHE", "n", 0);
}

/* It is never closed: it has threads and hooks of its own. */
static void load(void)
{
	void *library;

	set_defaults();
	library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library) {
		error_set(&refused, -ENOTSUP, "install UCX: Debian's libucx0, or PyPI's libucx-cu13 for GPUs",
			  "libucp.so.0 can't be opened: %s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*functions[i].function = dlsym(library, functions[i].name);
		if (!*functions[i].function) {
			error_set(&refused, -ENOTSUP, "UCX 1.13 and later have it",
				  "libucp.so.0 has no function %s", functions[i].name);
			return;
		}
	}
}

int ucx_open(const struct ucx **ret, struct error *error)
{
	pthread_once(&once, load);
	if (refused.code) {
		*error = refused;
		return refused.code;
	}
	*ret = &ucx;
	return 0;
}
