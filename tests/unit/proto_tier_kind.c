/* The table of tiers, and what messages say of a tier that there is not. */
#include "proto/tier_kind.h"
#include "proto/wire/messages_jobs.h"
#include "proto/wire/messages_loader.h"

#include <criterion/criterion.h>
#include <errno.h>

Test(tier_kind, a_part_lies_where_its_row_says)
{
	cr_expect_str_eq(tier_device(ON_DEVICE, "GPU-1"), "GPU-1");
	cr_expect_str_eq(tier_device(ON_HOST, "GPU-1"), "host");
	cr_expect_str_eq(tier_device(ON_HOST, "host"), "host");
	cr_expect_null(tier_device(ON_FILES, "GPU-1"));
}

/* Each demotion ends on a tier that is not the first, and a promotion on the first. */
Test(tier_kind, workers_lease_on_the_first_tier_only)
{
	for (enum tier tier = 0; tier < TIERS; tier++)
		cr_expect_eq(tier_is_resident(tier), tier == ON_DEVICE, "%s", tier_name(tier));
}

Test(tier_kind, a_list_has_each_from_the_first_one_on)
{
	char text[TIERS_TEXT];

	cr_expect_str_eq(tier_list(ON_DEVICE, text), "\"device\", \"host\" or \"files\"");
	cr_expect_str_eq(tier_list(ON_DEVICE + 1, text), "\"host\" or \"files\"");
}

Test(tier_kind, a_demotion_to_no_lower_tier_is_refused)
{
	const char *const wrong[] = {"device", "disk", ""};
	const char *const right[] = {"host", "files"};
	struct error error;

	for (size_t i = 0; i < 3; i++) {
		char words[64];

		snprintf(words, sizeof(words), "a version is not demoted to \"%s\"", wrong[i]);
		cr_expect_eq(form_demote.params->check(&(struct demote_params){.to = wrong[i]}, &error),
			     -EINVAL);
		cr_expect_str_eq(error.message, words);
		cr_expect_str_eq(error.detail, "\"to\" is \"host\" or \"files\"");
	}
	for (size_t i = 0; i < 2; i++)
		cr_expect_eq(form_demote.params->check(&(struct demote_params){.to = right[i]}, &error), 0);
}

static int move(const char *from, const char *to, const char *source, struct error *error)
{
	const struct job_move_params params = {.from = from, .to = to, .source = source};

	return form_job_move.params->check(&params, error);
}

Test(tier_kind, a_move_names_tiers_and_the_source_of_one_without_memory)
{
	struct error error = {0};

	cr_expect_eq(move("device", "host", NULL, &error), 0);
	cr_expect_eq(move("device", "disk", NULL, &error), -EINVAL);
	cr_expect_str_eq(error.message, "a move from \"device\" to \"disk\"");
	cr_expect_str_eq(error.detail, "a tier is \"device\", \"host\" or \"files\"");
	cr_expect_eq(move("disk", "device", "/m", &error), -EINVAL);
	cr_expect_eq(move("files", "device", NULL, &error), -EINVAL);
	cr_expect_str_eq(error.message, "a move from \"files\" to \"device\" needs files or nodes");
	cr_expect_eq(move("files", "device", "/m", &error) | move("host", "files", "/m", &error), 0);
}
