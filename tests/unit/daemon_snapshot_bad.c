/* Snapshots that are whole and say what can't be. If a record does, it is left out, with its place named; if the map does, it is refused. */
#include "tests/support/daemon/snapshot.h"

/* ---- a text with the nesting of JSON as a message ---- */

static const char *put_value(struct message_writer *w, const char *key, const char *at);

/* Up to the closing quote; returns what follows it. */
static const char *read_text(const char *at, char text[256])
{
	size_t bytes = strcspn(at + 1, "'");

	cr_assert(*at == '\'' && bytes < 256, "%s", at);
	memcpy(text, at + 1, bytes);
	text[bytes] = '\0';
	return at + bytes + 2;
}

static const char *put_entries(struct message_writer *w, const char *at, char end)
{
	char key[256];

	while (*at != end) {
		if (end == '}')
			at = read_text(at, key) + 1;
		at = put_value(w, end == '}' ? key : NULL, at);
		at += *at == ',';
	}
	message_end(w);
	return at + 1;
}

static const char *put_value(struct message_writer *w, const char *key, const char *at)
{
	char text[256], *end;
	uint64_t number;

	switch (*at) {
	case '{':
		message_begin_map(w, key);
		return put_entries(w, at + 1, '}');
	case '[':
		message_begin_array(w, key);
		return put_entries(w, at + 1, ']');
	case '\'':
		at = read_text(at, text);
		message_put_text(w, key, text);
		return at;
	case '-':
		message_put_text(w, key, NULL);
		return at + 1;
	default:
		number = strtoull(at, &end, 10);
		cr_assert(end > at, "%s", at);
		message_put_u64(w, key, number);
		return end;
	}
}

/* The names 1 and 4097 share a place in the table of names. */
static const char valid[] =
	"{'ledger':'000102030405060708090a0b0c0d0e0f','epoch':3,'next_name':5000,'devices':["
	"{'id':'host','kind':'host','name':'memory','total':1000,'granularity':4096,'context':0},"
	"{'id':'GPU-1','kind':'cuda','name':'a GPU','total':1000,'granularity':2097152,'context':576}],"
	"'versions':["
	"{'state':'ready','error':-,'pins':['a','b'],'fixed':{'id':'0000000000000000000000000000000a',"
	"'publish':'0000000000000000000000000000001a','model':'m','tag':'v1','world':1,'owner':1000,"
	"'created_ms':5,'ready_ms':6,'parts':[{'rank':0,'device':'GPU-1','tensors':3,"
	"'layout':'0000000000000000000000000000002a','content':'0000000000000000000000000000003a',"
	"'index':{'name':1,'bytes':10},'segments':[{'name':2,'bytes':100},{'name':3,'bytes':200}]}]}},"
	"{'state':'retiring','pins':[],'fixed':{'id':'0000000000000000000000000000000b',"
	"'publish':'0000000000000000000000000000001b','model':'m','tag':'v2','world':2,'owner':1000,"
	"'created_ms':7,'ready_ms':8,'parts':[{'rank':0,'device':'host','tensors':0,"
	"'layout':'0000000000000000000000000000002b','content':'0000000000000000000000000000003b',"
	"'index':{'name':4,'bytes':10},'segments':[]},{'rank':1,'device':'host','tensors':1,"
	"'layout':'0000000000000000000000000000002c','content':'0000000000000000000000000000003c',"
	"'index':{'name':5,'bytes':10},'segments':[{'name':4097,'bytes':100}]}]}}],"
	"'aliases':["
	"{'model':'m','name':'current','version':'0000000000000000000000000000000a','generation':7},"
	"{'model':'m','name':'prod','version':'0000000000000000000000000000000a','generation':1}]}";

/* Returns what snapshot_take returns for such a text, without its last bytes. */
static int take_without(const char *text, size_t bytes)
{
	struct message_writer w;
	int r;

	message_writer_init(&w, MIB(8));
	cr_assert_eq(*put_value(&w, NULL, text), '\0');
	cr_assert_eq(message_finish(&w), 0);
	r = back_take(w.buffer.data, w.buffer.size - bytes);
	message_writer_clear(&w);
	return r;
}

static int take(const char *text)
{
	return take_without(text, 0);
}

