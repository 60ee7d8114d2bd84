import { describe, expect, it } from 'vitest';
import { LiveReply, type SlackChannel } from './live-reply.js';

/** A channel that keeps its messages, and fails on request. */
function openChannel(existing: Record<string, string> = {}) {
  const messages = new Map(Object.entries(existing));
  const calls: string[] = [];
  const state = { failures: 0, gate: Promise.resolve() };
  const pass = async (call: string) => {
    await state.gate;
    calls.push(call);
    if (state.failures-- > 0) throw new Error('Slack is down');
  };
  const channel: SlackChannel = {
    post: async (_, { text }) => {
      await pass('post');
      const ts = `new-${messages.size}`;
      messages.set(ts, text);
      return ts;
    },
    update: async (_, ts, { text }) => {
      await pass('update');
      if (!messages.has(ts)) return false;
      messages.set(ts, text);
      return true;
    },
    remove: async (_, ts) => {
      await pass('remove');
      messages.delete(ts);
    },
    respond: async () => {},
    openView: async () => {},
    upload: async () => {},
    openDirect: async () => 'D1',
    download: async () => new Uint8Array(),
  };
  const posted: string[][] = [];
  const reply = new LiveReply({
    channel,
    place: { channel: 'C1' },
    replies: Object.keys(existing),
    onPosted: async (replies) => void posted.push([...replies]),
    pauseMs: 50,
  });
  return { reply, messages, calls, state, posted, texts: () => [...messages.values()] };
}

describe('LiveReply', () => {
  it('shows only the latest of what came in quick succession', async () => {
    const { reply, calls, texts } = openChannel();
    for (let i = 0; i < 100; i++) reply.show(`text ${i}`);
    await expect.poll(texts).toEqual(['text 99']);
    await reply.finish('the end');
    expect(texts()).toEqual(['the end']);
    expect(calls.length).toBeLessThanOrEqual(3);
  });

  it('does not change what is there already', async () => {
    const { reply, calls } = openChannel();
    reply.show('same');
    await reply.finish('same');
    expect(calls).toEqual(['post']);
  });

  it('LiveReply continues in the messages of an earlier attempt', async () => {
    const { reply, calls, texts, posted } = openChannel({ a: '_Thinking…_' });
    await reply.finish('answer');
    expect([calls, texts(), posted]).toEqual([['update'], ['answer'], []]);
  });

  it('posts again what was deleted', async () => {
    const { reply, messages, texts, posted } = openChannel();
    reply.show('first');
    await expect.poll(texts).toEqual(['first']);
    messages.clear();
    await reply.finish('the end');
    expect(texts()).toEqual(['the end']);
    expect(posted).toEqual([['new-0'], ['new-0']]);
  });

  it('removes what is left over of a longer one', async () => {
    const { reply, texts } = openChannel({ a: 'much', b: 'more', c: 'text' });
    await reply.finish('short');
    expect(texts()).toEqual(['short']);
  });

  it('grows into further messages, and says of each before the next', async () => {
    const { reply, posted, texts } = openChannel();
    const text = Array.from({ length: 200 }, (_, i) => `line ${i} ${'x'.repeat(40)}`).join('\n');
    await reply.finish(text);
    expect(texts().join('\n')).toBe(text);
    expect(posted.map(({ length }) => length)).toEqual([1, 2, 3, 4]);
  });

  it('shows the end although showing it on the way failed', async () => {
    const { reply, state, texts, calls } = openChannel();
    state.failures = 1;
    reply.show('first');
    await expect.poll(() => calls.length).toBe(1);
    await reply.finish('the end');
    expect(texts()).toEqual(['the end']);
  });

  it('fails when the end cannot be shown', async () => {
    const { reply, state } = openChannel();
    state.failures = 5;
    await expect(reply.finish('the end')).rejects.toThrow('Slack is down');
  });

  it('LiveReply.finish waits for the update in progress', async () => {
    const { reply, state, texts } = openChannel();
    const { promise, resolve } = Promise.withResolvers<void>();
    state.gate = promise;
    reply.show('first');
    const finished = reply.finish('the end');
    resolve();
    await finished;
    expect(texts()).toEqual(['the end']);
  });
});
