/* The list of commands: what help, completion and the man page rely on. */
#include "client/ctl/catalog/catalog.h"
#include "client/ctl/exit.h"
#include "client/ctl/command.h"

#include <criterion/criterion.h>
#include <string.h>

#define EXAMPLE_WORDS_MAX 20

static int rows_count(const struct option_row *rows)
{
	int count = 0;

	while (rows && rows[count].name)
		count++;
	return count;
}

static bool has_row(const struct option_row *rows, const char *name)
{
	for (; rows->name; rows++)
		if (strcmp(rows->name, name) == 0)
			return true;
	return false;
}

#define EACH_COMMAND(c)                                                                                        \
	for (const struct command *c = command_next(command_groups, NULL); c;                                  \
	     c = command_next(command_groups, c))

Test(ctl_catalog, every_command_is_described_within_the_limits)
{
	char usage[USAGE_MAX];

	EACH_COMMAND(c)
	{
		cr_expect(c->summary && strlen(c->summary) <= SUMMARY_COLUMNS, "%s: %zu columns", c->name,
			  strlen(c->summary));
		cr_expect(rows_count(c->options) + rows_count(global_options) <= OPTION_ROWS_MAX, "%s",
			  c->name);
		cr_expect(strlen(usage_text(c, usage)) < USAGE_MAX - 1, "%s", c->name);
		cr_expect(c->run, "%s", c->name);
		cr_expect_eq(command_find(command_groups, c->name), c, "two commands are called %s", c->name);
		if (c->also)
			cr_expect_eq(command_find(command_groups, c->also), c, "two commands are called %s",
				     c->also);
	}
}

Test(ctl_catalog, every_option_has_help_and_what_it_needs_is_there)
{
	EACH_COMMAND(c)
	{
		for (const struct option_row *row = c->options; row && row->name; row++) {
			cr_expect(row->help && *row->help, "%s --%s", c->name, row->name);
			cr_expect_not(has_row(row + 1, row->name) || has_row(global_options, row->name),
				      "%s has --%s twice", c->name, row->name);
			cr_expect(!row->needs || has_row(c->options, row->needs), "%s --%s", c->name,
				  row->name);
			cr_expect_eq(row->value != NULL, row->take != NULL, "%s --%s", c->name, row->name);
			cr_expect(row->take || row->into, "%s --%s sets nothing", c->name, row->name);
		}
	}
}

/* Whether gpuwmctl takes the line: its command, options and words. line: is cut. */
static bool example_is_taken(const struct command *command, char *line)
{
	struct arguments arguments;
	char *argv[EXAMPLE_WORDS_MAX + 1] = {0}, *rest = NULL;
	int argc = 0;

	for (char *word = strtok_r(line, " ", &rest); word && argc < EXAMPLE_WORDS_MAX;
	     word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	return argc > 1 && strcmp(argv[0], "gpuwmctl") == 0 && arguments_parse(argc, argv, &arguments) == 0 &&
	       command_find(command_groups, arguments.command) == command &&
	       arguments_parse_command(command, &arguments) == EXIT_DONE &&
	       words_count(command, &arguments) == EXIT_DONE && words_check(command, &arguments) == EXIT_DONE;
}

Test(ctl_catalog, every_example_is_a_line_that_gpuwmctl_takes)
{
	EACH_COMMAND(c)
	{
		char lines[1024], whole[1024], *rest = NULL;

		cr_assert(c->example && strlen(c->example) < sizeof(lines), "%s has no example", c->name);
		strcpy(lines, c->example);
		for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
			strcpy(whole, line);
			cr_expect(c->raw || example_is_taken(c, line), "%s: %s", c->name, whole);
		}
	}
}
