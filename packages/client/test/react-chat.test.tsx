import './support/dom.js';
import { useChat } from '@sibyl/client/react';
import { render, screen, waitFor } from '@testing-library/react';
import { describe, expect, it } from 'vitest';
import { click, patient, untilStatus, useReactPages } from './support/react-page.js';

const pages = useReactPages();

function Conversation({ sessionId }: { readonly sessionId: string | undefined }) {
  const { messages, status, send, abort } = useChat(sessionId);
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
const untilShown = (...expected: string[]) =>
  waitFor(() => expect(shown()).toEqual(expected), patient);

describe('useChat', () => {
  it('sends, shows the answer as it grows, and stops', async () => {
    const { client, wrapper } = pages.open();
    const { sessionId } = await client.sessions.create();
    render(<Conversation sessionId={sessionId} />, { wrapper });
    await untilStatus('ready');
    await click('Send');
    const turn = await pages.model.next();
    turn.say('hi ');
    await untilShown('human: hello', 'ai: hi ');
    await untilStatus('running');
    turn.say('there');
    await untilShown('human: hello', 'ai: hi there');
    await click('Stop');
    await untilStatus('ready');
    await untilShown('human: hello', 'ai: hi there');
  });

  it('resumes on reload', async () => {
    const { client, wrapper } = pages.open();
    const { sessionId } = await client.sessions.create();
    const first = render(<Conversation sessionId={sessionId} />, { wrapper });
    await untilStatus('ready');
    await click('Send');
    const turn = await pages.model.next();
    turn.say('half ');
    await untilShown('human: hello', 'ai: half ');
    first.unmount();
    client.close();

    const again = pages.open();
    render(<Conversation sessionId={sessionId} />, { wrapper: again.wrapper });
    await untilShown('human: hello', 'ai: half ');
    turn.say('whole');
    turn.finish();
    await untilShown('human: hello', 'ai: half whole');
    await untilStatus('ready');
  });

  it('shows nothing without a session, and changes from one to another', async () => {
    const { client, wrapper } = pages.open();
    const [one, two] = [await client.sessions.create(), await client.sessions.create()];
    const reply = client.messages.send(one.sessionId, 'first');
    (await pages.model.next()).finish();
    await reply;
    const { rerender } = render(<Conversation sessionId={undefined} />, { wrapper });
    await untilStatus('loading');
    rerender(<Conversation sessionId={one.sessionId} />);
    await untilShown('human: first', 'ai: ');
    rerender(<Conversation sessionId={two.sessionId} />);
    expect(shown()).toEqual([]);
    await untilStatus('ready');
    expect(shown()).toEqual([]);
  });
});
