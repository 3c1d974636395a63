/* The sections [model.N] as they are read. */
#include "tests/support/daemon/configuration.h"

TestSuite(config_rules, .init = config_open, .fini = config_close);

/* As gpuwmd reads its file. */
static int read_text(const char *text)
{
	config_file(text, strlen(text));
	return arguments("--config", config_path);
}

static void expect_wrong(int code, const char *words, const char *detail)
{
	cr_expect_eq(code, -EINVAL, "%d", code);
	cr_expect(strstr(config_error.message, words), "\"%s\" is not in \"%s\"", words, config_error.message);
	cr_expect(strstr(config_error.detail, detail), "\"%s\" is not in \"%s\"", detail, config_error.detail);
}

static void expect_named(const struct rule *rule, enum rule_right right, size_t position, bool is_group,
			 uint32_t id)
{
	cr_assert_lt(position, rule->named[right].count);
	cr_expect_eq(rule->named[right].list[position].is_group, is_group);
	cr_expect_eq(rule->named[right].list[position].id, id);
}

Test(config_rules, a_section_names_users_and_groups)
{
	const struct rule *rule;

	cr_assert_eq(read_text("[model.4]\nmatch = llama/*\nattach = root, 1000 @0,@5\npublish = 1001\n"
			       "publish = 1002\noperate = @root\n"),
		     0, "%s", config_error.message);
	cr_assert_eq(config.rules.count, 1);
	rule = config.rules.list[0];
	cr_expect_eq(rule->number, 4);
	cr_expect_str_eq(rule->match, "llama/*");
	cr_expect_eq(rule->named[RULE_ATTACH].count, 4);
	expect_named(rule, RULE_ATTACH, 0, false, 0);
	expect_named(rule, RULE_ATTACH, 1, false, 1000);
	expect_named(rule, RULE_ATTACH, 2, true, 0);
	expect_named(rule, RULE_ATTACH, 3, true, 5);
	expect_named(rule, RULE_PUBLISH, 0, false, 1001);
	expect_named(rule, RULE_PUBLISH, 1, false, 1002);
	expect_named(rule, RULE_OPERATE, 0, true, 0);
}

Test(config_rules, flags_set_them_too)
{
	cr_assert_eq(arguments("--set", "model.1.match=a.b/*", "--set", "model.1.attach=7"), 0, "%s",
		     config_error.message);
	cr_expect_str_eq(config.rules.list[0]->match, "a.b/*");
	expect_named(config.rules.list[0], RULE_ATTACH, 0, false, 7);
}

Test(config_rules, unknown_names_are_told_with_their_place)
{
	expect_wrong(set("model.3", "attach", "0 nobody-is-called-so"),
		     "[model.3] attach: there is no user \"nobody-is-called-so\"", "or their numbers");
	expect_wrong(set("model.3", "operate", "@no-such-group"),
		     "[model.3] operate: there is no group \"no-such-group\"", "@groups");
	expect_wrong(set("model.3", "attach", "4294967295"), "there is no user \"4294967295\"", "");
	expect_wrong(set("model.3", "attach", "@"), "there is no group \"\"", "");
}

Test(config_rules, a_file_names_the_line_of_an_unknown_name)
{
	expect_wrong(read_text("[model.1]\nmatch = *\nattach = nobody-is-called-so\n"),
		     ":3: [model.1] attach: there is no user", "");
}

Test(config_rules, sections_are_numbered_from_1)
{
	static const char *const wrong[] = {"model.",   "model.0",       "model.01", "model.x",
					    "model.1x", "model.1000001", "model.-1"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		expect_wrong(set(wrong[i], "match", "*"), "is no number from 1 to 1000000", "[model.1]");
	cr_expect_eq(set("model.1000000", "match", "*"), 0);
	expect_wrong(set("model", "match", "*"), "there is no section [model]", "[model.N]");
	expect_wrong(set("models.1", "match", "*"), "there is no section [models.1]", "[model.N]");
}

Test(config_rules, a_wrong_key_lists_the_right_ones)
{
	expect_wrong(set("model.1", "read", "0"), "there is no key \"read\"",
		     "there are match attach publish operate idle max_resident host_copy evict");
}

Test(config_rules, a_section_has_one_pattern)
{
	expect_wrong(read_text("[model.2]\nattach = 0\n"), "[model.2] has no match", "match = PATTERN");
	expect_wrong(set("model.2", "match", ""), "[model.2] match has 0 bytes", "llama/*");
	cr_expect_eq(set("model.2", "match", "a"), 0);
	expect_wrong(set("model.2", "match", "b"), "[model.2] has two patterns: a and b", "another section");
}

Test(config_rules, a_pattern_can_match_a_name)
{
	static const char *const right[] = {"*",     "s/*",    "a.b/?[ab]", "[a-z0-9]*", "[!a]*",  "[a-]*",
					    "[-a]*", "*[./]*", "m",         "a-b_c/d.e", "[!-a]*", "a[b]",
					    "~*",    "~0",     "~1000",     "~1??",      "~0*"};
	char section[32];

	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		snprintf(section, sizeof(section), "model.%zu", i + 1);
		cr_expect_eq(set(section, "match", right[i]), 0, "%s: %s", right[i], config_error.message);
	}
}

