#include "tests/support/daemon/ledger.h"
#include "base/bytes.h"

static struct device_table table;

static int report(const char *id, bool is_cuda, uint64_t total)
{
	struct device device = {.kind = is_cuda ? &kind_cuda : &kind_host,
				.total = total,
				.free = total / 2,
				.granularity = 512};

	snprintf(device.id, sizeof(device.id), "%s", id);
	snprintf(device.name, sizeof(device.name), "a device");
	return device_table_report(&table, &device, 7);
}

static void clear(void)
{
	device_table_clear(&table);
}

TestSuite(device, .fini = clear);

Test(device, is_added_by_its_first_report)
{
	struct device *device;

	cr_assert_eq(report("host", false, GIB(10)), 0);
	device = device_find(&table, "host");
	cr_assert(device);
	cr_expect_eq(device->total, GIB(10));
	cr_expect_eq(device->free, GIB(5));
	cr_expect_eq(device->free_at_ms, 7);
	cr_expect_eq(device->granularity, 512);
	cr_expect_eq(device->used, 0);
	cr_expect_null(device_find(&table, LEDGER_GPU));
}

/* A keeper, a store or a description brings the size that the device had: what a loader sees counts. */
Test(device, is_refreshed_with_a_budget_of_its_new_size)
{
	struct device again = {
		.id = "host", .kind = &kind_host, .name = "other", .total = 5, .free = 3, .granularity = 1};
	struct device *device;

	report("host", false, 1000);
	device = device_find(&table, "host");
	cr_assert_eq(device_table_report(&table, &again, 9), 0);
	cr_expect_eq(table.count, 1);
	cr_expect_str_eq(device->name, "other");
	cr_expect_eq(device->total, 5);
	cr_expect_eq(device->free, 3);
	cr_expect_eq(device->free_at_ms, 9);
	cr_expect_eq(device->granularity, 512);
	cr_expect_eq(device->budget, 4);
	report("host", false, 1000);
	cr_expect_eq(device->budget, 800);
}

Test(device, keeps_a_budget_in_bytes_whatever_its_size)
{
	device_table_budget(&table, "host", 700, 0);
	report("host", false, 1000);
	report("host", false, 500);
	cr_expect_eq(device_find(&table, "host")->budget, 700);
}

/* A loader's report tells what the driver lists, and a driver may list what is lost. */
Test(device, stays_lost_whatever_is_reported)
{
	struct error error = {0};
	struct device *device;

	report(LEDGER_GPU, true, 1000);
	device = device_find(&table, LEDGER_GPU);
	cr_expect_eq(device_check_there(device, &error), 0);
	device->lost = (struct error){.code = -ENODEV, .message = "it left"};
	report(LEDGER_GPU, true, 1000);
	cr_expect_eq(device_check_there(device, &error), -ENODEV);
	cr_expect_str_eq(error.message, LEDGER_GPU " is lost: it left");
	cr_expect(strstr(error.detail, "gpuwmctl drain --device " LEDGER_GPU), "%s", error.detail);
}

Test(device, ends_a_name_that_fills_its_field)
{
	struct device full = {.id = "host", .kind = &kind_host, .total = 5};

	memset(full.name, 'x', sizeof(full.name));
	cr_assert_eq(device_table_report(&table, &full, 1), 0);
	cr_expect_eq(strlen(device_find(&table, "host")->name), sizeof(full.name) - 1);
}

Test(device, refuses_an_id_that_is_none)
{
	cr_expect_eq(report("cuda:0", true, 1), -EINVAL);
	cr_expect_eq(report("", true, 1), -EINVAL);
	cr_expect_eq(table.count, 0);
}

Test(device, refuses_more_than_the_table_holds)
{
	char id[DEVICE_BYTES_MAX + 1];

	for (int i = 0; i < DEVICES_MAX; i++) {
		snprintf(id, sizeof(id), "GPU-01234567-89ab-cdef-0123-%012d", i);
		cr_assert_eq(report(id, true, 1), 0);
	}
	cr_expect_eq(report("host", false, 1), -ENOSPC);
	cr_expect_eq(report(id, true, 2), 0, "a known one is still refreshed");
}

Test(device, gets_the_default_share_as_budget)
{
	report("host", false, 199);
	report(LEDGER_GPU, true, 199);
	cr_expect_eq(device_find(&table, "host")->budget, 199 * BUDGET_PERCENT_HOST / 100);
	cr_expect_eq(device_find(&table, LEDGER_GPU)->budget, 199 * BUDGET_PERCENT_CUDA / 100);
}

Test(device, gets_a_share_of_the_largest_total)
{
	device_table_budget(&table, "host", 0, 100);
	report("host", false, UINT64_MAX);
	cr_expect_eq(device_find(&table, "host")->budget, UINT64_MAX);
}

