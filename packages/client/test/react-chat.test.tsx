import './support/dom.js';
import { type UseChat, useChat } from '@sibyl/client/react';
import { render, screen, waitFor } from '@testing-library/react';
import { renderToString } from 'react-dom/server';
import { describe, expect, it } from 'vitest';
import { click, POLL_OPTIONS, useReactPages, waitForStatus } from './support/react-page.js';

const pages = useReactPages();

interface ConversationProps {
  readonly sessionId: string | undefined;
  /** Receives the `send` function of every render. */
  readonly onShow?: (send: UseChat['send']) => void;
}

function Conversation({ sessionId, onShow }: ConversationProps) {
  const { messages, status, send, abort } = useChat(sessionId);
  onShow?.(send);
  return (
    <main>
      <output>{status}</output>
      <ul>
        {messages.map(({ id, type, content }) => (
          <li key={id}>{`${type}: ${content}`}</li>
        ))}
      </ul>
      <button type="button" onClick={() => void send('hello')}>
        Send
      </button>
      <button type="button" onClick={() => void abort()}>
        Stop
      </button>
    </main>
  );
}

const shown = () => screen.queryAllByRole('listitem').map(({ textContent }) => textContent);
const waitForMessages = (...expected: string[]) =>
  waitFor(() => expect(shown()).toEqual(expected), POLL_OPTIONS);

describe('useChat', () => {
  it('sends a message, streams the answer, and stops it', async () => {
    const { client, wrapper } = pages.open();
    const { sessionId } = await client.sessions.create();
    render(<Conversation sessionId={sessionId} />, { wrapper });
    await waitForStatus('ready');
    await click('Send');
    const turn = await pages.model.next();
    turn.say('hi ');
    await waitForMessages('human: hello', 'ai: hi ');
    await waitForStatus('running');
    turn.say('there');
    await waitForMessages('human: hello', 'ai: hi there');
    await click('Stop');
    await waitForStatus('ready');
    await waitForMessages('human: hello', 'ai: hi there');
  });

  it('shows `loading` while the page is rendered on a server', () => {
    const { wrapper: Wrapper } = pages.open();
    const page = renderToString(
      <Wrapper>
        <Conversation sessionId="01a1f172-d46f-712f-9de9-dd3f98efdd93" />
      </Wrapper>,
    );
    expect(page).toContain('<output>loading</output>');
  });

  it('sends an early message once the session exists', async () => {
    const { client, wrapper } = pages.open();
    const { rerender } = render(<Conversation sessionId={undefined} />, { wrapper });
    await click('Send');
    const { sessionId } = await client.sessions.create();
    rerender(<Conversation sessionId={sessionId} />);
    (await pages.model.next()).answer('hi');
    await waitForMessages('human: hello', 'ai: hi');
  });

  it('sends with the `send` of an earlier render, once, and to its session', async () => {
    const { client, wrapper } = pages.open();
    const [one, two] = [await client.sessions.create(), await client.sessions.create()];
    const sends: UseChat['send'][] = [];
    const onShow = (send: UseChat['send']) => void sends.push(send);
    const { rerender } = render(<Conversation sessionId={one.sessionId} onShow={onShow} />, {
      wrapper,
    });
    const [early] = sends;
    await waitForStatus('ready');
    const sent = early?.('to one');
    (await pages.model.next()).answer('1');
    await sent;
    await waitForMessages('human: to one', 'ai: 1');
    rerender(<Conversation sessionId={two.sessionId} />);
    await waitForStatus('ready');
    expect(shown()).toEqual([]);
    void early?.('to one again');
    rerender(<Conversation sessionId={one.sessionId} />);
    (await pages.model.next()).answer('2');
    await waitForMessages('human: to one', 'ai: 1', 'human: to one again', 'ai: 2');
    const { messages } = await client.messages.page(two.sessionId);
    expect(messages).toEqual([]);
  });

  it('resumes a turn after a reload', async () => {
    const { client, wrapper } = pages.open();
    const { sessionId } = await client.sessions.create();
    const first = render(<Conversation sessionId={sessionId} />, { wrapper });
    await waitForStatus('ready');
    await click('Send');
    const turn = await pages.model.next();
    turn.say('half ');
    await waitForMessages('human: hello', 'ai: half ');
    first.unmount();
    client.close();

    const again = pages.open();
    render(<Conversation sessionId={sessionId} />, { wrapper: again.wrapper });
    await waitForMessages('human: hello', 'ai: half ');
    turn.say('whole');
    turn.finish();
    await waitForMessages('human: hello', 'ai: half whole');
    await waitForStatus('ready');
  });

  it('shows nothing without a session, and switches sessions', async () => {
    const { client, wrapper } = pages.open();
    const [one, two] = [await client.sessions.create(), await client.sessions.create()];
    const reply = client.messages.send(one.sessionId, 'first');
    (await pages.model.next()).finish();
    await reply;
    const { rerender } = render(<Conversation sessionId={undefined} />, { wrapper });
    await waitForStatus('loading');
    rerender(<Conversation sessionId={one.sessionId} />);
    await waitForMessages('human: first', 'ai: ');
    rerender(<Conversation sessionId={two.sessionId} />);
    expect(shown()).toEqual([]);
    await waitForStatus('ready');
    expect(shown()).toEqual([]);
  });
});
