// @vitest-environment jsdom
import { useAgAction, useChat } from '@ixo/oracles-client-sdk';
import { cleanup, renderHook } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { openSession } from '../../../packages/host/test/support/stream.js';
import { useOracle } from '../../../packages/web/test/support/oracle.js';
import { type ChatOptions, renderNewChat } from './support/published-chat.js';
import { PublishedUser } from './support/published-user.js';

const oracle = useOracle();

afterEach(() => {
  cleanup();
  localStorage.clear();
});

const newUser = () => new PublishedUser(oracle);
const openChat = (options: ChatOptions) => renderNewChat(newUser(), options);
const overrides = () => ({ baseUrl: oracle.url });

describe('browser tools and actions of the published client', () => {
  it('useChat runs a browser tool', async () => {
    const fn = vi.fn(async () => ({ city: 'Nairobi' }));
    const browserTools = {
      where: {
        toolName: 'where',
        description: 'Returns the location of the user',
        schema: z.object({ precise: z.boolean() }) as never,
        fn: fn as never,
      },
    };
    const { chat } = await openChat({ browserTools });
    const sent = chat.current.sendMessage('Where am I?');
    (await oracle.model.next()).call({ name: 'where', input: { precise: true } });
    const after = await oracle.model.next();
    expect(JSON.stringify(after.body.messages.at(-1))).toContain('Nairobi');
    after.say('In Nairobi');
    after.finish();
    await sent;
    expect(fn).toHaveBeenCalledExactlyOnceWith({ precise: true });
  });

  it('useChat succeeds with a browser tool that returns nothing, and reports one that throws', async () => {
    const fn = vi.fn(async ({ fails }: { fails: boolean }) => {
      if (fails) throw new Error('no speakers');
    });
    const browserTools = {
      beep: {
        toolName: 'beep',
        description: 'Makes a sound',
        schema: z.object({ fails: z.boolean() }) as never,
        fn: fn as never,
      },
    };
    const { chat } = await openChat({ browserTools });
    const sent = chat.current.sendMessage('Beep twice');
    (await oracle.model.next()).call({ name: 'beep', input: { fails: false } });
    const second = await oracle.model.next();
    expect(second.body.messages.at(-1)).toMatchObject({ role: 'tool', content: 'null' });
    second.call({ name: 'beep', input: { fails: true } });
    const last = await oracle.model.next();
    expect(last.body.messages.at(-1)).toMatchObject({ content: '{"error":"no speakers"}' });
    last.say('Done');
    last.finish();
    await sent;
    expect(fn).toHaveBeenCalledTimes(2);
  });

  it('useAgAction succeeds with a handler that returns nothing, and reports one that throws', async () => {
    const user = newUser();
    const sessionId = await openSession(user);
    const handler = vi.fn(({ fails }: { fails: boolean }) => {
      if (fails) throw new Error('no canvas');
    });
    const { result } = renderHook(
      () => {
        useAgAction({
          name: 'draw',
          description: 'Draws',
          parameters: z.object({ fails: z.boolean() }),
          handler,
        });
        return useChat({
          oracleDid: user.host.did,
          sessionId,
          overrides: overrides(),
          onPaymentRequiredError: () => undefined,
        });
      },
      { wrapper: user.Provider },
    );
    await expect.poll(() => result.current.isRealTimeConnected).toBe(true);
    const sent = result.current.sendMessage('Draw');
    (await oracle.model.next()).call({ name: 'draw', input: { fails: false } });
    const second = await oracle.model.next();
    expect(second.body.messages.at(-1)).toMatchObject({ role: 'tool', content: 'null' });
    second.call({ name: 'draw', input: { fails: true } });
    const last = await oracle.model.next();
    expect(last.body.messages.at(-1)).toMatchObject({ content: '{"error":"no canvas"}' });
    last.say('Done');
    last.finish();
    await sent;
  });

  it('useAgAction runs and renders an action', async () => {
    const user = newUser();
    const sessionId = await openSession(user);
    const handler = vi.fn(() => ({ rows: 2 }));
    const render = vi.fn(() => null);
    const { result } = renderHook(
      () => {
        useAgAction({
          name: 'show_table',
          description: 'Shows a table',
          parameters: z.object({ title: z.string() }),
          handler,
          render,
        });
        return useChat({
          oracleDid: user.host.did,
          sessionId,
          overrides: overrides(),
          onPaymentRequiredError: () => undefined,
        });
      },
      { wrapper: user.Provider },
    );
    await expect.poll(() => result.current.isRealTimeConnected).toBe(true);
    const sent = result.current.sendMessage('Show it');
    (await oracle.model.next()).call({ name: 'show_table', input: { title: 'Plots' } });
    const after = await oracle.model.next();
    expect(JSON.stringify(after.body.messages.at(-1))).toContain('rows');
    after.say('There');
    after.finish();
    await sent;
    expect(handler).toHaveBeenCalledExactlyOnceWith({ title: 'Plots' });
    expect(render).toHaveBeenCalledWith(expect.objectContaining({ status: 'done' }));
  });
});