Test(device, gets_the_budget_of_the_configuration)
{
	static const char other[] = "GPU-ffffffff-89ab-cdef-0123-456789abcdef";

	cr_assert_eq(device_table_budget(&table, LEDGER_GPU, GIB(3), 0), 0);
	cr_assert_eq(device_table_budget(&table, "*", 0, 50), 0);
	cr_assert_eq(device_table_budget(&table, "host", 1, 0), 0);
	cr_assert_eq(device_table_budget(&table, "host", 0, 0), 0, "again replaces");
	report(LEDGER_GPU, true, GIB(10));
	report(other, true, GIB(10));
	report("host", false, GIB(10));
	cr_expect_eq(device_find(&table, LEDGER_GPU)->budget, GIB(3));
	cr_expect_eq(device_find(&table, other)->budget, GIB(5));
	cr_expect_eq(device_find(&table, "host")->budget, 0);
}

Test(device, refuses_a_budget_that_cannot_be)
{
	char id[DEVICE_BYTES_MAX + 1];

	cr_expect_eq(device_table_budget(&table, "cuda:0", 1, 0), -EINVAL);
	cr_expect_eq(device_table_budget(&table, "host", 0, 101), -EINVAL);
	for (int i = 0; i < DEVICES_MAX; i++) {
		snprintf(id, sizeof(id), "GPU-01234567-89ab-cdef-0123-%012d", i);
		cr_assert_eq(device_table_budget(&table, id, 1, 0), 0);
	}
	cr_expect_eq(device_table_budget(&table, "host", 1, 0), -ENOSPC);
}

Test(budget, is_charged_to_the_last_byte_and_given_back)
{
	struct budget_charge first, second = {0};
	struct device *device;

	device_table_budget(&table, "host", 100, 0);
	report("host", false, 1000);
	device = device_find(&table, "host");
	cr_assert_eq(budget_charge(device, 60, &first, &ledger.error), 0);
	cr_expect_eq(device->used, 60);
	cr_expect_eq(budget_charge(device, 41, &second, &ledger.error), -ENOSPC);
	cr_expect_null(second.device);
	cr_expect_eq(device->used, 60);
	cr_assert_eq(budget_charge(device, 40, &second, &ledger.error), 0);
	cr_expect_eq(budget_charge(device, 1, &(struct budget_charge){0}, NULL), -ENOSPC);
	budget_release(&first);
	budget_release(&first);
	cr_expect_eq(device->used, 40);
	budget_release(&second);
	cr_expect_eq(device->used, 0);
	clear();
}

/* Operators may always use an eighth. */
Test(budget, of_users_leaves_an_eighth)
{
	struct budget_charge first = {0}, second = {0}, operators = {0};
	struct quota *quota = quota_new(&quota_defaults);
	struct device *device;

	device_table_budget(&table, "host", 800, 0);
	report("host", false, 1000);
	device = device_find(&table, "host");
	budget_charge(device, 600, &first, &ledger.error);
	cr_assert_eq(budget_charge_user(&first, quota, 7, &ledger.error), 0);
	cr_expect(device->by_users == 600 && budget_left_for_users(device) == 100);
	budget_charge(device, 101, &second, &ledger.error);
	expect_error(
		budget_charge_user(&second, quota, 8, &ledger.error), -ENOSPC,
		"of the budget of 800 B users may have 700 B, since an eighth is kept for operators; users have 600 B");
	cr_expect_eq(device->by_users, 600);
	budget_shrink(&second, 100);
	cr_assert_eq(budget_charge_user(&second, quota, 8, &ledger.error), 0);
	cr_assert_eq(budget_charge(device, 100, &operators, &ledger.error), 0, "the eighth");
	budget_shrink(&first, 500);
	cr_expect_eq(device->by_users, 600);
	budget_split(&first, 200, &(struct budget_charge){0});
	cr_expect_eq(device->by_users, 600);
	budget_release(&second);
	budget_release(&operators);
	budget_release(&first);
	cr_expect_eq(device->by_users, 200, "of what was split off");
	quota_free(quota);
	clear();
}

Test(budget, of_a_user_moves_to_another_device_and_to_another_user)
{
	struct budget_charge from = {0}, to = {0};
	struct quota *quota = quota_new(&quota_defaults);
	struct device *host, *gpu;
	const uid_t other = 8;

	report("host", false, 1000);
	report(LEDGER_GPU, true, 1000);
	host = device_find(&table, "host");
	gpu = device_find(&table, LEDGER_GPU);
	budget_charge(gpu, 64, &from, &ledger.error);
	cr_assert_eq(budget_charge_user(&from, quota, 7, &ledger.error), 0);
	budget_charge(host, 64, &to, &ledger.error);
	budget_move_user(&from, &to);
	cr_expect(gpu->by_users == 0 && host->by_users == 64);
	budget_release(&from);
	cr_expect_eq(quota_used(quota, 7, QUOTA_BYTES), 64);
	cr_assert_eq(budget_repay(&to, &other, &ledger.error), 0);
	cr_expect(quota_used(quota, 7, QUOTA_BYTES) == 0 && quota_used(quota, 8, QUOTA_BYTES) == 64);
	cr_expect_eq(host->by_users, 64);
	cr_assert_eq(budget_repay(&to, NULL, &ledger.error), 0);
	cr_expect(quota_used(quota, 8, QUOTA_BYTES) == 0 && host->by_users == 0 && host->used == 64);
	budget_release(&to);
	quota_free(quota);
	clear();
}

