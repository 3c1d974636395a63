/* What load and swap --load take alike. */
#include "load.h"

#include "exit.h"

struct load_given load_given = {.options.size = sizeof(struct gpuwm_load_options)};

int load_given_finish(struct gpuwm_client *client)
{
	struct gpuwm_load_options *options = &load_given.options;
	static const char *devices[DEVICES_MAX];
	static char *cut;
	const size_t count = load_given.devices.count;
	int code = EXIT_DONE;

	for (size_t i = 0; code == EXIT_DONE && i < count; i++)
		code = device_resolve(client, load_given.devices.texts[i], &devices[i]);
	if (code == EXIT_DONE && load_given.cut)
		code = cut_read(load_given.cut, &cut);
	if (code != EXIT_DONE)
		return code;
	options->devices = count > 0 ? devices : NULL;
	options->device_count = count;
	options->key = load_given.key.fields;
	options->key_count = load_given.key.count;
	options->ranks = (uint32_t)load_given.ranks.value;
	options->cut = cut;
	options->only = load_given.only.texts;
	options->only_count = load_given.only.count;
	return EXIT_DONE;
}
