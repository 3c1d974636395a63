#include "roots.h"

#include "config.h"
#include "../../base/clock.h"
#include "../../service/log.h"
#include "../../service/root.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of roots in one message, whose other parts have 40 KiB at most. */
#define TOLD_BYTES_MAX 24576

struct judged {
	char *root;
	struct error error; /* code 0: it can be used */
};

struct roots {
	struct judged *judged; /* ROOTS_MAX; NULL: nothing is known */
	uint32_t count;
	uint64_t pid, at_ms; /* of the loader that judged; steady */
};

static struct judged *judged_free(struct judged *judged, uint32_t count)
{
	for (uint32_t i = 0; judged && i < count; i++)
		free(judged[i].root);
	free(judged);
	return NULL;
}

struct roots *roots_new(void)
{
	return calloc(1, sizeof(struct roots));
}

struct roots *roots_free(struct roots *roots)
{
	if (roots)
		roots_forget(roots);
	free(roots);
	return NULL;
}

void roots_forget(struct roots *roots)
{
	roots->judged = judged_free(roots->judged, roots->count);
	roots->count = 0;
}

uint32_t roots_to_judge(const struct config *config)
{
	size_t bytes = 0;

	for (size_t i = 0; i < config->root_count; i++)
		bytes += strlen(config->roots[i]);
	return bytes <= TOLD_BYTES_MAX ? (uint32_t)config->root_count : 0;
}

static const struct judged *judged_find(const struct roots *roots, const char *root)
{
	for (uint32_t i = 0; i < roots->count; i++) {
		if (strcmp(roots->judged[i].root, root) == 0)
			return &roots->judged[i];
	}
	return NULL;
}

static void log_root(const struct error *error)
{
	log_warning("%s. Loads from below it fail: %s", error->message, error->detail);
}

int roots_take(struct roots *roots, uint64_t pid, const struct root_told *told, uint32_t count)
{
	struct judged *judged = calloc(ROOTS_MAX, sizeof(*judged));
	uint32_t taken = 0;

	while (judged && taken < count && (judged[taken].root = strdup(told[taken].root))) {
		if (told[taken].error)
			judged[taken].error = *told[taken].error;
		taken++;
	}
	if (!judged || taken < count) {
		judged_free(judged, taken);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct error *error = &judged[i].error;
		const struct judged *before = judged_find(roots, judged[i].root);

		if (!error->code && before && before->error.code)
			log_info("the root %s can be used again", judged[i].root);
		if (error->code && (!before || strcmp(before->error.message, error->message) != 0 ||
				    strcmp(before->error.detail, error->detail) != 0))
			log_root(error);
	}
	roots_forget(roots);
	*roots = (struct roots){judged, count, pid, clock_steady_ms()};
	return 0;
}

bool roots_tell(const struct roots *roots, struct root_told items[ROOTS_MAX], struct roots_told *ret)
{
	uint32_t count = 0;
	size_t bytes = 0;

	for (; count < roots->count; count++) {
		const struct judged *judged = &roots->judged[count];

		bytes += strlen(judged->root) + strlen(judged->error.message) + strlen(judged->error.detail);
		if (bytes > TOLD_BYTES_MAX)
			break;
		items[count] = (struct root_told){judged->root, judged->error.code ? &judged->error : NULL};
	}
	*ret = (struct roots_told){roots->pid, clock_steady_ms() - roots->at_ms, {items, count}};
	return roots->judged;
}

void roots_check_now(const struct config *config)
{
	struct error error;

	for (size_t i = 0; i < config->root_count; i++) {
		if (root_check(config->roots[i], &error) < 0)
			log_root(&error);
	}
}
