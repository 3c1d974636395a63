/* driver: what `gpuwm-loader --probe` tried. A loader tries it, since loaders are what may touch a GPU. */
#include "../line.h"
#include "groups.h"
#include "machine.h"
#include "program.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define PROBE_TEXT 262144 /* 16 devices with a dozen lines each */
#define FAILED_REMEDY                                                                                          \
	"a worker would fail in the same way: see nvidia-smi, and the kernel's log (dmesg) for NVRM and Xid"
#define DRIVER_MIN 12000 /* CUDA 12.0 came with driver 525 */

/* ---- the lines of the probe: loader/devices/probe.h ----------------------------- */

struct driver_line {
	const char *item, *device, *result, *text, *remedy;
};

/* Splits the next line off *text, and moves *text behind it. The function writes zeros into the text, and the members of ret
 * point there. Returns false at the end of the text, or if the last line has no end. */
static bool driver_line_take(char **text, struct driver_line *ret)
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

/* Appends an object for each device to the array, with the keys that gpuwmctl(1) describes. Returns how many GPUs the lines name. */
static size_t driver_devices_tell(const char *text, json_t *devices)
{
	char *copy = strdup(text), *rest = copy;
	struct driver_line line;
	size_t count = 0;

	while (copy && driver_line_take(&rest, &line)) {
		if (strcmp(line.result, "trying") != 0 && *line.device)
			device_set_line(devices_entry(devices, line.device), &line);
		count += strcmp(line.item, "device") == 0 && strcmp(line.result, "ok") == 0;
	}
	free(copy);
	return count;
}

/* ---- items ----------------------------------------------------------------- */

/* The release of the kernel's module ("580.159.04"): the first word of its line that is a number with a dot. If there is none,
 * the whole line. */
static void module_release(char *ret_release, size_t size)
{
	char line[256] = "", words[sizeof(line)], *rest = words;

	machine_line("/proc/driver/nvidia/version", "NVRM version", line, sizeof(line));
	memcpy(words, line, sizeof(line));
	snprintf(ret_release, size, "%s", line);
	for (const char *word; (word = strsep(&rest, " \t"));)
		if (isdigit((unsigned char)*word) && strchr(word, '.')) {
			snprintf(ret_release, size, "%s", word);
			return;
		}
}

static void driver_line_judge(struct findings *findings, const struct driver_line *line)
{
	char module[256];
	unsigned major = 0, minor = 0;

	module_release(module, sizeof(module));
	if (strcmp(line->result, "no") == 0 && !machine_has("/dev/nvidiactl")) {
		finding(findings, VERDICT_NOT_APPLICABLE, "driver", NULL, line->remedy,
			"%s: versions can be kept in the host's memory only", line->text);
		return;
	}
	if (strcmp(line->result, "ok") != 0) {
		finding(findings, VERDICT_FAILED, "driver", NULL, FAILED_REMEDY, "%s (%s)%s%s", line->text,
			line->remedy, *module ? "; the kernel has the module " : "", module);
		return;
	}
	sscanf(line->text, "%u.%u", &major, &minor);
	finding(findings, major * 1000 + minor * 10 < DRIVER_MIN ? VERDICT_FAILED : VERDICT_OK, "driver", NULL,
		major * 1000 + minor * 10 < DRIVER_MIN ? "install NVIDIA's driver 525 or newer" : NULL,
		"CUDA %s%s%s", line->text, *module ? ", driver " : "", module);
}

static void ability_judge(struct findings *findings, const struct driver_line *line, const char *what,
			  const char *remedy)
{
	if (strcmp(line->result, "ok") == 0)
		finding(findings, VERDICT_OK, line->item, line->device, NULL, "%s", what);
	else
		finding(findings, VERDICT_FAILED, line->item, line->device, remedy,
			"the device does not have it: %s", line->text);
}

static void peers_judge(struct findings *findings, const struct driver_line *line, size_t devices)
{
	size_t length = strlen(line->text);

	if (devices < 2)
		finding(findings, VERDICT_NOT_APPLICABLE, "peers", line->device, NULL, "it is the only GPU");
	else if (length == 0)
		finding(findings, VERDICT_WARNING, "peers", line->device, "see nvidia-smi topo -p2p r",
			"no other GPU can read its memory: a worker on another GPU needs a replica of its own");
	else
		finding(findings, VERDICT_OK, "peers", line->device, NULL, "its memory is read by %s",
			line->text);
}

static void mig_judge(struct findings *findings, const struct driver_line *line, size_t devices)
{
	if (!*line->device)
		return;
	if (strcmp(line->result, "no") == 0)
		finding(findings, VERDICT_NOT_APPLICABLE, "mig", line->device, NULL, "MIG mode is off");
	else if (devices == 0)
		finding(findings, VERDICT_WARNING, "mig", line->device,
			"nvidia-smi mig -lgi lists the instances; nvidia-smi mig -cgi makes them",
			"MIG mode is on, and this process sees no MIG device");
	else
		finding(findings, VERDICT_OK, "mig", line->device, NULL,
			"MIG mode is on: each MIG device is a device of its own");
}