Test(config_rules, a_pattern_that_no_name_can_match_is_refused)
{
	static const char *const wrong[][2] = {
		{"s6/*, s7/*", "has a character that no name has"},
		{"x y", "has a character other than"},
		{"x\\*", "has a character that no name has"},
		{"[secret/*", "has a character between"},
		{"s2/[ab", "has a '[' without its ']'"},
		{"s2/[a-", "has a '[' without its ']'"},
		{"s2/[", "has a '[' without its ']'"},
		{"ab]*", "has a ']' without its '['"},
		{"a[]b]", "has an empty set"},
		{"a[!]", "has an empty set"},
		{"[^a]*", "has a character between"},
		{"[a!]*", "has a character between"},
		{"[[:alpha:]]*", "has a character between"},
		{"[z-a]*", "has a range whose end"},
		{"/m*", "begins with '.' or '/'"},
		{".*", "begins with '.' or '/'"},
		{"a..b*", "has \"..\" in it"},
		{".m", "has a leading '.'"},
		{"~", "has a '~', and a user's number"},
		{"~alice", "has a '~', and a user's number"},
		{"~[12]*", "has a '~', and a user's number"},
		{"~007", "has a '~', and a user's number"},
		{"m~*", "has a character that no name has"},
		{"0123456789abcdef0123456789abcdef", "is 32 hexadecimal digits"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		expect_wrong(set("model.7", "match", wrong[i][0]), wrong[i][1], "another section");
	set("model.7", "match", "s6/*, s7/*");
	cr_expect_str_eq(
		config_error.message,
		"[model.7] match: no model can match \"s6/*, s7/*\", which has a character that no name has");
}

Test(config_rules, a_pattern_needs_no_more_than_a_name_may_have)
{
	char long_one[NAME_BYTES_MAX + 3];

	memset(long_one, '?', sizeof(long_one) - 1);
	long_one[NAME_BYTES_MAX + 1] = '\0';
	expect_wrong(set("model.1", "match", long_one), "needs a name of more than 128 bytes", "");
	long_one[NAME_BYTES_MAX] = '*';
	cr_expect_eq(set("model.1", "match", long_one), 0, "%s", config_error.message);
}

Test(config_rules, a_users_number_has_no_leading_zero)
{
	expect_wrong(set("model.2", "attach", "010"), "there is no user \"010\"", "without leading zeros");
	expect_wrong(set("model.2", "attach", "@00"), "there is no group \"00\"", "without leading zeros");
	cr_expect_eq(set("model.2", "attach", "0 @0 10"), 0, "%s", config_error.message);
}

Test(config_rules, a_list_names_somebody)
{
	expect_wrong(set("model.2", "attach", " , "), "[model.2] attach names nobody", "root");
}

Test(config_rules, tables_have_an_end)
{
	char section[32];

	for (unsigned i = 1; i <= MODEL_RULES_MAX; i++) {
		snprintf(section, sizeof(section), "model.%u", i);
		cr_expect_eq(set(section, "match", "*"), 0);
	}
	expect_wrong(set("model.65", "match", "*"), "at most 64 sections", "several users");
	for (unsigned i = 0; i < RULE_NAMES_MAX; i++) {
		snprintf(section, sizeof(section), "%u", i);
		cr_expect_eq(set("model.1", "attach", section), 0);
	}
	expect_wrong(set("model.1", "attach", "1000000"), "names more than 256 users", "group");
}
