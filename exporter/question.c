#include "question.h"

const char *const question_names[QUESTIONS] = {
	[ASK_STATUS] = "status", [ASK_LIST] = "list",           [ASK_CLIENTS] = "clients",
	[ASK_JOBS] = "jobs",     [ASK_REGIONS] = "region_list", [ASK_METRICS] = "metrics",
};
