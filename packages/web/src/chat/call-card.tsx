import type { Call } from '@sibyl/client';

const states: Record<Call['status'], string> = {
  running: 'running',
  done: 'done',
  error: 'failed',
};

const kinds: Record<Call['kind'], string> = {
  tool: 'Tool',
  'browser-tool': 'Tool in this page',
  action: 'Action',
};

/** A call of a tool: its name and state, and on demand what went in and came out. */
export function CallCard({ call }: { readonly call: Call }) {
  const { name, kind, args, status, output, error } = call;
  return (
    <details className="call" data-status={status}>
      <summary>
        <span className="kind">{kinds[kind]}</span> <code>{name}</code>{' '}
        <span className="status">{states[status]}</span>
      </summary>
      <h4>Input</h4>
      <pre>{JSON.stringify(args, null, 2)}</pre>
      {output !== undefined && status !== 'error' && (
        <>
          <h4>Output</h4>
          <pre>{pretty(output)}</pre>
        </>
      )}
      {error !== undefined && (
        <>
          <h4>Fault</h4>
          <pre>{pretty(error)}</pre>
        </>
      )}
    </details>
  );
}

/** `output` is JSON text; whatever else it is, is shown as it is. */
function pretty(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}
