import type { PluginInfo } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { t } from '../i18n/i18n.js';
import { Head } from '../page/head.js';
import { usePage } from '../page/page-context.js';
import { go, toHash } from '../page/router.js';
import { Icon } from '../ui/icon.js';
import { Composer } from './composer.js';
import { mergeDraft, moveDraft, useDraft } from './drafts.js';
import type { OutgoingMessage, UnsentMessage } from './outbox.js';
import { UnsentView, useUnsent } from './unsent-view.js';

/** Shown before a conversation starts: what this is, who can read it, and prompts that work. */
export function Welcome() {
  const { outbox, signer } = usePage();
  const draft = useDraft(signer.did, undefined);
  const unsent = useUnsent(undefined);
  useEffect(() => {
    // Opens the conversation that the first message of this screen starts.
    outbox.onSession = (sessionId) => {
      moveDraft(draft, signer.did, sessionId);
      go({ name: 'conversation', sessionId });
    };
    return () => {
      outbox.onSession = undefined;
    };
  }, [outbox, draft, signer]);
  const send = (message: OutgoingMessage) => {
    outbox.add(message);
  };
  const edit = ({ message }: UnsentMessage) => draft.change(mergeDraft(draft.draft, message));
  return (
    <>
      <Head title={t('chat.newConversation')} />
      {unsent.length > 0 ? (
        <div className="scroll">
          <div className="thread">
            {unsent.map((each) => (
              <UnsentView key={each.requestId} unsent={each} onEdit={edit} />
            ))}
          </div>
        </div>
      ) : (
        <Introduction onSend={(message) => send({ message })} />
      )}
      <Composer draft={draft} onSend={send} />
    </>
  );
}

function Introduction({ onSend }: { readonly onSend: (message: string) => void }) {
  const { card } = usePage();
  return (
    <div className="scroll">
      <div className="thread welcome">
        <div className="stack stack-2">
          <h2 className="hello">{t('chat.welcome.hello')}</h2>
          <p className="lede big">{t('chat.welcome.lede')}</p>
        </div>
        <Prompts onSend={onSend} />
        <ul className="facts">
          <li>
            <Icon name="key" />
            <div>
              <b>{t('chat.welcome.key')}</b>
              <p>
                {t('chat.welcome.key.text')}{' '}
                <a href={toHash({ name: 'settings', screen: 'key' })}>{t('chat.welcome.backUp')}</a>
              </p>
            </div>
          </li>
          <li>
            <Icon name="lock" />
            <div>
              <b>{t('chat.welcome.readers')}</b>
              <p>{t('chat.welcome.readers.text')}</p>
            </div>
          </li>
          <li>
            <Icon name="shield" />
            <div>
              <b>{t('chat.welcome.control')}</b>
              <p>
                {t('chat.welcome.control.text', { oracle: card.name })}{' '}
                <a href={toHash({ name: 'settings', screen: 'permissions' })}>
                  {t('chat.welcome.permissions')}
                </a>
              </p>
            </div>
          </li>
        </ul>
        <p className="small quiet">
          {t('chat.welcome.before', { oracle: card.name })}{' '}
          <a href={toHash({ name: 'settings', screen: 'key' })}>{t('chat.welcome.useKey')}</a>
        </p>
      </div>
    </div>
  );
}

const MAX_PROMPTS = 4;

/** Examples of the oracle's plugins, one of each first. */
function Prompts({ onSend }: { readonly onSend: (message: string) => void }) {
  const client = useOracle();
  const [plugins, setPlugins] = useState<readonly PluginInfo[]>();
  useEffect(() => {
    client.plugins.list().then(setPlugins, () => setPlugins([]));
  }, [client]);
  // What is below must not move when they arrive.
  if (!plugins) return <div className="prompts-space" />;
  const examples = plugins.flatMap(({ examples: all = [] }) =>
    all.map((text, index) => ({ text, index })),
  );
  const shown = examples.toSorted((a, b) => a.index - b.index).slice(0, MAX_PROMPTS);
  if (shown.length === 0) return null;
  return (
    <ul className="card rows prompts" aria-label={t('chat.welcome.prompts')}>
      {shown.map(({ text }) => (
        <li key={text}>
          <button type="button" onClick={() => onSend(text)}>
            <Icon name="chat" />
            <span className="grow">
              <bdi>{text}</bdi>
            </span>
            <Icon name="right" flip />
          </button>
        </li>
      ))}
    </ul>
  );
}
