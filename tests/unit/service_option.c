/* The one reader of command lines: what it takes, what it refuses and how, and the help that it prints. */
#include "service/option.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>

static struct {
	const char *text;
	uint64_t count, pause_ms;
	bool is_loud, is_quiet;
	const char *watch; /* "": given without a value */
} given;
static struct error error;

static int take_watch(const struct option_row *row, const char *text, void *data, struct error *why)
{
	(void)row, (void)data, (void)why;
	given.watch = text ? text : "";
	return 0;
}

/* data: a number that counts the calls. */
static int take_odd(const struct option_row *row, const char *text, void *data, struct error *why)
{
	++*(int *)data;
	if (strcmp(text, "odd") == 0)
		return 0;
	return error_set(why, -ERANGE, "write odd", "--%s takes odd, not '%s'", row->name, text);
}

static const struct option_row rows[] = {
	{"text", "any text", "TEXT", take_text, .into = &given.text, .letter = 't'},
	{"count", "how many", "N", take_count, .into = &given.count, .least = 2, .most = 9},
	{"pause", "how long", "SECONDS", take_seconds, .into = &given.pause_ms, .least = 100},
	{"loud", "with sound", .into = &given.is_loud, .letter = 'l'},
	{"quiet", "no sound", .into = &given.is_quiet, .letter = 'q', .needs = "text"},
	{"watch", "again and again", "[SECONDS]", .take = take_watch},
	{0},
};
static const struct option_row odd_rows[] = {{"odd", "an odd word", "WORD", .take = take_odd}, {0}};
static const struct command_line plain = {
	.program = "plain", .usage = "[OPTION]...", .about = "Does nothing.", .rows = rows, .version = "1.2.3"};
static const struct command_line runner = {.program = "runner",
					   .usage = "[OPTION]... -- PROGRAM",
					   .about = "Runs.",
					   .rows = rows,
					   .required = "text",
					   .word = "PROGRAM",
					   .version = "1.2.3"};

/* words: behind the program's name; they end with NULL. */
static int read_words(const struct command_line *line, char *const *words, char *const **ret_words)
{
	static char *argv[16];
	int argc = 1;

	argv[0] = (char *)line->program;
	for (; words[argc - 1]; argc++)
		argv[argc] = words[argc - 1];
	argv[argc] = NULL;
	memset(&given, 0, sizeof(given));
	given.count = 5;
	given.pause_ms = 1500;
	error = (struct error){0};
	return command_line_read(line, argc, argv, ret_words, &error);
}
#define READ(...) read_words(&plain, (char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL}, NULL)

/* The line is refused with this message and this detail. */
#define REFUSED(message_, detail_, ...)                                                                        \
	do {                                                                                                   \
		cr_expect_eq(READ(__VA_ARGS__), -EINVAL);                                                      \
		cr_expect_str_eq(error.message, message_);                                                     \
		cr_expect_str_eq(error.detail, detail_);                                                       \
	} while (0)

/* ---- what is taken ------------------------------------------------------- */

Test(service_option, each_kind_of_value_in_both_forms)
{
	cr_assert_eq(READ("--text", "a=b", "--count=9", "--pause", "0.1", "--loud", "--watch"), 0, "%s",
		     error.message);
	cr_expect_str_eq(given.text, "a=b");
	cr_expect_eq(given.count, 9);
	cr_expect_eq(given.pause_ms, 100);
	cr_expect(given.is_loud && !given.is_quiet);
	cr_expect_str_eq(given.watch, "");
	cr_assert_eq(READ("--text=x=y", "--count", "2", "--pause=86400"), 0);
	cr_expect_str_eq(given.text, "x=y");
	cr_expect_eq(given.count, 2);
	cr_expect_eq(given.pause_ms, 86400000);
	cr_assert_eq(READ("--text="), 0, "an empty value is one");
	cr_expect_str_eq(given.text, "");
	cr_assert_eq(READ("--text", "--loud"), 0, "what follows is the value");
	cr_expect(strcmp(given.text, "--loud") == 0 && !given.is_loud);
}

Test(service_option, nothing_given_changes_nothing)
{
	cr_assert_eq(READ(), 0);
	cr_expect(!given.text && given.count == 5 && given.pause_ms == 1500 && !given.watch);
}

Test(service_option, letters_alone_together_and_with_a_value)
{
	cr_assert_eq(READ("-l", "-t", "x"), 0);
	cr_expect(given.is_loud && strcmp(given.text, "x") == 0);
	cr_assert_eq(READ("-lqt", "y"), 0, "%s", error.message);
	cr_expect(given.is_loud && given.is_quiet && strcmp(given.text, "y") == 0);
	cr_assert_eq(READ("-qtl"), 0);
	cr_expect(given.is_quiet && !given.is_loud && strcmp(given.text, "l") == 0);
}

