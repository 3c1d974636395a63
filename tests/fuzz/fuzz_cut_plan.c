/* Mutates cut plans that are valid, reads them, and cuts a small source: fuzz_cut_plan [iterations [seed]].
 * Build it with the sanitizers. What is accepted must give each byte to the ranks that a slow reading of the plan names. */
#include "../../loader/cut/cut.h"

#include "../../proto/index/dtype.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
	"a.q split 0\na.o split 1\nb copy\n",
	"# plan\n\ta.* split 0 optional # more\r\n*b rank 1\nc.* copy optional",
	"a.q split 1\n*.o copy\nb rank 0",
	"* copy",
};
static const char *const words[] = {"*",  " ",      "\n",      "#",    "split", "copy", "rank", "optional",
				    "0",  "1",      "2",       "63",   "64",    "a.q",  "a.o",  "b",
				    "\t", "999999", "1000000", "\xff", "**",    "-1",   "\r",   "a*q"};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const uint64_t shape_q[] = {4, 6}, shape_o[] = {6, 4}, shape_b[] = {6};
static struct source_tensor tensors[] = {
	{.name = "a.q", .dtype = DTYPE_BF16, .ndim = 2, .shape = shape_q, .bytes = 48},
	{.name = "a.o", .dtype = DTYPE_F4, .ndim = 2, .shape = shape_o, .bytes = 12},
	{.name = "b", .dtype = DTYPE_U8, .ndim = 1, .shape = shape_b, .bytes = 6},
};
static struct source source = {.tensors = tensors, .tensor_count = COUNT(tensors), .world = 1};

static size_t mutate(char *text, size_t bytes, size_t room)
{
	const char *word = words[draw(COUNT(words))];
	size_t at = draw(bytes + 1), length;

	switch (draw(4)) {
	case 0:
		if (at < bytes)
			text[at] = (char)(1 + draw(255));
		return bytes;
	case 1:
		length = bytes - at < 8 ? bytes - at : draw(8);
		memmove(text + at, text + at + length, bytes - at - length);
		return bytes - length;
	default:
		length = strlen(word);
		if (bytes + length > room)
			return bytes;
		memmove(text + at + length, text + at, bytes - at);
		memcpy(text + at, word, length);
		return bytes + length;
	}
}

static bool matches(const char *glob, const char *name)
{
	if (*glob == '*')
		return matches(glob + 1, name) || (*name && matches(glob, name + 1));
	return *glob == *name && (!*glob || matches(glob + 1, name + 1));
}

/* Returns the one rule that matches, or NULL. */
static const struct cut_rule *rule_of(const struct cut_plan *plan, const char *name)
{
	const struct cut_rule *found = NULL;

	for (size_t i = 0; i < plan->count; i++) {
		if (!matches(plan->rules[i].glob, name))
			continue;
		if (found)
			return NULL;
		found = &plan->rules[i];
	}
	return found;
}

static void check_plan(const struct cut_plan *plan)
{
	must(plan->count > 0 && plan->count <= CUT_RULES_MAX, "how many rules");
	for (size_t i = 0; i < COUNT(tensors); i++) {
		const struct cut_rule *rule = rule_of(plan, tensors[i].name);
		struct error error;
		size_t position;

		if (cut_plan_find(plan, tensors[i].name, &position, &error) == 0)
			must(rule == &plan->rules[position], "the rule");
		else
			must(!rule, "a rule is refused");
	}
}

static void check_cut(const struct cut *cut, const struct cut_plan *plan)
{
	for (size_t i = 0; i < COUNT(tensors); i++) {
		const struct cut_rule *rule = rule_of(plan, tensors[i].name);
		uint64_t bytes = 0;

		must(rule, "a tensor without its rule");
		must(rule->action != CUT_SPLIT || cut->tensors[i].dimension == rule->number, "the dimension");
		must(rule->action != CUT_RANK || cut->tensors[i].only == rule->number, "the rank");
		for (uint32_t rank = 0; rank < cut->rank_count; rank++) {
			uint32_t share = cut_position(cut, i, rank);

			if (share == CUT_NO_SHARE)
				continue;
			must(cut->shares[share].tensor == i, "the tensor of a share");
			must(cut_before(&cut->tensors[i], rank, tensors[i].bytes) == cut->shares[share].bytes,
			     "the bytes of a share");
			bytes += cut->shares[share].bytes;
		}
		must(bytes == tensors[i].bytes * (rule->action == CUT_COPY ? cut->rank_count : 1), "all bytes");
	}
}

static bool try_one(const char *text)
{
	struct cut_plan plan;
	struct error error;
	struct cut cut;
	bool accepted = false;

	if (cut_plan_parse(text, &plan, &error) < 0)
		return false;
	check_plan(&plan);
	if (cut_make(&source, text, 1 + (uint32_t)draw(4), &cut, &error) == 0) {
		check_cut(&cut, &plan);
		cut_clear(&cut);
		accepted = true;
	}
	cut_plan_clear(&plan);
	return accepted;
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 100000), accepted = 0;
	char text[1024];

	for (uint64_t i = 0; i < iterations; i++) {
		const char *seed = seeds[draw(COUNT(seeds))];
		size_t bytes = strlen(seed);
		char *exact;

		memcpy(text, seed, bytes);
		for (uint64_t rounds = draw(5); rounds > 0; rounds--)
			bytes = mutate(text, bytes, sizeof(text));
		/* In memory of exactly its size, so that a sanitizer sees each byte too far. */
		exact = malloc(bytes + 1);
		memcpy(exact, text, bytes);
		exact[bytes] = '\0';
		accepted += try_one(exact);
		free(exact);
	}
	return fuzz_end(accepted, iterations);
}
