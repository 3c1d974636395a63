#include "tier.h"

#include "table.h"
#include "line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *tier_of(const json_t *version)
{
	const char *tier = answer_text(version, "tier");

	return *tier ? tier : "device";
}

const char *tier_text(const json_t *version, char text[CELL_TEXT])
{
	const char *tier = answer_text(version, "tier"), *moving = answer_text(version, "moving");

	text[0] = '\0';
	if (*tier)
		snprintf(text, CELL_TEXT, ", on %s", tier);
	if (*moving)
		snprintf(text + strlen(text), CELL_TEXT - strlen(text), ", %s",
			 strcmp(moving, "device") == 0 ? "promoting" : "demoting");
	return text;
}

static int demoted_print(const json_t *version)
{
	char name[CELL_TEXT], size[SHORT_TEXT];
	const char *source = answer_text(version, "source");

	say("%s  %s", cell_name(version, NULL, name), answer_text(version, "version"));
	say("lies on %s: a worker that attaches waits until gpuwmd has promoted it", tier_of(version));
	if (*source)
		say("source %s", source);
	say("size %s, tensors %" PRIu64, size_text(answer_number(version, "bytes"), size),
	    answer_number(version, "tensors"));
	say("layout  %s", answer_text(version, "layout"));
	say("content %s", answer_text(version, "content"));
	answer_error_print(version, "promotion_error", "its last promotion failed");
	say("its tensors are shown when it lies on its devices: gpuwmctl promote %s --wait",
	    cell_name(version, NULL, name));
	return EXIT_DONE;
}

int tier_show(const json_t *version)
{
	static const struct view view = {demoted_print, cell_name, NULL, NULL};

	return result_show(json_incref((json_t *)version), &view);
}
