#include "keeper/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>

static struct options options;

#define PARSE(...)                                                                                             \
	({                                                                                                     \
		char *argv_[] = {"gpuwm-keeper", __VA_ARGS__, NULL};                                           \
		static char *kept_[sizeof(argv_) / sizeof(argv_[0])];                                          \
		memcpy(kept_, argv_, sizeof(argv_));                                                           \
		options_parse(&options, (int)(sizeof(argv_) / sizeof(argv_[0])) - 1, kept_);                   \
	})

Test(keeper_options, defaults)
{
	cr_assert_eq(PARSE("--", "gpuwmd", "--root", "/m"), 0);
	cr_expect_eq(options.store_max, 2048);
	cr_expect_eq(options.start_ms, 60000);
	cr_expect_eq(options.stop_ms, 8000);
	cr_expect_eq(options.watchdog_ms, 0);
	cr_expect_eq(options.restart_ms, 5000);
	cr_expect_null(options.runtime_dir);
	cr_expect(!options.take_over && !options.ready_file && options.generation == 0);
	cr_expect(strcmp(options.command[0], "gpuwmd") == 0 && strcmp(options.command[1], "--root") == 0);
	cr_expect(strcmp(options.command[2], "/m") == 0 && !options.command[3]);
}

Test(keeper_options, all_flags)
{
	cr_assert_eq(PARSE("--store-max", "0", "--start-timeout", "0", "--stop-timeout=0.25", "--watchdog",
			   "30", "--restart-delay", "86400", "--runtime-dir", "/x", "--take-over", "/t",
			   "--generation", "18446744073709551615", "--ready-file", "/r", "gpuwmd", "--help"),
		     0);
	cr_expect_str_eq(options.take_over, "/t");
	cr_expect_str_eq(options.ready_file, "/r");
	cr_expect_eq(options.generation, UINT64_MAX);
	cr_expect_eq(options.store_max, 0);
	cr_expect_eq(options.start_ms, 0);
	cr_expect_eq(options.stop_ms, 250);
	cr_expect_eq(options.watchdog_ms, 30000);
	cr_expect_eq(options.restart_ms, 86400000);
	cr_expect_str_eq(options.runtime_dir, "/x");
	cr_expect_str_eq(options.command[0], "gpuwmd");
	cr_expect_str_eq(options.command[1], "--help", "a flag of the program was taken");
}

Test(keeper_options, wrong_ones_are_refused_with_their_name, .init = cr_redirect_stderr)
{
	options.store_max = 77;
	cr_expect_eq(PARSE("--nonsense", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--help=x", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog"), -EINVAL);
	cr_expect_eq(PARSE("--store-max", "65537", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--store-max", "-1", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--store-max", "1x", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--store-max", "", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", "", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--generation", "-1", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--generation", "v2", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--generation", "18446744073709551616", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", "-1", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", "nan", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", "0x10", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", "1.2.3", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--watchdog", ".", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--start-timeout", "1m", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--stop-timeout", "86401", "gpuwmd"), -EINVAL);
	cr_expect_eq(PARSE("--restart-delay", "5s", "gpuwmd"), -EINVAL);
	cr_expect_eq(options.store_max, 77, "something was set");
	fflush(stderr);
	cr_expect(1);
}

Test(keeper_options, the_program_is_wanted, .init = cr_redirect_stderr)
{
	char *argv[] = {"gpuwm-keeper", "--", NULL};

	cr_expect_eq(options_parse(&options, 1, argv), -EINVAL);
	cr_expect_eq(options_parse(&options, 2, argv), -EINVAL);
}

Test(keeper_options, help_and_version_are_printed, .init = cr_redirect_stdout)
{
	cr_expect_eq(PARSE("--version"), 1);
	cr_expect_eq(PARSE("--help"), 1);
}
