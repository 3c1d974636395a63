#include "driver_lines.h"

#include <stdlib.h>
#include <string.h>

bool driver_line_take(char **text, struct driver_line *ret)
{
	const char **fields[] = {&ret->item, &ret->device, &ret->result, &ret->text, &ret->remedy};
	char *end = strchr(*text, '\n'), *line = *text;

	if (!end)
		return false;
	*end = '\0';
	*text = end + 1;
	for (size_t i = 0; i < 5; i++) {
		*fields[i] = line ? strsep(&line, "\t") : "";
	}
	return true;
}

/* Calls fn for each line that is a result. */
static void each(const char *text, void (*fn)(const struct driver_line *line, void *user_data), void *user_data)
{
	char *copy = strdup(text), *rest = copy;
	struct driver_line line;

	while (copy && driver_line_take(&rest, &line))
		if (strcmp(line.result, "trying") != 0)
			fn(&line, user_data);
	free(copy);
}

static void count_device(const struct driver_line *line, void *user_data)
{
	*(size_t *)user_data += strcmp(line->item, "device") == 0 && strcmp(line->result, "ok") == 0;
}

size_t driver_devices(const char *text)
{
	size_t count = 0;

	each(text, count_device, &count);
	return count;
}

static json_t *device_of(json_t *devices, const char *id)
{
	json_t *device;
	size_t i;

	json_array_foreach(devices, i, device) {
		if (strcmp(json_string_value(json_object_get(device, "device")), id) == 0)
			return device;
	}
	device = json_pack("{s:s}", "device", id);
	json_array_append_new(devices, device);
	return device;
}

static json_t *words_of(const char *text)
{
	char *copy = strdup(text), *rest = copy;
	const char *word;
	json_t *words = json_array();

	while (copy && (word = strsep(&rest, " ")))
		if (*word)
			json_array_append_new(words, json_string(word));
	free(copy);
	return words;
}

static void tell(const struct driver_line *line, void *user_data)
{
	static const char *const answers[] = {"vmm", "posix_fd", "share", "fabric", "ipc", "mps", "mig"};
	json_t *device;

	if (!*line->device)
		return;
	device = device_of(user_data, line->device);
	if (strcmp(line->item, "device") == 0)
		json_object_set_new(device, "name", json_string(line->text));
	else if (strcmp(line->item, "granularity") == 0)
		json_object_set_new(device, "granularity", json_integer(strtoll(line->text, NULL, 10)));
	else if (strcmp(line->item, "peers") == 0)
		json_object_set_new(device, "peers", words_of(line->text));
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (strcmp(line->item, answers[i]) == 0)
			json_object_set_new(device, answers[i], json_boolean(strcmp(line->result, "ok") == 0));
}

void driver_devices_tell(const char *text, json_t *devices)
{
	each(text, tell, devices);
}