Test(budget, shrinks_but_never_grows)
{
	struct budget_charge charge, none = {0};
	struct device *device;

	report("host", false, 1000);
	device = device_find(&table, "host");
	budget_charge(device, 60, &charge, &ledger.error);
	budget_shrink(&charge, 70);
	cr_expect_eq(device->used, 60);
	budget_shrink(&charge, 20);
	cr_expect_eq(device->used, 20);
	budget_shrink(&none, 0);
	budget_release(&charge);
	cr_expect_eq(device->used, 0);
	clear();
}

Test(budget, adopted_above_it_leaves_nothing_until_enough_came_back)
{
	struct budget_charge adopted, more, none = {0};
	struct device *device;

	device_table_budget(&table, "host", 100, 0);
	report("host", false, 1000);
	device = device_find(&table, "host");
	budget_adopt(device, 130, &adopted);
	cr_expect(adopted.device == device && adopted.bytes == 130);
	cr_expect_eq(device->used, 130);
	expect_error(budget_charge(device, 1, &none, &ledger.error), -ENOSPC,
		     "1 B asked for, 0 B of the budget of 100 B left, with 130 B used, 500 B really free");
	cr_expect(strstr(ledger.error.detail, "nothing is evicted"), "%s", ledger.error.detail);
	cr_expect(budget_is_exceeded(device));
	cr_expect_null(none.device);
	cr_expect_eq(budget_charge(device, 0, &none, NULL), 0);
	budget_adopt(device, 20, &more);
	budget_shrink(&adopted, 80);
	cr_expect_eq(budget_charge(device, 1, &none, NULL), -ENOSPC, "exactly used up");
	budget_shrink(&adopted, 70);
	cr_expect_eq(budget_charge(device, 11, &none, NULL), -ENOSPC);
	cr_assert_eq(budget_charge(device, 10, &none, NULL), 0);
	budget_release(&none);
	budget_release(&more);
	budget_release(&adopted);
	cr_expect_eq(device->used, 0);
	clear();
}

Test(budget, refusal_quotes_all_figures_and_the_remedy)
{
	struct budget_charge charge;
	struct device *device;

	device_table_budget(&table, LEDGER_GPU, GIB(100), 0);
	report(LEDGER_GPU, true, GIB(180));
	device = device_find(&table, LEDGER_GPU);
	budget_charge(device, GIB(96), &charge, &ledger.error);
	expect_error(budget_charge(device, GIB(12), &charge, &ledger.error), -ENOSPC,
		     "no room on " LEDGER_GPU
		     ": 12.0 GiB asked for, 4.0 GiB of the budget of 100.0 GiB left, 90.0 "
		     "GiB really free");
	cr_expect_str_eq(ledger.error.detail,
			 "retire or demote a version, or raise [budget] " LEDGER_GPU " in the configuration");
	clear();
}

Test(bytes, are_formatted_for_people)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1.0 KiB"},
		{1536, "1.5 KiB"},
		{MIB(3), "3.0 MiB"},
		{GIB(12), "12.0 GiB"},
		{GIB(2048), "2.0 TiB"},
		{GIB(1024) - 1, "1.0 TiB"},
		{GIB(1 << 20), "1.0 PiB"},
		{UINT64_MAX, "16.0 EiB"},
	};
	char text[BYTES_TEXT];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_str_eq(bytes_format(cases[i].bytes, text), cases[i].text);
}

