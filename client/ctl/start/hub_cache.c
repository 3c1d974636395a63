#include "hub_cache.h"

#include <stdio.h>
#include <stdlib.h>

bool hub_cache_path(char *ret_path, size_t size)
{
	static const struct {
		const char *variable, *below;
	} places[] = {{"HF_HUB_CACHE", ""},
		      {"HF_HOME", "/hub"},
		      {"XDG_CACHE_HOME", "/huggingface/hub"},
		      {"HOME", "/.cache/huggingface/hub"}};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *value = getenv(places[i].variable);

		if (value && *value)
			return (size_t)snprintf(ret_path, size, "%s%s", value, places[i].below) < size;
	}
	return false;
}
