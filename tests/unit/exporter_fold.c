#include "exporter/prom.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct fold fold;

static void add(const char *model, const char *device, uint64_t one, uint64_t other)
{
	fold_add(&fold, &(struct fold_row){.labels = {model, device}, .values = {one, other}});
}

static void is_row(size_t at, const char *model, const char *device, uint64_t one, uint64_t other)
{
	cr_assert_lt(at, fold.count);
	cr_expect_str_eq(fold.rows[at].labels[0], model);
	cr_expect_str_eq(fold.rows[at].labels[1], device);
	cr_expect_eq(fold.rows[at].values[0], one);
	cr_expect_eq(fold.rows[at].values[1], other);
}

static void forget(void)
{
	fold_clear(&fold);
}

TestSuite(exporter_fold, .fini = forget);

Test(exporter_fold, rows_with_the_same_labels_are_summed)
{
	add("b", "g0", 1, 10);
	add("a", "g0", 2, 0);
	add("b", "g0", 3, 1);
	add("b", "g1", 4, 0);
	fold_end(&fold, 10, 1);
	cr_assert_eq(fold.count, 3);
	is_row(0, "a", "g0", 2, 0);
	is_row(1, "b", "g0", 4, 11);
	is_row(2, "b", "g1", 4, 0);
}

Test(exporter_fold, of_too_many_rows_the_largest_are_told_and_the_sum_of_the_others)
{
	add("small", "g0", 1, 0);
	add("large", "g0", 5, 5);
	add("tiny", "g0", 0, 1);
	add("middle", "g1", 4, 0);
	add("least", "g1", 0, 0);
	fold_end(&fold, 2, 1);
	cr_assert_eq(fold.count, 4);
	is_row(0, FOLD_OTHER, "g0", 1, 1);
	is_row(1, FOLD_OTHER, "g1", 0, 0);
	is_row(2, "large", "g0", 5, 5);
	is_row(3, "middle", "g1", 4, 0);
}

Test(exporter_fold, of_equal_rows_the_same_ones_are_told_whatever_their_order)
{
	add("b", "g", 1, 0);
	add("c", "g", 1, 0);
	add("a", "g", 1, 0);
	fold_end(&fold, 1, 1);
	cr_assert_eq(fold.count, 2);
	is_row(0, FOLD_OTHER, "g", 2, 0);
	is_row(1, "a", "g", 1, 0);
}

Test(exporter_fold, many_rows_fit_and_none_is_no_error)
{
	static char names[1000][8];

	fold_end(&fold, 1, 1);
	cr_expect_eq(fold.count, 0);
	for (int i = 0; i < 1000; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		add(names[i], "g", 1, 1);
	}
	fold_end(&fold, 1000, 1);
	cr_expect_eq(fold.count, 1000);
	cr_expect_not(fold.out_of_memory);
}
