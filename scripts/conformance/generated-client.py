"""Uses the client that openapi-python-client generated: argv is the address of a host and a token."""
import sys

from oracle_client import AuthenticatedClient
from oracle_client.api.messages import messages_list, messages_send
from oracle_client.api.sessions import sessions_create, sessions_list, sessions_remove
from oracle_client.api.user_preferences import user_preferences_get_user_preferences
from oracle_client.models.error import Error

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, headers={"X-Auth-Type": "ucan"})

session = sessions_create.sync(client=client)
assert not isinstance(session, Error), session
reply = messages_send.sync(session.session_id, client=client, body={"message": "count to 3"})
assert reply.status == "finished" and "3" in reply.message.content, reply
listed = messages_list.sync(session.session_id, client=client)
assert [message.type_ for message in listed.messages] == ["human", "ai"], listed
assert sessions_list.sync(client=client).total == 1
assert user_preferences_get_user_preferences.sync(client=client).to_dict() == {}
assert sessions_remove.sync(session.session_id, client=client).message
gone = messages_list.sync(session.session_id, client=client)
assert isinstance(gone, Error) and gone.code == "session_not_found", gone
print("openapi-python-client: ok")
