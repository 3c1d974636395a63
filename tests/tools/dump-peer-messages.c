/* Prints the forms of the messages between nodes, as dump-messages prints those of gpuwmd. python/tests/test_protocol.py compares them with
 * docs/peers.md. */
#include "peer/messages.h"
#include "tests/support/proto/forms.h"

int main(void)
{
	for (size_t i = 0; i < peer_form_count; i++)
		form_print(peer_forms[i]);
	return 0;
}
