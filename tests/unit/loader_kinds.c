/* A third kind of memory, which only this test has: devices are named, listed, opened and loaded to by what its rows say. This
 * file's three tables are linked in place of gpuwm's. Its memory is the host's, behind a name of its own. */
#include "tests/support/loader/daemon.h"

#include "../../loader/devices/devices.h"
#include "../../loader/devices/lanes.h"
#include "../../loader/devices/loss.h"
#include "../../loader/copy/copy.h"

#include <errno.h>

#define FIRST "THIRD-aa01"
#define SECOND "THIRD-aa02"
#define LOST "THIRD-aa03"
#define CONTEXT 12345

static struct error error;
static unsigned opened, sent, passed, waited, pinned, unpinned, digested, prepared;

/* ---- the kind ------------------------------------------------------------ */

static const struct memory_kind kind_third = {
	.name = "third",
	.prefixes = {"THIRD-"},
	.budget_percent = 50,
	.context_bytes = CONTEXT,
};

static int third_open(struct memory_device *device, struct error *why)
{
	opened++;
	device->ordinal = device->id[strlen(device->id) - 1] - '0';
	return device->ordinal > 0 && device->ordinal < 9
		       ? 0
		       : error_set(why, -ENODEV, NULL, "there is no %s here", device->id);
}

static int third_reaches(const struct memory_device *peer, const struct memory_device *device,
			 struct error *why)
{
	return peer->ordinal > device->ordinal ? 0 : error_set(why, -ENOTSUP, NULL, "only later ones reach it");
}

static int third_current(char ret_id[DEVICE_BYTES_MAX + 1])
{
	strcpy(ret_id, SECOND);
	return 0;
}

/* It pins three buffers of a page at most. */
static int third_pin(void *base, uint64_t bytes, struct error *why)
{
	(void)base;
	pinned++;
	return bytes <= UINT64_C(3) * 4096 ? 0 : error_set(why, -ENOMEM, NULL, "too many pages");
}

static void third_unpin(void *base)
{
	(void)base;
	unpinned++;
}

/* It can't: the memory is read back. */
static int third_digests(struct digesting *work)
{
	(void)work;
	digested++;
	return 1;
}

static void third_prepare(const struct memory_device *device)
{
	(void)device;
	prepared++;
}

static struct memory_ops memory_third = {.kind = &kind_third};

static int third_list(struct device_list *list, struct error *why)
{
	return device_list_add(
		list, &(struct device){.id = FIRST, .kind = &kind_third, .name = "third", .total = 1}, why);
}

static bool third_is_lost(const char *id, struct error *why)
{
	if (strcmp(id, LOST) != 0)
		return false;
	error_set(why, -ENODEV, NULL, "it fell off");
	return true;
}

static int lane_open(struct lane *lane, size_t slots, struct error *why)
{
	(void)slots;
	(void)why;
	lane->way = (void *)"a way";
	return 0;
}

static void lane_close(struct lane *lane)
{
	lane->way = NULL;
}

static int lane_send(struct lane *lane, size_t slot, const struct lane_span *spans, size_t count,
		     struct error *why)
{
	(void)slot;
	(void)why;
	sent++;
	passed += lane->from != NULL;
	for (size_t i = 0; i < count; i++)
		memcpy(lane_place(lane, &spans[i]), spans[i].from, spans[i].bytes);
	return 0;
}

static int lane_wait(struct lane *lane, size_t slot, struct error *why)
{
	(void)lane;
	(void)slot;
	(void)why;
	waited++;
	return 0;
}

static int lane_drain(struct lane *lane, struct error *why)
{
	return lane_wait(lane, 0, why);
}

static int lane_pass_on(const struct lane *from, const struct lane *lane, struct error *why)
{
	return from->target->device->ordinal < lane->target->device->ordinal
		       ? 0
		       : error_set(why, -ENOTSUP, NULL, "wrong order");
}

static const struct lane_ops lane_third = {lane_open, lane_close, lane_send,
					   lane_wait, lane_drain, lane_pass_on};

static const struct device_kind device_third = {
	.kind = &kind_third, .list = third_list, .is_lost = third_is_lost, .lanes = &lane_third};

/* One that only gpuwmd knows. */
static const struct memory_kind kind_fourth = {.name = "fourth", .prefixes = {"FOURTH-"}};

const struct memory_kind *const memory_kinds[] = {&kind_host, &kind_cuda, &kind_third, &kind_fourth, NULL};
const struct memory_ops *const memories[] = {&memory_host, &memory_cuda, &memory_third, NULL};
const struct device_kind *const device_kinds[] = {&device_third, &device_host, &device_cuda, NULL};

static void setup(void)
{
	memory_third = memory_host;
	memory_third.kind = &kind_third;
	memory_third.cpu_addresses = false;
	memory_third.open = third_open;
	memory_third.reaches = third_reaches;
	memory_third.current = third_current;
	memory_third.pin = third_pin;
	memory_third.unpin = third_unpin;
	memory_third.digests = third_digests;
	memory_third.digests_prepare = third_prepare;
}

TestSuite(kinds, .init = setup, .timeout = 120);

/* ---- what it is asked ---------------------------------------------------- */

