import { expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { resultsIn, scroll } from './support/page-tools.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';

const test = useControlledHost({ env: { BROWSER_CALL_TIMEOUT_SECONDS: '1' } });

it('browser_tool_call has an unknown outcome if the page does not answer', async () => {
  const sessionId = await openSession(test.alice);
  const socket = await joinSession(test.alice, sessionId);
  const live = await stream(test.alice, sessionId, { message: 'go', tools: [scroll] });
  (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
  const { toolCallId } = await socket.until('browser_tool_call');
  const next = await test.model.next();
  expect(resultsIn(next)[0].error).toMatch(/outcome of scroll is unknown/);
  // Too late to change the result that the model received.
  socket.socket.emit('tool_result', { toolCallId, result: 'late' });
  next.say('I do not know whether it worked.');
  next.finish();
  expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
});

it('browser_tool_call is not sent without a page, and the model receives an error', async () => {
  const sessionId = await openSession(test.alice);
  const live = await stream(test.alice, sessionId, { message: 'go', tools: [scroll] });
  (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
  const next = await test.model.next();
  expect(resultsIn(next)[0].error).toMatch(/no page of the user is connected/);
  next.finish();
  await live.toEnd();
});
