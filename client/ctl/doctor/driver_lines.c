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

size_t driver_devices(const char *text)
{
	char *copy = strdup(text), *rest = copy;
	struct driver_line line;
	size_t count = 0;

	while (copy && driver_line_take(&rest, &line))
		count += strcmp(line.item, "device") == 0 && strcmp(line.result, "ok") == 0;
	free(copy);
	return count;
}

/* The object of a device in the array, which is added if it is not there yet. */
static json_t *devices_entry(json_t *devices, const char *id)
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

/* Adds what a line says of a device. */
static void device_set_line(json_t *device, const struct driver_line *line)
{
	static const char *const answers[] = {"vmm", "posix_fd", "share", "fabric", "ipc", "mps", "mig"};
	json_t *peers;

	if (strcmp(line->item, "device") == 0) {
		json_object_set_new(device, "name", json_string(line->text));
	} else if (strcmp(line->item, "granularity") == 0) {
		json_object_set_new(device, "granularity", json_integer(strtoll(line->text, NULL, 10)));
	} else if (strcmp(line->item, "peers") == 0) {
		peers = json_array();
		for (const char *word = line->text; *(word += strspn(word, " ")); word += strcspn(word, " "))
			json_array_append_new(peers, json_stringn(word, strcspn(word, " ")));
		json_object_set_new(device, "peers", peers);
	}
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (strcmp(line->item, answers[i]) == 0)
			json_object_set_new(device, answers[i], json_boolean(strcmp(line->result, "ok") == 0));
}

void driver_devices_tell(const char *text, json_t *devices)
{
	char *copy = strdup(text), *rest = copy;
	struct driver_line line;

	while (copy && driver_line_take(&rest, &line))
		if (strcmp(line.result, "trying") != 0 && *line.device)
			device_set_line(devices_entry(devices, line.device), &line);
	free(copy);
}
