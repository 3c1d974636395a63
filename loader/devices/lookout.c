#include "loss.h"

#include "../../base/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct known {
	char id[DEVICE_BYTES_MAX + 1];
	bool lost; /* gpuwmd counts it as lost */
	struct error why; /* it was found lost, and gpuwmd was not told yet; code 0: it was not */
	bool back; /* it was found usable again, and gpuwmd was not told yet */
};

struct lookout {
	struct known *known;
	size_t count;
	uint64_t look_ms, examine_ms; /* when the next of each is due */
	pid_t examiner; /* 0: none is running */
	/* the GPU that it examines, or that the last one did */
	char examined[DEVICE_BYTES_MAX + 1];
};

struct lookout *lookout_new(void)
{
	struct lookout *lookout = calloc(1, sizeof(*lookout));

	if (lookout)
		lookout->known = calloc(LOOKOUT_DEVICES_MAX, sizeof(*lookout->known));
	if (lookout && !lookout->known) {
		free(lookout);
		return NULL;
	}
	return lookout;
}

struct lookout *lookout_free(struct lookout *lookout)
{
	if (!lookout)
		return NULL;
	/* Kills the examiner and does not wait for it: it may hang in the kernel. */
	if (lookout->examiner) {
		kill(lookout->examiner, SIGKILL);
		waitpid(lookout->examiner, NULL, WNOHANG);
	}
	free(lookout->known);
	free(lookout);
	return NULL;
}

static struct known *lookout_find(struct lookout *lookout, const char *id)
{
	for (size_t i = 0; i < lookout->count; i++) {
		if (strcmp(lookout->known[i].id, id) == 0)
			return &lookout->known[i];
	}
	return NULL;
}

void lookout_told(struct lookout *lookout, const struct device_known *devices, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct known *known = lookout_find(lookout, devices[i].device);

		if (!loss_is_possible(devices[i].device))
			continue;
		if (!known && lookout->count < LOOKOUT_DEVICES_MAX) {
			known = &lookout->known[lookout->count++];
			snprintf(known->id, sizeof(known->id), "%s", devices[i].device);
		}
		if (known)
			known->lost = devices[i].lost;
	}
}

int64_t lookout_wait_ms(const struct lookout *lookout)
{
	return lookout->count > 0 ? LOOKOUT_MS : -1;
}

/* ---- examinations ---- */

/* Examines a GPU in a process of its own, for two reasons: this process began before the GPU came
 * back, and a driver that hangs must not keep it from its job. */
static void lookout_examine(struct lookout *lookout, const struct known *known)
{
	char program[] = "gpuwm-loader", option[] = "--examine";
	char *arguments[] = {program, option, lookout->examined, NULL};
	posix_spawn_file_actions_t actions;

	strcpy(lookout->examined, known->id);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return;
	/* The examiner has nothing to say in the log: that the GPU is still lost is no news. */
	if (posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
	    posix_spawn(&lookout->examiner, "/proc/self/exe", &actions, NULL, arguments, environ) != 0)
		lookout->examiner = 0;
	posix_spawn_file_actions_destroy(&actions);
}

/* Returns the lost GPU after the one that was examined last. */
static const struct known *next_lost(struct lookout *lookout)
{
	const struct known *last = lookout_find(lookout, lookout->examined);
	size_t from = last ? (size_t)(last - lookout->known) + 1 : 0;

	for (size_t i = 0; i < lookout->count; i++) {
		const struct known *known = &lookout->known[(from + i) % lookout->count];

		if (known->lost)
			return known;
	}
	return NULL;
}

static void turn_examiner(struct lookout *lookout, uint64_t now)
{
	const struct known *next;
	int status = 1; /* it did not exit */

	if (lookout->examiner && waitpid(lookout->examiner, &status, WNOHANG) != 0) {
		struct known *known = lookout_find(lookout, lookout->examined);

		lookout->examiner = 0;
		if (known && known->lost && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			known->back = true;
	}
	if (lookout->examiner || now < lookout->examine_ms)
		return;
	next = next_lost(lookout);
	if (!next)
		return;
	lookout->examine_ms = now + LOOKOUT_EXAMINE_MS;
	lookout_examine(lookout, next);
}

/* ---- turns ---- */

static bool has_news(const struct lookout *lookout)
{
	for (size_t i = 0; i < lookout->count; i++) {
		if (lookout->known[i].why.code || lookout->known[i].back)
			return true;
	}
	return false;
}

bool lookout_turn(struct lookout *lookout)
{
	uint64_t now = clock_steady_ms();

	if (now < lookout->look_ms)
		return false;
	lookout->look_ms = now + LOOKOUT_MS;
	for (size_t i = 0; i < lookout->count; i++) {
		struct known *known = &lookout->known[i];

		if (!known->lost && !loss_is_seen(known->id, &known->why))
			known->why.code = 0;
	}
	turn_examiner(lookout, now);
	return has_news(lookout);
}

bool lookout_after_failure(struct lookout *lookout, const char *id)
{
	struct known *known = lookout_find(lookout, id);

	if (known && !known->lost && !loss_is_met(id, &known->why))
		known->why.code = 0;
	return has_news(lookout);
}

uint32_t lookout_lost(const struct lookout *lookout, struct device_found_lost ret[LOOKOUT_DEVICES_MAX])
{
	uint32_t count = 0;

	for (size_t i = 0; i < lookout->count; i++) {
		const struct known *known = &lookout->known[i];

		if (known->why.code)
			ret[count++] = (struct device_found_lost){known->id, &known->why};
	}
	return count;
}

uint32_t lookout_back(const struct lookout *lookout, const char *ret[LOOKOUT_DEVICES_MAX])
{
	uint32_t count = 0;

	for (size_t i = 0; i < lookout->count; i++) {
		if (lookout->known[i].back)
			ret[count++] = lookout->known[i].id;
	}
	return count;
}

void lookout_has_told(struct lookout *lookout)
{
	for (size_t i = 0; i < lookout->count; i++) {
		struct known *known = &lookout->known[i];

		if (known->why.code)
			known->lost = true;
		if (known->back)
			known->lost = false;
		known->why.code = 0;
		known->back = false;
	}
}
