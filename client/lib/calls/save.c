#include "save.h"

#include "../request/client.h"
#include "../mapping/attach.h"

#include <errno.h>
#include <stdlib.h>

int gpuwm_save(const struct gpuwm_mapping *const *mappings, size_t count, const char *folder,
	       const struct gpuwm_save_options *options)
{
	struct error error;
	struct save save = {
		.mappings = mappings, .world = count, .path = folder, .folder = -1, .error = &error};
	int r = client_take_options(options, &save.options, sizeof(save.options), &error);

	if (r == 0 && (count == 0 || !mappings || !folder || !folder[0]))
		r = error_set(&error, -EINVAL, NULL, "a save needs a mapping and a folder");
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = fork_check(&mappings[i]->hook, &error);
		if (r == 0)
			r = mapped_part_check(mappings[i]->part, &error);
	}
	if (r == 0)
		r = save_check(&save);
	if (r == 0)
		r = save_plan(&save);
	if (r == 0)
		r = save_folder_open(&save);
	if (r == 0)
		r = save_write(&save);
	if (r == 0)
		r = save_folder_commit(&save);
	save_folder_close(&save, r != 0);
	free(save.tensors);
	free(save.files);
	return r < 0 ? client_fail(&error) : 0;
}
