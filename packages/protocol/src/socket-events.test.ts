import { expect, it } from 'vitest';
import { z } from 'zod';
import { runFrames } from './run-frames.js';
import { clientEvents, serverEvents } from './socket-events.js';

it('names every event of the interface', () => {
  expect(Object.keys(serverEvents)).toEqual(
    expect.arrayContaining([
      'connected',
      'pong',
      'status',
      'subscribed',
      'available-events',
      'tool_call',
      'action_call',
      'render_component',
      'browser_tool_call',
      'router_update',
      'message_cache_invalidation',
    ]),
  );
  expect(Object.keys(clientEvents)).toEqual([
    'ping',
    'status',
    'subscribe',
    'list-events',
    'tool_result',
    'action_call_result',
  ]);
});

it('envelopes exactly the three events the published client unwraps', () => {
  const enveloped = Object.entries(serverEvents).filter(([, e]) => e.wrapping === 'enveloped');
  expect(enveloped.map(([name]) => name)).toEqual([
    'tool_call',
    'render_component',
    'message_cache_invalidation',
  ]);
});

it('shares one schema between the socket and the stream', () => {
  for (const name of Object.keys(runFrames) as (keyof typeof runFrames)[]) {
    if (name in serverEvents)
      expect(runFrames[name]).toBe(serverEvents[name as keyof typeof serverEvents].payload);
  }
});

it('turns every payload into JSON Schema', () => {
  for (const schema of Object.values(runFrames))
    expect(JSON.stringify(z.toJSONSchema(schema))).toContain('"properties"');
});
