// @vitest-environment jsdom
import { join } from 'node:path';
import { cleanup } from '@testing-library/react';
import { afterEach, expect, it } from 'vitest';
import { useOracle } from '../../../packages/web/test/support/oracle.js';
import { renderNewChat } from './support/published-chat.js';
import { PublishedUser } from './support/published-user.js';

const ABORTS = 40;

const oracle = useOracle({}, join(import.meta.dirname, 'support/oracle-process.ts'));

afterEach(() => {
  cleanup();
  localStorage.clear();
});

it(`abortStream of the published client never throws in ${ABORTS} aborts`, {
  timeout: 240_000,
}, async () => {
  const { chat } = await renderNewChat(new PublishedUser(oracle));
  const errors: unknown[] = [];
  for (let abort = 0; abort < ABORTS; abort++) {
    const text = `On and on ${abort}`;
    const sent = chat.current.sendMessage(`Keep talking ${abort}`).catch((error: unknown) => {
      errors.push(error);
    });
    const turn = await oracle.model.next();
    turn.say(text);
    await expect.poll(() => JSON.stringify(chat.current.messages)).toContain(text);
    await chat.current.abortStream().catch((error: unknown) => errors.push(error));
    await turn.left;
    await sent;
    await expect.poll(() => chat.current.isSending).toBe(false);
  }
  expect(errors).toEqual([]);
});
