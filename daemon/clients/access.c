#include "access_internal.h"
#include "../config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- roles ---- */

static bool is_member(const struct session *s, bool there, gid_t group)
{
	return there && peer_in_group(s->sock, &s->peer, group);
}

static unsigned find_roles(const struct session *s)
{
	const struct clients *clients = s->client->clients;
	unsigned roles = ROLE_WORKER;

	if (s->kind == SESSION_LOADER)
		return ROLE_LOADER;
	if (s->kind == SESSION_ADMIN)
		return ROLE_WORKER | ROLE_PUBLISHER | ROLE_OPERATOR;
	if (s->peer.uid == 0 || s->peer.uid == geteuid() ||
	    is_member(s, clients->has_publish_group, clients->publish_group))
		roles |= ROLE_PUBLISHER;
	if (is_member(s, clients->has_observe_group, clients->observe_group))
		roles |= ROLE_OBSERVER;
	return roles;
}

unsigned access_roles(struct session *s)
{
	if (s->client->roles_generation != s->client->clients->roles_generation) {
		s->client->roles = find_roles(s);
		s->client->roles_generation = s->client->clients->roles_generation;
	}
	return s->client->roles;
}

bool access_is_operator(struct session *s)
{
	return access_roles(s) & (ROLE_OPERATOR | ROLE_LOADER);
}

/* ---- where the rules name it ---- */

gid_t *access_groups(const struct session *s, size_t *ret_count)
{
	gid_t *groups = NULL, *more;
	size_t count = 0;

	if (peer_groups(s->sock, &groups, &count) < 0)
		groups = NULL;
	more = realloc(groups, (count + 1) * sizeof(*groups));
	if (!more) {
		free(groups);
		return NULL;
	}
	more[count] = s->peer.gid;
	*ret_count = count + 1;
	return more;
}

/* Asks the kernel for the peer's groups: once for each configuration. Without memory for them they are asked for
 * again the next time. */
static void look_up_groups(struct session *s)
{
	const struct clients *clients = s->client->clients;
	size_t count;
	gid_t *groups = access_groups(s, &count);

	s->client->access = (struct access){0};
	if (!groups)
		return;
	s->client->access.named = rules_named(&clients->config->rules, s->peer.uid, groups, count);
	s->client->access.generation = clients->rules_generation;
	free(groups);
}

/* The position is the section that counts for a model. Each right includes the ones before it. */
bool access_has_right(struct session *s, int position, enum rule_right right)
{
	const struct access *access = &s->client->access;

	if (position == RULE_NONE)
		return false;
	if (access->generation != s->client->clients->rules_generation)
		look_up_groups(s);
	for (int named = right; named < RULE_RIGHTS; named++) {
		if (access->named.rights[named] >> position & 1)
			return true;
	}
	return false;
}

const struct rule *access_rule_at(const struct clients *clients, int position)
{
	return position == RULE_NONE ? NULL : clients->config->rules.list[position];
}

bool access_restricts(const struct clients *clients, int position, enum rule_right right)
{
	return position != RULE_NONE && access_rule_at(clients, position)->named[right].count > 0;
}

int access_position(const struct clients *clients, struct rule_cache *cache, const char *model)
{
	if (cache->generation != clients->rules_generation)
		*cache = (struct rule_cache){.generation = clients->rules_generation,
					     .position = rules_match(&clients->config->rules, model)};
	return cache->position;
}

const struct rule *access_rule(const struct clients *clients, struct model *model)
{
	return access_rule_at(clients, access_position(clients, model_rule(model), model_name(model)));
}

/* ---- models, also those that are not there ---- */

static struct subject subject_of(const struct clients *clients, struct model *model)
{
	const char *name = model_name(model);

	return (struct subject){.name = name,
				.position = access_position(clients, model_rule(model), name),
				.owner = model_owner(model)};
}

/* cache: of whatever carries the name. */
static struct subject subject_named(const struct clients *clients, const char *name, struct rule_cache *cache)
{
	struct model *model = registry_model(clients->ledger->registry, name);

	if (model)
		return subject_of(clients, model);
	return (struct subject){.name = name, .position = access_position(clients, cache, name)};
}

static bool is_owners_uid(const struct session *s, const struct subject *subject)
{
	return subject->owner.known && subject->owner.uid == s->peer.uid;
}

/* Operators operate on their versions through admin.sock only. Root of a container has the operators' uid, but only the
 * workers' socket. */
static bool is_made_by(const struct session *s, const struct version *version)
{
	return version->owner == s->peer.uid && !version->by_operator;
}

static bool owns(const struct session *s, const struct subject *subject)
{
	return is_owners_uid(s, subject) && !subject->owner.by_operator;
}

static bool may_attach(struct session *s, const struct subject *subject)
{
	return access_is_operator(s) || !access_restricts(s->client->clients, subject->position, RULE_ATTACH) ||
	       access_has_right(s, subject->position, RULE_ATTACH) || is_owners_uid(s, subject);
}

