#include "lookout.h"

#include "loss.h"

#include "../client/lib/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* more GPUs than gpuwmd's table has */
#define KNOWN_MAX 128

struct known {
	char id[DEVICE_BYTES_MAX + 1];
	bool lost; /* gpuwmd counts it as lost */
	struct error why; /* it was found lost, and gpuwmd was not told yet; code 0: it was not */
	bool back; /* it was found usable again, and gpuwmd was not told yet */
};

struct lookout {
	struct known *known;
	size_t count;
	int64_t look_ms, examine_ms; /* when the next of each is due */
	pid_t examiner; /* 0: none is running */
	/* the GPU that it examines, or that the last one did */
	char examined[DEVICE_BYTES_MAX + 1];
};

struct lookout *lookout_new(void)
{
	struct lookout *lookout = calloc(1, sizeof(*lookout));

	if (lookout)
		lookout->known = calloc(KNOWN_MAX, sizeof(*lookout->known));
	if (lookout && !lookout->known) {
		free(lookout);
		return NULL;
	}
	return lookout;
}

/* Kills the examiner and does not wait for it: it may hang in the kernel. */
static void end_examiner(struct lookout *lookout)
{
	if (!lookout->examiner)
		return;
	kill(lookout->examiner, SIGKILL);
	waitpid(lookout->examiner, NULL, WNOHANG);
	lookout->examiner = 0;
}

struct lookout *lookout_free(struct lookout *lookout)
{
	if (!lookout)
		return NULL;
	end_examiner(lookout);
	free(lookout->known);
	free(lookout);
	return NULL;
}

static struct known *find(struct lookout *lookout, const char *id)
{
	for (size_t i = 0; i < lookout->count; i++) {
		if (strcmp(lookout->known[i].id, id) == 0)
			return &lookout->known[i];
	}
	return NULL;
}

void lookout_told(struct lookout *lookout, struct fields *f)
{
	uint32_t count;
	const msgpack_object *devices = fields_array(f, "devices", &count);

	for (uint32_t i = 0; i < count; i++) {
		char id[DEVICE_BYTES_MAX + 1];
		struct known *known;
		struct fields device;
		bool lost;

		fields_of(&device, &devices[i]);
		fields_text(&device, "device", id, sizeof(id));
		lost = fields_bool_or(&device, "lost", false);
		if (device.error.code || !loss_is_possible(id))
			continue;
		known = find(lookout, id);
		if (!known && lookout->count < KNOWN_MAX) {
			known = &lookout->known[lookout->count++];
			strcpy(known->id, id);
		}
		if (known)
			known->lost = lost;
	}
}

int64_t lookout_wait_ms(const struct lookout *lookout)
{
	return lookout->count > 0 ? LOOKOUT_MS : -1;
}

/* ---- examinations ---- */

/* Examines a GPU in a process of its own, for two reasons: this process began before the GPU came
 * back, and a driver that hangs must not keep it from its job. */
static void examine(struct lookout *lookout, const struct known *known)
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
	const struct known *last = find(lookout, lookout->examined);
	size_t from = last ? (size_t)(last - lookout->known) + 1 : 0;

	for (size_t i = 0; i < lookout->count; i++) {
		const struct known *known = &lookout->known[(from + i) % lookout->count];

		if (known->lost)
			return known;
	}
	return NULL;
}

static void conclude(struct lookout *lookout)
{
	struct known *known = find(lookout, lookout->examined);
	int status = 1; /* it did not exit */

	if (waitpid(lookout->examiner, &status, WNOHANG) == 0)
		return;
	lookout->examiner = 0;
	if (known && known->lost && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		known->back = true;
}

static void turn_examiner(struct lookout *lookout, int64_t now)
{
	const struct known *known;

	if (lookout->examiner)
		conclude(lookout);
	if (lookout->examiner || now < lookout->examine_ms)
		return;
	known = next_lost(lookout);
	if (!known)
		return;
	lookout->examine_ms = now + LOOKOUT_EXAMINE_MS;
	examine(lookout, known);
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
	int64_t now = clock_ms();

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
	struct known *known = find(lookout, id);

	if (known && !known->lost && !loss_is_met(id, &known->why))
		known->why.code = 0;
	return has_news(lookout);
}

void lookout_put(struct lookout *lookout, struct message_writer *w)
{
	message_begin_array(w, "lost");
	for (size_t i = 0; i < lookout->count; i++) {
		struct known *known = &lookout->known[i];

		if (!known->why.code)
			continue;
		message_begin_map(w, NULL);
		message_put_text(w, "device", known->id);
		message_put_error(w, "error", &known->why);
		message_end(w);
		known->why.code = 0;
		known->lost = true;
	}
	message_end(w);
	message_begin_array(w, "back");
	for (size_t i = 0; i < lookout->count; i++) {
		if (!lookout->known[i].back)
			continue;
		message_put_text(w, NULL, lookout->known[i].id);
		lookout->known[i].back = lookout->known[i].lost = false;
	}
	message_end(w);
}