Test(service_option, a_value_that_may_be_missing_is_a_number_if_it_stands_apart)
{
	cr_assert_eq(READ("--watch", "5"), 0);
	cr_expect_str_eq(given.watch, "5");
	cr_assert_eq(READ("--watch=x"), 0);
	cr_expect_str_eq(given.watch, "x");
	cr_assert_eq(READ("--watch", "--loud"), 0);
	cr_expect(given.is_loud && strcmp(given.watch, "") == 0);
}

Test(service_option, the_last_value_counts)
{
	cr_assert_eq(READ("--count", "3", "--count", "4"), 0);
	cr_expect_eq(given.count, 4);
}

Test(service_option, words_begin_at_the_first_one)
{
	char *const *words = NULL;

	cr_assert_eq(read_words(&runner, (char *[]){"-t", "x", "--", "--loud", "-l", NULL}, &words), 0);
	cr_expect(strcmp(words[0], "--loud") == 0 && strcmp(words[1], "-l") == 0 && !words[2]);
	cr_expect_not(given.is_loud);
	cr_assert_eq(read_words(&runner, (char *[]){"-t", "x", "run", "--loud", NULL}, &words), 0);
	cr_expect(strcmp(words[0], "run") == 0 && !given.is_loud);
	cr_assert_eq(read_words(&runner, (char *[]){"-t", "x", "-", NULL}, &words), 0, "- is a word");
	cr_expect_str_eq(words[0], "-");
}

/* ---- what is refused ----------------------------------------------------- */

Test(service_option, unknown_options_are_named_and_guessed)
{
	REFUSED("plain has no option --nonsense", "plain --help lists the options", "--nonsense=5");
	REFUSED("plain has no option --cuont", "did you mean --count? plain --help lists the options",
		"--cuont", "5");
	REFUSED("plain has no option --cou", "did you mean --count? plain --help lists the options", "--cou",
		"5");
	REFUSED("plain has no option -x", "plain --help lists the options", "-lx");
	REFUSED("plain has no option --l", "plain --help lists the options", "--l");
}

Test(service_option, values_that_are_missing_or_too_many)
{
	REFUSED("--text needs a value: --text TEXT", "any text", "--loud", "--text");
	REFUSED("--text needs a value: --text TEXT", "any text", "-lt");
	REFUSED("--loud takes no value", "with sound", "--loud=yes");
	REFUSED("--help takes no value", "show this help", "--help=");
}

Test(service_option, numbers_out_of_range)
{
	static char *const wrong[] = {"1", "10", "", "-3", "+3", " 3", "3x", "0x3", "18446744073709551619"};
	char message[128];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(message, sizeof(message), "--count takes a number from 2 to 9, not '%s'", wrong[i]);
		REFUSED(message, "how many", "--count", wrong[i]);
		cr_expect_eq(given.count, 5);
	}
}

Test(service_option, seconds_out_of_range)
{
	static char *const wrong[] = {"0.09", "86400.1", "", "-1", "nan", "0x10", "1.2.3", ".", "5s"};
	char message[128];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		snprintf(message, sizeof(message),
			 "--pause takes seconds from 0.1 to 86400, such as 8 or 0.5, not '%s'", wrong[i]);
		REFUSED(message, "how long", "--pause", wrong[i]);
		cr_expect_eq(given.pause_ms, 1500);
	}
}

Test(service_option, limits_that_exclude_nothing_still_want_a_number)
{
	uint64_t number = 7;
	const struct option_row all = {"all", "any", "N", take_count, .into = &number, .most = UINT64_MAX};

	cr_expect_eq(take_count(&all, "18446744073709551615", NULL, &error), 0);
	cr_expect_eq(number, UINT64_MAX);
	cr_expect_eq(take_count(&all, "18446744073709551616", NULL, &error), -EINVAL);
	cr_expect_eq(take_seconds(&all, "", NULL, &error), -EINVAL);
	cr_expect_eq(take_seconds(&all, ".", NULL, &error), -EINVAL);
	cr_expect_eq(take_seconds(&all, "0", NULL, &error), 0);
	cr_expect_eq(number, 0);
}

Test(service_option, options_that_need_another_one)
{
	REFUSED("--quiet needs --text", "no sound", "-q");
	cr_expect_eq(read_words(&runner, (char *[]){"run", NULL}, NULL), -EINVAL);
	cr_expect_str_eq(error.message, "runner needs --text TEXT");
	cr_expect_str_eq(error.detail, "any text");
}

