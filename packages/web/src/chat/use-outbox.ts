import type { ChatMessage } from '@sibyl/client';
import type { UseChat } from '@sibyl/client/react';
import { useEffect, useMemo, useSyncExternalStore } from 'react';
import { usePage } from '../page/page-context.js';
import type { UnsentMessage } from './outbox.js';

/** The messages of a conversation that the server has not accepted; without one, of those to be started. */
export function useUnsent(sessionId: string | undefined): readonly UnsentMessage[] {
  const { outbox } = usePage();
  const list = useSyncExternalStore(outbox.subscribe, outbox.getList);
  return useMemo(
    () =>
      list.filter(
        // A conversation that another tab starts opens there.
        (each) =>
          each.sessionId === sessionId && (sessionId !== undefined || each.tab === outbox.tab),
      ),
    [list, sessionId, outbox],
  );
}

const isAccepted = ({ type, status }: ChatMessage) =>
  type === 'human' && status !== 'sending' && status !== 'failed';

/** Sends the messages of the open conversation through its chat; returns those not accepted yet. */
export function useDelivery(sessionId: string, chat: UseChat): readonly UnsentMessage[] {
  const { outbox } = usePage();
  const unsent = useUnsent(sessionId);
  const { messages, status, send } = chat;
  const isLoaded = status !== 'loading' && status !== 'failed';
  useEffect(() => {
    outbox.openSession(sessionId);
    return () => outbox.openSession(undefined);
  }, [outbox, sessionId]);
  useEffect(() => {
    for (const { requestId } of unsent) {
      const question = messages.find((each) => each.requestId === requestId);
      if (question && isAccepted(question)) outbox.remove(requestId);
      else if (question?.sendError && outbox.isSending(requestId))
        outbox.fail(requestId, question.sendError);
    }
  }, [outbox, unsent, messages]);
  useEffect(() => {
    // The history says whether a message was accepted before a reload.
    const next = isLoaded ? outbox.takeNext(sessionId) : undefined;
    if (next) void send({ ...next.message, requestId: next.requestId });
  }, [outbox, sessionId, isLoaded, unsent, send]);
  return useMemo(() => {
    const accepted = new Set(messages.filter(isAccepted).map(({ requestId }) => requestId));
    return unsent.filter(({ requestId }) => !accepted.has(requestId));
  }, [unsent, messages]);
}
