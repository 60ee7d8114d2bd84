import type { AnswerPart, Call } from '@sibyl/client';
import { useActionRenderer } from '@sibyl/client/react';
import { lazy, type ReactNode, Suspense, useRef } from 'react';
import { showReordering } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { CopyButton } from '../ui/copy-button.js';
import { Icon } from '../ui/icon.js';
import { CitationsContext, Sources } from './citations.js';

// Loaded with the first answer, since it is larger than the rest of the page.
const Markdown = lazy(async () => ({
  default: (await import('../markdown/markdown.js')).Markdown,
}));

interface AnswerPartsProps {
  readonly parts: readonly AnswerPart[];
  readonly isRunning: boolean;
  /** Whether the answer waits for a decision or for another program. */
  readonly isPaused: boolean;
}

/** What an answer consists of, in the order in which it happened. */
export function AnswerParts({ parts, isRunning, isPaused }: AnswerPartsProps) {
  const { renderCall, renderComponent } = useActionRenderer();
  const callIds = new Set(parts.flatMap((part) => (part.type === 'call' ? part.call.id : [])));
  // Until they are decided, calls of a paused answer are stored as failed.
  const waiting = isPaused
    ? parts.slice(parts.findLastIndex(({ type }) => type === 'text') + 1)
    : [];
  const renderPart = (part: AnswerPart, isLast: boolean): ReactNode => {
    switch (part.type) {
      case 'text':
        return <Prose text={part.text} isRunning={isLast} />;
      case 'reasoning':
        return <Reasoning text={part.text} isRunning={isLast} />;
      case 'call': {
        const call = waiting.includes(part) ? toWaiting(part.call) : part.call;
        return (
          <>
            <ToolCall call={call} isRunning={isRunning} isPaused={isPaused} />
            {/* The model knows that one that failed is not shown. */}
            {call.status !== 'error' && renderCall(part.call)}
          </>
        );
      }
      case 'component':
        // The call that it belongs to renders it.
        return callIds.has(part.component.eventId) ? null : renderComponent(part.component);
      case 'approval':
      case 'citation':
        return null;
    }
  };
  const citations = useUnchanged(
    parts.flatMap((part) => (part.type === 'citation' ? part.citation : [])),
  );
  return (
    <CitationsContext value={citations}>
      {parts.map((part, index) => (
        // Parts are only ever added at the end.
        <div key={index} className="part">
          {renderPart(part, isRunning && index === parts.length - 1)}
        </div>
      ))}
      <Sources citations={citations} />
    </CitationsContext>
  );
}

/** The same array as before if it has the same items: a new one would render all blocks again. */
function useUnchanged<T>(items: readonly T[]): readonly T[] {
  const known = useRef(items);
  const isSame =
    items.length === known.current.length && items.every((each, i) => each === known.current[i]);
  if (!isSame) known.current = items;
  return known.current;
}

function Prose({ text, isRunning }: { readonly text: string; readonly isRunning: boolean }) {
  return (
    <div className="prose" dir="auto" data-running={isRunning || undefined}>
      <Suspense fallback={<p className="text">{text}</p>}>
        <Markdown text={text} />
      </Suspense>
    </div>
  );
}

function Reasoning({ text, isRunning }: { readonly text: string; readonly isRunning: boolean }) {
  return (
    <details className="fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t(isRunning ? 'chat.reasoning.now' : 'chat.reasoning')}
      </summary>
      <div dir="auto">
        <Suspense fallback={<p className="text">{text}</p>}>
          <Markdown text={text} />
        </Suspense>
      </div>
    </details>
  );
}

function toWaiting(call: Call): Call {
  if (call.status !== 'error') return call;
  const { error: _, output: __, ...rest } = call;
  return { ...rest, status: 'running' };
}

type CallStatus = Call['status'] | 'waiting';

const states = {
  running: 'chat.tool.running',
  done: 'chat.tool.done',
  error: 'chat.tool.error',
  waiting: 'chat.tool.waiting',
} as const satisfies Record<CallStatus, string>;

/** A call of an answer that has ended has not run, unless the answer continues after a pause. */
function findStatus({ call, isRunning, isPaused }: ToolCallProps): CallStatus {
  if (call.status !== 'running' || isRunning) return call.status;
  return isPaused ? 'waiting' : 'error';
}

interface ToolCallProps {
  readonly call: Call;
  readonly isRunning: boolean;
  readonly isPaused: boolean;
}

/** A tool call as a sentence; its name, input and output on demand. */
function ToolCall(props: ToolCallProps) {
  const { name, args, output, error } = props.call;
  const status = findStatus(props);
  const result = error ?? output;
  return (
    <details className="tool" data-status={status}>
      <summary>
        <ToolIcon status={status} />
        <span className="grow clip">{t(states[status], { tool: toWords(name) })}</span>
        <Icon name="right" flip className="i-chev" />
      </summary>
      <div>
        <dl className="kv">
          <dt>{t('chat.tool.name')}</dt>
          <dd>
            <code>{name}</code>
          </dd>
          {Object.entries(args).map(([key, value]) => (
            <KeyValue key={key} label={toWords(key)} value={value} />
          ))}
        </dl>
        {result !== undefined && (
          <ToolResult text={formatJson(result)} isError={error !== undefined} />
        )}
      </div>
    </details>
  );
}

function ToolIcon({ status }: { readonly status: CallStatus }) {
  if (status === 'waiting') return <Icon name="clock" />;
  if (status === 'running') return <span className="spin" />;
  if (status === 'done') return <Icon name="check" />;
  return <Icon name="alert" className="is-fault" />;
}

function KeyValue({ label, value }: { readonly label: string; readonly value: unknown }) {
  return (
    <>
      <dt>{label}</dt>
      <dd dir="auto">
        {showReordering(typeof value === 'string' ? value : JSON.stringify(value))}
      </dd>
    </>
  );
}

function ToolResult({ text, isError }: { readonly text: string; readonly isError: boolean }) {
  return (
    <details className="fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t(isError ? 'chat.tool.problem' : 'chat.tool.result')}
      </summary>
      <div className="block">
        <div className="block-head">
          <span className="grow" />
          <CopyButton text={text} label={t('chat.tool.copy')} />
        </div>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
        <pre tabIndex={0}>{showReordering(text)}</pre>
      </div>
    </details>
  );
}

/** `set_user_preferences` becomes "set user preferences". */
export const toWords = (name: string): string =>
  name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/[_.-]+/g, ' ')
    .trim()
    .toLowerCase();

/** Pretty-prints JSON; shows other text unchanged. */
function formatJson(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}
