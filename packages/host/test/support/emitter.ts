import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { SessionSocket } from './session-socket.js';

const Steps = z.object({ steps: z.array(z.string()) });

/** A plugin for tests whose tools emit events. */
export const emitter = definePlugin({
  name: 'emitter',
  version: '0.1.0',
  manifest: {
    title: 'Emitter',
    summary: 'Emits events.',
    whenToUse: ['a test asks for it'],
    category: 'test',
    visibility: 'silent',
  },
  getTools: () => [
    defineTool({
      name: 'route',
      description: 'Emits routing steps.',
      inputSchema: Steps,
      run: ({ steps }, { emit }) => {
        for (const step of steps) emit.router({ from: 'emitter', step });
        return steps.length;
      },
    }),
    defineTool({
      name: 'route_and_wait',
      description: 'Emits a large routing step, and ends with the turn.',
      inputSchema: z.object({ length: z.number() }),
      run: ({ length }, { emit, signal }) => {
        emit.router({ from: 'emitter', step: 'x'.repeat(length) });
        return new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      },
    }),
    defineTool({
      name: 'emit_all',
      description: 'Emits every kind of event.',
      inputSchema: z.object({}),
      run: (_, { emit, toolCallId }) => {
        emit.toolCall({ eventId: 'e1', toolName: 'inner', args: {}, status: 'isRunning' });
        emit.reasoning({ reasoning: 'Hm.', isComplete: true });
        emit.actionCall({ toolCallId: 'a1', toolName: 'shown', args: {}, status: 'isRunning' });
        emit.actionCall({ toolCallId: 'a1', toolName: 'shown', args: {}, status: 'done' });
        emit.renderComponent({ eventId: toolCallId, componentName: 'card', status: 'done' });
        emit.browserToolCall({ toolCallId: 'b1', toolName: 'scroll', args: { by: 1 } });
        emit.router({ from: 'main', to: 'other', step: 'call' });
        emit.messageCacheInvalidation({ messageIds: ['m1'] });
      },
    }),
    defineTool({
      name: 'emit_wrongly',
      description: 'Emits invalid events.',
      inputSchema: z.object({}),
      run: (_, { emit }) => {
        const cyclic: Record<string, unknown> = {};
        cyclic.self = cyclic;
        emit.router({ step: 7 as unknown as string });
        emit.router(undefined as unknown as { step: string });
        emit.toolCall({ eventId: 'e1', toolName: 'x', args: cyclic, status: 'done' });
        emit.router({ step: 'still here' });
        return 'unharmed';
      },
    }),
  ],
});

/** The steps of `route` that a socket received, in order. */
export const routedSteps = ({ received }: SessionSocket): string[] =>
  received
    .filter(({ name, data }) => name === 'router_update' && data.from === 'emitter')
    .map(({ data }) => data.step);