Test(kinds, a_name_leads_to_the_kind)
{
	struct memory_device device;

	cr_assert_eq(memory_kind_of(FIRST), &kind_third);
	cr_assert_eq(memory_kind_find("third"), &kind_third);
	cr_assert_null(device_wrong(FIRST));
	cr_assert_not_null(device_wrong("THIRD-"));
	cr_assert_eq(memory_device_open(FIRST, &device, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops, &memory_third);
	cr_assert_eq(device.ordinal, 1);
	cr_assert_eq(memory_device_open("THIRD-aa09", &device, &error), -ENODEV);
	cr_assert_str_eq(error.message, "there is no THIRD-aa09 here");
}

Test(kinds, one_that_the_library_does_not_have_is_refused)
{
	struct memory_device device;

	cr_expect_null(memory_ops_of("FOURTH-1"));
	cr_expect_eq(memory_device_open("FOURTH-1", &device, &error), -ENOTSUP);
	cr_expect_str_eq(error.message, "this library can't use memory of the kind of FOURTH-1");
}

Test(kinds, its_peers_are_of_its_kind)
{
	static const char *const later[] = {SECOND, SECOND}, *const earlier[] = {FIRST},
				 *const host[] = {"host"};
	struct memory_device device, second;

	cr_assert_eq(memory_device_open(FIRST, &device, &error), 0);
	cr_assert_eq(memory_device_peers(&device, later, 2, &error), 0, "%s", error.message);
	cr_assert_eq(device.peer_count, 1);
	cr_assert_eq(device.peers[0], 2);
	cr_assert_eq(memory_device_open(SECOND, &second, &error), 0);
	cr_assert_eq(memory_device_peers(&second, earlier, 1, &error), -ENOTSUP);
	cr_assert_eq(memory_device_peers(&device, host, 1, &error), -EINVAL);
}

Test(kinds, it_tells_the_current_device)
{
	char id[DEVICE_BYTES_MAX + 1];

	cr_assert_eq(memory_current_device(id), 0);
	cr_assert_str_eq(id, SECOND);
}

Test(kinds, only_what_is_lost_is_lost)
{
	cr_assert(loss_is_possible(FIRST));
	cr_assert_not(loss_is_seen(FIRST, &error));
	cr_assert(loss_is_seen(LOST, &error));
	cr_assert_str_eq(error.message, "it fell off");
}

Test(kinds, it_pins_as_many_buffers_as_it_can)
{
	struct memory_device device;
	struct ring ring;

	cr_assert_eq(memory_device_open(FIRST, &device, &error), 0);
	cr_assert_eq(ring_make(4096, 5, &ring, &error), 0, "%s", error.message);
	ring_lock(&ring, &device);
	cr_assert_eq(pinned, 2);
	cr_assert_eq(ring.pinned, 2);
	cr_assert(strstr(ring.note, "pinned 2 of 5 buffers: too many pages"), "%s", ring.note);
	ring_free(&ring);
	cr_assert_eq(unpinned, 1);
}

Test(kinds, it_carries_what_goes_to_it)
{
	struct memory_device devices[3];
	char memory[3][8] = {{0}};
	void *addresses[3][1] = {{memory[0]}, {memory[1]}, {memory[2]}};
	struct copy_target targets[3];
	static const char *const ids[] = {"host", FIRST, SECOND};
	struct lanes *lanes;

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(memory_device_open(ids[i], &devices[i], &error), 0);
		targets[i] = (struct copy_target){.device = &devices[i], .addresses = addresses[i]};
	}
	cr_assert_eq(lanes_open(targets, 3, 1, &lanes, &error), 0, "%s", error.message);
	cr_assert_str_eq(lanes_note(lanes), SECOND " gets its bytes over a peer copy from " FIRST);
	cr_assert_eq(lanes_send(lanes, 0, &(struct lane_span){"abcd", 0, 2, 4}, 1, &error), 0);
	cr_assert_eq(lanes_wait(lanes, 0, &error), 0);
	cr_assert_eq(lanes_drain(lanes, &error), 0);
	lanes_close(lanes);
	for (int i = 0; i < 3; i++)
		cr_assert_arr_eq(memory[i], "\0\0abcd\0", 8);
	cr_assert_eq(sent, 2);
	cr_assert_eq(passed, 1);
	cr_assert_eq(waited, 4);
}

/* ---- a load -------------------------------------------------------------- */

static void expect_listed(void)
{
	struct fields f, d;
	uint32_t count = 0;
	const msgpack_object *devices;
	char text[DEVICE_BYTES_MAX + 1];

	fields_of(&f, message.body);
	devices = fields_array(&f, "devices", &count);
	cr_assert_geq(count, 2);
	fields_of(&d, &devices[0]);
	fields_text(&d, "device", text, sizeof(text));
	cr_expect_str_eq(text, FIRST);
	fields_text(&d, "kind", text, sizeof(text));
	cr_expect_str_eq(text, "third");
	cr_expect_eq(fields_u64(&d, "context"), CONTEXT);
	cr_expect_eq(d.error.code, 0, "%s", d.error.message);
}

Test(kinds, a_version_is_loaded_to_it)
{
	start();
	expect_listed();
	write_model();
	answer_empty();
	send_load_to(folder, folder, (const char *const[]){FIRST, NULL});
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	answer_empty();
	expect_done("", "");
	cr_expect_geq(prepared, 1, "what digests need is made ahead of them");
	cr_expect_geq(pinned, 1);
	cr_expect_geq(sent, 1);
	cr_expect_geq(digested, 1, "what arrived is checked where it lies");
	finish();
}
