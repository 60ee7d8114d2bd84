import type { Fact } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { type FormEvent, useCallback, useDeferredValue, useState } from 'react';
import { useFormDraft, useFormOpen } from '../chat/drafts.js';
import { formatWhen } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { toHash } from '../page/router.js';
import { Icon, IconButton } from '../ui/icon.js';
import { Empty, Failure, PageHead, useAction } from './parts.js';

const PAGE_SIZE = 50;
const MAX_LENGTH = 1000;
const NEW_FACT = 'new-fact';

/** What the oracle remembers about the user; every fact can be changed or removed. */
export function MemoryScreen() {
  const { card } = usePage();
  const { memory } = useOracle();
  const [query, setQuery] = useState('');
  const [limit, setLimit] = useState(PAGE_SIZE);
  const [isAdding, setAdding] = useFormOpen(NEW_FACT);
  const q = useDeferredValue(query.trim());
  const load = useCallback(
    (signal: AbortSignal) => memory.list({ limit, signal, ...(q && { q }) }),
    [memory, limit, q],
  );
  const { value, error, refresh } = useResource(load);
  const showAdded = async () => {
    setAdding(false);
    await refresh();
  };
  if (error?.status === 404) return <Unavailable />;
  const facts = value?.facts ?? [];
  return (
    <>
      <PageHead
        title={t('settings.memory.title', { name: card.name })}
        lede={t('settings.memory.lede', { name: card.name })}
      >
        <button type="button" className="btn" onClick={() => setAdding(true)}>
          <Icon name="plus" />
          {t('settings.memory.add')}
        </button>
      </PageHead>
      <Failure error={error} onRetry={refresh} />
      <div className="stack">
        {(query || facts.length > 0) && <Search query={query} onChange={setQuery} />}
        {isAdding && (
          <div className="card card-pad">
            <FactForm
              id={NEW_FACT}
              text=""
              onSave={(text) => memory.add(text)}
              onSaved={showAdded}
              onCancel={() => setAdding(false)}
            />
          </div>
        )}
        {value && <FactList facts={facts} isSearch={q !== ''} onChange={refresh} />}
        {value && !q && value.total > facts.length && (
          <div className="actions">
            <button type="button" className="btn btn-s" onClick={() => setLimit(limit + PAGE_SIZE)}>
              {t('settings.more')}
            </button>
          </div>
        )}
      </div>
    </>
  );
}

interface SearchProps {
  readonly query: string;
  readonly onChange: (query: string) => void;
}

const Search = ({ query, onChange }: SearchProps) => (
  <input
    className="input"
    type="search"
    dir="auto"
    placeholder={t('settings.memory.search')}
    aria-label={t('settings.memory.search')}
    value={query}
    onChange={({ target }) => onChange(target.value)}
  />
);

interface FactListProps {
  readonly facts: readonly Fact[];
  readonly isSearch: boolean;
  readonly onChange: () => Promise<void>;
}

function FactList({ facts, isSearch, onChange }: FactListProps) {
  const { card } = usePage();
  if (facts.length === 0) {
    return (
      <Empty
        title={t(isSearch ? 'settings.memory.notFound' : 'settings.memory.none')}
        hint={t('settings.memory.none.hint', { name: card.name })}
      />
    );
  }
  return (
    <ul className="card rows">
      {facts.map((fact) => (
        <FactRow key={fact.id} fact={fact} onChange={onChange} />
      ))}
    </ul>
  );
}

function Unavailable() {
  return <PageHead title={t('chat.nav.memory')} lede={t('settings.memory.unavailable')} />;
}

function FactRow({
  fact,
  onChange,
}: {
  readonly fact: Fact;
  readonly onChange: () => Promise<void>;
}) {
  const { memory } = useOracle();
  const formId = `fact:${fact.id}`;
  const [isEditing, setEditing] = useFormOpen(formId);
  const { isBusy, error, run } = useAction();
  if (isEditing) {
    return (
      <li>
        <FactForm
          id={formId}
          text={fact.text}
          onSave={(text) => memory.change(fact.id, text)}
          onSaved={async () => {
            setEditing(false);
            await onChange();
          }}
          onCancel={() => setEditing(false)}
        />
      </li>
    );
  }
  return (
    <li className="row-wrap">
      <FactText fact={fact} />
      <IconButton
        icon="edit"
        label={t('settings.memory.edit', { fact: fact.text })}
        onClick={() => setEditing(true)}
      />
      <IconButton
        icon="trash"
        label={t('settings.memory.forget', { fact: fact.text })}
        disabled={isBusy}
        onClick={() =>
          void run(async () => {
            await memory.forget(fact.id);
            await onChange();
          })
        }
      />
      {error && (
        <div className="row-below">
          <Failure error={error} />
        </div>
      )}
    </li>
  );
}

/** A fact, where it is from, and when it was changed. */
function FactText({ fact }: { readonly fact: Fact }) {
  return (
    <div className="grow">
      <span dir="auto">{fact.text}</span>
      <div className="small quiet">
        {fact.sessionId ? (
          <>
            {t('settings.memory.from')}{' '}
            <a href={toHash({ name: 'conversation', sessionId: fact.sessionId })}>
              {t('settings.memory.fromConversation')}
            </a>
          </>
        ) : (
          t('settings.memory.byYou')
        )}
        {fact.subUser !== undefined && ` · ${fact.subUser}`}
        {' · '}
        {formatWhen(fact.updatedAt ?? fact.createdAt)}
      </div>
    </div>
  );
}

interface FactFormProps {
  readonly id: string;
  readonly text: string;
  readonly onSave: (text: string) => Promise<unknown>;
  /** Shows the fact in the list. */
  readonly onSaved: () => Promise<void>;
  readonly onCancel: () => void;
}

function FactForm({ id, text: initial, onSave, onSaved, onCancel }: FactFormProps) {
  const { values, isTyped, change, clear } = useFormDraft(id, { text: initial });
  const { text } = values;
  const { isBusy, error, run } = useAction();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      await onSave(text.trim());
      clear();
      await onSaved();
    });
  };
  return (
    <form className="grow stack stack-2" onSubmit={submit}>
      <textarea
        // biome-ignore lint/a11y/noAutofocus: the user just asked to write.
        autoFocus
        className="input"
        dir="auto"
        rows={2}
        required
        maxLength={MAX_LENGTH}
        aria-label={t('settings.memory.fact')}
        value={text}
        onChange={({ target }) => change({ text: target.value })}
        onKeyDown={({ key }) => key === 'Escape' && !isTyped && onCancel()}
      />
      <Failure error={error} findLabel={() => t('settings.memory.fact')} />
      <div className="actions">
        <button
          type="submit"
          className="btn btn-primary btn-s"
          disabled={isBusy || text.trim() === ''}
        >
          {t('settings.save')}
        </button>
        <button
          type="button"
          className="btn btn-quiet btn-s"
          onClick={() => {
            clear();
            onCancel();
          }}
        >
          {t('chat.cancel')}
        </button>
      </div>
    </form>
  );
}
