#include "exporter/prom.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* What the statement writes to `out`. */
#define WRITTEN(statement)                                                                                     \
	({                                                                                                     \
		static char text_[4096];                                                                       \
		FILE *out = fmemopen(text_, sizeof(text_), "w");                                               \
		statement;                                                                                     \
		fclose(out);                                                                                   \
		text_;                                                                                         \
	})

Test(exporter_prom, a_family_and_its_values)
{
	cr_expect_str_eq(WRITTEN(prom_single(out, "gpuwm_up", PROM_GAUGE, "It answers.", 1)),
			 "# HELP gpuwm_up It answers.\n# TYPE gpuwm_up gauge\ngpuwm_up 1\n");
	cr_expect_str_eq(WRITTEN(prom_u64(out, "a_total", UINT64_MAX, "x", "1", "y", "2", PROM_END)),
			 "a_total{x=\"1\",y=\"2\"} 18446744073709551615\n");
	cr_expect_str_eq(WRITTEN(prom_us(out, "a_seconds", 1000002, PROM_END)), "a_seconds 1.000002\n");
}

Test(exporter_prom, a_label_can_not_end_its_line)
{
	cr_expect_str_eq(WRITTEN(prom_u64(out, "a", 0, "x", "q\" b\\ n\n} 1", PROM_END)),
			 "a{x=\"q\\\" b\\\\ n\\n} 1\"} 0\n");
}

Test(exporter_prom, a_comment_is_one_line)
{
	cr_expect_str_eq(WRITTEN(prom_comment(out, "gone\ngpuwm_up 1\r")), "# gone gpuwm_up 1 \n");
}

Test(exporter_prom, names_of_metrics)
{
	cr_expect(prom_is_name("attach_waited2"));
	cr_expect_not(prom_is_name(""));
	cr_expect_not(prom_is_name("a b"));
	cr_expect_not(prom_is_name("a{"));
	cr_expect_not(prom_is_name("A"));
}