Test(service_option, words_that_are_missing_or_too_many)
{
	REFUSED("plain takes options only, not 'more'", "plain --help lists the options", "--loud", "more");
	cr_expect_eq(read_words(&runner, (char *[]){"-t", "x", "--", NULL}, NULL), -EINVAL);
	cr_expect_str_eq(error.message, "runner needs PROGRAM");
	cr_expect_str_eq(error.detail, "usage: runner [OPTION]... -- PROGRAM");
}

Test(service_option, the_whole_line_is_checked_before_a_value_counts)
{
	cr_expect_eq(READ("--text", "x", "--nonsense"), -EINVAL);
	cr_expect_null(given.text);
}

Test(service_option, takers_get_the_data_and_their_error_is_passed_on)
{
	const struct command_line line = {.program = "odd", .usage = "", .rows = odd_rows};
	int calls = 0;

	cr_expect_eq(command_line_take(&line, 3, (char *[]){"odd", "--odd", "odd", NULL}, &calls, NULL, &error),
		     0);
	cr_expect_eq(
		command_line_take(&line, 3, (char *[]){"odd", "--odd", "even", NULL}, &calls, NULL, &error),
		-ERANGE);
	cr_expect_eq(calls, 2);
	cr_expect_str_eq(error.message, "--odd takes odd, not 'even'");
}

/* ---- a second value ------------------------------------------------------ */

Test(service_option, one_value_each_where_the_reader_wants_that)
{
	char *const argv[] = {"gpuwmctl", "--count", "3", "-l", "-l", "word", "--count=4", NULL};
	struct option_reader reader = {
		.program = "gpuwmctl", .command = "swap", .once = true, .argc = 7, .argv = argv, .next = 1};
	const struct option_row *row;
	const char *value;

	option_reader_add(&reader, rows);
	for (int i = 0; i < 4; i++)
		cr_expect_eq(option_next(&reader, &row, &value, &error), 1);
	cr_expect(!row && strcmp(value, "word") == 0);
	cr_expect_eq(option_next(&reader, &row, &value, &error), -EINVAL);
	cr_expect_str_eq(error.message, "--count was given twice, and takes one value");
}

/* ---- help and version ---------------------------------------------------- */

static const char *printed(void)
{
	static char text[4096];
	FILE *out = cr_get_redirected_stdout();

	fflush(stdout);
	text[fread(text, 1, sizeof(text) - 1, out)] = '\0';
	return text;
}

static void print_more(void)
{
	printf("\nAnd more.\n");
}

Test(service_option, help_is_made_of_the_rows, .init = cr_redirect_stdout)
{
	struct command_line line = plain;

	line.usage = "[OPTION]...\n--probe";
	line.about = "A first paragraph.\nAnother one.";
	line.more = print_more;
	cr_expect_eq(read_words(&line, (char *[]){"--count=9", "-h", "--nonsense", NULL}, NULL), 1);
	cr_assert_str_eq(printed(), "usage: plain [OPTION]...\n"
				    "       plain --probe\n"
				    "\n"
				    "A first paragraph.\n"
				    "Another one.\n"
				    "\n"
				    "options:\n"
				    "  -t, --text TEXT    any text\n"
				    "  --count N          how many; by default 5\n"
				    "  --pause SECONDS    how long; by default 1.5\n"
				    "  -l, --loud         with sound\n"
				    "  -q, --quiet        no sound (needs --text)\n"
				    "  --watch [SECONDS]  again and again\n"
				    "  -h, --help         show this help\n"
				    "  --version          print the version\n"
				    "\n"
				    "And more.\n");
}

Test(service_option, long_help_goes_on_below_itself_and_a_long_option_stands_alone, .init = cr_redirect_stdout)
{
	static const struct option_row wide[] = {
		{"backend", "which backend gets the workers of which version; may be given several times",
		 "MODEL[@NAME]=BACKEND", take_text, .into = &given.text},
		{0},
	};
	struct command_line line = plain;

	line.rows = wide;
	cr_expect_eq(read_words(&line, (char *[]){"--help", NULL}, NULL), 1);
	cr_assert_str_eq(printed(),
			 "usage: plain [OPTION]...\n"
			 "\n"
			 "Does nothing.\n"
			 "\n"
			 "options:\n"
			 "  --backend MODEL[@NAME]=BACKEND\n"
			 "              which backend gets the workers of which version; may be given\n"
			 "              several times\n"
			 "  -h, --help  show this help\n"
			 "  --version   print the version\n");
}

Test(service_option, version, .init = cr_redirect_stdout)
{
	cr_expect_eq(READ("--version"), 1);
	cr_assert_str_eq(printed(), "plain 1.2.3\n");
}
