#include "probe.h"

#include "devices.h"

#include "../../base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- lines ---- */

static void field_print(const char *text, char end)
{
	char shown[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)];

	utf8_show(text ? text : "", shown, sizeof(shown));
	fputs(shown, stdout);
	putchar(end);
}

void probe_say(const char *item, const char *device, enum probe_result result, const char *text,
	       const char *remedy)
{
	static const char *const names[] = {"trying", "ok", "no", "failed"};

	field_print(item, '\t');
	field_print(device, '\t');
	field_print(names[result], '\t');
	field_print(text, '\t');
	field_print(remedy, '\n');
	fflush(stdout);
}

void probe_say_error(const char *item, const char *device, enum probe_result result, const struct error *error)
{
	probe_say(item, device, result, error->message, error->detail);
}

/* ---- sharing, on any device ---- */

void probe_fill(unsigned char ret_bytes[PROBE_BYTES])
{
	for (unsigned i = 0; i < PROBE_BYTES; i++)
		ret_bytes[i] = (unsigned char)(i * 31 + (i >> 8) + 7);
}

int probe_compare(const struct memory_device *device, const void *address, struct error *error)
{
	unsigned char expected[PROBE_BYTES], found[PROBE_BYTES];
	int r = device->ops->read(device, found, address, PROBE_BYTES, error);

	if (r < 0)
		return r;
	probe_fill(expected);
	for (unsigned i = 0; i < PROBE_BYTES; i++) {
		if (found[i] != expected[i])
			return error_set(error, -EBADMSG, "compare with nvidia-smi -q -d ECC, and report it",
					 "byte %u of the shared memory is 0x%02x in the second process; "
					 "0x%02x was written",
					 i, found[i], expected[i]);
	}
	return 0;
}

static int probe_write(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	unsigned char content[PROBE_BYTES];
	int r = device->ops->map(device, segment, MEMORY_WRITE, error);

	if (r < 0)
		return r;
	probe_fill(content);
	r = device->ops->write(device, segment->address, content, PROBE_BYTES, error);
	if (r == 0)
		r = device->ops->idle(device, error);
	device->ops->unmap(device, segment);
	return r;
}

static int share(struct probe_peer *peer, const struct memory_device *device, uint64_t bytes,
		 struct error *error)
{
	struct probe_request request = {.bytes = bytes};
	struct memory_segment segment = {.fd = -1};
	int r = device->ops->create(device, bytes, &segment, error);

	if (r == 0)
		r = probe_write(device, &segment, error);
	if (r == 0)
		r = device->ops->export(device, &segment, error);
	if (r == 0) {
		snprintf(request.device, sizeof(request.device), "%s", device->id);
		r = probe_peer_ask(peer, &request, segment.fd, error);
	}
	device->ops->release(device, &segment);
	return r;
}

void probe_share(struct probe_peer *peer, const struct memory_device *device)
{
	struct error error;
	uint64_t bytes;
	char text[200];
	int r = device->ops->granularity(device, &bytes, &error);

	if (r < 0) {
		probe_say_error("granularity", device->id, PROBE_FAILED, &error);
		return;
	}
	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	probe_say("granularity", device->id, PROBE_OK, text, "");
	probe_say("share", device->id, PROBE_TRYING, "", "");
	r = device->ops->enter(device, &error);
	if (r == 0) {
		r = share(peer, device, bytes, &error);
		device->ops->leave(device);
	}
	if (r < 0) {
		probe_say_error("share", device->id, PROBE_FAILED, &error);
		return;
	}
	snprintf(text, sizeof(text),
		 "%llu bytes were made, exported, imported by a second process, compared and freed",
		 (unsigned long long)bytes);
	probe_say("share", device->id, PROBE_OK, text, "");
}

/* ---- legacy CUDA IPC ---- */

int probe_ipc_read(const struct memory_device *device, const struct ipc_handle *handle, struct error *error)
{
	const struct memory_ipc_ops *ipc = device->ops->ipc;
	struct error why;
	void *address;
	int r = memory_ipc_check(device, error);

	if (r < 0)
		return r;
	r = ipc->open(handle, &address, &why);
	if (r < 0)
		return error_set(error, r, why.detail, "in the second process: %s", why.message);
	r = probe_compare(device, address, error);
	ipc->close(address);
	return r;
}

static int probe_ipc_ask(struct probe_peer *peer, const struct memory_device *device, void *address,
			 struct error *error)
{
	struct probe_request request = {.is_ipc = true};
	unsigned char content[PROBE_BYTES];
	int r = memory_ipc_check(device, error);

	probe_fill(content);
	if (r == 0)
		r = device->ops->write(device, address, content, PROBE_BYTES, error);
	if (r == 0)
		r = device->ops->idle(device, error);
	if (r == 0)
		r = device->ops->ipc->handle(address, &request.handle, error);
	if (r < 0)
		return r;
	memcpy(request.device, device->id, sizeof(request.device));
	return probe_peer_ask(peer, &request, -1, error);
}

void probe_ipc(struct probe_peer *peer, const struct memory_device *device)
{
	struct error error;
	void *address;
	int r;

	probe_say("ipc", device->id, PROBE_TRYING, "", "");
	r = device->ops->ipc->alloc(PROBE_BYTES, &address, &error);
	if (r == 0) {
		r = probe_ipc_ask(peer, device, address, &error);
		device->ops->ipc->free(address);
	}
	if (r < 0)
		probe_say_error("ipc", device->id, PROBE_NO, &error);
	else
		probe_say("ipc", device->id, PROBE_OK, "a second process opened a handle and read the memory",
			  "");
}

/* ---- all ---- */

/* CUDA shows the MIG devices of a divided GPU, and not the GPU itself. Only NVML tells both. */
static void probe_mig(void)
{
	char id[DEVICE_BYTES_MAX + 1];
	bool divided;

	probe_say("mig", "", PROBE_TRYING, "", "");
	for (unsigned i = 0; nvml_gpu(i, id, &divided); i++)
		probe_say("mig", id, divided ? PROBE_OK : PROBE_NO, divided ? "on" : "off", "");
	probe_say("mig", "", PROBE_OK, "", "");
}

int probe_run(struct error *error)
{
	struct memory_device host;
	struct probe_peer peer;
	int r = memory_device_open(DEVICE_HOST, &host, error);

	if (r == 0)
		r = probe_peer_start(&peer, error);
	if (r < 0)
		return r;
	probe_share(&peer, &host);
	for (size_t i = 0; device_kinds[i]; i++) {
		if (device_kinds[i]->probe)
			device_kinds[i]->probe(&peer);
	}
	probe_mig();
	probe_peer_end(&peer);
	probe_say("end", "", PROBE_OK, "", "");
	return 0;
}
