#include "machine.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct machine the_machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

_Noreturn void machine_refuse(const char *variable, const char *value)
{
	fprintf(stderr, "fakecuda: %s=%s makes no sense: see tests/fakecuda/README.md\n", variable, value);
	abort();
}

static const char *setting(const char *variable, const char *otherwise)
{
	const char *value = getenv(variable);

	return value && *value ? value : otherwise;
}

static uint64_t setting_bytes(const char *variable, const char *otherwise)
{
	const char *text = setting(variable, otherwise);
	char *end;
	uint64_t bytes = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || *(end + (shift > 0)))
		machine_refuse(variable, text);
	return bytes << shift;
}

static bool setting_bool(const char *variable, const char *otherwise)
{
	const char *text = setting(variable, otherwise);

	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		machine_refuse(variable, text);
	return *text == '1';
}

static void read_settings(void)
{
	const char *run = getenv("FAKECUDA_RUN");
	uint64_t count = setting_bytes("FAKECUDA_DEVICES", "2");

	if (count > DEVICES_MAX)
		machine_refuse("FAKECUDA_DEVICES", getenv("FAKECUDA_DEVICES"));
	the_machine.device_count = (int)count;
	the_machine.memory = setting_bytes("FAKECUDA_MEMORY", "4G");
	the_machine.context = setting_bytes("FAKECUDA_CONTEXT", "0");
	the_machine.strict = setting_bool("FAKECUDA_STRICT", "0");
	the_machine.dirty = setting_bool("FAKECUDA_DIRTY", "0");
	the_machine.fabric = setting_bool("FAKECUDA_FABRIC", "0");
	the_machine.mps = setting_bool("FAKECUDA_MPS", "0");
	the_machine.words = setting_bool("FAKECUDA_WORDS", "1");
	the_machine.delay = (unsigned)setting_bytes("FAKECUDA_DELAY", "0");
	the_machine.peers = (int)setting_bytes("FAKECUDA_PEERS", "1");
	if (!run || !*run)
		snprintf(the_machine.run, sizeof(the_machine.run), "%u", getuid());
	else if (strlen(run) < sizeof(the_machine.run))
		strcpy(the_machine.run, run);
	else
		machine_refuse("FAKECUDA_RUN", run);
	/* The fields of a memfd's name are divided by hyphens. */
	for (char *c = the_machine.run; *c; c++)
		*c = isalnum((unsigned char)*c) ? *c : '_';
}

const struct machine *machine(void)
{
	pthread_once(&once, read_settings);
	return &the_machine;
}

void machine_uuid(int device, uint8_t ret_uuid[16])
{
	static const uint8_t base[16] = {0xfa, 0x4e, 0, 0, 0, 0, 0x40, 0, 0x80};

	memcpy(ret_uuid, base, sizeof(base));
	ret_uuid[15] = (uint8_t)device;
}

void machine_uuid_text(int device, char ret_text[UUID_TEXT_BYTES])
{
	snprintf(ret_text, UUID_TEXT_BYTES, "GPU-fa4e0000-0000-4000-8000-%012x", (unsigned)device);
}

void machine_name(int device, char *ret_name, int size)
{
	snprintf(ret_name, (size_t)size, "Stand-in GPU %d", device);
}
