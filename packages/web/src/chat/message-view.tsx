import type { Call, ChatMessage } from '@sibyl/client';
import { useActionRenderer } from '@sibyl/client/react';
import { Component, lazy, memo, type ReactNode, Suspense } from 'react';
import { CopyButton } from '../page/icon-button.js';
import { AttachmentList } from './attachments.js';

// Loaded with the first answer, since it is larger than the rest of the page.
const Markdown = lazy(async () => ({
  default: (await import('../markdown/markdown.js')).Markdown,
}));

/** One message; falls back to plain text if the model sent something that cannot be rendered. */
export const MessageView = memo(({ message }: { readonly message: ChatMessage }) => (
  <ErrorBoundary fallback={<PlainMessage message={message} />}>
    {message.type === 'human' ? <UserMessage message={message} /> : <Answer message={message} />}
  </ErrorBoundary>
));

function PlainMessage({ message: { content } }: { readonly message: ChatMessage }) {
  return (
    <article className="message" aria-label="Message">
      <p className="text">{content}</p>
      <p className="quiet">Some parts of this message cannot be displayed.</p>
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
  const isRunning = status === 'running' || status === 'waiting';
  return (
    <article className="message ai" aria-label="Answer" aria-busy={isRunning}>
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
      {isRunning && !content && <span className="thinking" role="status" aria-label="Thinking" />}
      {warnings.map(({ code, message: text, timestamp }) => (
        <p key={`${code} ${timestamp}`} className="warning">
          {text}
        </p>
      ))}
      <MessageStatus message={message} />
      {!isRunning && content && <CopyButton text={content} label="Copy answer" />}
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

/** The state of a message that is queued, incomplete or failed. */
function MessageStatus({ message: { status, error } }: { readonly message: ChatMessage }) {
  if (error) {
    return (
      <p className="error" role="alert">
        {error.error}
        {error.retryable && ' Try sending the message again.'}
      </p>
    );
  }
  if (status === 'waiting')
    return <p className="quiet">Queued until the current answer is finished</p>;
  if (status === 'incomplete') return <p className="quiet">Answer stopped</p>;
  if (status === 'failed') return <p className="error">Message not sent</p>;
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

/** A tool call: its name and status; input and output on demand. */
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
          <h4>Error</h4>
          <pre>{formatJson(error)}</pre>
        </>
      )}
    </details>
  );
}

/** Pretty-prints JSON; shows other text unchanged. */
function formatJson(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

interface ErrorBoundaryProps {
  /** Rendered if the children throw. */
  readonly fallback: ReactNode;
  readonly children: ReactNode;
}

/** Without a boundary, React unmounts the whole page when a component throws. */
class ErrorBoundary extends Component<ErrorBoundaryProps, { readonly hasError: boolean }> {
  override readonly state = { hasError: false };

  static getDerivedStateFromError() {
    return { hasError: true };
  }

  override render(): ReactNode {
    return this.state.hasError ? this.props.fallback : this.props.children;
  }
}