Test(bytes, are_parsed_exactly)
{
	static const char *const wrong[] = {"", "G", "1.5G", "-1", " 1", "1 ", "1GB", "1g", "0x10", "1GG"};
	uint64_t bytes = 0;

	cr_expect(bytes_parse("0", &bytes) == 0 && bytes == 0);
	cr_expect(bytes_parse("4096", &bytes) == 0 && bytes == 4096);
	cr_expect(bytes_parse("2K", &bytes) == 0 && bytes == 2048);
	cr_expect(bytes_parse("3M", &bytes) == 0 && bytes == MIB(3));
	cr_expect(bytes_parse("64G", &bytes) == 0 && bytes == GIB(64));
	cr_expect(bytes_parse("1T", &bytes) == 0 && bytes == GIB(1024));
	cr_expect(bytes_parse("18446744073709551615", &bytes) == 0 && bytes == UINT64_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_expect_eq(bytes_parse(wrong[i], &bytes), -EINVAL, "\"%s\"", wrong[i]);
	cr_expect_eq(bytes_parse("18446744073709551616", &bytes), -ERANGE);
	cr_expect_eq(bytes_parse("184467440737095516160", &bytes), -ERANGE);
	cr_expect_eq(bytes_parse("99999999999999999999", &bytes), -ERANGE);
	cr_expect_eq(bytes_parse("16777216T", &bytes), -ERANGE);
	cr_expect_eq(bytes, UINT64_MAX, "an error leaves the result alone");
}

/* ---- contexts ---- */

static struct device *with_context(uint64_t total, uint64_t context)
{
	struct device device = {.id = LEDGER_GPU, .kind = &kind_cuda, .total = total, .context = context};

	cr_assert_eq(device_table_report(&table, &device, 7), 0);
	return device_find(&table, LEDGER_GPU);
}

Test(device, has_contexts_in_its_budget)
{
	struct device *device = with_context(GIB(10), MIB(512));
	struct budget_charge context, bytes;
	struct error error;

	cr_assert_eq(budget_charge_context(device, &context, &error), 0);
	cr_expect_eq(device->used, MIB(512));
	cr_expect_eq(device->contexts, MIB(512));
	cr_assert_eq(budget_charge(device, GIB(8), &bytes, &error), 0);
	cr_expect_eq(device->contexts, MIB(512), "what versions have is no context");
	budget_release(&context);
	cr_expect_eq(device->used, GIB(8));
	cr_expect_eq(device->contexts, 0);
	budget_release(&context); /* twice is fine */
	budget_release(&bytes);
	cr_expect_eq(device->used, 0);
}

Test(device, without_room_for_a_context_says_so)
{
	struct device *device = with_context(GIB(1), GIB(1));
	struct budget_charge context;
	struct error error;

	cr_assert_eq(budget_charge_context(device, &context, &error), -ENOSPC);
	cr_expect(strstr(error.message, ": 1.0 GiB needed for a CUDA context to load or check there, "
					"921.6 MiB of the budget of 921.6 MiB left"),
		  "%s", error.message);
	cr_expect_eq(device->used, 0);
}

Test(device, has_room_for_a_context_when_others_are_gone)
{
	struct device *device = with_context(GIB(1), MIB(512));
	struct budget_charge first, second;
	struct error error;

	cr_assert_eq(budget_charge_context(device, &first, &error), 0);
	cr_expect_eq(budget_charge_context(device, &second, &error), -EAGAIN);
	budget_release(&first);
	cr_assert_eq(budget_charge_context(device, &second, &error), 0);
	budget_release(&second);
	budget_adopt(device, MIB(512), &first);
	cr_expect_eq(budget_charge_context(device, &second, &error), -ENOSPC);
	budget_release(&first);
}

Test(device, checks_that_bytes_and_a_context_fit)
{
	struct device *device = with_context(MIB(1000), MIB(100));
	struct budget_charge context;
	struct error error;

	cr_expect_eq(budget_check_with_context(device, MIB(800), &error), 0);
	cr_expect_eq(budget_check_with_context(device, MIB(800) + 1, &error), -ENOSPC);
	cr_expect(strstr(error.message,
			 "800.0 MiB asked for and 100.0 MiB for a CUDA context while it is checked"),
		  "%s", error.message);
	cr_expect_eq(budget_check_with_context(device, UINT64_MAX, &error), -ENOSPC);
	cr_assert_eq(budget_charge_context(device, &context, &error), 0);
	cr_expect_eq(budget_check_with_context(device, MIB(800), &error), 0, "the other one will be gone");
	budget_release(&context);
}

Test(device, without_room_quotes_the_contexts)
{
	struct device *device = with_context(GIB(1), MIB(512));
	struct budget_charge context, bytes;
	struct error error;

	cr_assert_eq(budget_charge(device, GIB(1), &bytes, &error), -ENOSPC);
	cr_expect_not(strstr(error.message, "context"), "%s", error.message);
	cr_assert_eq(budget_charge_context(device, &context, &error), 0);
	cr_assert_eq(budget_charge(device, MIB(512), &bytes, &error), -ENOSPC);
	cr_expect(strstr(error.message,
			 ": 512.0 MiB asked for beside 512.0 MiB of CUDA contexts of running jobs, "
			 "409.6 MiB of the budget of 921.6 MiB left"),
		  "%s", error.message);
	budget_release(&context);
}

Test(device, takes_what_a_context_needs_from_each_report)
{
	struct device *device = with_context(GIB(1), 5);

	with_context(GIB(1), 7);
	cr_expect_eq(device->context, 7);
}
