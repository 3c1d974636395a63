/* UCX, opened when it is first needed. Only wire_ucx.c uses it. */
#ifndef GPUWM_PEER_UCX_H
#define GPUWM_PEER_UCX_H

#include "../base/errors.h"

#include <stddef.h>
#include <ucp/api/ucp.h>

/* Debian 12 has UCX 1.13. Later ones know it: the ABI of libucp.so.0 has not changed since. */
struct ucx {
	void (*ucp_get_version)(unsigned *ret_major, unsigned *ret_minor, unsigned *ret_release);
	ucs_status_t (*ucp_config_read)(const char *prefix, const char *file, ucp_config_t **ret);
	ucs_status_t (*ucp_config_modify)(ucp_config_t *config, const char *name, const char *value);
	void (*ucp_config_release)(ucp_config_t *config);
	ucs_status_t (*ucp_init_version)(unsigned major, unsigned minor, const ucp_params_t *params,
					 const ucp_config_t *config, ucp_context_h *ret);
	ucs_status_t (*ucp_context_query)(ucp_context_h context, ucp_context_attr_t *ret);
	void (*ucp_cleanup)(ucp_context_h context);
	ucs_status_t (*ucp_mem_map)(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *ret);
	ucs_status_t (*ucp_mem_unmap)(ucp_context_h context, ucp_mem_h memory);
	ucs_status_t (*ucp_worker_create)(ucp_context_h context, const ucp_worker_params_t *params,
					  ucp_worker_h *ret);
	void (*ucp_worker_destroy)(ucp_worker_h worker);
	ucs_status_t (*ucp_worker_get_address)(ucp_worker_h worker, ucp_address_t **ret, size_t *ret_bytes);
	void (*ucp_worker_release_address)(ucp_worker_h worker, ucp_address_t *address);
	unsigned (*ucp_worker_progress)(ucp_worker_h worker);
	ucs_status_t (*ucp_ep_create)(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ret);
	ucs_status_ptr_t (*ucp_ep_close_nbx)(ucp_ep_h endpoint, const ucp_request_param_t *param);
	ucs_status_ptr_t (*ucp_tag_send_nbx)(ucp_ep_h endpoint, const void *data, size_t bytes, ucp_tag_t tag,
					     const ucp_request_param_t *param);
	ucs_status_ptr_t (*ucp_tag_recv_nbx)(ucp_worker_h worker, void *to, size_t bytes, ucp_tag_t tag,
					     ucp_tag_t mask, const ucp_request_param_t *param);
	ucs_status_t (*ucp_request_check_status)(void *request);
	void (*ucp_request_cancel)(ucp_worker_h worker, void *request);
	void (*ucp_request_free)(void *request);
	const char *(*ucs_status_string)(ucs_status_t status);
};

/* Returns 0 and sets *ret to what lives as long as the process. Fails with -ENOTSUP. Any thread. */
int ucx_open(const struct ucx **ret, struct error *error);

#endif