/* The text, which is no result of this function, with something else in place of the n-th `instead_of`. */
static const char *replaced(const char *text, int n, const char *instead_of, const char *put)
{
	static char result[sizeof(valid) + 1024];
	const char *found = strstr(text, instead_of);

	while (found && --n > 0)
		found = strstr(found + 1, instead_of);
	cr_assert(found, "%s", instead_of);
	snprintf(result, sizeof(result), "%.*s%s%s", (int)(found - text), text, put,
		 found + strlen(instead_of));
	return result;
}

static const char *changed(int n, const char *instead_of, const char *put)
{
	return replaced(valid, n, instead_of, put);
}

/* The record stays in the state, and the sound ones do not become fewer by it. */
static void leave(const char *text, const char *message)
{
	struct message_writer w;
	struct unread_record *first;
	char why[1024];
	uint64_t count;

	cr_assert_eq(take(text), 0, "%s: %s", message, ledger.error.message);
	cr_assert_not_null(back.unread.first, "%s", message);
	count = back.unread.count;
	first = back.unread.first;
	snprintf(why, sizeof(why), "%s", first->why.message);
	cr_expect(strncmp(why, "the state", 9) == 0 && strcmp(why + 9, message) == 0, "%s: %s", message, why);
	if (strcmp(first->array, "devices") == 0 || back.lost > 0)
		return;
	message_writer_init(&w, MIB(8));
	snapshot_put(&w, &back.snapshot);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(back_take(w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	cr_expect_eq(back.unread.count, count, "%s", message);
	message_writer_clear(&w);
}

/* The message follows "the state". */
static void refuse(const char *text, const char *message)
{
	if (message[0] == '\'') {
		leave(text, message);
		return;
	}
	cr_expect_eq(take(text), -EUCLEAN, "%s", message);
	cr_expect_eq(ledger.error.code, -EUCLEAN);
	cr_expect(strncmp(ledger.error.message, "the state", 9) == 0 &&
			  strcmp(ledger.error.message + 9, message) == 0,
		  "%s: %s", message, ledger.error.message);
	cr_expect_eq(fake_taken, 0);
}

/* A change of the valid one, and what is wrong then. */
struct wrong {
	int n;
	const char *instead_of, *put, *message;
};

static void refuse_each(const struct wrong *wrong, size_t count)
{
	for (size_t i = 0; i < count; i++)
		refuse(changed(wrong[i].n, wrong[i].instead_of, wrong[i].put), wrong[i].message);
}
#define REFUSE_EACH(wrong) refuse_each(wrong, sizeof(wrong) / sizeof(*(wrong)))

/* Places in the valid one. */
#define V1 "'s versions[0] (m@v1): "
#define V2 "'s versions[1] (m@v2): "
#define CURRENT "'s aliases[0] (m@current): "
#define PROD "'s aliases[1] (m@prod): "

SnapshotTest(bad_snapshot, the_unchanged_one_is_good)
{
	cr_assert_eq(take(valid), 0, "%s", ledger.error.message);
	cr_expect(registry_counts(back.registry).versions == 2 && fake_taken == 6);
	cr_expect_eq(back.snapshot.next_name, 5000);
}

/* Of a gpuwmd that knew nothing of contexts yet. */
SnapshotTest(bad_snapshot, one_without_contexts_is_good)
{
	cr_assert_eq(take(changed(2, "'context'", "'other'")), 0, "%s", ledger.error.message);
	cr_expect_eq(device_find(&back.devices, "GPU-1")->context, 0);
}

SnapshotTest(bad_snapshot, what_is_no_map_is_refused)
{
	refuse("[1]",
	       " is no map of MessagePack: it is no request, response or notification of MessagePack-RPC "
	       "with a map");
	cr_expect_eq(take_without(valid, 1), -EUCLEAN);
	cr_expect_str_eq(ledger.error.message, "the state is no map of MessagePack: it ends early");
	cr_expect_eq(back_take("", 0), -EUCLEAN);
}

SnapshotTest(bad_snapshot, key_that_is_missing_is_named)
{
	static const struct {
		const char *place, *keys[12];
	} missing[] = {
		{": ", {"ledger", "epoch", "next_name", "devices", "versions", "aliases"}},
		{"'s devices[0]: ", {"kind", "total", "granularity"}},
		{V1, {"state", "pins", "publish", "world", "owner", "created_ms", "ready_ms", "parts"}},
		{"'s versions[0] (@): ", {"fixed"}},
		{"'s versions[0] (@v1): ", {"model"}},
		{"'s versions[0] (m@): ", {"tag"}},
		{V1 "parts[0]: ",
		 {"rank", "device", "tensors", "layout", "content", "index", "segments", "bytes"}},
		{CURRENT, {"version", "generation"}},
	};

	for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
		for (const char *const *key = missing[i].keys; *key; key++) {
			char quoted[32], message[128];

			snprintf(quoted, sizeof(quoted), "'%s'", *key);
			snprintf(message, sizeof(message), "%s\"%s\" is missing", missing[i].place, *key);
			refuse(changed(1, quoted, "'other'"), message);
		}
	}
}

SnapshotTest(bad_snapshot, value_of_another_type_is_named)
{
	static const struct wrong cases[] = {
		{1, "'epoch':3", "'epoch':'3'", ": \"epoch\" is no unsigned integer"},
		{1, "'index':{", "'index':[],'other':{", V1 "parts[0]: \"index\" is no map"},
		{1, "'pins':['a'", "'pins':[9", V1 "\"pins\" is no text"},
		{1, "'pins'", "'force_at_ms':'x','pins'", V1 "\"force_at_ms\" is no unsigned integer"},
		{1, "'error':-", "'error':'x'", V1 "\"error\" is no map"},
	};

	REFUSE_EACH(cases);
}

SnapshotTest(bad_snapshot, kicked_leases_that_cannot_be_are_named)
{
	static const struct wrong cases[] = {
		{1, "'pins'", "'revoked':9,'pins'", V1 "\"revoked\" is no array"},
		{1, "'pins'", "'revoked':[9],'pins'", V1 "revoked[0]: a map was expected"},
		{1, "'pins'", "'revoked':[{'uid':7,'all_to':0}],'pins'",
		 V1 "revoked[0]: \"leases\" is missing"},
		{1, "'pins'", "'revoked':[{'uid':7,'all_to':0,'leases':['x']}],'pins'",
		 V1 "revoked[0]: \"leases\" has what is no lease's number"},
		{1, "'pins'", "'revoked':[{'uid':4294967295,'all_to':0,'leases':[]}],'pins'",
		 V1 "revoked[0]: 4294967295 is no uid"},
		{1, "'pins'", "'revoked':[{'uid':7,'all_to':0,'leases':[9,9]}],'pins'",
		 V1 "revoked[0]: lease 9 was revoked before"},
		{1, "'pins'", "'revoked':[{'uid':7,'all_to':9,'leases':[9]}],'pins'",
		 V1 "revoked[0]: lease 9 was revoked before"},
		{1, "'pins'",
		 "'revoked':[{'uid':7,'all_to':0,'leases':[9]},{'uid':8,'all_to':0,'leases':[9]}],'pins'",
		 V1 "revoked[1]: lease 9 was revoked before"},
		{1, "'pins'",
		 "'revoked':[{'uid':7,'all_to':0,'leases':[]},{'uid':7,'all_to':9,'leases':[]}],'pins'",
		 V1 "revoked[1]: uid 7 is there twice"},
	};

	REFUSE_EACH(cases);
}

SnapshotTest(bad_snapshot, owners_and_claims_that_cannot_be_are_named)
{
	static const struct wrong cases[] = {
		{1, "'aliases'", "'owners':[9],'aliases'", "'s owners[0] (): a map was expected"},
		{1, "'aliases'", "'owners':[{'model':'m'}],'aliases'", "'s owners[0] (m): \"uid\" is missing"},
		{1, "'aliases'", "'owners':[{'uid':7}],'aliases'", "'s owners[0] (): \"model\" is missing"},
		{1, "'aliases'", "'claims':[9],'aliases'", "'s claims[0] (@): a map was expected"},
		{1, "'aliases'", "'claims':[{'model':'m','tag':'v9'}],'aliases'",
		 "'s claims[0] (m@v9): \"uid\" is missing"},
		{1, "'aliases'", "'claims':[{'model':'m/../n','tag':'v9','uid':7}],'aliases'",
		 "'s claims[0] (m/../n@v9): it claims what is no name of a version"},
		{1, "'aliases'", "'claims':[{'model':'m','tag':'v 9','uid':7}],'aliases'",
		 "'s claims[0] (m@v 9): it claims what is no name of a version"},
	};

	REFUSE_EACH(cases);
}

/* It is one byte longer than what its struct holds. */
SnapshotTest(bad_snapshot, device_text_that_does_not_fit_is_refused)
{
	char put[128];

	snprintf(put, sizeof(put), "'name':'%0*d'", DEVICE_NAME_BYTES_MAX + 1, 0);
	refuse(changed(1, "'name':'a GPU'", put), "'s devices[1]: \"name\" has 64 bytes, the limit is 63");
}

/* Those that registry and device table refuse, and those that are between entries. */
SnapshotTest(bad_snapshot, what_cannot_be_is_named)
{
	static const struct wrong cases[] = {
		{1, "'next_name':5000", "'next_name':17592186044416",
		 ": no descriptor has the name 17592186044416"},
		{1, "'id':'host'", "'id':'cuda:0'",
		 "'s devices[0]: \"cuda:0\" is neither \"host\" nor a UUID that begins with \"GPU-\" or \"MIG-\""},
		{1, "'kind':'cuda'", "'kind':'tpu'", "'s devices[1]: GPU-1 is of the unknown kind \"tpu\""},
		{1, "'id':'GPU-1'", "'id':'host'", "'s devices[1]: host is there twice"},
		{1, "'state':'ready'", "'state':'failed'", V1 "the state \"failed\""},
		{1, "'model':'m'", "'model':'/'", "'s versions[0] (/@v1): the model's name has a leading '/'"},
		{1, "'tag':'v1'", "'tag':'current'", "'s versions[0] (m@current): \"current\" can't be a tag"},
		{1, "'world':1", "'world':0", V1 "world is 0, not 1 to 64"},
		{1, "'world':1", "'world':4294967296", V1 "\"world\" is 4294967296, at most it is 4294967295"},
		{1, "'owner':1000", "'owner':4294967296",
		 V1 "\"owner\" is 4294967296, at most it is 4294967295"},
		{1, "'0000000000000000000000000000000b'", "'0000000000000000000000000000000a'",
		 V2 "m@v2 has the id of m@v1"},
		{1, "'0000000000000000000000000000001b'", "'0000000000000000000000000000001a'",
		 V2 "the publish of m@v2 made another version too"},
		{1, "'tag':'v2'", "'tag':'v1'", "'s versions[1] (m@v1): m@v1 is there already"},
		{1, "'rank':0", "'rank':1", V1 "rank 1 of m@v1, whose world is 1"},
		{1, "'world':1", "'world':2", V1 "it has no part of one of its 2 ranks"},
		{1, "'rank':1", "'rank':0", V2 "rank 0 of m@v2 is on host already"},
		{1, "'device':'GPU-1'", "'device':'GPU-2'", V1 "parts[0]: no device GPU-2"},
		{1, "'name':1,", "'name':0,", V1 "parts[0]: no descriptor has the name 0"},
		{1, "'name':1,", "'name':17592186044416,",
		 V1 "parts[0]: no descriptor has the name 17592186044416"},
		{1, "'name':4097,", "'name':2,",
		 V2 "parts[1]: the segment named 2 is on another device in another version"},
		{1, "'name':4097,", "'name':1,", V2 "parts[1]: two descriptors are named 1"},
		{1, "'name':5,", "'name':2,", V2 "parts[1]: two descriptors are named 2"},
		{1, "'name':3,", "'name':2,", V1 "parts[0]: two descriptors are named 2"},
		{1, "'name':3,", "'name':4097,",
		 V2 "parts[1]: the segment named 4097 has 100 bytes, and 200 in another version"},
		{1, "'bytes':100", "'bytes':18446744073709551615",
		 V1 "parts[0]: its segments have more than 2^64 bytes"},
		{2, "'bytes':100", "'bytes':18446744073709551615", V2 "more bytes than 64 bits can count"},
		{1, "'bytes':10}", "'bytes':4294967297}", V1 "more than 4294967296 bytes of indices"},
		{2, "'bytes':10}", "'bytes':4294967287}", V2 "more than 4294967296 bytes of indices"},
		{1, "'a','b'", "'a','a'", V1 "m@v1 has a pin \"a\" already"},
		{1, "'a','b'", "'a','.b'", V1 "the pin's name has a leading '.'"},
		{1, "'version':'0000000000000000000000000000000a'",
		 "'version':'0000000000000000000000000000000c'",
		 CURRENT "no version 0000000000000000000000000000000c"},
		{1, "'version':'0000000000000000000000000000000a'",
		 "'version':'0000000000000000000000000000000b'",
		 CURRENT "m@current of generation 7 names what is retiring"},
		{1, "'generation':7", "'generation':0",
		 CURRENT "m@current of generation 0 names what is ready"},
		{1, "{'model':'m'", "{'model':'n'",
		 "'s aliases[0] (n@current): it names a version of model \"m\""},
		{1, "'name':'prod'", "'name':'current'",
		 "'s aliases[1] (m@current): model \"m\" has an alias \"current\" already"},
		{1, "'name':'prod'", "'name':'v2'", "'s aliases[1] (m@v2): \"v2\" is a tag of model \"m\""},
		{1, "'name':'prod'", "'name':''", "'s aliases[1] (m@): the alias is empty"},
		{1, "'generation':1}", "'generation':1,'before':'0000000000000000000000000000000b'}",
		 PROD "m@prod named v2 before, which is retiring"},
		{1, "'generation':1}", "'generation':1,'before':'0000000000000000000000000000000c'}",
		 PROD "no version 0000000000000000000000000000000c"},
		{1, "'generation':7}", "'generation':7,'before':'0000000000000000000000000000000a'}",
		 CURRENT "\"before\" is not for \"current\""},
		{1, "'owner':1000,", "'owner':1000,'join':{'uids':[4294967295],'gids':[]},",
		 V1 "\"uids\" has an entry that is no user or group id"},
	};

	REFUSE_EACH(cases);
}

/* A segment that a load found to be equal to another one. */
SnapshotTest(bad_snapshot, origins_that_cannot_be_are_named)
{
	static const struct wrong cases[] = {
		{1, "'tensors':3",
		 "'tensors':3,'origins':[{'is':2,'version':'0000000000000000000000000000000f','segment':0}]",
		 V1 "parts[0]: origins[0] is of segment 2 of 2, or again"},
		{1, "'tensors':3",
		 "'tensors':3,'origins':[{'is':0,'version':'0000000000000000000000000000000f'}]",
		 V1 "parts[0]: \"segment\" is missing"},
		{1, "'tensors':3",
		 "'tensors':3,'origins':[{'is':252,'version':'0000000000000000000000000000000f','segment':0}]",
		 V1 "parts[0]: \"is\" is 252, at most it is 251"},
	};

	REFUSE_EACH(cases);
}

/* The oldest version, which can't be read, says whose the model is: no other user's version takes it. */
SnapshotTest(bad_snapshot, a_model_stays_its_owners)
{
	const struct model *model;
	char *other = strdup(changed(2, "'owner':1000", "'owner':2001"));

	cr_assert_eq(take(replaced(other, 1, "'state':'ready'", "'state':'later'")), 0);
	model = registry_model(back.registry, "m");
	cr_assert(model && model_owner(model).known);
	cr_expect_eq(model_owner(model).uid, 1000);
	cr_expect_eq(registry_counts(back.registry).versions, 1);
	cr_expect_not(registry_has_unnamed(back.registry));
	cr_assert_eq(take(replaced(other, 1, "'world':1,'owner':1000", "'world':1,'owner':'x'")), 0);
	model = registry_model(back.registry, "m");
	cr_expect(model_owner(model).known && model_owner(model).by_operator, "nothing says whose it is");
	cr_assert_eq(take(replaced(other, 1, "'model':'m'", "'other':'m'")), 0);
	cr_expect(registry_has_unnamed(back.registry));
	free(other);
}

/* Both versions are users' and on host, and segment 4097 of v2 is segment 2 of v1. */
SnapshotTest(bad_snapshot, one_segment_of_users_versions_is_refused)
{
	char *on_host = strdup(changed(1, "'device':'GPU-1'", "'device':'host'"));

	refuse(replaced(on_host, 1, "'name':4097,", "'name':2,"),
	       V2 "parts[1]: the segment named 2 is of two versions, and not both are an operator's");
	free(on_host);
}

/* ---- too much of something ---- */

struct many {
	unsigned devices, versions, parts, segments, pins, aliases;
};

static void print_parts(FILE *to, const struct many *many, unsigned *name)
{
	const char *zero = "00000000000000000000000000000000";

	for (unsigned i = 0; i < many->parts; i++) {
		fprintf(to,
			"{'rank':%u,'device':'GPU-0','tensors':1,'layout':'%s','content':'%s',"
			"'index':{'name':%u,'bytes':1},'segments':[",
			i, zero, zero, (*name)++);
		for (unsigned k = 0; k < many->segments; k++)
			fprintf(to, "{'name':%u,'bytes':1},", (*name)++);
		fprintf(to, "]},");
	}
}

static void print_versions(FILE *to, const struct many *many)
{
	unsigned name = 1;

	for (unsigned i = 0; i < many->versions; i++) {
		fprintf(to, "{'state':'ready','pins':[");
		for (unsigned k = 0; k < many->pins; k++)
			fprintf(to, "'pin-%u',", k);
		fprintf(to,
			"],'fixed':{'id':'%032x','publish':'%032x','model':'m','tag':'v%u','world':%u,'owner':0,"
			"'created_ms':1,'ready_ms':1,'parts':[",
			i + 1, i + 1, i, many->parts < 64 ? many->parts : 64);
		print_parts(to, many, &name);
		fprintf(to, "]}},");
	}
}

/* The caller frees it. */
static char *many_text(struct many many)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	fprintf(to, "{'ledger':'%032x','epoch':1,'next_name':10000,'devices':[", 1);
	for (unsigned i = 0; i < many.devices; i++)
		fprintf(to, "{'id':'GPU-%u','kind':'cuda','name':'','total':1,'granularity':1,'context':1},",
			i);
	fprintf(to, "],'versions':[");
	print_versions(to, &many);
	fprintf(to, "],'aliases':[");
	for (unsigned i = 0; i < many.aliases; i++)
		fprintf(to, "{'model':'m','name':'alias-%u','version':'%032x','generation':1},", i, 1);
	fprintf(to, "]}");
	fclose(to);
	return text;
}

