import './support/dom.js';
import { useAction, useActionRenderer, useBrowserTool, useChat } from '@sibyl/client/react';
import { cleanup, render } from '@testing-library/react';
import { useState } from 'react';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { click, useReactPages, waitForStatus } from './support/react-page.js';

const pages = useReactPages();

const rows = z.object({ rows: z.array(z.string()).min(1) });

function Workbench({ sessionId }: { readonly sessionId: string }) {
  const [color, setColor] = useState('white');
  const { messages, status, send } = useChat(sessionId);
  const { renderCall, renderComponent } = useActionRenderer();
  useBrowserTool({
    name: 'paint',
    description: 'Paints the page',
    schema: z.object({ color: z.string() }),
    run: ({ color: next }) => {
      setColor(next);
      return `was ${color}`;
    },
  });
  useAction({
    name: 'show_rows',
    description: 'Shows rows',
    schema: rows,
    run: ({ rows: { length } }) => ({ length }),
    render: ({ args, status: state, result }) => (
      <p>{`${args.rows.join('+')} ${state} ${JSON.stringify(result)}`}</p>
    ),
  });
  return (
    <main>
      <output>{status}</output>
      <b>{color}</b>
      {messages.map(({ id, calls, components }) => (
        <section key={id}>
          {calls.map((call) => (
            <div key={call.id}>{renderCall(call)}</div>
          ))}
          {components.map((component) => (
            <aside key={component.eventId}>{renderComponent(component)}</aside>
          ))}
        </section>
      ))}
      <button type="button" onClick={() => void send('go')}>
        Send
      </button>
    </main>
  );
}

describe('tool hooks', () => {
  const open = async () => {
    const { client, wrapper } = pages.open();
    const { sessionId } = await client.sessions.create();
    const view = render(<Workbench sessionId={sessionId} />, { wrapper });
    await waitForStatus('ready');
    return { client, sessionId, view };
  };

  it('useBrowserTool runs the latest function', async () => {
    const { view } = await open();
    await click('Send');
    (await pages.model.next()).call({ name: 'paint', input: { color: 'red' } });
    const second = await pages.model.next();
    expect(second.body.messages.at(-1).content).toContain('was white');
    second.call({ name: 'paint', input: { color: 'blue' } });
    const third = await pages.model.next();
    expect(third.body.messages.at(-1).content).toContain('was red');
    third.finish();
    await waitForStatus('ready');
    expect(view.container.querySelector('b')?.textContent).toBe('blue');
  });

  it('useAction runs and renders, also from the history', async () => {
    const { sessionId, view } = await open();
    await click('Send');
    (await pages.model.next()).call({ name: 'show_rows', input: { rows: ['a', 'b'] } });
    (await pages.model.next()).finish();
    await waitForStatus('ready');
    const text = (selector: string) => view.container.querySelector(selector)?.textContent;
    expect(text('div')).toBe('a+b done {"length":2}');
    expect(text('aside')).toBe('a+b done undefined');
    cleanup();
    const again = pages.open();
    const stored = render(<Workbench sessionId={sessionId} />, { wrapper: again.wrapper });
    await waitForStatus('ready');
    expect(stored.container.querySelector('div')?.textContent).toBe('a+b done {"length":2}');
  });

  it('useActionRenderer renders nothing for invalid arguments', async () => {
    const { view } = await open();
    await click('Send');
    (await pages.model.next()).call({ name: 'show_rows', input: { rows: [] } });
    (await pages.model.next()).finish();
    await waitForStatus('ready');
    expect(view.container.querySelector('div')?.innerHTML).toBe('');
  });

  it('removes tools when the component unmounts', async () => {
    const { client, sessionId, view } = await open();
    view.unmount();
    expect(client.action('show_rows')).toBeUndefined();
    const reply = client.messages.send(sessionId, 'go');
    const turn = await pages.model.next();
    turn.finish();
    await reply;
    expect(JSON.stringify(turn.body.tools ?? [])).not.toMatch(/paint|show_rows/);
  });
});
