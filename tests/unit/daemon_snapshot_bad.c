/* Snapshots that are whole and say what can't be: each is refused, with its place named. */
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

static void put_text(struct message_writer *w, const char *text)
{
	message_writer_init(w, MIB(1));
	cr_assert_eq(*put_value(w, NULL, text), '\0');
	cr_assert_eq(message_finish(w), 0);
}

/* The valid one with something else in place of the n-th `instead_of`. */
static void put_changed(struct message_writer *w, int n, const char *instead_of, const char *put)
{
	char text[sizeof(valid) + 1024];
	const char *found = strstr(valid, instead_of);

	while (found && --n > 0)
		found = strstr(found + 1, instead_of);
	cr_assert(found, "%s", instead_of);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(found - valid), valid, put, found + strlen(instead_of));
	put_text(w, text);
}

static void refuse(struct message_writer *w, const char *message, const char *what)
{
	struct back back = {0};

	cr_expect_eq(back_take(&back, w->buffer.data, w->buffer.size), -EUCLEAN, "%s", what);
	cr_expect_eq(ledger.error.code, -EUCLEAN);
	cr_expect_str_eq(ledger.error.message, message, "%s: %s", what, ledger.error.message);
	cr_expect_eq(fake_taken, 0);
	back_clear(&back);
	message_writer_clear(w);
}

