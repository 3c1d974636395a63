#include "ask.h"

#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ANSWER_TEXT 16

bool ask_can(void)
{
	return terminal_is(STDIN_FILENO) && terminal_is(STDERR_FILENO);
}

bool ask(const char *question)
{
	char answer[ANSWER_TEXT];

	fflush(stdout);
	fprintf(stderr, "%s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}