static bool sees(struct session *s, const struct subject *subject)
{
	return access_roles(s) & ROLE_OBSERVER || may_attach(s, subject);
}

bool access_sees(struct session *s, struct model *model)
{
	struct subject subject = subject_of(s->client->clients, model);

	return sees(s, &subject);
}

bool access_sees_claim(struct session *s, struct claim *claim)
{
	struct subject subject = subject_named(s->client->clients, claim->name.model, &claim->rule);

	return sees(s, &subject);
}

static bool is_in_view(void *data, struct model *model)
{
	return access_sees(data, model);
}

int access_find(struct session *s, const struct ref *ref, struct version **ret_version,
		uint64_t *ret_generation, struct error *error)
{
	const struct model_view view = {.sees = is_in_view, .data = s};

	return registry_find_in(s->client->clients->ledger->registry, &view, ref, ret_version, ret_generation,
				error);
}

int access_find_own(struct session *s, const struct ref *ref, struct version **ret_version, struct error *error)
{
	struct version *version;
	uint64_t generation;

	if (registry_find(s->client->clients->ledger->registry, ref, &version, &generation, NULL) < 0 ||
	    !is_made_by(s, version))
		return access_find(s, ref, ret_version, &generation, error);
	*ret_version = version;
	return 0;
}

int access_find_model(struct session *s, const char *name, struct model **ret_model, struct error *error)
{
	const struct model_view view = {.sees = is_in_view, .data = s};

	return registry_model_in(s->client->clients->ledger->registry, &view, name, ret_model, error);
}

static bool is_one_of_users(const struct session *s, const struct event_about *about)
{
	uint32_t i = 0;

	while (i < about->user_count && i < EVENT_USERS_MAX && about->users[i] != s->peer.uid)
		i++;
	return i < about->user_count;
}

static bool sees_event(void *data, struct event_about *about)
{
	struct session *s = data;
	struct subject subject = {.name = about->model, .owner = about->owner};

	if (about->for_users)
		return is_one_of_users(s, about) || (access_roles(s) & (ROLE_OPERATOR | ROLE_OBSERVER));
	if (about->for_observers)
		return access_roles(s) & (ROLE_OPERATOR | ROLE_OBSERVER);
	subject.position = access_position(s->client->clients, &about->rule, about->model);
	return about->is_region ? access_sees_as_region(s, &subject) : sees(s, &subject);
}

uint64_t access_skip_events(struct session *s, uint64_t after)
{
	return event_skip(s->client->clients->ledger->events, after, sees_event, s);
}

/* ---- rights ---- */

int access_attach(struct session *s, struct model *model, struct error *error)
{
	struct subject subject = subject_of(s->client->clients, model);

	if (may_attach(s, &subject))
		return 0;
	return error_set(error, -EACCES, "an observer sees every model; attach of its section says who may",
			 "[model.%u] of gpuwmd's configuration does not let uid %u attach to model \"%s\"",
			 access_rule_at(s->client->clients, subject.position)->number, (unsigned)s->peer.uid,
			 subject.name);
}

static const char change_remedy[] =
	"its owner and operators may, and users that publish or operate of its section [model.N] names";

/* Of a model that nobody owns yet. */
static int change_unowned(struct session *s, const struct subject *subject, const char *what,
			  struct error *error)
{
	char remedy[REMEDY_BYTES];

	if (access_restricts(s->client->clients, subject->position, RULE_PUBLISH) ||
	    access_restricts(s->client->clients, subject->position, RULE_OPERATE))
		return error_set(error, -EACCES, change_remedy,
				 "[model.%u] of gpuwmd's configuration does not let uid %u %s model \"%s\"",
				 access_rule_at(s->client->clients, subject->position)->number,
				 (unsigned)s->peer.uid, what, subject->name);
	if (!(access_roles(s) & ROLE_PUBLISHER))
		return error_set(error, -EACCES, remedy_publisher(s->client->clients, remedy),
				 "to %s model \"%s\" needs the role publisher", what, subject->name);
	/* One of the models that did not come back may have this name. */
	if (registry_has_unnamed(s->client->clients->ledger->registry) && !name_is_nameless(subject->name))
		return error_set(
			error, -EACCES,
			"operators may, and users that publish of its section [model.N] names; gpuwmctl status "
			"says which descriptions an operator has to mend or remove before gpuwmd starts again",
			"gpuwmd could not read all descriptions of versions, and does not know whose model "
			"\"%s\" is: uid %u may not %s it",
			subject->name, (unsigned)s->peer.uid, what);
	return 0;
}

