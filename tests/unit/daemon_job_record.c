/* The phases and notes that gpuwmd records of a job. */
#include "daemon/work/jobs/job.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(job_record, phases_have_their_times)
{
	struct job_record record = {0};

	job_record_phase(&record, "opening", 100);
	job_record_phase(&record, "copying", 107);
	job_record_bytes(&record, 4096, 8192);
	job_record_phase(&record, "copying", 150);
	job_record_end(&record, false, 207);
	job_record_end(&record, true, 300);
	cr_assert_eq(record.phase_count, 2);
	cr_expect_str_eq(record.phases[0].name, "opening");
	cr_expect_eq(record.phases[0].ms, 7);
	cr_expect_eq(record.phases[0].bytes, 0);
	cr_expect_str_eq(record.phases[1].name, "copying");
	cr_expect_eq(record.phases[1].ms, 100);
	cr_expect_eq(record.phases[1].bytes, 4096);
}

Test(job_record, a_phase_that_ended_well_has_done_all)
{
	struct job_record record = {0};

	job_record_phase(&record, "copying", 10);
	job_record_bytes(&record, 100, 8192);
	job_record_phase(&record, "checking", 11);
	job_record_bytes(&record, 100, 4096);
	job_record_end(&record, true, 12);
	cr_expect_eq(record.phases[0].bytes, 8192);
	cr_expect_eq(record.phases[1].bytes, 4096);
}

Test(job_record, a_phase_that_comes_again_counts_where_it_stood_first)
{
	struct job_record record = {0};

	job_record_phase(&record, "a", 10);
	job_record_bytes(&record, 4, 4);
	job_record_phase(&record, "b", 11);
	job_record_phase(&record, "a", 13);
	job_record_bytes(&record, 3, 4);
	job_record_end(&record, false, 17);
	cr_assert_eq(record.phase_count, 2);
	cr_expect_eq(record.phases[0].ms, 5);
	cr_expect_eq(record.phases[0].bytes, 7);
	cr_expect_eq(record.phases[1].ms, 2);
}

Test(job_record, is_bounded)
{
	struct job_record record = {0};
	char text[64];

	for (unsigned i = 0; i < 3 * JOB_PHASES_MAX; i++) {
		snprintf(text, sizeof(text), "a phase with a name that is too long %u", i);
		job_record_phase(&record, text + i % 3, 10 + i);
		snprintf(text, sizeof(text), "phase %u", i);
		job_record_phase(&record, text, 10 + i);
		cr_expect_eq(job_record_note(&record, text), i < JOB_NOTES_MAX);
	}
	cr_expect_eq(record.phase_count, JOB_PHASES_MAX);
	cr_expect_eq(record.note_count, JOB_NOTES_MAX);
	job_record_clear(&record);
	cr_expect_eq(record.note_count, 0);
}

Test(job_record, a_note_is_kept_once)
{
	struct job_record record = {0};

	cr_expect(job_record_note(&record, "warm"));
	cr_expect_not(job_record_note(&record, "warm"));
	fail_alloc_arm(1);
	cr_expect_not(job_record_note(&record, "cold"));
	cr_expect(fail_alloc_disarm());
	cr_expect_eq(record.note_count, 1);
	job_record_clear(&record);
}
