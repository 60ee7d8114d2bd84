import type { SessionKey } from '../../src/bus/event-bus.js';
import type { Message, MessageStore } from '../../src/store/message-store.js';

/** All messages of a session, oldest first. */
export async function allMessages(
  store: { readonly messages: MessageStore },
  key: SessionKey,
): Promise<readonly Message[]> {
  return (await allPages(store, key)).flat();
}

/** As `allMessages`, but in the pages of the store. */
export async function allPages(
  { messages }: { readonly messages: MessageStore },
  { owner, sessionId }: SessionKey,
): Promise<readonly (readonly Message[])[]> {
  const pages: (readonly Message[])[] = [];
  for await (const page of messages.pages({ owner, sessionId, branch: 0 })) pages.push(page);
  return pages;
}
