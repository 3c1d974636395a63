#include "snapshot.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool say(char ret_why[READY_WHY_BYTES], bool ready, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(ret_why, READY_WHY_BYTES, format, arguments);
	va_end(arguments);
	return ready;
}

static bool ready_is_named(const json_t *object, const char *second, const char *reference, const char *key)
{
	const char *model = member_text(object, "model");
	size_t length = strlen(model);

	return strncmp(reference, model, length) == 0 && reference[length] == '@' &&
	       strcmp(reference + length + 1, second) == 0 && member_is(object, key, second);
}

/* The id of the version that an alias names, or "". A bare model is MODEL@current. */
static const char *alias_find(const json_t *aliases, const char *reference)
{
	const json_t *alias;
	size_t i;

	json_array_foreach(aliases, i, alias) {
		if (ready_is_named(alias, member_text(alias, "alias"), reference, "alias") ||
		    (member_is(alias, "alias", "current") && member_is(alias, "model", reference)))
			return member_text(alias, "version");
	}
	return "";
}

/* Several versions may have had the tag: one that is ready counts before one that failed or goes away. */
static const json_t *version_find(const json_t *list, const char *reference)
{
	const json_t *aliases = json_object_get(list, "aliases"), *version, *found = NULL;
	const char *id = alias_find(aliases, reference);
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		bool matches =
			*id ? member_is(version, "version", id)
			    : member_is(version, "version", reference) ||
					ready_is_named(version, member_text(version, "tag"), reference, "tag");

		if (matches && (!found || member_is(version, "state", "ready")))
			found = version;
	}
	return found;
}

static const char *message_of(const json_t *version, const char *key)
{
	return member_text(json_object_get(version, key), "message");
}

static void devices_join(const json_t *version, char *ret_text, size_t size)
{
	size_t length = 0, i;
	const json_t *part;

	ret_text[0] = '\0';
	json_array_foreach(json_object_get(version, "parts"), i, part) {
		int written = snprintf(ret_text + length, size - length, "%s%s", length ? ", " : "",
				       member_text(part, "device"));

		if (written < 0 || (size_t)written >= size - length)
			return;
		length += (size_t)written;
	}
}

static bool version_judge(const json_t *version, char ret_why[READY_WHY_BYTES])
{
	const char *model = member_text(version, "model"), *tag = member_text(version, "tag");
	char devices[256];

	if (member_is(version, "state", "failed"))
		return say(ret_why, false, "%s@%s failed: %s", model, tag, message_of(version, "error"));
	if (!member_is(version, "state", "ready"))
		return say(ret_why, false, "%s@%s is %s", model, tag, member_text(version, "state"));
	if (member_has(version, "tainted"))
		return say(ret_why, false, "%s@%s is damaged: %s", model, tag, message_of(version, "tainted"));
	devices_join(version, devices, sizeof(devices));
	if (member_has(version, "tier"))
		return say(ret_why, true,
			   "%s@%s is ready, lies on %s, and is promoted to %s when a worker attaches", model,
			   tag, member_text(version, "tier"), devices);
	return say(ret_why, true, "%s@%s is ready on %s", model, tag, devices);
}

static bool missing(const struct snapshot *snapshot, const char *reference, char ret_why[READY_WHY_BYTES])
{
	const json_t *job = NULL, *one;
	size_t i;

	/* The last job for the name: a load that fails early leaves no version. */
	json_array_foreach(json_object_get(snapshot->answers[ASK_JOBS], "jobs"), i, one) {
		if (ready_is_named(one, member_text(one, "tag"), reference, "tag"))
			job = one;
	}
	if (job && member_has(job, "error"))
		return say(ret_why, false, "the %s of %.300s failed: %s", member_text(job, "kind"), reference,
			   message_of(job, "error"));
	if (job)
		return say(ret_why, false, "the %s of %.300s is %s", member_text(job, "kind"), reference,
			   member_text(job, "state"));
	return say(ret_why, false, "there is no version %.300s%s", reference,
		   snapshot->sees[ASK_CLIENTS] ? "" : ", or none that the exporter's user may attach to");
}

bool ready_is(const struct snapshot *snapshot, const char *reference, char ret_why[READY_WHY_BYTES])
{
	const json_t *list = snapshot->answers[ASK_LIST], *version = version_find(list, reference);

	if (!snapshot->up || !list)
		return say(ret_why, false, "gpuwmd does not answer: %s", snapshot->why);
	if (member_true(snapshot->answers[ASK_STATUS], "draining"))
		return say(ret_why, false, "gpuwmd is draining: it gives no new leases");
	if (!version)
		return missing(snapshot, reference, ret_why);
	return version_judge(version, ret_why);
}
