/* Where the hub's cache is: what huggingface_hub's constants.py does with os.path.expanduser and os.path.expandvars. */
#include "hub.h"

#include "../../base/limits.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

struct path {
	char text[PATH_MAX];
	size_t length;
	bool is_too_long;
};

static void path_add(struct path *path, const char *text, size_t length)
{
	if (length >= sizeof(path->text) - path->length) {
		path->is_too_long = true;
		return;
	}
	memcpy(path->text + path->length, text, length);
	path->length += length;
	path->text[path->length] = '\0';
}

/* ---- homes ------------------------------------------------------------------- */

/* name: of a user, or "": this one. Returns false if there is no such user. */
static bool home_find(const char *name, char ret_home[PATH_MAX])
{
	const char *home = getenv("HOME");
	char buffer[PASSWD_BYTES];
	struct passwd entry, *user = NULL;
	int r = 0;

	if (*name)
		r = getpwnam_r(name, &entry, buffer, sizeof(buffer), &user);
	else if (!home || !*home)
		r = getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &user);
	if (r != 0)
		return false;
	if (user)
		home = user->pw_dir;
	if ((*name && !user) || !home || !*home)
		return false;
	return snprintf(ret_home, PATH_MAX, "%s", home) < PATH_MAX;
}

/* os.path.expanduser */
static void user_expand(const char *text, struct path *to)
{
	const size_t length = text[0] == '~' ? strcspn(text, "/") : 0;
	char name[NAME_MAX + 1] = "", home[PATH_MAX];

	if (length > 0)
		snprintf(name, sizeof(name), "%.*s", (int)length - 1, text + 1);
	if (length > 0 && length <= sizeof(name) && home_find(name, home)) {
		path_add(to, home, strlen(home));
		text += length;
	}
	path_add(to, text, strlen(text));
}

/* ---- variables ----------------------------------------------------------------- */

/* text begins with a $. Returns how many characters name a variable, with the $; 0: none. Sets ret_name. */
static size_t variable_read(const char *text, char ret_name[PATH_MAX])
{
	const bool is_braced = text[1] == '{';
	const char *name = text + 1 + is_braced;
	const size_t length = is_braced ? strcspn(name, "}") : strspn(name, NAME_CHARACTERS);

	if (length == 0 || (is_braced && !name[length]))
		return 0;
	snprintf(ret_name, PATH_MAX, "%.*s", (int)length, name);
	return 1 + length + (is_braced ? 2 : 0);
}

/* os.path.expandvars */
static void variables_expand(const char *text, struct path *to)
{
	char name[PATH_MAX];

	while (*text) {
		const size_t plain = strcspn(text, "$"),
			     length = text[plain] ? variable_read(text + plain, name) : 0;
		const char *value = length ? getenv(name) : NULL;

		path_add(to, text, plain);
		text += plain;
		if (value)
			path_add(to, value, strlen(value));
		else
			path_add(to, text, length ? length : *text != '\0');
		text += length ? length : *text != '\0';
	}
}

/* ---- the cache ------------------------------------------------------------------ */

/* Sets ret_text to what the first variable that is set says, as it is. Returns that variable; NULL: none. */
static const char *cache_choose(struct path *ret_text)
{
	static const struct {
		const char *variable, *rest;
	} places[] = {
		{"HF_HUB_CACHE", ""},
		{"HUGGINGFACE_HUB_CACHE", ""},
		{"HF_HOME", "/hub"},
		{"XDG_CACHE_HOME", "/huggingface/hub"},
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		const char *value = getenv(places[i].variable);

		if (!value || !*value)
			continue;
		path_add(ret_text, value, strlen(value));
		path_add(ret_text, places[i].rest, strlen(places[i].rest));
		return places[i].variable;
	}
	path_add(ret_text, "~/.cache/huggingface/hub", strlen("~/.cache/huggingface/hub"));
	return NULL;
}

int hub_cache_path(char *ret_path, size_t size, const char **ret_relative)
{
	struct path chosen = {.length = 0}, at_home = {.length = 0}, expanded = {.length = 0};
	const char *variable = cache_choose(&chosen);
	char folder[PATH_MAX] = "";
	bool is_relative;

	user_expand(chosen.text, &at_home);
	variables_expand(at_home.text, &expanded);
	if (chosen.is_too_long || at_home.is_too_long || expanded.is_too_long)
		return -ENAMETOOLONG;
	is_relative = expanded.text[0] != '/';
	if (is_relative && !variable)
		return -ENOENT;
	if (is_relative && !getcwd(folder, sizeof(folder)))
		return errno == ENOENT ? -ESTALE : -errno; /* -ENOENT says that there is no home */
	if ((size_t)snprintf(ret_path, size, "%s%s%s", folder, is_relative ? "/" : "", expanded.text) >= size)
		return -ENAMETOOLONG;
	if (ret_relative)
		*ret_relative = is_relative ? variable : NULL;
	return 0;
}