static int is_anothers(const struct subject *subject, uid_t uid, const char *what, struct error *error)
{
	if (subject->owner.by_operator)
		return error_set(error, -EACCES, change_remedy,
				 "model \"%s\" belongs to operators: uid %u may not %s it on this socket",
				 subject->name, (unsigned)uid, what);
	return error_set(error, -EACCES, change_remedy, "model \"%s\" belongs to uid %u: uid %u may not %s it",
			 subject->name, (unsigned)subject->owner.uid, (unsigned)uid, what);
}

static int not_owner(struct session *s, const struct subject *subject, const char *what, struct error *error)
{
	int r;

	if (sees(s, subject))
		return is_anothers(subject, s->peer.uid, what, error);
	/* The model is somebody's, and does not exist for the session. Whoever could not change a model that is not
	 * there gets the same answer as there. */
	r = change_unowned(s, subject, what, error);
	return r < 0 ? r
		     : error_set(error, -EACCES, change_remedy, "uid %u may not %s model \"%s\"",
				 (unsigned)s->peer.uid, what, subject->name);
}

static bool is_entitled(struct session *s, const struct subject *subject)
{
	return access_is_operator(s) || access_has_right(s, subject->position, RULE_PUBLISH);
}

int access_publish(struct session *s, const char *model, struct error *error)
{
	struct rule_cache cache = {0};
	const struct subject subject = subject_named(s->client->clients, model, &cache);

	if (is_entitled(s, &subject) || is_owners_uid(s, &subject))
		return 0;
	return subject.owner.known ? not_owner(s, &subject, "publish into", error)
				   : change_unowned(s, &subject, "publish into", error);
}

int access_swap(struct session *s, struct model *model, struct error *error)
{
	const struct subject subject = subject_of(s->client->clients, model);

	if (is_entitled(s, &subject) || owns(s, &subject))
		return 0;
	return subject.owner.known ? not_owner(s, &subject, "move aliases of", error)
				   : change_unowned(s, &subject, "move aliases of", error);
}

int access_swap_late(const struct clients *clients, const struct version *version, gid_t *groups, size_t count,
		     struct error *error)
{
	const struct subject subject = subject_of(clients, version->model);
	const bool owns = subject.owner.uid == version->owner && !subject.owner.by_operator;
	struct rules_named named;

	if (version->by_operator || owns)
		return 0;
	named = rules_named(&clients->config->rules, version->owner, groups, count);
	if (subject.position != RULE_NONE &&
	    (named.rights[RULE_PUBLISH] | named.rights[RULE_OPERATE]) >> subject.position & 1)
		return 0;
	return is_anothers(&subject, version->owner, "move aliases of", error);
}

int access_retire(struct session *s, const struct version *version, struct error *error)
{
	const struct subject subject = subject_of(s->client->clients, version->model);

	if (is_entitled(s, &subject) || owns(s, &subject) || is_made_by(s, version))
		return 0;
	if (version->by_operator)
		return error_set(error, -EACCES, change_remedy,
				 "%s@%s was made by an operator: uid %u may not retire it on this socket",
				 subject.name, version->tag, (unsigned)s->peer.uid);
	return error_set(error, -EACCES, change_remedy,
			 "%s@%s was published by uid %u: uid %u may not retire it", subject.name, version->tag,
			 (unsigned)version->owner, (unsigned)s->peer.uid);
}

int access_operate(struct session *s, struct model *model, const char *what, struct error *error)
{
	const struct subject subject = subject_of(s->client->clients, model);
	char remedy[REMEDY_BYTES];

	if (access_is_operator(s) || access_has_right(s, subject.position, RULE_OPERATE))
		return 0;
	remedy_operator(s->client->clients, remedy);
	strncat(remedy,
		"; operate of the model's section [model.N] of gpuwmd's configuration names others who may",
		sizeof(remedy) - strlen(remedy) - 1);
	return error_set(error, -EACCES, remedy, "%s needs the role operator for model \"%s\"", what,
			 subject.name);
}

/* ---- whose versions a session accepts ---- */

static bool owner_wish_is_fulfilled(const struct owner_wish *wish, const struct version *version)
{
	for (uint32_t i = 0; i < wish->count; i++) {
		if (wish->uids[i] == version->owner)
			return true;
	}
	return wish->operators ? version->by_operator : wish->count == 0;
}

int owner_check(const struct owner_wish *wish, const struct version *version, struct error *error)
{
	char asked[16 * OWNER_UIDS_MAX];
	int used = snprintf(asked, sizeof(asked), "%s", wish->operators ? " an operator" : "");

	if (owner_wish_is_fulfilled(wish, version))
		return 0;
	for (uint32_t i = 0; i < wish->count; i++)
		used += snprintf(asked + used, sizeof(asked) - (size_t)used, "%s uid %u", used ? "," : "",
				 (unsigned)wish->uids[i]);
	return error_set(error, -EACCES, "list tells who made each version",
			 "%s@%s was made by %suid %u; the request accepts only versions of%s",
			 model_name(version->model), version->tag, version->by_operator ? "an operator, " : "",
			 (unsigned)version->owner, asked);
}
