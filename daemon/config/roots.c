#include "roots.h"

#include "config.h"
#include "../base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct roots {
	uv_loop_t *loop;
	const struct config *config;
	uv_fs_t request;
	bool busy; /* request is on its way */
	bool ended;
	size_t next; /* of the configuration's roots */
};

/* code: of stat. */
static void tell(const char *root, int code, unsigned mode)
{
	if (code == 0 && !S_ISDIR(mode))
		code = -ENOTDIR;
	if (code < 0)
		log_warning(
			"the root %s can't be used: %s. Loads from below it fail: make the folder, or change root "
			"in [loader] of the configuration",
			root, strerror(-code));
}

static void look_at_next(struct roots *roots);

static void on_stat(uv_fs_t *request)
{
	struct roots *roots = request->data;

	roots->busy = false;
	if (!roots->ended)
		tell(request->path, (int)request->result, request->statbuf.st_mode);
	uv_fs_req_cleanup(request);
	if (roots->ended)
		free(roots);
	else
		look_at_next(roots);
}

/* The configuration may be another one by now. */
static void look_at_next(struct roots *roots)
{
	const struct config *config = roots->config;

	if (roots->busy || config->loader_socket[0] || roots->next >= config->root_count)
		return;
	roots->request.data = roots;
	roots->busy = uv_fs_stat(roots->loop, &roots->request, config->roots[roots->next++], on_stat) == 0;
}

struct roots *roots_new(uv_loop_t *loop, const struct config *config)
{
	struct roots *roots = calloc(1, sizeof(*roots));

	if (roots) {
		roots->loop = loop;
		roots->config = config;
	}
	return roots;
}

struct roots *roots_free(struct roots *roots)
{
	if (roots && roots->busy)
		roots->ended = true;
	else
		free(roots);
	return NULL;
}

void roots_look(struct roots *roots)
{
	roots->next = 0;
	look_at_next(roots);
}

void roots_look_now(const struct config *config)
{
	struct stat st = {0};

	for (size_t i = 0; i < config->root_count; i++) {
		int code = stat(config->roots[i], &st) < 0 ? -errno : 0;

		tell(config->roots[i], code, st.st_mode);
	}
}