#define V0 "'s versions[0] (m@v0): "

SnapshotTest(bad_snapshot, counts_above_the_limits_are_refused_and_the_limits_are_not)
{
	static const struct {
		struct many most, more;
		const char *message;
	} cases[] = {
		{{65, 1, 1, 1, 0, 0}, {66, 1, 1, 1, 0, 0}, "'s devices[65]: more than 65 devices"},
		{{1, 1024, 1, 1, 0, 0},
		 {1, 1025, 1, 0, 0, 0},
		 "'s versions[1024] (m@v1024): there are 1024 versions, no more are taken"},
		{{1, 1, 64, 1, 0, 0}, {1, 1, 65, 1, 0, 0}, V0 "65 parts, the most is 64"},
		{{1, 1, 1, 252, 0, 0},
		 {1, 1, 1, 253, 0, 0},
		 V0 "parts[0]: \"segments\" has 253 elements, the limit is 252"},
		{{1, 1024, 1, 1, 0, 0},
		 {1, 683, 1, 2, 0, 0},
		 "'s versions[682] (m@v682): parts[0]: more than 2048 descriptors"},
		{{1, 1, 1, 1, 64, 0}, {1, 1, 1, 1, 65, 0}, V0 "\"pins\" has 65 elements, the limit is 64"},
		{{1, 1, 1, 1, 0, 64},
		 {1, 1, 1, 1, 0, 65},
		 "'s aliases[64] (m@alias-64): model \"m\" has 64 aliases, the most that it may have"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *most = many_text(cases[i].most), *more = many_text(cases[i].more);

		cr_expect_eq(take(most), 0, "%s", ledger.error.message);
		refuse(more, cases[i].message);
		free(most);
		free(more);
	}
}

/* What is lost does not hide that it could never have been. */
SnapshotTest(bad_snapshot, lost_versions_are_looked_at_too)
{
	static const struct wrong cases[] = {
		{1, "'0000000000000000000000000000000b'", "'0000000000000000000000000000000a'",
		 V2 "another version has its id"},
		{1, "'name':4097,", "'name':2,",
		 V2 "parts[1]: the segment named 2 is on another device in another version"},
	};

	fake_all_missing = true;
	cr_expect_eq(take(valid), 0, "%s", ledger.error.message);
	cr_expect_eq(back.lost, 2);
	REFUSE_EACH(cases);
}

Test(snapshot_bad, of_a_version_on_a_tier)
{
	static const struct wrong wrong[] = {
		{1, "'pins':['a','b']", "'tier':'disk','pins':['a','b']",
		 "'s versions[0] (m@v1): the tier \"disk\""},
		{1, "'pins':['a','b']", "'tier':'host','pins':['a','b']",
		 "'s versions[0] (m@v1): parts[0]: 0 memfds for 2 segments"},
		{1, "'pins':['a','b']", "'tier':'files','pins':['a','b']",
		 "'s versions[0] (m@v1): it lies on files, but has no source"},
	};

	ledger_open();
	refuse_each(wrong, sizeof(wrong) / sizeof(*wrong));
	back_clear();
	ledger_close();
}
