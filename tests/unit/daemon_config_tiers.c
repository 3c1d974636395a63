/* The keys about tiers: [tiers], and idle, max_resident, host_copy and evict of [model.N]. */
#include "tests/support/daemon/configuration.h"

TestSuite(config_tiers, .init = config_open, .fini = config_close);

static const struct rule_tiers *tiers_of(size_t position)
{
	cr_assert_lt(position, config.rules.count);
	return &config.rules.list[position]->tiers;
}

Test(config_tiers, without_keys_every_version_stays)
{
	const struct rule_tiers *tiers;

	cr_assert_eq(set("model.1", "match", "*"), 0);
	tiers = tiers_of(0);
	cr_expect_eq(tiers->idle_s[ON_HOST] + tiers->idle_s[ON_FILES] + tiers->max_resident, 0);
	cr_expect_eq(tiers->evict, ON_DEVICE);
	cr_expect_str_empty(config.tiers_folder);
	cr_expect(config.tiers_restore);
	cr_expect_eq(config.min_resident_s, MIN_RESIDENT_SECONDS);
}

Test(config_tiers, idle_names_a_time_for_each_tier)
{
	cr_expect_eq(set("model.1", "idle", "30m host, 2h files"), 0, "%s", config_error.message);
	cr_expect_eq(tiers_of(0)->idle_s[ON_HOST], 1800);
	cr_expect_eq(tiers_of(0)->idle_s[ON_FILES], 7200);
	cr_expect_eq(set("model.2", "idle", "7d files"), 0);
	cr_expect_eq(set("model.2", "idle", "90 host"), 0);
	cr_expect_eq(tiers_of(1)->idle_s[ON_HOST], 90);
	cr_expect_eq(tiers_of(1)->idle_s[ON_FILES], 7 * 86400);
}

Test(config_tiers, a_wrong_idle_says_what_is_possible)
{
	static const char *const wrong[][2] = {
		{"", "idle has no time"},
		{"host", "\"host\" is no time"},
		{"30m", "not \"host\" or \"files\""},
		{"30m disk", "stands \"disk\""},
		{"0 host", "\"0\" is no time"},
		{"5w host", "\"5w\" is no time"},
		{"5mm host", "\"5mm\" is no time"},
		{"1234567890 host", "is no time"},
		{"-5 host", "\"-5\" is no time"},
		{"1m host 2m host", "has two times for host"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char section[16];

		snprintf(section, sizeof(section), "model.%zu", i + 1);
		expect_error(set(section, "idle", wrong[i][0]), wrong[i][1]);
		cr_expect(config_error.detail[0]);
	}
}

Test(config_tiers, files_come_after_host)
{
	const char *text = "[model.3]\nmatch = *\nidle = 2h host, 30m files\n";

	config_file(text, strlen(text));
	expect_error(arguments("--config", config_path),
		     "[model.3] idle: versions would leave for files after 1800 s, and for host after 7200 s");
}

Test(config_tiers, max_resident_is_a_number_of_versions)
{
	cr_expect_eq(set("model.1", "max_resident", "3"), 0);
	cr_expect_eq(tiers_of(0)->max_resident, 3);
	expect_error(set("model.1", "max_resident", "4"), "max_resident twice");
	expect_error(set("model.2", "max_resident", "0"), "is no number from 1");
	expect_error(set("model.2", "max_resident", "many"), "is no number from 1");
	expect_error(set("model.2", "max_resident", "1000000"), "is no number from 1");
}

Test(config_tiers, host_copy_says_when_there_are_copies)
{
	cr_expect_eq(set("model.1", "host_copy", "no"), 0);
	cr_expect_eq(tiers_of(0)->host_copy, HOST_COPY_NO);
	cr_expect_not(rules_make_host_copies(&config.rules));
	cr_expect_eq(set("model.2", "host_copy", "on-demote"), 0);
	cr_expect_eq(tiers_of(1)->host_copy, HOST_COPY_ON_DEMOTE);
	cr_expect_eq(set("model.4", "host_copy", "yes"), 0);
	cr_expect_eq(tiers_of(2)->host_copy, HOST_COPY_YES);
	cr_expect(rules_make_host_copies(&config.rules));
	expect_error(set("model.1", "host_copy", "on-demote"), "host_copy twice");
	expect_error(set("model.3", "host_copy", "never"),
		     "[model.3] host_copy = never: is neither yes nor on-demote nor no");
}

Test(config_tiers, evict_names_a_tier_and_perhaps_the_owner)
{
	cr_expect_eq(set("model.1", "evict", "host"), 0);
	cr_expect(tiers_of(0)->evict == ON_HOST && !tiers_of(0)->evict_own);
	cr_expect_eq(set("model.2", "evict", "files own"), 0);
	cr_expect(tiers_of(1)->evict == ON_FILES && tiers_of(1)->evict_own);
	cr_expect_eq(set("model.3", "evict", "never"), 0);
	cr_expect_eq(tiers_of(2)->evict, ON_DEVICE);
	expect_error(set("model.1", "evict", "files"), "evict twice");
	expect_error(set("model.4", "evict", "disk"),
		     "is neither never nor a tier, which is \"host\" or \"files\"");
	expect_error(set("model.5", "evict", ""),
		     "is neither never nor a tier, which is \"host\" or \"files\"");
	expect_error(set("model.6", "evict", "host all"),
		     "is neither never nor a tier, which is \"host\" or \"files\"");
}

Test(config_tiers, the_folder_is_absolute_or_none)
{
	cr_expect_eq(set("tiers", "folder", "/var/lib/gpuwm//"), 0);
	cr_expect_str_eq(config.tiers_folder, "/var/lib/gpuwm");
	cr_expect_eq(set("tiers", "folder", "none"), 0);
	cr_expect_str_empty(config.tiers_folder);
	expect_error(set("tiers", "folder", "lib"), "neither none nor an absolute path");
	expect_error(set("tiers", "folder", "/"), "neither none nor an absolute path");
}

Test(config_tiers, systemd_names_the_folder_by_default)
{
	setenv("STATE_DIRECTORY", "/var/lib/gpuwm", 1);
	config_clear(&config);
	config_init(&config);
	cr_expect_str_eq(config.tiers_folder, "/var/lib/gpuwm");
	unsetenv("STATE_DIRECTORY");
}

Test(config_tiers, restore_is_yes_or_no)
{
	cr_expect_eq(set("tiers", "restore", "no"), 0);
	cr_expect_not(config.tiers_restore);
	cr_expect_eq(set("tiers", "restore", "yes"), 0);
	cr_expect(config.tiers_restore);
	expect_error(set("tiers", "restore", "1"), "neither yes nor no");
}

Test(config_tiers, min_resident_is_a_time_of_a_day_at_most)
{
	cr_expect_eq(set("tiers", "min_resident", "5m"), 0);
	cr_expect_eq(config.min_resident_s, 300);
	cr_expect_eq(set("tiers", "min_resident", "0"), 0);
	expect_error(set("tiers", "min_resident", "2d"), "is no time from 0 to 86400 seconds");
}