LedgerTest(bad_snapshot, the_unchanged_one_is_good)
{
	struct message_writer w;
	struct back back = {0};

	put_text(&w, valid);
	cr_assert_eq(back_take(&back, w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	cr_expect(registry_counts(back.registry).versions == 2 && fake_taken == 6);
	cr_expect_eq(back.snapshot.next_name, 5000);
	back_clear(&back);
	message_writer_clear(&w);
}

/* Of a gpuwmd that knew nothing of contexts yet. */
LedgerTest(bad_snapshot, one_without_contexts_is_good)
{
	struct message_writer w;
	struct back back = {0};

	put_changed(&w, 2, "'context'", "'other'");
	cr_assert_eq(back_take(&back, w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	cr_expect_eq(device_find(&back.devices, "GPU-1")->context, 0);
	back_clear(&back);
	message_writer_clear(&w);
}

LedgerTest(bad_snapshot, what_is_no_map_is_refused)
{
	struct message_writer w;
	struct back back = {0};

	put_text(&w, "[1]");
	refuse(&w,
	       "the state is no map of MessagePack: it is no request, response or notification of "
	       "MessagePack-RPC with a map",
	       "an array");
	put_text(&w, valid);
	w.buffer.size--;
	cr_expect_eq(back_take(&back, w.buffer.data, w.buffer.size), -EUCLEAN);
	cr_expect_str_eq(ledger.error.message, "the state is no map of MessagePack: it ends early");
	back_clear(&back);
	cr_expect_eq(back_take(&back, w.buffer.data, 0), -EUCLEAN);
	back_clear(&back);
	message_writer_clear(&w);
}

LedgerTest(bad_snapshot, key_that_is_missing_or_of_another_type_is_named)
{
	static const struct {
		const char *key, *message;
	} cases[] = {
		{"'ledger'", "the state: \"ledger\" is missing"},
		{"'epoch'", "the state: \"epoch\" is missing"},
		{"'next_name'", "the state: \"next_name\" is missing"},
		{"'devices'", "the state: \"devices\" is missing"},
		{"'versions'", "the state: \"versions\" is missing"},
		{"'aliases'", "the state: \"aliases\" is missing"},
		{"'kind'", "the state's devices[0]: \"kind\" is missing"},
		{"'total'", "the state's devices[0]: \"total\" is missing"},
		{"'granularity'", "the state's devices[0]: \"granularity\" is missing"},
		{"'state'", "the state's versions[0] (m@v1): \"state\" is missing"},
		{"'pins'", "the state's versions[0] (m@v1): \"pins\" is missing"},
		{"'fixed'", "the state's versions[0] (@): \"fixed\" is missing"},
		{"'publish'", "the state's versions[0] (m@v1): \"publish\" is missing"},
		{"'model'", "the state's versions[0] (@v1): \"model\" is missing"},
		{"'tag'", "the state's versions[0] (m@): \"tag\" is missing"},
		{"'world'", "the state's versions[0] (m@v1): \"world\" is missing"},
		{"'owner'", "the state's versions[0] (m@v1): \"owner\" is missing"},
		{"'created_ms'", "the state's versions[0] (m@v1): \"created_ms\" is missing"},
		{"'ready_ms'", "the state's versions[0] (m@v1): \"ready_ms\" is missing"},
		{"'parts'", "the state's versions[0] (m@v1): \"parts\" is missing"},
		{"'rank'", "the state's versions[0] (m@v1): parts[0]: \"rank\" is missing"},
		{"'device'", "the state's versions[0] (m@v1): parts[0]: \"device\" is missing"},
		{"'tensors'", "the state's versions[0] (m@v1): parts[0]: \"tensors\" is missing"},
		{"'layout'", "the state's versions[0] (m@v1): parts[0]: \"layout\" is missing"},
		{"'content'", "the state's versions[0] (m@v1): parts[0]: \"content\" is missing"},
		{"'index'", "the state's versions[0] (m@v1): parts[0]: \"index\" is missing"},
		{"'segments'", "the state's versions[0] (m@v1): parts[0]: \"segments\" is missing"},
		{"'bytes'", "the state's versions[0] (m@v1): parts[0]: \"bytes\" is missing"},
		{"'version'", "the state's aliases[0] (m@current): \"version\" is missing"},
		{"'generation'", "the state's aliases[0] (m@current): \"generation\" is missing"},
	};
	struct message_writer w;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put_changed(&w, 1, cases[i].key, "'other'");
		refuse(&w, cases[i].message, cases[i].key);
	}
	put_changed(&w, 1, "'epoch':3", "'epoch':'3'");
	refuse(&w, "the state: \"epoch\" is no unsigned integer", "a text");
	put_changed(&w, 1, "'index':{", "'index':[],'other':{");
	refuse(&w, "the state's versions[0] (m@v1): parts[0]: \"index\" is no map", "an array");
	put_changed(&w, 1, "'pins':['a'", "'pins':[9");
	refuse(&w, "the state's versions[0] (m@v1): \"pins\" is no text", "a number");
	put_changed(&w, 1, "'pins'", "'force_at_ms':'x','pins'");
	refuse(&w, "the state's versions[0] (m@v1): \"force_at_ms\" is no unsigned integer", "a text");
	put_changed(&w, 1, "'error':-", "'error':'x'");
	refuse(&w, "the state's versions[0] (m@v1): \"error\" is no map", "a text");
}

LedgerTest(bad_snapshot, kicked_leases_that_cannot_be_are_named)
{
	static const struct {
		const char *put, *message;
	} revoked[] = {
		{"9", "\"revoked\" is no array"},
		{"[9]", "revoked[0]: a map was expected"},
		{"[{'uid':7,'all_to':0}]", "revoked[0]: \"leases\" is missing"},
		{"[{'uid':7,'all_to':0,'leases':['x']}]",
		 "revoked[0]: \"leases\" has what is no lease's number"},
		{"[{'uid':4294967295,'all_to':0,'leases':[]}]", "revoked[0]: 4294967295 is no uid"},
		{"[{'uid':7,'all_to':0,'leases':[9,9]}]", "revoked[0]: lease 9 was revoked before"},
		{"[{'uid':7,'all_to':9,'leases':[9]}]", "revoked[0]: lease 9 was revoked before"},
		{"[{'uid':7,'all_to':0,'leases':[9]},{'uid':8,'all_to':0,'leases':[9]}]",
		 "revoked[1]: lease 9 was revoked before"},
		{"[{'uid':7,'all_to':0,'leases':[]},{'uid':7,'all_to':9,'leases':[]}]",
		 "revoked[1]: uid 7 is there twice"},
	};
	struct message_writer w;

	for (size_t i = 0; i < sizeof(revoked) / sizeof(revoked[0]); i++) {
		char changed[128], told[160];

		snprintf(changed, sizeof(changed), "'revoked':%s,'pins'", revoked[i].put);
		snprintf(told, sizeof(told), "the state's versions[0] (m@v1): %s", revoked[i].message);
		put_changed(&w, 1, "'pins'", changed);
		refuse(&w, told, revoked[i].put);
	}
}

LedgerTest(bad_snapshot, owners_and_claims_that_cannot_be_are_named)
{
	static const struct {
		const char *put, *message;
	} cases[] = {
		{"'owners':[9]", "owners[0] (): a map was expected"},
		{"'owners':[{'model':'m'}]", "owners[0] (m): \"uid\" is missing"},
		{"'owners':[{'uid':7}]", "owners[0] (): \"model\" is missing"},
		{"'claims':[9]", "claims[0] (@): a map was expected"},
		{"'claims':[{'model':'m','tag':'v9'}]", "claims[0] (m@v9): \"uid\" is missing"},
		{"'claims':[{'model':'m/../n','tag':'v9','uid':7}]",
		 "claims[0] (m/../n@v9): it claims what is no name of a version"},
		{"'claims':[{'model':'m','tag':'v 9','uid':7}]",
		 "claims[0] (m@v 9): it claims what is no name of a version"},
	};
	struct message_writer w;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char changed[160], told[160];

		snprintf(changed, sizeof(changed), "%s,'aliases'", cases[i].put);
		snprintf(told, sizeof(told), "the state's %s", cases[i].message);
		put_changed(&w, 1, "'aliases'", changed);
		refuse(&w, told, cases[i].put);
	}
}

/* It is one byte longer than what its struct holds. */
LedgerTest(bad_snapshot, device_text_that_does_not_fit_is_refused)
{
	struct message_writer w;
	char changed[128];

	snprintf(changed, sizeof(changed), "'name':'%0*d'", DEVICE_NAME_BYTES_MAX + 1, 0);
	put_changed(&w, 1, "'name':'a GPU'", changed);
	refuse(&w, "the state's devices[1]: \"name\" has 64 bytes, the limit is 63", "a long name");
}

LedgerTest(bad_snapshot, joiner_that_is_nobody_is_refused)
{
	struct message_writer w;

	put_changed(&w, 1, "'owner':1000,", "'owner':1000,'join':{'uids':[4294967295],'gids':[]},");
	refuse(&w, "the state's versions[0] (m@v1): \"uids\" has an entry that is no user or group id",
	       "2^32-1");
}

/* Those that registry and device table refuse, and those that are between entries. */
LedgerTest(bad_snapshot, what_cannot_be_is_named)
{
	static const struct {
		int n;
		const char *instead_of, *put, *message;
	} cases[] = {
		{1, "'next_name':5000", "'next_name':17592186044416",
		 "the state: no descriptor has the name 17592186044416"},
		{1, "'id':'host'", "'id':'cuda:0'",
		 "the state's devices[0]: \"cuda:0\" is neither \"host\" nor a UUID that begins with \"GPU-\" "
		 "or \"MIG-\""},
		{1, "'kind':'cuda'", "'kind':'tpu'",
		 "the state's devices[1]: GPU-1 is of the unknown kind \"tpu\""},
		{1, "'id':'GPU-1'", "'id':'host'", "the state's devices[1]: host is there twice"},
		{1, "'state':'ready'", "'state':'failed'",
		 "the state's versions[0] (m@v1): the state \"failed\""},
		{1, "'model':'m'", "'model':'/'",
		 "the state's versions[0] (/@v1): the model's name has a leading '/'"},
		{1, "'tag':'v1'", "'tag':'current'",
		 "the state's versions[0] (m@current): \"current\" can't be a tag"},
		{1, "'world':1", "'world':0", "the state's versions[0] (m@v1): world is 0, not 1 to 64"},
		{1, "'world':1", "'world':4294967296",
		 "the state's versions[0] (m@v1): \"world\" is 4294967296, at most it is 4294967295"},
		{1, "'owner':1000", "'owner':4294967296",
		 "the state's versions[0] (m@v1): \"owner\" is 4294967296, at most it is 4294967295"},
		{1, "'0000000000000000000000000000000b'", "'0000000000000000000000000000000a'",
		 "the state's versions[1] (m@v2): m@v2 has the id of m@v1"},
		{1, "'0000000000000000000000000000001b'", "'0000000000000000000000000000001a'",
		 "the state's versions[1] (m@v2): the publish of m@v2 made another version too"},
		{1, "'tag':'v2'", "'tag':'v1'", "the state's versions[1] (m@v1): m@v1 is there already"},
		{1, "'rank':0", "'rank':1", "the state's versions[0] (m@v1): rank 1 of m@v1, whose world is 1"},
		{1, "'world':1", "'world':2",
		 "the state's versions[0] (m@v1): it has no part of one of its 2 ranks"},
		{1, "'rank':1", "'rank':0",
		 "the state's versions[1] (m@v2): rank 0 of m@v2 is on host already"},
		{1, "'device':'GPU-1'", "'device':'GPU-2'",
		 "the state's versions[0] (m@v1): parts[0]: no device GPU-2"},
		{1, "'name':1,", "'name':0,",
		 "the state's versions[0] (m@v1): parts[0]: no descriptor has the name 0"},
		{1, "'name':1,", "'name':17592186044416,",
		 "the state's versions[0] (m@v1): parts[0]: no descriptor has the name 17592186044416"},
		{1, "'name':4097,", "'name':2,",
		 "the state's versions[1] (m@v2): parts[1]: the segment named 2 is on another device in another version"},
		{1, "'name':4097,", "'name':1,",
		 "the state's versions[1] (m@v2): parts[1]: two descriptors are named 1"},
		{1, "'name':5,", "'name':2,",
		 "the state's versions[1] (m@v2): parts[1]: two descriptors are named 2"},
		{1, "'name':3,", "'name':2,",
		 "the state's versions[0] (m@v1): parts[0]: two descriptors are named 2"},
		{1, "'name':3,", "'name':4097,",
		 "the state's versions[1] (m@v2): parts[1]: the segment named 4097 has 100 bytes, and 200 in another version"},
		{1, "'bytes':100", "'bytes':18446744073709551615",
		 "the state's versions[0] (m@v1): parts[0]: its segments have more than 2^64 bytes"},
		{2, "'bytes':100", "'bytes':18446744073709551615",
		 "the state's versions[1] (m@v2): more bytes than 64 bits can count"},
		{1, "'bytes':10}", "'bytes':4294967297}",
		 "the state's versions[0] (m@v1): more than 4294967296 bytes of indices"},
		{2, "'bytes':10}", "'bytes':4294967287}",
		 "the state's versions[1] (m@v2): more than 4294967296 bytes of indices"},
		{1, "'a','b'", "'a','a'", "the state's versions[0] (m@v1): m@v1 has a pin \"a\" already"},
		{1, "'a','b'", "'a','.b'", "the state's versions[0] (m@v1): the pin's name has a leading '.'"},
		{1, "'version':'0000000000000000000000000000000a'",
		 "'version':'0000000000000000000000000000000c'",
		 "the state's aliases[0] (m@current): no version 0000000000000000000000000000000c"},
		{1, "'version':'0000000000000000000000000000000a'",
		 "'version':'0000000000000000000000000000000b'",
		 "the state's aliases[0] (m@current): m@current of generation 7 names what is retiring"},
		{1, "'generation':7", "'generation':0",
		 "the state's aliases[0] (m@current): m@current of generation 0 names what is ready"},
		{1, "{'model':'m'", "{'model':'n'",
		 "the state's aliases[0] (n@current): it names a version of model \"m\""},
		{1, "'name':'prod'", "'name':'current'",
		 "the state's aliases[1] (m@current): model \"m\" has an alias \"current\" already"},
		{1, "'name':'prod'", "'name':'v2'",
		 "the state's aliases[1] (m@v2): \"v2\" is a tag of model \"m\""},
		{1, "'name':'prod'", "'name':''", "the state's aliases[1] (m@): the alias is empty"},
	};
	struct message_writer w;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put_changed(&w, cases[i].n, cases[i].instead_of, cases[i].put);
		refuse(&w, cases[i].message, cases[i].put);
	}
}

/* Both versions on host, and segment 4097 of v2 is segment 2 of v1. */
static void put_shared(struct message_writer *w, const char *owners)
{
	char text[2 * sizeof(valid)], *to = text;

	for (const char *from = valid; *from;) {
		const char *put = NULL;
		size_t over = 0;

		if (strncmp(from, "'device':'GPU-1'", over = strlen("'device':'GPU-1'")) == 0)
			put = "'device':'host'";
		else if (strncmp(from, "'name':4097,", over = strlen("'name':4097,")) == 0)
			put = "'name':2,";
		else if (strncmp(from, "'owner':1000,", over = strlen("'owner':1000,")) == 0)
			put = owners;
		if (put) {
			to += sprintf(to, "%s", put);
			from += over;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
	put_text(w, text);
}

LedgerTest(bad_snapshot, one_segment_of_users_versions_is_refused)
{
	struct message_writer w;

	put_shared(&w, "'owner':1000,");
	refuse(&w,
	       "the state's versions[1] (m@v2): parts[1]: the segment named 2 is of two versions, and not both are an "
	       "operator's",
	       "users'");
}

/* ---- too much of something ---- */

struct many {
	unsigned devices, versions, parts, segments, pins, aliases;
};

static void put_held(struct message_writer *w, const char *key, uint64_t *name)
{
	message_begin_map(w, key);
	message_put_u64(w, "name", (*name)++);
	message_put_u64(w, "bytes", 1);
	message_end(w);
}

static void put_many_parts(struct message_writer *w, const struct many *many, uint64_t *name)
{
	static const uint8_t digest[16];

	message_begin_array(w, "parts");
	for (unsigned i = 0; i < many->parts; i++) {
		message_begin_map(w, NULL);
		message_put_u64(w, "rank", i);
		message_put_text(w, "device", "GPU-0");
		message_put_u64(w, "tensors", 1);
		message_put_hex128(w, "layout", digest);
		message_put_hex128(w, "content", digest);
		put_held(w, "index", name);
		message_begin_array(w, "segments");
		for (unsigned k = 0; k < many->segments; k++)
			put_held(w, NULL, name);
		message_end(w);
		message_end(w);
	}
	message_end(w);
}

static void put_many_version(struct message_writer *w, const struct many *many, unsigned i, uint64_t *name)
{
	uint8_t id[16] = {1, (uint8_t)i, (uint8_t)(i >> 8)};
	char text[32];

	message_begin_map(w, NULL);
	message_put_text(w, "state", "ready");
	message_begin_array(w, "pins");
	for (unsigned k = 0; k < many->pins; k++) {
		snprintf(text, sizeof(text), "pin-%u", k);
		message_put_text(w, NULL, text);
	}
	message_end(w);
	message_begin_map(w, "fixed");
	message_put_hex128(w, "id", id);
	message_put_hex128(w, "publish", id);
	message_put_text(w, "model", "m");
	snprintf(text, sizeof(text), "v%u", i);
	message_put_text(w, "tag", text);
	message_put_u64(w, "world", many->parts < 64 ? many->parts : 64);
	message_put_u64(w, "owner", 0);
	message_put_u64(w, "created_ms", 1);
	message_put_u64(w, "ready_ms", 1);
	put_many_parts(w, many, name);
	message_end(w);
	message_end(w);
}

static void put_many_aliases(struct message_writer *w, unsigned count)
{
	static const uint8_t id[16] = {1};
	char text[32];

	message_begin_array(w, "aliases");
	for (unsigned i = 0; i < count; i++) {
		message_begin_map(w, NULL);
		message_put_text(w, "model", "m");
		snprintf(text, sizeof(text), "alias-%u", i);
		message_put_text(w, "name", text);
		message_put_hex128(w, "version", id);
		message_put_u64(w, "generation", 1);
		message_end(w);
	}
	message_end(w);
}

static void put_many(struct message_writer *w, struct many many)
{
	static const uint8_t id[16] = {1};
	uint64_t name = 1;
	char text[32];

	message_writer_init(w, MIB(8));
	message_begin_map(w, NULL);
	message_put_hex128(w, "ledger", id);
	message_put_u64(w, "epoch", 1);
	message_put_u64(w, "next_name", 10000);
	message_begin_array(w, "devices");
	for (unsigned i = 0; i < many.devices; i++) {
		message_begin_map(w, NULL);
		snprintf(text, sizeof(text), "GPU-%u", i);
		message_put_text(w, "id", text);
		message_put_text(w, "kind", "cuda");
		message_put_text(w, "name", "");
		message_put_u64(w, "total", 1);
		message_put_u64(w, "granularity", 1);
		message_put_u64(w, "context", 1);
		message_end(w);
	}
	message_end(w);
	message_begin_array(w, "versions");
	for (unsigned i = 0; i < many.versions; i++)
		put_many_version(w, &many, i, &name);
	message_end(w);
	put_many_aliases(w, many.aliases);
	message_end(w);
	cr_assert_eq(message_finish(w), 0);
}

LedgerTest(bad_snapshot, counts_above_the_limits_are_refused_and_the_limits_are_not)
{
	static const struct {
		struct many most, more;
		const char *message;
	} cases[] = {
		{{65, 1, 1, 1, 0, 0}, {66, 1, 1, 1, 0, 0}, "the state's devices[65]: more than 65 devices"},
		{{1, 1024, 1, 1, 0, 0},
		 {1, 1025, 1, 0, 0, 0},
		 "the state's versions[1024] (m@v1024): there are 1024 versions, no more are taken"},
		{{1, 1, 64, 1, 0, 0},
		 {1, 1, 65, 1, 0, 0},
		 "the state's versions[0] (m@v0): 65 parts, the most is 64"},
		{{1, 1, 1, 252, 0, 0},
		 {1, 1, 1, 253, 0, 0},
		 "the state's versions[0] (m@v0): parts[0]: \"segments\" has 253 elements, the limit is 252"},
		{{1, 1024, 1, 1, 0, 0},
		 {1, 683, 1, 2, 0, 0},
		 "the state's versions[682] (m@v682): parts[0]: more than 2048 descriptors"},
		{{1, 1, 1, 1, 64, 0},
		 {1, 1, 1, 1, 65, 0},
		 "the state's versions[0] (m@v0): \"pins\" has 65 elements, the limit is 64"},
		{{1, 1, 1, 1, 0, 64},
		 {1, 1, 1, 1, 0, 65},
		 "the state's aliases[64] (m@alias-64): model \"m\" has 64 aliases, the most that it may have"},
	};
	struct message_writer w;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct back back = {0};

		put_many(&w, cases[i].most);
		cr_expect_eq(back_take(&back, w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
		back_clear(&back);
		message_writer_clear(&w);
		put_many(&w, cases[i].more);
		refuse(&w, cases[i].message, cases[i].message);
	}
}

/* What is lost does not hide that it could never have been. */
LedgerTest(bad_snapshot, lost_versions_are_looked_at_too)
{
	struct message_writer w;
	struct back back = {0};

	fake_all_missing = true;
	put_text(&w, valid);
	cr_expect_eq(back_take(&back, w.buffer.data, w.buffer.size), 0, "%s", ledger.error.message);
	cr_expect_eq(back.lost, 2);
	back_clear(&back);
	message_writer_clear(&w);
	put_changed(&w, 1, "'0000000000000000000000000000000b'", "'0000000000000000000000000000000a'");
	refuse(&w, "the state's versions[1] (m@v2): another version has its id", "the same id");
	put_changed(&w, 1, "'name':4097,", "'name':2,");
	refuse(&w,
	       "the state's versions[1] (m@v2): parts[1]: the segment named 2 is on another device in another version",
	       "the same name");
	fake_all_missing = false;
}
