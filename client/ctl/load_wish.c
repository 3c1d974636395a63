/* What load and swap --load take alike. */
#include "load.h"

#include "exit.h"

struct load_wish load_wish = {.options.size = sizeof(struct gpuwm_load_options)};

int load_wish_finish(struct gpuwm_client *client)
{
	struct gpuwm_load_options *options = &load_wish.options;
	static const char *devices[DEVICES_MAX];
	static char *cut;
	const size_t count = load_wish.devices.count;
	int code = EXIT_DONE;

	for (size_t i = 0; code == EXIT_DONE && i < count; i++)
		code = device_resolve(client, load_wish.devices.texts[i], &devices[i]);
	if (code == EXIT_DONE && load_wish.cut)
		code = cut_read(load_wish.cut, &cut);
	if (code != EXIT_DONE)
		return code;
	options->devices = count > 0 ? devices : NULL;
	options->device_count = count;
	options->key = load_wish.key.fields;
	options->key_count = load_wish.key.count;
	options->ranks = (uint32_t)load_wish.ranks.value;
	options->cut = cut;
	options->only = load_wish.only.texts;
	options->only_count = load_wish.only.count;
	return EXIT_DONE;
}
