import type { Call, ChatMessage } from '@sibyl/client';
import { useActionRenderer } from '@sibyl/client/react';
import { Component, lazy, memo, type ReactNode, Suspense } from 'react';
import { CopyButton } from '../page/icon-button.js';
import { AttachmentList } from './attachments.js';

// Loaded with the first answer: it is larger than all the rest of the page.
const Markdown = lazy(async () => ({
  default: (await import('../markdown/markdown.js')).Markdown,
}));

/** One message with all that belongs to it; what a model sends may be nothing that can be shown. */
export const MessageView = memo(({ message }: { readonly message: ChatMessage }) => (
  <ErrorBoundary instead={<PlainMessage message={message} />}>
    {message.type === 'human' ? <UserMessage message={message} /> : <Answer message={message} />}
  </ErrorBoundary>
));

function PlainMessage({ message: { content } }: { readonly message: ChatMessage }) {
  return (
    <article className="message" aria-label="Message">
      <p className="text">{content}</p>
      <p className="quiet">Parts of this message cannot be shown</p>
    </article>
  );
}

function UserMessage({ message }: { readonly message: ChatMessage }) {
  return (
    <article className="message human" aria-label="You">
      <p className="text">{message.content}</p>
      <AttachmentList files={message.attachments} />
      <MessageStatus message={message} />
    </article>
  );
}

function Answer({ message }: { readonly message: ChatMessage }) {
  const { renderCall, renderComponent } = useActionRenderer();
  const { content, reasoning, calls, components, warnings, status } = message;
  const isGrowing = status === 'running' || status === 'waiting';
  return (
    <article className="message ai" aria-label="Answer" aria-busy={isGrowing}>
      {reasoning && (
        <details className="reasoning">
          <summary>Reasoning</summary>
          <Text text={reasoning} />
        </details>
      )}
      {calls.map((call) => (
        <div key={call.id} className="call-with-view">
          <ToolCallCard call={call} />
          {renderCall(call)}
        </div>
      ))}
      {components
        .filter(({ eventId }) => !calls.some(({ id }) => id === eventId))
        .map((component) => (
          <div key={component.eventId}>{renderComponent(component)}</div>
        ))}
      {content && <Text text={content} />}
      {isGrowing && !content && <span className="thinking" role="status" aria-label="Thinking" />}
      {warnings.map(({ code, message: text, timestamp }) => (
        <p key={`${code} ${timestamp}`} className="warning">
          {text}
        </p>
      ))}
      <MessageStatus message={message} />
      {!isGrowing && content && <CopyButton text={content} label="Copy the answer" />}
    </article>
  );
}

function Text({ text }: { readonly text: string }) {
  return (
    <Suspense fallback={<p className="text">{text}</p>}>
      <Markdown text={text} />
    </Suspense>
  );
}

/** What is to be said of a message that is not simply there. */
function MessageStatus({ message: { status, error } }: { readonly message: ChatMessage }) {
  if (error) {
    return (
      <p className="fault" role="alert">
        {error.error}
        {error.retryable && ' You can send the message again.'}
      </p>
    );
  }
  if (status === 'waiting') return <p className="quiet">Waiting for the answer above</p>;
  if (status === 'incomplete') return <p className="quiet">Stopped before its end</p>;
  if (status === 'failed') return <p className="fault">Not sent</p>;
  return null;
}

const statusLabels: Record<Call['status'], string> = {
  running: 'running',
  done: 'done',
  error: 'failed',
};

const kindLabels: Record<Call['kind'], string> = {
  tool: 'Tool',
  'browser-tool': 'Tool in this page',
  action: 'Action',
};

/** A call of a tool: its name and state, and on demand what went in and came out. */
function ToolCallCard({ call }: { readonly call: Call }) {
  const { name, kind, args, status, output, error } = call;
  return (
    <details className="call" data-status={status}>
      <summary>
        <span className="kind">{kindLabels[kind]}</span> <code>{name}</code>{' '}
        <span className="status">{statusLabels[status]}</span>
      </summary>
      <h4>Input</h4>
      <pre>{JSON.stringify(args, null, 2)}</pre>
      {output !== undefined && status !== 'error' && (
        <>
          <h4>Output</h4>
          <pre>{formatJson(output)}</pre>
        </>
      )}
      {error !== undefined && (
        <>
          <h4>Fault</h4>
          <pre>{formatJson(error)}</pre>
        </>
      )}
    </details>
  );
}

/** `output` is JSON text; whatever else it is, is shown as it is. */
function formatJson(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

interface ErrorBoundaryProps {
  /** Shown where what is inside cannot be. */
  readonly instead: ReactNode;
  readonly children: ReactNode;
}

/** Keeps what cannot be shown from taking the page along: React would take all of it away. */
class ErrorBoundary extends Component<ErrorBoundaryProps, { readonly hasFailed: boolean }> {
  override readonly state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render(): ReactNode {
    return this.state.hasFailed ? this.props.instead : this.props.children;
  }
}