static void line_judge(struct findings *findings, const struct driver_line *line, size_t devices)
{
	const bool is_ok = strcmp(line->result, "ok") == 0, is_fabric = strcmp(line->item, "fabric") == 0,
		   is_granularity = strcmp(line->item, "granularity") == 0,
		   is_tried = is_granularity || strcmp(line->item, "device") == 0 ||
			      strcmp(line->item, "share") == 0;

	if (strcmp(line->item, "driver") == 0)
		driver_line_judge(findings, line);
	else if (strcmp(line->item, "vmm") == 0)
		ability_judge(findings, line, "the device has virtual memory management",
			      "gpuwm needs a GPU and a driver with CUDA's virtual memory management");
	else if (strcmp(line->item, "posix_fd") == 0)
		ability_judge(
			findings, line, "its memory can be passed on as a descriptor",
			"gpuwm needs memory that can be exported as a descriptor: bare metal, or a full passthrough");
	else if (is_tried && is_ok)
		finding(findings, VERDICT_OK, line->item, line->device, NULL, "%s%s", line->text,
			is_granularity ? " bytes" : "");
	else if (is_tried) /* the remedy of a call of the driver is the driver's description of the error */
		finding(findings, VERDICT_FAILED, line->item, line->device, FAILED_REMEDY, "%s%s%s%s",
			line->text, *line->remedy ? " (" : "", line->remedy, *line->remedy ? ")" : "");
	else if (strcmp(line->item, "peers") == 0)
		peers_judge(findings, line, devices);
	else if (strcmp(line->item, "mps") == 0 && is_ok)
		finding(findings, VERDICT_WARNING, "mps", line->device,
			"run MPS only if workers need it; gpuwmd's memory outlives its server",
			"MPS is active: a fault of one worker may end the others");
	else if (strcmp(line->item, "mps") == 0)
		finding(findings, VERDICT_NOT_APPLICABLE, "mps", line->device, NULL, "MPS is not active%s",
			strcmp(line->result, "no") == 0 ? "" : ", or the driver does not say");
	else if (strcmp(line->item, "mig") == 0)
		mig_judge(findings, line, devices);
	else if (is_fabric || strcmp(line->item, "ipc") == 0) /* what gpuwm does without */
		finding(findings, is_ok ? VERDICT_OK : VERDICT_NOT_APPLICABLE, line->item, line->device,
			is_fabric ? line->remedy : NULL, "%s; gpuwm does not use it", line->text);
}

/* ---- the probe -------------------------------------------------------------- */

/* The probe ended, or was ended, while it tried this. */
static void probe_judge_end(struct findings *findings, const struct driver_line *last, int status)
{
	const char *remedy = "see the kernel's log (dmesg) for lines with NVRM or Xid, and nvidia-smi";
	const char *item = *last->item ? last->item : "probe";
	char limit[SHORT_TEXT];

	if (status == -ETIMEDOUT)
		finding(findings, VERDICT_FAILED, item, last->device, remedy,
			"the driver hangs: no answer within %s",
			time_text((uint64_t)program_limit(PROBE_MS), limit));
	else if (status < 0)
		finding(findings, VERDICT_FAILED, item, last->device, NULL, "gpuwm-loader can't be run: %s",
			strerror(-status));
	else if (WIFSIGNALED(status))
		finding(findings, VERDICT_FAILED, item, last->device, remedy,
			"gpuwm-loader ended by signal %d (%s) while it tried this", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		finding(findings, VERDICT_FAILED, item, last->device, remedy,
			"gpuwm-loader ended with %d while it tried this", WEXITSTATUS(status));
}

static void lines_judge(struct findings *findings, char *text, int status)
{
	struct driver_line line, last = {"", "", "", "", ""};
	const size_t devices = driver_devices_tell(text, findings->devices);
	bool ended = false;

	while (driver_line_take(&text, &line)) {
		last = line;
		ended = strcmp(line.item, "end") == 0;
		if (strcmp(line.result, "trying") != 0)
			line_judge(findings, &line, devices);
	}
	if (!ended)
		probe_judge_end(findings, &last, status);
}

/* The probe is a program of this shell. A gpuwmd that gpuwmctl start starts here has the variable, too; a service has not. */
static void visible_tell(struct findings *findings)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (visible)
		finding(findings, VERDICT_OK, "visible", NULL, NULL,
			"CUDA_VISIBLE_DEVICES is \"%s\" in this shell, so only those GPUs were tried; the system's gpuwmd "
			"does not have this variable",
			visible);
}

void check_driver(struct findings *findings, const char *socket)
{
	char path[PLACE_BYTES], *text = malloc(PROBE_TEXT);
	const char *words[] = {path, "--probe", NULL};
	int status;

	(void)socket;
	if (!text) {
		finding(findings, VERDICT_FAILED, "probe", NULL, NULL, "out of memory");
		return;
	}
	if (program_find("gpuwm-loader", path, sizeof(path))) {
		status = program_run(words, program_limit(PROBE_MS), false, text, PROBE_TEXT);
		lines_judge(findings, text, status);
		visible_tell(findings);
	} else {
		finding(findings, VERDICT_NOT_APPLICABLE, "probe", NULL,
			"install the package gpuwm, or run doctor where gpuwmd runs",
			"there is no gpuwm-loader beside gpuwmctl: nothing was tried on a GPU");
	}
	free(text);
}
