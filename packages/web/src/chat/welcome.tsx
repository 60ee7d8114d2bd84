import type { MessageToSend, PluginInfo } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { usePage } from '../page/page-context.js';
import { type ChatFrame, ChatHeader } from './chat-header.js';
import { Composer } from './composer.js';

interface WelcomeProps extends ChatFrame {
  readonly onSend: (message: MessageToSend) => Promise<void>;
}

/** Shown before a conversation starts: the oracle's name and capabilities. */
export function Welcome({ onSend, ...frame }: WelcomeProps) {
  const { card } = usePage();
  const [error, setError] = useState<string>();
  const send = (message: MessageToSend) =>
    onSend(message).catch((cause: Error) => {
      setError(cause.message);
      throw cause;
    });
  return (
    <main className="conversation">
      <ChatHeader {...frame} title="New conversation" />
      <section className="welcome" aria-label="What this oracle can do">
        <img src="./icon.svg" alt="" width="56" height="56" />
        <h2>{card.name}</h2>
        <p>
          Ask anything. You do not need an account: a key in this browser identifies you. Other
          users cannot see your conversations; the operator of this oracle and its model provider
          can.
        </p>
        <Capabilities onSend={(example) => void send(example).catch(() => undefined)} />
        {error && (
          <p className="error" role="alert">
            {error}
          </p>
        )}
      </section>
      <Composer onSend={send} />
    </main>
  );
}

function Capabilities({ onSend }: { readonly onSend: (message: string) => void }) {
  const client = useOracle();
  const [plugins, setPlugins] = useState<readonly PluginInfo[]>([]);
  useEffect(() => {
    client.plugins.list().then(setPlugins, () => undefined);
  }, [client]);
  return (
    <ul className="capabilities">
      {plugins.map(({ name, title, summary, examples = [] }) => (
        <li key={name}>
          <h3>{title}</h3>
          <p>{summary}</p>
          {examples.slice(0, 2).map((example) => (
            <button key={example} type="button" className="example" onClick={() => onSend(example)}>
              {example}
            </button>
          ))}
        </li>
      ))}
    </ul>
  );
}
