/* Rights to regions. A region belongs to the user who made it; a region of the same name as a model has nothing to do with that. */
#include "access_internal.h"
#include "../ledger/region.h"

#include <errno.h>
#include <string.h>

static struct subject subject_of(struct session *s, struct region *region, char nameless[NAME_BYTES_MAX + 1])
{
	struct subject subject = {.name = region->name,
				  .owner = {true, region->is.by_operator, region->is.uid}};

	if (!region->name[0]) {
		nameless_model(region->is.uid, nameless);
		subject.name = nameless;
	}
	subject.position = access_position(s->client->clients, &region->rule, subject.name);
	return subject;
}

/* Root of a container has the operators' uid, but only the workers' socket. */
static bool is_owners(const struct session *s, const struct model_owner *owner)
{
	return owner->by_operator ? s->kind == SESSION_ADMIN : s->peer.uid == owner->uid;
}

static bool reads(struct session *s, const struct subject *subject)
{
	if (access_is_operator(s) || is_owners(s, &subject->owner))
		return true;
	if (subject->position == RULE_NONE)
		return false;
	return !access_restricts(s->client->clients, subject->position, RULE_ATTACH) ||
	       access_has_right(s, subject->position, RULE_ATTACH);
}

bool access_sees_as_region(struct session *s, const struct subject *subject)
{
	return access_roles(s) & ROLE_OBSERVER || reads(s, subject);
}

bool access_sees_region(struct session *s, struct region *region)
{
	char nameless[NAME_BYTES_MAX + 1];
	const struct subject subject = subject_of(s, region, nameless);

	return access_sees_as_region(s, &subject);
}

bool access_reads_region(struct session *s, struct region *region)
{
	char nameless[NAME_BYTES_MAX + 1];
	const struct subject subject = subject_of(s, region, nameless);

	return reads(s, &subject);
}

/* `what` the session may do if it may make the region. */
static int check_maker(struct session *s, const struct subject *subject, const char *what, struct error *error)
{
	const struct clients *clients = s->client->clients;
	char remedy[REMEDY_BYTES];

	if (access_is_operator(s) || access_has_right(s, subject->position, RULE_PUBLISH))
		return 0;
	if (access_restricts(clients, subject->position, RULE_PUBLISH) ||
	    access_restricts(clients, subject->position, RULE_OPERATE))
		return error_set(
			error, -EACCES,
			"operators may, and users that publish or operate of that section names",
			"[model.%u] of gpuwmd's configuration does not let uid %u %s the region \"%s\"",
			access_rule_at(clients, subject->position)->number, (unsigned)s->peer.uid, what,
			subject->name);
	if (access_roles(s) & ROLE_PUBLISHER)
		return 0;
	return error_set(error, -EACCES, remedy_publisher(clients, remedy),
			 "to %s the region \"%s\" needs the role publisher", what, subject->name);
}

int access_write_region(struct session *s, struct region *region, struct error *error)
{
	char nameless[NAME_BYTES_MAX + 1];
	const struct subject subject = subject_of(s, region, nameless);

	return is_owners(s, &subject.owner) ? 0 : check_maker(s, &subject, "write to", error);
}

int access_make_region(struct session *s, const char *name, struct error *error)
{
	char nameless[NAME_BYTES_MAX + 1];
	struct subject subject = {.name = name ? name : nameless};
	struct rule_cache cache = {0};

	nameless_model(s->peer.uid, nameless);
	subject.position = access_position(s->client->clients, &cache, subject.name);
	return check_maker(s, &subject, "make", error);
}

unsigned access_region_share(const struct session *s, const char *name)
{
	const struct clients *clients = s->client->clients;
	char nameless[NAME_BYTES_MAX + 1];
	struct rule_cache cache = {0};
	const struct rule *rule;

	nameless_model(s->peer.uid, nameless);
	rule = access_rule_at(clients, access_position(clients, &cache, name ? name : nameless));
	return rule ? rule->share : 0;
}

bool access_is_regions_user(const struct session *s, const struct region *region)
{
	const struct model_owner owner = {true, region->is.by_operator, region->is.uid};

	return is_owners(s, &owner);
}

int access_remove_region(struct session *s, const struct region *region, struct error *error)
{
	char remedy[REMEDY_BYTES];

	if (s->kind == SESSION_ADMIN || access_is_regions_user(s, region))
		return 0;
	return error_set(error, -EACCES, remedy_operator(s->client->clients, remedy),
			 "only uid %u and operators may remove the region", (unsigned)region->is.uid);
}
